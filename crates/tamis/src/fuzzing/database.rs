//! A whole database, damaged.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::{Input, put, reseal};
use crate::io::{FileSystem, MemFs, read_file};
use crate::options::{Compression, CompressionPerLevel, FilterChoice, ReadMode};
use crate::tree::files::{FileKind, parse};
use crate::{Db, Keyspace, KeyspaceOptions, Options, ReadError, Slice};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The database before the damage: its files, and what is in its two keyspaces.
struct Base {
    files: BTreeMap<String, Vec<u8>>,
    content: [Model; 2],
}

const SECOND: &str = "second";

fn options(fs: &MemFs) -> Options {
    let mut options = Options { cache_bytes: 1 << 16, background_threads: 1, ..Options::default() };
    options.file_system = Some(Arc::new(fs.clone()));
    options.keyspace = keyspace_options();
    options
}

fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions {
        memtable_bytes: 16 << 10,
        block_bytes: 512,
        // Background work would race with the reads below, and is not asked for by any damage.
        auto_compaction: false,
        compression: CompressionPerLevel::new(vec![Compression::None, Compression::Lz4]).expect("two levels"),
        ..KeyspaceOptions::default()
    }
}

impl Base {
    /// The same on every call.
    fn get() -> &'static Base {
        static BASE: OnceLock<Base> = OnceLock::new();
        BASE.get_or_init(Base::make)
    }

    fn make() -> Base {
        let fs = MemFs::new();
        let db = Db::open("db", options(&fs)).expect("memory takes it");
        let other = KeyspaceOptions { filter: FilterChoice::None.into(), ..keyspace_options() };
        let second = db.create_keyspace(SECOND, other).expect("memory takes it");
        let keyspaces = [db.default_keyspace().clone(), second];
        let mut content = [Model::new(), Model::new()];
        let mut write = |n: usize, from: u32, to: u32| {
            for i in from..to {
                let (key, value) = (format!("key {:03}", i * 7 % 101), format!("value {i} ").repeat(4));
                keyspaces[n].put(&key, &value).expect("memory takes it");
                content[n].insert(key.into(), value.into());
            }
        };
        let flush = || db.flush().expect("memory takes it");
        write(0, 0, 60);
        flush();
        db.compact().expect("memory takes it");
        write(0, 40, 90);
        write(1, 0, 20);
        flush();
        write(0, 90, 110);
        write(1, 20, 30);
        keyspaces[0].delete_range("key 010".."key 020").expect("memory takes it");
        content[0].retain(|key, _| !(&b"key 010"[..]..&b"key 020"[..]).contains(&&key[..]));
        keyspaces[0].delete("key 050").expect("memory takes it");
        content[0].remove(&b"key 050"[..]);
        flush();
        let mut write = |n: usize, i: u32| {
            let (key, value) = (format!("late {i}"), format!("value {i}"));
            keyspaces[n].put(&key, &value).expect("memory takes it");
            content[n].insert(key.into(), value.into());
        };
        (0..8).for_each(|i| write(i as usize % 2, i));
        db.sync().expect("memory takes it");
        // Taken while the database is open, as a crash would leave it.
        let names = fs.list(Path::new("db")).expect("it is there");
        let files = names.into_iter().map(|name| {
            let bytes = read_file(&fs, &Path::new("db").join(&name)).expect("it is there");
            (name, bytes)
        });
        Base { files: files.filter(|(name, _)| name != "LOCK").collect(), content }
    }
}

/// What was done to the files.
#[derive(Clone, Copy, Default)]
struct Damage {
    /// To something other than a table: then writes may rightly be missing.
    beyond_tables: bool,
    /// Checksums were made right, so that damage passes for what was written.
    resealed: bool,
}

/// Damage to the files of a small database, as a list of edits, each of a file's number, what to do, a place and
/// a byte; the first byte says whether checksums are then made right.
pub fn database(bytes: &[u8]) {
    let base = Base::get();
    let mut input = Input::new(bytes);
    let mut damage = Damage { resealed: input.bit(), ..Damage::default() };
    let mut files = base.files.clone();
    let names: Vec<&String> = base.files.keys().collect();
    for _ in 0..16 {
        if input.is_empty() {
            break;
        }
        let name = names[usize::from(input.byte()) % names.len()];
        let (what, place, byte) = (input.byte(), usize::from(input.word()), input.byte());
        damage.beyond_tables |= !matches!(parse(name), Some(FileKind::Table(_)));
        edit(&mut files, name, what, place, byte);
    }
    if damage.resealed {
        for (name, bytes) in &mut files {
            match parse(name) {
                Some(FileKind::Table(_)) => *bytes = reseal::table(bytes, false),
                Some(FileKind::Log(_) | FileKind::Manifest(_)) => *bytes = reseal::log(bytes),
                _ => {}
            }
        }
    }
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let options = Options { read_mode: mode, ..options(&restored(&files)) };
        if let Ok(db) = Db::open_read_only("db", options) {
            examine(&db, base, &damage);
        }
    }
    for salvage in [false, true] {
        let fs = restored(&files);
        let options = || Options { salvage, ..options(&fs) };
        let Ok(db) = Db::open("db", options()) else { continue };
        // Salvage leaves out tables that it cannot open, with all that is in them.
        let damage = Damage { beyond_tables: damage.beyond_tables || salvage, ..damage };
        examine(&db, base, &damage);
        db.put("new", "value").expect("an open database takes a write");
        db.close().expect("memory takes it");
        let db = Db::open("db", options()).expect("what was opened and closed opens again");
        let read = db.get("new").map(|value| value.map(|value| value.to_vec()));
        assert!(matches!(read.as_ref().map(Option::as_deref), Ok(Some(b"value")) | Err(_)), "{read:?}");
    }
}

fn edit(files: &mut BTreeMap<String, Vec<u8>>, name: &str, what: u8, place: usize, byte: u8) {
    let Some(bytes) = files.get_mut(name) else { return };
    let at = if bytes.is_empty() { return } else { place % bytes.len() };
    match what % 8 {
        0..=2 => bytes[at] ^= byte.max(1),
        3 => bytes[at] = byte,
        4 => bytes.truncate(at),
        5 => bytes.extend(std::iter::repeat_n(byte, 1 + place % 64)),
        6 => bytes[at..].iter_mut().take(8).for_each(|b| *b = byte),
        _ => _ = files.remove(name),
    }
}

fn restored(files: &BTreeMap<String, Vec<u8>>) -> MemFs {
    let fs = super::empty_fs();
    for (name, bytes) in files {
        put(&fs, &Path::new("db").join(name), bytes);
    }
    fs
}

fn examine(db: &Db, base: &Base, damage: &Damage) {
    check_keyspace(db.default_keyspace(), &base.content[0], damage);
    if let Ok(second) = db.keyspace(SECOND) {
        check_keyspace(&second, &base.content[1], damage);
    }
    let _ = (db.verify(), db.stats());
}

/// With damage to tables alone, and checksums that show it, every answer is right or an error.
fn check_keyspace(keyspace: &Keyspace, content: &Model, damage: &Damage) {
    let honest = !damage.resealed && !damage.beyond_tables;
    let wanted: Vec<&[u8]> =
        content.keys().map(|key| &key[..]).chain([&b"key 015"[..], b"key 050", b"none"]).collect();
    for key in &wanted {
        let (found, contained) = (keyspace.get(key), keyspace.contains(key));
        let _ = keyspace.explain_get(key);
        if let (Ok(found), true) = (found, honest) {
            assert_eq!(found.as_deref(), content.get(*key).map(|value| &value[..]), "{key:?}");
        }
        if let (Ok(contained), true) = (contained, honest) {
            assert_eq!(contained, content.contains_key(*key));
        }
    }
    let _ = keyspace.multi_get(&wanted);
    let pairs = |iter: &mut dyn Iterator<Item = Result<(Slice, Slice), ReadError>>| {
        let read = iter.map_while(Result::ok).map(|(key, value)| (key.to_vec(), value.to_vec()));
        read.take(10_000).collect::<Vec<_>>()
    };
    let (there, back) = (pairs(&mut keyspace.iter()), pairs(&mut keyspace.iter().rev()));
    if honest {
        let right = content.iter().map(|(key, value)| (key.clone(), value.clone()));
        assert!(right.clone().zip(&there).all(|(right, read)| right == *read), "a wrong pair");
        assert!(right.rev().zip(&back).all(|(right, read)| right == *read), "a wrong pair backwards");
        assert!(there.len().max(back.len()) <= content.len(), "a pair too many");
    }
}
