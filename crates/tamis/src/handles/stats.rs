//! Statistics of an open database.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{KeyspaceId, TableId};
use tamis_base::key::{KeyEnd, SeqNo};
use tamis_model::engine::{Workload, zipf_exponent};
use tamis_policy::compaction::Promise;

use crate::catalogue::keyspace::{HIDDEN_PREFIX, KeyspaceInner};
use crate::catalogue::scrubbed::{DamagedTable, ScrubStats};
use crate::catalogue::state::State;
use crate::catalogue::tuning::TuningDecision;
use crate::handles::memory_report::MemoryReport;
use crate::handles::readers::{ReaderStats, Readers};
use crate::jobs::control::JobStats;
use crate::observe::StallStats;
use crate::observe::cost::ReadCost;
use crate::observe::latency::Latencies;
use crate::observe::write_counters::WriteCost;
use crate::select::{AutoFilterStats, GlobalFilterStats, QueryStats};
use crate::session::Session;
use crate::session::elastic::report::{ElasticStats, SegmentStats};
use crate::tree::open_table::TableFilter;
use crate::tree::version::Version;

/// Counters and shape of a database at one moment. All sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// The cost of reads since the database was opened.
    pub read: ReadCost,
    /// The cost of writes since the database was opened.
    pub write: WriteCost,
    /// How long operations took since the database was opened.
    pub latencies: Latencies,
    /// How often and how long writes waited, by cause; every cause once.
    pub stalls: Vec<StallStats>,
    /// The memory that the database takes, by owner.
    pub memory: MemoryReport,
    /// Every keyspace.
    pub keyspaces: Vec<KeyspaceStats>,
    /// Bytes in the block cache.
    pub cache_used_bytes: u64,
    /// The capacity of the block cache.
    pub cache_capacity_bytes: u64,
    /// Bytes in the record cache, with all overhead.
    pub record_cache_used_bytes: u64,
    /// The capacity of the record cache.
    pub record_cache_capacity_bytes: u64,
    /// The memory that block cache and elastic filters have together at the moment:
    /// `read_memory_bytes`, or the share of
    /// [`shared_read_memory`](crate::Options::shared_read_memory), which falls to 0 at closing;
    /// also 0 if each has its own limit.
    pub read_memory_bytes: u64,
    /// How block reads overlap; `None` if they do not.
    pub overlapping_reads: Option<OverlapStats>,
    /// The number of log files that are still needed.
    pub log_files: usize,
    /// The bytes of those log files.
    pub log_bytes: u64,
    /// Bytes of all log files on disk, which [`max_log_bytes`](crate::Options::max_log_bytes)
    /// limits: `log_bytes`, the space reserved for the next records, and log files kept to be
    /// overwritten.
    pub log_allocated_bytes: u64,
    /// The size of all memtables, and memory for the next ones: what flushed ones left, until a
    /// second or two passed without writes, or 2 MiB made ahead.
    pub memtable_bytes: u64,
    /// The size of flushed memtables kept for open transactions, within
    /// [`transaction_history_bytes`](crate::Options::transaction_history_bytes).
    pub transaction_history_bytes: u64,
    /// The size of all filters in memory.
    pub filter_bytes: u64,
    /// The part of it that lies in mapped tables: page cache, of which the system may take back
    /// what is not read.
    pub filter_mapped_bytes: u64,
    /// The elastic filters of all keyspaces, if any table has one.
    pub elastic: Option<ElasticStats>,
    /// The size of all indexes in memory.
    pub index_bytes: u64,
    /// The number of live snapshots; those of the same state count once.
    pub snapshots: usize,
    /// The live snapshots, oldest first.
    pub snapshots_live: Vec<SnapshotStats>,
    /// The oldest live snapshot's sequence number.
    pub oldest_snapshot: Option<u64>,
    /// The oldest of the states of keyspaces that are not the current ones, and that iterators or
    /// other reads still hold, if there is any. Values that reads returned may keep their memtable
    /// or table, too; they are not counted here, nor are iterators over keyspaces that were
    /// dropped.
    pub oldest_reader: Option<ReaderStats>,
    /// The size of all memtables that are in no keyspace any more, but in a state that something
    /// still reads.
    pub readers_memtable_bytes: u64,
    /// Bytes of all table files that are in no keyspace any more, but in a state that something
    /// still reads.
    pub readers_table_bytes: u64,
    /// Bytes of all blob files of which this is true.
    pub readers_blob_bytes: u64,
    /// The newest sequence number that readers see.
    pub visible_seq: u64,
    /// The newest sequence number up to which all writes are known to survive a power failure.
    pub durable_seq: u64,
    /// The oldest sequence number from which on [changes](crate::Db::changes) can be read; 0 in a
    /// database that is open read-only.
    pub oldest_change: u64,
    /// The number of logs that are kept only for readers of changes.
    pub retained_logs: usize,
    /// The size of these logs on disk, besides `log_allocated_bytes`.
    pub retained_log_bytes: u64,
    /// The named consumers of changes.
    pub change_consumers: Vec<ConsumerStats>,
    /// Why writes stopped for good, if they did.
    pub poisoned: Option<String>,
    /// Why writes are suspended, if they are: see
    /// [`WriteError::Suspended`](crate::WriteError::Suspended).
    pub suspended: Option<String>,
    /// Failed work that is being retried, described in words; empty if all is well.
    pub troubles: Vec<String>,
    /// Space on the device that is kept in reserve for a full disk.
    pub reserve_bytes: u64,
    /// Tables known to be damaged: those that are [quarantined](crate::options::OnDamage), and
    /// those in which a read, a compaction, `verify` or the scrub has found damage since the
    /// database was opened. No compaction touches them.
    pub damaged_tables: Vec<DamagedTable>,
    /// What the scrub has done, if it is enabled.
    pub scrub: Option<ScrubStats>,
    /// The number of open table files: those that are not mapped, within `max_open_files`.
    pub open_table_files: usize,
    /// The last 32 changes that the [tuner](crate::Options::tuner) has made since the database was
    /// opened.
    pub tuning: Vec<TuningDecision>,
    /// The running compactions.
    pub jobs: Vec<JobStats>,
    /// Warnings raised while the database was opened and since, in words.
    pub warnings: Vec<String>,
}

/// How block reads overlap, and how often they have done so since the database was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OverlapStats {
    /// `io-uring` or `threads`.
    pub method: &'static str,
    /// The maximum number of overlapping reads.
    pub depth: usize,
    /// The number of batches of more than one read.
    pub batches: u64,
    /// The number of reads in those batches.
    pub reads: u64,
}

/// A named consumer of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Its name.
    pub name: String,
    /// The last sequence number that it has acknowledged.
    pub position: u64,
}

/// The live snapshots of one state of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SnapshotStats {
    /// The sequence number up to which they see writes.
    pub seq: u64,
    /// Seconds since the first of them was taken.
    pub age_seconds: u64,
    /// The number of snapshots: calls of [`Db::snapshot`](crate::Db::snapshot), not counting
    /// clones.
    pub handles: usize,
    /// Bytes that they keep on disk: key versions in tables, before compression, that compactions
    /// have met since, plus `pinned_table_bytes`.
    pub pinned_bytes: u64,
    /// Bytes of whole tables that were since dropped or replaced, in keyspaces whose policy drops
    /// data.
    pub pinned_table_bytes: u64,
}

/// One keyspace.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Its name.
    pub name: String,
    /// The compaction policy's name.
    pub policy: String,
    /// What the policy guarantees for a tree like this one when no compaction is due.
    pub promise: Promise,
    /// The epoch of its next flush.
    pub next_epoch: u64,
    /// The number of memtables, including the active one.
    pub memtables: usize,
    /// The bytes in the memtables.
    pub memtable_bytes: u64,
    /// The number of key versions in the memtables.
    pub memtable_entries: u64,
    /// The levels from 0 down to the deepest that the options allow.
    pub levels: Vec<LevelStats>,
    /// The number of sorted runs on disk.
    pub runs: usize,
    /// The number of key versions on disk, including deletes.
    pub entries: u64,
    /// The number of deletes among them.
    pub deletes: u64,
    /// The number of range tombstones on disk.
    pub range_tombstones: u64,
    /// The age of the oldest delete, of a key or a range, on disk, in seconds: the most that it can
    /// be. `None` if there is no delete.
    pub oldest_delete_seconds: Option<u64>,
    /// The bytes of the table files.
    pub table_bytes: u64,
    /// The number of blob files, which hold large values.
    pub blob_files: usize,
    /// The bytes of the blob files.
    pub blob_bytes: u64,
    /// Those of them that no table refers to any more; snapshots may.
    pub blob_garbage_bytes: u64,
    /// The number of filter files, which hold parts of the global filter.
    pub filter_files: usize,
    /// The bytes of the filter files.
    pub filter_file_bytes: u64,
    /// The bytes of all keys and values on disk before compression.
    pub raw_bytes: u64,
    /// Bytes of those keys and values that compactions kept for snapshots that have since been
    /// released: the most that rewriting the tables would free. It is an overestimate if another
    /// snapshot needs some of them too.
    pub reclaimable_bytes: u64,
    /// The last write that has outlived the keyspace's time to live, as have all writes before it;
    /// 0: none.
    pub expired_seq: u64,
    /// The bytes of the filters in memory.
    pub filter_bytes: u64,
    /// The part of the filters' bytes that lies in mapped tables.
    pub filter_mapped_bytes: u64,
    /// The bytes of the indexes in memory.
    pub index_bytes: u64,
    /// Filter bits in memory per key version on disk.
    pub filter_bits_per_key: f64,
    /// The keyspace's global filter, if it has one.
    pub global_filter: Option<GlobalFilterStats>,
    /// What `filter = auto` has chosen, and why, if that is its filter.
    pub auto_filter: Option<AutoFilterStats>,
    /// What its reads ask for, if its filter goes by that.
    pub queries: Option<QueryStats>,
    /// The exponent of the Zipf distribution that fits the recent gets that found a value (0:
    /// uniform), if enough were sampled. Each thread samples one get in 64; `multi_get` is not
    /// sampled.
    pub read_skew: Option<f64>,
    /// The declared workload, or the one that the engine observed last, possibly in an earlier
    /// session.
    pub workload: Option<Workload>,
    /// The number of tables built without a filter, other than for a global one.
    pub tables_without_filter: usize,
    /// The number of tables that hold a key list instead of a filter, for a global filter.
    pub tables_with_key_list: usize,
    /// The number of tables that are read without their filter because it is damaged or of an
    /// unknown kind.
    pub tables_with_unusable_filter: usize,
}

/// One level.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LevelStats {
    /// Its number.
    pub level: usize,
    /// Its runs, newest first.
    pub runs: Vec<RunStats>,
    /// The size at which it is compacted (0: the limit is a number of runs).
    pub target_bytes: u64,
}

/// One sorted run.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RunStats {
    /// Its id.
    pub run: u64,
    /// The number of its tables.
    pub tables: usize,
    /// The number of its key versions.
    pub entries: u64,
    /// The bytes of its files.
    pub bytes: u64,
    /// The bytes of its filters in memory.
    pub filter_bytes: u64,
    /// The kinds of its filters, each listed once; `keys` stands for a key list, and `global` for
    /// nothing, both for a global filter.
    pub filters: Vec<String>,
    /// Its smallest key.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub smallest: Vec<u8>,
    /// Its largest key (empty if it is unbounded).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub largest: Vec<u8>,
    /// The flush epochs whose data it may hold, as a half-open range.
    pub epochs: (u64, u64),
}

impl Stats {
    pub(crate) fn of(db: &Session) -> Stats {
        let state = db.state();
        let keyspaces: Vec<_> = state
            .catalogue
            .keyspaces()
            .values()
            .map(|keyspace| KeyspaceStats::of(db, &state, keyspace))
            .collect();
        let consumer = |(name, position): (&str, SeqNo)| ConsumerStats { name: name.to_owned(), position };
        let change_consumers = state.logs.consumers().map(consumer).collect();
        let (retained_logs, retained_log_bytes) = state.logs.retained();
        let snapshots = snapshot_stats(db, &state);
        let readers = Readers::of(state.catalogue.keyspaces().values());
        let sum = |f: fn(&KeyspaceStats) -> u64| keyspaces.iter().map(f).sum();
        let shown = |keyspace: &KeyspaceStats| !keyspace.name.starts_with(HIDDEN_PREFIX);
        Stats {
            read: db.keyspaces.read_counters.read(),
            write: db.observed.write_counters.read(),
            latencies: db.observed.observer.latencies().read(),
            stalls: db.observed.observer.stalls(),
            memory: MemoryReport::of(db, &state),
            cache_used_bytes: db.files.cache.as_ref().map_or(0, |c| c.used_bytes()),
            cache_capacity_bytes: db.files.cache.as_ref().map_or(0, |c| c.capacity_bytes()),
            record_cache_used_bytes: db.files.records.as_ref().map_or(0, |r| r.used_bytes()),
            record_cache_capacity_bytes: db.files.records.as_ref().map_or(0, |r| r.capacity_bytes()),
            read_memory_bytes: db.elastic.read_memory(),
            overlapping_reads: db.files.reader_config.reads.as_ref().map(|reads| {
                let (batches, count) = reads.counts();
                OverlapStats { method: reads.method(), depth: reads.depth(), batches, reads: count }
            }),
            log_files: state.logs.rolled().0 + usize::from(!db.gate.is_read_only() && !db.gate.is_waiting()),
            log_bytes: db.log.bytes(&state.logs),
            log_allocated_bytes: db.log.allocated(&state.logs),
            memtable_bytes: sum(|k| k.memtable_bytes) + db.keyspaces.chunks.bytes() as u64,
            transaction_history_bytes: db.transactions.history.bytes(),
            filter_bytes: sum(|k| k.filter_bytes),
            filter_mapped_bytes: sum(|k| k.filter_mapped_bytes),
            elastic: db.elastic.report(),
            index_bytes: sum(|k| k.index_bytes),
            snapshots: snapshots.len(),
            oldest_snapshot: snapshots.first().map(|snapshot| snapshot.seq),
            snapshots_live: snapshots,
            oldest_reader: readers.oldest,
            readers_memtable_bytes: readers.memtable_bytes,
            readers_table_bytes: readers.table_bytes,
            readers_blob_bytes: readers.blob_bytes,
            visible_seq: db.visible(),
            durable_seq: db.log.durable().min(db.visible()),
            oldest_change: state.logs.oldest_change(),
            retained_logs,
            retained_log_bytes,
            change_consumers,
            poisoned: db.gate.stopped().cloned(),
            suspended: db.gate.held_up(),
            troubles: db.troubles(&state),
            reserve_bytes: db.space.reserve.held(),
            damaged_tables: db.damaged_tables(),
            scrub: (db.options.scrub_bytes_per_second > 0).then(|| db.background.scrub.stats()),
            open_table_files: db.files.reader_config.files.as_ref().map_or(0, |files| files.count()),
            tuning: db.observed.decisions.lock().all(),
            jobs: JobStats::all(&state, db.background.is_paused()),
            warnings: db.observed.warnings.all(),
            keyspaces: keyspaces.into_iter().filter(shown).collect(),
        }
    }
}

/// Returns the live snapshots, oldest first.
fn snapshot_stats(db: &Session, state: &State) -> Vec<SnapshotStats> {
    let now = db.now();
    let versions: HashMap<KeyspaceId, Arc<Version>> = state
        .catalogue
        .keyspaces()
        .iter()
        .map(|(id, keyspace)| (*id, keyspace.view.load().version.clone()))
        .collect();
    let tables = |id: &KeyspaceId| versions.get(id).map_or(&[][..], |version| &version.tables[..]);
    let pins = versions.keys().flat_map(tables).flat_map(|table| &table.meta.extra.pinned);
    let mut pinned = BTreeMap::new();
    pins.for_each(|(seq, bytes)| *pinned.entry(*seq).or_insert(0) += bytes);
    let live = db.snapshots.lock();
    live.by_number()
        .into_iter()
        .map(|(seq, handles)| {
            // Several views may pin the same tables.
            let mut dropped = BTreeMap::new();
            for (id, view) in
                handles.iter().filter_map(|held| held.views()).flat_map(|views| (*views).clone())
            {
                let current: HashSet<TableId> = tables(&id).iter().map(|table| table.meta.id).collect();
                let old = view.version.tables.iter().filter(|table| !current.contains(&table.meta.id));
                dropped.extend(old.map(|table| (table.meta.id, table.meta.whole_bytes())));
            }
            let pinned_table_bytes = dropped.values().sum();
            SnapshotStats {
                seq,
                age_seconds: handles.iter().map(|held| now.saturating_sub(held.taken)).max().unwrap_or(0),
                handles: handles.len(),
                pinned_bytes: pinned_table_bytes + pinned.get(&seq).copied().unwrap_or(0),
                pinned_table_bytes,
            }
        })
        .collect()
}

impl KeyspaceStats {
    pub(crate) fn of(db: &Session, state: &State, keyspace: &KeyspaceInner) -> KeyspaceStats {
        let view = keyspace.view.load_full();
        let version = &view.version;
        let shaping = keyspace.shaping.load();
        let shape = db.shape(state, keyspace);
        let targets = shaping.policy.level_targets(&shape);
        let mut levels: Vec<LevelStats> = targets
            .iter()
            .enumerate()
            .map(|(level, &target_bytes)| LevelStats { level, runs: Vec::new(), target_bytes })
            .collect();
        for (place, run) in version.runs.iter().enumerate() {
            if run.level >= levels.len() {
                let level = levels.len();
                levels.extend((level..=run.level).map(|level| LevelStats { level, ..LevelStats::default() }));
            }
            levels[run.level].runs.push(run_stats(version, place));
        }
        let sum = |f: fn(&crate::tree::open_table::OpenTable) -> u64| {
            version.tables.iter().map(|t| f(t)).sum::<u64>()
        };
        let entries = sum(|t| t.meta.entries);
        let stored = state.catalogue.tree().keyspaces.get(&keyspace.id);
        let global_filter = keyspace.filter.report();
        let global_bytes = global_filter.as_ref().map_or(0, |filter| filter.bytes + filter.old_bytes);
        let filter_bytes = sum(|t| t.filter_memory() as u64) + global_bytes;
        KeyspaceStats {
            name: keyspace.name().to_owned(),
            policy: shaping.policy.name(),
            promise: shaping.policy.promise(&shape),
            next_epoch: stored.map_or(0, |stored| stored.next_epoch),
            memtables: 1 + view.memtables.sealed.len(),
            memtable_bytes: view.memtables.iter().map(|m| m.memtable.memory_bytes() as u64).sum(),
            memtable_entries: view.memtables.iter().map(|m| m.memtable.entries() as u64).sum(),
            levels,
            runs: version.runs.len(),
            entries,
            deletes: sum(|t| t.meta.deletes),
            range_tombstones: sum(|t| t.meta.range_tombstones),
            oldest_delete_seconds: {
                let oldest = version.tables.iter().filter_map(|table| table.meta.oldest_delete());
                oldest.map(|oldest| db.now().saturating_sub(oldest.since)).max()
            },
            table_bytes: version.table_bytes(),
            blob_files: version.blobs.len(),
            blob_bytes: version.blobs.iter().map(|blob| blob.file.file.file_bytes()).sum(),
            blob_garbage_bytes: version.blobs.iter().map(|blob| blob.garbage_bytes()).sum(),
            filter_files: stored.map_or(0, |stored| stored.filter_files.len()),
            filter_file_bytes: stored.map_or(0, |stored| {
                stored.filter_files.values().fold(0, |sum, &bytes| sum.saturating_add(bytes))
            }),
            raw_bytes: sum(|t| t.meta.raw_bytes),
            reclaimable_bytes: {
                let live = db.live_snapshots();
                let pins = version.tables.iter().flat_map(|table| &table.meta.extra.pinned);
                pins.filter(|pin| live.binary_search(&pin.0).is_err()).map(|pin| pin.1).sum()
            },
            expired_seq: db.expiry.expired(keyspace),
            filter_bytes,
            filter_mapped_bytes: sum(|t| t.mapped_filter_memory() as u64),
            index_bytes: sum(|t| t.table.memory_bytes() as u64)
                + version.blobs.iter().map(|blob| blob.file.file.memory_bytes() as u64).sum::<u64>(),
            filter_bits_per_key: if entries == 0 { 0.0 } else { filter_bytes as f64 * 8.0 / entries as f64 },
            global_filter,
            auto_filter: keyspace.filter.global().and_then(|global| global.choice(version)),
            queries: keyspace.filter.global().map(|global| global.grf.queries().snapshot().report()),
            read_skew: keyspace.reads.collisions().map(|rate| zipf_exponent(rate, entries as f64)),
            workload: keyspace.declared.or(state.reshaping.seen(keyspace.id)),
            tables_without_filter: version
                .tables
                .iter()
                .filter(|t| matches!(t.filter, TableFilter::None))
                .count(),
            tables_with_key_list: version
                .tables
                .iter()
                .filter(|t| matches!(t.filter, TableFilter::Keys))
                .count(),
            tables_with_unusable_filter: version.tables.iter().filter(|t| t.filter_is_unusable()).count(),
        }
    }
}

fn run_stats(version: &Version, place: usize) -> RunStats {
    let run = &version.runs[place];
    let tables = &version.tables[run.tables.clone()];
    let hulls = || tables.iter().map(|t| t.meta.epochs.hull());
    let largest = match &tables[tables.len() - 1].meta.largest {
        KeyEnd::Included(key) | KeyEnd::Excluded(key) => key.to_vec(),
        KeyEnd::Unbounded => Vec::new(),
    };
    RunStats {
        run: run.id,
        tables: tables.len(),
        entries: tables.iter().map(|t| t.meta.entries).sum(),
        bytes: tables.iter().map(|t| t.meta.file_bytes).sum(),
        filter_bytes: tables.iter().map(|t| t.filter_memory() as u64).sum(),
        filters: {
            let kinds = tables.iter().map(|t| t.table.properties().filter_kind.as_str());
            let kinds: std::collections::BTreeSet<&str> = kinds.filter(|kind| !kind.is_empty()).collect();
            kinds.into_iter().map(str::to_owned).collect()
        },
        smallest: tables[0].meta.smallest.to_vec(),
        largest,
        epochs: (hulls().map(|h| h.0).min().unwrap_or(0), hulls().map(|h| h.1).max().unwrap_or(0)),
    }
}

impl Session {
    /// See [`Db::segments`](crate::Db::segments).
    pub(crate) fn segments(&self) -> Vec<SegmentStats> {
        self.elastic.segments(&self.state())
    }
}
