//! Histories of transactions, and the anomalies that they show.
//!
//! After Adya's "Weak Consistency" (1999): from what each transaction read and wrote, and from the
//! order in which the versions of each key were installed, a graph of dependencies is built. An
//! anomaly is a cycle of a certain kind in it, or a read that no committed version explains.
//! Nothing is known of how a store works, or of its snapshots: only the results count.
//!
//! | name | what it is |
//! | --- | --- |
//! | internal | a transaction does not read what it has written itself |
//! | garbage | a value that nobody wrote |
//! | G0 | a cycle of overwrites |
//! | G1a | a value of a transaction that was aborted |
//! | G1b | a value that its transaction replaced before it committed |
//! | G1c | a cycle of overwrites and reads of what was written |
//! | G-single | a cycle with one read of what another transaction replaced: read skew, lost updates |
//! | G-nonadjacent | one with several of them, but no two in a row: what snapshot isolation still forbids |
//! | G2 | a cycle with any number of them: write skew, long forks |
//!
//! Each of the last three includes the one before it, and only the first that is found is reported.
//! They are also told apart by whether they need a *predicate*: a key that a scan did not find
//! since it was not there.
//!
//! # What the history must tell
//!
//! Values are unique, so that each names the write that it comes from. Absence is not: where a key
//! was deleted, a read that finds nothing may have seen any version without a value. Then only
//! those dependencies are drawn that hold whichever it was. So no anomaly is reported that is none,
//! and some may be missed around deleted keys.

mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use graph::{Edge, Graph};

/// A key: a small number.
pub type Key = u32;

/// A part of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A key was read.
    Read {
        /// The key.
        key: Key,
        /// Its value.
        found: Option<u64>,
    },
    /// All keys of a range were read.
    Scan {
        /// The first key.
        from: Key,
        /// The key after the last one.
        to: Key,
        /// The keys that were there, with their values.
        found: Vec<(Key, u64)>,
    },
    /// A key was written; without a value it was deleted.
    Write {
        /// The key.
        key: Key,
        /// The value, which no other write of the history has.
        value: Option<u64>,
    },
}

/// What a transaction did, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Its place in the order in which transactions installed their versions; `None` if it was
    /// aborted.
    pub committed: Option<u64>,
    /// Its parts, in order.
    pub ops: Vec<Op>,
}

/// The transactions of a history. Keys not written at first have no value.
pub type History = [Txn];

/// The kinds of anomalies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the module's table describes them")]
pub enum Kind {
    Internal,
    Garbage,
    G0,
    G1a,
    G1b,
    G1c,
    GSingle,
    GNonadjacent,
    G2,
}

impl Kind {
    /// The name in the literature.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Internal => "internal",
            Kind::Garbage => "garbage",
            Kind::G0 => "G0",
            Kind::G1a => "G1a",
            Kind::G1b => "G1b",
            Kind::G1c => "G1c",
            Kind::GSingle => "G-single",
            Kind::GNonadjacent => "G-nonadjacent",
            Kind::G2 => "G2",
        }
    }
}

/// Isolation levels, by the anomalies that they admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Admits G2 only, and of that only cycles with two reads of replaced versions in a row.
    Snapshot,
    /// Admits nothing.
    Serializable,
}

impl Level {
    /// Reports whether a history of this level may show an anomaly of this kind.
    pub fn admits(self, kind: Kind) -> bool {
        self == Level::Snapshot && kind == Kind::G2
    }
}

/// An anomaly, with an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its kind.
    pub kind: Kind,
    /// Whether it is one only because of keys that a scan did not find.
    pub predicate: bool,
    /// The example: the transactions and what connects them.
    pub example: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let predicate = if self.predicate { " (predicate)" } else { "" };
        write!(f, "{}{predicate}: {}", self.kind.name(), self.example)
    }
}

/// One version of a key.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// `None`: that before all writes.
    writer: Option<usize>,
    value: Option<u64>,
}

/// Returns the anomalies of a history, one example of each kind.
pub fn anomalies(history: &History) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let mut graph = Graph::new(history.len());
    let versions = versions_of(history);
    for versions in versions.iter() {
        let (key, versions) = versions;
        for pair in versions.windows(2) {
            if let (Some(from), Some(to)) = (pair[0].writer, pair[1].writer) {
                graph.add(Edge::overwrites(from, to, *key));
            }
        }
    }
    let writers = writers_of(history);
    for (reader, txn) in history.iter().enumerate() {
        let mut own: BTreeMap<Key, Option<u64>> = BTreeMap::new();
        for op in &txn.ops {
            let mut read = |key: Key, value: Option<u64>, predicate: bool| {
                let read = Read { reader, committed: txn.committed.is_some(), key, value, predicate };
                match own.get(&key) {
                    Some(written) if *written == value => {}
                    Some(written) => found.push(Anomaly {
                        kind: Kind::Internal,
                        predicate: false,
                        example: format!("T{reader} wrote {written:?} to key {key} and then read {value:?}"),
                    }),
                    None => read.note(history, &versions, &writers, &mut graph, &mut found),
                }
            };
            match op {
                Op::Read { key, found } => read(*key, *found, false),
                Op::Scan { from, to, found } => {
                    let values: BTreeMap<Key, u64> = found.iter().copied().collect();
                    for key in *from..*to {
                        let value = values.get(&key).copied();
                        read(key, value, value.is_none());
                    }
                }
                Op::Write { key, value } => _ = own.insert(*key, *value),
            }
        }
    }
    found.extend(graph.cycles());
    let mut kinds = BTreeSet::new();
    found.retain(|anomaly| kinds.insert((anomaly.kind, anomaly.predicate)));
    found.sort_by_key(|anomaly| (anomaly.kind, anomaly.predicate));
    found
}

/// The committed versions of each key, oldest first.
fn versions_of(history: &History) -> BTreeMap<Key, Vec<Version>> {
    let mut order: Vec<(u64, usize)> =
        history.iter().enumerate().filter_map(|(id, txn)| txn.committed.map(|place| (place, id))).collect();
    order.sort_unstable();
    let mut versions: BTreeMap<Key, Vec<Version>> = BTreeMap::new();
    let keys = history.iter().flat_map(|txn| &txn.ops).flat_map(|op| match op {
        Op::Read { key, .. } | Op::Write { key, .. } => *key..*key + 1,
        Op::Scan { from, to, .. } => *from..*to,
    });
    for key in keys {
        versions.entry(key).or_insert_with(|| vec![Version { writer: None, value: None }]);
    }
    for (_, id) in order {
        for (key, value) in last_writes(&history[id]) {
            versions.entry(key).or_default().push(Version { writer: Some(id), value });
        }
    }
    versions
}

fn last_writes(txn: &Txn) -> BTreeMap<Key, Option<u64>> {
    let writes = txn.ops.iter().filter_map(|op| match op {
        Op::Write { key, value } => Some((*key, *value)),
        _ => None,
    });
    writes.collect()
}

/// Who wrote each value, to which key.
fn writers_of(history: &History) -> BTreeMap<(Key, u64), usize> {
    let mut writers = BTreeMap::new();
    for (id, txn) in history.iter().enumerate() {
        for op in &txn.ops {
            if let Op::Write { key, value: Some(value) } = op {
                let other = writers.insert((*key, *value), id);
                assert!(other.is_none(), "the value {value} was written twice to key {key}");
            }
        }
    }
    writers
}

/// One key that a transaction read, and has not written before.
struct Read {
    reader: usize,
    committed: bool,
    key: Key,
    value: Option<u64>,
    predicate: bool,
}

impl Read {
    /// Adds the dependencies of the read to the graph, or what is wrong with it to `found`.
    fn note(
        &self,
        history: &History,
        versions: &BTreeMap<Key, Vec<Version>>,
        writers: &BTreeMap<(Key, u64), usize>,
        graph: &mut Graph,
        found: &mut Vec<Anomaly>,
    ) {
        let &Read { reader, committed, key, value, predicate } = self;
        let mut wrong = |kind, example| found.push(Anomaly { kind, predicate: false, example });
        let versions = &versions[&key];
        let Some(value) = value else {
            if !committed {
                return;
            }
            // Whichever of them it was, whatever follows the last of them came later.
            let last = versions.iter().rposition(|version| version.value.is_none());
            let only = versions.iter().filter(|version| version.value.is_none()).count() == 1;
            let Some(last) = last else { return };
            if only && let Some(writer) = versions[last].writer {
                graph.add(Edge::read_by(writer, reader, key, predicate));
            }
            if let Some(next) = versions.get(last + 1).and_then(|version| version.writer) {
                graph.add(Edge::replaced_by(reader, next, key, predicate));
            }
            return;
        };
        let Some(&writer) = writers.get(&(key, value)) else {
            return wrong(
                Kind::Garbage,
                format!("T{reader} read {value} from key {key}, which nobody wrote"),
            );
        };
        if writer == reader {
            return wrong(
                Kind::Internal,
                format!("T{reader} read {value} from key {key} before it wrote it"),
            );
        }
        if history[writer].committed.is_none() {
            return wrong(
                Kind::G1a,
                format!("T{reader} read {value} from key {key}, of T{writer}, which was aborted"),
            );
        }
        let Some(place) = versions.iter().position(|version| version.value == Some(value)) else {
            let what = format!(
                "T{reader} read {value} from key {key}, which T{writer} replaced before it committed"
            );
            return wrong(Kind::G1b, what);
        };
        if !committed {
            return;
        }
        graph.add(Edge::read_by(writer, reader, key, predicate));
        if let Some(next) = versions.get(place + 1).and_then(|version| version.writer) {
            graph.add(Edge::replaced_by(reader, next, key, predicate));
        }
    }
}

#[cfg(test)]
mod tests;
