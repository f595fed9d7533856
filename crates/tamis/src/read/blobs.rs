//! Values in blob files, and in logs, as an iterator reads them.
//!
//! A value is read when its entry is returned. Flushes and compactions write values in key order,
//! so a scan mostly meets them in file order. If files are not mapped and the next value follows
//! the last one, the read also fetches the values behind it, with twice as many bytes each time.
//!
//! Belongs to one iterator, and so to one thread at a time.

use std::sync::Arc;

use tamis_base::ids::BlobFileId;
use tamis_files::table::{BlockSource, BlockTouch, ReadTrace};

use crate::error::StorageError;
use crate::memtable::Memtable;
use crate::observe::cost::ReadCost;
use crate::slice::Slice;
use crate::tree::open_table::OpenTable;

/// The most bytes read at a time, unless a value has more.
const MOST_BYTES: u64 = 1 << 20;

/// The number of files that a scan follows at a time. Values of neighbouring keys may be in a few
/// of them.
const FILES: usize = 4;

/// A scan's place in one file.
#[derive(Debug)]
struct Follow {
    file: BlobFileId,
    /// Where the last value's record ends.
    next: u64,
    /// Bytes to read at a time.
    ahead: u64,
    /// The last piece read, and its offset.
    piece: Option<(u64, Arc<[u8]>)>,
}

/// Values with at most so many bytes between them follow each other: in a log, keys stand there.
const MOST_BETWEEN: u64 = 256;

/// A scan's places in blob files, the most recently used last.
#[derive(Debug, Default)]
pub(crate) struct BlobScan(Vec<Follow>);

/// What has a reference.
#[derive(Debug)]
pub(crate) enum Holder {
    Table(Arc<OpenTable>),
    Memtable(Arc<Memtable>),
}

impl BlobScan {
    /// Reads the value behind a reference.
    pub(crate) fn read(
        &mut self,
        holder: &Holder,
        reference: &[u8],
        cost: &mut ReadCost,
    ) -> Result<Slice, StorageError> {
        let table = match holder {
            Holder::Table(table) => table,
            Holder::Memtable(memtable) => {
                return memtable.read_logged(reference, cost).map(Slice::from_block);
            }
        };
        let value = match table.blobs.find(table.table.path(), reference) {
            Ok((file, _)) if file.is_mapped() => {
                return table.read_blob(reference, true, cost).map(Slice::from_block);
            }
            Ok((file, at)) => {
                let follow = self.follow(at.file);
                let holds = |(offset, piece): &(u64, Arc<[u8]>)| {
                    at.offset >= *offset && at.offset + at.span <= offset + piece.len() as u64
                };
                let end = at.offset.saturating_add(at.span);
                let before = std::mem::replace(&mut follow.next, end);
                let follows = at.offset.checked_sub(before).is_some_and(|gap| gap <= MOST_BETWEEN);
                if end <= file.data_bytes()
                    && let Some((offset, piece)) = follow.piece.as_ref().filter(|piece| holds(piece))
                {
                    let source = BlockSource::ReadAhead;
                    cost.blob_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
                    file.accept(&at, piece, (at.offset - offset) as usize, false, cost)
                } else if follows && end < file.data_bytes() && at.span < MOST_BYTES {
                    follow.ahead = (2 * follow.ahead.max(at.span)).min(MOST_BYTES);
                    let bytes = follow.ahead.max(at.span).min(file.data_bytes() - at.offset);
                    follow.piece = None;
                    file.piece(at.offset, bytes).and_then(|piece| {
                        follow.piece = Some((at.offset, piece.clone()));
                        let source = BlockSource::File { read_bytes: bytes };
                        cost.blob_touched(BlockTouch { offset: at.offset, stored_bytes: at.span, source });
                        file.accept(&at, &piece, 0, false, cost)
                    })
                } else {
                    (follow.ahead, follow.piece) = (0, None);
                    file.read(&at, true, cost)
                }
            }
            Err(error) => Err(error),
        };
        value.map(Slice::from_block).inspect_err(|error| table.note_damage(error))
    }

    /// Returns the place in a file. If there are too many places, replaces the least recently used.
    fn follow(&mut self, file: BlobFileId) -> &mut Follow {
        let place = self.0.iter().position(|follow| follow.file == file);
        let follow = match place {
            Some(place) => self.0.remove(place),
            None => {
                if self.0.len() == FILES {
                    self.0.remove(0);
                }
                Follow { file, next: 0, ahead: 0, piece: None }
            }
        };
        self.0.push(follow);
        self.0.last_mut().expect("just pushed")
    }
}
