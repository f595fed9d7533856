//! Reclaims space that released snapshots had pinned.
//!
//! A merge keeps the versions that only a live snapshot sees. When the snapshot is released, they
//! stay in the table until the next merge, which may never come in a cold part of the last level.
//! Tables therefore record how many bytes they hold for which snapshot
//! ([`TableExtra::pinned`](tamis_base::meta::TableExtra::pinned)), and once enough of them are no
//! longer needed the table is rewritten in place.
//!
//! This terminates: the new table records only bytes pinned by live snapshots, and these do not
//! count while their snapshots live.

use crate::compaction::plan::{OutputRun, Plan, PlanInput, Reason, Work};
use crate::compaction::shape::{KeyRange, Shape, TableShape};

/// A table is rewritten once more than one part in `PART` of its keys and values is pinned by no
/// live snapshot.
const PART: u64 = 5;

/// Plans the rewrite of the free table with the largest share of bytes pinned by released
/// snapshots, if that share exceeds a fifth. O(tables · their snapshots).
pub fn plan(shape: &Shape, max_table_bytes: u64) -> Option<Plan> {
    rewrite_heaviest(shape, max_table_bytes, Reason::Released, |table| {
        let released = released_bytes(shape, table);
        let part = released as f64 / table.meta.raw_bytes.max(1) as f64;
        (released > table.meta.raw_bytes / PART).then_some(part)
    })
}

/// Plans the rewrite in place of the free table with the largest weight; one without a weight
/// stays.
pub fn rewrite_heaviest(
    shape: &Shape,
    max_table_bytes: u64,
    reason: Reason,
    weight: impl Fn(&TableShape) -> Option<f64>,
) -> Option<Plan> {
    let mut best: Option<(f64, usize, usize, &TableShape)> = None;
    for (level, runs) in shape.levels.iter().enumerate() {
        for (place, run) in runs.runs.iter().enumerate() {
            for table in run.tables.iter().filter(|table| !table.busy) {
                let Some(weight) = weight(table).filter(|_| !conflicts(shape, level, &table.range())) else {
                    continue;
                };
                if best.is_none_or(|best| weight > best.0) {
                    best = Some((weight, level, place, table));
                }
            }
        }
    }
    let (_, level, place, table) = best?;
    Some(rewrite(shape, (level, place), table, max_table_bytes, reason))
}

/// Plans the rewrite in place of a table of the level's run at `place`. No running job may be [in
/// the way](conflicts).
pub fn rewrite(
    shape: &Shape,
    (level, place): (usize, usize),
    table: &TableShape,
    max_table_bytes: u64,
    reason: Reason,
) -> Plan {
    let (run, range) = (&shape.levels[level].runs[place], table.range());
    Plan {
        inputs: vec![PlanInput { level, run: run.id, tables: vec![table.id()] }],
        output_level: level,
        output: OutputRun::Into(run.id),
        bottommost: nothing_older(shape, (level, place), &range),
        stretch: None,
        range,
        max_table_bytes,
        borders: Vec::new(),
        edges: Vec::new(),
        reason,
        work: Work::Merge,
        guard_bits: None,
    }
}

/// Bytes of keys and values that the table holds for released snapshots.
fn released_bytes(shape: &Shape, table: &TableShape) -> u64 {
    let pinned = table.meta.extra.pinned.iter();
    let gone = pinned.filter(|(snapshot, _)| shape.snapshots.binary_search(snapshot).is_err());
    gone.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
}

/// Reports whether a running job may put data between the table and its neighbours in age.
pub fn conflicts(shape: &Shape, level: usize, range: &KeyRange) -> bool {
    let near = |job: &&crate::compaction::shape::RunningJob| {
        job.output_level == level || (job.input_levels.0..=job.input_levels.1).contains(&level)
    };
    shape.running.iter().filter(near).any(|job| job.range.overlaps(range))
}

/// Reports whether no older run holds anything in `range`.
pub fn nothing_older(shape: &Shape, (level, place): (usize, usize), range: &KeyRange) -> bool {
    let in_level = shape.levels[level].runs[place + 1..].iter();
    let below = shape.levels[level + 1..].iter().flat_map(|level| &level.runs);
    in_level.chain(below).all(|run| range.overlap(&run.tables).is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compaction::shape::{LevelShape, RunShape, RunningJob};
    use tamis_base::epochs::EpochMap;
    use tamis_base::key::KeyEnd;
    use tamis_base::meta::{TableExtra, TableMeta};

    pub(in crate::compaction) fn table(id: u64, from: &str, to: &str, pinned: &[(u64, u64)]) -> TableShape {
        let meta = TableMeta {
            id,
            file_bytes: 1000,
            smallest: from.as_bytes().into(),
            largest: KeyEnd::Included(to.as_bytes().into()),
            entries: 10,
            deletes: 0,
            range_tombstones: 0,
            raw_bytes: 1000,
            min_seq: 1,
            max_seq: 100,
            epochs: EpochMap::flush(from.as_bytes().into(), 1),
            extra: TableExtra { pinned: pinned.to_vec(), ..TableExtra::default() },
        };
        TableShape { meta: Arc::new(meta), busy: false, free: true }
    }

    fn shape(upper: Vec<TableShape>, lower: Vec<TableShape>, snapshots: &[u64]) -> Shape {
        let level = |id, tables| LevelShape { runs: vec![RunShape { id, tables }] };
        Shape {
            levels: vec![LevelShape::default(), level(7, upper), level(8, lower)],
            snapshots: snapshots.to_vec(),
            ..Shape::default()
        }
    }

    #[test]
    fn a_table_is_rewritten_once_more_than_a_fifth_is_unpinned() {
        let lower = || vec![table(1, "a", "f", &[(10, 150), (20, 60)]), table(2, "g", "m", &[(10, 150)])];
        assert_eq!(plan(&shape(Vec::new(), lower(), &[10, 20]), 1), None, "both snapshots live");
        assert_eq!(plan(&shape(Vec::new(), lower(), &[20]), 1), None, "15 % is not enough");
        let found = plan(&shape(Vec::new(), lower(), &[]), 1).expect("21 % is");
        assert_eq!(found.inputs, [PlanInput { level: 2, run: 8, tables: vec![1] }]);
        assert_eq!((found.output_level, found.output), (2, OutputRun::Into(8)));
        assert_eq!((found.reason, found.work, found.bottommost), (Reason::Released, Work::Merge, true));
    }

    #[test]
    fn the_table_with_the_largest_unpinned_share_comes_first_and_older_tables_below_count() {
        let upper = || vec![table(1, "a", "f", &[(10, 900)]), table(2, "p", "z", &[(10, 300)])];
        let lower = || vec![table(3, "c", "d", &[(10, 500)])];
        let found = plan(&shape(upper(), lower(), &[]), 1).unwrap();
        assert_eq!(found.tables().collect::<Vec<_>>(), [1]);
        assert!(!found.bottommost, "table 3 is older and overlaps");
        let mut busy = upper();
        busy[0].busy = true;
        let found = plan(&shape(busy, Vec::new(), &[]), 1).unwrap();
        assert_eq!(found.tables().collect::<Vec<_>>(), [2]);
        assert!(found.bottommost);
    }

    #[test]
    fn nothing_is_rewritten_where_a_running_job_writes() {
        let mut shape = shape(Vec::new(), vec![table(1, "a", "f", &[(10, 900)])], &[]);
        let range = |from: &str, to: &str| KeyRange {
            smallest: from.as_bytes().into(),
            largest: KeyEnd::Included(to.as_bytes().into()),
        };
        let job = |range| RunningJob { input_levels: (1, 1), output_level: 2, output: OutputRun::New, range };
        shape.running = vec![job(range("e", "k"))];
        assert_eq!(plan(&shape, 1), None);
        shape.running = vec![job(range("g", "k"))];
        assert!(plan(&shape, 1).is_some());
    }
}
