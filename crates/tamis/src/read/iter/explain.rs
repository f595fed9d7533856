//! What one scan touches.

use std::sync::Arc;

use super::{Bounds, Iter};
use crate::error::ReadError;
use crate::observe::cost::ReadCost;
use crate::read::View;
use crate::read::explain::{RangeExplanation, RangeSource};
use crate::tree::open_table::OpenTable;

impl Iter {
    /// Takes up to `limit` items from the front, and tells what that touched; all but the filter.
    pub(crate) fn explain(mut self, limit: usize) -> Result<RangeExplanation, ReadError> {
        let (mut entries, mut last) = (0, None);
        for item in self.by_ref().take(limit) {
            last = Some(item?.0.to_vec());
            entries += 1;
        }
        let mut costs = Vec::new();
        if let Some(cursor) = &mut self.front.cursor {
            cursor.drain_each(&mut costs);
            cursor.drain_cost(&mut self.reader.cost);
        }
        for &cost in &costs {
            self.reader.cost = self.reader.cost + cost;
        }
        let Bounds { start, end } = std::mem::take(&mut self.bounds);
        let View { memtables, version, .. } = &*self.reader.context.view;
        let mut sources = Vec::new();
        for (i, slot) in memtables.iter().enumerate() {
            sources.push(RangeSource::Memtable {
                active: i == 0,
                entries: slot.memtable.entries() as u64,
                in_range: slot.memtable.estimate(&start, end.as_deref()) as u64,
            });
        }
        let mut costs = costs.into_iter();
        for run in &version.runs {
            let cost = match run.tables.is_empty() {
                true => ReadCost::default(),
                false => costs.next().unwrap_or_default(),
            };
            let reach = |table: &&Arc<OpenTable>| {
                table.meta.largest.reaches(&start)
                    && end.as_deref().is_none_or(|end| table.meta.smallest[..] < *end)
            };
            sources.push(RangeSource::Run {
                level: run.level,
                run: run.id,
                tables: version.tables[run.tables.clone()].iter().filter(reach).count(),
                seeks: cost.seeks,
                blocks: cost.block_reads,
                bytes: cost.bytes_read,
            });
        }
        let cost = std::mem::take(&mut self.reader.cost);
        Ok(RangeExplanation { start, end, filter: String::new(), sources, entries, last, cost })
    }
}
