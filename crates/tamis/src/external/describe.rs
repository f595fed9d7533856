//! An external table's description of itself; not trusted.

use std::path::{Path, PathBuf};

use tamis_base::epochs::EpochMap;
use tamis_base::ids::TableId;
use tamis_base::key::{KeyBytes, KeyEnd, MAX_KEY_BYTES, SeqNo};
use tamis_base::meta::{TableExtra, TableMeta};
use tamis_files::table::{ReaderConfig, Table};
use tamis_files::tree::edit::NUMBER_LIMIT;
use tamis_files::tree::identify::{Contents, identify};
use tamis_files::tree::tombstones::{EXTERNAL_TOMBSTONE_SEQ, Tombstones};

use crate::error::{ExternalTableError, StorageError};
use crate::external::{EXTERNAL_VERSION, ExternalTableInfo, bound_of};
use crate::io::FileSystem;

/// An external table's own description, checked as far as possible without reading its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    path: PathBuf,
    file_bytes: u64,
    entries: u64,
    deletes: u64,
    range_tombstones: u64,
    raw_bytes: u64,
    pub(crate) smallest: KeyBytes,
    pub(crate) largest: KeyEnd,
}

/// Describes the external table `path`. Reads its footer, properties, index and range tombstones
/// and verifies their checksums; does not read the entries.
pub(crate) fn describe(fs: &dyn FileSystem, path: &Path) -> Result<Described, ExternalTableError> {
    let refused = |what: &str| ExternalTableError::NotATable { path: path.to_owned(), what: what.to_owned() };
    let damaged = |error: StorageError| match (error, identify(fs, path)) {
        (StorageError::Corrupt(_), Ok(another))
            if !matches!(another, Contents::Table | Contents::ExternalTable | Contents::Unknown) =>
        {
            refused(&format!("it is {another}"))
        }
        (StorageError::Corrupt(corruption), _) => refused(&corruption.what),
        (io, _) => io.into(),
    };
    let config = ReaderConfig::for_a_look();
    let table = Table::open(fs, path, 0, config).map_err(damaged)?;
    let p = table.properties();
    match p.external {
        EXTERNAL_VERSION => {}
        0 => return Err(ExternalTableError::NotExternal { path: path.to_owned() }),
        _ => return Err(refused("it was built by the rules of a newer version of the library")),
    }
    if (p.min_seq, p.max_seq) != (0, 0) {
        return Err(refused("its entries have sequence numbers"));
    }
    if !p.blobs.is_empty() || table.footer().blobs {
        return Err(refused("it refers to blob files, which belong to a database"));
    }
    if p.deletes > p.entries {
        return Err(refused("it counts more deletes than entries"));
    }
    let tombstones = match table.tombstone_bytes().map_err(damaged)? {
        None => Tombstones::default(),
        Some(bytes) => Tombstones::decode(&bytes)
            .and_then(|stored| stored.renumbered(EXTERNAL_TOMBSTONE_SEQ, EXTERNAL_TOMBSTONE_SEQ))
            .filter(|stored| !stored.is_empty())
            .ok_or_else(|| refused("its range deletes do not decode"))?,
    };
    if tombstones.len() as u64 != p.range_tombstones {
        return Err(refused("its count of range deletes is wrong"));
    }
    let (mut smallest, mut largest): (Option<KeyBytes>, Option<KeyEnd>) = (None, None);
    if p.entries > 0 {
        if p.smallest > p.largest {
            return Err(refused("its last key comes before its first"));
        }
        smallest = Some(p.smallest[..].into());
        largest = Some(KeyEnd::Included(p.largest[..].into()));
    }
    if let [first, .., last] | [first @ last] = tombstones.fragments() {
        let end = last.end.clone().map_or(KeyEnd::Unbounded, KeyEnd::Excluded);
        smallest = Some(smallest.map_or_else(|| first.start.clone(), |key| key.min(first.start.clone())));
        largest = Some(largest.map_or_else(|| end.clone(), |key| key.max(end.clone())));
    }
    let (Some(smallest), Some(largest)) = (smallest, largest) else {
        return Err(ExternalTableError::Empty { path: path.to_owned() });
    };
    // A range's bound may be the successor of the longest possible key. The manifest accepts
    // nothing longer.
    let bounds =
        tombstones.fragments().iter().flat_map(|f| [f.start.len(), f.end.as_ref().map_or(0, |e| e.len())]);
    if bounds.max().unwrap_or(0) > MAX_KEY_BYTES + 1 || p.smallest.len().max(p.largest.len()) > MAX_KEY_BYTES
    {
        return Err(refused("a key in it is too long"));
    }
    if [p.entries, p.raw_key_bytes, p.raw_value_bytes].iter().any(|&count| count >= NUMBER_LIMIT) {
        return Err(refused("it counts more than any table holds"));
    }
    Ok(Described {
        path: path.to_owned(),
        file_bytes: table.file_bytes(),
        entries: p.entries,
        deletes: p.deletes,
        range_tombstones: p.range_tombstones,
        raw_bytes: p.raw_key_bytes + p.raw_value_bytes,
        smallest,
        largest,
    })
}

impl Described {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whether the two cover a common key.
    pub(crate) fn overlaps(&self, other: &Described) -> bool {
        self.largest.reaches(&other.smallest) && other.largest.reaches(&self.smallest)
    }

    /// Reports whether the two describe the same contents, wherever they are stored.
    pub(crate) fn same_contents(&self, other: &Described) -> bool {
        *self == Described { path: self.path.clone(), ..other.clone() }
    }

    pub(crate) fn info(&self) -> ExternalTableInfo {
        ExternalTableInfo {
            path: self.path.clone(),
            entries: self.entries,
            deletes: self.deletes,
            range_deletes: self.range_tombstones,
            bytes: self.file_bytes,
            raw_bytes: self.raw_bytes,
            smallest: self.smallest.to_vec(),
            largest: bound_of(&self.largest),
        }
    }

    /// Returns the table's metadata as number `id` of a database, with all its contents at `seq`
    /// and `epoch`. `now` is in seconds since 1970.
    pub(crate) fn meta(&self, id: TableId, seq: SeqNo, epoch: u64, now: u64) -> TableMeta {
        TableMeta {
            id,
            file_bytes: self.file_bytes,
            smallest: self.smallest.clone(),
            largest: self.largest.clone(),
            entries: self.entries,
            deletes: self.deletes,
            range_tombstones: self.range_tombstones,
            raw_bytes: self.raw_bytes,
            min_seq: seq,
            max_seq: seq,
            epochs: EpochMap::flush(self.smallest.clone(), epoch),
            extra: TableExtra { written: (now, now), global_seq: Some(seq), ..TableExtra::default() },
        }
    }
}
