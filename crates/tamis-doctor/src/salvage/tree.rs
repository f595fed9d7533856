//! Rebuilding a tree: tables are ordered so that the newest version of each key comes first.
//!
//! Each table gets a *height*, one more than that of the highest older table that it overlaps.
//! Tables of the same height do not overlap, so they form a run. The tree therefore has as many
//! runs as the most tables that cover any one key. Leveled policies get one level per height, from
//! the last level up, with the remainder in level 0; all other policies get everything in level 0.

use tamis_base::ids::{KeyspaceId, RunId, TableId};
use tamis_base::meta::TableMeta;
use tamis_files::tree::edit::VersionEdit;

use tamis::KeyspaceOptions;
use tamis::options::CompactionChoice;

use super::lineage::is_newer;

/// Adds the tables of a keyspace to `edit`, in runs numbered from `next_run` on. Returns doubts
/// about their order.
pub(super) fn place(
    keyspace: KeyspaceId,
    options: &KeyspaceOptions,
    tables: Vec<TableMeta>,
    next_run: &mut RunId,
    edit: &mut VersionEdit,
) -> Vec<String> {
    let (heights, doubts) = heights(&tables);
    let levels = match options.compaction {
        _ if options.deterministic => 1,
        CompactionChoice::Leveling
        | CompactionChoice::Tiering
        | CompactionChoice::LazyLeveling
        | CompactionChoice::Hybrid(_) => options.levels.max(1),
        _ => 1,
    };
    let first_run = *next_run;
    for (table, height) in tables.into_iter().zip(heights) {
        let level = (levels - 1).saturating_sub(height);
        let run = first_run + height as u64;
        *next_run = (*next_run).max(run + 1);
        edit.added.push((keyspace, level as u32, run, table));
    }
    doubts
}

/// The maximum number of doubts reported.
const MOST_DOUBTS: usize = 20;

/// Returns the height of each table.
fn heights(tables: &[TableMeta]) -> (Vec<usize>, Vec<String>) {
    let count = tables.len();
    // Sorted by first key, so that only neighbours need comparing.
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| tables[a].smallest.cmp(&tables[b].smallest));
    // For each table, the tables that overlap it and must lie above it.
    let mut above: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut below = vec![0usize; count];
    let mut doubts = Vec::new();
    for (place, &a) in order.iter().enumerate() {
        for &b in order[place + 1..].iter().take_while(|&&b| tables[a].largest.reaches(&tables[b].smallest)) {
            let newer = is_newer(&tables[a], &tables[b]);
            let newer = newer.unwrap_or_else(|| {
                if doubts.len() < MOST_DOUBTS && epochs_clash(&tables[a], &tables[b]) {
                    doubts.push(in_doubt(tables[a].id, tables[b].id));
                }
                age(&tables[a]) > age(&tables[b])
            });
            let (upper, lower) = if newer { (a, b) } else { (b, a) };
            above[lower].push(upper);
            below[upper] += 1;
        }
    }
    let mut heights = vec![0usize; count];
    let mut done = vec![false; count];
    let mut ready: Vec<usize> = (0..count).filter(|&t| below[t] == 0).collect();
    let mut left = count;
    while left > 0 {
        let Some(table) = ready.pop() else {
            // A cycle, which no valid tree has: each table gets a run of its own.
            doubts.push(
                "the tables are in no order that a tree can have: keys may have older values".to_owned(),
            );
            let mut by_age: Vec<usize> = (0..count).collect();
            by_age.sort_by_key(|&t| age(&tables[t]));
            by_age.into_iter().enumerate().for_each(|(height, table)| heights[table] = height);
            break;
        };
        if std::mem::replace(&mut done[table], true) {
            continue;
        }
        left -= 1;
        for upper in std::mem::take(&mut above[table]) {
            heights[upper] = heights[upper].max(heights[table] + 1);
            below[upper] = below[upper].saturating_sub(1);
            if below[upper] == 0 && !done[upper] {
                ready.push(upper);
            }
        }
    }
    doubts.truncate(MOST_DOUBTS);
    (heights, doubts)
}

fn age(table: &TableMeta) -> (u64, u64, TableId) {
    (table.epochs.hull().1, table.max_seq, table.id)
}

/// Reports whether the order of the two tables is unclear at some key that both cover.
fn epochs_clash(a: &TableMeta, b: &TableMeta) -> bool {
    let starts = |t: &TableMeta| t.epochs.segments().iter().map(|s| s.start.clone()).collect::<Vec<_>>();
    let mut keys = [starts(a), starts(b), vec![a.smallest.clone(), b.smallest.clone()]].concat();
    keys.retain(|key| a.covers(key) && b.covers(key));
    keys.iter().any(|key| {
        let holds = |t: &TableMeta| t.epochs.at(key).0 < t.epochs.at(key).1;
        holds(a) && holds(b)
    })
}

fn in_doubt(a: TableId, b: TableId) -> String {
    format!(
        "it is not certain which of the tables {a} and {b} is newer: a key that both hold may have its older value"
    )
}
