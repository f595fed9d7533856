//! The execution of prepared operations: the timed part, with the checks of the answers.

use std::time::Instant;

use tamis::{Db, Slice};

use crate::error::BenchError;
use crate::run::chunk::{Action, Chunk, Op};
use crate::run::{RunSpec, Timing, elapsed_ns};
use crate::value;
use crate::workload::{MULTI_GET_KEYS, Workload};

/// Of so many values found one is compared byte by byte; of the others the first bytes.
const WHOLE_CHECK_EVERY: u64 = 256;

/// A scan that came to the end of all keys.
struct ShortScan {
    start: Vec<u8>,
    seen: usize,
    backwards: bool,
}

/// Executes the chunks of one thread.
pub(super) struct Executor<'a> {
    db: &'a Db,
    spec: &'a RunSpec<'a>,
    sampling: u64,
    executed: u64,
    found: u64,
    /// Scans that ended before their last entry. Checked untimed.
    short_scans: Vec<ShortScan>,
    pub(super) timing: Timing,
}

impl<'a> Executor<'a> {
    pub(super) fn new(db: &'a Db, spec: &'a RunSpec<'a>, sampling: u64) -> Self {
        let timing = Timing::default();
        Executor { db, spec, sampling, executed: 0, found: 0, short_scans: Vec::new(), timing }
    }

    pub(super) fn run(&mut self, chunk: &Chunk) -> Result<(), BenchError> {
        if self.spec.workload == Workload::MultiGet {
            self.run_batches(chunk)?;
        } else {
            self.run_singles(chunk)?;
        }
        for scan in std::mem::take(&mut self.short_scans) {
            self.check_short_scan(&scan)?;
        }
        Ok(())
    }

    fn run_singles(&mut self, chunk: &Chunk) -> Result<(), BenchError> {
        let start = Instant::now();
        for op in &chunk.ops {
            if self.executed & (self.sampling - 1) == 0 {
                let start = Instant::now();
                self.execute(chunk, op)?;
                self.timing.latency.record(elapsed_ns(start));
            } else {
                self.execute(chunk, op)?;
            }
            self.executed += 1;
        }
        self.timing.busy_ns += elapsed_ns(start);
        Ok(())
    }

    fn run_batches(&mut self, chunk: &Chunk) -> Result<(), BenchError> {
        let key = |op: &Op| &chunk.bytes[op.key.clone()];
        let keys: Vec<&[u8]> = chunk.ops.iter().map(key).collect();
        let start = Instant::now();
        for (keys, ops) in keys.chunks(MULTI_GET_KEYS).zip(chunk.ops.chunks(MULTI_GET_KEYS)) {
            let batch_start = Instant::now();
            let answers = self.db.multi_get(keys)?;
            if answers.len() != keys.len() {
                let got = format!("{} answers", answers.len());
                return Err(self.wrong(keys[0], format!("{} answers", keys.len()), got));
            }
            for (op, answer) in ops.iter().zip(&answers) {
                self.check_get(chunk, op, answer.as_deref())?;
            }
            self.timing.latency.record(elapsed_ns(batch_start) / keys.len() as u64);
        }
        self.timing.busy_ns += elapsed_ns(start);
        Ok(())
    }

    #[inline]
    fn execute(&mut self, chunk: &Chunk, op: &Op) -> Result<(), BenchError> {
        let key = &chunk.bytes[op.key.clone()];
        match op.action {
            Action::Put => Ok(self.db.put(key, &chunk.bytes[op.other.clone()])?),
            Action::Modify => {
                let answer = self.db.get(key)?;
                self.check_get(chunk, op, answer.as_deref())?;
                Ok(self.db.put(key, &chunk.bytes[op.other.clone()])?)
            }
            Action::GetExisting | Action::GetAbsent => {
                let answer = self.db.get(key)?;
                self.check_get(chunk, op, answer.as_deref())
            }
            Action::EmptyRange => self.empty_range(key, &chunk.bytes[op.other.clone()]),
            Action::Seek(next) => {
                let entries = self.db.range(key..);
                self.scan(entries, key, op.tag, next, false)
            }
            Action::Back(next) => {
                let entries = self.db.range(..=key).rev();
                self.scan(entries, key, op.tag, next, true)
            }
        }
    }

    #[inline]
    fn check_get(&mut self, chunk: &Chunk, op: &Op, answer: Option<&[u8]>) -> Result<(), BenchError> {
        match (op.action, answer) {
            (Action::GetAbsent, None) => Ok(()),
            (Action::GetExisting | Action::Modify, Some(value)) if self.is_right(op.tag, value) => {
                self.timing.hits += 1;
                Ok(())
            }
            (_, answer) => {
                let expected = match op.action {
                    Action::GetAbsent => "no value".to_owned(),
                    _ => format!("its value of {} bytes", self.spec.value_bytes),
                };
                let got = match answer {
                    None => "none".to_owned(),
                    Some(value) => format!("{} bytes: {}", value.len(), hex(value)),
                };
                Err(self.wrong(&chunk.bytes[op.key.clone()], expected, got))
            }
        }
    }

    #[inline]
    fn is_right(&mut self, tag: u64, value: &[u8]) -> bool {
        self.found += 1;
        if self.found.is_multiple_of(WHOLE_CHECK_EVERY) {
            value::check_whole(tag, self.spec.value_bytes, value)
        } else {
            value::check(tag, self.spec.value_bytes, value)
        }
    }

    fn empty_range(&mut self, low: &[u8], high: &[u8]) -> Result<(), BenchError> {
        let Some(entry) = self.db.range(low..=high).next() else { return Ok(()) };
        let (key, _) = entry?;
        if &key[..] >= low && &key[..] <= high && self.spec.keys.contains(&key) {
            return Ok(()); // two keys of a random set that are neighbours by chance
        }
        Err(self.wrong(low, format!("no key up to {}", hex(high)), format!("key {}", hex(&key))))
    }

    /// The first entry must be `start` itself, the others come behind it, or before it if `backwards`.
    #[inline]
    fn scan(
        &mut self,
        mut entries: impl Iterator<Item = Result<(Slice, Slice), tamis::ReadError>>,
        start: &[u8],
        tag: u64,
        next: usize,
        backwards: bool,
    ) -> Result<(), BenchError> {
        let mut last: Slice = match entries.next().transpose()? {
            Some((key, value)) if key[..] == *start && self.is_right(tag, &value) => key,
            Some((key, _)) => return Err(self.wrong(start, "the key itself".into(), hex(&key))),
            None => return Err(self.wrong(start, "the key itself".into(), "the end".into())),
        };
        for seen in 1..=next {
            let Some((key, value)) = entries.next().transpose()? else {
                self.short_scans.push(ShortScan { start: start.to_vec(), seen, backwards });
                return Ok(());
            };
            let in_order = if backwards { key[..] < last[..] } else { key[..] > last[..] };
            if !in_order || value.len() != self.spec.value_bytes {
                let way = if backwards { "before" } else { "behind" };
                let expected = format!("a key {way} {} with its value", hex(&last));
                return Err(self.wrong(start, expected, hex(&key)));
            }
            self.found += 1;
            if self.found.is_multiple_of(WHOLE_CHECK_EVERY)
                && !(self.spec.keys.contains(&key)
                    && value::check_whole(value::tag_of(&key), self.spec.value_bytes, &value))
            {
                return Err(self.wrong(&key, "an existing key with its value".into(), hex(&value)));
            }
            last = key;
        }
        Ok(())
    }

    /// A scan may end early only where no more keys exist. Keys that this run inserts may be there or not.
    fn check_short_scan(&self, scan: &ShortScan) -> Result<(), BenchError> {
        let mut key = Vec::new();
        let (mut least, mut most) = (0, 0);
        for place in 0..self.spec.keys.len() {
            key.clear();
            self.spec.keys.existing(self.spec.fill.at(place), &mut key);
            let counts = if scan.backwards { key <= scan.start } else { key >= scan.start };
            least += usize::from(counts && place < self.spec.fill.loaded);
            most += usize::from(counts);
        }
        if (least..=most).contains(&scan.seen) {
            return Ok(());
        }
        let expected = format!("{least} keys to the end");
        Err(self.wrong(&scan.start, expected, format!("{}", scan.seen)))
    }

    fn wrong(&self, key: &[u8], expected: String, got: String) -> BenchError {
        let workload = self.spec.workload.name().to_owned();
        BenchError::WrongAnswer { workload, key: hex(key), expected, got }
    }
}

/// The first bytes in hex.
fn hex(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(64).map(|b| format!("{b:02x}")).collect();
    if bytes.len() > 64 {
        text.push('…');
    }
    text
}
