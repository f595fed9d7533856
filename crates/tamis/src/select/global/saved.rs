//! Images of partitions: which parts of the filter are saved, when, and how cells are made from
//! images. The parent module's documentation argues why a filter made from images denies no key.
//! `docs/formats/filter-images.md` describes the bytes.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use arc_swap::ArcSwapOption;
use tamis_base::key::KeyBytes;
use tamis_filter::global::{Epoch, Epochs, MapChoice, Partition};

use super::cell::{Cell, CellDirectory, SavedImage};
use super::grf::{Grf, Spec};
use super::span::{Span, holds, spans_within};
use super::upkeep::{Built, Source};
use crate::options::PrefixFilter;
use crate::sync;
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::Version;

/// The version of an image's head.
const VERSION: u32 = 1;

/// An image is due again once a fifth of its partition's keys was added since, or [some were merged
/// into the oldest run](is_merged_into_oldest) …
const CHANGED: u64 = 5;
/// … but not for fewer keys than this: adding them at the next opening costs less than a file.
const FEWEST_CHANGED: u64 = 1 << 10;

/// When images are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// While the database is open: images of what was built or has changed much.
    Open,
    /// At closing: images of everything that has a log.
    Closing,
}

/// Unsaved images of some cells.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) until: Epoch,
    pub(crate) images: Vec<TakenImage>,
    /// The cells, each once, and the number of keys added since the previous image.
    cells: Vec<(Arc<Cell>, u64)>,
}

/// The image of a key range.
#[derive(Debug)]
pub(crate) struct TakenImage {
    pub(crate) span: Span,
    keys: Arc<Partition>,
    prefixes: Option<Arc<Partition>>,
    cell: Arc<Cell>,
}

/// A partition made from an image.
#[derive(Debug)]
pub(crate) struct Restored {
    partition: Partition,
    oldest: Vec<u64>,
    /// Whether it was built with the current options.
    is_current: bool,
    prefixes: PrefixFilter,
}

/// A key range and its restored partitions.
#[derive(Debug)]
pub(crate) struct SavedPart {
    pub(crate) span: Span,
    /// Of both images.
    pub(crate) until: Epoch,
    pub(crate) keys: Arc<Restored>,
    pub(crate) prefixes: Option<Arc<Restored>>,
}

impl Grf {
    /// Returns the epoch below which the filter has the keys of every table, now and from now on.
    /// Call under `work` and `state`.
    fn until(&self, version: &Version, next_epoch: Epoch) -> Epoch {
        let is_held = |epoch: &Epoch| version.tables.iter().any(|table| holds(&table.meta.epochs, *epoch));
        // Epochs that no table holds, any longer or ever, reach no later table.
        let missing = self.missing.lock().iter().copied().filter(is_held).min();
        let unpublished = self.unpublished.lock().iter().copied().min();
        [missing, unpublished].into_iter().flatten().fold(next_epoch, Epoch::min)
    }

    /// Reports whether images should be saved.
    pub(super) fn is_unsaved(&self, version: &Version, directory: &CellDirectory) -> bool {
        directory.parts.iter().enumerate().any(|(at, (_, cell))| cell.is_due(version, || directory.span(at)))
    }

    /// Takes images of the cells where they are due, of about `most` bytes in total. Call under
    /// `work` and `state`.
    pub(crate) fn take_images(
        &self,
        version: &Version,
        next_epoch: Epoch,
        moment: Moment,
        most: usize,
    ) -> Taken {
        let until = self.until(version, next_epoch);
        let directory = self.directory.load();
        let mut taken = Taken { until, images: Vec::new(), cells: Vec::new() };
        let mut bytes = 0;
        let is_due = |at: usize, cell: &Cell| {
            let saved = cell.saved.until.load(Relaxed);
            // Without a higher `until`, an image saves no work.
            until > saved
                && match moment {
                    Moment::Open => cell.is_due(version, || directory.span(at)),
                    Moment::Closing => cell.may_be_saved() && has_log(version, &directory.span(at), saved),
                }
        };
        for (at, (_, cell)) in directory.parts.iter().enumerate() {
            let Some(keys) = cell.partition.load_full().filter(|_| is_due(at, cell)) else { continue };
            if bytes >= most {
                break;
            }
            let prefixes = cell.prefixes.load_full();
            bytes += keys.memory_bytes() + prefixes.as_ref().map_or(0, |prefixes| prefixes.memory_bytes());
            taken.images.push(TakenImage { span: directory.span(at), keys, prefixes, cell: cell.clone() });
        }
        // A cell that serves two ranges must be saved for both, or it would count as saved for
        // neither.
        let is_taken = |cell: &Arc<Cell>| taken.images.iter().any(|image| Arc::ptr_eq(&image.cell, cell));
        let mut cells: Vec<&Arc<Cell>> = directory.parts.iter().map(|(_, cell)| cell).collect();
        cells.sort_unstable_by_key(|cell| Arc::as_ptr(cell));
        cells.dedup_by(|a, b| Arc::ptr_eq(a, b));
        cells.retain(|cell| is_taken(cell));
        taken.cells =
            cells.into_iter().map(|cell| (cell.clone(), cell.saved.changed.load(Relaxed))).collect();
        for (at, (_, cell)) in directory.parts.iter().enumerate() {
            let span = directory.span(at);
            let of_cell = |image: &&TakenImage| Arc::ptr_eq(&image.cell, cell);
            let Some(other) = taken.images.iter().find(of_cell) else { continue };
            if !taken.images.iter().any(|image| image.span == span) {
                let (keys, prefixes) = (other.keys.clone(), other.prefixes.clone());
                taken.images.push(TakenImage { span, keys, prefixes, cell: cell.clone() });
            }
        }
        taken
    }

    /// Returns the bytes of an image: of the keys, and of the prefixes if these are filtered.
    pub(crate) fn image_bytes(&self, image: &TakenImage) -> (Vec<u8>, Option<Vec<u8>>) {
        let bytes = |partition: &Partition| {
            let mut out = head(&self.spec, &image.cell.oldest);
            out.extend(partition.to_bytes());
            out
        };
        (bytes(&image.keys), image.prefixes.as_deref().map(bytes))
    }

    /// Records that images were saved.
    pub(crate) fn note_saved(&self, taken: &Taken) {
        taken.cells.iter().for_each(|(cell, changed)| cell.saved.note(taken.until, *changed));
        self.counts.images_saved.fetch_add(taken.images.len() as u64, Relaxed);
    }

    /// Makes a partition from an image's bytes, whose checksum was correct. An error says what is
    /// wrong with them.
    pub(crate) fn restore(&self, bytes: &[u8]) -> Result<Restored, String> {
        let mut from = bytes;
        let head = read_head(&mut from).ok_or("an image begins with something else")?;
        let partition = Partition::from_bytes(from).map_err(|why| why.to_string())?;
        let is_current = (head.bits_per_key.to_bits(), head.map, head.prefixes)
            == (self.spec.bits_per_key.to_bits(), self.spec.map as u32, self.spec.prefixes);
        Ok(Restored { partition, oldest: head.oldest, is_current, prefixes: head.prefixes })
    }

    pub(crate) fn has_prefixes(&self) -> bool {
        self.spec.prefixes != PrefixFilter::None
    }

    /// Makes cells from restored partitions, in key order, and adds the keys of later tables of the
    /// version. Without any, all of it is still to be built. Takes no lock.
    ///
    /// Cost: that of [`insert`](Self::insert) for each table with later epochs than the images of
    /// its range.
    pub(crate) fn load(&self, version: &Version, restored: Vec<SavedPart>) -> Built {
        let started = sync::now();
        let images = restored.len() as u64;
        let mut parts: Vec<(KeyBytes, Arc<Cell>)> = Vec::new();
        let mut untils: Vec<Option<Epoch>> = Vec::new();
        let mut end = Some(KeyBytes::default());
        for SavedPart { span, until, keys, prefixes } in restored {
            if let Some(gap) = end.filter(|end| *end < span.start) {
                parts.push((gap, Cell::empty()));
                untils.push(None);
            }
            end = span.end.clone();
            let prefixes = prefixes.filter(|prefixes| prefixes.prefixes == self.spec.prefixes);
            // An outdated partition denies no key, so it is used until it is rebuilt.
            let is_outdated = !keys.is_current || self.has_prefixes() && prefixes.is_none();
            let cell = Cell {
                start: span.start.clone(),
                end: span.end,
                partition: ArcSwapOption::from_pointee(keys.partition.clone()),
                prefixes: ArcSwapOption::new(prefixes.map(|prefixes| Arc::new(prefixes.partition.clone()))),
                oldest: keys.oldest.clone(),
                collections: 0,
                is_outdated,
                chosen: Arc::default(),
                saved: SavedImage { until: AtomicU64::new(until), changed: AtomicU64::new(0) },
            };
            parts.push((span.start, Arc::new(cell)));
            untils.push(Some(until));
        }
        if let Some(gap) = end {
            parts.push((gap, Cell::empty()));
            untils.push(None);
        }
        let span = Span { start: KeyBytes::default(), end: None };
        let mut built = Built { span, parts, started, warnings: Vec::new(), source: Source::Images(images) };
        for table in &version.tables {
            self.insert_log(&mut built, &untils, table);
        }
        built
    }

    /// Adds a table's keys that are not in the images.
    fn insert_log(&self, built: &mut Built, untils: &[Option<Epoch>], table: &Arc<OpenTable>) {
        let parts = &built.parts;
        let span_of = |at: usize| Span {
            start: parts[at].0.clone(),
            end: parts.get(at + 1).map(|(start, _)| start.clone()),
        };
        let is_wanted = |at: usize| {
            let span = span_of(at);
            untils[at].is_some_and(|until| span.overlaps(table) && is_after(table, &span, until))
        };
        let wanted: Vec<bool> = (0..parts.len()).map(is_wanted).collect();
        let is_new =
            |at: usize, epochs: Epochs| wanted[at] && untils[at].is_some_and(|until| epochs.hi > until);
        let mut from = 0;
        while let Some(first) = (from..parts.len()).find(|at| wanted[*at]) {
            // A key list is read whole, however small the range; of data, only the wanted part.
            let last = match table.filter {
                TableFilter::Keys => wanted.iter().rposition(|wanted| *wanted).unwrap_or(first),
                _ => (first..parts.len()).take_while(|at| wanted[*at]).last().unwrap_or(first),
            };
            let span = Span { start: span_of(first).start, end: span_of(last).end };
            self.insert(parts, std::slice::from_ref(table), &span, &is_new);
            from = last + 1;
        }
    }
}

impl Cell {
    fn may_be_saved(&self) -> bool {
        // An outdated cell is about to be rebuilt.
        !self.is_outdated && self.partition.load().as_ref().is_some_and(|one| !one.last_is_unknown())
    }

    /// Reports whether an image of the cell, which serves this key range, is due.
    fn is_due(&self, version: &Version, span: impl FnOnce() -> Span) -> bool {
        let keys = || self.partition.load().as_ref().map_or(0, |partition| partition.keys());
        let changed = self.saved.changed.load(Relaxed);
        let until = self.saved.until.load(Relaxed);
        let is_due = until == 0
            || changed >= FEWEST_CHANGED
                && (changed >= keys() / CHANGED || is_merged_into_oldest(version, &span(), until));
        is_due && self.may_be_saved()
    }
}

/// Reports whether most of the oldest run in a key range was merged with keys that an image up to
/// `until` lacks. The run has no key lists, so after a crash its data would be read for a few new
/// keys.
fn is_merged_into_oldest(version: &Version, span: &Span, until: Epoch) -> bool {
    let Some(run) = version.runs.last() else { return false };
    let first = version.first_reaching(&run.tables, &span.start);
    let (mut merged, mut all) = (0, 0);
    for table in version.tables[first..run.tables.end].iter().take_while(|table| span.overlaps(table)) {
        all += 1;
        let is_listed = matches!(table.filter, TableFilter::Keys);
        merged += usize::from(!is_listed && is_after(table, span, until));
    }
    2 * merged > all
}

/// Reports whether a version has tables in a key range that an image up to `until` may lack.
fn has_log(version: &Version, span: &Span, until: Epoch) -> bool {
    version.tables.iter().any(|table| span.overlaps(table) && is_after(table, span, until))
}

/// Reports whether an image of a key range up to `until` may lack keys of a table.
fn is_after(table: &OpenTable, span: &Span, until: Epoch) -> bool {
    spans_within(&table.meta.epochs, &span.start, span.end.as_deref()).any(|epochs| epochs.hi > until)
}

struct ImageHead {
    bits_per_key: f64,
    map: u32,
    prefixes: PrefixFilter,
    oldest: Vec<u64>,
}

/// Returns what precedes a partition in its image.
fn head(spec: &Spec, oldest: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(VERSION.to_le_bytes());
    out.extend((spec.map as u32).to_le_bytes());
    out.extend(match spec.prefixes {
        PrefixFilter::None => [0, 0, 0, 0],
        PrefixFilter::Length(len) => [1, len, 0, 0],
        PrefixFilter::Lengths(short, long) => [2, short, long, 0],
        PrefixFilter::Delimiter(byte) => [3, byte, 0, 0],
    });
    out.extend(spec.bits_per_key.to_bits().to_le_bytes());
    out.extend((oldest.len() as u32).to_le_bytes());
    oldest.iter().for_each(|id| out.extend(id.to_le_bytes()));
    out
}

fn read_head(from: &mut &[u8]) -> Option<ImageHead> {
    let mut take = |len: usize| {
        let (head, tail) = from.split_at_checked(len)?;
        *from = tail;
        Some(head)
    };
    let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
    let long = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    if number(take(4)?)? != VERSION {
        return None;
    }
    let map = number(take(4)?)?;
    let prefixes = match *take(4)? {
        [0, 0, 0, 0] => PrefixFilter::None,
        [1, len, 0, 0] => PrefixFilter::Length(len),
        [2, short, long, 0] => PrefixFilter::Lengths(short, long),
        [3, byte, 0, 0] => PrefixFilter::Delimiter(byte),
        _ => return None,
    };
    let bits_per_key = f64::from_bits(long(take(8)?)?);
    let count = number(take(4)?)? as usize;
    // Never allocates more than the input's length.
    let oldest = take(count.checked_mul(8)?)?.chunks_exact(8).map(long).collect::<Option<_>>()?;
    Some(ImageHead { bits_per_key, map, prefixes, oldest })
}

const _: () = {
    // The numbers of the maps are part of the format.
    assert!(MapChoice::Auto as u32 == 0 && MapChoice::Learned as u32 == 1 && MapChoice::Digest as u32 == 2);
    assert!(MapChoice::Mixed as u32 == 3 && MapChoice::Local as u32 == 4);
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Every head reads back; one that is cut off or changed in a checked field does not.
    #[test]
    fn heads_are_read_again() {
        for prefixes in [
            PrefixFilter::None,
            PrefixFilter::Length(3),
            PrefixFilter::Lengths(1, 6),
            PrefixFilter::Delimiter(b'#'),
        ] {
            for oldest in [vec![], vec![7, u64::MAX]] {
                let spec = Spec { bits_per_key: 12.5, map: MapChoice::Mixed, prefixes };
                let bytes = [head(&spec, &oldest), b"rest".to_vec()].concat();
                let mut from = &bytes[..];
                let read = read_head(&mut from).expect("it is one");
                assert_eq!((read.bits_per_key, read.map, read.prefixes), (12.5, 3, prefixes));
                assert_eq!((read.oldest, from), (oldest, &b"rest"[..]));
                for len in 0..bytes.len() - 4 {
                    assert!(read_head(&mut &bytes[..len]).is_none(), "{len} bytes");
                }
            }
        }
        let mut many = head(&Spec::default_for_test(), &[]);
        let at = many.len() - 4;
        many[at..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read_head(&mut &many[..]).is_none(), "more tables than bytes");
    }

    impl Spec {
        fn default_for_test() -> Spec {
            let (map, prefixes) = (MapChoice::Auto, PrefixFilter::None);
            Spec { bits_per_key: 10.0, map, prefixes }
        }
    }
}
