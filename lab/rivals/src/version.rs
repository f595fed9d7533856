//! One version's view of a filter that names the runs themselves: maps tags to runs.
//!
//! The index ([`RunIndex`]: Chucky, REMIX, GRF_H) belongs to this version alone and names the version's runs as they
//! were when it was made. Only tags have to be mapped, to places.
//!
//! # Invariants
//! * A run that the index does not cover is unknown, and listed in every range.
//! * A tag without a run in the version names nothing: its run is gone, or it shares its name in the index with others.
//!
//! # Threads
//! Immutable, like its version. May be used from any thread.

use std::sync::Arc;

use smallvec::SmallVec;
use tamis::selector::{RangeRuns, VersionSelector};
use tamis_filter::Digest;
use tamis_filter::global::{RunIndex, RunTag, TagsAhead};

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
        out: &mut RangeRuns,
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

impl VersionSelector for RunIdFilters {
    fn probe(&self, key: &[u8], digest: Digest, found: &mut dyn FnMut(usize)) {
        if let Some(index) = &self.index {
            index.probe(key, digest, &mut |tag| self.place(tag).into_iter().for_each(&mut *found));
        }
    }

    fn unknown_runs(&self) -> &[usize] {
        &self.uncovered
    }

    fn prefetch(&self, key: &[u8], digest: Digest) {
        if let Some(index) = &self.index {
            index.prefetch(key, digest);
        }
    }

    fn ahead(&self, from: &[u8], end: Option<&[u8]>, out: &mut RangeRuns) -> bool {
        let Some(index) = self.index.as_deref().filter(|index| index.answers_ranges()) else { return false };
        let mut ahead = TagsAhead::default();
        let known = index.ahead(from, end, &mut ahead);
        if known {
            self.list(index, &ahead, from, false, out);
        }
        known
    }

    fn behind(&self, before: Option<&[u8]>, start: &[u8], out: &mut RangeRuns) -> bool {
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
