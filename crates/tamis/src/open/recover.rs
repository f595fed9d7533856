//! What an opening does with the logs that it finds.

use std::path::Path;

use tamis_base::collections::HashMap;
use tamis_base::ids::{KeyspaceId, LogId};
use tamis_base::key::SeqNo;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::{FileKind, log_path, manifest_path};
use tamis_files::tree::found::{Files, check_last_seq};
use tamis_files::tree::replay::{ReplayOptions, Replayed, first_write, replay};
use tamis_files::tree::state::ManifestState;
use tamis_files::wal::End;
use tamis_filter::Digest;

use crate::catalogue::NotBegun;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::error::{OpenError, StorageError, WriteError};
use crate::io::FileSystem;
use crate::jobs::begin::Flushed;
use crate::jobs::leftovers::{keeps_changes, remove_leftovers};
use crate::observe::span;
use crate::read::{MemtableSlot, Memtables};
use crate::session::Session;
use crate::session::beginning::Beginning;
use crate::session::repair::Repair;

/// Replays the logs into memtables; a writable database then flushes them and starts its own log,
/// in one step, so that a crash during recovery changes nothing. On a full disk that step is left
/// for later.
pub(super) fn recover(db: &Session, found: Found) -> Result<(), OpenError> {
    let Found { logs, files, manifest_end, repair } = found;
    let (logs, manifest_end) = (&logs[..], manifest_end.as_ref());
    span!("recovery", logs = logs.len());
    let rebuilt = repair.as_ref().is_some_and(|repair| repair.rebuilt);
    let none = HashMap::default();
    let covered = repair.as_ref().map_or(&none, |repair| &repair.covered);
    let has_tables = files.iter().any(|(_, kind)| matches!(kind, FileKind::Table(_)));
    let (known, floor) = {
        let state = db.state();
        let tree = state.catalogue.tree();
        (tree.last_seq, tree.log_floor())
    };
    // A repair sets files aside and leaves tables out, which must not be done halfway.
    let may_wait = db.lifecycle.repaired.is_none() && db.state().catalogue.manifest_number() > 0;
    let full = |e: &StorageError| may_wait && e.is_out_of_space();
    let mut flushed = Flushed::default();
    let mut has_room = true;
    let replayed =
        match replay_into_memtables(db, logs, covered, (!db.gate.is_read_only()).then_some(&mut flushed)) {
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
    // Their numbers are given again.
    db.state().catalogue.cut_times_at(last_seq);
    db.expiry.cut_at(last_seq);
    // The contents of the logs were written before this moment; nothing more is known.
    db.expiry.note_visible();
    if db.gate.is_read_only() {
        return note_logs(db, logs);
    }
    let preserved = match &repair {
        Some(repair) => (repair.preserve)(&*db.fs)?,
        None => HashMap::default(),
    };
    if db.state().catalogue.manifest_number() == 0 {
        begin_new(db)?;
        return remove_leftovers(db, &files, &preserved);
    }
    let empty_log = logs.last().copied().filter(|_| replayed.last_empty);
    let mut pending = Beginning { empty_log, ..Beginning::default() };
    let mut kept = logs.to_vec();
    // Of a state that is restored nothing is changed before it is in place, and then none of its
    // logs is kept.
    if keeps_changes(db) && db.options.recover_to.is_none() {
        // Before their writes are in tables that survive what they would not.
        let torn = replayed.broken.as_ref().map_or(LogId::MAX, |(log, ..)| *log);
        for &id in logs {
            let path = log_path(&db.dir, id);
            // What is behind a torn record never was part of the database, and must not be taken
            // for it by a later session.
            let done = if id <= torn { db.fs.sync_file(&path) } else { db.fs.remove(&path) };
            if let Err(e) = done {
                db.warn(format!(
                    "readers of changes may fall behind: {}",
                    StorageError::io("keep", &path, e)
                ));
            }
        }
        kept.retain(|id| *id <= torn);
    }
    let logs = &kept[..];
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
    // Everything is in memory now, and the manifest in force is whole: files that it does not name
    // may be removed, to free room.
    note_logs(db, logs)?;
    db.state().logs.wait_at(floor);
    remove_leftovers(db, &files, &preserved)?;
    match db.begin(&mut pending, Flushed::default()) {
        Ok(()) => {
            db.write_options()?;
            remove_leftovers(db, &files, &preserved)
        }
        Err(NotBegun::Unchanged(error)) if full(&error) => {
            // Nothing becomes a table for now. Even so, the data shown survives a power failure, as
            // after any opening.
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
pub(super) struct Found {
    /// The logs that are still needed.
    pub(super) logs: Vec<LogId>,
    pub(super) files: Vec<(String, FileKind)>,
    pub(super) manifest_end: Option<End>,
    pub(super) repair: Option<Repair>,
}

/// Records the logs that were read as part of the state shown: `verify` reads them again, `stats`
/// counts them.
fn note_logs(db: &Session, logs: &[LogId]) -> Result<(), OpenError> {
    let found = logs.iter().map(|&id| {
        let path = log_path(&db.dir, id);
        Ok((id, db.fs.file_len(&path).map_err(|e| StorageError::io("read", &path, e))?))
    });
    let found: Vec<_> = found.collect::<Result<_, OpenError>>()?;
    db.log.note_found(&mut db.state().logs, &found);
    Ok(())
}

/// Replays the logs into fresh memtables. Full memtables become tables if possible; a reader, or a
/// writer without room, keeps everything in memory.
fn replay_into_memtables(
    db: &Session,
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
    let salvage = db.lifecycle.repaired.is_some();
    let keyspaces = db.keyspaces.directory.load_full();
    let empty = |keyspace: &KeyspaceInner| {
        let memtables = Memtables::new(keyspace.fresh_memtable(0));
        keyspace.replace_memtables(memtables);
        db.keyspaces.filled.remove(keyspace.id);
    };
    db.keyspaces.filled.list().iter().for_each(|keyspace| empty(keyspace));
    replay::<OpenError>(
        &*db.fs,
        &db.dir,
        logs,
        ReplayOptions { salvage, until: db.options.recover_to },
        |log, seq, op| {
            let id = op.keyspace();
            if id >= next_keyspace && !salvage {
                let what = format!("it holds a write to keyspace {id}, which is not in the manifest");
                return Err(StorageError::corrupt(&log_path(&db.dir, log), None, what).into());
            }
            let Some(keyspace) = keyspaces.get(&id).filter(|_| log >= floors[&id]) else {
                return Ok(());
            };
            if covered.get(&id).is_some_and(|covered| seq <= *covered) {
                return Ok(());
            }
            let full =
                |slot: &MemtableSlot| slot.memtable.used_bytes() as u64 >= keyspace.options.memtable_bytes;
            if let Some(flushed) =
                flushed.as_deref_mut().filter(|_| full(&keyspace.view.load().memtables.active))
            {
                db.flush_replayed(keyspace, flushed)?;
                empty(keyspace);
            }
            let view = keyspace.view.load();
            if view.memtables.active.memtable.is_empty() {
                db.keyspaces.filled.add(keyspace, log);
            }
            view.memtables.active.memtable.writer().insert_op(op, op.key().map(Digest::of), seq, None);
            Ok(())
        },
    )
}

/// Begins the first session of a new database. It names its manifest before it creates a log; in
/// any later session, the old logs get their successor while the old manifest is in force: see
/// `wrong_end`.
fn begin_new(db: &Session) -> Result<(), StorageError> {
    let keyspaces = db.keyspaces.directory.load_full();
    let mut log = db.lock_log();
    let mut state = db.state();
    let id = db.files.numbers.take();
    state.catalogue.roll()?;
    drop(state);
    let first = db.log.create_first(id)?;
    let mut state = db.state();
    db.log.begin(&mut log, &mut state.logs, first, db.visible());
    let mut edit = VersionEdit::default();
    db.describe_session(&state, &keyspaces, id, &mut edit);
    db.commit_without_tables(&mut state, edit)?;
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

/// Returns damage as an error, or records it as a warning in a repair.
fn doubt(db: &Session, error: StorageError) -> Result<(), OpenError> {
    if db.lifecycle.repaired.is_none() {
        return Err(error.into());
    }
    db.warn(error.to_string());
    Ok(())
}

/// Checks the ends of the manifest and the logs against each other, which the records alone cannot
/// show. They are written in a fixed order (see `Handle::shut_down`): a log other than the last is
/// closed once its successor exists; the last log of a session, if it holds anything, is closed
/// once the manifest is; and the manifest records how far the logs go before it is closed.
fn wrong_end(
    db: &Session,
    logs: &[LogId],
    replayed: &Replayed,
    known: SeqNo,
    manifest_end: Option<&End>,
) -> Option<StorageError> {
    if replayed.stopped.is_some() {
        return None;
    }
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
    if replayed.last_closed {
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

/// Forgets what a stored tree says of writes after `until`, if the logs allow; returns the last
/// write of the state to be restored: the last record of the logs that is not beyond `until` ends
/// with it. Reads the needed logs.
pub(super) fn cut(
    fs: &dyn FileSystem,
    dir: &Path,
    tree: &mut ManifestState,
    until: SeqNo,
) -> Result<SeqNo, OpenError> {
    let floor = tree.log_floor();
    let mut logs = Files::list(fs, dir)?.logs;
    logs.retain(|id| *id >= floor);
    // Every write of a keyspace that is before its floor is in its tables, or was hidden by one
    // that is. Tables do not say how new what they hold is: merges forget the numbers of old
    // entries, and drop deletes.
    let mut oldest = 0;
    for stored in tree.keyspaces.values() {
        let mut first = None;
        for &id in logs.iter().filter(|id| **id >= stored.log_floor) {
            first = first_write(fs, &log_path(dir, id), id)?;
            if first.is_some() {
                break;
            }
        }
        oldest = oldest.max(first.map_or(tree.last_seq, |(first, _)| first.saturating_sub(1)));
    }
    let unreachable = |oldest| OpenError::Unreachable { asked: until, oldest };
    if until < oldest {
        return Err(unreachable(oldest));
    }
    let options = ReplayOptions { salvage: false, until: Some(until) };
    // The edit of an ingestion records its number; without it, its tables are not part of the tree.
    let mut ingested = None;
    let replayed = replay::<OpenError>(fs, dir, &logs, options, |_, seq, op| {
        if op.is_ingestion() && seq > tree.last_seq {
            ingested = ingested.or(Some(seq));
        }
        Ok(())
    })?;
    if let Some(seq) = ingested {
        return Err(OpenError::IngestedElsewhere { asked: until, seq });
    }
    let last = match replayed.stopped {
        Some((_, first)) => first.saturating_sub(1),
        None => until.min(replayed.last_seq.max(tree.last_seq)),
    };
    tree.cut_at(last).map_err(unreachable)?;
    Ok(last)
}

#[cfg(test)]
mod tests;
