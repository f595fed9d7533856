//! The options of a database and of each keyspace.
//!
//! Every option is one row of a table: name, class, type, default, domain, consequence. The struct,
//! its documentation, its default, its checks and its text form all come from that row.
//!
//! # Text form
//!
//! Lines `name = value`; `#` starts a comment; blank lines are skipped; if a name appears twice,
//! the later line wins; options that are not named keep their defaults. Sizes are printed in the
//! largest exact unit (`64 MiB`) and read with or without one; `64 MB` are 64,000,000 bytes. Among
//! a database's options, those of its default keyspace have the prefix `keyspace.`.
//! `from_text(to_text(o)) == o` for every `o` that `check` accepts.
//!
//! Options are plain values: nothing here takes a lock, and changing an option after the database
//! was opened has no effect.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tamis_filter::theory;
use tamis_model::engine::Workload;

use super::domain::{
    Age, AutoCount, Bytes, Compactions, Count, Counts, Domain, DurabilityDomain, Flag, Levels, Name, OneOf,
    Real, Threshold,
};
use super::prefixes::{PrefixFilter, Prefixes};
use super::table::{
    Field, NEEDS_MEASURE, OptionClass, OptionInfo, assignments, excerpt, field, nearest, options_table,
    setter,
};
use super::values::{
    AsyncReads, BloomHashing, ChecksumMode, CompactionChoice, CompressionPerLevel, Durability, FilePicker,
    FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, LogWrites, MergeGranularity, OnDamage,
    PerLevel, ReadMode, SelectorName,
};
use super::workload::Operations;
use crate::clock::Clock;
use crate::error::OptionsError;
use crate::io::{FileSystem, MemFs};
use crate::memory::SharedReadMemory;
use crate::memory::writes::SharedWriteMemory;
use crate::observe::events::EventListener;
use crate::operators::{OperatorNames, Operators};
use crate::options::words::Words as _;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NO_LIMIT: u64 = u64::MAX;
const KEYSPACE_PREFIX: &str = "keyspace.";

options_table! {
    /// The options of a database; in the text form the default keyspace's options are named
    /// `keyspace.…`.
    ///
    /// Text form ([`to_text`](Self::to_text), [`from_text`](Self::from_text)): lines `name =
    /// value`; `#` starts a comment; options not named keep their defaults; sizes may have a unit
    /// (`64 MiB`).
    #[derive(Clone, Debug)]
    pub struct Options: "" {
        Basic, create_if_missing: bool = "true", Flag,
            "Create the database if the directory holds none; if false, opening a missing database is an error.";
        Expert, create_among_others: bool = "false", Flag,
            "Also create the database in a directory that holds other files. Without this option, creation takes a \
             missing or empty directory; hidden files and `lost+found` do not count. A directory is refused in any \
             case if it holds files of another engine under names that a database needs.";
        Expert, error_if_exists: bool = "false", Flag,
            "Refuse to open a database that already exists.";
        Basic, durability: Durability = "buffered", DurabilityDomain,
            "When an acknowledged write survives a power failure. `buffered` loses what the system has not written \
             back yet: about 30 s by Linux's defaults, and no bound is promised. `every …` loses the writes of that \
             time and of one sync. `sync` loses nothing, at the cost of one device sync per group of writes.";
        Expert, on_damage: OnDamage = "refuse", OneOf,
            "What to do when a table of the database is damaged or missing. `refuse`: do not open the database. \
             `quarantine`: open it without the table. Reads that need the table fail, all others work, no \
             compaction touches it, and statistics and `verify` name it. Quarantine loses and hides nothing.";
        Tuning, scrub_bytes_per_second: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "Rate at which a background thread reads all tables, logs and the manifest in a loop to find damage \
             before a read needs them; 0 turns it off. Damage found is a warning and appears in the statistics.";
        Tuning, verify_checksums: ChecksumMode = "once", OneOf,
            "Check a block's checksum at its first read only (`once`) or at every read (`always`). `always` also \
             finds damage that occurs after the first read, and costs a pass over every block read.";
        Tuning, read_mode: ReadMode = "mapped", OneOf,
            "How tables are read. `mapped`: from memory mappings, through the page cache. `buffered`: by system \
             calls, through the page cache. `direct`: by system calls that bypass the page cache, so that the block cache \
             is the only cache; Linux only.";
        Basic, cache_bytes: u64 = "64 MiB", Bytes { min: 0, max: NO_LIMIT },
            "Memory of the block cache, which holds blocks that had to be read or decompressed; 0 turns it off. \
             Uncompressed blocks of mapped tables take none of it.";
        Tuning, record_cache_bytes: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "Memory of the record cache, which holds values of up to 4 KiB that gets read again and again. A get that \
             finds one asks no filter and touches no block. 0 turns it off. With `read_memory_bytes` it is part of that.";
        Tuning, filter_budget_bytes: u64 = "64 MiB", Bytes { min: 0, max: NO_LIMIT },
            "Memory for the units of the `elastic` filters of all keyspaces together. It is never exceeded; which \
             units are loaded follows the reads.";
        Tuning, read_memory_bytes: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "One limit for the block cache, the units of `elastic` filters and the record cache together, divided \
             between them to save the most block reads; 0: each has its own limit, `cache_bytes`, \
             `filter_budget_bytes` and `record_cache_bytes`.";
        Tuning, auto_memory_bytes: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "Memory for filters and the block cache together, within which the options' tuner chooses `filter`, \
             `bits_per_key`, `filter_allocation`, `compaction`, `merge` and `size_ratio` of every keyspace for its \
             `workload`: at opening, and again whenever a compaction leaves the tree idle; 0: the options apply as \
             set.";
        Tuning, pin_metadata: bool = "true", Flag,
            "Keep filters and indexes of all open tables in memory outside the cache: no read ever waits for them, \
             but memory grows with the data (about bits_per_key bits per key).";
        Tuning, memtable_budget_bytes: u64 = "256 MiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Memory of all memtables of all keyspaces together. When the active memtables take more than half of \
             it, the largest is flushed early; when all memtables take more than all of it, writers wait for \
             flushes.";
        Tuning, transaction_history_bytes: u64 = "192 MiB", Bytes { min: 0, max: NO_LIMIT },
            "Memory for flushed memtables that are kept because an open transaction may have to be validated against \
             them; without an open transaction none is kept. The oldest go first. A transaction that outlives it \
             cannot commit: `TooOld`. Set at least twice `memtable_bytes`, as a memtable is kept whole or not at all.";
        Tuning, max_log_bytes: u64 = "1 GiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Disk space of the log files, including preallocated space and files kept for recycling. Near the \
             limit, the keyspaces that pin the oldest log are flushed; at the limit, writers wait for those \
             flushes. Bounds recovery time.";
        Expert, reserve_bytes: u64 = "64 MiB", Bytes { min: 0, max: NO_LIMIT },
            "The most disk space to hold in reserve for a full disk. The reserve is a sixteenth of the tables and \
             blob files, or the size of the logs if that is more. While much space is free, it is at most a \
             quarter of the tables and blob files. A full disk releases it; deletes, flushes and compactions then \
             still work, and other writes are refused. 0 reserves none.";
        Tuning, max_open_files: usize = "1000", Count { min: 0, max: 1 << 30 },
            "Maximum number of open table files if tables are not mapped; 0 means no limit. A read-only opening or a \
             follower has no limit. A mapped table needs no descriptor. Reads in progress, logs and background jobs \
             take a few more.";
        Basic, background_threads: usize = "2", Count { min: 1, max: 64 },
            "Threads that compact, and the most threads that share one large compaction. One more thread flushes. \
             More threads keep up with more writes and take CPU time from readers.";
        Tuning, background_bytes_per_second: u64 = "unlimited", Bytes { min: 64 * KIB, max: NO_LIMIT },
            "Rate limit for the writes of flushes and compactions together; flushes go first. Bounds the bandwidth \
             they take from reads.";
        Expert, recycled_logs: usize = "2", Count { min: 0, max: 16 },
            "Old log files kept for new ones to overwrite, which saves the file system from growing a file in every \
             sync. Only those that were synced at least once in 64 KiB are kept, and fewer where they would take more \
             than `max_log_bytes` allows or an eighth of the free disk.";
        Tuning, changes_keep_bytes: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "Size of the logs kept for readers of changes once their writes are in tables. A reader that is further \
             behind gets an error. 0: logs are kept only for `changes_keep_time` or a named consumer.";
        Tuning, changes_keep_time: Option<Duration> = "none", Age,
            "Time for which a log is kept for readers of changes once its writes are in tables. For logs of earlier \
             sessions it counts from the opening. `none`: logs are kept only for `changes_keep_bytes` or a named \
             consumer.";
        Tuning, changes_max_bytes: u64 = "16 GiB", Bytes { min: 0, max: NO_LIMIT },
            "Largest size of the logs kept for readers of changes. The oldest are removed beyond it, even if a named consumer \
             has not read them.";
        Tuning, slow_operation_threshold: Option<Duration> = "none", Threshold,
            "Time from which on a get, `multi_get`, seek, write or flush is logged as slow and reported to \
             `listeners`, with what it did: at most ten in a second. While it is set, every operation is timed, \
             which costs a get about 50 ns. `none`: only a sample is timed.";
        Expert, log_writes: LogWrites = "auto", OneOf,
            "How an unsynced write reaches the log. `mapped`: it is copied into a mapped part of the log. \
             `system`: by a system call. Either way it survives the process. `mapped` applies to ext4 and tmpfs on \
             Linux. With it, as with mapped tables, a file that another program truncates, and a device that \
             fails, kill the process. `auto` is `mapped` if `read_mode` is `mapped`, else `system`.";
        Expert, protect_writes: bool = "false", Flag,
            "Check records for faults of memory and processor on their way from the batch to the table. A flush or \
             compaction reads its tables again and compares. A write, flush or compaction that meets a changed \
             record fails. Costs CPU time: see docs/reliability.md.";
        Expert, async_reads: AsyncReads = "auto", OneOf,
            "How block reads overlap when several are needed at once (`multi_get`, positioning an iterator in \
             several runs) and tables are not mapped: through `io-uring`, in `threads`, or not at all (`off`). \
             `auto` is io_uring where the system allows it, otherwise threads.";
    }
    measured {
        read_queue_depth: usize = "32", Count { min: 1, max: 256 },
            "Maximum number of overlapping block reads, and of blocks that a scan reads ahead; 1 turns both off. A \
             deeper queue keeps more of a device busy. Each reading thread may hold one buffer per queue entry.";
        sub_jobs: Option<u64> = "auto", AutoCount(Count { min: 1, max: 64 }),
            "Maximum number of threads that share one large compaction, each with a part of its key range; `auto`: \
             `background_threads`.";
        hash_sharing: bool = "true", Flag,
            "Compute one digest per key lookup and use it in all filters; `false` rehashes the key for every \
             filter, to measure what sharing saves.";
        filter_life_time: Option<u64> = "auto", AutoCount(Count { min: 1, max: NO_LIMIT }),
            "For `elastic` filters: number of gets after which a segment that none of them asked expires and may \
             lose filter memory to others. `auto`: the number of segments, at least 1000, times the sampling \
             interval.";
        heat_sampling: Option<u64> = "auto", AutoCount(Count { min: 1, max: 1 << 16 }),
            "For `elastic` filters: sampling interval in gets; one get of every this many is counted. `auto`: \
             shorter at low rates of gets, longer at high ones.";
        heat_inheritance: bool = "true", Flag,
            "For `elastic` filters: new tables inherit the hotness of the tables they replace; with `false` they \
             start cold, to measure what that costs.";
    }
    besides {
        /// Who is told of flushes, compactions, stalls, failures and slow operations: see
        /// [`events`](crate::events). Not part of the text form.
        listeners: Vec<Arc<dyn EventListener>> = Vec::new();
        /// The options of the default keyspace.
        keyspace: KeyspaceOptions = KeyspaceOptions::default();
        /// The file system to use; `None` is the operating system's, chosen by `read_mode`. Not
        /// part of the text form.
        file_system: Option<Arc<dyn FileSystem>> = None;
        /// How often a [follower](Self::open_follower) catches up with the writer by itself;
        /// `None`: when it is [told to](crate::Db::catch_up). Not part of the text form.
        follow_interval: Option<Duration> = None;
        /// The last write to be kept of a database that is opened, for a restore to a moment: what
        /// the logs have after it is dropped, and gone for good once the opening succeeds. A record
        /// of the log counts if all of its writes do: those of a batch, and of batches committed
        /// together. Logs are not kept for readers of changes then. Keyspaces are those of the
        /// manifest: one that was dropped after it comes back. `None`: all. Not part of the text
        /// form.
        recover_to: Option<u64> = None;
        /// The clock; `None` is the operating system's. Not part of the text form.
        clock: Option<Arc<dyn Clock>> = None;
        /// The merge operators and compaction filters that keyspaces may name, besides the built-in
        /// ones. Not part of the text form.
        operators: Operators = Operators::new();
        /// Memory for the block cache and the units of `elastic` filters that the database shares
        /// with others of the same process, in place of `cache_bytes`, `filter_budget_bytes` and
        /// `read_memory_bytes`; `None`: it has its own. Not part of the text form.
        shared_read_memory: Option<SharedReadMemory> = None;
        /// Memory for memtables that the database shares with others of the same process, besides
        /// its own `memtable_budget_bytes`; `None`: it shares none. Not part of the text form.
        shared_write_memory: Option<SharedWriteMemory> = None;
        /// Whoever chooses filters and tree shapes while the database is in use, within
        /// `auto_memory_bytes`; `None` leaves them as they are stored. Not part of the text form,
        /// and ignored by `==`.
        tuner: Option<Arc<dyn Tuner>> = None;
    }
}

options_table! {
    /// The options of one keyspace.
    ///
    /// Text form ([`to_text`](Self::to_text), [`from_text`](Self::from_text)): lines `name =
    /// value`; `#` starts a comment; options not named keep their defaults; sizes may have a unit
    /// (`64 MiB`).
    #[derive(Clone, Debug)]
    pub struct KeyspaceOptions: "keyspace." {
        Expert, auto_compaction: bool = "true", Flag,
            "Compact in the background whenever a level is too large; with `false` only manual compactions run, and \
             level 0 grows without slowing writes down.";
        Expert, read_compaction: bool = "true", Flag,
            "Merge runs step by step into one. A step begins once extra reads have cost as many bytes as it \
             rewrites, and after a second without writes. Applies to leveling, lazy leveling and hybrids, unless \
             `deterministic`.";
        Tuning, workload: Option<Workload> = "auto", Operations,
            "The workload to tune for with `auto_memory_bytes`: the shares of the operations and their distribution, \
             like `get 60, empty-get 30, put 10, skew 0.99`. A filter for the whole tree is built for these reads, \
             too, until some have been observed. `auto`: the observed workload; before there is one, a tenth of \
             reads are expected to be of ranges.";
        Basic, merge_operator: Option<String> = "none", Name,
            "What `merge` does to a value: `add` (eight-byte little-endian numbers, modulo 2^64), `append`, `max` \
             (in byte order), or an operator that the program registers. Once set, the merge operator of a keyspace \
             cannot be changed.";
        Tuning, compaction_filter: Option<String> = "none", Name,
            "Name of a compaction filter that the program registers. Flushes and compactions pass values to it, and \
             it may change or remove them.";
        Basic, memtable_bytes: u64 = "64 MiB", Bytes { min: 4 * KIB, max: 4 * GIB },
            "Size at which a memtable is flushed. Larger memtables make fewer, larger runs and less compaction, but \
             take more memory and a longer recovery.";
        Expert, max_memtables: usize = "3", Count { min: 2, max: 16 },
            "Maximum number of memtables: the active one and those waiting to be flushed. Writes stop when all are \
             full.";
        Tuning, block_bytes: u64 = "4 KiB", Bytes { min: 128, max: 16 * MIB },
            "Size of a data block before compression: the unit that a point lookup reads. Larger blocks compress \
             better and need smaller indexes; smaller ones read less.";
        Expert, restart_interval: usize = "16", Count { min: 1, max: 255 },
            "Entries between two keys stored in full within a block. A smaller interval makes searches shorter and \
             blocks larger.";
        Basic, compression: CompressionPerLevel = "none,none,lz4", Levels,
            "How the blocks of each level are compressed. Compressed blocks must be decompressed into the cache \
             before they are read.";
        Tuning, blob_threshold: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "Size from which flushes and compactions store a value apart from its key, in a blob file; 0 stores all \
             values in the tables. A log that has little else becomes the blob file, and its values are not written \
             again. Compactions rewrite such a value only with its file: because of garbage, or to \
             join small files. Reading it takes one more read. A change applies to values written from then on.";
        Tuning, blob_garbage: f64 = "0.4", Real { min: 0.05, max: 1.0, unit: "parts of 1" },
            "Compactions rewrite a blob file once no table refers to this share of it any more: its other \
             values go to a new file. Once compactions have caught up, files take at most 1 / (1 − \
             `blob_garbage`) times the values that tables refer to: 1.67 times with 0.4. A smaller share takes \
             less space and rewrites more.";
        Basic, filter: FilterPolicy = "blocked-bloom", Levels,
            "The filter of each level's tables. `blocked-bloom` touches one cache line per lookup. `ribbon` and \
             `fuse` are smaller and slower. `elastic` filters come in units; those that save the most block reads \
             are kept in memory, for when not all filters fit. `surf`, `snarf`, `rosetta`, `rencoder` and \
             `grafite` also let range reads skip runs that hold nothing in the range. `none` searches every run \
             that covers the key. `grf` is one filter for the whole tree, and so for all levels; so is \
             `external:NAME`, which the program supplies. `auto` is `blocked-bloom` or `grf`, whichever suits the \
             tree's runs and its reads at the time. Three short names are accepted, too: `bloom` means \
             `bloom-rotation`, `elastic` means `elastic-rotation`, `surf` means `surf-real`. Names that end in \
             `-double` or `-independent` need a build with the feature `measure`.";
        Basic, bits_per_key: f64 = "10", Real { min: 0.5, max: 64.0, unit: "bits" },
            "Filter memory per key, whether in its table's filter or in a global one. With 10 bits about one absent \
             key in a hundred costs a block read.";
        Tuning, filter_allocation: FilterAllocation = "uniform", OneOf,
            "How filter memory is divided between tables. `uniform`: the same for every key. `monkey`: more for the \
             keys of small runs, which minimizes the sum of all runs' false positive rates for the same memory. \
             `mnemosyne`: more for the keys of tables that are often searched in vain, which minimizes the expected \
             number of false positives; it samples gets to find them.";
        Expert, filter_units: u64 = "8", Count { min: 1, max: 16 },
            "Units of an `elastic` filter: the most that a hot segment can have in memory.";
        Tuning, prefix_filter: PrefixFilter = "none", Prefixes,
            "The key prefixes that a global filter holds, so that `prefix` scans can ask it: those of one or two \
             lengths in bytes, or those up to the first `delimiter` byte. Each distinct prefix costs as much filter \
             memory as a key.";
        Expert, levels: usize = "7", Count { min: 2, max: 16 },
            "Levels of the tree, including level 0. Must stay greater than the number of the deepest level in use.";
        Basic, compaction: CompactionChoice = "leveling", Compactions,
            "The shape of the tree: `leveling` reads the fewest runs, `tiering` rewrites the least, `lazy-leveling` \
             and `hybrid:N` lie between, `fragmented` never rewrites the level below; `fifo` and `time-window` keep \
             what `retain_bytes` and `time_to_live` allow.";
        Expert, merge: MergeGranularity = "auto", OneOf,
            "How much of a level one merge takes: all of it, some tables, or groups of tables that overlap \
             perfectly. `auto` suits the policy.";
        Tuning, size_ratio: PerLevel<u64> = "10", Counts { min: 2, max: 1000 },
            "How many times larger a level is than the one above. For tiering: how many runs of a level make one \
             of the next. Level 0 itself collects `level0_runs`. Larger ratios make fewer levels to read and, \
             with leveling, more bytes rewritten per byte written.";
        Tuning, retain_bytes: u64 = "unlimited", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Bytes of tables, and of their values in blob files, that `fifo` and `time-window` keep; the oldest tables \
             beyond that are dropped.";
        Basic, time_to_live: Option<Duration> = "none", Age,
            "Age after which an entry is dropped.";
        Tuning, max_tombstone_age: Option<Duration> = "none", Age,
            "Age at which a delete of a key or range should be gone from disk, with everything that it hides and \
             that no snapshot needs. Memtables are flushed and tables merged for that, whatever it costs.";
        Tuning, time_window: Option<Duration> = "1 h", Age,
            "Window length of `time-window`: only data written within the same window is merged together.";
        Tuning, table_bytes: u64 = "64 MiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Size at which a compaction starts the next table. Smaller tables make for smaller compactions and more \
             files.";
        Tuning, level0_runs: usize = "4", Count { min: 1, max: NO_LIMIT },
            "Runs in level 0 that trigger a compaction. With leveling it takes twice as many (but fewer than \
             `slowdown_runs`) while flushes follow each other within seconds. More runs save rewriting, but reads \
             must search all of them.";
        Expert, slowdown_runs: usize = "20", Count { min: 1, max: NO_LIMIT },
            "Runs in level 0 at which writes are slowed down; at least level0_runs.";
        Expert, stop_runs: usize = "36", Count { min: 1, max: NO_LIMIT },
            "Runs in level 0 at which writes wait; at least slowdown_runs.";
        Expert, slowdown_debt_bytes: u64 = "64 GiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Writes are slowed down once compaction has this many bytes left to rewrite. At four times as many they \
             wait.";
    }
    measured {
        blob_file_bytes: u64 = "256 MiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Size at which a flush or compaction starts the next blob file. Space comes back a file at a time.";
        filter_range: u64 = "64", Count { min: 1, max: 1 << 32 },
            "The widest range, in consecutive integers, that a `rosetta` filter is built for; wider ranges are \
             queried in pieces.";
        filter_unit_bits: f64 = "3", Real { min: 0.5, max: 16.0, unit: "bits" },
            "Bits per key of one unit of an `elastic` filter, in place of `bits_per_key`.";
        filter_unit_bytes: u64 = "1 KiB", Bytes { min: 128, max: 16 * MIB },
            "Size of one unit of an `elastic` filter. It determines how many adjacent keys form a segment, the \
             granularity at which hotness is tracked.";
        key_map: KeyMapChoice = "auto", OneOf,
            "How a global filter finds a key's place: by an order-preserving map `learned` from the keys, for point \
             and range reads; by the `digest`, for point reads of any keys; or `mixed`, by order between key ranges \
             and by digest within each. `auto` is learned where that works, otherwise mixed.";
        picker: FilePicker = "least-overlap", OneOf,
            "Which tables a partial merge takes first.";
        deterministic: bool = "false", Flag,
            "Make the tree's shape a function of the number of flushes alone: a level is merged down after a fixed \
             number of flushes, even if deletes and updates have kept it small. With full merges the number follows the \
             share of updates and deletes of the round before. Needs full or partitioned merges.";
    }
    besides {}
}

impl PartialEq for Options {
    /// Compares every field. File systems, clocks, listeners, operators and shared memory are equal
    /// if they are the same object; compare [`to_text`](Self::to_text) to leave them out.
    fn eq(&self, other: &Self) -> bool {
        self.same_table(other)
            && self.keyspace == other.keyspace
            && is_same(&self.file_system, &other.file_system)
            && is_same(&self.clock, &other.clock)
            && match (&self.shared_read_memory, &other.shared_read_memory) {
                (Some(a), Some(b)) => a.is_same(b),
                (a, b) => a.is_none() && b.is_none(),
            }
            && match (&self.shared_write_memory, &other.shared_write_memory) {
                (Some(a), Some(b)) => a.is_same(b),
                (a, b) => a.is_none() && b.is_none(),
            }
            && self.listeners.len() == other.listeners.len()
            && self.listeners.iter().zip(&other.listeners).all(|(a, b)| Arc::ptr_eq(a, b))
            && self.operators == other.operators
    }
}

fn is_same<T: ?Sized>(a: &Option<Arc<T>>, b: &Option<Arc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl PartialEq for KeyspaceOptions {
    fn eq(&self, other: &Self) -> bool {
        self.same_table(other)
    }
}

impl Options {
    /// Returns the defaults for a database in memory, for tests. Databases that are opened with
    /// clones of the result share one [file system](crate::io::MemFs): the path names a database in
    /// it, which can be closed and opened again. All is gone with the last clone and handle.
    ///
    /// ```
    /// use tamis::Options;
    ///
    /// let options = Options::in_memory();
    /// let db = options.clone().open("any name")?;
    /// db.put("key", "value")?;
    /// db.close()?;
    /// assert_eq!(options.open("any name")?.get("key")?.unwrap(), "value");
    /// # Ok::<(), tamis::Error>(())
    /// ```
    pub fn in_memory() -> Options {
        Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() }
    }

    /// Checks every option's range and that the options are consistent with each other.
    ///
    /// # Errors
    ///
    /// [`OptionsError::Value`], naming the first option that is out of range or contradicts
    /// another.
    pub fn check(&self) -> Result<(), OptionsError> {
        for field in Self::FIELDS {
            field.check(self, true)?;
        }
        self.check_read_memory()?;
        self.check_system()?;
        self.operators.check_names()?;
        self.keyspace.check_named(true)
    }

    /// Returns how many threads at most share one compaction.
    pub(crate) fn compaction_threads(&self) -> usize {
        self.sub_jobs.map_or(self.background_threads, |threads| threads as usize)
    }

    /// What this operating system does not have is refused, rather than done in another way.
    fn check_system(&self) -> Result<(), OptionsError> {
        if self.file_system.is_some() || ReadMode::available().contains(&self.read_mode) {
            return Ok(());
        }
        let value = "direct".to_owned();
        Err(OptionsError::Value {
            name: "read_mode",
            value,
            expected: "mapped or buffered: `direct` needs Linux".to_owned(),
        })
    }

    /// Shared memory comes in place of all limits of its own.
    fn check_read_memory(&self) -> Result<(), OptionsError> {
        if self.shared_read_memory.is_none() {
            return Ok(());
        }
        let limits = [
            "cache_bytes",
            "record_cache_bytes",
            "filter_budget_bytes",
            "read_memory_bytes",
            "auto_memory_bytes",
        ];
        for name in limits {
            let field = Self::FIELDS.iter().find(|field| field.name == name).expect("an option");
            let (value, default) = ((field.print)(self), field.default);
            if value != default {
                let expected = format!(
                    "it must be left at {default} with `shared_read_memory`, which is divided in its place"
                );
                return Err(OptionsError::Value { name: field.name(true), value, expected });
            }
        }
        Ok(())
    }

    /// Sets one option by its name and text; options of the default keyspace have the prefix
    /// `keyspace.`. An error leaves the options unchanged. Consistency between options is left to
    /// [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// [`OptionsError::Unknown`] for a name that no option has, [`OptionsError::Unavailable`] for
    /// an option of another version or build, [`OptionsError::Value`] for a text that the option
    /// does not accept.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        self.set_at(0, name, value)
    }

    fn set_at(&mut self, line: usize, name: &str, value: &str) -> Result<(), OptionsError> {
        let value = value.trim();
        refuse_unavailable(line, name)?;
        if let Some(field) = Self::FIELDS.iter().find(|f| f.qualified == name) {
            return field.set(self, true, value);
        }
        match KeyspaceOptions::FIELDS.iter().find(|f| f.qualified == name) {
            Some(field) => field.set(&mut self.keyspace, true, value),
            None => {
                let keyspace = KeyspaceOptions::fields().map(|f| f.qualified);
                let near = nearest(name, Self::fields().map(|f| f.qualified).chain(keyspace));
                Err(OptionsError::Unknown { line, name: excerpt(name), near })
            }
        }
    }

    /// Returns the text form, one line per option, basic ones first.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for class in OptionClass::ALL {
            heading(&mut text, class);
            for field in Self::fields().filter(|f| f.class == class) {
                field.print_line(self, true, &mut text);
            }
            self.keyspace.print_class(class, true, &mut text);
        }
        text
    }

    /// Parses the text form and checks the options. Options it does not name keep their defaults.
    ///
    /// # Errors
    ///
    /// [`OptionsError::Syntax`], [`OptionsError::Unknown`] and [`OptionsError::Unavailable`] with
    /// their line,
    /// [`OptionsError::Value`] with the option.
    pub fn from_text(text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::default();
        for assignment in assignments(text) {
            let (line, name, value) = assignment?;
            options.set_at(line, name, value)?;
        }
        options.check()?;
        Ok(options)
    }

    /// Parses the text form as a database stores it. Options that this build does not have keep
    /// their defaults.
    pub(crate) fn from_stored(text: &str) -> Result<Self, OptionsError> {
        Self::from_text(&available(text).collect::<Vec<_>>().join("\n"))
    }

    /// Describes all options with their defaults, ranges and consequences, in the order of the text
    /// form's classes.
    pub fn describe() -> Vec<OptionInfo> {
        let own = Self::fields().map(|f| f.info(true));
        by_class(own.chain(KeyspaceOptions::fields().map(|f| f.info(true))))
    }
}

impl KeyspaceOptions {
    /// Checks every option's range and that the options are consistent with each other.
    ///
    /// # Errors
    ///
    /// [`OptionsError::Value`], naming the first option that is out of range or contradicts
    /// another.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.check_named(false)
    }

    fn check_named(&self, qualified: bool) -> Result<(), OptionsError> {
        for field in Self::FIELDS {
            field.check(self, qualified)?;
        }
        self.check_order("slowdown_runs", self.slowdown_runs, "level0_runs", self.level0_runs, qualified)?;
        self.check_order("stop_runs", self.stop_runs, "slowdown_runs", self.slowdown_runs, qualified)?;
        self.check_filter(qualified)?;
        self.check_merge(qualified)
    }

    /// A global filter is one for all levels, so there is no memory to divide between them.
    fn check_filter(&self, qualified: bool) -> Result<(), OptionsError> {
        self.check_elastic(qualified)?;
        let Some(global) = self.filter.as_slice().iter().find(|choice| choice.is_of_tree()) else {
            return Ok(());
        };
        let word = global.word();
        if self.filter.of_tree().is_none() {
            let expected =
                format!("{word} is a filter for the whole tree and must be set for all levels or for none");
            return self.refuse("filter", Levels.print(&self.filter), expected, qualified);
        }
        if self.filter_allocation != FilterAllocation::Uniform {
            let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
            let expected =
                format!("it must be uniform with `{prefix}filter` = {word}, one filter for all levels");
            return self.refuse(
                "filter_allocation",
                self.filter_allocation.word().into(),
                expected,
                qualified,
            );
        }
        Ok(())
    }

    /// Elastic filters divide memory by hotness, and the number of independent hash functions is
    /// limited.
    fn check_elastic(&self, qualified: bool) -> Result<(), OptionsError> {
        let choices = self.filter.as_slice();
        let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
        if let Some(elastic) = choices.iter().find(|choice| choice.is_elastic())
            && self.filter_allocation != FilterAllocation::Uniform
        {
            let expected = format!(
                "it must be uniform with `{prefix}filter` = {}, which follows the hotness",
                elastic.word()
            );
            let value = self.filter_allocation.word().into();
            return self.refuse("filter_allocation", value, expected, qualified);
        }
        if choices.contains(&FilterChoice::Elastic(BloomHashing::Independent)) {
            let probes = theory::optimal_probes(self.filter_unit_bits);
            let most = u64::from(theory::MAX_PROBES / probes);
            if self.filter_units > most {
                let expected = format!(
                    "it must be at most {most} with `{prefix}filter` = elastic-independent and \
                     `{prefix}filter_unit_bits` = {}: there are {} hash functions",
                    self.filter_unit_bits,
                    theory::MAX_PROBES
                );
                return self.refuse("filter_units", self.filter_units.to_string(), expected, qualified);
            }
        }
        Ok(())
    }

    fn refuse(
        &self,
        name: &str,
        value: String,
        expected: String,
        qualified: bool,
    ) -> Result<(), OptionsError> {
        let name = Self::FIELDS.iter().find(|f| f.name == name).map_or("", |f| f.name(qualified));
        Err(OptionsError::Value { name, value, expected })
    }

    fn check_merge(&self, qualified: bool) -> Result<(), OptionsError> {
        use CompactionChoice::{Fifo, TimeWindow};
        let allowed = self.compaction.form().granularities(self.deterministic);
        let allowed: Vec<MergeGranularity> = allowed.iter().copied().map(MergeGranularity::of).collect();
        let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
        let refuse = |name, value, expected| self.refuse(name, value, expected, qualified);
        if !allowed.contains(&self.granularity()) {
            let words: Vec<&str> = allowed.iter().map(|merge| merge.word()).collect();
            let how = if self.deterministic { " and deterministic = true" } else { "" };
            let expected = format!(
                "it must be auto or {} with `{prefix}compaction` = {}{how}",
                words.join(" or "),
                self.compaction
            );
            return refuse("merge", self.merge.word().into(), expected);
        }
        if self.deterministic && !self.compaction.form().may_count() {
            let expected = format!(
                "it must be false with `{prefix}compaction` = {}, which goes by sizes or times",
                self.compaction
            );
            return refuse("deterministic", "true".into(), expected);
        }
        if let Some(age) = self.max_tombstone_age
            && (self.deterministic || matches!(self.compaction, Fifo | TimeWindow))
        {
            let expected = match self.deterministic {
                true => format!(
                    "it must be none with `{prefix}deterministic` = true, which goes by flushes alone"
                ),
                false => format!(
                    "it must be none with `{prefix}compaction` = {}, which drops deletes with their run",
                    self.compaction
                ),
            };
            return refuse("max_tombstone_age", format!("{} s", age.as_secs()), expected);
        }
        if self.compaction == TimeWindow && self.time_window.is_none() {
            return refuse(
                "time_window",
                "none".into(),
                "it must be a time with `compaction` = time-window".into(),
            );
        }
        Ok(())
    }

    fn check_order<N: Ord + std::fmt::Display>(
        &self,
        name: &str,
        value: N,
        least_name: &str,
        least: N,
        qualified: bool,
    ) -> Result<(), OptionsError> {
        if value >= least {
            return Ok(());
        }
        let name = Self::FIELDS.iter().find(|f| f.name == name).map_or("", |f| f.name(qualified));
        let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
        let expected = format!("it must be at least `{prefix}{least_name}`, which is {least}");
        Err(OptionsError::Value { name, value: value.to_string(), expected })
    }

    /// Sets one option by its name and text. An error leaves the options unchanged. Consistency
    /// between options is left to [`check`](Self::check).
    ///
    /// # Errors
    ///
    /// [`OptionsError::Unknown`] for a name that no option has, [`OptionsError::Unavailable`] for
    /// an option of another version or build, [`OptionsError::Value`] for a text that the option
    /// does not accept.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        self.set_at(0, name, value)
    }

    /// Returns what differs in `other`, as names and texts.
    pub(crate) fn changes_to(&self, other: &Self) -> Vec<(&'static str, String)> {
        let texts = Self::FIELDS.iter().map(|field| (field.name, (field.print)(self), (field.print)(other)));
        texts.filter(|(_, before, after)| before != after).map(|(name, _, after)| (name, after)).collect()
    }

    /// Returns the text of one option's value.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        Self::FIELDS.iter().find(|field| field.name == name).map(|field| (field.print)(self))
    }

    fn set_at(&mut self, line: usize, name: &str, value: &str) -> Result<(), OptionsError> {
        refuse_unavailable(line, name)?;
        match Self::FIELDS.iter().find(|f| f.name == name) {
            Some(field) => field.set(self, false, value.trim()),
            None => {
                let near = nearest(name, Self::fields().map(|f| f.name));
                Err(OptionsError::Unknown { line, name: excerpt(name), near })
            }
        }
    }

    fn print_class(&self, class: OptionClass, qualified: bool, text: &mut String) {
        for field in Self::fields().filter(|f| f.class == class) {
            field.print_line(self, qualified, text);
        }
    }

    /// Returns the text form, one line per option, basic ones first, names without prefix.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for class in OptionClass::ALL {
            heading(&mut text, class);
            self.print_class(class, false, &mut text);
        }
        text
    }

    /// Parses the text form and checks the options. Options it does not name keep their defaults.
    ///
    /// # Errors
    ///
    /// [`OptionsError::Syntax`], [`OptionsError::Unknown`] and [`OptionsError::Unavailable`] with
    /// their line,
    /// [`OptionsError::Value`] with the option.
    pub fn from_text(text: &str) -> Result<Self, OptionsError> {
        let mut options = KeyspaceOptions::default();
        for assignment in assignments(text) {
            let (line, name, value) = assignment?;
            options.set_at(line, name, value)?;
        }
        options.check()?;
        Ok(options)
    }

    /// Parses the text form as a database stores it. Options that this build does not have keep
    /// their defaults. A stored filter that this build does not have
    /// does not keep the database from opening: one that the engine once shipped is stored without
    /// the prefix `external:`, and new tables get a hashing scheme that is built in.
    pub(crate) fn from_stored(text: &str) -> Result<Self, OptionsError> {
        let built_in = |word: &str| match FilterChoice::from_word(word.trim()) {
            Some(choice) if choice.missing().is_none() => choice.word(),
            Some(FilterChoice::Elastic(_)) => FilterChoice::Elastic(BloomHashing::Rotation).word(),
            Some(_) => FilterChoice::Bloom(BloomHashing::Rotation).word(),
            None => SelectorName::new(word.trim()).map_or("", |name| FilterChoice::External(name).word()),
        };
        let now = |line: &str| match line.strip_prefix("filter = ") {
            Some(words) => {
                let words: Vec<&str> = words.split(',').map(built_in).collect();
                format!("filter = {}", words.join(","))
            }
            None => line.to_owned(),
        };
        Self::from_text(&available(text).map(now).collect::<Vec<_>>().join("\n"))
    }

    /// Returns the names of the operators that these options refer to.
    pub(crate) fn operators(&self) -> OperatorNames<'_> {
        OperatorNames {
            merge: self.merge_operator.as_deref(),
            filter: self.compaction_filter.as_deref(),
            selector: self.filter.global().and_then(|choice| match choice {
                FilterChoice::External(name) => Some(name.as_str()),
                _ => None,
            }),
        }
    }

    /// Describes all options with their defaults, ranges and consequences, in the order of the text
    /// form.
    pub fn describe() -> Vec<OptionInfo> {
        by_class(Self::fields().map(|f| f.info(false)))
    }
}

fn heading(text: &mut String, class: OptionClass) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str("# ");
    text.push_str(class.name());
    text.push('\n');
}

fn by_class(infos: impl Iterator<Item = OptionInfo>) -> Vec<OptionInfo> {
    let mut all: Vec<_> = infos.collect();
    all.sort_by_key(|info| OptionClass::ALL.iter().position(|class| *class == info.class));
    all
}

/// Options of earlier versions that are constants now, or part of another option.
pub(super) const REMOVED: &[(&str, &str)] = &[
    ("block_hash_index", "is fixed at true: blocks always have a hash index"),
    ("compaction_nice", "is fixed at 10"),
    ("eager_filter_rebuild", "is fixed at false: a key range is rebuilt when that pays"),
    ("memtable_filter", "is fixed at true: memtables always have a filter"),
    (
        "publish_stats",
        "is gone: the program publishes, with `tamis_metrics::Publisher` or `tamis serve --write --publish`",
    ),
    ("salvage", "is gone: a repair comes before an opening, with `tamis_doctor::salvage` or `tamis salvage`"),
    ("stop_debt_bytes", "is fixed at four times `slowdown_debt_bytes`"),
    ("verify_filters", "is fixed at true: a new filter is always probed before it is used"),
];

/// Returns why this build does not have the option, if another version or build does.
fn unavailable(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix(KEYSPACE_PREFIX).unwrap_or(name);
    let removed = REMOVED.iter().find(|(removed, _)| *removed == name).map(|(_, reason)| *reason);
    removed.or_else(|| {
        let is_fixed = Options::FIELDS.iter().any(|f| f.name == name && f.is_fixed())
            || KeyspaceOptions::FIELDS.iter().any(|f| f.name == name && f.is_fixed());
        is_fixed.then_some(NEEDS_MEASURE)
    })
}

fn refuse_unavailable(line: usize, name: &str) -> Result<(), OptionsError> {
    let refuse = |reason| Err(OptionsError::Unavailable { line, name: name.to_owned(), reason });
    unavailable(name).map_or(Ok(()), refuse)
}

/// Returns the lines of a stored text without the options that only other versions or builds have.
fn available(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| {
        let name = line.split('=').next().unwrap_or("").trim();
        unavailable(name).is_none()
    })
}

/// Returns the options in the stored text of a keyspace that this build does not have, and that
/// have another value than the default: the keyspace goes on without them.
pub(crate) fn ignored(text: &str) -> Vec<String> {
    ignored_where(text, |name| unavailable(name).is_some())
}

pub(super) fn ignored_where(text: &str, is_missing: impl Fn(&str) -> bool) -> Vec<String> {
    let default = KeyspaceOptions::default();
    let is_ignored = |line: &&str| {
        let Some((name, value)) = line.split_once('=') else { return false };
        let field = KeyspaceOptions::FIELDS.iter().find(|field| field.name == name.trim());
        field.is_some_and(|field| is_missing(field.name) && (field.print)(&default) != value.trim())
    };
    text.lines().filter(is_ignored).map(str::to_owned).collect()
}

/// An option that contradicts a keyspace on disk; the fields of
/// [`OpenError::Incompatible`](crate::error::OpenError::Incompatible).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incompatible {
    pub(crate) name: &'static str,
    pub(crate) stored: String,
    pub(crate) asked: String,
    pub(crate) advice: String,
}

/// Returns what keeps a keyspace with tables down to `deepest_level_in_use` from being opened with
/// the options `asked`. Everything else (sizes, filters, compression, ratios) may change at any
/// time: old tables stay as they were built, and compactions replace them.
pub(crate) fn incompatible(
    stored: &KeyspaceOptions,
    asked: &KeyspaceOptions,
    deepest_level_in_use: usize,
) -> Option<Incompatible> {
    if let Some(stored) =
        stored.merge_operator.as_ref().filter(|_| stored.merge_operator != asked.merge_operator)
    {
        return Some(Incompatible {
            name: "merge_operator",
            stored: stored.clone(),
            asked: asked.merge_operator.clone().unwrap_or_else(|| "none".into()),
            advice: "unapplied operands would change their meaning; write the values to a new keyspace"
                .into(),
        });
    }
    (asked.levels <= deepest_level_in_use).then(|| Incompatible {
        name: "levels",
        stored: stored.levels.to_string(),
        asked: asked.levels.to_string(),
        advice: format!(
            "level {deepest_level_in_use} holds tables, so `levels` must be at least {}",
            deepest_level_in_use + 1
        ),
    })
}

/// Chooses filter and tree shape of a keyspace for its data and workload. The engine asks at
/// opening and whenever a compaction leaves a tree idle, provides hysteresis, and puts changes into
/// effect; see `docs/advisor.md`. The crate `tamis-advisor` has one that goes by a cost model.
///
/// Any thread may call; no lock of the engine is held meanwhile, and a panic is only a warning.
pub trait Tuner: Send + Sync + Debug {
    /// Returns the options that save more than the part `case.margin` of an operation's time;
    /// `None` to leave them as they are. Only these options may differ: `filter`,
    /// `filter_allocation`, `bits_per_key`, `compaction`, `merge` and `size_ratio`.
    fn propose(&self, case: &TuningCase<'_>) -> Option<Proposal>;
}

/// A keyspace that may be tuned.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TuningCase<'a> {
    /// The database's directory.
    pub dir: &'a Path,
    /// The current options, with those of the keyspace as `keyspace`.
    pub options: &'a Options,
    /// Entries in its tables.
    pub entries: u64,
    /// The mean length of a key, in bytes.
    pub key_bytes: f64,
    /// The mean length of an entry, in bytes, before compression.
    pub entry_bytes: f64,
    /// The operations to tune for.
    pub workload: &'a Workload,
    /// Memory for the keyspace's filters, in bytes.
    pub budget_bytes: u64,
    /// Whether the database is being opened. Only then a filter for the whole tree may be added,
    /// replaced or removed.
    pub opening: bool,
    /// The part of an operation's time that a change must save.
    pub margin: f64,
}

/// A worthwhile change.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The options to change to.
    pub options: KeyspaceOptions,
    /// The predicted saving, as a part of an operation's time.
    pub gain: f64,
    /// Why, in words.
    pub reason: String,
}
