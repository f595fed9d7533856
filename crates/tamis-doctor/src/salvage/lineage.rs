//! Decides which of the tables in a directory make up the tree: those that no other table was made
//! from.
//!
//! A merge makes tables from tables, and until its input files are removed both exist. An
//! unfinished merge leaves only some of its outputs, and perhaps all of its inputs. A merge that
//! was undone may have left an output behind. Only the manifest records which of these happened;
//! without it, the following rules tell them apart:
//!
//! * An input is removed only once the merge is in the manifest, and merges take whole tables. So
//!   if one input of a merge is gone, the merge took effect, and its remaining inputs are obsolete.
//! * If all inputs exist, the merge may or may not have taken effect. Its outputs hold the same
//!   data as its inputs, so the inputs are kept and the outputs left out.
//! * In every state of a tree, the epochs that tables may hold at a key are disjoint, and a merge's
//!   epochs are the union of its inputs'. So if the epochs of two tables meet at a key, either the
//!   later table was made from the earlier one, through any number of merges that left no trace, or
//!   the earlier one is the output of a merge that was undone. In both cases the earlier one is
//!   left out.
//!
//! Merges are examined from the latest to the first, so that it is already known for each whether
//! its outputs' descendants took effect.

use std::collections::{BTreeMap, BTreeSet};

use tamis_base::ids::TableId;
use tamis_base::key::KeyBytes;
use tamis_base::meta::TableMeta;

use super::survey::{Described, Tables};

/// The facts that a decision is based on.
pub(super) struct Facts<'a, E> {
    /// The usable tables of one keyspace.
    pub(super) tables: &'a Tables,
    /// Reports whether a file of this number exists, usable or not.
    pub(super) there: &'a dyn Fn(TableId) -> bool,
    /// Reports whether the manifest names a table; it must not miss any table that it names in this
    /// keyspace.
    pub(super) named: &'a dyn Fn(TableId) -> bool,
    /// Reports whether every byte of a table is sound; called only where it matters.
    pub(super) sound: &'a mut dyn FnMut(TableId) -> Result<bool, E>,
}

/// The decision about the tables of one keyspace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    /// Tables left out because others were made from them, or they from others, and why.
    pub(super) out: BTreeMap<TableId, String>,
    /// Doubts about the tables that are kept.
    pub(super) doubts: Vec<String>,
}

/// Decides about the tables of one keyspace.
pub(super) fn decide<E>(facts: Facts<'_, E>) -> Result<Decided, E> {
    let mut decided = Decided::default();
    for group in groups(facts.tables) {
        let members: Vec<&Described> =
            group.iter().filter(|id| !decided.out.contains_key(id)).map(|id| &*facts.tables[id]).collect();
        if members.is_empty() {
            continue;
        }
        let of = |d: &Described| d.origin.merged.as_ref().map_or(&[][..], |m| &m.inputs[..]).to_vec();
        let inputs: BTreeSet<TableId> = members.iter().flat_map(|d| of(d)).collect();
        let counted = inputs.iter().any(|id| !(facts.there)(*id) || decided.out.contains_key(id))
            || members.iter().all(|d| (facts.named)(d.meta.id));
        let undo = if counted {
            false
        } else {
            let usable: Vec<_> = inputs.iter().filter_map(|id| facts.tables.get(id)).collect();
            let mut whole = usable.len() == inputs.len();
            for input in &usable {
                whole = whole && (facts.sound)(input.meta.id)?;
            }
            whole || !usable.iter().all(|input| covers(&members, &input.meta))
        };
        if undo {
            for d in &members {
                let text = list(&inputs);
                decided.out.insert(d.meta.id, format!("it was made from tables that are all there ({text})"));
            }
            continue;
        }
        let ids: BTreeSet<TableId> = members.iter().map(|d| d.meta.id).collect();
        for d in &members {
            let id = d.meta.id;
            let before = d.origin.merged.iter().flat_map(|m| m.before.clone());
            for input in of(d).into_iter().chain(before).filter(|input| facts.tables.contains_key(input)) {
                decided.out.entry(input).or_insert_with(|| format!("table {id} was made from it"));
            }
            let Some((merged, stretch)) = d.origin.merged.as_ref().zip(d.stretch.as_ref()) else { continue };
            for (&earlier, other) in facts.tables.range(..merged.mark) {
                if !ids.contains(&earlier)
                    && !other.external
                    && !decided.out.contains_key(&earlier)
                    && epochs_meet(stretch, &other.meta)
                {
                    let why = format!("table {id} holds everything made from it");
                    decided.out.insert(earlier, why);
                }
            }
        }
    }
    without_origin(facts.tables, &mut decided);
    Ok(decided)
}

/// Returns the outputs of merges, grouped so that outputs that share inputs are together, the
/// latest merge first.
fn groups(tables: &Tables) -> Vec<Vec<TableId>> {
    let mut of_mark: BTreeMap<u64, Vec<TableId>> = BTreeMap::new();
    for (&id, d) in tables {
        if let Some(merged) = &d.origin.merged {
            of_mark.entry(merged.mark).or_default().push(id);
        }
    }
    let mut groups = Vec::new();
    for ids in of_mark.into_values().rev() {
        // The group of each input is found through the first table that names it.
        let mut leader: BTreeMap<TableId, usize> = BTreeMap::new();
        let mut parent: Vec<usize> = (0..ids.len()).collect();
        fn root(parent: &mut [usize], mut at: usize) -> usize {
            while parent[at] != at {
                parent[at] = parent[parent[at]];
                at = parent[at];
            }
            at
        }
        for (at, id) in ids.iter().enumerate() {
            for &input in tables[id].origin.merged.iter().flat_map(|m| &m.inputs) {
                let first = *leader.entry(input).or_insert(at);
                let (a, b) = (root(&mut parent, first), root(&mut parent, at));
                parent[a] = b;
            }
        }
        let mut of_root: BTreeMap<usize, Vec<TableId>> = BTreeMap::new();
        for (at, &id) in ids.iter().enumerate() {
            of_root.entry(root(&mut parent, at)).or_default().push(id);
        }
        groups.extend(of_root.into_values());
    }
    groups
}

/// Reports whether the outputs of a merge hold everything that it made of a table's range.
fn covers(outputs: &[&Described], table: &TableMeta) -> bool {
    let stretches = outputs.iter().filter_map(|d| d.origin.merged.as_ref());
    let mut stretches: Vec<(&[u8], Option<&[u8]>)> =
        stretches.map(|m| (&m.from[..], m.to.as_deref())).collect();
    stretches.sort_unstable();
    let mut at: Vec<u8> = table.smallest.to_vec();
    for (from, to) in stretches {
        if *from > at[..] {
            return false;
        }
        match to {
            None => return true,
            Some(to) if *to > at[..] => at = to.to_vec(),
            Some(_) => {}
        }
        if !table.largest.reaches(&at) {
            return true;
        }
    }
    false
}

/// Handles tables from before origins were recorded, which do not say what they were made from. A
/// table that lies wholly under later tables of the same epochs is left out; one that lies partly
/// under them stays, and is reported.
fn without_origin(tables: &Tables, decided: &mut Decided) {
    let old: Vec<&TableMeta> =
        tables.values().filter(|d| d.origin.keyspace.is_none() && !d.external).map(|d| &d.meta).collect();
    for table in &old {
        let later: Vec<&&TableMeta> =
            old.iter().filter(|other| other.id > table.id && epochs_meet(table, other)).collect();
        let (Some(from), Some(to)) =
            (later.iter().map(|t| &t.smallest).min(), later.iter().map(|t| &t.largest).max())
        else {
            continue;
        };
        if *from <= table.smallest && *to >= table.largest {
            let why = format!("table {} and others hold everything made from it", later[0].id);
            decided.out.entry(table.id).or_insert(why);
        } else {
            if decided.doubts.len() >= 20 {
                continue;
            }
            decided.doubts.push(format!(
                "tables {} and {} may hold the same entries, and the files do not say which came of which: deleted keys \
                 may be back",
                table.id, later[0].id
            ));
        }
    }
}

fn list(ids: &BTreeSet<TableId>) -> String {
    let shown: Vec<String> = ids.iter().take(8).map(TableId::to_string).collect();
    let more = if ids.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}

/// Returns the keys at which the epochs of two tables may change, within the range common to both.
fn cuts<'t>(a: &'t TableMeta, b: &'t TableMeta) -> impl Iterator<Item = &'t KeyBytes> {
    let starts = [a, b].into_iter().flat_map(|t| t.epochs.segments().iter().map(|s| &s.start));
    starts.chain([&a.smallest, &b.smallest]).filter(|key| a.covers(key) && b.covers(key))
}

pub(super) fn epochs_meet(a: &TableMeta, b: &TableMeta) -> bool {
    let meet = |key: &KeyBytes| {
        let ((a_lo, a_hi), (b_lo, b_hi)) = (a.epochs.at(key), b.epochs.at(key));
        a_lo < b_hi && b_lo < a_hi
    };
    a.overlaps(b) && cuts(a, b).any(meet)
}

/// Reports whether `a` is newer than `b` wherever both cover a key; `None` if there is no such key,
/// or the keys disagree.
pub(super) fn is_newer(a: &TableMeta, b: &TableMeta) -> Option<bool> {
    let mut seen = None;
    for key in cuts(a, b) {
        let ((a_lo, a_hi), (b_lo, b_hi)) = (a.epochs.at(key), b.epochs.at(key));
        if a_lo == a_hi || b_lo == b_hi {
            continue;
        }
        let here = if a_lo >= b_hi {
            true
        } else if b_lo >= a_hi {
            false
        } else {
            return None;
        };
        if seen.replace(here).is_some_and(|before| before != here) {
            return None;
        }
    }
    seen
}
