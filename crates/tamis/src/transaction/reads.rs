//! What a transaction has read: keys, present or absent, and ranges.
//!
//! A key is noted once, with the digest that its lookup computed. A range that is not locked is
//! noted as its iterator advances ([`RangeRead`]).

use std::sync::Arc;

use smallvec::SmallVec;
use tamis_base::collections::HashMap;
use tamis_base::key::SeqNo;
use tamis_filter::Digest;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::conflicts::bugs::{Bug, Bugs};
use crate::conflicts::footprint::{KeyspaceFootprint, Point};
use crate::read::pending::PendingSpan;
use crate::read::{Bounds, RangeRead};

/// From this number of keys on, a map finds repeated ones.
const FEW: usize = 8;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    keyspaces: SmallVec<[ReadIn; 1]>,
}

#[derive(Debug)]
struct ReadIn {
    keyspace: Arc<KeyspaceInner>,
    /// The number as of which the earliest read was made.
    since: SeqNo,
    points: SmallVec<[Point; 1]>,
    /// Index in `points` of the first key of each digest; empty while there are few keys.
    known: HashMap<u64, usize>,
    watched: Vec<(SeqNo, Arc<RangeRead>)>,
    locked: Vec<(SeqNo, PendingSpan)>,
}

impl Reads {
    fn within(&mut self, keyspace: &Arc<KeyspaceInner>, since: SeqNo) -> &mut ReadIn {
        let place = self.keyspaces.iter().position(|read| read.keyspace.id == keyspace.id);
        let place = place.unwrap_or_else(|| {
            self.keyspaces.push(ReadIn {
                keyspace: keyspace.clone(),
                since,
                points: SmallVec::new(),
                known: HashMap::default(),
                watched: Vec::new(),
                locked: Vec::new(),
            });
            self.keyspaces.len() - 1
        });
        let read = &mut self.keyspaces[place];
        read.since = read.since.min(since);
        read
    }

    /// Notes that a key was looked up as of `since`, with whatever result. If it is looked up
    /// again, the first time counts.
    pub(crate) fn note(&mut self, keyspace: &Arc<KeyspaceInner>, key: &[u8], digest: Digest, since: SeqNo) {
        let ReadIn { points, known, .. } = self.within(keyspace, since);
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
            points.push(Point { digest, since, key: key.into() });
        }
    }

    /// Notes that a range is about to be read as of `since`.
    pub(crate) fn watch(
        &mut self,
        keyspace: &Arc<KeyspaceInner>,
        bounds: &Bounds,
        since: SeqNo,
    ) -> Arc<RangeRead> {
        let watch = Arc::new(RangeRead::new(bounds));
        self.within(keyspace, since).watched.push((since, watch.clone()));
        watch
    }

    /// Notes that any part of a range may be read as of `since`.
    pub(crate) fn note_range(&mut self, keyspace: &Arc<KeyspaceInner>, range: PendingSpan, since: SeqNo) {
        self.within(keyspace, since).locked.push((since, range));
    }

    /// Returns everything read so far, and forgets it.
    pub(crate) fn take_parts(&mut self, bugs: &Bugs) -> SmallVec<[KeyspaceFootprint; 1]> {
        let part = |ReadIn { keyspace, since, points, watched, mut locked, .. }: ReadIn| {
            let points = if bugs.make(Bug::Points) { SmallVec::new() } else { points };
            for (since, watch) in watched.iter().filter(|_| !bugs.make(Bug::Ranges)) {
                locked.extend(watch.spans().into_iter().map(|span| (*since, span)));
            }
            KeyspaceFootprint::new(keyspace, since, points, locked)
        };
        std::mem::take(&mut self.keyspaces).into_iter().map(part).collect()
    }
}
