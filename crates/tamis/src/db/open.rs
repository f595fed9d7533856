//! Opening: lock, manifest, tables, logs, and the first commit of the new session.

use crate::clock::SystemClock;
use crate::collections::{HashMap, HashSet};
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tamis_filter::Digest;

use crate::db::begin::{Flushed, NotBegun, Pending};
use crate::db::catalogue::{Catalogue, FileNumbers};
use crate::db::commit::{Committer, insert};
use crate::db::counters::WriteCounters;
use crate::db::elastic::Elastic;
use crate::db::expiry::{Age, Expiry};
use crate::db::filters::FilterUpkeep;
use crate::db::for_reads::ReadDebts;
use crate::db::health::{Health, Warnings};
use crate::db::history::History;
use crate::db::images::FilterFiles;
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::db::jobs::Background;
use crate::db::log::{Log, LogFiles, LogParts};
use crate::db::monitor::Monitor;
use crate::db::replay::{Replayed, replay};
use crate::db::reserve::Reserve;
use crate::db::reshape::Reshaping;
use crate::db::room::Room;
use crate::db::salvage::{self, Salvage, SalvageReport};
use crate::db::scheduler::Scheduler;
use crate::db::throttle::Throttle;
use crate::db::tune;
use crate::error::{OpenError, StorageError, WriteError};
use crate::hotness::Sampler;
use crate::ids::{DEFAULT_KEYSPACE, KeyspaceId, LogId, TableId};
use crate::io::batch::BatchReader;
use crate::io::{DirectFs, DiskFs, FileSystem};
use crate::key::{MAX_SEQNO, SeqNo};
use crate::operators::{Names, Unregistered};
use crate::options::{AsyncReads, Incompatible, KeyspaceOptions, OnDamage, Options, ReadMode, incompatible};
use crate::read::AllReads;
use crate::read::{MemtableSlot, Memtables};
use crate::select::TreeFilter;
use crate::table::OpenFiles;
use crate::table::ReaderConfig;
use crate::tree::edit::{NUMBER_LIMIT, VersionEdit};
use crate::tree::files::{FileKind, lock_path, log_path, manifest_path, parse};
use crate::tree::manifest::{LoadedManifest, Manifest};
use crate::tree::open_table::{Garbage, OpenTable};
use crate::tree::state::{KeyspaceState, ManifestState};
use crate::tree::version::Version;
use crate::wal::End;

/// The name of the keyspace that always exists.
pub(crate) const DEFAULT_NAME: &str = "default";

static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// Returns the file system that the options name.
pub(crate) fn file_system(options: &Options) -> Arc<dyn FileSystem> {
    match (&options.file_system, options.read_mode) {
        (Some(fs), _) => fs.clone(),
        (None, ReadMode::Mapped) => Arc::new(DiskFs::new()),
        (None, ReadMode::Buffered) => Arc::new(DiskFs::without_mapping()),
        (None, ReadMode::Direct) => Arc::new(DirectFs::new()),
    }
}

/// Returns the reader that overlaps block reads, if the options enable it.
fn overlapping_reads(options: &Options, warnings: &mut Vec<String>) -> Option<Arc<BatchReader>> {
    let depth = options.read_queue_depth;
    if options.read_mode == ReadMode::Mapped || options.async_reads == AsyncReads::Off || depth < 2 {
        return None;
    }
    let reads = BatchReader::new(depth, options.async_reads != AsyncReads::Threads);
    if options.async_reads == AsyncReads::IoUring && reads.method() != "io-uring" {
        warnings.push("io_uring is unavailable here: block reads overlap using threads".to_owned());
    }
    Some(Arc::new(reads))
}

/// Opens or creates the database in `dir`; starts no threads.
pub(crate) fn open(dir: &Path, options: Options, read_only: bool) -> Result<Arc<DbInner>, OpenError> {
    options.check()?;
    let open_files = Arc::new(OpenFiles::new(file_system(&options), options.max_open_files));
    let fs: Arc<dyn FileSystem> = open_files.clone();
    let io = |operation, path: &Path, e: std::io::Error| StorageError::io(operation, path, e);
    let lock = if read_only {
        None
    } else {
        let exists = fs.exists(&crate::tree::files::current_path(dir)).map_err(|e| io("look for", dir, e))?
            || options.salvage && holds_data(&*fs, dir)?;
        if exists && options.error_if_exists {
            return Err(OpenError::Exists { path: dir.to_owned() });
        }
        if !exists && !options.create_if_missing {
            return Err(OpenError::NotFound { path: dir.to_owned() });
        }
        if !exists {
            create_dir_durably(&*fs, dir)?;
        }
        let path = lock_path(dir);
        let lock = fs.lock(&path).map_err(|e| io("lock", &path, e))?;
        Some(lock.ok_or_else(|| locked(&*fs, path))?)
    };
    let mut warnings = Vec::new();
    let salvage = if options.salvage { salvage::prepare(&*fs, dir, &options)? } else { None };
    let loaded = match &salvage {
        Some(salvage) => {
            warnings.extend(salvage.warnings());
            let (state, number) = (salvage.tree.clone(), salvage.number);
            Some(LoadedManifest {
                state,
                number,
                end: salvage.end.clone().unwrap_or(End::Clean { offset: 0 }),
            })
        }
        None => Manifest::open(&*fs, dir).map_err(|error| salvage::explain(&*fs, dir, error))?,
    };
    let (mut tree, manifest_number, manifest_end) = match loaded {
        Some(LoadedManifest { state, number, end }) => {
            if let End::Torn { offset } = &end {
                let path = manifest_path(dir, number);
                warnings.push(format!("{}: cut at offset {offset}: the last edit is torn", path.display()));
            }
            check_state(&state)
                .map_err(|what| StorageError::corrupt(&manifest_path(dir, number), None, what))?;
            (state, number, Some(end))
        }
        None if read_only => return Err(OpenError::NotFound { path: dir.to_owned() }),
        None => {
            refuse_headless(&*fs, dir)?;
            (ManifestState::new(DEFAULT_NAME, &options.keyspace.to_text()), 0, None)
        }
    };

    let mut options = options;
    if options.operators.accepts_unknown() && options.keyspace.merge_operator.is_none() {
        let stored = KeyspaceOptions::from_stored(&tree.keyspaces[&DEFAULT_KEYSPACE].options)?;
        options.keyspace.merge_operator = stored.merge_operator;
    }
    let declared = options.keyspace.workload;
    let begun = tune::at_opening(dir, &mut options, &mut tree, read_only);
    let read_counters = Arc::new(AllReads::default());
    let (elastic, cache) = Elastic::new(&options, dir, &read_counters);
    let cache = Some(cache);
    let reader_config = ReaderConfig {
        map: options.read_mode == ReadMode::Mapped,
        verify: options.verify_checksums,
        cache: cache.clone(),
        pin_metadata: options.pin_metadata,
        reads: overlapping_reads(&options, &mut warnings),
        files: Some(open_files),
    };
    let garbage = Arc::<Garbage>::default();
    let names = fs.list(dir).map_err(|e| io("list", dir, e))?;
    let files: Vec<(String, FileKind)> =
        names.into_iter().filter_map(|name| parse(&name).map(|kind| (name, kind))).collect();
    let largest = files.iter().map(|(name, kind)| match *kind {
        FileKind::Table(number)
        | FileKind::Log(number)
        | FileKind::Filter(number)
        | FileKind::Manifest(number) => (number, &name[..]),
        _ => (0, ""),
    });
    let (largest, name) = largest.max().unwrap_or((0, ""));
    if largest >= NUMBER_LIMIT / 2 {
        // The number of the next file would have to be larger.
        let what = "its number is one that no database reaches";
        return Err(StorageError::corrupt(&dir.join(name), None, what).into());
    }

    let mut keyspaces: BTreeMap<KeyspaceId, Arc<KeyspaceInner>> = BTreeMap::new();
    let opening = Opening {
        fs: &*fs,
        dir,
        options: &options,
        read_only,
        config: &reader_config,
        garbage: &garbage,
        sampler: &elastic.sampler,
        reads: &read_counters,
    };
    for (&id, stored) in &tree.keyspaces {
        let opened = open_keyspace(&opening, id, stored, &mut warnings);
        let mut keyspace =
            opened.map_err(|error| salvage::explain_missing(&files, manifest_number, &tree, dir, error))?;
        keyspace.age = Age::new(&keyspace.options, stored.ages, tree.last_seq);
        // The stored workload was declared once, or was seen; a workload seen now takes precedence.
        keyspace.declared = declared.filter(|_| id == DEFAULT_KEYSPACE);
        keyspaces.insert(id, Arc::new(keyspace));
    }

    let floor = tree.log_floor();
    let logs = files.iter().filter_map(|(_, kind)| match *kind {
        FileKind::Log(id) if id >= floor => Some(id),
        _ => None,
    });
    let unreadable = |id: &LogId| salvage.as_ref().is_some_and(|salvage| salvage.unreadable.contains(id));
    let logs = logs.filter(|id| !unreadable(id));
    let mut logs: Vec<LogId> = logs.collect();
    logs.sort_unstable();
    if floor > 0 && logs.first() != Some(&floor) && !salvage.as_ref().is_some_and(Salvage::has_rebuilt) {
        let missing = log_path(dir, floor);
        let error =
            StorageError::corrupt(&missing, None, "the log is missing, and writes in it are in no table");
        if !options.salvage {
            return Err(salvage::explain_missing(&files, manifest_number, &tree, dir, error.into()));
        }
        warnings.push(error.to_string());
    }

    let lacks_operators = keyspaces.values().any(|keyspace| keyspace.operators.missing.is_some());
    let write_counters = Arc::<WriteCounters>::default();
    let health = Arc::new(Health::new(dir, read_only, &write_counters));
    let numbers = Arc::new(FileNumbers::from(tree.next_file.max(largest + 1)));
    let room = Arc::<Room>::default();
    let committer = Arc::new(Committer::new(tree.last_seq));
    let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock));
    let expiry = Expiry::new(tree.times.clone(), clock, &committer);
    let open_warnings = Arc::new(Warnings::new(dir));
    let reserve = Reserve::new(dir.to_owned(), &fs, &options, &room, &write_counters, &open_warnings);
    let filter_files = Arc::new(FilterFiles::new(dir.to_owned(), &fs, &garbage, &open_warnings, read_only));
    let catalogue = Catalogue::new(
        (dir.to_owned(), &fs),
        &garbage,
        &numbers,
        &health,
        &filter_files,
        (tree, manifest_number),
        keyspaces,
    );
    let directory = catalogue.published();
    let state = State {
        catalogue,
        scheduler: Scheduler::default(),
        filters: FilterUpkeep::new(!read_only),
        reshaping: Reshaping::having_seen(begun.seen),
        read_debts: ReadDebts::new(),
        logs: LogFiles::default(),
        closing: false,
    };
    let monitor = Arc::new(Monitor::new(state, &health));
    let parts = LogParts {
        fs: &fs,
        garbage: &garbage,
        numbers: &numbers,
        monitor: &monitor,
        health: &health,
        room: &room,
        counters: &write_counters,
    };
    let log = Log::new(dir.to_owned(), &options, parts);

    let inner = DbInner {
        dir: dir.to_owned(),
        read_only,
        lacks_operators,
        instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
        cache,
        reader_config,
        garbage,
        committer,
        snapshots: Mutex::default(),
        salvaged: Mutex::default(),
        expiry,
        history: History::new(options.transaction_history_bytes),
        locks: Default::default(),
        prepared: Default::default(),
        reserve,
        beginning: Default::default(),
        numbers,
        directory,
        throttle: Throttle::new(&options, &monitor, &health, &write_counters),
        log,
        monitor,
        health,
        room,
        warnings: open_warnings,
        decisions: Mutex::new(begun.decisions.into()),
        read_counters,
        write_counters,
        background: Background::new(&options),
        scrub: Default::default(),
        filter_files,
        elastic,
        lock: Mutex::new(lock),
        fs,
        options,
    };
    warnings.into_iter().for_each(|warning| inner.warn(warning));
    inner.directory.load().values().for_each(|keyspace| inner.warn_of_filter(keyspace));
    {
        let state = inner.state();
        let views: Vec<_> =
            state.catalogue.keyspaces().values().map(|keyspace| keyspace.view.load_full()).collect();
        let stored = |id| state.catalogue.tree().hotness(id);
        inner.elastic.opened(views.iter().map(|view| &**view), stored);
    }
    inner.expiry.configure(inner.directory.load().values().map(|keyspace| &**keyspace));
    if !read_only {
        inner.reserve.find();
    }
    let found = Found { logs: &logs, files, manifest_end: manifest_end.as_ref(), salvage };
    recover(&inner, found)?;
    Ok(Arc::new(inner))
}

/// Returns the error of a lock that is held, and says by whom.
pub(crate) fn locked(fs: &dyn FileSystem, path: PathBuf) -> OpenError {
    match fs.is_locked_here(&path) {
        Ok(true) => OpenError::OpenHere { path },
        _ => OpenError::Locked { path },
    }
}

/// The state shared by the keyspaces of a database that is being opened.
struct Opening<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
    options: &'a Options,
    read_only: bool,
    config: &'a ReaderConfig,
    garbage: &'a Arc<Garbage>,
    sampler: &'a Arc<Sampler>,
    reads: &'a AllReads,
}

/// Reports whether the reason that a table could not be opened is permanent: it is damaged, missing, or on an unreadable part
/// of the device. A lack of system resources (memory, file descriptors) is not.
pub(crate) fn is_lasting(error: &StorageError) -> bool {
    use std::io::ErrorKind;
    match error {
        StorageError::Corrupt(_) => true,
        StorageError::Io(e) => {
            matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) || e.is_device_error()
        }
    }
}

fn open_keyspace(
    opening: &Opening<'_>,
    id: KeyspaceId,
    stored: &KeyspaceState,
    warnings: &mut Vec<String>,
) -> Result<KeyspaceInner, OpenError> {
    let &Opening { fs, dir, options: database, read_only, config, garbage, sampler, reads } = opening;
    let stored_options = KeyspaceOptions::from_stored(&stored.options)?;
    let options = if id == DEFAULT_KEYSPACE { database.keyspace.clone() } else { stored_options.clone() };
    let deepest = stored.runs.keys().map(|(level, _)| *level as usize).max().unwrap_or(0);
    if let Some(Incompatible { name, stored, asked, advice }) =
        incompatible(&stored_options, &options, deepest)
    {
        return Err(OpenError::Incompatible { name, stored, asked, advice });
    }
    let lenient = database.operators.accepts_unknown();
    let look_up = |names| match lenient {
        true => database.operators.look_up(names),
        false => database.operators.resolve(names),
    };
    let mut operators = look_up(options.operators());
    if let Err(Unregistered { option: "filter", name }) = &operators
        && (id != DEFAULT_KEYSPACE || lenient)
    {
        // The opener has no say in these options, or accepts any; and reads are right without a filter.
        let keyspace = &stored.name;
        warnings.push(format!(
            "keyspace `{keyspace}` is read without a filter: its filter `{name}` is not registered with the options"
        ));
        operators = look_up(Names { selector: None, ..options.operators() });
    }
    let operators = operators.map_err(|Unregistered { option, name }| OpenError::Unregistered {
        keyspace: stored.name.clone(),
        option,
        name,
    })?;
    if let Some(Unregistered { option, name }) = &operators.missing {
        let keyspace = &stored.name;
        warnings.push(format!(
            "keyspace `{keyspace}` takes no writes: its option `{option} = {name}` names an operator that this program does not have"
        ));
    }
    let mut tables: HashMap<TableId, Arc<OpenTable>> = HashMap::default();
    for meta in stored.tables() {
        let meta = Arc::new(meta.clone());
        let table = match OpenTable::open(fs, dir, meta.clone(), config, garbage) {
            Err(why) if database.on_damage == OnDamage::Quarantine && is_lasting(&why) => {
                warnings
                    .push(format!("table {} of keyspace `{}` is quarantined: {why}", meta.id, stored.name));
                OpenTable::lost(dir, meta.clone(), why, garbage)
            }
            opened => opened?,
        };
        tables.insert(meta.id, table);
    }
    let filter = TreeFilter::new(&options, database, read_only, sampler, &operators);
    let version = Version::build(stored, |id| tables[&id].clone());
    filter.open(&version.tables);
    let reads = reads.counters(filter.queries().cloned());
    Ok(KeyspaceInner::with_version(id, &stored.name, options, operators, filter, version, reads))
}

/// Checks what every database must satisfy besides what its edits are checked for: it has the default keyspace, and numbers
/// left to assign. Numbers start at 1 and are used one by one, so in a sound database none comes near half of its range; one
/// at the end would make the database write what it refuses to read.
pub(crate) fn check_state(tree: &ManifestState) -> Result<(), &'static str> {
    if !tree.keyspaces.contains_key(&DEFAULT_KEYSPACE) {
        return Err("it lacks the default keyspace");
    }
    let numbers = [tree.next_file, tree.next_run];
    let epochs = tree.keyspaces.values().map(|keyspace| keyspace.next_epoch);
    let keyspaces_left = tree.next_keyspace <= KeyspaceId::MAX / 2;
    if numbers.into_iter().chain(epochs).any(|number| number > NUMBER_LIMIT / 2) || !keyspaces_left {
        return Err("a counter has a value that no database reaches");
    }
    if tree.keyspaces.values().any(|keyspace| keyspace.log_floor > tree.next_file) {
        // The logs of this session would be below the floor, and the next session would ignore them.
        return Err("a keyspace has its writes in logs that were never created");
    }
    let ages = tree.keyspaces.values().filter_map(|keyspace| keyspace.ages);
    let newest = tree.times.newest().map_or(0, |sample| sample.seq);
    if ages.map(|ages| ages.since.max(ages.expired)).chain([newest]).any(|seq| seq > tree.last_seq) {
        // Writes of this session would expire before they are made.
        return Err("it knows the age of writes that were never made");
    }
    check_last_seq(tree.last_seq)
}

fn check_last_seq(last_seq: SeqNo) -> Result<(), &'static str> {
    match last_seq <= MAX_SEQNO / 2 {
        true => Ok(()),
        false => Err("it holds a sequence number that no database reaches"),
    }
}

/// Reports whether there are files, other than `CURRENT`, that only a database has.
pub(crate) fn holds_data(fs: &dyn FileSystem, dir: &Path) -> Result<bool, StorageError> {
    if !fs.exists(dir).map_err(|e| StorageError::io("look for", dir, e))? {
        return Ok(false);
    }
    let names = fs.list(dir).map_err(|e| StorageError::io("list", dir, e))?;
    let data = |name: &String| {
        matches!(parse(name), Some(FileKind::Table(_) | FileKind::Log(_) | FileKind::Manifest(_)))
    };
    Ok(names.iter().any(data))
}

/// Refuses to treat a directory that has lost its `CURRENT` as empty: a new database names its manifest before it makes its
/// first log or table.
fn refuse_headless(fs: &dyn FileSystem, dir: &Path) -> Result<(), OpenError> {
    let names = fs.list(dir).map_err(|e| StorageError::io("list", dir, e))?;
    let data = |name: &&String| matches!(parse(name), Some(FileKind::Table(_) | FileKind::Log(_)));
    match names.iter().find(data) {
        None => Ok(()),
        Some(name) => {
            let what = format!("it is missing although there is data ({name})");
            let error = StorageError::corrupt(&crate::tree::files::current_path(dir), None, what);
            Err(salvage::explain(fs, dir, error.into()))
        }
    }
}

/// Creates a directory and its missing parents, and makes all of their names durable.
pub(crate) fn create_dir_durably(fs: &dyn FileSystem, dir: &Path) -> Result<(), StorageError> {
    let mut made = Vec::new();
    for dir in dir.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        if fs.exists(dir).map_err(|e| StorageError::io("look for", dir, e))? {
            break;
        }
        made.push(dir);
    }
    fs.create_dir_all(dir).map_err(|e| StorageError::io("create", dir, e))?;
    // The directory itself always: an interrupted attempt may have created it without syncing its name.
    if made.is_empty() {
        made.push(dir);
    }
    made.iter().try_for_each(|dir| sync_parent(fs, dir))
}

/// Makes the name of a directory durable in its parent.
fn sync_parent(fs: &dyn FileSystem, dir: &Path) -> Result<(), StorageError> {
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs.sync_dir(parent).map_err(|e| StorageError::io("sync", parent, e))
}

/// Replays the logs into memtables; a writable database then flushes them and starts its own log, in one step, so that a
/// crash during recovery changes nothing. On a full disk that step is left for later.
fn recover(db: &DbInner, found: Found<'_>) -> Result<(), OpenError> {
    let Found { logs, files, manifest_end, salvage } = found;
    let rebuilt = salvage.as_ref().is_some_and(Salvage::has_rebuilt);
    let none = HashMap::default();
    let covered = salvage.as_ref().map_or(&none, |salvage| &salvage.covered);
    let has_tables = files.iter().any(|(_, kind)| matches!(kind, FileKind::Table(_)));
    let (known, floor) = {
        let state = db.state();
        let tree = state.catalogue.tree();
        (tree.last_seq, tree.log_floor())
    };
    // Salvage sets files aside and leaves tables out, which must not be done halfway.
    let may_wait = !db.read_only && !db.options.salvage && db.state().catalogue.manifest_number() > 0;
    let full = |e: &StorageError| may_wait && e.is_out_of_space();
    let mut flushed = Flushed::default();
    let mut has_room = true;
    let replayed = match replay_into_memtables(db, logs, covered, (!db.read_only).then_some(&mut flushed)) {
        Err(OpenError::Storage(error)) if full(&error) => {
            has_room = false;
            std::mem::take(&mut flushed).discard(db);
            replay_into_memtables(db, logs, covered, None)?
        }
        replayed => replayed?,
    };
    if floor == 0 && (has_tables || replayed.last_seq > 0) && !rebuilt {
        let manifest = manifest_path(&db.dir, db.state().catalogue.manifest_number());
        doubt(db, StorageError::corrupt(&manifest, None, "its edits are missing"))?;
    }
    if let Some(error) = wrong_end(db, logs, &replayed, known, manifest_end).filter(|_| !rebuilt) {
        doubt(db, error)?;
    }
    replayed.warnings.into_iter().for_each(|warning| db.warn(warning));
    check_last_seq(replayed.last_seq).map_err(|what| {
        StorageError::corrupt(&log_path(&db.dir, logs.last().copied().unwrap_or(0)), None, what)
    })?;
    let last_seq = replayed.last_seq.max(db.visible());
    db.committer.publish(last_seq);
    // The contents of the logs were written before this moment; nothing more is known.
    db.expiry.note_visible();
    if let Some(salvage) = &salvage {
        *db.salvaged.lock() = Some(salvage.report.clone());
    }
    if db.read_only {
        return note_logs(db, logs);
    }
    let preserved = match &salvage {
        Some(salvage) => salvage.preserve(&*db.fs, &db.dir)?,
        None => HashMap::default(),
    };
    if db.state().catalogue.manifest_number() == 0 {
        begin_new(db)?;
        return remove_leftovers(db, &files, &preserved);
    }
    let mut pending = Pending::default();
    pending.empty_log = logs.last().copied().filter(|_| replayed.last_empty);
    if has_room {
        let in_tables = !flushed.is_empty();
        match db.begin(&mut pending, flushed) {
            Ok(()) => {
                db.write_options()?;
                return remove_leftovers(db, &files, &preserved);
            }
            // The tables are gone, and so are their memtables.
            Err(NotBegun::Unchanged(error)) if full(&error) && in_tables => {
                replay_into_memtables(db, logs, covered, None)?;
            }
            Err(NotBegun::Unchanged(error)) if full(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Everything is in memory now, and the manifest in force is whole: files that it does not name may be removed, to free room.
    note_logs(db, logs)?;
    db.state().logs.wait_at(floor);
    remove_leftovers(db, &files, &preserved)?;
    match db.begin(&mut pending, Flushed::default()) {
        Ok(()) => {
            db.write_options()?;
            remove_leftovers(db, &files, &preserved)
        }
        Err(NotBegun::Unchanged(error)) if full(&error) => {
            // Nothing becomes a table for now. Even so, the data shown survives a power failure, as after any opening.
            let manifest = manifest_path(&db.dir, db.state().catalogue.manifest_number());
            let mut shown = logs.iter().map(|&id| log_path(&db.dir, id)).chain([manifest]);
            let synced = shown.try_for_each(|path| db.fs.sync_file(&path));
            if let Err(e) = synced.and_then(|()| db.fs.sync_dir(&db.dir)) {
                db.warn(format!(
                    "the data shown could not be synced, and a power failure may lose what was not synced before: {e}"
                ));
            }
            pending.files = files;
            db.wait_for_room(pending, error);
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The state that an opening found.
struct Found<'a> {
    /// The logs that are still needed.
    logs: &'a [LogId],
    files: Vec<(String, FileKind)>,
    manifest_end: Option<&'a End>,
    salvage: Option<Salvage>,
}

/// Records the logs that were read as part of the state shown: `verify` reads them again, `stats` counts them.
fn note_logs(db: &DbInner, logs: &[LogId]) -> Result<(), OpenError> {
    for &id in logs {
        let path = log_path(&db.dir, id);
        let bytes = db.fs.file_len(&path).map_err(|e| StorageError::io("read", &path, e))?;
        db.log.note_found(&mut db.state().logs, id, bytes);
    }
    Ok(())
}

/// Replays the logs into fresh memtables. Full memtables become tables if possible; a reader, or a writer without room, keeps
/// everything in memory.
fn replay_into_memtables(
    db: &DbInner,
    logs: &[LogId],
    covered: &HashMap<KeyspaceId, SeqNo>,
    mut flushed: Option<&mut Flushed>,
) -> Result<Replayed, OpenError> {
    let (floors, next_keyspace): (HashMap<KeyspaceId, LogId>, _) = {
        let state = db.state();
        (
            state.catalogue.tree().keyspaces.iter().map(|(&id, ks)| (id, ks.log_floor)).collect(),
            state.catalogue.tree().next_keyspace,
        )
    };
    let salvage = db.options.salvage;
    let keyspaces = db.directory.load_full();
    let empty = |keyspace: &KeyspaceInner| {
        let memtables = Memtables::new(keyspace.fresh_memtable(0));
        keyspace.replace_memtables(memtables);
    };
    let used = |ks: &&Arc<KeyspaceInner>| !ks.view.load().memtables.active.memtable.is_empty();
    keyspaces.values().filter(used).for_each(|keyspace| empty(keyspace));
    replay(&*db.fs, &db.dir, logs, salvage, |log, seq, op| {
        let id = op.keyspace();
        // A reader without the lock may see writes to a keyspace created in the meantime.
        if id >= next_keyspace && !salvage && !db.read_only {
            let what = format!("it holds a write to keyspace {id}, which is not in the manifest");
            return Err(StorageError::corrupt(&log_path(&db.dir, log), None, what).into());
        }
        let Some(keyspace) = keyspaces.get(&id).filter(|_| log >= floors.get(&id).copied().unwrap_or(0))
        else {
            return Ok(());
        };
        if covered.get(&id).is_some_and(|covered| seq <= *covered) {
            return Ok(());
        }
        let full =
            |slot: &MemtableSlot| slot.memtable.memory_bytes() as u64 >= keyspace.options.memtable_bytes;
        if let Some(flushed) = flushed.as_deref_mut().filter(|_| full(&keyspace.view.load().memtables.active))
        {
            db.flush_replayed(keyspace, flushed)?;
            empty(keyspace);
        }
        insert(&keyspace.view.load().memtables.active.memtable, op, op.key().map(Digest::of), seq);
        Ok(())
    })
}

/// Begins the first session of a new database. It names its manifest before it creates a log; in any later session, the old
/// logs get their successor while the old manifest is in force: see `wrong_end`.
fn begin_new(db: &DbInner) -> Result<(), StorageError> {
    let keyspaces = db.directory.load_full();
    let mut log = db.log.lock();
    let mut state = db.state();
    let id = db.numbers.take();
    state.catalogue.roll()?;
    drop(state);
    let first = db.log.create_first(id)?;
    let mut state = db.state();
    db.log.begin(&mut log, &mut state.logs, first, db.visible());
    let mut edit = VersionEdit::default();
    db.describe_session(&state, &keyspaces, id, &mut edit);
    db.commit_edit(&mut state, edit, Vec::new(), |_, _| unreachable!("no tables change"))?;
    drop(state);
    drop(log);
    db.write_options()
}

impl From<NotBegun> for OpenError {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::Unchanged(error) | NotBegun::Unknown(error) => error.into(),
            NotBegun::Stopped(error) => match error {
                WriteError::Storage(error) => error.into(),
                other => StorageError::io("begin in", Path::new(""), std::io::Error::other(other)).into(),
            },
        }
    }
}

impl DbInner {
    /// Removes the files found at opening that the session does not need.
    pub(crate) fn remove_unneeded(&self, files: &[(String, FileKind)]) {
        // Only salvage, which does not call this, can fail.
        let removed = remove_leftovers(self, files, &HashMap::default());
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
}

/// Returns damage as an error, or records it as a warning when salvaging.
fn doubt(db: &DbInner, error: StorageError) -> Result<(), OpenError> {
    if !db.options.salvage {
        return Err(error.into());
    }
    db.warn(error.to_string());
    Ok(())
}

/// Checks the ends of the manifest and the logs against each other, which the records alone cannot show. They are written in
/// a fixed order (see `Handle::shut_down`): a log other than the last is closed once its successor exists; the last log of a
/// session, if it holds anything, is closed once the manifest is; and the manifest records how far the logs go before it is
/// closed.
fn wrong_end(
    db: &DbInner,
    logs: &[LogId],
    replayed: &Replayed,
    known: SeqNo,
    manifest_end: Option<&End>,
) -> Option<StorageError> {
    let last = log_path(&db.dir, *logs.last()?);
    if let Some(End::Closed { .. }) = manifest_end {
        let last_seq = replayed.last_seq;
        if last_seq == known {
            return None;
        }
        // Without any record, everything is in tables, and the log was empty and was closed.
        if last_seq == 0 && replayed.any_closed && replayed.broken.is_none() {
            return None;
        }
        if let Some((log, offset, what)) = &replayed.broken {
            return Some(StorageError::corrupt(&log_path(&db.dir, *log), *offset, what.clone()));
        }
        let what =
            format!("the log ends with write {last_seq}, but the database was closed after write {known}");
        return Some(StorageError::corrupt(&last, None, what));
    }
    // A reader without the lock may have listed the files before the successor was created.
    if replayed.last_closed && !db.read_only {
        let manifest = manifest_path(&db.dir, db.state().catalogue.manifest_number());
        if let Some(End::Torn { offset }) = manifest_end {
            let what = "a record is damaged, though the database was closed";
            return Some(StorageError::corrupt(&manifest, *offset, what));
        }
        let manifest = manifest.display();
        let what =
            format!("it was finished, but neither a later log nor the closing record of {manifest} exists");
        return Some(StorageError::corrupt(&last, None, what));
    }
    None
}

/// Removes what a crash or an earlier session left behind: unfinished tables, replayed logs, old manifests. Salvage sets such
/// files aside instead; `preserved` files already have another name.
fn remove_leftovers(
    db: &DbInner,
    files: &[(String, FileKind)],
    preserved: &HashMap<PathBuf, PathBuf>,
) -> Result<(), OpenError> {
    let state = db.state();
    let tables: HashSet<u64> = state
        .catalogue
        .keyspaces()
        .values()
        .flat_map(|ks| ks.view.load().version.tables.clone())
        .map(|t| t.meta.id)
        .collect();
    let filter_files: HashSet<u64> = state
        .catalogue
        .tree()
        .keyspaces
        .values()
        .flat_map(|keyspace| keyspace.filter_files.keys().copied())
        .collect();
    let (mut unnamed, mut second_names) = (Vec::new(), Vec::new());
    for (name, kind) in files {
        let path = db.dir.join(name);
        let keep = match kind {
            FileKind::Table(id) => tables.contains(id),
            FileKind::Log(id) => *id >= state.logs.current(),
            FileKind::Manifest(number) => *number == state.catalogue.manifest_number(),
            FileKind::Filter(id) => filter_files.contains(id),
            FileKind::Temporary => false,
            FileKind::Current | FileKind::Lock | FileKind::Options | FileKind::Reserve => true,
        };
        let is_data = matches!(kind, FileKind::Table(_) | FileKind::Log(_) | FileKind::Manifest(_));
        match (keep, preserved.get(&path)) {
            // A log of this number may have been created again.
            (true, _) => {}
            (false, Some(second)) => {
                second_names.push((path.clone(), second.clone()));
                db.garbage.push(path);
            }
            // A file that a damaged manifest does not name may be all that is left of its data.
            (false, None) if db.options.salvage && is_data => unnamed.push(path),
            (false, None) => db.garbage.push(path),
        }
    }
    drop(state);
    for path in unnamed {
        let aside = salvage::free_name(&*db.fs, &path, ".aside")
            .map_err(|e| StorageError::io("look for", &path, e))?;
        db.fs.rename(&path, &aside).map_err(|e| StorageError::io("set aside", &path, e))?;
        second_names.push((path, aside));
    }
    // In an intact database, the new manifest and the tables hold everything that the old ones and the logs did.
    let needed = db.salvaged.lock().as_ref().is_some_and(SalvageReport::is_needed);
    let is_table = |path: &Path| path.extension().is_some_and(|extension| extension == "tam");
    second_names.retain(|(path, _)| needed || is_table(path));
    for (path, aside) in second_names {
        let (path, aside) = (path.display(), aside.display());
        db.warn(format!("{path} is not part of the salvaged database; it is kept as {aside}"));
    }
    db.garbage.remove_all(&*db.fs);
    Ok(())
}

#[cfg(test)]
mod tests;
