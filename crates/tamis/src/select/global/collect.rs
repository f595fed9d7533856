//! Collection of codes: the paper's garbage collection, of whole partitions after a last-level
//! compaction.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tamis_base::meta::TableMeta;
use tamis_filter::global::Partition;

use super::cell::Cell;
use super::due::{MOST_OF_TARGET, Need, need};
use super::gather::oldest_run;
use super::grf::Grf;
use super::span::Span;
use super::upkeep::{Built, Source, partition_keys};
use crate::sync;
use crate::tree::version::Version;

/// The most cells whose codes are collected before other work has its turn.
const COLLECTED_AT_ONCE: usize = 64;

impl Grf {
    /// Makes partitions with shorter codes for the first key ranges, next to each other, where this is
    /// due. Reads no key. Takes no lock; the calling thread alone changes cells.
    pub(crate) fn collect(&self, version: &Version) -> Option<Built> {
        let (started, directory) = (sync::now(), self.directory.load_full());
        let metas: Vec<Arc<TableMeta>> = version.tables.iter().map(|table| table.meta.clone()).collect();
        let most = MOST_OF_TARGET * partition_keys(version);
        let mut span: Option<Span> = None;
        let mut parts = Vec::new();
        for (at, (start, cell)) in directory.parts.iter().enumerate() {
            let of_part = directory.span(at);
            let partition = cell.partition.load_full();
            let due = partition.filter(|partition| {
                need(version, (cell, &of_part, partition), most) == Some(Need::Collection)
            });
            match due {
                Some(partition) => {
                    let Span { start: first, .. } = span.take().unwrap_or(of_part.clone());
                    span = Some(Span { start: first, end: of_part.end });
                    parts.push((start.clone(), cell.collected(version, &partition, &metas)));
                }
                None if span.is_some() => break,
                None => {}
            }
            if parts.len() == COLLECTED_AT_ONCE {
                break;
            }
        }
        span.map(|span| Built { span, parts, started, warnings: Vec::new(), source: Source::Codes })
    }
}

impl Cell {
    /// Returns the cell with shorter codes, for this version and later ones.
    fn collected(&self, version: &Version, partition: &Partition, metas: &[Arc<TableMeta>]) -> Arc<Cell> {
        let whole = Span { start: self.start.clone(), end: self.end.clone() };
        let (base, oldest) = oldest_run(version, &whole).unwrap_or_default();
        let cuts = self.cuts(metas);
        let prefixes = self.prefixes.load();
        let prefixes = prefixes.as_ref().map(|prefixes| Arc::new(prefixes.collect(base, &cuts)));
        Arc::new(Cell {
            start: whole.start,
            end: whole.end,
            partition: ArcSwapOption::from_pointee(partition.collect(base, &cuts)),
            prefixes: ArcSwapOption::new(prefixes),
            oldest,
            collections: self.collections + 1,
            is_outdated: self.is_outdated,
            chosen: self.chosen.clone(),
            saved: self.saved.of_successor(),
        })
    }
}
