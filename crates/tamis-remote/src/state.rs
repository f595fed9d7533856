//! States: documents that say which objects make up a database.
//!
//! # Bytes
//!
//! `states/<20 digits>.json` is `{"format":1,"checksum":"<XXH3-64 of the bytes of state, 16
//! digits>","state":{…}}`. A state lists its files itself, or in *lists*: a group of files that
//! never change, as a JSON array in an object of its own. Groups are by the number in a file's
//! name, so that a flush or a merge touches few of them: a state of 100,000 files is some ten
//! kilobytes, and its reader fetches the few lists that it does not have. All of this may be
//! damaged or forged: a document is checked before anything uses it.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::Error;
use crate::hash::ContentHash;
use crate::source::kind_of;

/// The version that is written, and the newest that is read.
const FORMAT: u32 = 1;

/// Files whose numbers divided by this are equal make a group.
const GROUP: u64 = 256;

/// A smaller group is not worth a list.
const LEAST_LISTED: usize = 64;

/// A document longer than this is none: some million pieces of logs.
pub(crate) const LONGEST_DOCUMENT: u64 = 256 << 20;

/// Nor is a list: it has [`GROUP`] files at most.
const LONGEST_LIST: u64 = 16 << 20;

/// No number of a state, no sequence number and no sum of lengths is higher, so that the next one,
/// and sums of a few, are numbers.
const LARGEST: u64 = u64::MAX >> 4;

/// What a file is to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A table, which never changes.
    Table,
    /// A file of large values, which never changes.
    Blob,
    /// A file of filters, which never changes.
    Filter,
    /// A write-ahead log, to which more may be appended.
    Log,
    /// A manifest, to which more may be appended.
    Manifest,
    /// The file that names the manifest in force.
    Current,
    /// The options in text form.
    Options,
}

impl Kind {
    /// Whether a name stands for the same bytes for ever.
    pub(crate) fn is_immutable(self) -> bool {
        matches!(self, Kind::Table | Kind::Blob | Kind::Filter)
    }

    /// Whether a later file of the name begins with the same bytes.
    pub(crate) fn is_appended(self) -> bool {
        matches!(self, Kind::Log | Kind::Manifest)
    }
}

/// A stretch of a file as an object of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Piece {
    /// The object's name, below the repository.
    pub object: String,
    /// Its bytes.
    pub len: u64,
    /// Their hash.
    pub hash: ContentHash,
}

/// A file of a database, and the objects that hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Its name in the database's directory.
    pub name: String,
    /// Its bytes.
    pub len: u64,
    /// What it is.
    pub kind: Kind,
    /// Where filters, index and footer begin; the length if there are none.
    pub metadata_from: u64,
    /// Its content, in order.
    pub pieces: Vec<Piece>,
}

/// A database as it was at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// Its number; a later state has a higher one.
    pub number: u64,
    /// When it was written, by its writer's clock.
    pub created: SystemTime,
    /// Which copy of the database it is of.
    pub writer: String,
    /// Counts takeovers.
    pub epoch: u64,
    /// The upload session that wrote it.
    pub session: String,
    /// The run of its writer: tells copies of one writer's directory apart.
    pub(crate) run: String,
    /// The last sequence number in it.
    pub last_seq: u64,
    /// The database's files.
    pub files: Vec<FileEntry>,
    /// The lists among the objects.
    pub(crate) lists: Vec<Piece>,
}

impl State {
    /// Returns the bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Returns every object that the state needs, its lists among them.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Piece> {
        self.files.iter().flat_map(|file| &file.pieces).chain(&self.lists)
    }

    /// Returns the file of a name.
    pub(crate) fn file(&self, name: &str) -> Option<&FileEntry> {
        self.files.iter().find(|file| file.name == name)
    }
}

/// Returns the name of the object that holds a state.
pub(crate) fn object_name(number: u64) -> String {
    format!("states/{number:020}.json")
}

/// Returns the number in such a name.
pub(crate) fn number_in(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("states/")?.strip_suffix(".json")?;
    if digits.len() != 20 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().filter(|number| *number <= LARGEST)
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    checksum: String,
    state: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    number: u64,
    /// Milliseconds since 1970.
    created: u64,
    writer: String,
    epoch: u64,
    session: String,
    run: String,
    last_seq: u64,
    files: Vec<FileEntry>,
    lists: Vec<Piece>,
}

/// Divides files into groups that deserve a list, and the rest.
pub(crate) fn grouped(files: &[FileEntry]) -> (Vec<Vec<FileEntry>>, Vec<FileEntry>) {
    let mut groups: BTreeMap<u64, Vec<FileEntry>> = BTreeMap::new();
    let mut rest = Vec::new();
    for file in files {
        let digits: String = file.name.chars().take_while(char::is_ascii_digit).collect();
        match digits.parse::<u64>() {
            Ok(number) if file.kind.is_immutable() => {
                groups.entry(number / GROUP).or_default().push(file.clone());
            }
            _ => rest.push(file.clone()),
        }
    }
    let mut lists = Vec::new();
    for (_, mut group) in groups {
        match group.len() >= LEAST_LISTED {
            true => {
                // The same files are the same bytes.
                group.sort_by(|a, b| a.name.cmp(&b.name));
                lists.push(group);
            }
            false => rest.extend(group),
        }
    }
    (lists, rest)
}

/// Writes a list.
pub(crate) fn list_to_bytes(files: &[FileEntry]) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(files).map_err(|error| Error::damaged("list", error))
}

/// Reads a list.
pub(crate) fn list_from_bytes(object: &str, bytes: &[u8]) -> Result<Vec<FileEntry>, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::damaged(object, error))
}

/// Writes a state; `inline` are its files that are in no list.
pub(crate) fn to_bytes(state: &State, inline: &[FileEntry]) -> Result<Vec<u8>, Error> {
    let created = state.created.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let body = Body {
        number: state.number,
        created,
        writer: state.writer.clone(),
        epoch: state.epoch,
        session: state.session.clone(),
        run: state.run.clone(),
        last_seq: state.last_seq,
        files: inline.to_vec(),
        lists: state.lists.clone(),
    };
    let text = serde_json::to_string(&body);
    let document = text.and_then(|text| {
        let checksum = format!("{:016x}", xxh3_64(text.as_bytes()));
        serde_json::to_vec(&Document { format: FORMAT, checksum, state: RawValue::from_string(text)? })
    });
    document.map_err(|error| Error::damaged(&object_name(state.number), error))
}

/// Reads a state; `list` fetches a list.
pub(crate) fn from_bytes(
    number: u64,
    bytes: &[u8],
    mut list: impl FnMut(&Piece) -> Result<Vec<FileEntry>, Error>,
) -> Result<State, Error> {
    let name = object_name(number);
    let damaged = |why: String| Error::damaged(&name, why);
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    // First, so that a newer format is not reported as damage.
    let version: Version = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    if version.format != FORMAT {
        return Err(damaged(format!("format {} is not known to this version", version.format)));
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    if document.checksum != format!("{:016x}", xxh3_64(document.state.get().as_bytes())) {
        return Err(damaged("its checksum is wrong".into()));
    }
    let body: Body =
        serde_json::from_str(document.state.get()).map_err(|error| damaged(error.to_string()))?;
    if body.number != number {
        return Err(damaged(format!("it is state {}", body.number)));
    }
    if [number, body.epoch, body.last_seq].iter().any(|number| *number > LARGEST) {
        return Err(damaged("a number in it is too high".into()));
    }
    let mut files = body.files;
    let mut lists = HashSet::new();
    for piece in &body.lists {
        check_piece(piece).map_err(&damaged)?;
        if piece.len > LONGEST_LIST || !lists.insert(&piece.object) {
            return Err(damaged(format!("{} is too long a list, or named twice", piece.object)));
        }
        files.extend(list(piece)?);
    }
    check(&files).map_err(damaged)?;
    Ok(State {
        number,
        created: SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_millis(body.created))
            .unwrap_or(SystemTime::UNIX_EPOCH),
        writer: body.writer,
        epoch: body.epoch,
        session: body.session,
        run: body.run,
        last_seq: body.last_seq,
        files,
        lists: body.lists,
    })
}

/// Checks what the rest of the crate relies on: names are those of a database's files, and
/// distinct; lengths add up, and are not too high.
pub(crate) fn check(files: &[FileEntry]) -> Result<(), String> {
    let mut names = HashSet::new();
    let mut total = 0u64;
    for file in files {
        let name = &file.name;
        if name.len() > 200 || kind_of(name) != Some(file.kind) {
            return Err(format!("{name:?} is not the name of a file of a database, or of another kind"));
        }
        total =
            total.checked_add(file.len).filter(|total| *total <= LARGEST).ok_or("its files are too long")?;
        if !names.insert(name) {
            return Err(format!("{name} is listed twice"));
        }
        let sum = file.pieces.iter().try_fold(0u64, |sum, piece| {
            check_piece(piece)?;
            sum.checked_add(piece.len).ok_or_else(|| format!("{name} is too long"))
        })?;
        if sum != file.len || file.metadata_from > file.len {
            return Err(format!("the lengths of {name} do not agree"));
        }
        if !file.kind.is_appended() && file.pieces.len() > 1 {
            return Err(format!("{name} is in several pieces"));
        }
    }
    Ok(())
}

fn check_piece(piece: &Piece) -> Result<(), String> {
    let mut parts = piece.object.split('/');
    let known = matches!(parts.next(), Some("files" | "parts" | "lists"));
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let good = |part: &str| !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain);
    match known && piece.object.len() <= 400 && parts.clone().count() == 2 && parts.all(good) {
        true => Ok(()),
        false => Err(format!("{:?} is not the name of an object", piece.object)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, kind: Kind, lens: &[u64]) -> FileEntry {
        let pieces = lens.iter().enumerate().map(|(i, &len)| Piece {
            object: format!("files/0011/{name}-{i}"),
            len,
            hash: ContentHash::of(name.as_bytes()),
        });
        let len = lens.iter().sum();
        FileEntry { name: name.into(), len, kind, metadata_from: len, pieces: pieces.collect() }
    }

    fn state(files: Vec<FileEntry>) -> State {
        State {
            number: 7,
            created: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            writer: "w".into(),
            epoch: 1,
            session: "s".into(),
            run: "r".into(),
            last_seq: 42,
            files,
            lists: Vec::new(),
        }
    }

    fn none(_: &Piece) -> Result<Vec<FileEntry>, Error> {
        Ok(Vec::new())
    }

    #[test]
    fn a_state_survives_its_document() {
        let files = vec![
            file("000001.tam", Kind::Table, &[1000]),
            file("000002.log", Kind::Log, &[10, 20, 30]),
            file("CURRENT", Kind::Current, &[16]),
        ];
        let state = state(files);
        let bytes = to_bytes(&state, &state.files).unwrap();
        assert_eq!(from_bytes(7, &bytes, none).unwrap(), state);
        assert!(from_bytes(8, &bytes, none).is_err());
        assert_eq!(number_in(&object_name(LARGEST)), Some(LARGEST));
        assert_eq!(number_in(&object_name(LARGEST + 1)), None);
    }

    #[test]
    fn every_changed_byte_of_a_document_is_noticed() {
        let state = state(vec![file("000001.tam", Kind::Table, &[1000])]);
        let bytes = to_bytes(&state, &state.files).unwrap();
        for at in 0..bytes.len() {
            for flip in [1u8, 0x20, 0x80] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                assert!(from_bytes(7, &bytes, none).is_err(), "byte {at} ^ {flip}");
            }
            assert!(from_bytes(7, &bytes[..at], none).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn forged_documents_are_refused() {
        let refused = |change: &dyn Fn(&mut State)| {
            let mut state = state(vec![file("000001.tam", Kind::Table, &[1000])]);
            change(&mut state);
            let bytes = to_bytes(&state, &state.files).unwrap();
            assert!(from_bytes(7, &bytes, none).is_err(), "{state:?}");
        };
        for name in ["", "..", "a/b", "../x", "a\\b", ".x", "a\0", "/etc/passwd"] {
            refused(&|state| state.files[0].name = name.into());
            refused(&|state| state.files[0].pieces[0].object = name.into());
            refused(&|state| state.files[0].pieces[0].object = format!("files/a/{name}"));
        }
        refused(&|state| state.files[0].pieces[0].object = "states/00000000000000000001.json".into());
        for name in
            ["RESTORING", "LOCK", "000001.tam.partial", "MANIFEST-1.partial", "backup-cache.json", ".tam"]
        {
            refused(&|state| state.files[0].name = name.into());
        }
        refused(&|state| state.files[0].kind = Kind::Blob);
        refused(&|state| state.files[0].name = "CURRENT".into());
        refused(&|state| state.files.push(state.files[0].clone()));
        let piece = |len| Piece { object: "lists/a/b".into(), len, hash: ContentHash::of(b"") };
        refused(&|state| state.lists = vec![piece(3), piece(3)]);
        refused(&|state| state.lists = vec![piece(u64::MAX)]);
        for number in [LARGEST + 1, u64::MAX] {
            refused(&|state| state.last_seq = number);
            refused(&|state| state.epoch = number);
            refused(&|state| state.files[0] = file("000001.tam", Kind::Table, &[number]));
        }
        refused(&|state| {
            let file = |number| file(&format!("{number:06}.tam"), Kind::Table, &[LARGEST / 2 + 1]);
            state.files = vec![file(1), file(2)];
        });
        refused(&|state| state.files[0].len = 999);
        refused(&|state| state.files[0].metadata_from = 1001);
        refused(&|state| state.files[0] = file("000001.tam", Kind::Table, &[500, 500]));
        refused(&|state| {
            state.files[0] = file("000001.log", Kind::Log, &[u64::MAX - 1, 1]);
            state.files[0].pieces[1].len = 2;
        });
    }

    #[test]
    fn groups_change_little() {
        let files = |numbers: &[u64]| -> Vec<FileEntry> {
            let named = numbers.iter().map(|n| file(&format!("{n:06}.tam"), Kind::Table, &[10]));
            named.chain([file("000001.log", Kind::Log, &[3])]).collect()
        };
        let before: Vec<u64> = (0..2000).collect();
        let mut after = before.clone();
        after.push(2000);
        after.retain(|n| *n != 300);
        let (lists, rest) = grouped(&files(&before));
        assert_eq!((lists.len(), rest.len()), (8, 1));
        let (changed, _) = grouped(&files(&after));
        let same = changed.iter().filter(|list| lists.contains(list)).count();
        assert_eq!((changed.len(), same), (8, 6));
    }
}
