//! The execution of prepared operations: the timed part, with the checks of the answers.
//!
//! Every value is read, a byte of each of its cache lines: what a store lends costs its reader as
//! much as what it copies.

use std::ops::ControlFlow;
use std::time::Instant;

use crate::error::BenchError;
use crate::run::chunk::{Action, Chunk, Op};
use crate::run::{RunSpec, Timing, elapsed_ns};
use crate::store::Session;
use crate::value;
use crate::workload::MULTI_GET_KEYS;

/// One in this many values found is compared byte by byte; of the others only the first bytes.
const WHOLE_CHECK_EVERY: u64 = 256;

/// Executes the chunks of one thread.
pub(super) struct Executor<'a, S> {
    session: S,
    sampling: u64,
    executed: u64,
    timing: Timing,
    checks: Checks<'a>,
}

impl<'a, S: Session> Executor<'a, S> {
    pub(super) fn new(session: S, spec: &'a RunSpec<'a>, sampling: u64) -> Self {
        let checks = Checks { spec, found: 0, hits: 0, short_scans: Vec::new(), last: Vec::new() };
        Executor { session, sampling, executed: 0, timing: Timing::default(), checks }
    }

    pub(super) fn run(&mut self, chunk: &Chunk) -> Result<(), BenchError> {
        if self.checks.spec.workload.is_batched() {
            self.run_batches(chunk)?;
        } else {
            self.run_singles(chunk)?;
        }
        self.checks.short_scans()
    }

    /// Returns the measured timing.
    pub(super) fn timing(self) -> Timing {
        Timing { hits: self.checks.hits, ..self.timing }
    }

    // A function of its own, so that profilers can tell timed operations from their preparation.
    #[inline(never)]
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

    /// Like `run_singles`.
    #[inline(never)]
    fn run_batches(&mut self, chunk: &Chunk) -> Result<(), BenchError> {
        let key = |op: &Op| &chunk.bytes[op.key.clone()];
        let keys: Vec<&[u8]> = chunk.ops.iter().map(key).collect();
        let start = Instant::now();
        for (keys, ops) in keys.chunks(MULTI_GET_KEYS).zip(chunk.ops.chunks(MULTI_GET_KEYS)) {
            let batch_start = Instant::now();
            let (mut answers, mut right) = (0, Ok(()));
            let checks = &mut self.checks;
            self.session.multi_get(keys, |place, answer| {
                answers += 1;
                right = checks.get(chunk, &ops[place], answer);
                if right.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            right?;
            if answers != keys.len() {
                let expected = format!("{} answers", keys.len());
                return Err(self.checks.wrong(keys[0], expected, format!("{answers} answers")));
            }
            self.timing.latency.record(elapsed_ns(batch_start) / keys.len() as u64);
        }
        self.timing.busy_ns += elapsed_ns(start);
        Ok(())
    }

    #[inline]
    fn execute(&mut self, chunk: &Chunk, op: &Op) -> Result<(), BenchError> {
        let key = &chunk.bytes[op.key.clone()];
        let (session, checks) = (&mut self.session, &mut self.checks);
        match op.action {
            Action::Put => session.put(key, &chunk.bytes[op.other.clone()]),
            Action::Modify => {
                session.get(key, |answer| checks.get(chunk, op, answer))??;
                session.put(key, &chunk.bytes[op.other.clone()])
            }
            Action::GetExisting | Action::GetAbsent => {
                session.get(key, |answer| checks.get(chunk, op, answer))?
            }
            Action::EmptyRange => {
                let high = &chunk.bytes[op.other.clone()];
                let mut right = Ok(());
                session.scan(key, Some(high), |found, _| {
                    right = checks.empty_range(key, high, found);
                    ControlFlow::Break(())
                })?;
                right
            }
            Action::Seek(next) => {
                let mut scan = checks.begin_scan(key, op, next, false);
                session.scan(key, None, |key, value| checks.scanned(&mut scan, key, value))?;
                checks.end_scan(scan)
            }
            Action::Back(next) => {
                let mut scan = checks.begin_scan(key, op, next, true);
                session.scan_back(key, |key, value| checks.scanned(&mut scan, key, value))?;
                checks.end_scan(scan)
            }
        }
    }
}

/// A scan that reached the end of all keys.
struct ShortScan {
    start: Vec<u8>,
    seen: usize,
    backwards: bool,
}

/// A scan under way.
struct Scan<'k> {
    start: &'k [u8],
    tag: u64,
    /// Bytes of the first entry's value.
    value_bytes: usize,
    /// The number of entries expected after the first.
    next: usize,
    /// The number of entries seen.
    seen: usize,
    backwards: bool,
    wrong: Option<BenchError>,
}

/// The expected answers and the state of the checks.
struct Checks<'a> {
    spec: &'a RunSpec<'a>,
    found: u64,
    hits: u64,
    /// Scans that ended before their last entry; checked untimed.
    short_scans: Vec<ShortScan>,
    /// The last key of the scan under way.
    last: Vec<u8>,
}

impl Checks<'_> {
    #[inline]
    fn get(&mut self, chunk: &Chunk, op: &Op, answer: Option<&[u8]>) -> Result<(), BenchError> {
        match (op.action, answer) {
            (Action::GetAbsent, None) => Ok(()),
            (Action::GetExisting | Action::Modify, Some(value))
                if self.is_right(op.tag, op.value_bytes, value) =>
            {
                self.hits += 1;
                Ok(())
            }
            (_, answer) => {
                let expected = match op.action {
                    Action::GetAbsent => "no value".to_owned(),
                    _ => format!("its value of {} bytes", op.value_bytes),
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
    fn is_right(&mut self, tag: u64, value_bytes: usize, value: &[u8]) -> bool {
        self.found += 1;
        if self.found.is_multiple_of(WHOLE_CHECK_EVERY) {
            return value::check_whole(tag, value_bytes, value);
        }
        value::touch(value);
        value::check(tag, value_bytes, value)
    }

    fn empty_range(&self, low: &[u8], high: &[u8], found: &[u8]) -> Result<(), BenchError> {
        if found >= low && found <= high && self.spec.keys.contains(found) {
            return Ok(()); // two keys of a random set that are neighbours by chance
        }
        Err(self.wrong(low, format!("no key up to {}", hex(high)), format!("key {}", hex(found))))
    }

    fn begin_scan<'k>(&mut self, start: &'k [u8], op: &Op, next: usize, backwards: bool) -> Scan<'k> {
        self.last.clear();
        Scan { start, tag: op.tag, value_bytes: op.value_bytes, next, seen: 0, backwards, wrong: None }
    }

    /// The first entry must be the key that the scan starts with; the others must follow in the
    /// scan's direction.
    #[inline]
    fn scanned(&mut self, scan: &mut Scan<'_>, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        if let Err(wrong) = self.scanned_entry(scan, key, value) {
            scan.wrong = Some(wrong);
            return ControlFlow::Break(());
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        scan.seen += 1;
        if scan.seen > scan.next { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    #[inline]
    fn scanned_entry(&mut self, scan: &Scan<'_>, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        if scan.seen == 0 {
            return match key == scan.start && self.is_right(scan.tag, scan.value_bytes, value) {
                true => Ok(()),
                false => Err(self.wrong(scan.start, "the key itself".into(), hex(key))),
            };
        }
        let in_order = if scan.backwards { key < &self.last[..] } else { key > &self.last[..] };
        // Computing a key's mixed length would take longer than reading the entry, so it is checked
        // only now and then.
        if !in_order || !self.spec.value_bytes.allows(value.len()) {
            let way = if scan.backwards { "before" } else { "behind" };
            let expected = format!("a key {way} {} with its value", hex(&self.last));
            return Err(self.wrong(scan.start, expected, hex(key)));
        }
        self.found += 1;
        value::touch(value);
        if self.found.is_multiple_of(WHOLE_CHECK_EVERY) && !self.is_whole(key, value) {
            return Err(self.wrong(key, "an existing key with its value".into(), hex(value)));
        }
        Ok(())
    }

    /// Reports whether a key exists and every byte of its value is correct.
    fn is_whole(&self, key: &[u8], value: &[u8]) -> bool {
        let tag = value::tag_of(key);
        self.spec.keys.contains(key) && value::check_whole(tag, self.spec.value_bytes.of(tag), value)
    }

    #[inline]
    fn end_scan(&mut self, scan: Scan<'_>) -> Result<(), BenchError> {
        if let Some(wrong) = scan.wrong {
            return Err(wrong);
        }
        if scan.seen == 0 {
            return Err(self.wrong(scan.start, "the key itself".into(), "the end".into()));
        }
        if scan.seen <= scan.next {
            let (start, backwards) = (scan.start.to_vec(), scan.backwards);
            self.short_scans.push(ShortScan { start, seen: scan.seen, backwards });
        }
        Ok(())
    }

    fn short_scans(&mut self) -> Result<(), BenchError> {
        std::mem::take(&mut self.short_scans).iter().try_for_each(|scan| self.short_scan(scan))
    }

    /// A scan may end early only where no more keys exist. Keys that this run inserts may or may
    /// not exist yet.
    fn short_scan(&self, scan: &ShortScan) -> Result<(), BenchError> {
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

/// Returns the first bytes in hex.
fn hex(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(64).map(|b| format!("{b:02x}")).collect();
    if bytes.len() > 64 {
        text.push('…');
    }
    text
}
