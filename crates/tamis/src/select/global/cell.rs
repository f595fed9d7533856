//! The partition of a key range, and all of them in key order.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwapOption;
use tamis_base::key::{KeyBytes, prefix_of};
use tamis_base::meta::TableMeta;
use tamis_filter::global::{Cuts, Epoch, Partition};

use super::chosen::Chosen;
use super::span::{Span, spans_within};

/// The current partition of one key range.
#[derive(Debug)]
pub(super) struct Cell {
    /// The range it was built for. Directories may use it for a smaller range; newer cells have the
    /// rest.
    pub(super) start: KeyBytes,
    pub(super) end: Option<KeyBytes>,
    /// None before it is built.
    pub(super) partition: ArcSwapOption<Partition>,
    /// The known prefixes of its keys, as keys, if prefixes are filtered. Replaced before
    /// `partition`, so that a reader that finds a key there finds its prefixes here.
    pub(super) prefixes: ArcSwapOption<Partition>,
    /// The tables of the oldest run when it was built, or its codes last collected.
    pub(super) oldest: Vec<u64>,
    /// How often codes were collected since it was built.
    pub(super) collections: u32,
    /// Whether it was built under other options and is due for a rebuild.
    pub(super) is_outdated: bool,
    pub(super) chosen: Arc<Chosen>,
    pub(super) saved: SavedImage,
}

impl Cell {
    pub(super) fn empty() -> Arc<Cell> {
        Arc::new(Cell {
            start: KeyBytes::default(),
            end: None,
            partition: ArcSwapOption::empty(),
            prefixes: ArcSwapOption::empty(),
            oldest: Vec::new(),
            collections: 0,
            is_outdated: false,
            chosen: Arc::default(),
            saved: SavedImage::default(),
        })
    }

    /// Returns the bytes of the cell and its place in a directory, without partitions.
    pub(super) fn memory_bytes(&self) -> usize {
        // The directory repeats the start and its first bytes.
        let keys = 2 * self.start.len() + self.end.as_ref().map_or(0, |end| end.len());
        let place = size_of::<(KeyBytes, Arc<Cell>)>() + size_of::<u64>();
        size_of::<Cell>() + place + keys + self.oldest.len() * size_of::<u64>()
    }

    /// Returns the cuts of these tables within the cell.
    pub(super) fn cuts(&self, metas: &[Arc<TableMeta>]) -> Cuts {
        let within = metas.iter().filter(|meta| self.overlaps(meta));
        Cuts::of(within.flat_map(|meta| spans_within(&meta.epochs, &self.start, self.end.as_deref())))
    }

    pub(super) fn overlaps(&self, meta: &TableMeta) -> bool {
        meta.largest.reaches(&self.start) && self.end.as_ref().is_none_or(|end| meta.smallest < *end)
    }
}

/// All cells of a tree, in key order without gaps: the first starts at the empty key. Immutable.
#[derive(Debug)]
pub(super) struct CellDirectory {
    /// The start of each range, and its cell.
    pub(super) parts: Vec<(KeyBytes, Arc<Cell>)>,
    /// `prefix_of` of the starts.
    pub(super) prefixes: Vec<u64>,
}

impl CellDirectory {
    pub(super) fn new(parts: Vec<(KeyBytes, Arc<Cell>)>) -> CellDirectory {
        debug_assert!(parts.first().is_some_and(|(start, _)| start.is_empty()));
        debug_assert!(parts.windows(2).all(|pair| pair[0].0 < pair[1].0));
        CellDirectory { prefixes: parts.iter().map(|(start, _)| prefix_of(start)).collect(), parts }
    }

    /// Returns the number of the range that holds `key`, whose `prefix_of` is `prefix`.
    #[inline]
    pub(super) fn find(&self, key: &[u8], prefix: u64) -> usize {
        let below = self.prefixes.partition_point(|&start| start < prefix);
        let ties = self.prefixes[below..].iter().take_while(|&&start| start == prefix).count();
        let after = below + self.parts[below..below + ties].partition_point(|(start, _)| &start[..] <= key);
        after.saturating_sub(1)
    }

    #[inline]
    pub(super) fn cell(&self, at: usize) -> &Cell {
        &self.parts[at].1
    }

    #[inline]
    pub(super) fn start(&self, at: usize) -> &KeyBytes {
        &self.parts[at].0
    }

    /// Returns the end of the range.
    pub(super) fn end(&self, at: usize) -> Option<&KeyBytes> {
        self.parts.get(at + 1).map(|(start, _)| start)
    }

    pub(super) fn span(&self, at: usize) -> Span {
        Span { start: self.start(at).clone(), end: self.end(at).cloned() }
    }

    /// Returns the directory with `parts` in place of everything from `start` up to `end`.
    pub(super) fn with(
        &self,
        start: &KeyBytes,
        end: Option<&KeyBytes>,
        parts: Vec<(KeyBytes, Arc<Cell>)>,
    ) -> CellDirectory {
        let mut all: Vec<(KeyBytes, Arc<Cell>)> =
            self.parts.iter().filter(|(at, _)| at < start).cloned().collect();
        all.extend(parts);
        if let Some(end) = end {
            let at_end = self.find(end, prefix_of(end));
            all.push((end.clone(), self.parts[at_end].1.clone()));
            all.extend(self.parts.iter().filter(|(at, _)| at > end).cloned());
        }
        // Adjacent ranges of one cell become one range.
        all.dedup_by(|next, kept| Arc::ptr_eq(&next.1, &kept.1));
        CellDirectory::new(all)
    }
}

/// The relation of a cell to its image on disk.
#[derive(Debug, Default)]
pub(super) struct SavedImage {
    /// The image's `until`; 0 without an image.
    pub(super) until: AtomicU64,
    /// Keys added since the image was taken.
    pub(super) changed: AtomicU64,
}

impl SavedImage {
    pub(super) fn add(&self, keys: u64) {
        self.changed.fetch_add(keys, Relaxed);
    }

    /// Returns the same relation of another cell with the same keys.
    pub(super) fn of_successor(&self) -> SavedImage {
        let copy = |value: &AtomicU64| AtomicU64::new(value.load(Relaxed));
        SavedImage { until: copy(&self.until), changed: copy(&self.changed) }
    }

    /// Records a saved image, which has the `taken` keys added since the previous image.
    pub(super) fn note(&self, until: Epoch, taken: u64) {
        self.until.fetch_max(until, Relaxed);
        self.changed.fetch_sub(taken, Relaxed);
    }
}
