//! What a serializable transaction has read: keys, present or absent, and parts of ranges.
//!
//! A key is noted once, with the digest that its lookup computed. A range is noted as its iterator advances ([`RangeRead`]).

use std::sync::Arc;

use smallvec::SmallVec;
use tamis_filter::Digest;

use crate::collections::HashMap;
use crate::db::inner::KeyspaceInner;
use crate::db::transaction::bugs::{Bug, Bugs};
use crate::db::transaction::footprint::{Part, Point};
use crate::key::SeqNo;
use crate::read::{Bounds, RangeRead};

/// From this number of keys on, repetitions are found by a map.
const FEW: usize = 8;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Reads {
    keyspaces: SmallVec<[ReadIn; 1]>,
}

#[derive(Debug)]
struct ReadIn {
    keyspace: Arc<KeyspaceInner>,
    points: SmallVec<[Point; 1]>,
    /// Where the first key of each digest is among `points`; empty while they are few.
    known: HashMap<u64, usize>,
    ranges: Vec<Arc<RangeRead>>,
}

impl Reads {
    fn within(&mut self, keyspace: &Arc<KeyspaceInner>) -> &mut ReadIn {
        let place = self.keyspaces.iter().position(|read| read.keyspace.id == keyspace.id);
        let place = place.unwrap_or_else(|| {
            self.keyspaces.push(ReadIn {
                keyspace: keyspace.clone(),
                points: SmallVec::new(),
                known: HashMap::default(),
                ranges: Vec::new(),
            });
            self.keyspaces.len() - 1
        });
        &mut self.keyspaces[place]
    }

    /// Notes that a key was looked up, with whatever result.
    pub(super) fn note(&mut self, keyspace: &Arc<KeyspaceInner>, key: &[u8], digest: Digest) {
        let ReadIn { points, known, .. } = self.within(keyspace);
        let is_known = |point: &Point| point.digest == digest && *point.key == *key;
        let repeated = if points.len() <= FEW {
            points.iter().any(is_known)
        } else {
            if known.is_empty() {
                known.extend(points.iter().enumerate().map(|(place, point)| (point.digest.get(), place)));
            }
            match known.get(&digest.get()) {
                Some(&place) => is_known(&points[place]),
                None => {
                    known.insert(digest.get(), points.len());
                    false
                }
            }
        };
        if !repeated {
            points.push(Point { digest, key: key.into() });
        }
    }

    /// Notes that a range is about to be read.
    pub(super) fn watch(&mut self, keyspace: &Arc<KeyspaceInner>, bounds: &Bounds) -> Arc<RangeRead> {
        let watch = Arc::new(RangeRead::new(bounds));
        self.within(keyspace).ranges.push(watch.clone());
        watch
    }

    /// Returns everything that was read until now, as of `since`, and forgets it.
    pub(super) fn take_parts(&mut self, since: SeqNo, bugs: &Bugs) -> SmallVec<[Part; 1]> {
        let part = |ReadIn { keyspace, points, ranges, .. }: ReadIn| {
            let points = if bugs.make(Bug::Points) { SmallVec::new() } else { points };
            let ranges = ranges.iter().filter(|_| !bugs.make(Bug::Ranges)).flat_map(|range| range.spans());
            Part::new(keyspace, since, points, ranges.collect())
        };
        std::mem::take(&mut self.keyspaces).into_iter().map(part).collect()
    }
}
