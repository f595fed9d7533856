//! The last stage of a batch: values in blob files, read together.
//!
//! # Invariant
//!
//! An error of any value that a key needs is the error of the call.
//!
//! Belongs to one call, and so to one thread.

use smallvec::SmallVec;
use tamis_files::blob::{BlobFile, Reference};
use tamis_files::table::{BlockSource, BlockTouch, ReadTrace};

use super::{Answers, BATCH, Batch};
use crate::error::{ReadError, StorageError};
use crate::io::batch::{BatchReader, Stretch};
use crate::observe::cost::ReadCost;
use crate::slice::Slice;
use crate::tree::open_table::OpenTable;

/// A value that is in no cache.
struct Missing<'v> {
    place: usize,
    table: &'v OpenTable,
    file: &'v BlobFile,
    at: Reference,
}

impl Batch<'_, '_> {
    /// Reads the values in blob files: all at once if files are not mapped, otherwise after each
    /// was announced and its first lines were prefetched.
    pub(super) fn read_blobs(&mut self) -> Result<(), ReadError> {
        let Batch { at, reads, answers, cost, .. } = self;
        let Answers { values, blobs } = answers;
        let mut missing: SmallVec<[Missing<'_>; BATCH]> = SmallVec::new();
        for (place, table, reference) in &*blobs {
            let table = &*at.view.version.tables[*table];
            let found = table.blobs.find(table.table.path(), reference);
            let (file, at) = found.inspect_err(|error| table.note_damage(error))?;
            let cached = match file.is_mapped() {
                true => {
                    file.prefetch(&at);
                    None
                }
                false => file.cached(&at).inspect_err(|error| table.note_damage(error))?,
            };
            match cached {
                Some(value) => {
                    let source = BlockSource::Cache;
                    cost.blob_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
                    values[*place] = Some(Slice::from_block(value));
                }
                None => missing.push(Missing { place: *place, table, file, at }),
            }
        }
        let mut rest = &missing[..];
        while !rest.is_empty() {
            let done = match reads {
                Some(reads) if rest[0].file.overlap().is_some() => read_some(reads, rest, values, cost)?,
                _ => {
                    let Missing { place, table, file, at } = &rest[0];
                    let value = file.read(at, true, *cost).inspect_err(|error| table.note_damage(error))?;
                    values[*place] = Some(Slice::from_block(value));
                    1
                }
            };
            rest = &rest[done..];
        }
        Ok(())
    }
}

/// Reads the first of the values together, and returns how many.
fn read_some(
    reads: &BatchReader,
    missing: &[Missing<'_>],
    values: &mut [Option<Slice>],
    cost: &mut ReadCost,
) -> Result<usize, StorageError> {
    let mut stretches: SmallVec<[Stretch; 8]> = SmallVec::new();
    for Missing { table, file, at, .. } in missing.iter().take(reads.depth()) {
        match file.stretch(at) {
            Ok(stretch) => stretches.push(stretch),
            // Descriptors may be available once the others have been read.
            Err(_) if !stretches.is_empty() => break,
            Err(error) => {
                table.note_damage(&error);
                return Err(error);
            }
        }
    }
    let together = stretches.len();
    for (Missing { place, table, file, at }, read) in missing.iter().zip(reads.read(&stretches)) {
        let source = BlockSource::File { read_bytes: at.span };
        cost.blob_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
        cost.batched_reads += u64::from(together > 1);
        let value = read
            .map_err(|e| StorageError::io("read", file.path(), e))
            .and_then(|stored| file.accept(at, &stored, 0, true, cost))
            .inspect_err(|error| table.note_damage(error))?;
        values[*place] = Some(Slice::from_block(value));
    }
    Ok(together)
}
