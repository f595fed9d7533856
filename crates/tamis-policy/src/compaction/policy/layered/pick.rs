//! Pickers: the order in which partial merges take the tables of a level.
//!
//! All depend on the shape alone. *Round robin* keeps no cursor: files are numbered in write order,
//! so the table with the greatest number in the output level was written last, and the next turn
//! starts after its largest key. Moved tables keep their numbers, but they are gone from the level
//! above, so their neighbours are next anyway. Concurrent jobs may skip or repeat a key range; it
//! has its turn in the next round.

use super::*;

impl Layered {
    /// Returns the tables of `run` that no job reads, in the order in which they should be merged
    /// into `output_level`.
    pub(super) fn order(&self, shape: &Shape, run: &RunShape, output_level: usize) -> Vec<usize> {
        let below: &[TableShape] = shape.runs(output_level).first().map_or(&[], |run| &run.tables);
        let mut order: Vec<usize> = (0..run.tables.len()).filter(|&i| !run.tables[i].busy).collect();
        match self.picker {
            Picker::LeastOverlap => {
                let cost = |&i: &usize| {
                    let overlapped: u64 =
                        below[run.tables[i].range().overlap(below)].iter().map(TableShape::bytes).sum();
                    overlapped as f64 / run.tables[i].bytes() as f64
                };
                sort_by_number(&mut order, cost);
            }
            Picker::RoundRobin => {
                if let Some(newest) = below.iter().max_by_key(|table| table.id()) {
                    let next =
                        order.partition_point(|&i| newest.meta.largest.reaches(&run.tables[i].meta.smallest));
                    order.rotate_left(next);
                }
            }
            Picker::MostTombstones => {
                let share = |&i: &usize| {
                    let meta = &run.tables[i].meta;
                    let deletes = meta.deletes.saturating_add(meta.range_tombstones);
                    -(deletes as f64) / (meta.entries.saturating_add(meta.range_tombstones)).max(1) as f64
                };
                sort_by_number(&mut order, share);
            }
            Picker::Oldest => order.sort_by_key(|&i| run.tables[i].meta.epochs.hull()),
        }
        order
    }
}

/// Sorts ascending by a key that is computed once per element.
fn sort_by_number(order: &mut [usize], number: impl Fn(&usize) -> f64) {
    let mut numbered: Vec<(f64, usize)> = order.iter().map(|i| (number(i), *i)).collect();
    numbered.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.iter_mut().zip(numbered).for_each(|(slot, (_, i))| *slot = i);
}
