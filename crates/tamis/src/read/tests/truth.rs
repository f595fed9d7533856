//! A global selector that answers from the data, as exactly or as loosely as a test requires.

use std::collections::BTreeSet;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_base::key::MAX_SEQNO;
use tamis_files::table::{CursorOptions, TableCursor};
use tamis_filter::Digest;

use crate::Db;
use crate::observe::cost::ReadCost;
use crate::read::View;
use crate::select::run_selector::{RunSelector, WholeTree};
use crate::select::{Candidate, Candidates, Probe, Selector};
use crate::selector::RangeRuns;
use crate::tree::version::Version;

/// How a selector answers. All random choices follow from the seed and the probe.
#[derive(Clone, Debug, Default)]
pub(super) struct Manner {
    pub(super) seed: u64,
    /// Keys per range; 0: up to the next key, excluded, so that many ranges have none.
    pub(super) keys: usize,
    /// Of 256 runs without a key, the number listed all the same.
    pub(super) lies: u64,
    /// Of 256 bounds, the number that are earlier (backwards: later) than they could be.
    pub(super) loose: u64,
    /// Of 256 probes, the number left unanswered.
    pub(super) silent: u64,
    /// Whether ranges end where they begin, which breaks the contract.
    pub(super) stuck: bool,
}

/// The number of probes of a selector.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) select: AtomicU64,
    pub(super) ranges: AtomicU64,
}

#[derive(Debug)]
struct Truth {
    /// The keys of each run.
    runs: Vec<BTreeSet<Vec<u8>>>,
    all: BTreeSet<Vec<u8>>,
    manner: Manner,
    asked: Arc<Asked>,
}

/// Replaces the default keyspace's selector by such a selector.
pub(super) fn install(db: &Db, manner: Manner) -> Arc<Asked> {
    let view = &db.default_keyspace().inner.view;
    let old = view.load_full();
    let version = &old.version;
    let runs: Vec<_> = version.runs.iter().map(|run| keys(version, run.tables.clone())).collect();
    let asked = Arc::new(Asked::default());
    let truth = Truth { all: runs.iter().flatten().cloned().collect(), runs, manner, asked: asked.clone() };
    view.store(Arc::new(View {
        selector: Arc::new(Selector::Test(Box::new(truth))),
        // What was read under another filter does not count.
        habits: Arc::default(),
        ..old.with_memtables(old.memtables.clone())
    }));
    asked
}

fn keys(version: &Version, tables: Range<usize>) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    for table in &version.tables[tables] {
        let mut cursor = TableCursor::new(table.table.clone(), CursorOptions::default());
        cursor.seek(b"", MAX_SEQNO).expect("a seek");
        while cursor.valid() {
            keys.insert(cursor.key().to_vec());
            cursor.next().expect("a step");
        }
    }
    keys
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl Truth {
    /// Returns a number below 256 that depends on all arguments.
    fn chance(&self, what: &str, run: usize, key: &[u8]) -> u64 {
        let run = run.to_le_bytes();
        Digest::of(&[what.as_bytes(), &self.manner.seed.to_le_bytes(), &run[..], key].concat()).get() >> 56
    }

    fn draw<'k>(&self, run: usize, key: &[u8], of: &[&'k [u8]]) -> &'k [u8] {
        of[self.chance("draw", run, key) as usize % of.len()]
    }
}

impl RunSelector for Truth {
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        assert_eq!(runs, 0..version.runs.len(), "one probe concerns all runs");
        self.asked.select.fetch_add(1, Relaxed);
        cost.filter_probes += 1;
        for run in runs {
            let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) else {
                continue;
            };
            if self.runs[run].contains(probe.key) || self.chance("lie", run, probe.key) < self.manner.lies {
                out.push(Candidate { run, table, filtered: true });
            }
        }
        cost.filter_negatives += u64::from(out.is_empty());
    }

    fn prefetch(&self, version: &Version, _probe: &Probe<'_>, _digest: Digest, runs: Range<usize>) {
        assert_eq!(runs, 0..version.runs.len(), "one probe concerns all runs");
    }
}

impl WholeTree for Truth {
    fn ahead(
        &self,
        _version: &Version,
        from: &[u8],
        end: Option<&[u8]>,
        out: &mut RangeRuns,
        _cost: &mut ReadCost,
    ) -> bool {
        self.asked.ranges.fetch_add(1, Relaxed);
        assert!(end.is_none_or(|end| from < end), "nothing lies between {from:?} and {end:?}");
        if self.chance("silent", 0, from) < self.manner.silent {
            return false;
        }
        let end = end.map_or(Bound::Unbounded, Bound::Excluded);
        let coming: Vec<&Vec<u8>> = self.all.range::<[u8], _>((Bound::Included(from), end)).collect();
        let until = match self.manner.keys {
            _ if self.manner.stuck => Some(from.to_vec()),
            0 => coming.iter().find(|key| key[..] > *from).map(|key| key.to_vec()),
            count => coming.get(count - 1).map(|last| match coming.get(count) {
                Some(next) if self.chance("until", 0, from) < 128 => next.to_vec(),
                _ => after(last),
            }),
        };
        if let Some(until) = &until {
            out.end_at(until);
        }
        let end = until.as_deref().map_or(end, Bound::Excluded);
        for (run, keys) in self.runs.iter().enumerate() {
            let first = match end {
                Bound::Excluded(end) if end <= from => None,
                _ => keys.range::<[u8], _>((Bound::Included(from), end)).next(),
            };
            match first {
                Some(first) if self.chance("loose", run, from) < self.manner.loose => {
                    let shorter = &first[..self.chance("cut", run, from) as usize % (first.len() + 1)];
                    out.push(run, self.draw(run, from, &[b"", from, shorter]));
                }
                Some(first) => out.push(run, first),
                None if self.chance("lie", run, from) < self.manner.lies => {
                    let mut beyond = self.all.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
                    let somewhere = beyond.nth(run).map_or(from, |key| key);
                    out.push(run, self.draw(run, from, &[b"", from, from, somewhere]));
                }
                None => {}
            }
        }
        true
    }

    fn behind(
        &self,
        _version: &Version,
        before: Option<&[u8]>,
        start: &[u8],
        out: &mut RangeRuns,
        _cost: &mut ReadCost,
    ) -> bool {
        self.asked.ranges.fetch_add(1, Relaxed);
        assert!(before.is_none_or(|before| start < before), "nothing lies between {start:?} and {before:?}");
        let question = before.unwrap_or(b"the end");
        if self.chance("silent", 0, question) < self.manner.silent {
            return false;
        }
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let coming: Vec<&Vec<u8>> = self.all.range::<[u8], _>((Bound::Included(start), end)).rev().collect();
        let count = self.manner.keys.max(1);
        let until = match before {
            Some(before) if self.manner.stuck => Some(before.to_vec()),
            _ => coming.get(count - 1).map(|last| match coming.get(count) {
                Some(next) if self.chance("until", 0, question) < 128 => after(next),
                _ => last.to_vec(),
            }),
        };
        if let Some(until) = &until {
            out.end_at(until);
        }
        let from = until.as_deref().unwrap_or(start);
        for (run, keys) in self.runs.iter().enumerate() {
            let last = match before {
                Some(before) if before <= from => None,
                _ => keys.range::<[u8], _>((Bound::Included(from), end)).next_back(),
            };
            match last.map(|last| after(last)) {
                Some(bound) if self.chance("loose", run, question) < self.manner.loose => {
                    let longer = [&bound[..], &[255]].concat();
                    out.push(run, self.draw(run, question, &[b"", before.unwrap_or(b""), &longer]));
                }
                Some(bound) => out.push(run, &bound),
                None if self.chance("lie", run, question) < self.manner.lies => {
                    let somewhere = coming.get(run).map_or(start, |key| key);
                    out.push(run, self.draw(run, question, &[b"", before.unwrap_or(b""), somewhere]));
                }
                None => {}
            }
        }
        true
    }
}
