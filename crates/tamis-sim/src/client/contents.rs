//! Reading whole keyspaces and databases.

use std::collections::BTreeMap;

use tamis::{Db, Iter, Keyspace, ReadError, Slice};

use super::{DEFAULT, Failure, SECOND};
use crate::oracle::Contents;
use crate::plan::Space;

/// The entries of a keyspace, or of a part of it.
pub type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Returns the bytes of all trees and memtables, and the space that they take with logs, readers,
/// and what is being merged.
pub fn stated(db: &Db) -> (u64, u64) {
    let stats = db.stats();
    let trees: u64 =
        stats.keyspaces.iter().map(|ks| ks.table_bytes + ks.blob_bytes + ks.memtable_bytes).sum();
    let merges: u64 = stats.jobs.iter().map(|job| job.bytes_in).sum();
    let readers = stats.readers_table_bytes + stats.readers_blob_bytes;
    let logs = stats.log_allocated_bytes + stats.retained_log_bytes;
    // A flush writes the values that memtables left in logs once more.
    (trees, trees + merges + readers + logs + stats.log_bytes)
}

/// Returns the keys that have a value.
pub fn found<'k>(values: impl Iterator<Item = (&'k Vec<u8>, Option<Slice>)>) -> Entries {
    values.filter_map(|(key, value)| Some((key.clone(), value?.to_vec()))).collect()
}

/// Returns all entries of an iterator, checking their order.
pub fn collect(iterator: Iter, reverse: bool) -> Result<Result<Entries, Failure>, ReadError> {
    let mut seen = Entries::new();
    let mut last: Option<Vec<u8>> = None;
    let items: Box<dyn Iterator<Item = _>> =
        if reverse { Box::new(iterator.rev()) } else { Box::new(iterator) };
    for item in items {
        let (key, value) = item?;
        let key = key.to_vec();
        let in_order = last.as_ref().is_none_or(|last| if reverse { key < *last } else { key > *last });
        if !in_order {
            return Ok(Err(format!("an iterator goes to {key:?} after {last:?}")));
        }
        last = Some(key.clone());
        seen.insert(key, value.to_vec());
    }
    Ok(Ok(seen))
}

/// Returns the number of the keyspace of this name.
pub fn space_of(name: &str) -> Option<Space> {
    match name {
        DEFAULT => Some(0),
        SECOND => Some(1),
        other => other.strip_prefix('k')?.parse().ok(),
    }
}

/// Returns the name of a keyspace.
pub fn name_of(space: Space) -> String {
    match space {
        0 => DEFAULT.to_owned(),
        1 => SECOND.to_owned(),
        other => format!("k{other}"),
    }
}

/// Returns the whole contents of a database that nobody changes.
pub fn everything(db: &Db) -> Result<Result<Contents, Failure>, ReadError> {
    let mut all = Contents::default();
    for name in db.keyspaces() {
        let (Some(space), Ok(keyspace)) = (space_of(&name), db.keyspace(&name)) else {
            return Ok(Err(format!("there is a keyspace that nobody made: {name}")));
        };
        match whole(&keyspace)? {
            Ok(entries) => {
                all.entries.extend(entries.into_iter().map(|(key, value)| ((space, key), value)));
            }
            Err(what) => return Ok(Err(what)),
        }
        if space >= crate::oracle::FIXED_SPACES {
            all.spaces.insert(space);
        }
    }
    Ok(Ok(all))
}

/// Returns all entries of a keyspace, read in every way.
fn whole(keyspace: &Keyspace) -> Result<Result<Entries, Failure>, ReadError> {
    let forward = match collect(keyspace.iter(), false)? {
        Ok(seen) => seen,
        Err(what) => return Ok(Err(what)),
    };
    match collect(keyspace.iter(), true)? {
        Ok(backward) if backward == forward => {}
        Ok(_) => return Ok(Err("an iterator returns different entries forwards and backwards".into())),
        Err(what) => return Ok(Err(what)),
    }
    let keys: Vec<Vec<u8>> = forward.keys().cloned().collect();
    if found(keys.iter().zip(keyspace.multi_get(&keys)?)) != forward {
        return Ok(Err("gets and an iterator return different values".into()));
    }
    Ok(Ok(forward))
}
