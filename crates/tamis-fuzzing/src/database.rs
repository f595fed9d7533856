//! A whole database with damaged files.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::reseal;
use tamis::io::{FileSystem, MemFs, read_file};
use tamis::options::{Compression, CompressionPerLevel, FilterChoice, ReadMode};
use tamis::{Db, Keyspace, KeyspaceOptions, Options, ReadError, Slice};
use tamis_testkit::fuzz::Input;

use crate::put;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// The contents of the two keyspaces after some write.
type State = [Model; 2];
type Files = BTreeMap<String, Vec<u8>>;

/// The database before it is damaged.
struct Base {
    files: Files,
    /// Earlier contents of the files, in order.
    earlier: Vec<(String, Vec<u8>)>,
    /// The states after each write; the last one is in the files.
    states: Vec<State>,
}

/// The kind of a file in a database directory, by its name as described in `docs/followers.md`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Table,
    Log,
    Manifest,
    Other,
}

impl Kind {
    fn of(name: &str) -> Kind {
        let is_number = |text: &str| text.len() >= 6 && text.bytes().all(|byte| byte.is_ascii_digit());
        match name.split_once('.') {
            Some((number, "tam")) if is_number(number) => Kind::Table,
            Some((number, "log")) if is_number(number) => Kind::Log,
            _ if name.strip_prefix("MANIFEST-").is_some_and(is_number) => Kind::Manifest,
            _ => Kind::Other,
        }
    }
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
        // Background work would race with the reads below, and no damage requires it.
        auto_compaction: false,
        compression: CompressionPerLevel::new(vec![Compression::None, Compression::Lz4]).expect("two levels"),
        ..KeyspaceOptions::default()
    }
}

/// The database under construction.
struct Making {
    fs: MemFs,
    db: Db,
    keyspaces: [Keyspace; 2],
    base: Base,
}

impl Making {
    fn new() -> Making {
        let fs = MemFs::new();
        let db = options(&fs).open("db").expect("in-memory write");
        let other = KeyspaceOptions { filter: FilterChoice::None.into(), ..keyspace_options() };
        let second = db.create_keyspace(SECOND, other).expect("in-memory write");
        let base = Base { files: Files::new(), earlier: Vec::new(), states: vec![State::default()] };
        Making { keyspaces: [db.default_keyspace().clone(), second], fs, db, base }
    }

    /// Records the effect of a write.
    fn wrote(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.base.states.last().expect("never empty").clone();
        change(&mut state);
        self.base.states.push(state);
    }

    fn put(&mut self, n: usize, key: String, value: String) {
        self.keyspaces[n].put(&key, &value).expect("in-memory write");
        self.wrote(|state| _ = state[n].insert(key.into(), value.into()));
    }

    fn fill(&mut self, n: usize, numbers: Range<u32>) {
        for i in numbers {
            self.put(n, format!("key {:03}", i * 7 % 101), format!("value {i} ").repeat(4));
        }
    }

    fn flush(&mut self) {
        self.base.earlier.extend(self.files());
        self.db.flush().expect("in-memory write");
        // Obsolete logs are removed in the background; the files must be the same each time.
        let since = std::time::Instant::now();
        while self.files().keys().filter(|name| Kind::of(name) == Kind::Log).count() > 1 {
            assert!(since.elapsed().as_secs() < 60, "obsolete logs are not removed");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn files(&self) -> Files {
        let names = self.fs.list(Path::new("db")).expect("it is there");
        let files = names.into_iter().filter(|name| name != "LOCK").filter_map(|name| {
            // `None` if the file is being removed.
            let bytes = read_file(&self.fs, &Path::new("db").join(&name)).ok()?;
            Some((name, bytes))
        });
        files.collect()
    }
}

impl Base {
    /// Returns the same base on every call.
    fn get() -> &'static Base {
        static BASE: OnceLock<Base> = OnceLock::new();
        BASE.get_or_init(Base::make)
    }

    fn make() -> Base {
        let mut made = Making::new();
        made.fill(0, 0..60);
        made.flush();
        made.db.compact().expect("in-memory write");
        made.fill(0, 40..90);
        made.fill(1, 0..20);
        made.flush();
        made.fill(0, 90..110);
        made.fill(1, 20..30);
        made.keyspaces[0].delete_range("key 010".."key 020").expect("in-memory write");
        made.wrote(|state| state[0].retain(|key, _| !(&b"key 010"[..]..&b"key 020"[..]).contains(&&key[..])));
        made.keyspaces[0].delete("key 050").expect("in-memory write");
        made.wrote(|state| _ = state[0].remove(&b"key 050"[..]));
        made.flush();
        (0..8).for_each(|i| made.put(i % 2, format!("late {i}"), format!("value {i}")));
        made.db.sync().expect("in-memory write");
        // Taken while the database is open, as after a crash.
        made.base.files = made.files();
        made.base.earlier.retain(|(name, bytes)| made.base.files.get(name) != Some(bytes));
        made.base
    }
}

/// The damage done to the files.
#[derive(Clone, Copy, Default)]
struct Damage {
    /// Something other than a table is damaged: writes may then be missing.
    beyond_tables: bool,
    /// Checksums were corrected, so that damage is indistinguishable from data.
    resealed: bool,
    /// Damaged parts were left out.
    salvaged: bool,
}

impl Damage {
    /// Returns the states that reads may show, if they are known.
    fn shown(self, base: &Base) -> Option<Vec<&State>> {
        match self {
            Damage { resealed: true, .. } | Damage { salvaged: true, .. } => None,
            // Logs and manifests may end earlier than they did, which loses writes, but only the
            // last ones.
            Damage { beyond_tables: true, .. } => Some(base.states.iter().collect()),
            _ => Some(base.states.last().into_iter().collect()),
        }
    }
}

/// Damages the files of a small database by a list of edits, each of a file's number, an action, a
/// place and a byte. The first byte decides whether checksums are corrected afterwards. Bytes are
/// changed; files are cut, exchanged, copied, renumbered, removed, and replaced by earlier
/// contents.
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
        damage.beyond_tables |= edit(&mut files, base, name, what, place, byte);
    }
    if damage.resealed {
        for (name, bytes) in &mut files {
            match Kind::of(name) {
                Kind::Table => *bytes = reseal::table(bytes, false),
                Kind::Log | Kind::Manifest => *bytes = reseal::log(bytes),
                Kind::Other => {}
            }
        }
    }
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let options = Options { read_mode: mode, ..options(&restored(&files)) };
        if let Ok(db) = options.open_read_only("db") {
            examine(&db, base, &damage);
        }
    }
    for salvage in [false, true] {
        let fs = restored(&files);
        let options = || options(&fs);
        if salvage && tamis_doctor::salvage("db", options(), false).is_err() {
            continue;
        }
        let Ok(db) = options().open("db") else { continue };
        let damage = Damage { salvaged: salvage, ..damage };
        examine(&db, base, &damage);
        db.put("new", "value").expect("an open database takes a write");
        db.close().expect("in-memory write");
        let db = options().open("db").expect("a database that was opened and closed opens again");
        let read = db.get("new").map(|value| value.map(|value| value.to_vec()));
        assert!(matches!(read.as_ref().map(Option::as_deref), Ok(Some(b"value")) | Err(_)), "{read:?}");
    }
}

/// Damages the file `name`. Returns whether anything other than tables was damaged.
fn edit(files: &mut Files, base: &Base, name: &str, what: u8, place: usize, byte: u8) -> bool {
    let is_table = |name: &str| Kind::of(name) == Kind::Table;
    let other =
        base.files.keys().nth(usize::from(byte) % base.files.len()).expect("below the number of files");
    match what % 16 {
        what @ 0..=7 => {
            if let Some(bytes) = files.get_mut(name).filter(|bytes| !bytes.is_empty()) {
                let at = place % bytes.len();
                match what {
                    0..=2 => bytes[at] ^= byte.max(1),
                    3 => bytes[at] = byte,
                    4 => bytes.truncate(at),
                    5 => bytes.extend(std::iter::repeat_n(byte, 1 + place % 64)),
                    6 => bytes[at..].iter_mut().take(8).for_each(|b| *b = byte),
                    _ => _ = files.remove(name),
                }
            }
        }
        // Exchanged with another file.
        8 => {
            let (mine, others) = (files.remove(name), files.remove(other));
            files.extend(mine.map(|bytes| (other.clone(), bytes)));
            files.extend(others.map(|bytes| (name.to_owned(), bytes)));
            return !(is_table(name) && is_table(other));
        }
        9 => {
            if let Some(bytes) = files.get(other).cloned() {
                files.insert(name.to_owned(), bytes);
            }
        }
        // Moved or copied to another number.
        what @ (10 | 11) => {
            let number = place % 64;
            let to = match Kind::of(name) {
                Kind::Table => format!("{number:06}.tam"),
                Kind::Log => format!("{number:06}.log"),
                Kind::Manifest | Kind::Other => format!("MANIFEST-{number:06}"),
            };
            let bytes = if what == 10 { files.remove(name) } else { files.get(name).cloned() };
            files.extend(bytes.map(|bytes| (to, bytes)));
        }
        // Restored to its own earlier contents, or another file to its.
        what @ (12 | 13) => {
            let known: Vec<_> =
                base.earlier.iter().filter(|(known, _)| what == 13 || known == name).collect();
            if let Some((known, bytes)) = known.get(place % known.len().max(1)) {
                files.insert(known.clone(), bytes.clone());
                return !is_table(known);
            }
        }
        14 => files.get_mut(name).into_iter().for_each(Vec::clear),
        _ => {
            if let Some(bytes) = files.get_mut(name) {
                let at = place.min(bytes.len());
                bytes[at..].iter_mut().take(usize::from(byte) * 16).for_each(|byte| *byte = 0);
            }
        }
    }
    !is_table(name)
}

fn restored(files: &Files) -> MemFs {
    let fs = crate::empty_fs();
    for (name, bytes) in files {
        put(&fs, &Path::new("db").join(name), bytes);
    }
    fs
}

/// Reads everything, in every way. All answers after one opening must belong to one state.
fn examine(db: &Db, base: &Base, damage: &Damage) {
    let mut shown = damage.shown(base);
    check_keyspace(db.default_keyspace(), 0, base, &mut shown);
    match db.keyspace(SECOND) {
        Ok(second) => check_keyspace(&second, 1, base, &mut shown),
        Err(_) => retain(&mut shown, "the second keyspace is gone", |state| state[1].is_empty()),
    }
    let _ = (db.verify(), db.stats());
}

/// Retains the states that agree with an answer; there must be one.
fn retain(shown: &mut Option<Vec<&State>>, what: &str, agrees: impl Fn(&State) -> bool) {
    if let Some(states) = shown {
        states.retain(|state| agrees(state));
        assert!(!states.is_empty(), "no state agrees: {what}");
    }
}

fn check_keyspace(keyspace: &Keyspace, n: usize, base: &Base, shown: &mut Option<Vec<&State>>) {
    let all = base.states.iter().flat_map(|state| state[n].keys()).map(|key| &key[..]);
    let wanted: BTreeSet<&[u8]> = all.chain([&b"key 015"[..], b"key 050", b"none"]).collect();
    let wanted: Vec<&[u8]> = wanted.into_iter().collect();
    let value_in = |state: &State, key: &[u8]| state[n].get(key).cloned();
    for key in &wanted {
        let (found, contained) = (keyspace.get(key), keyspace.contains_key(key));
        let _ = keyspace.explain_get(key);
        if let Ok(found) = found {
            let found = found.map(|value| value.to_vec());
            retain(shown, "a value", |state| value_in(state, key) == found);
        }
        if let Ok(contained) = contained {
            retain(shown, "a key", |state| state[n].contains_key(*key) == contained);
        }
    }
    if let Ok(found) = keyspace.multi_get(&wanted) {
        let found: Vec<_> = found.iter().map(|value| value.as_ref().map(|value| value.to_vec())).collect();
        retain(shown, "many values", |state| wanted.iter().map(|key| value_in(state, key)).eq(found.clone()));
    }
    let (there, whole) = pairs(keyspace.iter());
    retain(shown, "pairs", |state| agrees(state[n].iter(), &there, whole));
    let (back, whole) = pairs(keyspace.iter().rev());
    retain(shown, "pairs backwards", |state| agrees(state[n].iter().rev(), &back, whole));
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the pairs up to the first error, and whether there was none.
fn pairs(iter: impl Iterator<Item = Result<(Slice, Slice), ReadError>>) -> (Pairs, bool) {
    let mut pairs = Pairs::new();
    for item in iter.take(10_000) {
        match item {
            Ok((key, value)) => pairs.push((key.to_vec(), value.to_vec())),
            Err(_) => return (pairs, false),
        }
    }
    (pairs, true)
}

fn agrees<'a>(
    mut state: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    pairs: &Pairs,
    whole: bool,
) -> bool {
    pairs.iter().all(|(key, value)| state.next() == Some((key, value))) && (!whole || state.next().is_none())
}
