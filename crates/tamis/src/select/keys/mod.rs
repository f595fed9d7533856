//! All keys of a table in a range: the input of a global filter.
//!
//! A flushed table has a key list. A merged table has none, as the filter has its keys; nor has a
//! table written before the tree had such a filter. The keys of these tables, and of a table with a
//! damaged list, are read from the data: the same keys, but slower by the size of the values.
//!
//! May be called from any thread. Nothing is cached, and the block cache is left alone.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tamis_base::collections::HashSet;
use tamis_base::ids::TableId;
use tamis_base::key::MAX_SEQNO;
use tamis_files::table::{CursorOptions, Damage, KeyListCursor, KeyListReader, TableCursor};

use crate::error::StorageError;
use crate::sync::Mutex;
use crate::tree::open_table::OpenTable;

/// Bytes per read when scanning data.
const READ_AHEAD: u64 = 1 << 20;

/// The source of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// The table's key list.
    List,
    /// Its data, because it has no key list.
    Data,
    /// Its data, from the point where its key list was found to be damaged.
    DamagedList,
}

/// What was found while the keys of a filter were read. Any thread may add.
#[derive(Debug, Default)]
pub(crate) struct KeyNotes {
    from_lists: AtomicU64,
    from_data: AtomicU64,
    damaged_lists: AtomicU64,
    /// For users, one per table, until taken.
    warnings: Mutex<(HashSet<TableId>, Vec<String>)>,
}

impl KeyNotes {
    /// Counts keys read from a table.
    pub(crate) fn note_read(&self, table: TableId, source: KeySource, keys: u64) {
        let from = if source == KeySource::List { &self.from_lists } else { &self.from_data };
        from.fetch_add(keys, Relaxed);
        if source == KeySource::DamagedList {
            self.damaged_lists.fetch_add(1, Relaxed);
            self.warn(table, || {
                format!("the key list of table {table} is damaged: the global filter is built from its data")
            });
        }
    }

    /// Records a table whose keys are unreadable because of damage.
    pub(crate) fn note_damaged(&self, table: TableId, why: &StorageError) {
        self.warn(table, || {
            format!("table {table} is searched for every key, without the global filter: {why}")
        });
    }

    fn warn(&self, table: TableId, message: impl FnOnce() -> String) {
        let mut warnings = self.warnings.lock();
        if warnings.0.insert(table) {
            warnings.1.push(message());
        }
    }

    /// Returns the warnings since the last call.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock().1)
    }

    /// Returns the numbers of keys from key lists and from data, and of damaged lists.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.from_lists, &self.from_data, &self.damaged_lists].map(|count| count.load(Relaxed))
    }
}

/// Calls `f` with every distinct user key of `table` from `start` on, up to `end` (excluded;
/// `None`: all), ascending, each once. Deleted keys are included, bounds of range deletes are not.
/// If the key list is damaged or of another table, the data is read instead; the caller may warn.
///
/// Errors: a failed system call; damage in the data if that had to be read. `f` may have been
/// called by then.
///
/// Cost: reads the whole list once (checksum), decodes the chunks that meet the range. No
/// allocation per key.
pub(crate) fn for_each_key(
    table: &OpenTable,
    start: &[u8],
    end: Option<&[u8]>,
    f: &mut dyn FnMut(&[u8]),
) -> Result<KeySource, StorageError> {
    let list = match table.key_list() {
        Ok(None) => {
            scan(table, start, None, end, f)?;
            return Ok(KeySource::Data);
        }
        Ok(Some(list)) => Ok(list),
        Err(StorageError::Corrupt(_)) => Err(()),
        Err(io) => return Err(io),
    };
    let after =
        match list.as_deref().map_err(|()| None).and_then(|list| keys_of_list(table, list, start, end, f)) {
            Ok(()) => return Ok(KeySource::List),
            Err(after) => after,
        };
    scan(table, start, after.as_deref(), end, f)?;
    Ok(KeySource::DamagedList)
}

/// Passes the keys of the range to `f`, from the list. An error holds the last key passed before
/// the damage, if any.
fn keys_of_list(
    table: &OpenTable,
    list: &[u8],
    start: &[u8],
    end: Option<&[u8]>,
    f: &mut dyn FnMut(&[u8]),
) -> Result<(), Option<Vec<u8>>> {
    let list = open_list(table, list).map_err(|_| None)?;
    let mut keys = list.range(start, end);
    loop {
        match keys.next() {
            Ok(Some(key)) => f(key),
            Ok(None) => return Ok(()),
            Err(_) => return Err(given(&keys, start)),
        }
    }
}

fn given(keys: &KeyListCursor<'_, '_>, start: &[u8]) -> Option<Vec<u8>> {
    keys.key().filter(|key| *key >= start).map(<[u8]>::to_vec)
}

/// Opens a key list and checks it against the table's properties: another table's list is refused.
pub(crate) fn open_list<'b>(table: &OpenTable, bytes: &'b [u8]) -> Result<KeyListReader<'b>, Damage> {
    let list = KeyListReader::open(bytes)?;
    let properties = table.table.properties();
    let bounds = (properties.entries > 0).then_some((&properties.smallest[..], &properties.largest[..]));
    if list.bounds() != bounds || list.len() > properties.entries {
        return Err(Damage("a key list that is not of its table"));
    }
    Ok(list)
}

/// Passes the keys of the range after `after` to `f`, from the data. Keys that do not ascend are
/// damage: a filter would deny some of them.
fn scan(
    table: &OpenTable,
    start: &[u8],
    after: Option<&[u8]>,
    end: Option<&[u8]>,
    f: &mut dyn FnMut(&[u8]),
) -> Result<(), StorageError> {
    let options = CursorOptions { fill_cache: false, read_ahead: READ_AHEAD };
    let mut cursor = TableCursor::new(table.table.clone(), options);
    let mut last: Option<Vec<u8>> = after.map(<[u8]>::to_vec);
    cursor.within(start, end);
    cursor.seek(after.unwrap_or(start), MAX_SEQNO)?;
    while cursor.valid() && end.is_none_or(|end| cursor.key() < end) {
        let order = last
            .as_deref()
            .map_or_else(|| start.cmp(cursor.key()).then(Ordering::Less), |last| last.cmp(cursor.key()));
        match order {
            Ordering::Less => {
                let key = last.get_or_insert_default();
                key.clear();
                key.extend_from_slice(cursor.key());
                f(key);
            }
            Ordering::Equal => {}
            Ordering::Greater => return Err(cursor.damaged("keys that do not ascend")),
        }
        cursor.next()?;
    }
    Ok(())
}

/// Returns what is wrong with the table's key list, if anything. Reads all of the data.
pub(crate) fn key_list_problem(table: &OpenTable) -> Option<&'static str> {
    let mut cursor =
        TableCursor::new(table.table.clone(), CursorOptions { fill_cache: false, read_ahead: READ_AHEAD });
    // The block check reports damaged blocks.
    let mut moved = cursor.seek_to_first();
    let mut is_same = true;
    let source = for_each_key(table, &[], None, &mut |key| {
        is_same &= moved.is_err() || cursor.valid() && cursor.key() == key;
        while is_same && moved.is_ok() && cursor.valid() && cursor.key() == key {
            moved = cursor.next();
        }
    });
    match source {
        Ok(KeySource::DamagedList) => Some("is damaged"),
        Ok(_) if !is_same || moved.is_ok() && cursor.valid() => Some("does not match its keys"),
        // The block check also reports what makes the data unreadable.
        Ok(_) => None,
        Err(_) => Some("is damaged or cannot be read"),
    }
}

#[cfg(test)]
mod tests;
