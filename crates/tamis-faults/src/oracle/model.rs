//! The contents of a database in short form: keys, and fingerprints of values.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher as _};

use super::stream::{Op, Write};

/// The keyspaces that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Default,
    /// Keys of eight bytes that are numbers.
    Wide,
    /// Values that are sums of operands.
    Sums,
}

impl Space {
    pub(crate) const ALL: [Space; 3] = [Space::Default, Space::Wide, Space::Sums];

    pub(crate) fn name(self) -> &'static str {
        ["default", "wide", "sums"][self as usize]
    }

    /// Returns the value for comparisons: the number for sums, whose encoding may differ, and a
    /// hash for others.
    pub(crate) fn fingerprint(self, value: &[u8]) -> u64 {
        match (self, <[u8; 8]>::try_from(value)) {
            (Space::Sums, Ok(number)) => u64::from_le_bytes(number),
            _ => hash(value),
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Formats a key in short form.
pub(crate) fn shown(key: &[u8]) -> String {
    const MOST: usize = 40;
    match key.split_at_checked(MOST) {
        Some((start, rest)) if !rest.is_empty() => format!("{}…({:x})", start.escape_ascii(), hash(key)),
        _ => key.escape_ascii().to_string(),
    }
}

/// Contents by keyspace. Keys are stored as formatted by [`shown`], since only equality matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    spaces: [BTreeMap<Vec<u8>, u64>; 3],
}

impl Model {
    pub(crate) fn apply(&mut self, write: &Write) {
        for op in &write.ops {
            match op {
                Op::Put(space, key, value) => self.insert(*space, key.clone(), space.fingerprint(value)),
                Op::Delete(space, key) => {
                    self.spaces[*space as usize].remove(key);
                }
                Op::DeleteRange(space, from, to) => {
                    self.spaces[*space as usize].retain(|key, _| !(from..to).contains(&key));
                }
                Op::Add(key, number) => {
                    let sum = self.spaces[Space::Sums as usize].entry(key.clone()).or_default();
                    *sum = sum.wrapping_add(*number);
                }
            }
        }
    }

    pub(crate) fn insert(&mut self, space: Space, key: Vec<u8>, fingerprint: u64) {
        self.spaces[space as usize].insert(key, fingerprint);
    }

    pub(crate) fn space(&self, space: Space) -> &BTreeMap<Vec<u8>, u64> {
        &self.spaces[space as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.spaces.iter().map(BTreeMap::len).sum()
    }

    /// Describes the difference with at most three examples. `None` if there is none.
    pub(crate) fn difference(&self, found: &Model) -> Option<String> {
        let mut examples = Vec::new();
        let mut count = 0;
        for space in Space::ALL {
            let (expected, found) = (self.space(space), found.space(space));
            let keys: BTreeSet<&Vec<u8>> = expected.keys().chain(found.keys()).collect();
            for key in keys.into_iter().filter(|key| expected.get(*key) != found.get(*key)) {
                count += 1;
                if examples.len() < 3 {
                    let (e, f) = (expected.get(key), found.get(key));
                    let name = space.name();
                    examples.push(format!("{name} `{}`: expected {e:x?}, found {f:x?}", shown(key)));
                }
            }
        }
        (count > 0).then(|| format!("{count} keys differ: {}", examples.join("; ")))
    }
}

/// The contents found in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) model: Model,
    /// By thread: the number of its last write, and what that write had seen of every thread.
    pub(crate) counters: BTreeMap<u32, Vec<u64>>,
    /// Journalled writes.
    pub(crate) done: BTreeSet<u64>,
}

impl State {
    /// Returns the number of a thread's last write.
    pub(crate) fn number(&self, thread: u32) -> u64 {
        self.counters.get(&thread).and_then(|counter| counter.first()).copied().unwrap_or(0)
    }
}
