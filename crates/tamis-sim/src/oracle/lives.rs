//! Which keyspaces exist.
//!
//! A name may be used again after its keyspace was dropped, so the oracle numbers *lives*: each
//! creation begins one. Creating and dropping are edits of the manifest, which are durable when they
//! return. So which keyspaces there are does not depend on a prefix of the writes, and no crash
//! takes it back. After a failed edit nothing has changed as long as the database stays open, while
//! other openings of the files, and the next one, may find either.

use std::collections::{BTreeMap, BTreeSet};

use super::Stamp;
use super::effects::{Seen, Spaces, Within};
use crate::plan::Space;

/// One life of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life(u32);

impl Life {
    /// The first life of a keyspace that can be dropped; all before it are those of fixed ones.
    pub const FIXED: Life = Life(2);

    /// Returns the only life of a keyspace that is never dropped.
    pub fn fixed(space: Space) -> Life {
        debug_assert!(space < FIXED_SPACES);
        Life(space.into())
    }

    /// Returns its number.
    pub fn number(self) -> u32 {
        self.0
    }
}

/// The number of keyspaces that are never dropped.
pub const FIXED_SPACES: Space = 2;

/// What an opening of the database holds: the keyspaces that can be dropped, and all entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// The keyspaces.
    pub spaces: BTreeSet<Space>,
    /// The entries, by keyspace and key.
    pub entries: BTreeMap<(Space, Vec<u8>), Vec<u8>>,
}

#[derive(Clone, Debug)]
struct Record {
    space: Space,
    began: Stamp,
    /// When its creation ended, and whether it succeeded.
    created: Option<(Stamp, bool)>,
    /// When its last drop began.
    dropping: Option<Stamp>,
    /// When its drop was acknowledged.
    dropped: Option<Stamp>,
    /// A drop failed.
    doubtful: bool,
}

/// All lives that may matter.
#[derive(Clone, Debug, Default)]
pub struct Lives {
    records: BTreeMap<Life, Record>,
    last: u32,
}

/// What may be found between two moments.
#[derive(Clone, Copy, Debug)]
pub struct During {
    /// The first moment.
    pub began: Stamp,
    /// The last one.
    pub ended: Stamp,
    /// Whether another opening of the files looks, rather than the database itself.
    pub files: bool,
}

impl Record {
    fn may_exist(&self, during: During) -> bool {
        let failed = self.created.is_some_and(|(_, created)| !created) && !during.files;
        self.began < during.ended && !failed && self.dropped.is_none_or(|dropped| dropped > during.began)
    }

    fn must_exist(&self, during: During) -> bool {
        self.created.is_some_and(|(ended, created)| created && ended < during.began)
            && self.dropping.is_none_or(|began| began > during.ended)
            && !(during.files && self.doubtful)
    }

    fn is_alive(&self) -> bool {
        self.created.is_none_or(|(_, created)| created) && self.dropped.is_none()
    }
}

impl Lives {
    /// Begins a life, unless the keyspace has one.
    pub fn begin(&mut self, space: Space, now: Stamp) -> Option<Life> {
        if self.records.values().any(|record| record.space == space && record.is_alive()) {
            return None;
        }
        let life = Life(Life::FIXED.0 + self.last);
        self.last += 1;
        let record =
            Record { space, began: now, created: None, dropping: None, dropped: None, doubtful: false };
        self.records.insert(life, record);
        Some(life)
    }

    /// Records how the creation ended.
    pub fn created(&mut self, life: Life, success: bool, now: Stamp) {
        if let Some(record) = self.records.get_mut(&life) {
            record.created = Some((now, success));
        }
    }

    /// Begins to drop a keyspace, unless somebody else does or it does not exist.
    pub fn begin_drop(&mut self, space: Space, now: Stamp) -> Option<Life> {
        let alive = |record: &Record| record.space == space && record.is_alive();
        let (life, record) = self.records.iter_mut().find(|(_, record)| alive(record))?;
        if record.dropping.is_some() || record.created.is_none() {
            return None;
        }
        record.dropping = Some(now);
        Some(*life)
    }

    /// Records how the drop ended.
    pub fn dropped(&mut self, life: Life, success: bool, now: Stamp) {
        let Some(record) = self.records.get_mut(&life) else { return };
        match success {
            true => record.dropped = Some(now),
            false => (record.dropping, record.doubtful) = (None, true),
        }
    }

    /// Reports whether somebody has begun to drop the keyspace.
    pub fn may_be_dropped(&self, life: Life) -> bool {
        life >= Life::FIXED
            && self.records.get(&life).is_none_or(|record| record.dropping.is_some() || record.doubtful)
    }

    /// Finds the lives of what was found, and checks that they may be there, and no others must.
    pub fn resolve(&self, contents: &Contents, during: During) -> Result<(Seen, Within), String> {
        let mut lives: BTreeMap<Space, Life> = (0..FIXED_SPACES).map(|s| (s, Life::fixed(s))).collect();
        let mut unclear = BTreeSet::new();
        for &space in &contents.spaces {
            let possible = || {
                self.records.iter().filter(|(_, record)| record.space == space && record.may_exist(during))
            };
            let Some((newest, _)) = possible().next_back() else {
                return Err(format!("there is the keyspace {space}, which should not be"));
            };
            match possible().find(|(_, record)| record.must_exist(during)) {
                Some((life, _)) => _ = lives.insert(space, *life),
                None if possible().count() == 1 => _ = lives.insert(space, *newest),
                None => _ = unclear.insert(space),
            }
        }
        for record in self.records.values() {
            if record.must_exist(during) && !contents.spaces.contains(&record.space) {
                return Err(format!("the keyspace {} is not there", record.space));
            }
        }
        let mut seen = Seen::new();
        for ((space, key), value) in &contents.entries {
            match lives.get(space) {
                Some(life) => _ = seen.insert((*life, key.clone()), value.clone()),
                None if unclear.contains(space) => {}
                None => return Err(format!("an entry of the keyspace {space}, which is not listed")),
            }
        }
        let spaces = Spaces::These(lives.into_values().collect());
        Ok((seen, Within { spaces, client: None, key: None }))
    }

    /// Adopts what the next opening has found. Returns the lives of those keyspaces.
    pub fn settle(&mut self, contents: &Contents, during: During) -> BTreeMap<Space, Life> {
        let mut found = BTreeMap::new();
        for (life, record) in &self.records {
            let sure = |other: &Life| self.records[other].must_exist(during);
            if contents.spaces.contains(&record.space)
                && record.may_exist(during)
                && !found.get(&record.space).is_some_and(sure)
            {
                found.insert(record.space, *life);
            }
        }
        self.records.retain(|life, record| found.get(&record.space) == Some(life));
        for record in self.records.values_mut() {
            (record.created, record.dropping, record.doubtful) = (Some((during.began, true)), None, false);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACE: Space = 7;

    fn during(began: Stamp, ended: Stamp, files: bool) -> During {
        During { began, ended, files }
    }

    fn with(spaces: &[Space]) -> Contents {
        Contents { spaces: spaces.iter().copied().collect(), entries: BTreeMap::new() }
    }

    #[test]
    fn a_keyspace_is_there_from_its_creation_to_its_drop() {
        let mut lives = Lives::default();
        let life = lives.begin(SPACE, 10).unwrap();
        assert!(lives.begin(SPACE, 11).is_none(), "it is being created");
        lives.created(life, true, 20);
        lives.begin_drop(SPACE, 30).unwrap();
        assert!(lives.begin_drop(SPACE, 31).is_none(), "it is being dropped");
        lives.dropped(life, true, 40);
        let expect = |began, ended, there: bool, not_there: bool| {
            let during = during(began, ended, false);
            assert_eq!(lives.resolve(&with(&[SPACE]), during).is_ok(), there, "{during:?}");
            assert_eq!(lives.resolve(&with(&[]), during).is_ok(), not_there, "{during:?}");
        };
        expect(1, 2, false, true);
        expect(12, 13, true, true);
        expect(21, 22, true, false);
        expect(21, 32, true, true);
        expect(33, 34, true, true);
        expect(41, 42, false, true);
    }

    #[test]
    fn after_a_failed_edit_only_other_openings_are_in_doubt() {
        let mut lives = Lives::default();
        let failed = lives.begin(SPACE, 1).unwrap();
        lives.created(failed, false, 2);
        assert!(lives.resolve(&with(&[SPACE]), during(3, 4, false)).is_err());
        assert!(lives.resolve(&with(&[SPACE]), during(3, 4, true)).is_ok());
        assert!(lives.resolve(&with(&[]), during(3, 4, true)).is_ok());

        let life = lives.begin(SPACE, 5).unwrap();
        lives.created(life, true, 6);
        lives.begin_drop(SPACE, 7).unwrap();
        lives.dropped(life, false, 8);
        assert!(lives.resolve(&with(&[]), during(9, 10, false)).is_err());
        assert!(lives.resolve(&with(&[]), during(9, 10, true)).is_ok());
        assert_eq!(lives.settle(&with(&[SPACE]), during(11, 11, true)).get(&SPACE), Some(&life));
        assert!(lives.resolve(&with(&[]), during(12, 13, true)).is_err(), "an opening has decided");
    }

    #[test]
    fn entries_belong_to_the_life_that_must_be_there() {
        let mut lives = Lives::default();
        let first = lives.begin(SPACE, 1).unwrap();
        lives.created(first, true, 2);
        lives.begin_drop(SPACE, 3).unwrap();
        lives.dropped(first, true, 4);
        let second = lives.begin(SPACE, 5).unwrap();
        lives.created(second, true, 6);
        let mut contents = with(&[SPACE]);
        contents.entries.insert((SPACE, b"a".to_vec()), b"b".to_vec());
        let (seen, _) = lives.resolve(&contents, during(7, 8, false)).unwrap();
        assert_eq!(seen.keys().map(|(life, _)| *life).collect::<Vec<_>>(), [second]);
        let (seen, _) = lives.resolve(&contents, during(2, 8, false)).unwrap();
        assert!(seen.is_empty(), "it may be of either");
    }
}
