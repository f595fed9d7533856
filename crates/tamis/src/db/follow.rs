//! Followers: read-only handles that show, again and again, what a writer in another process has done since.
//!
//! A follower has what any opening has, and keeps up with the two kinds of files that a writer appends to: the manifest, whose edits say
//! which tables there are, and the logs, whose records go into memtables of the follower's own. Tables that are open stay open.
//!
//! # Catching up
//!
//! An attempt reads the manifest to its end, opens the tables that are new, reads the logs to their end, and then looks at the manifest
//! again. If there is an edit that it has not read, it begins again. Otherwise what it has read is a state that existed, for the reasons
//! that [`beside`](super::beside) gives; so it is published. What an attempt has opened and read is not lost when the next begins.
//!
//! Files that go away or change under an attempt are errors, and so is what it reads in part while it is written. An error counts if it
//! comes several times in a row with the same manifest. Then the caller gets it, and readers keep what they had.
//!
//! # Memtables
//!
//! A keyspace's floor in the manifest says from which log on its writes are not in its tables. So each memtable has the writes of one log, and
//! goes when the floor has passed that log: nothing is ever in a memtable and in a table at once, which merge operands would not bear.
//! The last memtable takes the records that its log gets later; they are above the visible number until all of an attempt's are there.
//!
//! # What readers see
//!
//! [`publish`](Follower::publish) raises the horizons and the visible number before it replaces the views, one keyspace after the other. A
//! reader loads its view first ([`read_at`](crate::read::read_at)): with a former view it sees, at the new number, a prefix of all writes that
//! has everything it was promised; a new view never comes with the former number, at which its tables may lack what was overwritten since.
//! Whoever has a number of its own, a snapshot, has the views of its moment as well, since the writer knows nothing of it and merges away
//! what it sees. Snapshots are taken before or after a publication, not during one.
//!
//! # Global filters
//!
//! A merge that the filter's owner makes moves keys that the filter has. One that another process makes may bring keys of flushes that were never
//! seen here. A table whose epochs are all [settled](Settled) when it comes has only keys of tables that were in versions before it, and
//! nothing need be done; another one is searched for every key until the background thread has added its keys. That it is a merge of
//! what was unseen itself would not show in its epochs: so none are settled as long as there is such a table.
//!
//! # Writes that failed
//!
//! A record whose sync failed in the writer is shown, as an opening would show it, until the writer has begun a log in place of the broken one;
//! then its number stands for another write. The visible number does not fall. Writes at or below it go into memtables that are not
//! published yet, so that they become visible all at once, too.
//!
//! # Threads and locks
//!
//! One thread at a time catches up, under the follower's mutex, which comes before all other locks. Only the publication takes others: the
//! log's (whoever learns of gaps must not meet a number between two), `state`, and that of the snapshots, in this order. Readers wait for
//! none of them.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis_filter::Digest;

use super::background::{Workers, guarded};
use crate::batch::{BatchOp, GroupHeader, Ops};
use crate::collections::{HashMap, HashSet};
use crate::db::Db;
use crate::db::commit::insert;
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::db::live_files::Ends;
use crate::db::open;
use crate::error::{OpenError, StorageError};
use crate::ids::{KeyspaceId, LogId, TableId};
use crate::io::Access;
use crate::key::SeqNo;
use crate::options::Options;
use crate::read::{MemtableSlot, Memtables};
use crate::sync;
use crate::tree::files::{FileKind, log_path, manifest_path, parse};
use crate::tree::manifest::ManifestReader;
use crate::tree::open_table::OpenTable;
use crate::tree::state::ManifestState;
use crate::wal::{End, LogKind, LogReader, ReadOptions};

/// The number of attempts before a follower gives up on a writer that keeps changing the database.
const ATTEMPTS: u32 = 200;

/// The number of attempts in a row that must fail alike with the same manifest before their error is believed.
const DOUBTS: u32 = 4;

/// The writes of one log to one keyspace.
#[derive(Debug)]
struct LogMemtable {
    log: LogId,
    slot: Arc<MemtableSlot>,
    /// Whether readers have it.
    published: bool,
}

/// The log that is being read.
#[derive(Debug)]
struct Position {
    log: LogId,
    /// `None` after an error: the log is read again from its beginning, and what is known is passed over.
    reader: Option<LogReader>,
    /// The last write of it that is in memtables; 0 if there is none.
    last_seq: SeqNo,
    /// Whether logs before it were not read: then its first write may have any number.
    jumped: bool,
    /// Where the reader stood when it was last looked at what is behind the last record.
    looked_at: u64,
}

/// Which epochs of a keyspace are those of flushes whose tables were in a published version.
///
/// A flush takes its epoch when it begins, and others may be published before it, so the next epoch of a manifest does not say it. But with
/// the floor of a later manifest behind the logs there were, everything that was in memtables then is in tables, so no flush of
/// that time is under way any more.
#[derive(Debug, Default)]
struct Settled {
    /// All epochs below.
    until: u64,
    /// Next epochs of manifests, each with the last log that there was.
    pending: VecDeque<(LogId, u64)>,
}

/// What a follower knows of the files of its database. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// `None` before the first attempt and after an error.
    manifest: Option<ManifestReader>,
    /// The end of the manifest that was read last.
    mark: Option<(u64, u64)>,
    /// The manifest as published: nothing of the tree has to be compared while it stays.
    published: Option<(u64, u64)>,
    /// The logs that were in the directory when the manifest had last changed, ascending.
    listed: Vec<LogId>,
    position: Option<Position>,
    /// The logs passed that are still needed, and their lengths.
    passed: Vec<(LogId, u64)>,
    /// The last write read.
    last_seq: SeqNo,
    memtables: HashMap<KeyspaceId, Vec<LogMemtable>>,
    /// The epochs of keyspaces with global filters.
    settled: HashMap<KeyspaceId, Settled>,
    /// Tables that an attempt opened and that are in no version yet.
    opened: HashMap<TableId, Arc<OpenTable>>,
    /// Keyspaces likewise.
    newcomers: HashMap<KeyspaceId, Arc<KeyspaceInner>>,
    ends: Ends,
}

/// Opens the database in `dir` to follow it.
pub(super) fn open(dir: &Path, options: &Options) -> Result<Arc<DbInner>, OpenError> {
    options.check()?;
    let (mut doubts, mut met) = (0, String::new());
    for attempt in 0..ATTEMPTS {
        let before = current(dir, options);
        match open::open(dir, options.clone(), open::Role::Follower) {
            Ok(db) => {
                db.catch_up()?;
                return Ok(db);
            }
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                let what = error.to_string();
                let same = before.is_none() || current(dir, options) == before;
                doubts = if same && what == met { doubts + 1 } else { u32::from(same) };
                if doubts >= DOUBTS {
                    return Err(error);
                }
                met = what;
            }
        }
        pause(attempt);
    }
    Err(OpenError::Changing { path: dir.to_owned() })
}

/// Returns where the manifest in force ends.
fn current(dir: &Path, options: &Options) -> Option<(u64, u64)> {
    let fs = open::file_system(options);
    ManifestReader::open(&*fs, dir).ok().flatten().map(|manifest| manifest.mark())
}

/// Reports whether another attempt would end in the same error.
fn is_final(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Options(_)
            | OpenError::Incompatible { .. }
            | OpenError::Unregistered { .. }
            | OpenError::Format { .. }
    )
}

fn pause(attempt: u32) {
    sync::thread::sleep(Duration::from_millis(u64::from(attempt / 4).min(20)));
}

/// How an attempt ended.
enum Attempt {
    Done,
    /// The writer has changed something meanwhile.
    Again,
}

/// What is new about a keyspace that is open.
struct Change {
    keyspace: Arc<KeyspaceInner>,
    /// Whether it has other tables than before.
    tables: bool,
}

impl DbInner {
    /// See [`Db::catch_up`](crate::Db::catch_up).
    pub(crate) fn catch_up(&self) -> Result<SeqNo, OpenError> {
        let Some(follower) = &self.follower else {
            return Err(OpenError::NotFollower { path: self.dir.clone() });
        };
        let mut follower = follower.lock();
        let (mut doubts, mut met) = (0, None);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                pause(attempt);
            }
            match follower.attempt(self) {
                Ok(Attempt::Done) => return Ok(self.visible()),
                Ok(Attempt::Again) => (doubts, met) = (0, None),
                Err(error) => {
                    follower.doubt();
                    let what = Some((follower.mark, error.to_string()));
                    doubts = if what == met { doubts + 1 } else { 1 };
                    if doubts >= DOUBTS || is_final(&error) {
                        return Err(error);
                    }
                    met = what;
                }
            }
        }
        Err(OpenError::Changing { path: self.dir.clone() })
    }
}

impl Db {
    /// Opens the database in `path` read-only beside a writer, which may be in another process, and keeps up with it: now, and whenever
    /// [`catch_up`](Db::catch_up) is called, or by itself every [`follow_interval`](Options::follow_interval). Nothing is changed in the
    /// directory and no lock is taken; the writer does not know of its followers.
    ///
    /// What it shows is a state that the writer had when the last call began, or a later one: a prefix of all writes, with those that were
    /// acknowledged, and perhaps some that are not yet, or that failed while the writer's [suspension](crate::WriteError::Suspended) lasts.
    /// Iterators and snapshots keep the state of their moment, and hold its tables, which keeps their disk space. Memory: the writes that
    /// are in the writer's memtables are in memory here, too.
    ///
    /// Costs what an opening costs; `max_open_files` does not apply, as the writer may remove files that are in use here.
    ///
    /// # Errors
    ///
    /// Those of [`open_read_only`](Db::open_read_only).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use tamis::{Db, Options};
    ///
    /// // In one process ...
    /// let writer = Db::open(dir.path(), Options::default())?;
    /// writer.put("key", "old")?;
    /// // ... and in another one.
    /// let follower = Db::open_follower(dir.path(), Options::default())?;
    /// writer.put("key", "new")?;
    /// assert_eq!(follower.get("key")?.unwrap(), "old");
    /// follower.catch_up()?;
    /// assert_eq!(follower.get("key")?.unwrap(), "new");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_follower(path: impl AsRef<Path>, options: Options) -> Result<Db, OpenError> {
        let inner = open(path.as_ref(), &options)?;
        let workers = Workers::start_following(&inner)
            .map_err(|e| OpenError::Storage(StorageError::io("start a thread for", path.as_ref(), e)))?;
        Ok(Db::with(inner, Some(workers)))
    }

    /// Shows what the writer has done since; returns the number of the last write shown. For a [follower](Db::open_follower), from any
    /// thread; readers do not wait.
    ///
    /// Costs a read of what was added to the manifest and to the log, and an opening of each table that is new.
    ///
    /// # Errors
    ///
    /// [`OpenError::NotFollower`] for another database; [`OpenError::Changing`] if the writer replaced files during every attempt; damage
    /// or a failed system call, with the file. After an error everything is shown as before, and a later call may succeed.
    pub fn catch_up(&self) -> Result<u64, OpenError> {
        self.handle().inner.catch_up()
    }
}

/// Catches up with the writer as often as the options ask for, and builds global filters.
pub(super) fn follow_loop(db: &DbInner) {
    let mut last = sync::now();
    let mut failure = String::new();
    let mut state = db.state();
    while !state.closing {
        if let Some((keyspace, task)) = state.filters.next(&state.catalogue) {
            state.filters.start(keyspace.id);
            drop(state);
            guarded(db, "work on a filter", || db.work_on_filter(&keyspace, task));
            state = db.state();
            continue;
        }
        let Some(interval) = db.options.follow_interval else {
            state = db.monitor.wait(state);
            continue;
        };
        // The condition variable is shared: sleep out the interval, whatever the signal.
        let passed = sync::since(last);
        if passed < interval {
            let left = (interval - passed).max(Duration::from_micros(100));
            state = db.monitor.wait_for(state, left);
            continue;
        }
        drop(state);
        last = sync::now();
        match guarded(db, "catching up with the writer", || db.catch_up()) {
            Some(Err(error)) if error.to_string() != failure => {
                failure = error.to_string();
                db.warn(format!("the writer's changes are not shown: {failure}"));
            }
            Some(Ok(_)) => failure.clear(),
            _ => {}
        }
        state = db.state();
    }
}

impl Follower {
    /// What was published last.
    pub(super) fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Reads the files anew from now on.
    fn doubt(&mut self) {
        self.manifest = None;
        if let Some(position) = &mut self.position {
            position.reader = None;
        }
    }

    fn attempt(&mut self, db: &DbInner) -> Result<Attempt, OpenError> {
        let mut manifest = match self.manifest.take() {
            Some(mut manifest) => {
                manifest.refresh(&*db.fs, &db.dir)?;
                manifest
            }
            None => ManifestReader::open(&*db.fs, &db.dir)?
                .ok_or_else(|| OpenError::NotFound { path: db.dir.clone() })?,
        };
        let mark = manifest.mark();
        self.mark = Some(mark);
        let mut changes = Vec::new();
        if self.published.is_none_or(|(number, _)| number != mark.0)
            && let Some(position) = &mut self.position
        {
            // A new session makes an empty log that it finds anew.
            position.reader = None;
        }
        if self.published != Some(mark) {
            open::check_state(manifest.state())
                .map_err(|what| StorageError::corrupt(&manifest_path(&db.dir, mark.0), None, what))?;
            self.list_logs(db)?;
            changes = self.open_tables(db, manifest.state())?;
        }
        let is_whole = self.read_logs(db, manifest.state())?;
        let known = manifest.state().last_seq;
        if manifest.is_closed() && is_whole && self.last_seq > 0 && self.last_seq != known {
            let read = self.last_seq;
            let what =
                format!("the logs end with write {read}, but the database was closed after write {known}");
            return Err(StorageError::corrupt(&manifest_path(&db.dir, mark.0), None, what).into());
        }
        let is_newer = manifest.refresh(&*db.fs, &db.dir)?;
        let done = is_whole && !is_newer;
        if done {
            self.publish(db, manifest.state(), mark, &changes);
        }
        self.manifest = Some(manifest);
        Ok(if done { Attempt::Done } else { Attempt::Again })
    }

    fn list_logs(&mut self, db: &DbInner) -> Result<(), StorageError> {
        let names = db.fs.list(&db.dir).map_err(|e| StorageError::io("list", &db.dir, e))?;
        self.listed = names
            .iter()
            .filter_map(|name| match parse(name) {
                Some(FileKind::Log(id)) => Some(id),
                _ => None,
            })
            .collect();
        self.listed.sort_unstable();
        Ok(())
    }

    /// Opens what `state` has and the versions in use have not. Takes no lock meanwhile.
    fn open_tables(&mut self, db: &DbInner, state: &ManifestState) -> Result<Vec<Change>, OpenError> {
        let directory = db.directory.load_full();
        let known: HashMap<KeyspaceId, _> = {
            let locked = db.state();
            locked.catalogue.tree().keyspaces.iter().map(|(&id, known)| (id, known.runs.clone())).collect()
        };
        // Of an attempt that failed since.
        self.newcomers.retain(|id, _| state.keyspaces.contains_key(id));
        let mut named: HashSet<TableId> = HashSet::default();
        let mut changes = Vec::new();
        for (&id, stored) in &state.keyspaces {
            let Some(keyspace) = directory.get(&id) else {
                // Anew each time: nobody reads it yet, and its tables may have changed.
                self.newcomers.insert(id, Arc::new(open::open_newcomer(db, id, stored, state.last_seq)?));
                continue;
            };
            let tables = known.get(&id).is_none_or(|runs| *runs != stored.runs);
            if tables {
                let view = keyspace.view.load_full();
                let old: HashMap<TableId, &Arc<OpenTable>> =
                    view.version.tables.iter().map(|table| (table.meta.id, table)).collect();
                for meta in stored.tables() {
                    let is_open = |table: &Arc<OpenTable>| *table.meta == *meta;
                    if old.get(&meta.id).is_some_and(|table| is_open(table)) {
                        continue;
                    }
                    named.insert(meta.id);
                    if !self.opened.get(&meta.id).is_some_and(is_open) {
                        let meta = Arc::new(meta.clone());
                        let (config, garbage) = (&db.reader_config, &db.garbage);
                        let table = OpenTable::open(&*db.fs, &db.dir, meta.clone(), config, garbage)?;
                        self.opened.insert(meta.id, table);
                    }
                }
            }
            changes.push(Change { keyspace: keyspace.clone(), tables });
        }
        self.opened.retain(|id, _| named.contains(id));
        Ok(changes)
    }

    /// Reads the logs to their end. Returns `false` if they have more than the manifest that was read explains.
    fn read_logs(&mut self, db: &DbInner, state: &ManifestState) -> Result<bool, OpenError> {
        let floor = state.log_floor();
        if self.position.as_ref().is_none_or(|position| position.log < floor) {
            // What is before is in tables.
            self.position = Some(Position::new(floor, true));
        }
        self.passed.retain(|(log, _)| *log >= floor);
        // When the database is opened, damage is found at once.
        let is_first = self.published.is_none();
        loop {
            let position = self.position.as_mut().expect("set above");
            if position.reader.is_none() && !position.open(db)? {
                // A log without a header holds nothing yet.
                return Ok(true);
            }
            let before = self.last_seq;
            if !self.read_log(db, state)? {
                return Ok(false);
            }
            let position = self.position.as_mut().expect("set above");
            let is_still = is_first || before == self.last_seq;
            let (is_closed, named) = match position.reader.as_ref().and_then(LogReader::end) {
                Some(End::Closed { successor, .. }) => (true, *successor),
                _ => (false, None),
            };
            let listed = self.listed.iter().copied().find(|id| *id > position.log);
            let Some(next) = named.or(listed) else {
                position.look_behind(is_still)?;
                return Ok(true);
            };
            let mut following = Position::new(next, position.jumped && position.last_seq == 0);
            let first = match following.first_seq(db) {
                // One that was created ahead, and not needed.
                Err(OpenError::Storage(error)) if named.is_none() && is_missing(&error) => None,
                first => first?,
            };
            if first.is_none() && !is_closed {
                // The log that takes writes may have a successor already, which is empty.
                position.look_behind(is_still)?;
                return Ok(true);
            }
            if let Some(first) = first.filter(|first| !following.jumped && *first != self.last_seq + 1) {
                position.look_behind(true)?;
                let what = format!("its first write is number {first}, expected {}", self.last_seq + 1);
                return Err(StorageError::corrupt(&log_path(&db.dir, next), None, what).into());
            }
            if first.is_none() && named.is_none() {
                return Ok(true);
            }
            self.passed.push((position.log, position.reader.as_ref().map_or(0, LogReader::pos)));
            self.position = Some(following);
        }
    }

    /// Reads what the current log has. Returns `false` at a write to a keyspace that `state` does not have yet.
    fn read_log(&mut self, db: &DbInner, state: &ManifestState) -> Result<bool, OpenError> {
        let visible = db.visible();
        let position = self.position.as_mut().expect("there is a log to be read");
        let log = position.log;
        let path = log_path(&db.dir, log);
        let reader = position.reader.as_mut().expect("open");
        let directory = db.directory.load_full();
        let mut unknown = false;
        while let Some(record) = reader.poll()? {
            let damaged = |what: &str| StorageError::corrupt(&path, record.offset, what);
            let (header, operations) =
                GroupHeader::decode(record.payload).map_err(|e| damaged(&e.to_string()))?;
            let last = header.first_seq.saturating_add(header.count).saturating_sub(1);
            if position.last_seq > 0 && last <= position.last_seq {
                continue;
            }
            let begins = position.last_seq == 0 && position.jumped;
            if !begins && header.first_seq != self.last_seq + 1 {
                let what =
                    format!("its first write is number {}, expected {}", header.first_seq, self.last_seq + 1);
                return Err(damaged(&what).into());
            }
            // All of the record or nothing.
            let mut count = 0;
            for op in Ops::new(operations) {
                let op = op.map_err(|e| damaged(&e.to_string()))?;
                count += 1;
                unknown |= op.keyspace() >= state.next_keyspace;
            }
            if count != header.count || count == 0 {
                return Err(damaged("a record whose count of operations is wrong").into());
            }
            if unknown {
                break;
            }
            let mut seq = header.first_seq;
            for op in Ops::new(operations).flatten() {
                let id = op.keyspace();
                let keyspace = directory.get(&id).or_else(|| self.newcomers.get(&id));
                let floor = state.keyspaces.get(&id).map_or(LogId::MAX, |stored| stored.log_floor);
                if let Some(keyspace) = keyspace.filter(|_| log >= floor) {
                    let memtables = self.memtables.entry(id).or_default();
                    take(memtables, keyspace, log, seq, visible, &op);
                }
                seq += 1;
            }
            (position.last_seq, self.last_seq) = (last, last);
        }
        if unknown {
            // The record is read again, with the keyspace.
            position.reader = None;
        }
        Ok(!unknown)
    }

    /// Shows readers what was read. Cannot fail.
    fn publish(&mut self, db: &DbInner, tree: &ManifestState, mark: (u64, u64), changes: &[Change]) {
        let is_other_tree = self.published != Some(mark);
        let last_seq = self.last_seq.max(tree.last_seq).max(db.visible());
        if !is_other_tree && last_seq == db.visible() && !self.has_unpublished() {
            return;
        }
        let mut log = db.log.lock();
        let mut state = db.state();
        let live = db.snapshots.lock();
        log.follow(last_seq);
        let keyspaces = state.catalogue.keyspaces().clone();
        for (id, keyspace) in &keyspaces {
            tree.keyspaces
                .get(id)
                .and_then(|stored| stored.ages)
                .iter()
                .for_each(|ages| keyspace.age.raise(ages));
            // Nobody has told them of the values that come now.
            keyspace.view.load().gaps.clear();
        }
        db.expiry.follow(&tree.times);
        db.committer.publish(last_seq);
        db.expiry.note_visible();
        if is_other_tree {
            for change in changes.iter().filter(|change| change.tables) {
                self.note_unseen(tree, &change.keyspace);
            }
            state.catalogue.follow(tree.clone(), mark.0);
        }
        let mut published = Vec::new();
        for keyspace in keyspaces.values() {
            let Some(stored) = tree.keyspaces.get(&keyspace.id) else { continue };
            let old = keyspace.view.load_full();
            let memtables = self.memtables_of(keyspace, stored.log_floor, &old.memtables);
            let is_changed = |change: &Change| change.tables && Arc::ptr_eq(&change.keyspace, keyspace);
            if changes.iter().any(is_changed) {
                let memtables = memtables.unwrap_or_else(|| old.memtables.clone());
                let version = state.catalogue.followed(keyspace, &old.version, &self.opened);
                let new = Arc::new(keyspace.view_with_values(memtables, version));
                keyspace.replace_view(new.clone());
                published.push((keyspace.clone(), old, new));
            } else if let Some(memtables) = memtables {
                keyspace.replace_memtables(memtables);
            }
        }
        if is_other_tree {
            self.follow_keyspaces(db, &mut state);
            self.settle(&state);
        }
        drop(live);
        drop(log);
        for (keyspace, old, new) in published {
            db.elastic.change(&old, &new);
            state.filters.tree_changed(keyspace.id);
            db.warn_of_filter(&keyspace);
        }
        self.opened.clear();
        self.published = Some(mark);
        let position = self.position.as_ref().expect("logs were read");
        let mut logs = self.passed.clone();
        logs.extend(position.reader.as_ref().map(|reader| (position.log, reader.pos())));
        db.log.note_followed(&mut state.logs, &logs);
        let filters = tree.keyspaces.values().flat_map(|stored| &stored.filter_files);
        let filters = filters.map(|(&id, &bytes)| (id, bytes)).collect();
        self.ends = Ends { last_seq: self.last_seq.max(tree.last_seq), manifest: mark, logs, filters };
        drop(state);
        db.monitor.notify();
    }

    /// Tells a global filter of the tables that may have keys which it does not have.
    fn note_unseen(&self, tree: &ManifestState, keyspace: &KeyspaceInner) {
        let (Some(grf), Some(stored)) = (keyspace.filter.grf(), tree.keyspaces.get(&keyspace.id)) else {
            return;
        };
        let settled = self.settled.get(&keyspace.id).map_or(0, |settled| settled.until);
        let tables: HashMap<TableId, bool> = stored
            .tables()
            .map(|meta| (meta.id, meta.epochs.segments().iter().any(|segment| segment.hi > settled)))
            .collect();
        let is_unseen = |id: &TableId| tables.get(id).copied().unwrap_or(false);
        let unseen = self.opened.keys().copied().filter(is_unseen);
        grf.note_unseen(unseen, |id| tables.contains_key(&id));
    }

    /// Finds out which epochs are known to be in versions that were published.
    fn settle(&mut self, state: &State) {
        let Some(log) = self.position.as_ref().map(|position| position.log) else { return };
        let tree = state.catalogue.tree();
        self.settled.retain(|id, _| tree.keyspaces.contains_key(id));
        for (id, keyspace) in state.catalogue.keyspaces() {
            let (Some(grf), Some(stored)) = (keyspace.filter.grf(), tree.keyspaces.get(id)) else { continue };
            let settled = self.settled.entry(*id).or_default();
            if settled.pending.back().is_none_or(|(_, next)| *next < stored.next_epoch) {
                settled.pending.push_back((log, stored.next_epoch));
            }
            // Otherwise what replaces a table that is unseen would not be.
            while !grf.has_unseen()
                && let Some((_, next)) =
                    settled.pending.front().copied().filter(|(log, _)| *log < stored.log_floor)
            {
                settled.until = next;
                settled.pending.pop_front();
            }
        }
    }

    fn has_unpublished(&self) -> bool {
        self.memtables.values().flatten().any(|memtable| !memtable.published)
    }

    /// Drops the memtables that are in tables, and returns those that the keyspace has now, if they are others than before.
    fn memtables_of(&mut self, keyspace: &KeyspaceInner, floor: LogId, old: &Memtables) -> Option<Memtables> {
        let kept = self.memtables.entry(keyspace.id).or_default();
        kept.retain(|memtable| memtable.log >= floor);
        kept.iter_mut().for_each(|memtable| memtable.published = true);
        let mut slots: Vec<_> = kept.iter().rev().map(|memtable| memtable.slot.clone()).collect();
        if slots.is_empty() {
            // An empty one is as good as another.
            let is_empty = old.active.memtable.is_empty();
            slots.push(if is_empty { old.active.clone() } else { keyspace.fresh_memtable(0) });
        }
        let new = Memtables { active: slots.remove(0), sealed: slots };
        let same = old.sealed.len() == new.sealed.len()
            && old.iter().zip(new.iter()).all(|(old, new)| Arc::ptr_eq(old, new));
        (!same).then_some(new)
    }

    /// Adds, renames and drops keyspaces as the tree in the catalogue says.
    fn follow_keyspaces(&mut self, db: &DbInner, state: &mut State) {
        let newcomers = std::mem::take(&mut self.newcomers);
        let mut changed = !newcomers.is_empty();
        for (id, keyspace) in newcomers {
            let floor = state.catalogue.tree().keyspaces[&id].log_floor;
            let none = keyspace.view.load().memtables.clone();
            if let Some(memtables) = self.memtables_of(&keyspace, floor, &none) {
                keyspace.replace_memtables(memtables);
            }
            state.catalogue.add(keyspace.clone());
            let tree = state.catalogue.tree();
            db.elastic.opened(std::iter::once(&*keyspace.view.load_full()), |table| tree.hotness(table));
            db.warn_of_filter(&keyspace);
        }
        for keyspace in state.catalogue.keyspaces().clone().values() {
            match state.catalogue.tree().keyspaces.get(&keyspace.id) {
                Some(stored) if stored.name != keyspace.name() => {
                    keyspace.names.add(&stored.name);
                    changed = true;
                }
                Some(_) => {}
                None => {
                    state.catalogue.forget(keyspace);
                    db.elastic.dropped(&keyspace.view.load().version);
                    self.memtables.remove(&keyspace.id);
                    changed = true;
                }
            }
        }
        if changed {
            db.expiry.configure(state.catalogue.keyspaces().values().map(|keyspace| &**keyspace));
            state.catalogue.publish_keyspaces();
        }
    }
}

impl Position {
    fn new(log: LogId, jumped: bool) -> Position {
        Position { log, reader: None, last_seq: 0, jumped, looked_at: 0 }
    }

    /// Opens the log; `false` if it has no header yet.
    fn open(&mut self, db: &DbInner) -> Result<bool, OpenError> {
        let path = log_path(&db.dir, self.log);
        let file = db.fs.open(&path, Access::Sequential).map_err(|e| StorageError::io("open", &path, e))?;
        let reader = LogReader::open(file, &path, LogKind::Writes, self.log, ReadOptions::default())?;
        let has_header = reader.end().is_none();
        self.reader = has_header.then_some(reader);
        Ok(has_header)
    }

    /// Returns the number of the log's first write, if it has one. The log is to be opened again to be read.
    fn first_seq(&mut self, db: &DbInner) -> Result<Option<SeqNo>, OpenError> {
        if !self.open(db)? {
            return Ok(None);
        }
        let path = log_path(&db.dir, self.log);
        let mut reader = self.reader.take().expect("just opened");
        let Some(record) = reader.poll()? else { return Ok(None) };
        let header = GroupHeader::decode(record.payload);
        let (header, _) = header.map_err(|e| StorageError::corrupt(&path, record.offset, e.to_string()))?;
        Ok(Some(header.first_seq))
    }

    /// Looks at what is behind the last record of a log that has not grown: damage there is an error. Once for each place.
    fn look_behind(&mut self, is_still: bool) -> Result<(), StorageError> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        if is_still && self.looked_at != reader.pos() {
            reader.look_behind()?;
            self.looked_at = reader.pos();
        }
        Ok(())
    }
}

fn is_missing(error: &StorageError) -> bool {
    matches!(error, StorageError::Io(failure) if failure.kind() == std::io::ErrorKind::NotFound)
}

/// Applies an operation to the memtable of its log.
fn take(
    memtables: &mut Vec<LogMemtable>,
    keyspace: &KeyspaceInner,
    log: LogId,
    seq: SeqNo,
    visible: SeqNo,
    op: &BatchOp<'_>,
) {
    let fits = |last: &&LogMemtable| last.log == log && (seq > visible || !last.published);
    if memtables.last().filter(fits).is_none() {
        memtables.push(LogMemtable { log, slot: keyspace.fresh_memtable(log), published: false });
    }
    let memtable = memtables.last().expect("just added");
    insert(&mut memtable.slot.memtable.writer(), op, op.key().map(Digest::of), seq);
}

#[cfg(test)]
mod tests;
