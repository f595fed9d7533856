//! Reads a table's directory and units, each separately.

use std::ops::Range;

use tamis_filter::{ElasticUnit, FilterError};

use super::UnitDirectory;
use super::directory::Trailer;
use crate::error::StorageError;
use crate::table::frame::Damage;
use crate::table::reader::Table;

/// The first read of a directory takes this many bytes from the end of the filter part, enough for
/// a few hundred short keys.
const TAIL_BYTES: u64 = 4 << 10;

/// Adjacent units are read in ranges of at most this many bytes, which bounds the memory. The first
/// units of a table of eight million keys are one range.
const MAX_STRETCH: u64 = 4 << 20;

/// One of the requested units, or why it could not be read.
#[derive(Debug)]
pub struct LoadedUnit {
    pub segment: usize,
    pub unit: u32,
    pub result: Result<ElasticUnit, StorageError>,
}

/// The result of [`UnitDirectory::read_units`].
#[derive(Debug, Default)]
pub struct UnitsRead {
    /// All requested units, by unit number and then by segment.
    pub units: Vec<LoadedUnit>,
    /// How many byte ranges were read, and their total bytes.
    pub reads: u64,
    pub bytes: u64,
}

impl UnitDirectory {
    /// Reads the directory of an open table, with one read if it is short, otherwise two. Errors: a
    /// failed system call, or damage.
    pub fn read(table: &Table) -> Result<UnitDirectory, StorageError> {
        let part_len = table.filter_len();
        let damaged = |damage: Damage| table.damaged(table.filter_offset(part_len), damage);
        let first = part_len.min(TAIL_BYTES);
        let mut tail = table.filter_stretch(part_len - first, first)?;
        let need = Trailer::decode(&tail).and_then(|trailer| trailer.tail_len(part_len)).map_err(damaged)?;
        if need > first {
            tail = table.filter_stretch(part_len - need, need)?;
        }
        UnitDirectory::open(part_len, &tail).map_err(damaged)
    }

    /// Reads one unit with one read. Errors: a failed system call, damage, or a unit of another
    /// group.
    #[inline]
    pub fn read_unit(&self, table: &Table, segment: usize, unit: u32) -> Result<ElasticUnit, StorageError> {
        let (offset, len) = self.unit_span(segment, unit);
        self.open_unit(table, segment, unit, &table.filter_stretch(offset, len)?)
    }

    /// Reads some units of some segments, adjacent ones with one read. For all segments, all units
    /// are adjacent; for fewer segments, those with the same number are. A damaged unit affects no
    /// other. If a range cannot be read, its units are read one by one. Memory: the units, and one
    /// range unless the file is mapped.
    pub fn read_units(&self, table: &Table, units: Range<u32>, segments: Range<usize>) -> UnitsRead {
        let mut wanted =
            units.flat_map(|unit| segments.clone().map(move |segment| (segment, unit))).peekable();
        let mut out = UnitsRead::default();
        let mut stretch = Vec::new();
        while let Some((segment, unit)) = wanted.next() {
            let (start, len) = self.unit_span(segment, unit);
            let mut end = start + len;
            stretch.clear();
            stretch.push((segment, unit));
            while let Some(&(segment, unit)) = wanted.peek() {
                let (next, len) = self.unit_span(segment, unit);
                if next != end || end + len - start > MAX_STRETCH {
                    break;
                }
                end += len;
                stretch.push((segment, unit));
                wanted.next();
            }
            self.read_stretch(table, &stretch, (start, end - start), &mut out);
        }
        out
    }

    fn read_stretch(
        &self,
        table: &Table,
        stretch: &[(usize, u32)],
        (start, len): (u64, u64),
        out: &mut UnitsRead,
    ) {
        let bytes = table.filter_stretch(start, len);
        (out.reads, out.bytes) = (out.reads + 1, out.bytes + len);
        match bytes {
            Ok(bytes) => {
                for &(segment, unit) in stretch {
                    let (at, len) = self.unit_span(segment, unit);
                    let at = (at - start) as usize;
                    let result = self.open_unit(table, segment, unit, &bytes[at..at + len as usize]);
                    out.units.push(LoadedUnit { segment, unit, result });
                }
            }
            Err(why) if stretch.len() == 1 => {
                let (segment, unit) = stretch[0];
                out.units.push(LoadedUnit { segment, unit, result: Err(why) });
            }
            Err(_) => stretch.iter().for_each(|&(segment, unit)| {
                self.read_stretch(table, &[(segment, unit)], self.unit_span(segment, unit), out);
            }),
        }
    }

    /// Decodes a unit and verifies that it is the one requested, as another would reject keys that
    /// exist.
    fn open_unit(
        &self,
        table: &Table,
        segment: usize,
        unit: u32,
        bytes: &[u8],
    ) -> Result<ElasticUnit, StorageError> {
        let damaged = |what: String| {
            let offset = table.filter_offset(self.unit_span(segment, unit).0);
            let what = format!("unit {unit} of segment {segment} of its filter: {what}");
            StorageError::corrupt(table.path(), offset, what)
        };
        match self.unit_of(segment, unit, bytes) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(damaged("another unit is in its place".into())),
            Err(why) => Err(damaged(why.to_string())),
        }
    }

    /// Decodes a unit; `None` if the bytes are another unit's.
    #[inline]
    pub fn unit_of(
        &self,
        segment: usize,
        unit: u32,
        bytes: &[u8],
    ) -> Result<Option<ElasticUnit>, FilterError> {
        let (found, spec) = (ElasticUnit::open(bytes)?, self.spec());
        let fits = (found.salt(), found.index(), found.group_units(), found.keys())
            == (self.salt(segment), unit, spec.units, self.keys(segment))
            && (found.scheme(), found.layout(), found.probes()) == (spec.scheme, spec.layout, self.probes());
        Ok(fits.then_some(found))
    }
}
