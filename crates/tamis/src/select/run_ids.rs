//! One version's view of a filter that names the runs themselves: maps tags to runs.
//!
//! The index ([`RunIndex`]: Chucky, REMIX, GRF_H) belongs to this version alone and names the version's runs as they
//! were when it was made. Only tags have to be mapped, to places.
//!
//! # Invariants
//! * A run that the index does not cover is always a candidate, and listed in every range, unfiltered.
//! * A tag without a run in the version names nothing: its run is gone, or it shares its name in the index with others.
//! * Debug builds check point rejections against the data here; rejections of ranges are checked by the merge that
//!   leaves a run lazy.
//!
//! # Threads
//! Immutable, like its version. May be used from any thread.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tamis_filter::Digest;
use tamis_filter::global::{RunIndex, RunTag, TagsAhead};

use crate::select::table_filters::check_rejection;
use crate::select::{Candidate, Candidates, Probe, RunSelector, Stretch};
use crate::table::ReadCost;
use crate::tree::version::Version;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RunIdFilters {
    index: Option<Arc<dyn RunIndex>>,
    /// The places of the covered runs in the version, by tag, ascending.
    places: Vec<(RunTag, usize)>,
    /// The other runs of the version, ascending.
    uncovered: Vec<usize>,
}

impl RunIdFilters {
    /// Returns the selector of a version whose runs have these tags, one per run, newest run first. Runs that are not
    /// `covered` (without an index, none is) hold keys that the index may not know.
    pub(crate) fn new(
        index: Option<Arc<dyn RunIndex>>,
        tags: Vec<RunTag>,
        covered: Vec<bool>,
    ) -> RunIdFilters {
        debug_assert_eq!(tags.len(), covered.len());
        let (known, uncovered): (Vec<usize>, Vec<usize>) =
            (0..tags.len()).partition(|&run| index.is_some() && covered[run]);
        let mut places: Vec<(RunTag, usize)> = known.into_iter().map(|run| (tags[run], run)).collect();
        places.sort_unstable();
        debug_assert!(places.windows(2).all(|pair| pair[0].0 != pair[1].0), "a tag has one run");
        RunIdFilters { index, places, uncovered }
    }

    /// Returns the run with this tag.
    #[inline]
    fn place(&self, tag: RunTag) -> Option<usize> {
        let at = self.places.binary_search_by_key(&tag, |(tag, _)| *tag).ok()?;
        Some(self.places[at].1)
    }

    /// Lists the runs of a range. A run that occurs more than once gets the least selective of its bounds. `otherwise`
    /// is the bound where the index has none.
    fn list(
        &self,
        index: &dyn RunIndex,
        ahead: &TagsAhead,
        otherwise: &[u8],
        backward: bool,
        out: &mut Stretch,
    ) {
        let mut found: SmallVec<[(usize, Option<u64>); 8]> = SmallVec::new();
        for &(tag, bound) in &ahead.found {
            let Some(run) = self.place(tag) else { continue };
            match found.iter_mut().find(|(listed, _)| *listed == run) {
                None => found.push((run, bound)),
                Some((_, least)) => {
                    *least = match (*least, bound) {
                        (Some(a), Some(b)) if backward => Some(a.max(b)),
                        (Some(a), Some(b)) => Some(a.min(b)),
                        _ => None,
                    }
                }
            }
        }
        let mut key = Vec::new();
        for (run, bound) in found {
            match bound {
                Some(number) => {
                    index.lower_key(number, &mut key);
                    out.push(run, if backward || key[..] > *otherwise { &key } else { otherwise });
                }
                None => out.push(run, otherwise),
            }
        }
        self.uncovered.iter().for_each(|&run| out.push(run, otherwise));
        if let Some(until) = ahead.until {
            index.lower_key(until, &mut key);
            out.end_at(&key);
        }
    }
}

impl RunSelector for RunIdFilters {
    fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        // Counts as one probe, whatever the number of runs, and as one negative if no run was named.
        let mut named: SmallVec<[(usize, bool); 8]> = SmallVec::new();
        if let Some(index) = &self.index {
            let digest = probe.digest_for_filter(cost);
            index.probe(probe.key, digest, &mut |tag| {
                named.extend(self.place(tag).filter(|run| runs.contains(run)).map(|run| (run, true)));
            });
            cost.filter_probes += 1;
            cost.filter_negatives += u64::from(named.is_empty());
        }
        named.extend(self.uncovered.iter().filter(|run| runs.contains(run)).map(|&run| (run, false)));
        // Newest first; a false positive may name a run twice.
        named.sort_unstable();
        named.dedup();
        for &(run, filtered) in &named {
            if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                out.push(Candidate { run, table, filtered });
            }
        }
        if cfg!(debug_assertions) {
            for run in runs.filter(|run| !named.iter().any(|(named, _)| named == run)) {
                if let Some(table) = version.table_for(&version.runs[run], probe.key, probe.prefix) {
                    check_rejection(version, table, probe.key);
                }
            }
        }
    }

    fn prefetch(&self, _: &Version, probe: &Probe<'_>, digest: Digest, _: Range<usize>) {
        if let Some(index) = &self.index {
            index.prefetch(probe.key, digest);
        }
    }

    fn is_global(&self) -> bool {
        true
    }

    fn ahead(
        &self,
        _: &Version,
        from: &[u8],
        end: Option<&[u8]>,
        out: &mut Stretch,
        _: &mut ReadCost,
    ) -> bool {
        let Some(index) = self.index.as_deref().filter(|index| index.answers_ranges()) else { return false };
        let mut ahead = TagsAhead::default();
        let known = index.ahead(from, end, &mut ahead);
        if known {
            self.list(index, &ahead, from, false, out);
        }
        known
    }

    fn behind(
        &self,
        _: &Version,
        before: Option<&[u8]>,
        start: &[u8],
        out: &mut Stretch,
        _: &mut ReadCost,
    ) -> bool {
        let Some(index) = self.index.as_deref().filter(|index| index.answers_ranges()) else { return false };
        let mut ahead = TagsAhead::default();
        let known = index.behind(before, start, &mut ahead);
        if known {
            // The empty key is no bound at all: nothing lies below it, so such a run would not be listed.
            self.list(index, &ahead, before.unwrap_or_default(), true, out);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tamis_filter::global::{Batch, Epochs, RunIndexKind, RunIndexSpec, Tagged, build};

    use super::*;
    use crate::io::MemFs;
    use crate::read::View;
    use crate::select::keys::for_each_key;
    use crate::{Db, Options, ReadError, Slice};

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    const KINDS: [RunIndexKind; 3] = [RunIndexKind::Chucky, RunIndexKind::Remix, RunIndexKind::GrfHuffman];

    fn key(n: u64) -> Vec<u8> {
        (n * 1000).to_be_bytes().to_vec()
    }

    /// Returns runs of adjacent and of scattered keys, newer values over older ones, and deletes.
    fn filled() -> (Db, Model) {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.keyspace.auto_compaction = false;
        let db = Db::open("/db", options).expect("opening");
        let mut model = Model::new();
        for run in 0..12u64 {
            let keys: Vec<u64> = match run % 3 {
                0 => (0..600).filter(|n| n % 12 == run).collect(),
                1 => (run * 40..run * 40 + 60).collect(),
                _ => (0..600).filter(|n| n % (run + 5) == 0).collect(),
            };
            for n in keys {
                if n % 7 == run % 7 {
                    db.delete(key(n)).expect("a write");
                    model.remove(&key(n));
                } else {
                    db.put(key(n), run.to_le_bytes()).expect("a write");
                    model.insert(key(n), run.to_le_bytes().to_vec());
                }
            }
            db.flush().expect("a flush");
        }
        (db, model)
    }

    /// Replaces the default keyspace's selector by one over such an index. The index is made by changes: it is built
    /// over the oldest half of the runs, and knows nothing about runs that are not covered.
    fn install(db: &Db, kind: RunIndexKind, is_covered: impl Fn(usize) -> bool) {
        let view = &db.default_keyspace().inner.view;
        let old = view.load_full();
        let version = &old.version;
        let tags: Vec<RunTag> = (0..version.runs.len())
            .map(|run| RunTag { level: version.runs[run].level as u8, slot: run as u32 })
            .collect();
        let covered: Vec<bool> = (0..tags.len()).map(is_covered).collect();
        let lists: Vec<(Batch, RunTag)> = version
            .runs
            .iter()
            .zip(&tags)
            .map(|(run, tag)| {
                let mut batch = Batch::new();
                for table in &version.tables[run.tables.clone()] {
                    let mut add = |key: &[u8]| batch.push(key, Digest::of(key), Epochs::ALL);
                    for_each_key(table, &[], None, &mut add).expect("the keys of a table");
                }
                (batch, *tag)
            })
            .collect();
        let items: Vec<Tagged<'_>> = lists.iter().map(|(batch, tag)| (batch, *tag)).collect();
        let all: u64 = lists.iter().map(|(batch, _)| batch.len() as u64).sum();
        let spec = RunIndexSpec {
            bits_per_key: 16.0,
            capacity: 2 * all,
            slots: vec![12, 1],
            ratio: 10.0,
            segment: 8,
        };
        let mut index = build(kind, &items[6..], &spec).expect("an index");
        for at in (0..6).rev().filter(|at| covered[*at]) {
            index = index.change(&[], &[items[at]]).expect("room");
        }
        for at in (6..12).filter(|at| !covered[*at]) {
            index = index.change(&[items[at]], &[]).expect("what is there");
        }
        let selector = RunIdFilters::new(Some(index), tags, covered);
        view.store(Arc::new(View {
            selector: Arc::new(selector),
            ..old.with_memtables(old.memtables.clone())
        }));
    }

    fn check_reads(db: &Db, model: &Model) {
        for n in 0..700u64 {
            for key in [key(n), [&key(n)[..], b"x"].concat(), n.to_be_bytes().to_vec()] {
                assert_eq!(
                    db.get(&key).expect("a get").as_deref(),
                    model.get(&key).map(|value| &value[..]),
                    "{key:?}"
                );
            }
        }
        let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
        for (from, to) in [(0, 700), (17, 18), (100, 333), (599, 640), (650, 660)] {
            let range = key(from)..key(to);
            let expected: Vec<_> = model.range(range.clone()).map(pair).collect();
            let read = |item: Result<(Slice, Slice), ReadError>| {
                let (key, value) = item.expect("a step");
                (key.to_vec(), value.to_vec())
            };
            assert_eq!(db.range(range.clone()).map(read).collect::<Vec<_>>(), expected);
            let mut backward: Vec<_> = db.range(range).rev().map(read).collect();
            backward.reverse();
            assert_eq!(backward, expected);
        }
        let backward: Vec<_> = db.iter().rev().map(|item| item.expect("a step").0.to_vec()).collect();
        assert_eq!(backward, model.keys().rev().cloned().collect::<Vec<_>>());
    }

    #[test]
    fn reads_through_a_run_index_see_all_writes() {
        let (db, model) = filled();
        for kind in KINDS {
            for uncovered in [None, Some(0), Some(7), Some(11)] {
                install(&db, kind, |run| Some(run) != uncovered);
                check_reads(&db, &model);
            }
        }
    }

    #[test]
    fn one_probe_finds_the_run_of_a_key() {
        let (db, model) = filled();
        install(&db, RunIndexKind::Chucky, |_| true);
        let before = db.stats().read;
        for key in model.keys() {
            db.get(key).expect("a get");
        }
        let used = db.stats().read - before;
        let gets = model.len() as u64;
        assert_eq!((used.filter_probes, used.filter_negatives), (gets, 0));
        // The newest version of a key is in the first run named, except for false positives.
        assert!(used.runs_searched < gets + gets / 10, "{used:?}");
        assert_eq!(used.runs_searched, gets + used.false_positives);
        let before = db.stats().read;
        for n in 0..1000u64 {
            assert_eq!(db.get([&key(n % 600)[..], b"absent"].concat()).expect("a get"), None);
        }
        let used = db.stats().read - before;
        assert!(used.filter_negatives > 950, "{used:?}");
    }

    #[test]
    fn an_iterator_probes_remix_and_leaves_runs_lazy() {
        let (db, model) = filled();
        install(&db, RunIndexKind::Remix, |_| true);
        let before = db.stats().read;
        let first = db.range(key(455)..).next().expect("a key").expect("a step").0;
        assert_eq!(Some(&first.to_vec()), model.range(key(455)..).next().map(|(key, _)| key));
        let used = db.stats().read - before;
        assert!(used.range_probes >= 1 && used.seeks < 12, "{used:?}");
    }
}
