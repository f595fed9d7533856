//! Followers: read-only handles that repeatedly catch up with a writer in another process.
//!
//! A follower has everything that any opening has, and keeps up with the two kinds of files that a
//! writer appends to: the manifest, whose edits say which tables exist, and the logs, whose records
//! go into the follower's own memtables. Tables that are open stay open.
//!
//! # Catching up
//!
//! An attempt reads the manifest to its end, opens new tables, reads the logs to their end, and
//! then checks the manifest again. If it finds an edit that it has not read, it starts over.
//! Otherwise it has read a state that existed, for the reasons given in
//! [`beside`](crate::open::beside), and publishes that state. What an attempt has opened and read
//! is kept for the next one.
//!
//! Files that vanish or change during an attempt are errors, and so is anything that it reads
//! half-written. An error counts only if it comes several times in a row with the same manifest.
//! Then the caller gets it, and readers keep what they had.
//!
//! # Memtables
//!
//! A keyspace's floor in the manifest is the first log whose writes are not in its tables. So each
//! memtable holds the writes of one log, and is dropped once the floor has passed that log: nothing
//! is ever in a memtable and a table at once, which would apply merge operands twice. The last
//! memtable takes records that its log gets later, but never a record published together with other
//! tables: a reader with an old view and the new number would see that record without the writes
//! that precede it. So records are held back until it is known what is published with them; if
//! there are too many, they go into a new memtable.
//!
//! # What readers see
//!
//! [`publish`](Follower::publish) raises the horizons and the visible number before it replaces the
//! views, one keyspace after the other. A reader loads its view first
//! ([`read_at`](crate::read::ReadAt)). With an old view, the new number shows it a prefix of all
//! writes that includes everything it was promised. A new view never comes with the old number, at
//! which its tables may lack versions that were overwritten since. A snapshot has its own number,
//! so it also holds the views of its moment: the writer does not know of it and merges away what it
//! sees. Snapshots are taken before or after a publication, not during one.
//!
//! # Global filters
//!
//! A merge by the filter's owner only moves keys that are already in the filter. A merge by another
//! process may bring in keys from flushes never seen here. A table whose epochs are all
//! [settled](Settled) when it arrives has only keys of tables that were in earlier versions, and
//! needs nothing. Any other table is unseen: every lookup searches it until the background thread
//! has added its keys to the filter. If an unseen table is merged, the result's epochs would not
//! show it, so no epochs are settled while an unseen table exists.
//!
//! # Writes that failed
//!
//! A record whose sync failed in the writer is shown, as an opening would show it, until the writer
//! has begun a log to replace the broken one; then its number stands for another write. The visible
//! number never falls. Writes at or below it go into memtables that are not published yet, so
//! these, too, become visible all at once.
//!
//! # Threads and locks
//!
//! One thread at a time catches up, under the follower's mutex, which is taken before all other
//! locks. While reading, it takes only `state`, briefly. Publication takes these, in this order:
//! the log's (a reader that records gaps must not see a number between two), `state`, and the
//! snapshots'. Readers wait for none of them.

mod logs;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{FilterFileId, KeyspaceId, LogId, TableId};
use tamis_base::key::SeqNo;
use tamis_files::tree::files::{log_path, manifest_path, options_path};
use tamis_files::tree::found::check_state;
use tamis_files::tree::manifest::ManifestReader;
use tamis_files::tree::state::{KeyspaceState, ManifestState};

use crate::catalogue::Opened;
use crate::catalogue::keyspace::{CONSUMERS_KEYSPACE, KeyspaceInner};
use crate::catalogue::state::State;
use crate::error::{OpenError, StorageError};
use crate::io::read_file;
use crate::jobs::guarded::guarded;
use crate::open::beside::{self, Mark};
use crate::open::follow::logs::FollowedLogs;
use crate::options::Options;
use crate::session::Session;
use crate::sync::Mutex;
use crate::tree::open_table::OpenTable;
use crate::{open, sync};

/// Which epochs of a keyspace belong to flushes whose tables were in a published version.
///
/// A flush takes its epoch when it begins, and others may be published before it, so a manifest's
/// next epoch alone does not tell. But once the floor of a later manifest is past the logs that
/// existed then, everything that was in memtables then is in tables, so no flush of that time is
/// still running.
#[derive(Debug, Default)]
struct Settled {
    /// All epochs below this one are settled.
    until: u64,
    /// Next epochs of manifests, each with the last log that existed then.
    pending: VecDeque<(LogId, u64)>,
}

/// What a follower knows of its database's files. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// `None` before the first attempt and after an error.
    manifest: Option<ManifestReader>,
    /// The end of the manifest last read.
    mark: Mark,
    /// The manifest as published: while it stays, the tree need not be compared.
    published: Mark,
    logs: FollowedLogs,
    /// The epochs of keyspaces with global filters.
    settled: HashMap<KeyspaceId, Settled>,
    /// Tables opened by an attempt that are in no version yet.
    opened: Opened,
    /// Keyspaces opened by an attempt and not published yet.
    newcomers: HashMap<KeyspaceId, Arc<KeyspaceInner>>,
    ends: Ends,
}

/// Opens the database in `dir` to follow it.
pub(crate) fn open(dir: &Path, options: &Options) -> Result<(Arc<Session>, Arc<Mutex<Follower>>), OpenError> {
    let options = Options { recover_to: None, ..options.clone() };
    let fs = open::file_system(&options);
    let (session, _) = beside::repeat(dir, || {
        (beside::mark(&*fs, dir), open::open_trees(dir, options.clone(), true, None).map(Some))
    })?;
    let db = Arc::new(session);
    let follower = Arc::<Mutex<Follower>>::default();
    catch_up(&db, &follower)?;
    Ok((db, follower))
}

/// Reports whether the writer keeps logs for readers of changes, because of its options or a
/// consumer.
fn keeps_changes(db: &Session) -> bool {
    let text = read_file(&*db.fs, &options_path(&db.dir)).ok().and_then(|text| String::from_utf8(text).ok());
    let options = text.and_then(|text| Options::from_stored(&text).ok());
    let has_consumers =
        || db.keyspaces.directory.load().values().any(|keyspace| keyspace.name() == CONSUMERS_KEYSPACE);
    options.is_some_and(|options| options.changes_keep_bytes > 0 || options.changes_keep_time.is_some())
        || has_consumers()
}

/// See [`Db::catch_up`](crate::Db::catch_up).
pub(crate) fn catch_up(db: &Session, follower: &Mutex<Follower>) -> Result<SeqNo, OpenError> {
    db.gate.check_process()?;
    let mut follower = follower.lock();
    beside::repeat(&db.dir, || {
        let done = follower.attempt(db);
        if done.is_err() {
            // The next attempt reads the files from scratch; the manifest was let go at once.
            follower.logs.open_anew();
        }
        (follower.mark, done.map(|done| done.then(|| db.visible())))
    })
}

/// Reports whether a manifest lacks what the published one had: edits whose sync failed, or writes
/// that a power failure took.
fn withdraws(published: &ManifestState, new: &ManifestState) -> bool {
    let lower = |(id, old): (&KeyspaceId, &Arc<KeyspaceState>)| {
        new.keyspaces
            .get(id)
            .is_some_and(|new| new.log_floor < old.log_floor || new.next_epoch < old.next_epoch)
    };
    new.log_floor() < published.log_floor()
        || new.next_keyspace < published.next_keyspace
        || new.last_seq < published.last_seq
        || published.keyspaces.iter().any(lower)
}

/// Catches up with the writer at the interval set in the options, and builds global filters.
pub(crate) fn follow_loop(db: &Session, follower: &Mutex<Follower>) {
    let mut last = sync::now();
    let mut failure = String::new();
    let mut state = db.state();
    while !db.gate.has_ended() {
        if let Some((keyspace, task)) = state.next_filter_work() {
            state.filters.start(keyspace.id, &task);
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
        if let Some(left) = left_of(interval, sync::since(last)) {
            state = db.monitor.wait_for(state, left);
            continue;
        }
        drop(state);
        last = sync::now();
        match guarded(db, "catching up with the writer", || catch_up(db, follower)) {
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

/// Returns what is left of an interval; `None` if it has passed.
fn left_of(interval: Duration, passed: Duration) -> Option<Duration> {
    let left = interval.checked_sub(passed).filter(|left| !left.is_zero())?;
    Some(left.max(Duration::from_micros(100)))
}

impl Follower {
    /// Returns what was published last, with the logs that the writer keeps for readers of changes.
    pub(crate) fn ends_with_kept(&mut self, db: &Session) -> Ends {
        let mut ends = self.ends.clone();
        if keeps_changes(db) {
            let needed = ends.logs.first().map(|(log, _)| *log);
            let kept = self.logs.before(db, needed, ends.last_seq + 1);
            ends.logs.splice(..0, kept.into_iter().rev());
        }
        ends
    }

    /// Returns `false` if the writer has changed something meanwhile.
    fn attempt(&mut self, db: &Session) -> Result<bool, OpenError> {
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
        // Keyspaces whose tables changed.
        let mut changed = HashSet::default();
        if self.published.is_none_or(|(number, _)| number != mark.0) {
            // A new session recreates an empty log that it finds.
            self.logs.open_anew();
            if withdraws(db.state().catalogue.tree(), manifest.state()) {
                (self.logs, self.settled) = Default::default();
            }
        }
        if self.published != Some(mark) {
            check_state(manifest.state())
                .map_err(|what| StorageError::corrupt(&manifest_path(&db.dir, mark.0), None, what))?;
            self.logs.list(db)?;
            changed = self.open_tables(db, manifest.state())?;
        }
        // On the first attempt, when the database is being opened, damage is reported at once.
        let is_first = self.published.is_none();
        let is_whole = self.logs.read(db, manifest.state(), &self.newcomers, is_first)?;
        let is_newer = manifest.refresh(&*db.fs, &db.dir)?;
        let done = is_whole && !is_newer;
        if !is_whole && !is_newer {
            // A keyspace is in the manifest before it gets its first write.
            let log = log_path(&db.dir, self.logs.current().unwrap_or_default());
            let what = "it holds a write to a keyspace that is not in the manifest";
            return Err(StorageError::corrupt(&log, None, what).into());
        }
        if done {
            let closed_after = manifest.is_closed().then_some(manifest.state().last_seq);
            if let Some(error) = self.logs.wrong_end(db, mark.0, closed_after) {
                return Err(error.into());
            }
            self.publish(db, manifest.state(), mark, &changed);
        }
        self.manifest = Some(manifest);
        Ok(done)
    }

    /// Returns the open keyspaces that are the same in `state`, each with whether its tables differ
    /// there.
    fn known_keyspaces(
        &self,
        db: &Session,
        state: &ManifestState,
    ) -> HashMap<KeyspaceId, (Arc<KeyspaceInner>, bool)> {
        let is_new_manifest = self.published.map(|mark| mark.0) != self.mark.map(|mark| mark.0);
        let locked = db.state();
        let known = &locked.catalogue.tree().keyspaces;
        let open = locked.catalogue.keyspaces().iter().filter_map(|(id, keyspace)| {
            let (old, new) = (known.get(id)?, state.keyspaces.get(id)?);
            // If a creation was withdrawn, the next keyspace has its number.
            let is_same = !is_new_manifest || old.name == new.name || old.options == new.options;
            is_same.then(|| (*id, (keyspace.clone(), old.runs != new.runs)))
        });
        open.collect()
    }

    /// Opens what `state` has and the versions in use do not; returns the keyspaces whose tables
    /// changed. Holds no lock while opening.
    fn open_tables(&mut self, db: &Session, state: &ManifestState) -> Result<HashSet<KeyspaceId>, OpenError> {
        let open = self.known_keyspaces(db, state);
        // Left by an attempt that failed.
        self.newcomers.retain(|id, _| state.keyspaces.contains_key(id));
        let mut named: HashSet<TableId> = HashSet::default();
        for (&id, stored) in state.keyspaces.iter() {
            let Some((keyspace, is_changed)) = open.get(&id) else {
                // Reopened on each attempt: nobody reads it yet, and its tables may have changed.
                self.newcomers.insert(id, Arc::new(open::open_newcomer(db, id, stored, state.last_seq)?));
                continue;
            };
            if !is_changed {
                continue;
            }
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
                    let (config, garbage) = (&db.files.reader_config, &db.files.garbage);
                    let table = OpenTable::open(&*db.fs, &db.dir, meta.clone(), config, garbage)?;
                    self.opened.insert(meta.id, table);
                }
            }
        }
        self.opened.retain(|id, _| named.contains(id));
        Ok(open.iter().filter(|(_, (_, is_changed))| *is_changed).map(|(id, _)| *id).collect())
    }

    /// Publishes what was read. Cannot fail.
    fn publish(
        &mut self,
        db: &Session,
        tree: &ManifestState,
        mark: (u64, u64),
        changed: &HashSet<KeyspaceId>,
    ) {
        let is_other_tree = self.published != Some(mark);
        let last_seq = self.logs.last_seq().max(tree.last_seq).max(db.visible());
        if !is_other_tree && last_seq == db.visible() && !self.logs.has_unpublished() {
            return;
        }
        let (directory, visible) = (db.keyspaces.directory.load_full(), db.visible());
        let may_take_more = |id: KeyspaceId| (!changed.contains(&id)).then_some(visible);
        self.logs.apply_held(&directory, &self.newcomers, tree, may_take_more);
        let mut log = db.log.lock();
        let mut state = db.state();
        let live = db.snapshots.lock();
        log.follow(last_seq);
        let keyspaces = state.catalogue.keyspaces().clone();
        for (id, keyspace) in keyspaces.iter() {
            tree.keyspaces
                .get(id)
                .and_then(|stored| stored.ages)
                .iter()
                .for_each(|ages| keyspace.age.raise(ages));
            // The recorded gaps do not account for the writes that become visible now.
            keyspace.view.load().gaps.clear();
        }
        db.expiry.follow(&tree.times);
        db.committer.publish(last_seq);
        db.expiry.note_visible();
        if is_other_tree {
            let changed = keyspaces.iter().filter(|(id, _)| changed.contains(id));
            changed.for_each(|(_, keyspace)| self.note_unseen(tree, keyspace));
            state.catalogue.follow(tree.clone(), mark.0);
        }
        let mut published = Vec::new();
        for keyspace in keyspaces.values() {
            let Some(stored) = tree.keyspaces.get(&keyspace.id) else { continue };
            if self.newcomers.contains_key(&keyspace.id) {
                // A newcomer of the same number replaces it.
                continue;
            }
            let old = keyspace.view.load_full();
            let memtables = self.logs.memtables_of(keyspace, tree.floor_of(stored), &old.memtables);
            if changed.contains(&keyspace.id) {
                let memtables = memtables.unwrap_or_else(|| old.memtables.clone());
                let version = state.catalogue.version(keyspace, &old.version, &self.opened);
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
            state.filters.tree_changed(&keyspace);
            db.warn_of_filter(&keyspace);
        }
        self.opened.clear();
        self.published = Some(mark);
        let logs = self.logs.ends();
        db.log.note_found(&mut state.logs, &logs);
        let filters = tree.keyspaces.values().flat_map(|stored| &stored.filter_files);
        let filters = filters.map(|(&id, &bytes)| (id, bytes)).collect();
        self.ends = Ends { last_seq: self.logs.last_seq().max(tree.last_seq), manifest: mark, logs, filters };
        drop(state);
        db.keep_filters_in_memory(None);
        db.monitor.notify();
    }

    /// Tells a global filter which tables may have keys that it lacks.
    fn note_unseen(&self, tree: &ManifestState, keyspace: &KeyspaceInner) {
        let (Some(global), Some(stored)) = (keyspace.filter.global(), tree.keyspaces.get(&keyspace.id))
        else {
            return;
        };
        let settled = self.settled.get(&keyspace.id).map_or(0, |settled| settled.until);
        let tables: HashMap<TableId, bool> = stored
            .tables()
            .map(|meta| (meta.id, meta.epochs.segments().iter().any(|segment| segment.hi > settled)))
            .collect();
        let is_unseen = |id: &TableId| tables.get(id).copied().unwrap_or(false);
        let unseen = self.opened.keys().copied().filter(is_unseen);
        global.grf.note_unseen(unseen, |id| tables.contains_key(&id));
    }

    /// Works out which epochs are known to be in published versions.
    fn settle(&mut self, state: &State) {
        let Some(log) = self.logs.current() else { return };
        let tree = state.catalogue.tree();
        self.settled.retain(|id, _| tree.keyspaces.contains_key(id));
        for (id, keyspace) in state.catalogue.keyspaces().iter() {
            let (Some(global), Some(stored)) = (keyspace.filter.global(), tree.keyspaces.get(id)) else {
                continue;
            };
            let settled = self.settled.entry(*id).or_default();
            if settled.pending.back().is_none_or(|(_, next)| *next < stored.next_epoch) {
                settled.pending.push_back((log, stored.next_epoch));
            }
            // Otherwise the table that replaces an unseen one would not count as unseen.
            while !global.grf.has_unseen()
                && let Some((_, next)) =
                    settled.pending.front().copied().filter(|(log, _)| *log < tree.floor_of(stored))
            {
                settled.until = next;
                settled.pending.pop_front();
            }
        }
    }

    /// Adds, renames and drops keyspaces to match the catalogue's tree.
    fn follow_keyspaces(&mut self, db: &Session, state: &mut State) {
        let newcomers = std::mem::take(&mut self.newcomers);
        let mut changed = !newcomers.is_empty();
        for (id, keyspace) in newcomers {
            if let Some(other) = state.catalogue.keyspaces().get(&id).cloned() {
                db.elastic.dropped(&other.view.load().version);
                state.catalogue.forget(&other);
            }
            let tree = state.catalogue.tree();
            let floor = tree.floor_of(&tree.keyspaces[&id]);
            let none = keyspace.view.load().memtables.clone();
            if let Some(memtables) = self.logs.memtables_of(&keyspace, floor, &none) {
                keyspace.replace_memtables(memtables);
            }
            state.catalogue.add(&keyspace);
            let tree = state.catalogue.tree();
            db.elastic.opened(std::iter::once(&*keyspace.view.load_full()), |table| tree.hotness(table));
            db.warn_of_filter(&keyspace);
        }
        for keyspace in state.catalogue.keyspaces().clone().values() {
            match state.catalogue.tree().keyspaces.get(&keyspace.id) {
                Some(stored) if *stored.name != *keyspace.name() => {
                    keyspace.names.add(&stored.name);
                    changed = true;
                }
                Some(_) => {}
                None => {
                    db.elastic.dropped(&keyspace.view.load().version);
                    state.catalogue.forget(keyspace);
                    self.logs.forget(keyspace.id);
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

/// How far the appended files reach.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// The sequence number of the last write in logs and tables.
    pub(crate) last_seq: SeqNo,
    /// The manifest's number and length.
    pub(crate) manifest: (u64, u64),
    /// The logs and their lengths, oldest first.
    pub(crate) logs: Vec<(LogId, u64)>,
    /// The filter files and their lengths.
    pub(crate) filters: Vec<(FilterFileId, u64)>,
}

#[cfg(test)]
pub(crate) mod tests;
