//! Opening: lock, manifest and tables. The logs, and the first commit of the new session, are in
//! `recover`.

pub(crate) mod background;
pub(crate) mod beside;
pub(crate) mod checkpoint;
pub(crate) mod close;
pub(crate) mod follow;

pub(crate) mod recover;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tamis_base::collections::HashMap;
use tamis_base::ids::{DEFAULT_KEYSPACE, KeyspaceId, LogId, TableId};
use tamis_base::key::SeqNo;
use tamis_base::meta::TableMeta;
use tamis_files::error::is_lasting;
use tamis_files::table::cache::BlockCache;
use tamis_files::table::{OpenFiles, ReaderConfig};
use tamis_files::tree::edit::NUMBER_LIMIT;
use tamis_files::tree::files::{FileKind, lock_path, log_path, manifest_path, parse};
use tamis_files::tree::found::check_state;
use tamis_files::tree::manifest::{LoadedManifest, Manifest};
use tamis_files::tree::place::{self, Place};
use tamis_files::tree::state::{KeyspaceState, ManifestState};
use tamis_files::wal::End;
use tamis_model::engine::Workload;

use crate::catalogue::age::EntryAges;
use crate::catalogue::filled::Filled;
use crate::catalogue::filter_files::FilterFiles;
use crate::catalogue::filter_upkeep::FilterUpkeep;
use crate::catalogue::keyspace::{KeyspaceInner, SharedParts};
use crate::catalogue::log_files::LogFiles;
use crate::catalogue::monitor::Monitor;
use crate::catalogue::progress::Background;
use crate::catalogue::read_debts::ReadDebts;
use crate::catalogue::reshaping::Reshaping;
use crate::catalogue::scheduler::Scheduler;
use crate::catalogue::state::State;
use crate::catalogue::stored_options::StoredOptions;
use crate::catalogue::{Catalogue, Directory, FileNumbers};
use crate::clock::SystemClock;
use crate::conflicts::history::History;
use crate::error::{OpenError, StorageError};
use crate::gate::Gate;
use crate::gate::reserve::Reserve;
use crate::gate::room::Room;
use crate::io::batch::BatchReader;
use crate::io::{DirLock, DirectFs, DiskFs, FileSystem};
use crate::jobs::tune;
use crate::log::{Log, LogParts};
use crate::memtable::ChunkPool;
use crate::observe::warnings::Warnings;
use crate::observe::write_counters::WriteCounters;
use crate::observe::{Observer, span};
use crate::open::recover::Found;
use crate::operators::{OperatorNames, Unregistered};
use crate::options::{
    AsyncReads, Incompatible, KeyspaceOptions, LogWrites, OnDamage, Options, ReadMode, incompatible,
};
use crate::read::{AllReads, Numbering};
use crate::records::RecordCache;
use crate::select::TreeFilter;
use crate::session::committer::Committer;
use crate::session::elastic::Elastic;
use crate::session::expiry::Expiry;
use crate::session::repair::{Plan, Repair, Repaired, explain, explain_missing};
use crate::session::throttle::{OwnMemtables, Throttle};
use crate::session::{Files, Lifecycle, Observed, OpenKeyspaces, Session, Space, Transactions};
use crate::sync::{Mutex, Process, thread};
use crate::tree::garbage::Garbage;
use crate::tree::open_table::OpenTable;
use crate::tree::version::Version;

/// The name of the keyspace that always exists.
pub const DEFAULT_NAME: &str = "default";

static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// Returns the file system that the options name.
pub fn file_system(options: &Options) -> Arc<dyn FileSystem> {
    let logs = match options.log_writes {
        LogWrites::Auto => options.read_mode == ReadMode::Mapped,
        LogWrites::Mapped => true,
        LogWrites::System => false,
    };
    match (&options.file_system, options.read_mode) {
        (Some(fs), _) => fs.clone(),
        (None, ReadMode::Mapped) => Arc::new(DiskFs::new().with_mapped_logs(logs)),
        (None, ReadMode::Buffered) => Arc::new(DiskFs::without_mapping().with_mapped_logs(logs)),
        (None, ReadMode::Direct) => Arc::new(DirectFs::new().with_mapped_logs(logs)),
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

/// Opens or creates the database in `dir` to be written to, as a repair makes it of a damaged one
/// if there is a `plan`; starts no background threads.
pub(crate) fn open(dir: &Path, options: Options, plan: Option<&Plan<'_>>) -> Result<Arc<Session>, OpenError> {
    let (session, found) = open_trees(dir, options, false, plan)?;
    recover::recover(&session, found)?;
    Ok(Arc::new(session))
}

/// Opens all but the logs, which are to be recovered or followed.
///
/// In stages: the directory and its lock; what its manifest says, or the repair; the keyspaces with
/// their tables; the logs that are needed; and the session made of all this.
fn open_trees(
    dir: &Path,
    mut options: Options,
    read_only: bool,
    plan: Option<&Plan<'_>>,
) -> Result<(Session, Found), OpenError> {
    span!("open", path = %dir.display(), read_only);
    options.check()?;
    refuse_empty(dir)?;
    Process::watch().map_err(|e| StorageError::io("watch for forks with", dir, e))?;
    let (open_files, lock) = enter(dir, &options, read_only, plan.is_some())?;
    let fs: Arc<dyn FileSystem> = open_files.clone();
    let mut warnings = Vec::new();
    let mut loaded = load(&*fs, dir, &options, read_only, plan, &mut warnings)?;
    if let Some(until) = options.recover_to {
        options.recover_to = Some(recover::cut(&*fs, dir, &mut loaded.tree, until)?);
    }
    if options.operators.accepts_unknown() && options.keyspace.merge_operator.is_none() {
        let stored = KeyspaceOptions::from_stored(&loaded.tree.keyspaces[&DEFAULT_KEYSPACE].options)?;
        options.keyspace.merge_operator = stored.merge_operator;
    }
    let declared = options.keyspace.workload;
    let begun = tune::at_opening(dir, &mut options, &mut loaded.tree, read_only);
    let observer = Observer::new(dir, &options.listeners, options.slow_operation_threshold);
    let read_counters = Arc::new(AllReads::new(&observer));
    let (elastic, cache, records) = Elastic::new(&options, dir, &read_counters);
    let reader_config = ReaderConfig {
        map: options.read_mode == ReadMode::Mapped,
        verify: options.verify_checksums.of_files(),
        cache: Some(cache.clone()),
        pin_metadata: options.pin_metadata,
        reads: overlapping_reads(&options, &mut warnings),
        files: Some(open_files),
    };
    let is_lenient = loaded.repair.is_some() || options.on_damage == OnDamage::Quarantine;
    let garbage = Arc::new(Garbage::new(is_lenient));
    let listed = list(&*fs, dir)?;
    let chunks = Arc::new(ChunkPool::new(kept_chunk_bytes(&options)));
    let numbering = Arc::new(Numbering::new());
    let opening = Opening {
        fs: &*fs,
        dir,
        options: &options,
        read_only,
        config: &reader_config,
        garbage: &garbage,
        shared: SharedParts {
            sampler: &elastic.sampler,
            reads: &read_counters,
            chunks: &chunks,
            numbering: &numbering,
            records: &records,
            protect: options.protect_writes,
        },
    };
    let directory = open_keyspaces(&opening, &loaded, &listed, declared, &mut warnings)?;
    garbage.blobs.all_opened();
    let logs = needed_logs(dir, &loaded, &listed, &mut warnings)?;
    let Loaded { tree, number, end, repair } = loaded;
    let session = compose(Opened {
        dir,
        fs,
        options,
        read_only,
        lock,
        tree: (tree, number),
        largest: listed.largest,
        repaired: repair.as_ref().map(Repaired::of),
        directory,
        begun,
        observer,
        read_counters,
        elastic,
        cache,
        reader_config,
        garbage,
        chunks,
        numbering,
        records,
    });
    complete(&session, warnings);
    if !read_only {
        session.space.reserve.find();
    }
    Ok((session, Found { logs, files: listed.files, manifest_end: end, repair }))
}

/// The directory of a database as a file system, and its lock, if it is opened to be written to.
type Entered = (Arc<OpenFiles>, Option<Box<dyn DirLock>>);

/// Looks at the directory, creates it if it is missing and may be created, and takes its lock if it
/// is opened to be written to.
fn enter(dir: &Path, options: &Options, read_only: bool, repairs: bool) -> Result<Entered, OpenError> {
    let plain = file_system(options);
    let io = |operation, path: &Path, e: std::io::Error| StorageError::io(operation, path, e);
    let creates = !read_only && options.create_if_missing;
    let exists = match place::look_at(&*plain, dir)? {
        Place::Unproven if repairs => {
            let found = "`CURRENT`, but no file that bears the mark of a database".to_owned();
            return Err(OpenError::Foreign { path: dir.to_owned(), found });
        }
        Place::Database | Place::Unproven => true,
        Place::Headless => repairs,
        Place::Foreign(found) => return Err(OpenError::Foreign { path: dir.to_owned(), found }),
        Place::Others(found) if !creates => {
            return Err(OpenError::Foreign { path: dir.to_owned(), found });
        }
        Place::Others(found) if !options.create_among_others => {
            return Err(OpenError::NotEmpty { path: dir.to_owned(), found });
        }
        Place::Free | Place::Others(_) => false,
    };
    if !read_only && exists && options.error_if_exists {
        return Err(OpenError::Exists { path: dir.to_owned() });
    }
    if !exists && !creates {
        return Err(OpenError::NotFound { path: dir.to_owned() });
    }
    if !exists {
        create_dir_durably(&*plain, dir)?;
    }
    // From here on the database is the directory, not its name.
    let held = plain.hold(dir).map_err(|e| io("open", dir, e))?.unwrap_or(plain);
    // A file that a writer in another process has removed could not be opened again.
    let most_files = if read_only { 0 } else { options.max_open_files };
    let files = Arc::new(OpenFiles::new(held, most_files));
    if read_only {
        return Ok((files, None));
    }
    let path = lock_path(dir);
    let lock = files.lock(&path).map_err(|e| io("lock", &path, e))?;
    let lock = lock.ok_or_else(|| locked(&*files, path))?;
    Ok((files, Some(lock)))
}

/// What the manifest says, or the repair in its place.
struct Loaded {
    tree: ManifestState,
    /// The number of the manifest; 0 for a new database.
    number: u64,
    end: Option<End>,
    repair: Option<Repair>,
}

fn load(
    fs: &dyn FileSystem,
    dir: &Path,
    options: &Options,
    read_only: bool,
    plan: Option<&Plan<'_>>,
    warnings: &mut Vec<String>,
) -> Result<Loaded, OpenError> {
    let repair = plan.map(|plan| plan(fs)).transpose()?.flatten();
    let loaded = match &repair {
        Some(repair) => {
            warnings.extend(repair.warnings.iter().cloned());
            Some(repair.manifest.clone())
        }
        None => Manifest::open(fs, dir).map_err(|error| explain(fs, dir, error.into()))?,
    };
    match loaded {
        Some(LoadedManifest { state, number, end }) => {
            let path = manifest_path(dir, number);
            if let End::Torn { offset } = &end {
                warnings.push(format!("{}: cut at offset {offset}: the last edit is torn", path.display()));
            }
            check_state(&state).map_err(|what| StorageError::corrupt(&path, None, what))?;
            Ok(Loaded { tree: state, number, end: Some(end), repair })
        }
        None if read_only => Err(OpenError::NotFound { path: dir.to_owned() }),
        None => {
            refuse_headless(fs, dir)?;
            let tree = ManifestState::new(DEFAULT_NAME, &options.keyspace.to_text());
            Ok(Loaded { tree, number: 0, end: None, repair })
        }
    }
}

/// The database's files, and the largest number of one.
struct Listed {
    files: Vec<(String, FileKind)>,
    largest: u64,
}

fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Listed, OpenError> {
    let names = fs.list(dir).map_err(|e| StorageError::io("list", dir, e))?;
    let files: Vec<(String, FileKind)> =
        names.into_iter().filter_map(|name| parse(&name).map(|kind| (name, kind))).collect();
    let numbers = files.iter().map(|(name, kind)| match *kind {
        FileKind::Table(number)
        | FileKind::Log(number)
        | FileKind::Filter(number)
        | FileKind::Blob(number)
        | FileKind::Manifest(number) => (number, &name[..]),
        _ => (0, ""),
    });
    let (largest, name) = numbers.max().unwrap_or((0, ""));
    if largest >= NUMBER_LIMIT / 2 {
        // The number of the next file would have to be larger.
        let what = "its number is one that no database reaches";
        return Err(StorageError::corrupt(&dir.join(name), None, what).into());
    }
    Ok(Listed { files, largest })
}

/// Opens the keyspaces with their tables.
fn open_keyspaces(
    opening: &Opening<'_>,
    loaded: &Loaded,
    listed: &Listed,
    declared: Option<Workload>,
    warnings: &mut Vec<String>,
) -> Result<Directory, OpenError> {
    let mut keyspaces = Directory::default();
    let mut parsed = StoredOptions::default();
    let metas = loaded.tree.keyspaces.values().flat_map(|stored| stored.tables());
    let mut tables = open_tables(opening, metas).into_iter();
    for (&id, stored) in loaded.tree.keyspaces.iter() {
        let own = tables.by_ref().take(stored.tables().count());
        let mut keyspace =
            open_keyspace(opening, id, stored, own, &mut parsed, warnings).map_err(|error| {
                explain_missing(&listed.files, loaded.number, &loaded.tree, opening.dir, error)
            })?;
        keyspace.age = EntryAges::new(&keyspace.options, stored.ages, loaded.tree.last_seq);
        // The stored workload was declared once, or was seen; a workload seen now takes precedence.
        keyspace.declared = declared.filter(|_| id == DEFAULT_KEYSPACE);
        keyspaces.insert(id, Arc::new(keyspace));
    }
    let ignored = parsed.take_ignored();
    if !ignored.is_empty() {
        let ignored = ignored.join(", ");
        warnings.push(format!("options of keyspaces that this build does not have are ignored: {ignored}"));
    }
    Ok(keyspaces)
}

/// Returns the logs whose writes may be in no table, in the order of their numbers.
fn needed_logs(
    dir: &Path,
    loaded: &Loaded,
    listed: &Listed,
    warnings: &mut Vec<String>,
) -> Result<Vec<LogId>, OpenError> {
    let (floor, repair) = (loaded.tree.log_floor(), loaded.repair.as_ref());
    let is_readable = |id: &LogId| repair.is_none_or(|repair| !repair.unreadable.contains(id));
    let mut logs: Vec<LogId> = listed
        .files
        .iter()
        .filter_map(|(_, kind)| match *kind {
            FileKind::Log(id) if id >= floor => Some(id),
            _ => None,
        })
        .filter(is_readable)
        .collect();
    logs.sort_unstable();
    if floor > 0 && logs.first() != Some(&floor) && !repair.is_some_and(|repair| repair.rebuilt) {
        let what = "the log is missing, and writes in it are in no table";
        let error = StorageError::corrupt(&log_path(dir, floor), None, what);
        if repair.is_none() {
            return Err(explain_missing(&listed.files, loaded.number, &loaded.tree, dir, error.into()));
        }
        warnings.push(error.to_string());
    }
    Ok(logs)
}

/// What a session is composed of.
struct Opened<'a> {
    dir: &'a Path,
    fs: Arc<dyn FileSystem>,
    options: Options,
    read_only: bool,
    lock: Option<Box<dyn DirLock>>,
    /// The tree, and the number of its manifest.
    tree: (ManifestState, u64),
    /// The largest number of a file.
    largest: u64,
    repaired: Option<Repaired>,
    directory: Directory,
    begun: tune::Begun,
    observer: Arc<Observer>,
    read_counters: Arc<AllReads>,
    elastic: Arc<Elastic>,
    cache: Arc<BlockCache>,
    reader_config: ReaderConfig,
    garbage: Arc<Garbage>,
    chunks: Arc<ChunkPool>,
    numbering: Arc<Numbering>,
    records: Option<Arc<RecordCache>>,
}

fn compose(opened: Opened<'_>) -> Session {
    let Opened { dir, fs, options, read_only, tree, garbage, observer, chunks, numbering, .. } = opened;
    let lacks_operators = opened.directory.values().any(|keyspace| keyspace.operators.missing.is_some());
    let write_counters = Arc::<WriteCounters>::default();
    let gate = Arc::new(Gate::new(dir, read_only, &write_counters, &observer));
    let numbers = Arc::new(FileNumbers::from(tree.0.next_file.max(opened.largest + 1)));
    let room = Arc::<Room>::default();
    let committer = Arc::new(Committer::new(tree.0.last_seq));
    let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock));
    let expiry = Expiry::new(tree.0.times.clone(), clock, &committer);
    let warnings = Arc::new(Warnings::new(dir, &observer));
    let reserve = Reserve::new(dir.to_owned(), &fs, &options, &room, &write_counters, &warnings);
    let filter_files = Arc::new(FilterFiles::new(dir.to_owned(), &fs, &garbage, &warnings, read_only));
    let catalogue = Catalogue::new(
        (dir.to_owned(), &fs),
        &garbage,
        &numbers,
        &gate,
        &filter_files,
        tree,
        opened.directory,
    );
    let directory = catalogue.published();
    let state = State {
        catalogue,
        scheduler: Scheduler::default(),
        filters: FilterUpkeep::new(!read_only),
        reshaping: Reshaping::having_seen(opened.begun.seen),
        read_debts: ReadDebts::new(),
        logs: LogFiles::new(&options),
    };
    let monitor = Arc::new(Monitor::new(state, &gate));
    if !read_only {
        chunks.made_by(gate.changed());
    }
    let parts = LogParts {
        fs: &fs,
        numbers: &numbers,
        monitor: &monitor,
        gate: &gate,
        room: &room,
        counters: &write_counters,
        observer: &observer,
    };
    let log = Arc::new(Log::new(dir.to_owned(), &options, parts));
    let set = numbering.set(Arc::<Log>::downgrade(&log));
    debug_assert!(set.is_ok(), "set once");

    let share = options.shared_write_memory.as_ref().filter(|_| !read_only);
    let filled = Arc::<Filled>::default();
    let share = share.map(|memory| memory.join(dir, Arc::new(OwnMemtables::new(&chunks, &filled, &monitor))));
    let memory = (&chunks, &filled);
    let throttle = Throttle::new(&options, memory, share, &monitor, &gate, &write_counters, &observer);
    let read_counters = opened.read_counters;
    Session {
        dir: dir.to_owned(),
        instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
        gate,
        log,
        committer,
        throttle,
        monitor,
        keyspaces: OpenKeyspaces { directory, filled, lacks_operators, read_counters, chunks, numbering },
        files: Files {
            numbers,
            garbage,
            reader_config: opened.reader_config,
            cache: Some(opened.cache),
            records: opened.records,
            filter_files,
        },
        snapshots: Mutex::default(),
        expiry,
        transactions: Transactions {
            history: History::new(options.transaction_history_bytes),
            locks: Default::default(),
            prepared: Default::default(),
        },
        space: Space { room, reserve },
        elastic: opened.elastic,
        background: Background::new(&options),
        observed: Observed {
            observer,
            warnings,
            write_counters,
            decisions: Mutex::new(opened.begun.decisions.into()),
        },
        lifecycle: Lifecycle {
            beginning: Default::default(),
            lock: Mutex::new(opened.lock),
            repaired: opened.repaired,
        },
        fs,
        options,
    }
}

/// Tells the parts of a session what they have to know of its tables.
fn complete(session: &Session, warnings: Vec<String>) {
    warnings.into_iter().for_each(|warning| session.warn(warning));
    let directory = session.keyspaces.directory.load();
    directory.values().for_each(|keyspace| session.warn_of_filter(keyspace));
    {
        let state = session.state();
        let views: Vec<_> =
            state.catalogue.keyspaces().values().map(|keyspace| keyspace.view.load_full()).collect();
        let stored = |id| state.catalogue.tree().hotness(id);
        session.elastic.opened(views.iter().map(|view| &**view), stored);
    }
    // Tables that were opened first did not know of the others.
    session.keep_filters_in_memory(None);
    session.expiry.configure(directory.values().map(|keyspace| &**keyspace));
}

/// Returns the error of a lock that is held, and says by whom.
pub fn locked(fs: &dyn FileSystem, path: PathBuf) -> OpenError {
    match fs.is_locked_here(&path) {
        Ok(true) => OpenError::OpenHere { path },
        _ => OpenError::Locked { path },
    }
}

/// Returns how much memory is kept for the next memtables, in bytes: that of one, and none of the
/// memory that databases share, which others may need.
fn kept_chunk_bytes(options: &Options) -> usize {
    let bytes = match options.shared_write_memory {
        Some(_) => 0,
        None => options.keyspace.memtable_bytes.min(options.memtable_budget_bytes / 4),
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// With fewer tables per thread, starting one costs more than it saves.
const TABLES_PER_THREAD: usize = 4;

/// The most threads that open tables. 17 tables that were not in the page cache took 48, 34, 27 and
/// 29 ms with 1, 2, 4 and 8 threads on two cores. Not taken from the machine, so that a simulation
/// can be repeated anywhere.
const MOST_OPENING_THREADS: usize = 4;

/// The state shared by the keyspaces of a database that is being opened.
struct Opening<'a> {
    fs: &'a dyn FileSystem,
    dir: &'a Path,
    options: &'a Options,
    read_only: bool,
    config: &'a ReaderConfig,
    garbage: &'a Arc<Garbage>,
    shared: SharedParts<'a>,
}

fn open_keyspace(
    opening: &Opening<'_>,
    id: KeyspaceId,
    stored: &KeyspaceState,
    tables: impl IntoIterator<Item = TriedTable>,
    parsed: &mut StoredOptions,
    warnings: &mut Vec<String>,
) -> Result<KeyspaceInner, OpenError> {
    let &Opening { fs, dir, options: database, read_only, config, garbage, ref shared } = opening;
    let stored_options = parsed.get(&stored.options)?;
    let options = if id == DEFAULT_KEYSPACE { database.keyspace.clone() } else { stored_options.clone() };
    let deepest = stored.runs.keys().map(|(level, _)| *level as usize).max().unwrap_or(0);
    if let Some(Incompatible { name, stored, asked, advice }) =
        incompatible(stored_options, &options, deepest)
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
        // The opener has no say in these options, or accepts any; and reads are right without a
        // filter.
        let keyspace = &stored.name;
        warnings.push(format!(
            "keyspace `{keyspace}` is read without a filter: its filter `{name}` is not registered with the options"
        ));
        operators = look_up(OperatorNames { selector: None, ..options.operators() });
    }
    let operators = operators.map_err(|Unregistered { option, name }| OpenError::Unregistered {
        keyspace: (*stored.name).to_owned(),
        option,
        name,
    })?;
    if let Some(Unregistered { option, name }) = &operators.missing {
        let keyspace = &stored.name;
        warnings.push(format!(
            "keyspace `{keyspace}` takes no writes: its option `{option} = {name}` names an operator that this program does not have"
        ));
    }
    let mut opened: HashMap<TableId, Arc<OpenTable>> = HashMap::default();
    for (meta, table) in tables {
        let table = match table {
            Err(why) if is_quarantined(database, &why) => {
                warnings
                    .push(format!("table {} of keyspace `{}` is quarantined: {why}", meta.id, stored.name));
                OpenTable::lost(fs, dir, meta.clone(), why, config, garbage)
            }
            table => table?,
        };
        opened.insert(meta.id, table);
    }
    let lost: BTreeSet<String> = opened.values().flat_map(|table| table.blobs.lost()).collect();
    warnings
        .extend(lost.into_iter().map(|why| format!("values of keyspace `{}` are lost: {why}", stored.name)));
    let filter = TreeFilter::new(&options, database, read_only, shared.sampler, &operators);
    let version = Version::build(stored, None, |id| opened[&id].clone());
    if let Some(global) = filter.global() {
        global.open(&version.tables);
    }
    Ok(KeyspaceInner::with_version(id, &stored.name, options, operators, filter, version, shared))
}

/// Reports whether a database opens without a table that failed like this.
fn is_quarantined(options: &Options, why: &StorageError) -> bool {
    options.on_damage == OnDamage::Quarantine && is_lasting(why)
}

/// A table, and what came of opening it.
type TriedTable = (Arc<TableMeta>, Result<Arc<OpenTable>, StorageError>);

/// Opens these tables, or those up to one that the opening fails for. If there are many, several
/// threads do: they wait for the device together.
fn open_tables<'m>(opening: &Opening<'_>, metas: impl Iterator<Item = &'m TableMeta>) -> Vec<TriedTable> {
    let &Opening { fs, dir, options, config, garbage, .. } = opening;
    let metas: Vec<_> = metas.cloned().map(Arc::new).collect();
    // Numbers are taken in order: what is before a table that failed has been opened, too, so the
    // first error is always the same.
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut opened = Vec::new();
        loop {
            if failed.load(Ordering::Relaxed) {
                return opened;
            }
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(meta) = metas.get(number) else { return opened };
            let table = OpenTable::open(fs, dir, meta.clone(), config, garbage);
            if table.as_ref().is_err_and(|why| !is_quarantined(options, why)) {
                failed.store(true, Ordering::Relaxed);
            }
            opened.push((number, (meta.clone(), table)));
        }
    };
    let helpers = (metas.len() / TABLES_PER_THREAD).min(MOST_OPENING_THREADS).saturating_sub(1);
    let mut opened = thread::scope(|scope| {
        // Failing to spawn a thread costs only speed.
        let start = |i| scope.spawn(format!("tamis-open-{i}"), work).ok();
        let started: Vec<_> = (0..helpers).filter_map(start).collect();
        let mut opened = work();
        for helper in started {
            opened.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        opened
    });
    opened.sort_unstable_by_key(|(number, _)| *number);
    opened.into_iter().map(|(_, tried)| tried).collect()
}

/// Opens a keyspace that the writer of a database that is followed has created.
pub(crate) fn open_newcomer(
    db: &Session,
    id: KeyspaceId,
    stored: &KeyspaceState,
    last_seq: SeqNo,
) -> Result<KeyspaceInner, OpenError> {
    let opening = Opening {
        fs: &*db.fs,
        dir: &db.dir,
        options: &db.options,
        read_only: true,
        config: &db.files.reader_config,
        garbage: &db.files.garbage,
        shared: SharedParts {
            sampler: &db.elastic.sampler,
            reads: &db.keyspaces.read_counters,
            chunks: &db.keyspaces.chunks,
            numbering: &db.keyspaces.numbering,
            records: &db.files.records,
            protect: db.options.protect_writes,
        },
    };
    let mut warnings = Vec::new();
    let tables = open_tables(&opening, stored.tables());
    let mut parsed = StoredOptions::default();
    let mut keyspace = open_keyspace(&opening, id, stored, tables, &mut parsed, &mut warnings)?;
    keyspace.age = EntryAges::new(&keyspace.options, stored.ages, last_seq);
    warnings.into_iter().for_each(|warning| db.warn(warning));
    Ok(keyspace)
}

/// Refuses to treat a directory that has lost its `CURRENT` as empty: a new database names its
/// manifest before it makes its first log or table.
fn refuse_headless(fs: &dyn FileSystem, dir: &Path) -> Result<(), OpenError> {
    let names = fs.list(dir).map_err(|e| StorageError::io("list", dir, e))?;
    let data = |name: &&String| matches!(parse(name), Some(FileKind::Table(_) | FileKind::Log(_)));
    match names.iter().find(data) {
        None => Ok(()),
        Some(name) => {
            let what = format!("it is missing although there is data ({name})");
            let error = StorageError::corrupt(&tamis_files::tree::files::current_path(dir), None, what);
            Err(explain(fs, dir, error.into()))
        }
    }
}

/// Refuses the empty path of a directory. No system call does in time: names joined to it are those
/// of files in the current directory, which may belong to others.
pub(crate) fn refuse_empty(dir: &Path) -> Result<(), StorageError> {
    if dir.as_os_str().is_empty() {
        let empty = std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is empty");
        return Err(StorageError::io("use", dir, empty));
    }
    Ok(())
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
    // The directory itself always: an interrupted attempt may have created it without syncing its
    // name.
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

#[cfg(test)]
mod tests;
