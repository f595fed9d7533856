//! Background work on global filters: making them from images after opening, building and
//! rebuilding partitions, collecting their codes, adding the keys of new tables, and saving images.
//!
//! One thread at a time works on a keyspace's filter. It builds without a lock, from the tables of
//! the version current at the start; see [`Grf`] for how concurrent changes are included. A failure
//! does not affect answers: the partition is read without the filter, or with the old one. The work
//! is retried when the tree has changed.
//!
//! [`GlobalFilter::task`] says which work is due. Behind the `state` lock, [`FilterUpkeep`] only
//! remembers what is under way and what failed. Work counts as failed while under way, so a panic
//! leaves it marked as failed; writes have stopped for good by then.
//!
//! [`FilterUpkeep`]: crate::catalogue::filter_upkeep::FilterUpkeep

use std::sync::Arc;
use std::time::Instant;

use tamis_base::collections::HashMap;
use tamis_base::ids::FilterFileId;
use tamis_files::images::ImageKind;

use crate::catalogue::filter_files::{LiveImage, NewImage, NotSaved, StoredImage};
use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::error::{AdminError, StorageError, WriteError};
use crate::select::{Built, GlobalFilter, Grf, Moment, Restored, SavedPart, Span, Switch, Task};
use crate::session::Session;
use crate::tree::version::Version;

/// Roughly the most bytes of partitions per filter file: they are in memory twice during the write.
const SAVE_BYTES: usize = 32 << 20;

/// The same when the database is closed, which should be quick. The next opening reads the rest
/// from tables.
const CLOSE_BYTES: usize = 64 << 20;

/// The most ranges that use one image, so that memory is proportional to the files whatever they
/// say. An image is divided only where newer images of other ranges were saved.
const MOST_USES: u32 = 8;

/// How often older images are tried in place of damaged ones.
const MOST_ROUNDS: u32 = 8;

impl Session {
    /// Does the work due, after its start was noted, and marks its end, even in a panic.
    pub(crate) fn work_on_filter(&self, keyspace: &KeyspaceInner, task: Task) {
        let Some(global) = keyspace.filter.global() else { return };
        let work = std::panic::AssertUnwindSafe(|| self.work_on(keyspace, global, task));
        let result = std::panic::catch_unwind(work);
        self.warn_of_filter(keyspace);
        self.state().filters.end(keyspace.id, matches!(result, Ok(Ok(true))));
        self.monitor.notify();
        match result {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                log::warn!("keyspace `{}`: its global filter is not complete: {why}", keyspace.name());
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Does some work. Returns whether all of it is done.
    fn work_on(
        &self,
        keyspace: &KeyspaceInner,
        global: &GlobalFilter,
        task: Task,
    ) -> Result<bool, StorageError> {
        let grf = &global.grf;
        match task {
            Task::Build(span) => {
                self.renew_filter(keyspace, grf, |version| grf.build(version, span).map(Some))
            }
            // As far as there are images.
            Task::Load => self.renew_filter(keyspace, grf, |version| {
                Ok(Some(grf.load(version, self.read_images(keyspace, grf))))
            }),
            Task::Collect => self.renew_filter(keyspace, grf, |version| Ok(grf.collect(version))),
            Task::Insert => Ok(self.insert_into_filter(keyspace, grf)),
            Task::Save => Ok(self.save_filter(keyspace, grf, Moment::Open)),
            Task::Switch(switch) => Ok(self.switch_filter(keyspace, global, switch)),
        }
    }

    /// Replaces partitions by what `make` makes of the current version, from its tables, from images
    /// or from what they are. Flushes go on meanwhile. Returns whether all of it was made.
    fn renew_filter(
        &self,
        keyspace: &KeyspaceInner,
        grf: &Grf,
        make: impl FnOnce(&Version) -> Result<Option<Built>, StorageError>,
    ) -> Result<bool, StorageError> {
        // Tables that are flushed meanwhile stay young.
        let version = keyspace.view.load().version.clone();
        let Some(built) = make(&version)? else { return Ok(true) };
        for warning in &built.warnings {
            self.warn(format!("keyspace `{}`: {warning}", keyspace.name()));
        }
        let complete = built.is_complete();
        let work = grf.work();
        let replaced = {
            let state = self.state();
            let replaced = grf.install(&work, &version, built);
            state.catalogue.publish_selector(keyspace);
            replaced
        };
        drop(version);
        grf.shrink(&work, replaced);
        Ok(complete)
    }

    /// Reads a keyspace's images that count. Unusable images cause a warning, and the tables of
    /// their ranges are read unless other images cover them.
    fn read_images(&self, keyspace: &KeyspaceInner, grf: &Grf) -> Vec<SavedPart> {
        let mut restored: HashMap<(FilterFileId, usize), Arc<Restored>> = HashMap::default();
        let mut restore = |image: &StoredImage| -> Result<Arc<Restored>, ()> {
            if let Some(known) = restored.get(&image.id()) {
                return Ok(known.clone());
            }
            let bytes = self.files.filter_files.read(image).map_err(drop)?;
            let made = grf.restore(&bytes).map_err(|why| {
                let file = tamis_files::tree::files::filter_path(&self.dir, image.id().0);
                let why = StorageError::corrupt(&file, None, why);
                self.files.filter_files.note_unusable(image, &why);
            })?;
            let made = Arc::new(made);
            restored.insert(image.id(), made.clone());
            Ok(made)
        };
        let mut parts = Vec::new();
        for _ in 0..MOST_ROUNDS {
            parts.clear();
            let mut complete = true;
            let mut prefixes: HashMap<Span, (u64, Arc<Restored>)> = HashMap::default();
            if grf.has_prefixes() {
                for LiveImage { span, until, stored } in self.live_images(keyspace.id, ImageKind::Prefixes) {
                    let Ok(made) = restore(&stored) else {
                        complete = false;
                        continue;
                    };
                    prefixes.insert(span, (until, made));
                }
            }
            let mut uses: HashMap<(FilterFileId, usize), u32> = HashMap::default();
            for LiveImage { span, until, stored } in self.live_images(keyspace.id, ImageKind::Keys) {
                let uses = uses.entry(stored.id()).or_default();
                *uses += 1;
                if *uses > MOST_USES {
                    continue;
                }
                let Ok(keys) = restore(&stored) else {
                    complete = false;
                    continue;
                };
                // Only if both have the same range: part of a prefix image also has the prefixes of
                // other keys.
                let prefixes = prefixes.get(&span);
                let until = prefixes.map_or(until, |(of_prefixes, _)| until.min(*of_prefixes));
                let prefixes = prefixes.map(|(_, made)| made.clone());
                parts.push(SavedPart { span, until, keys, prefixes });
            }
            if complete {
                break;
            }
        }
        parts
    }

    /// Saves the images that are due. Returns `false` if none was saved.
    fn save_filter(&self, keyspace: &KeyspaceInner, grf: &Grf, moment: Moment) -> bool {
        // Before the session begins, there are tables with unrecorded epochs.
        if !self.may_write_images() {
            return false;
        }
        let most = match moment {
            Moment::Open => SAVE_BYTES,
            Moment::Closing => CLOSE_BYTES,
        };
        let taken = {
            let _work = grf.work();
            let state = self.state();
            let Some(stored) = state.catalogue.tree().keyspaces.get(&keyspace.id) else { return false };
            grf.take_images(&keyspace.view.load().version, stored.next_epoch, moment, most)
        };
        let mut images = Vec::new();
        for image in &taken.images {
            let (keys, prefixes) = grf.image_bytes(image);
            let new = |kind, bytes| NewImage { kind, span: image.span.clone(), until: taken.until, bytes };
            images.push(new(ImageKind::Keys, keys));
            images.extend(prefixes.map(|prefixes| new(ImageKind::Prefixes, prefixes)));
        }
        if images.is_empty() {
            return false;
        }
        match self.save_images(keyspace, &images, moment) {
            Ok(()) => {
                grf.note_saved(&taken);
                true
            }
            Err(NotSaved::Later) => false,
            Err(NotSaved::Failed(why)) => {
                log::debug!("keyspace `{}`: images are due again: {why}", keyspace.name());
                false
            }
        }
    }

    /// Saves what the next opening would otherwise read from tables. Call after background work has
    /// ended.
    pub(crate) fn save_filters_at_close(&self) {
        if !self.may_write_images() {
            return;
        }
        for keyspace in self.keyspaces.directory.load_full().values() {
            if let Some(global) = keyspace.filter.global().filter(|global| global.is_in_force()) {
                if global.grf.has_young() {
                    let work = global.grf.work();
                    global.grf.insert_young(&work, &keyspace.view.load().version, global.grf.outside());
                }
                self.save_filter(keyspace, &global.grf, Moment::Closing);
            }
        }
    }

    fn insert_into_filter(&self, keyspace: &KeyspaceInner, grf: &Grf) -> bool {
        let work = grf.work();
        let (version, outside) = {
            let _state = self.state();
            (keyspace.view.load().version.clone(), grf.outside())
        };
        let done = grf.insert_lacking(&work, &version, outside);
        self.state().catalogue.publish_selector(keyspace);
        done
    }

    /// Lets the flushed tables of all filters wait no longer for others, if none came for a while by
    /// `now`; if `now` is `None`, at once.
    pub(crate) fn ripen(&self, state: &mut State, now: Option<Instant>) {
        let State { filters, catalogue, .. } = state;
        let mut ripened = false;
        for keyspace in catalogue.keyspaces().filtered.values() {
            if keyspace.filter.global().is_some_and(|global| global.grf.ripen(now)) {
                filters.note_due(keyspace.id);
                ripened = true;
            }
        }
        if ripened {
            self.monitor.notify();
        }
    }

    /// Changes the answering filter of a keyspace with `filter = auto`.
    fn switch_filter(&self, keyspace: &KeyspaceInner, global: &GlobalFilter, switch: Switch) -> bool {
        let work = global.grf.work();
        let state = self.state();
        global.switch(&work, switch, &keyspace.view.load().version);
        state.catalogue.publish_selector(keyspace);
        log::info!("keyspace `{}`: {switch:?} its global filter", keyspace.name());
        true
    }

    /// Copies the filters of mapped tables to memory if memory is too scarce for their pages to
    /// stay, and tells readers. Skips filters copied before.
    ///
    /// Call after tables were opened *and* are in a version, without the `state` lock. If `joined`
    /// is given, all of these tables are in it. Any of them may be the one that made memory scarce;
    /// all versions are then checked.
    pub(crate) fn keep_filters_in_memory(&self, joined: Option<&KeyspaceInner>) {
        let is_scarce = |keyspace: &KeyspaceInner| {
            keyspace.view.load().version.tables.iter().any(|table| table.table.is_scarce())
        };
        if joined.is_some_and(|keyspace| !is_scarce(keyspace)) {
            return;
        }
        for keyspace in self.keyspaces.directory.load_full().values() {
            let version = keyspace.view.load().version.clone();
            let copied = version.tables.iter().filter(|table| table.keep_filter_in_memory()).count();
            if copied > 0 {
                self.state().catalogue.publish_selector(keyspace);
                log::debug!(
                    "keyspace `{}`: the filters of {copied} tables are in memory, not in their files",
                    keyspace.name()
                );
            }
        }
    }

    /// Waits until no keyspace's filter has work under way or due.
    pub(crate) fn wait_for_filters(&self) -> Result<(), AdminError> {
        self.gate.check_process()?;
        let mut state = self.state();
        let State { filters, catalogue, .. } = &mut *state;
        filters.note_all(catalogue);
        self.monitor.notify();
        self.ripen(&mut state, None);
        loop {
            if !state.catalogue.keyspaces().filtered.values().any(|keyspace| state.filters.is_busy(keyspace))
            {
                drop(state);
                self.elastic.settle();
                return Ok(());
            }
            match self.gate.is_read_only() {
                true if self.gate.has_ended() => return Err(WriteError::Closed.into()),
                true => {}
                false => self.gate.check_writable()?,
            }
            state = self.monitor.wait(state);
        }
    }

    /// Does all work due: the only background thread of a database opened read-only.
    pub(crate) fn build_filters(&self) {
        loop {
            let task = {
                let mut state = self.state();
                if self.gate.has_ended() {
                    return;
                }
                let task = state.next_filter_work();
                if let Some((keyspace, task)) = &task {
                    state.filters.start(keyspace.id, task);
                }
                task
            };
            match task {
                Some((keyspace, task)) => self.work_on_filter(&keyspace, task),
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    mod scarce;
    mod turns;

    use tamis_base::key::KeyBytes;
    use tamis_testkit::{CrashMode, FaultPlan, FaultyFs, OpClass};

    use super::*;
    use crate::options::FilterChoice;
    use crate::options::ReadMode;
    use crate::select::GlobalFilterStats;
    use crate::{Db, KeyspaceOptions, Options};

    fn opened() -> (FaultyFs, Db) {
        let fs = FaultyFs::new(1);
        let mut options = Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
        options.read_mode = ReadMode::Buffered;
        options.keyspace.filter = FilterChoice::Grf.into();
        (fs, options.open("/db").expect("opening"))
    }

    /// Builds everything on a device whose next read fails.
    fn work_that_fails(fs: &FaultyFs, db: &Session, keyspace: &KeyspaceInner) {
        fs.plan(FaultPlan { fail_at: Some(0), only: Some(OpClass::Read), ..FaultPlan::none() });
        db.work_on_filter(keyspace, Task::Build(Span { start: KeyBytes::default(), end: None }));
    }

    /// Failed work was to be retried when the tree changed, but a change during the work was
    /// forgotten. Without later writes, the tree was read without a filter until the database was
    /// reopened.
    #[test]
    fn a_change_of_the_tree_during_failing_work_allows_a_retry() {
        let (fs, db) = opened();
        let (inner, keyspace) = (db.inner(), &db.default_keyspace().inner);
        // This thread does the work, so no other does.
        inner.state().filters.start(keyspace.id, &Task::Load);
        db.put("key", "value").expect("a write");
        db.flush().expect("a flush");
        work_that_fails(&fs, inner, keyspace);
        assert_eq!(fs.failures(), 1);
        db.wait_for_filters().expect("settling");
        let filter = db.default_keyspace().stats().global_filter.expect("a filter");
        assert_eq!((filter.unbuilt, filter.partitions), (0, 1), "{filter:?}");
    }

    fn key(i: u32) -> [u8; 8] {
        (u64::from(i) << 40).to_be_bytes()
    }

    /// Flushes runs of a hundred keys while nobody works on the filter, which has those of the first.
    fn with_young_runs(runs: u32) -> (FaultyFs, Db) {
        let (fs, db) = opened();
        db.default_keyspace().set_options(&[("auto_compaction", "false")]).expect("an option");
        for run in 0..=runs {
            (0..100).for_each(|i| db.put(key(run + 10 * i), run.to_le_bytes()).expect("a put"));
            db.flush().expect("a flush");
            if run == 0 {
                db.wait_for_filters().expect("settling");
                db.inner().state().filters.working.insert(db.default_keyspace().inner.id);
            }
        }
        (fs, db)
    }

    fn go_on(db: &Db) -> GlobalFilterStats {
        db.inner().state().filters.working.remove(&db.default_keyspace().inner.id);
        db.wait_for_filters().expect("settling");
        db.default_keyspace().stats().global_filter.expect("a filter")
    }

    fn check(db: &Db, runs: u32) {
        let keys: Vec<_> = (0..1000).map(key).collect();
        let found = db.multi_get(&keys).expect("gets");
        for (i, many) in (0..).zip(found) {
            let one = db.get(key(i)).expect("a get");
            let expected = (i % 10 <= runs).then_some((i % 10).to_le_bytes());
            assert_eq!(one.as_deref(), expected.as_ref().map(|value| &value[..]), "{i}");
            assert_eq!(many.as_deref(), one.as_deref(), "{i}");
        }
        assert_eq!(db.iter().count(), 100 * (runs as usize + 1));
    }

    /// After each last-level compaction, the data of a key range was read again.
    #[test]
    fn versions_that_were_merged_leave_the_filter_without_reading_keys() {
        let (_fs, db) = opened();
        let keyspace = db.default_keyspace();
        keyspace.set_options(&[("auto_compaction", "false")]).expect("an option");
        let write = |round: u32, step: usize| {
            (0..8000).step_by(step).for_each(|i| db.put(key(i), round.to_le_bytes()).expect("a put"));
            db.flush().expect("a flush");
            db.wait_for_filters().expect("settling");
        };
        let stats = || keyspace.stats().global_filter.expect("a filter");
        write(0, 1);
        let built = stats();
        let mut old = Vec::new();
        for merge in 1..=4 {
            (1..4).for_each(|round| write(10 * merge + round, 4));
            assert!(stats().entries > 13_000, "{:?}", stats());
            old.push((db.iter(), 10 * merge + 3));
            db.compact().expect("a compaction");
            db.wait_for_filters().expect("settling");
            let now = stats();
            assert_eq!((now.collected.0, now.rebuilt.0), (merge.into(), built.rebuilt.0), "{now:?}");
            assert!(now.entries < 8200 && now.bytes < built.bytes * 11 / 10, "{now:?}");
            let before = db.stats().read;
            for i in 0..8000 {
                let round = if i % 4 == 0 { 10 * merge + 3 } else { 0 };
                assert_eq!(db.get(key(i)).expect("a get").as_deref(), Some(&round.to_le_bytes()[..]), "{i}");
            }
            let used = db.stats().read - before;
            assert_eq!((used.filter_probes, used.runs_searched), (8000, 8000));
        }
        // Deleted keys would stay for ever.
        (51..54).for_each(|round| write(round, 4));
        db.compact().expect("a compaction");
        db.wait_for_filters().expect("settling");
        let now = stats();
        assert_eq!((now.collected.0, now.rebuilt.0), (4, built.rebuilt.0 + 1), "{now:?}");
        for (iterator, round) in old {
            for (i, item) in (0..8000).zip(iterator) {
                let round: u32 = if i % 4 == 0 { round } else { 0 };
                let (found, value) = item.expect("an entry");
                assert_eq!((&found[..], &value[..]), (&key(i)[..], &round.to_le_bytes()[..]));
            }
        }
    }

    /// Each flush copied the whole filter, which took most of a load with small memtables.
    #[test]
    fn keys_of_several_flushes_are_added_together() {
        let (_fs, db) = with_young_runs(3);
        assert_eq!(db.default_keyspace().stats().global_filter.expect("a filter").tables_outside, 3);
        let before = db.stats().read;
        check(&db, 3);
        let wasted = db.stats().read.false_positives - before.false_positives;
        assert!(wasted < 200, "{wasted} of 7 runs × 600 absent keys: young tables have filters");
        let filter = go_on(&db);
        assert_eq!((filter.tables_outside, filter.inserted.0), (0, 300), "{filter:?}");
        let before = db.stats().read.filter_probes;
        assert!(db.get(key(1)).expect("a get").is_some());
        assert_eq!(db.stats().read.filter_probes - before, 1);
        check(&db, 3);
    }

    /// The merged table has keys that the filter knows already.
    #[test]
    fn of_a_merge_of_young_tables_only_their_keys_are_added() {
        let (_fs, db) = with_young_runs(3);
        db.compact().expect("a compaction");
        assert_eq!(db.default_keyspace().stats().runs, 1);
        check(&db, 3);
        let filter = go_on(&db);
        assert_eq!((filter.tables_outside, filter.inserted.0), (0, 300), "{filter:?}");
        check(&db, 3);
    }

    /// A flush takes its epoch before an ingestion, and notes it after a merge of the ingested table.
    /// The epoch of the flush was forgotten with that of the ingestion, before its keys were added.
    #[test]
    fn an_epoch_that_is_noted_while_keys_are_added_stays_missing() {
        let (_fs, db) = with_young_runs(2);
        db.compact().expect("a compaction");
        let keyspace = &db.default_keyspace().inner;
        let grf = &keyspace.filter.global().expect("a global filter").grf;
        let outside = grf.outside();
        let version = keyspace.view.load().version.clone();
        grf.note_missing(version.tables[0].meta.epochs.hull().0);
        assert!(grf.insert_lacking(&grf.work(), &version, outside));
        assert_eq!(grf.report().tables_outside, 1);
        assert_eq!(go_on(&db).tables_outside, 0);
        check(&db, 2);
    }

    /// It kept the others from being added, for as long as it could not be read.
    #[test]
    fn a_young_table_that_cannot_be_read_holds_up_no_other() {
        let (fs, db) = with_young_runs(3);
        let (fail_at, only) = (Some(fs.operations()), Some(OpClass::Read));
        fs.plan(FaultPlan { fail_at, only, ..FaultPlan::none() });
        let filter = go_on(&db);
        assert_eq!((fs.failures(), filter.tables_outside, filter.inserted.0), (1, 0, 300), "{filter:?}");
        check(&db, 3);
    }

    #[test]
    fn a_dropped_keyspace_keeps_no_young_tables() {
        let (fs, db) = opened();
        let options = KeyspaceOptions { filter: FilterChoice::Grf.into(), ..KeyspaceOptions::default() };
        let gone = db.create_keyspace("gone", options).expect("a keyspace");
        db.inner().state().filters.working.insert(gone.inner.id);
        gone.put("key", "value").expect("a put");
        gone.flush().expect("a flush");
        let tables =
            || fs.files().iter().filter(|(path, _)| path.extension() == Some("tam".as_ref())).count();
        assert_eq!(tables(), 1);
        db.drop_keyspace("gone").expect("a drop");
        // Another thread may be at it.
        while tables() > 0 {
            db.inner().remove_obsolete();
            std::thread::yield_now();
        }
    }

    /// Their keys are in no image: the key lists are read again.
    #[test]
    fn young_tables_are_young_no_more_after_a_crash() {
        let (fs, db) = with_young_runs(3);
        let options =
            Options { file_system: Some(Arc::new(fs.crash(CrashMode::KeepAll))), ..Options::default() };
        let mut options = Options { background_threads: 1, ..options };
        options.keyspace.filter = FilterChoice::Grf.into();
        drop(db);
        let db = options.open("/db").expect("opening");
        check(&db, 3);
        db.wait_for_filters().expect("settling");
        let filter = db.default_keyspace().stats().global_filter.expect("a filter");
        assert_eq!((filter.tables_outside, filter.unbuilt), (0, 0), "{filter:?}");
        check(&db, 3);
    }

    /// An image that claimed the epoch of a flush under way would hide that flush's keys from the
    /// next opening.
    #[test]
    fn an_image_claims_no_epoch_of_a_flush_or_ingestion_under_way() {
        let (_fs, db) = opened();
        let (inner, keyspace) = (db.inner(), &db.default_keyspace().inner);
        let grf = &keyspace.filter.global().expect("a global filter").grf;
        let untils = || -> Vec<u64> {
            inner.live_images(keyspace.id, ImageKind::Keys).iter().map(|image| image.until).collect()
        };
        let flushed = |key: &str| {
            db.put(key, "value").expect("a write");
            db.flush().expect("a flush");
            db.wait_for_filters().expect("settling");
        };
        flushed("a");
        assert_eq!(untils(), [2]);
        let (epoch, taken) = inner.take_epoch(keyspace).expect("a keyspace");
        flushed("b");
        assert_eq!((epoch, keyspace.view.load().version.tables.len()), (2, 2));
        assert!(!inner.save_filter(keyspace, grf, Moment::Closing), "it would not be newer");
        drop(taken);
        assert!(inner.save_filter(keyspace, grf, Moment::Closing));
        assert_eq!(untils(), [4]);
        // An epoch that a table holds and the filter lacks; one that no table holds does not count.
        flushed("c");
        // The background thread would add the keys at once.
        inner.state().filters.working.insert(keyspace.id);
        grf.note_missing(4);
        assert!(!inner.save_filter(keyspace, grf, Moment::Closing), "it would not be newer");
        inner.state().filters.working.remove(&keyspace.id);
        inner.monitor.notify();
        db.wait_for_filters().expect("settling");
        grf.note_missing(77);
        assert!(inner.save_filter(keyspace, grf, Moment::Closing));
        assert_eq!(untils(), [5]);
        assert!(!inner.save_filter(keyspace, grf, Moment::Closing), "nothing has changed");
    }

    #[test]
    fn failed_work_is_not_retried_before_the_tree_has_changed() {
        let (fs, db) = opened();
        let (inner, keyspace) = (db.inner(), &db.default_keyspace().inner);
        inner.state().filters.working.insert(keyspace.id);
        db.put("key", "value").expect("a write");
        db.flush().expect("a flush");
        inner.state().filters.start(keyspace.id, &Task::Load);
        work_that_fails(&fs, inner, keyspace);
        db.wait_for_filters().expect("settling");
        let unbuilt = || db.default_keyspace().stats().global_filter.expect("a filter").unbuilt;
        assert_eq!(unbuilt(), 1);
        db.put("other", "value").expect("a write");
        db.flush().expect("a flush");
        db.wait_for_filters().expect("settling");
        assert_eq!(unbuilt(), 0);
    }
}
