//! The oracle: what was written in which order, and how much of it was promised.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use tamis::Db;
use tamis_testkit::FaultyFs;

use crate::lab::open_existing;

/// The n-th keyspace ever created. Successive keyspaces of one name are different ones.
pub(crate) type Incarnation = u32;

pub(crate) type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// All keyspaces' contents.
pub(crate) type State = BTreeMap<Incarnation, Content>;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(Incarnation, Vec<u8>, Vec<u8>),
    Delete(Incarnation, Vec<u8>),
    DeleteRange(Incarnation, Vec<u8>, Vec<u8>),
}

/// One batch.
pub(crate) type Batch = Vec<Op>;

/// Whether a keyspace must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    There,
    /// Its creation or its drop failed: both are allowed.
    Unknown,
    /// Its renaming failed: it exists under this name or under the other one of the same
    /// incarnation.
    OneOf,
}

#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) path: PathBuf,
    /// The contents at its creation.
    pub(crate) state: State,
    pub(crate) names: BTreeMap<String, (Incarnation, Presence)>,
    /// Whether it was reported as done.
    pub(crate) done: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The batches, and the number of promised ones.
    pub(crate) order: tamis_testkit::Ledger<State, Batch>,
    pub(crate) names: BTreeMap<String, (Incarnation, Presence)>,
    pub(crate) next: Incarnation,
    pub(crate) checkpoints: Vec<Checkpoint>,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger {
            order: tamis_testkit::Ledger::new(State::new(), apply),
            names: BTreeMap::from([("default".to_owned(), (0, Presence::There))]),
            next: 1,
            checkpoints: Vec::new(),
        }
    }
}

fn apply(state: &mut State, batch: &Batch) {
    for op in batch {
        match op {
            Op::Put(ks, key, value) => {
                state.entry(*ks).or_default().insert(key.clone(), value.clone());
            }
            Op::Delete(ks, key) => {
                state.entry(*ks).or_default().remove(key);
            }
            Op::DeleteRange(ks, from, to) => {
                state.entry(*ks).or_default().retain(|key, _| !(from..to).contains(&key));
            }
        }
    }
}

impl Ledger {
    /// Checks that `db` holds the state after some prefix of at least `promised` writes, and
    /// continues from there: the state found now counts as safe. Returns the length of the prefix.
    pub(crate) fn judge(&mut self, db: &Db, promised: usize) -> Result<usize, String> {
        let found = read_all(db).map_err(|e| format!("reading after recovery: {e}"))?;
        self.judge_names(found.keys())?;
        let found: BTreeMap<Incarnation, Content> =
            found.into_iter().map(|(name, content)| (self.names[&name].0, content)).collect();
        let Some(prefix) = self.order.find(promised, |state| agree(state, &found)) else {
            return Err(self.quarrel(promised, &found));
        };
        let problems = db.verify().map_err(|e| format!("verify: {e}"))?.problems;
        if !problems.is_empty() {
            return Err(format!("verify finds {problems:#?}"));
        }
        self.order.go_on_from(found);
        Ok(prefix)
    }

    fn judge_names<'n>(&mut self, found: impl Iterator<Item = &'n String>) -> Result<(), String> {
        let found: Vec<&String> = found.collect();
        if let Some(odd) = found.iter().find(|name| !self.names.contains_key(**name)) {
            return Err(format!("keyspace `{odd}` should not be there"));
        }
        let missing = self.names.iter().find(|(name, p)| p.1 == Presence::There && !found.contains(name));
        if let Some((missing, _)) = missing {
            return Err(format!("keyspace `{missing}` is missing"));
        }
        for (name, (id, _)) in self.names.iter().filter(|(_, (_, p))| *p == Presence::OneOf) {
            let same = self.names.iter().filter(|(_, (other, _))| other == id);
            let there = same.filter(|(name, _)| found.contains(name)).count();
            if there != 1 {
                return Err(format!("keyspace `{name}`, perhaps renamed, is there {there} times"));
            }
        }
        self.names.retain(|name, _| found.contains(&name));
        self.names.values_mut().for_each(|p| p.1 = Presence::There);
        Ok(())
    }

    fn quarrel(&self, promised: usize, found: &State) -> String {
        let mut text = format!(
            "the content is no prefix of the {} writes from {promised} (acknowledged {}, safe {}) on:\n",
            self.order.writes().len(),
            self.order.acknowledged(),
            self.order.safe()
        );
        for prefix in promised..=self.order.writes().len() {
            let state = self.order.state_after(prefix);
            let differing: Vec<_> =
                found.iter().flat_map(|(ks, content)| differences(state.get(ks), content, *ks)).collect();
            let _ = writeln!(
                text,
                "  after {prefix}: {} differences, such as {:?}",
                differing.len(),
                differing.first()
            );
        }
        text
    }

    /// Checks the checkpoints: one that was reported as done holds its state; any other is complete
    /// or not a database.
    pub(crate) fn judge_checkpoints(&self, fs: &FaultyFs) -> Result<(), String> {
        for checkpoint in &self.checkpoints {
            let at = checkpoint.path.display();
            let db = match open_existing(fs, &checkpoint.path) {
                Ok(db) => db,
                Err(tamis::OpenError::NotFound { .. }) if !checkpoint.done => continue,
                // All that is left may be a file without its first bytes, which bears no mark.
                Err(tamis::OpenError::Foreign { .. }) if !checkpoint.done => continue,
                Err(e) => return Err(format!("checkpoint {at}: {e}")),
            };
            let found = read_all(&db).map_err(|e| format!("checkpoint {at}: {e}"))?;
            for (name, content) in &found {
                let Some((id, _)) = checkpoint.names.get(name) else {
                    return Err(format!("checkpoint {at}: keyspace `{name}` should not be there"));
                };
                if let Some(difference) = differences(checkpoint.state.get(id), content, *id).first() {
                    return Err(format!("checkpoint {at}: {difference}"));
                }
            }
            if let Some((name, _)) =
                checkpoint.names.iter().find(|(name, p)| p.1 == Presence::There && !found.contains_key(*name))
            {
                return Err(format!("checkpoint {at}: keyspace `{name}` is missing"));
            }
        }
        Ok(())
    }
}

/// Reports whether the keyspaces found match `state`.
fn agree(state: &State, found: &State) -> bool {
    let empty = Content::new();
    found.iter().all(|(ks, content)| state.get(ks).unwrap_or(&empty) == content)
}

pub(crate) fn differences(expected: Option<&Content>, found: &Content, ks: Incarnation) -> Vec<String> {
    let empty = Content::new();
    let expected = expected.unwrap_or(&empty);
    let show = |value: Option<&Vec<u8>>| value.map(|v| v[..v.len().min(12)].escape_ascii().to_string());
    expected
        .keys()
        .chain(found.keys().filter(|k| !expected.contains_key(*k)))
        .filter(|key| expected.get(*key) != found.get(*key))
        .map(|key| {
            let (e, f) = (show(expected.get(key)), show(found.get(key)));
            format!("keyspace {ks} key {}: expected {e:?}, found {f:?}", key.escape_ascii())
        })
        .collect()
}

/// Reads everything in the database, by forward iterators and by gets, which must agree.
pub(crate) fn read_all(db: &Db) -> Result<BTreeMap<String, Content>, tamis::Error> {
    let mut all = BTreeMap::new();
    for name in db.keyspaces() {
        let keyspace = db.keyspace(&name)?;
        let mut content = Content::new();
        for item in keyspace.iter() {
            let (key, value) = item?;
            content.insert(key.to_vec(), value.to_vec());
        }
        for key in (0..crate::history::KEYS).map(crate::history::key) {
            let got = keyspace.get(&key)?.map(|v| v.to_vec());
            assert_eq!(got.as_ref(), content.get(&key), "get and iter differ: {name} {}", key.escape_ascii());
        }
        all.insert(name, content);
    }
    Ok(all)
}
