//! Keyspaces: separate sets of keys in one database, each with its own options, sharing one log.

use std::any::Any;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::Guard;
use tamis_base::key::{KeyEnd, SeqNo};
use tamis_filter::Digest;
use tamis_policy::compaction::shape::KeyRange;

use crate::batch::{WriteBatch, check_value};
use crate::catalogue::age::live_from;
use crate::error::{AdminError, ReadError, WriteError};
use crate::handles::handle::{Db, Keyspace};
use crate::handles::layout;
use crate::handles::layout::TableStats;
use crate::handles::pin::SnapshotPin;
use crate::handles::stats::KeyspaceStats;
use crate::jobs::control::CompactOptions;
use crate::jobs::ingest::{IngestOptions, IngestReport};
use crate::observe::Explained;
use crate::observe::cost::ReadCost;
use crate::observe::latency::Operation;
use crate::options::{Durability, KeyspaceOptions};
use crate::read::explain::{ExplainRecorder, summary};
use crate::read::{Bounds, CountedGet, Explanation, Iter, Lookup, OwnReads, RangeExplanation, ReadAt};
use crate::slice::Slice;
use crate::sync;

#[cfg(feature = "measure")]
use crate::read::filters_alone;

/// A put without a sync copies values of at least so many bytes once less.
const LARGE_VALUE: usize = 4 << 10;

impl Keyspace {
    /// Returns the keyspace's name.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// Returns the options in effect. Changes waiting for the end of a compaction round are not
    /// included.
    pub fn options(&self) -> KeyspaceOptions {
        self.inner.shaping.load().options.clone()
    }

    /// Changes options while the keyspace is in use: all of the changes take effect, or none.
    /// `change` gets the options as last set, and only the fields it changes are written, so
    /// concurrent changes of other options survive. The new values are stored with the database.
    /// Opening the database with different options for its default keyspace replaces values set
    /// here.
    ///
    /// From the next compaction on, the tree moves to its new shape step by step. Only a
    /// `deterministic` tree keeps its old options until the current compaction round ends (or until
    /// [`compact`](Keyspace::compact) is called).
    ///
    /// Costs a write to the manifest if anything changes. To take names and text from a user or a
    /// file, use [`set_options`](Keyspace::set_options).
    ///
    /// # Errors
    ///
    /// [`OptionsError::Fixed`](crate::OptionsError::Fixed) if `change` changes an option that is
    /// fixed at opening. You can change the shape of the tree (`compaction`, `merge`, `size_ratio`,
    /// `table_bytes`, the limits on runs and debt, `retain_bytes`, `time_window`),
    /// `auto_compaction` and `read_compaction`, the filter of new tables (`filter`, `bits_per_key`,
    /// `filter_allocation`; but not to or from a global filter or `auto`), and where large values
    /// go (`blob_threshold`, `blob_garbage`).
    /// [`OptionsError::Value`](crate::OptionsError::Value) if a value is out of range or
    /// contradicts another option.
    ///
    /// ```
    /// use tamis::options::{CompactionChoice, FilterChoice};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// let keyspace = db.default_keyspace();
    /// keyspace.change_options(|options| {
    ///     options.compaction = CompactionChoice::LazyLeveling;
    ///     options.filter = FilterChoice::Ribbon.into();
    ///     options.bits_per_key = 12.0;
    /// })?;
    /// assert_eq!(keyspace.options().bits_per_key, 12.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn change_options(&self, change: impl FnOnce(&mut KeyspaceOptions)) -> Result<(), AdminError> {
        self.handle.inner.gate.check_process()?;
        let before = {
            let state = self.handle.inner.state();
            let waiting = state.reshaping.waiting(self.inner.id).cloned();
            waiting.unwrap_or_else(|| self.inner.shaping.load_full()).options.clone()
        };
        // Without the lock: `change` is the caller's code and may use the database.
        let mut after = before.clone();
        change(&mut after);
        let changes = before.changes_to(&after);
        if changes.is_empty() {
            return Ok(());
        }
        let changes: Vec<(&str, &str)> =
            changes.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.set_options(&changes)
    }

    /// Like [`change_options`](Keyspace::change_options), with each option given by its name and
    /// text, as in the [text form](KeyspaceOptions::to_text).
    ///
    /// # Errors
    ///
    /// Those of [`change_options`](Keyspace::change_options), and
    /// [`OptionsError::Unknown`](crate::OptionsError::Unknown) for a name that no option has.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// let keyspace = db.default_keyspace();
    /// keyspace.set_options(&[("compaction", "lazy-leveling"), ("size_ratio", "4")])?;
    /// assert_eq!(keyspace.options().compaction, tamis::options::CompactionChoice::LazyLeveling);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_options(&self, changes: &[(&str, &str)]) -> Result<(), AdminError> {
        self.handle.inner.gate.check_process()?;
        self.handle.inner.set_options(&self.inner, changes)
    }

    pub(crate) fn check(&self) -> Result<(), ReadError> {
        self.handle.inner.gate.check_process()?;
        if self.inner.is_dropped() {
            return Err(ReadError::Dropped { name: self.inner.name().to_owned() });
        }
        Ok(())
    }

    /// Returns what a read sees, unless the keyspace was dropped: the current state, or that of a
    /// snapshot.
    #[inline]
    fn read_at(&self, pin: Option<&SnapshotPin>) -> Result<ReadAt<'_>, ReadError> {
        let at = self.at(pin);
        // Check after loading: a dropped keyspace has an empty view.
        self.check()?;
        Ok(at)
    }

    /// The order of the loads is one of the invariants of [`ReadAt`].
    #[inline]
    fn at(&self, pin: Option<&SnapshotPin>) -> ReadAt<'_> {
        let db = &self.handle.inner;
        let Some(pin) = pin else { return db.read_now(&self.inner) };
        let held = pin.held.view(self.inner.id);
        let horizon = match held {
            // The writer created this keyspace after the snapshot was taken.
            None if self.handle.follower.is_some() => pin.seq + 1,
            _ => live_from(pin.held.expired(self.inner.id)),
        };
        let view = held.map_or_else(|| self.inner.view.load(), Guard::from_inner);
        let (operator, sharing) = (self.inner.operators.merge.as_ref(), db.options.hash_sharing);
        let records = self.inner.records.as_ref();
        ReadAt { view, seq: pin.seq, horizon, operator, sharing, records }
    }

    #[inline]
    pub(crate) fn lookup(&self, key: &[u8], pin: Option<&SnapshotPin>) -> Result<Lookup, ReadError> {
        self.lookup_digested(key, pin).0
    }

    /// Looks up a key. Also returns its digest if the lookup computed it.
    #[inline]
    pub(crate) fn lookup_digested(
        &self,
        key: &[u8],
        pin: Option<&SnapshotPin>,
    ) -> (Result<Lookup, ReadError>, Option<Digest>) {
        match self.read_at(pin) {
            Ok(at) => self.lookup_at(key, &at),
            Err(error) => (Err(error), None),
        }
    }

    #[inline]
    fn lookup_at(&self, key: &[u8], at: &ReadAt<'_>) -> (Result<Lookup, ReadError>, Option<Digest>) {
        let own = self.inner.reads.own();
        let started = own.is_due().then(sync::now);
        let mut get = CountedGet::default();
        let found = at.get(key, &mut get);
        get.cost.found = u64::from(matches!(found, Ok(Lookup::Found { .. })));
        self.inner.reads.add_get(own, key, &get);
        if let Some(started) = started {
            self.note_timed(own, started, key, at);
        }
        (found, get.digest)
    }

    #[cold]
    #[inline(never)]
    fn note_timed(&self, own: &OwnReads, started: Instant, key: &[u8], at: &ReadAt<'_>) {
        self.inner.reads.timed_get(own, started, || {
            let explained = self.explain_at(key, at);
            self.explained(Some(key), explained.map_or_else(|error| error.to_string(), |e| e.to_string()))
        });
    }

    fn explained(&self, key: Option<&[u8]>, explanation: String) -> Explained {
        Explained { keyspace: self.name().to_owned(), key: key.map(<[u8]>::to_vec), explanation }
    }

    /// Returns what a get of `key` does at this state.
    fn explain_at(&self, key: &[u8], at: &ReadAt<'_>) -> Result<Explanation, ReadError> {
        let mut recorder = ExplainRecorder::default();
        let found = at.get(key, &mut recorder)?;
        let why = self.inner.filter.global().and_then(|global| global.choice(&at.view.version));
        let why = why.map_or_else(String::new, |choice| format!(" (auto: {})", choice.reason));
        let filter = format!("{}{why}", at.view.selector.whose());
        let elastic = &self.handle.inner.elastic;
        Ok(recorder.finish(key, filter, &found, at.horizon, |segment| elastic.hotness_of(segment)))
    }

    /// Looks up a key as of now. Also returns its digest and the last write that the lookup saw.
    pub(crate) fn lookup_now(&self, key: &[u8]) -> Result<(Option<Slice>, Digest, SeqNo), ReadError> {
        let at = self.read_at(None)?;
        let (found, digest) = self.lookup_at(key, &at);
        Ok((found?.value(), digest.unwrap_or_else(|| Digest::of(key)), at.seq))
    }

    pub(crate) fn lookup_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        pin: Option<&SnapshotPin>,
    ) -> Result<Vec<Option<Slice>>, ReadError> {
        let at = self.read_at(pin)?;
        let started = self.inner.reads.starts();
        let mut cost = ReadCost::default();
        let found = at.multi_get(keys, &mut cost);
        cost.found = found.as_ref().map_or(0, |values| values.iter().flatten().count() as u64);
        self.inner.reads.add_gets(keys, found.as_deref().ok(), &cost);
        if let Some(started) = started {
            let explain = || self.explained(None, format!("{} keys: {}", keys.len(), summary(&cost)));
            self.inner.reads.timed(Operation::MultiGet, started, explain);
        }
        found
    }

    pub(crate) fn scan(&self, bounds: Bounds, pin: Option<&Arc<SnapshotPin>>) -> Iter {
        let held = pin.map(|pin| pin.clone() as Arc<dyn Any + Send + Sync>);
        let mut iter = self.at(pin.map(|pin| &**pin)).iter(bounds, self.inner.reads.clone(), held);
        iter.set_dropped(self.inner.is_dropped());
        iter
    }

    /// Sets the value of `key` to `value`, with the database's durability.
    ///
    /// # Errors
    ///
    /// Those of [`Db::put`], and [`WriteError::Dropped`](crate::WriteError::Dropped).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), WriteError> {
        self.put_as(key.as_ref(), value.as_ref(), self.handle.inner.options.durability)
    }

    /// Sets the value of `key` to `value` with its own durability: see [`Db::put_with`].
    ///
    /// # Errors
    ///
    /// Those of [`put`](Keyspace::put).
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<(), WriteError> {
        self.put_as(key.as_ref(), value.as_ref(), durability)
    }

    fn put_as(&self, key: &[u8], value: &[u8], durability: Durability) -> Result<(), WriteError> {
        // Checked before making room for it.
        check_value(value)?;
        let is_protected = self.handle.inner.options.protect_writes;
        let stays = value.len() >= LARGE_VALUE && durability != Durability::Sync && !is_protected;
        let in_batch = if stays { &[] } else { value };
        let mut batch = WriteBatch::with_capacity(key.len() + in_batch.len() + 24);
        batch.put_id(self.inner.id, key, in_batch);
        if stays {
            self.check_alive()?;
            return self.handle.inner.put_large(&batch, value);
        }
        self.write_alive(batch, Some(durability))
    }

    /// Applies `operand` to the value of `key` with the keyspace's merge operator (its option
    /// `merge_operator`), without reading the value: it costs as much as a put. Reads apply the
    /// pending operands; flushes and compactions combine them.
    ///
    /// # Errors
    ///
    /// Those of [`Db::merge`], and [`WriteError::Dropped`](crate::WriteError::Dropped).
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<(), WriteError> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        check_value(operand)?;
        let mut batch = WriteBatch::with_capacity(key.len() + operand.len() + 24);
        batch.merge_id(self.inner.id, key, operand);
        self.write_alive(batch, None)
    }

    /// Deletes `key`. Deleting a key that does not exist is not an error.
    ///
    /// # Errors
    ///
    /// Those of [`Db::delete`], and [`WriteError::Dropped`](crate::WriteError::Dropped).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), WriteError> {
        let mut batch = WriteBatch::new();
        batch.delete_id(self.inner.id, key.as_ref());
        self.write_alive(batch, None)
    }

    /// Deletes all keys in a range, at the cost of one write regardless of how many there are. An
    /// empty range deletes nothing; a reversed range is an error.
    ///
    /// # Errors
    ///
    /// Those of [`Db::delete_range`], and [`WriteError::Dropped`](crate::WriteError::Dropped).
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<(), WriteError> {
        let mut batch = WriteBatch::new();
        batch.delete_range_id(self.inner.id, range);
        self.write_alive(batch, None)
    }

    /// Deletes all keys that start with `prefix`, at the cost of one write regardless of how many
    /// there are. The empty prefix matches every key.
    ///
    /// # Errors
    ///
    /// Those of [`Db::delete_range`], and [`WriteError::Dropped`](crate::WriteError::Dropped).
    pub fn delete_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<(), WriteError> {
        let Bounds { start, end } = Bounds::prefix(prefix.as_ref());
        self.delete_range((Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded)))
    }

    /// Deletes all keys of the keyspace, at the cost of one write. Compactions reclaim the space,
    /// dropping whole tables first. A snapshot taken before still sees the keys.
    ///
    /// # Errors
    ///
    /// Those of [`delete`](Keyspace::delete).
    pub fn clear(&self) -> Result<(), WriteError> {
        self.delete_prefix("")
    }

    /// Commits a batch for this keyspace unless the keyspace was dropped.
    fn write_alive(&self, batch: WriteBatch, durability: Option<Durability>) -> Result<(), WriteError> {
        self.check_alive()?;
        self.handle.write(batch, durability)
    }

    #[inline]
    fn check_alive(&self) -> Result<(), WriteError> {
        match self.inner.is_dropped() {
            true => Err(WriteError::Dropped { name: self.inner.name().to_owned() }),
            false => Ok(()),
        }
    }

    /// Returns the path that a get of `key` would take now, step by step. Costs a get and some
    /// allocations.
    ///
    /// # Errors
    ///
    /// Those of [`Readable::get`](crate::Readable::get).
    pub fn explain_get(&self, key: impl AsRef<[u8]>) -> Result<Explanation, ReadError> {
        self.explain_at(key.as_ref(), &self.read_at(None)?)
    }

    /// Returns what an iteration over the first `limit` entries of `range` touches now, by memtable
    /// and run. Costs that iteration.
    ///
    /// # Errors
    ///
    /// Those of an [`Iter`].
    pub fn explain_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        limit: usize,
    ) -> Result<RangeExplanation, ReadError> {
        let at = self.read_at(None)?;
        let filter = at.view.selector.whose().to_string();
        // Like a get's, its cost is not counted in the statistics.
        let mut explained = at.iter(Bounds::of(&range), Arc::default(), None).explain(limit)?;
        explained.filter = filter;
        Ok(explained)
    }

    /// Probes the filters as a get of `key` does when no table has the key, but reads no table.
    /// Returns the cost: the filters probed, and in `runs_searched` the runs that may hold the key.
    /// Not counted in the statistics. For timing the filter part of a get; includes one computation
    /// of the digest.
    ///
    /// # Errors
    ///
    /// [`ReadError::Dropped`] if the keyspace was dropped.
    #[cfg(feature = "measure")]
    pub fn probe_filters_of_get(&self, key: impl AsRef<[u8]>) -> Result<ReadCost, ReadError> {
        self.check()?;
        Ok(filters_alone::of_absent_key(&self.inner.view.load(), key.as_ref()))
    }

    /// Probes the filters as an iteration from `from` up to `end` (excluded; `None`: no end) does
    /// before its first item, but reads no table. Like
    /// [`probe_filters_of_get`](Self::probe_filters_of_get), but probes in key order and without a
    /// digest.
    ///
    /// # Errors
    ///
    /// [`ReadError::Dropped`] if the keyspace was dropped.
    #[cfg(feature = "measure")]
    pub fn probe_filters_of_range(
        &self,
        from: impl AsRef<[u8]>,
        end: Option<&[u8]>,
    ) -> Result<ReadCost, ReadError> {
        self.check()?;
        Ok(filters_alone::of_range(&self.inner.view.load(), from.as_ref(), end))
    }

    /// Writes the keyspace's memtables to tables and waits until that is done.
    ///
    /// # Errors
    ///
    /// Those of [`Db::flush`].
    pub fn flush(&self) -> Result<(), AdminError> {
        self.handle.inner.flush(std::slice::from_ref(&self.inner))
    }

    /// Merges everything into the last level that holds data and waits until that is done. If no
    /// snapshot is alive, no tombstone and no shadowed version from before the call remains. Tables
    /// whose versions a live snapshot may still tell apart are not rewritten again.
    ///
    /// # Errors
    ///
    /// Those of [`compact_range`](Keyspace::compact_range).
    pub fn compact(&self) -> Result<(), AdminError> {
        self.handle.inner.compact_within(&self.inner, None, &CompactOptions::default())
    }

    /// Like [`compact`](Self::compact), but only for the tables that overlap `range` and the tables
    /// that must be merged with them; others stay as they are. The memtables are flushed whether or
    /// not they overlap the range.
    ///
    /// # Errors
    ///
    /// [`AdminError::Cancelled`] if the token in `options` or [`Db::cancel_compactions`] cancelled
    /// it; merges already completed stay in effect. [`AdminError::NoRoom`] if a merge might not fit
    /// on the device.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tamis::Db::open(dir.path())?;
    /// let options = tamis::maintenance::CompactOptions::default();
    /// let cancel = options.cancel.clone();
    /// // Another thread may call `cancel.cancel()`.
    /// db.default_keyspace().compact_range("a".."c", options)?;
    /// # drop(cancel);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compact_range<K: AsRef<[u8]>>(
        &self,
        range: impl RangeBounds<K>,
        options: CompactOptions,
    ) -> Result<(), AdminError> {
        let Some(range) = keys_of(&range) else { return Ok(()) };
        self.handle.inner.compact_within(&self.inner, Some(&range), &options)
    }

    /// Ingests [external tables](crate::ingest::ExternalTableBuilder) atomically. See
    /// [`Db::ingest`], which does the same for several keyspaces at once.
    ///
    /// # Errors
    ///
    /// Those of [`Db::ingest`].
    pub fn ingest<P: AsRef<Path>>(
        &self,
        files: &[P],
        options: IngestOptions,
    ) -> Result<IngestReport, AdminError> {
        let paths = files.iter().map(|path| path.as_ref().to_owned()).collect();
        self.handle.inner.ingest(vec![(self.inner.clone(), paths)], options)
    }

    /// Returns the keyspace's shape and sizes.
    pub fn stats(&self) -> KeyspaceStats {
        let state = self.handle.inner.state();
        KeyspaceStats::of(&self.handle.inner, &state, &self.inner)
    }

    /// Returns all tables on disk, newest run first, ordered by key within a run.
    pub fn tables(&self) -> Vec<TableStats> {
        layout::tables(&self.inner)
    }

    /// Returns the database that the keyspace belongs to.
    pub fn database(&self) -> Db {
        Db::from_handle(self.handle.clone())
    }
}

/// Returns the key range of the bounds; `None` if it cannot contain a key.
fn keys_of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Option<KeyRange> {
    let smallest: Vec<u8> = match range.start_bound() {
        Bound::Included(key) => key.as_ref().to_vec(),
        Bound::Excluded(key) => [key.as_ref(), &[0]].concat(),
        Bound::Unbounded => Vec::new(),
    };
    let largest = match range.end_bound() {
        Bound::Included(key) => KeyEnd::Included(key.as_ref().into()),
        Bound::Excluded(key) => KeyEnd::Excluded(key.as_ref().into()),
        Bound::Unbounded => KeyEnd::Unbounded,
    };
    largest.reaches(&smallest).then(|| KeyRange { smallest: smallest.into(), largest })
}

impl WriteBatch {
    /// Sets the value of `key` in `keyspace` to `value`.
    pub fn put_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.claim(keyspace.handle.inner.instance, keyspace.inner.name());
        self.put_id(keyspace.inner.id, key.as_ref(), value.as_ref())
    }

    /// Applies `operand` to the value of `key` with the merge operator of `keyspace`.
    pub fn merge_in(
        &mut self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> &mut Self {
        self.claim(keyspace.handle.inner.instance, keyspace.inner.name());
        self.merge_id(keyspace.inner.id, key.as_ref(), operand.as_ref())
    }

    /// Deletes `key` in `keyspace`.
    pub fn delete_in(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> &mut Self {
        self.claim(keyspace.handle.inner.instance, keyspace.inner.name());
        self.delete_id(keyspace.inner.id, key.as_ref())
    }

    /// Deletes all keys in a range of `keyspace`.
    pub fn delete_range_in<K: AsRef<[u8]>>(
        &mut self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> &mut Self {
        self.claim(keyspace.handle.inner.instance, keyspace.inner.name());
        self.delete_range_id(keyspace.inner.id, range)
    }

    /// Deletes all keys of `keyspace` that start with `prefix`.
    pub fn delete_prefix_in(&mut self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.claim(keyspace.handle.inner.instance, keyspace.inner.name());
        self.delete_prefix_id(keyspace.inner.id, prefix.as_ref())
    }
}
