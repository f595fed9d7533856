//! Closing a database.

use tamis_files::tree::edit::VersionEdit;

use crate::error::AdminError;
use crate::open::background::Workers;
use crate::session::Session;
use crate::sync::Mutex;

/// Ends background work, syncs the log and releases the directory. Only the first call has an
/// effect.
///
/// The order lets the next opening tell a clean shutdown from a crash: sync the log; end
/// background work; record in a last edit how far the log goes, and close the manifest; close
/// the log. So a closed manifest means that the log is complete, and a closed log that holds
/// records and has no successor means that the manifest is closed.
pub(crate) fn close(db: &Session, workers: &Mutex<Option<Workers>>) -> Result<(), AdminError> {
    db.gate.check_process()?;
    // A stalled writer holds the log lock; it gives up when it sees that the database is
    // closing.
    if !db.gate.leave() {
        return Ok(());
    }
    drop(db.state());
    db.monitor.notify();
    // Under the log lock, so that every write is either acknowledged before this point or
    // refused.
    let mut log = db.lock_log();
    db.gate.close();
    let mut last = None;
    let mut closed = Ok(());
    let healthy = db.gate.check_health();
    if !db.gate.is_read_only() && healthy.is_ok() {
        closed = db.log.end(&mut log).map(|writer| last = writer);
    }
    drop(log);
    {
        let _state = db.state();
        db.gate.end();
    }
    db.monitor.notify();
    let workers = workers.lock().take().map(Workers::join);
    // Runs last, whichever way this function returns.
    let _events = EndEvents(workers);
    db.elastic.stop();
    db.throttle.leave_shared();
    // Manual compactions give up when they see that the database is closed.
    let mut state = db.state();
    while state.scheduler.has_manual() {
        state = db.monitor.wait(state);
    }
    drop(state);
    if closed.is_ok() && healthy.is_ok() {
        db.save_filters_at_close();
    }
    let mut state = db.state();
    let set_options = db.seen_workloads(&mut state);
    if closed.is_ok() && healthy.is_ok() && !db.gate.is_read_only() {
        closed = state.catalogue.settle();
    }
    let manifest = state.catalogue.end();
    let times = db.expiry.unsaved(&state.catalogue.tree().times);
    drop(state);
    db.log.remove_obsolete();
    db.files.garbage.remove_all(&*db.fs);
    let healthy = healthy.and_then(|()| db.gate.check_health());
    if let (Some(mut manifest), Ok(()), Ok(())) = (manifest, &closed, &healthy) {
        closed = db
            .check_named()
            .and_then(|()| {
                manifest.append(&VersionEdit {
                    times,
                    hotness: db.elastic.hotness(),
                    last_seq: Some(db.visible()),
                    set_options,
                    ..VersionEdit::default()
                })
            })
            .and_then(|()| manifest.close())
            .and_then(|()| last.map_or(Ok(()), |log| log.close().map(drop)));
    }
    db.lifecycle.lock.lock().take();
    closed?;
    Ok(healthy?)
}

/// Ends the event listeners' thread.
struct EndEvents(Option<Workers>);

impl Drop for EndEvents {
    fn drop(&mut self) {
        if let Some(workers) = self.0.take() {
            workers.end_events();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use tamis_base::ids::DEFAULT_KEYSPACE;
    use tamis_files::tree::edit::VersionEdit;
    use tamis_files::tree::manifest::Manifest;
    use tamis_testkit::{FaultPlan, FaultyFs};

    use crate::catalogue::retained::ClosedLog;
    use crate::catalogue::state::State;
    use crate::io::{FileSystem, MemFs, Usage};
    use crate::observe::events::{Event, EventListener};
    use crate::select::Task;
    use crate::sync::Mutex;
    use crate::tree::new_tables::NewTables;
    use crate::{Options, open};

    /// Whoever closes a database may go on to read what its listeners have gathered.
    #[test]
    fn listeners_have_been_told_of_everything_when_a_database_is_closed() {
        let (begun, ended) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
        let (begins, ends) = (begun.clone(), ended.clone());
        let listener: Arc<dyn EventListener> = Arc::new(move |event: &Event| {
            if matches!(event, Event::FlushEnded(_)) {
                begins.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
                ends.fetch_add(1, Ordering::Relaxed);
            }
        });
        let options = Options {
            file_system: Some(Arc::new(MemFs::new())),
            listeners: vec![listener],
            ..Options::default()
        };
        let db = options.open("/db").unwrap();
        for i in 0..3 {
            db.put("key", i.to_string()).unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        let told = [begun, ended].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(told, [3, 3]);
    }

    /// The tree in memory may be in any state.
    #[test]
    fn no_manifest_is_written_when_a_database_is_closed_after_a_panic() {
        let fs = FaultyFs::new(1);
        let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let db = open::open(Path::new("/db"), options, None).unwrap();
        fs.plan(FaultPlan { fail_at: Some(fs.operations()), ..FaultPlan::none() });
        let edit = VersionEdit::default();
        db.state().catalogue.commit(edit, NewTables::default(), |_, _| ()).unwrap_err();
        fs.plan(FaultPlan::none());
        db.gate.stop(&"a panic");
        let manifests = || {
            let all = fs.files().into_iter();
            all.filter(|(path, _)| path.to_string_lossy().contains("MANIFEST")).collect::<Vec<_>>()
        };
        let before = manifests();
        super::close(&db, &Mutex::default()).unwrap_err();
        assert_eq!(manifests(), before);
    }

    #[test]
    fn obsolete_logs_are_removed_when_a_database_is_closed() {
        let fs = MemFs::new();
        let options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let db = open::open(Path::new("/db"), options, None).unwrap();
        let path = Path::new("/db/000099.log");
        drop(fs.create(path, Usage::Log).unwrap());
        db.state().logs.obsolete.push(ClosedLog::found(99, None, 10));
        super::close(&db, &Mutex::default()).unwrap();
        assert!(!fs.exists(path).unwrap());
    }

    /// The next opening would read all tables to make it again.
    #[test]
    fn a_filter_is_saved_when_a_database_is_closed() {
        let fs = MemFs::new();
        let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        let db = options.clone().open("/db").unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        options.keyspace.filter = "grf".parse().unwrap();
        let db = open::open(Path::new("/db"), options, None).unwrap();
        // It is built, and there is no thread that saves it.
        {
            let State { catalogue, filters, .. } = &mut *db.state();
            filters.note_all(catalogue);
        }
        loop {
            let mut state = db.state();
            let Some((keyspace, task)) = state.next_filter_work() else { break };
            if matches!(task, Task::Save) {
                break;
            }
            state.filters.start(keyspace.id, &task);
            drop(state);
            db.work_on_filter(&keyspace, task);
        }
        super::close(&db, &Mutex::default()).unwrap();
        let state = Manifest::open(&fs, Path::new("/db")).unwrap().unwrap().state;
        assert_eq!(state.keyspaces[&DEFAULT_KEYSPACE].filter_files.len(), 1);
    }
}
