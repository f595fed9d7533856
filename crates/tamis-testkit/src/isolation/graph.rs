//! The graph of dependencies between committed transactions, and its cycles.

use std::collections::{BTreeMap, VecDeque};

use super::{Anomaly, Key, Kind};

/// How one transaction depends on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dependency {
    /// `ww`: it overwrites a version of the other one.
    Overwrites,
    /// `wr`: it reads a version of the other one.
    Reads,
    /// `rw`: it replaces a version that the other one has read.
    Replaces,
}

/// A dependency: `to` comes after `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    from: usize,
    to: usize,
    by: Dependency,
    predicate: bool,
    key: Key,
}

impl Edge {
    pub(super) fn overwrites(from: usize, to: usize, key: Key) -> Edge {
        Edge { from, to, by: Dependency::Overwrites, predicate: false, key }
    }

    pub(super) fn read_by(from: usize, to: usize, key: Key, predicate: bool) -> Edge {
        Edge { from, to, by: Dependency::Reads, predicate, key }
    }

    pub(super) fn replaced_by(from: usize, to: usize, key: Key, predicate: bool) -> Edge {
        Edge { from, to, by: Dependency::Replaces, predicate, key }
    }
}

/// A transaction, and whether it was reached by a `rw`: all that a search asks of the edge before.
type State = (usize, bool);

pub(super) struct Graph {
    /// By the transaction that comes first.
    edges: Vec<Vec<Edge>>,
}

impl Graph {
    pub(super) fn new(transactions: usize) -> Graph {
        Graph { edges: vec![Vec::new(); transactions] }
    }

    pub(super) fn add(&mut self, edge: Edge) {
        let edges = &mut self.edges[edge.from];
        if edge.from != edge.to && !edges.contains(&edge) {
            edges.push(edge);
        }
    }

    fn all(&self, by: Dependency) -> impl Iterator<Item = &Edge> {
        self.edges.iter().flatten().filter(move |edge| edge.by == by)
    }

    /// Returns the shortest path between two transactions over edges that `may` be taken, given the
    /// one before.
    fn path(&self, first: &Edge, may: impl Fn(&Edge, &Edge) -> bool) -> Option<Vec<Edge>> {
        let state = |edge: &Edge| (edge.to, edge.by == Dependency::Replaces);
        let mut reached: BTreeMap<State, (Edge, Option<State>)> = BTreeMap::new();
        let mut queue = VecDeque::from([state(first)]);
        reached.insert(state(first), (*first, None));
        while let Some(at) = queue.pop_front() {
            let (before, _) = reached[&at];
            for edge in &self.edges[at.0] {
                if !may(&before, edge) {
                    continue;
                }
                if edge.to == first.from {
                    // Back at the beginning.
                    let mut path = vec![*edge];
                    let mut step = Some(at);
                    while let Some(at) = step {
                        path.push(reached[&at].0);
                        step = reached[&at].1;
                    }
                    path.reverse();
                    return Some(path);
                }
                reached.entry(state(edge)).or_insert_with(|| {
                    queue.push_back(state(edge));
                    (*edge, Some(at))
                });
            }
        }
        None
    }

    /// Returns an example of each kind of cycle that there is. A cycle of one kind with `rw` is one
    /// of the later kinds, too: only the first kind is reported. Predicates are only used if there
    /// is no such cycle without.
    pub(super) fn cycles(&self) -> Vec<Anomaly> {
        use Dependency::{Overwrites, Reads, Replaces};
        type May = fn(&Edge, &Edge) -> bool;
        let kinds: [(Kind, Dependency, May); 5] = [
            (Kind::G0, Overwrites, |_, edge| edge.by == Overwrites),
            (Kind::G1c, Reads, |_, edge| edge.by != Replaces),
            (Kind::GSingle, Replaces, |_, edge| edge.by != Replaces),
            (Kind::GNonadjacent, Replaces, |before, edge| edge.by != Replaces || before.by != Replaces),
            (Kind::G2, Replaces, |_, _| true),
        ];
        let mut found = Vec::new();
        'kinds: for (kind, by, may) in kinds {
            for predicate in [false, true] {
                let allowed = |edge: &Edge| predicate || !edge.predicate;
                let cycle = self.all(by).filter(|edge| allowed(edge)).find_map(|first| {
                    // The first edge follows the last one.
                    let closes = |edge: &Edge| {
                        edge.to != first.from || by != Replaces || may(edge, first) || kind == Kind::GSingle
                    };
                    self.path(first, |before, edge| allowed(edge) && may(before, edge) && closes(edge))
                });
                if let Some(cycle) = cycle {
                    found.push(Anomaly { kind, predicate, example: describe(&cycle) });
                    if by == Replaces {
                        break 'kinds;
                    }
                    break;
                }
            }
        }
        found
    }
}

fn describe(cycle: &[Edge]) -> String {
    let mut text = format!("T{}", cycle[0].from);
    for edge in cycle {
        let by = match edge.by {
            Dependency::Overwrites => "ww",
            Dependency::Reads => "wr",
            Dependency::Replaces => "rw",
        };
        let predicate = if edge.predicate { ", predicate" } else { "" };
        text.push_str(&format!(" -{by}({}{predicate})-> T{}", edge.key, edge.to));
    }
    text
}
