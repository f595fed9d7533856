//! Writes as external tables, and as batches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tamis::ingest::{ExternalTableBuilder, IngestOptions};
use tamis::{AdminError, Durability, WriteBatch};

use super::Spaces;
use crate::oracle::{Op, Space, Write};

/// The additional keys and values of a write.
pub(super) type Besides = Vec<(Vec<u8>, Vec<u8>)>;

/// Writes one batch.
pub(super) fn write_batch(spaces: &Spaces, write: &Write, besides: Besides) -> Result<(), tamis::WriteError> {
    let mut batch = WriteBatch::new();
    for op in &write.ops {
        match op {
            Op::Put(space, key, value) => batch.put_in(spaces.get(*space), key, value),
            Op::Delete(space, key) => batch.delete_in(spaces.get(*space), key),
            Op::DeleteRange(space, from, to) => {
                batch.delete_range_in(spaces.get(*space), from.clone()..to.clone())
            }
            Op::Add(key, number) => batch.merge_in(spaces.get(Space::Sums), key, number.to_le_bytes()),
        };
    }
    for (key, value) in besides {
        batch.put(key, value);
    }
    match write.synced {
        true => spaces.db.write_with(batch, Durability::Sync),
        false => spaces.db.write(batch),
    }
}

/// The effects of operations by key: later ones hide earlier ones.
#[derive(Debug, Default)]
struct Merged {
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Builds external tables beside the database, and ingests them atomically.
pub(super) fn ingest(
    spaces: &Spaces,
    write: &Write,
    besides: Besides,
    beside: &Path,
) -> Result<(), tamis::Error> {
    let mut merged: BTreeMap<Space, Merged> = BTreeMap::new();
    let first: Vec<Op> =
        besides.into_iter().map(|(key, value)| Op::Put(Space::Default, key, value)).collect();
    for op in first.iter().chain(&write.ops) {
        match op {
            Op::Put(space, key, value) => {
                let entries = &mut merged.entry(*space).or_default().entries;
                entries.insert(key.clone(), Some(value.clone()));
            }
            Op::Delete(space, key) => {
                merged.entry(*space).or_default().entries.insert(key.clone(), None);
            }
            Op::DeleteRange(space, from, to) => {
                let merged = merged.entry(*space).or_default();
                merged.entries.retain(|key, _| !(from..to).contains(&key));
                merged.ranges.push((from.clone(), to.clone()));
            }
            Op::Add(..) => return Err(AdminError::Cancelled.into()),
        }
    }
    let mut files: Vec<(Space, PathBuf)> = Vec::new();
    let built = merged.into_iter().try_for_each(|(space, merged)| {
        let path = beside.with_extension(format!("{}.tam", space.name()));
        // It may be left over from an earlier failure.
        let _ = std::fs::remove_file(&path);
        let mut builder = ExternalTableBuilder::create(&path, &spaces.get(space).options())?;
        for (key, value) in merged.entries {
            match value {
                Some(value) => builder.put(key, value)?,
                None => builder.delete(key)?,
            }
        }
        for (from, to) in merged.ranges {
            builder.delete_range(from..to)?;
        }
        builder.finish()?;
        files.push((space, path));
        Ok::<(), tamis::Error>(())
    });
    let by = |turns| write.ops.len().is_multiple_of(turns);
    let options = IngestOptions { move_files: by(2), verify: by(3) };
    let ingested = built.and_then(|()| {
        let groups: Vec<_> = files.iter().map(|(space, path)| (spaces.get(*space), [path])).collect();
        Ok(spaces.db.ingest(&groups, options).map(drop)?)
    });
    for (_, path) in &files {
        let _ = std::fs::remove_file(path);
    }
    ingested
}
