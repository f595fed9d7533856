//! Options: what can be chosen about a database and about each keyspace.
//!
//! Every option is one row of a table: name, class, type, default, domain, consequence. The struct, its
//! documentation, its default, its checks and its text form all come from that row.
//!
//! # Text form
//!
//! Lines `name = value`; `#` starts a comment; blank lines are skipped; of two lines with one name the later
//! one holds; options that are not named keep their defaults. Sizes are printed in the largest exact unit
//! (`64 MiB`) and read with or without one. Among the options of a database those of its default keyspace
//! have the prefix `keyspace.`. `from_text(to_text(o)) == o` for every `o` that `check` accepts.
//!
//! Options are plain values: nothing here locks, and changing a value after the database was opened with a
//! copy of it changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tamis_filter::theory;

use crate::clock::Clock;
use crate::error::OptionsError;
use crate::io::FileSystem;
use crate::operators::Operators;
use tamis_model::engine::Workload;

mod domain;
mod prefixes;
mod table;
mod values;
mod workload;

use domain::Words as _;
use domain::{
    Age, AutoCount, Bytes, Compactions, Count, Counts, Domain, DurabilityDomain, Flag, Levels, Name, OneOf,
    Real,
};
use prefixes::Prefixes;
use table::{Field, assignments, excerpt, options_table};
use workload::Operations;

pub use prefixes::PrefixFilter;
pub use table::{OptionClass, OptionInfo};
pub use values::{
    AsyncReads, BloomHashing, ChecksumMode, CompactionChoice, Compression, CompressionPerLevel, Durability,
    FilePicker, FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, MergeGranularity, OnDamage,
    PerLevel, ReadMode, SurfSuffix,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const NO_LIMIT: u64 = u64::MAX;
const KEYSPACE_PREFIX: &str = "keyspace.";

options_table! {
    /// What can be chosen about a database; the default keyspace's options are named `keyspace.…` in the text.
    ///
    /// Text form ([`to_text`](Self::to_text), [`from_text`](Self::from_text)): lines `name = value`; `#` starts a
    /// comment; options not named keep their defaults; sizes may have a unit (`64 MiB`).
    #[derive(Clone, Debug)]
    pub struct Options: "" {
        Behaviour, create_if_missing: bool = "true", Flag,
            "Create the database if the directory holds none; otherwise opening a missing one is an error.";
        Behaviour, error_if_exists: bool = "false", Flag,
            "Refuse to open a database that exists already.";
        Behaviour, durability: Durability = "buffered", DurabilityDomain,
            "When an acknowledged write survives a power cut. `buffered` may lose the last seconds, `every …` at \
             most that time, `sync` nothing, at the price of one device sync for each group of writes.";
        Behaviour, salvage: bool = "false", Flag,
            "Open a damaged database with what can still be read instead of refusing it: where the manifest is damaged or gone the \
             tree is made anew from the tables that are there, damaged log records are \
             skipped, tables that cannot be opened are set aside as `….damaged`, tables, logs and manifests that are not part of \
             what was saved as `….aside`, and each is a warning; nothing is removed. Writes may \
             be missing, and deleted keys may come back. Damaged blocks within a table stay errors of the reads \
             that touch them.";
        Behaviour, on_damage: OnDamage = "refuse", OneOf,
            "What becomes of a database of which a table is damaged or missing. `refuse`: it is not opened. `quarantine`: \
             it is opened without the table: reads that need it are errors, all others go on, no compaction touches it, \
             and statistics and `verify` name it. Nothing is lost by it that was not lost before, and nothing is hidden.";
        Behaviour, scrub_bytes_per_second: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "How fast a thread in the background reads every table, log and the manifest, again and again, to find damage \
             before it is needed; 0: not at all. What it finds is a warning, and statistics name it.";
        Behaviour, verify_checksums: ChecksumMode = "once", OneOf,
            "Whether a block's checksum is compared at its first read only or at each: `always` also finds \
             damage that came after the first read, and costs a pass over every block read.";
        Performance, read_mode: ReadMode = "mapped", OneOf,
            "How tables are read: `mapped` into memory through the page cache, by `buffered` system calls \
             through it, or by `direct` ones past it, where the block cache is all the cache there is.";
        Performance, async_reads: AsyncReads = "auto", OneOf,
            "How block reads overlap when several are needed at once (`multi_get`, positioning an iterator in several \
             runs) and tables are not mapped: through `io-uring`, by `threads`, or not at all (`off`). `auto` is \
             io_uring where the system allows it, else threads.";
        Performance, read_queue_depth: usize = "32", Count { min: 1, max: 256 },
            "How many block reads overlap at most, and how many blocks a scan reads ahead at most; 1: none. More keep \
             more of a device busy. Each thread that reads at the moment may hold a buffer for each of them.";
        Performance, hash_sharing: bool = "true", Flag,
            "Compute one digest for each key looked up and use it in all filters; `false` hashes anew for every \
             filter, to measure what sharing saves.";
        Performance, cache_bytes: u64 = "64 MiB", Bytes { min: 0, max: NO_LIMIT },
            "Memory for blocks that had to be read or unpacked; 0 keeps none. A mapped block that is not \
             compressed needs none of it.";
        Performance, filter_budget_bytes: u64 = "64 MiB", Bytes { min: 0, max: NO_LIMIT },
            "Memory for the units of `elastic` filters of all keyspaces together. It is never exceeded; what is in it \
             follows the reads.";
        Performance, read_memory_bytes: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "One limit for the block cache and the units of `elastic` filters, which are then divided as it saves most \
             block reads; 0: each has a limit of its own, `cache_bytes` and `filter_budget_bytes`.";
        Performance, auto_memory_bytes: u64 = "0", Bytes { min: 0, max: NO_LIMIT },
            "Memory for filters and the block cache together, within which the cost model chooses `filter`, `bits_per_key`, \
             `filter_allocation`, `compaction`, `merge` and `size_ratio` of every keyspace, for its `workload`: at opening, \
             and again where a compaction has brought data to rest; 0: they are what the options say.";
        Performance, filter_life_time: Option<u64> = "auto", AutoCount(Count { min: 1, max: NO_LIMIT }),
            "For `elastic` filters: after so many gets without one that asks it a segment has expired, and may lose \
             filter memory to others. `auto`: as many as there are segments, at least \
             1000, times the gets that one that is counted stands for.";
        Performance, heat_sampling: Option<u64> = "auto", AutoCount(Count { min: 1, max: 1 << 16 }),
            "For `elastic` filters: one get of so many is counted. `auto`: more of few, less of many.";
        Performance, heat_inheritance: bool = "true", Flag,
            "For `elastic` filters: new tables take over how often the tables that they replace were asked; `false` \
             lets them begin cold, to measure what that costs.";
        Performance, pin_metadata: bool = "true", Flag,
            "Keep filters and indexes of all open tables in memory outside the cache: no read ever waits for \
             them, but memory grows with the data (about bits_per_key bits a key).";
        Performance, memtable_budget_bytes: u64 = "256 MiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Memory of all memtables of all keyspaces together. Beyond half of it in memtables that take writes the \
             largest is flushed early; beyond all of it writers wait for flushes.";
        Performance, max_log_bytes: u64 = "1 GiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Bytes that log files take on disk, with what is reserved in them and files kept to be overwritten. Near it the \
              keyspaces that hold back the oldest file are flushed, at it writers wait for that. Bounds the time of a recovery.";
        Performance, reserve_bytes: u64 = "64 MiB", Bytes { min: 0, max: NO_LIMIT },
            "Room on the device that is kept for a full disk, at most, and at most a quarter of what tables take (a sixteenth, unless \
             logs hold more): it is given up then, so that deletes, flushes and compactions go on while no other writes are taken. 0: none is kept.";
        Performance, max_open_files: usize = "1000", Count { min: 0, max: 1 << 30 },
            "Files of tables that are open at a time where tables are not mapped; 0 is all of them. A mapped table \
             needs no descriptor. Each read under way, log and background job takes a few more.";
        Performance, background_threads: usize = "2", Count { min: 1, max: 64 },
            "Threads that flush and compact. More keep up with more writes and take processor time from readers.";
        Performance, sub_jobs: usize = "2", Count { min: 1, max: 64 },
            "Threads that share one large merge, each with a part of its key range.";
        Performance, background_bytes_per_second: u64 = "unlimited", Bytes { min: 64 * KIB, max: NO_LIMIT },
            "How fast flushes and compactions together may write; flushes go first. Bounds what they take from \
             reads.";
        Performance, recycled_logs: usize = "2", Count { min: 0, max: 16 },
            "Old log files kept to be overwritten by new ones, which saves the file system's work for growing \
             a file in every sync. Fewer where they would take more than `max_log_bytes` allows or an eighth of the free disk.";
    }
    besides {
        /// The options of the default keyspace.
        keyspace: KeyspaceOptions = KeyspaceOptions::default();
        /// The file system to work on; `None` is the operating system's, chosen by `read_mode`. Not part of
        /// the text form, and ignored by `==`.
        file_system: Option<Arc<dyn FileSystem>> = None;
        /// What tells the time; `None` is the operating system's clock. Not part of the text form, and ignored by
        /// `==`.
        clock: Option<Arc<dyn Clock>> = None;
        /// The merge operators and compaction filters that keyspaces may name, beside the built-in ones. Not part of
        /// the text form, and ignored by `==`.
        operators: Operators = Operators::new();
    }
}

options_table! {
    /// What can be chosen about one keyspace.
    ///
    /// Text form ([`to_text`](Self::to_text), [`from_text`](Self::from_text)): lines `name = value`; `#` starts a
    /// comment; options not named keep their defaults; sizes may have a unit (`64 MiB`).
    #[derive(Clone, Debug)]
    pub struct KeyspaceOptions: "keyspace." {
        Behaviour, auto_compaction: bool = "true", Flag,
            "Compact in the background whenever the tree is out of shape; `false` compacts on request only, and \
             level 0 grows without slowing down writes.";
        Performance, read_compaction: bool = "true", Flag,
            "Merge runs, step by step into one, when reads have lost as much to them as a step rewrites and nobody has \
             written for a second: with leveling, lazy leveling and hybrids, unless `deterministic`.";
        Performance, workload: Option<Workload> = "auto", Operations,
            "Which operations to expect, for `auto_memory_bytes`: shares of operations and how they ask, like \
             `get 60, empty-get 30, put 10, skew 0.99`. `auto`: those that were seen.";
        Behaviour, merge_operator: Option<String> = "none", Name,
            "What `merge` does to a value: `add` (numbers of eight bytes, little endian, modulo 2^64), `append`, `max` \
             (in byte order), or an operator that the program brings along. A keyspace keeps its operator for good.";
        Behaviour, compaction_filter: Option<String> = "none", Name,
            "A filter of the program that flushes and compactions show values to, and that may change or remove them.";
        Performance, memtable_bytes: u64 = "64 MiB", Bytes { min: 4 * KIB, max: 4 * GIB },
            "Size at which a memtable is flushed. Larger ones make fewer, larger runs and less compaction, and \
             take more memory and a longer recovery.";
        Performance, max_memtables: usize = "3", Count { min: 2, max: 16 },
            "The active memtable and those waiting to be flushed; writes stop when all are full.";
        Performance, memtable_filter: bool = "true", Flag,
            "Keep a small filter beside each memtable, so that a key it does not hold costs one cache line \
             instead of a search.";
        Performance, block_bytes: u64 = "4 KiB", Bytes { min: 256, max: 16 * MIB },
            "Size of a data block before compression: what a point lookup reads. Larger blocks compress better \
             and need less index; smaller ones read less.";
        Performance, restart_interval: usize = "16", Count { min: 1, max: 255 },
            "Entries between two keys stored in full within a block. Fewer make a search shorter and the block \
             larger.";
        Performance, block_hash_index: bool = "true", Flag,
            "Store a hash index in each data block (about a byte an entry), so that a point lookup needs no \
             binary search within the block.";
        Performance, compression: CompressionPerLevel = "none,none,lz4", Levels,
            "Compression of each level from 0 on; the last one holds for all deeper levels. Compressed blocks \
             must be unpacked into the cache before they are read.";
        Performance, filter: FilterPolicy = "blocked-bloom", Levels,
            "Filter of the tables of each level from 0 on; the last one holds for all deeper levels. \
             `blocked-bloom` touches one cache line a probe; `ribbon` and `fuse` are smaller and slower; `elastic` \
             comes in units, of which those are in memory that save most block reads, for when not all filters fit; \
             `surf`, `snarf`, `rosetta`, `rencoder` and `grafite` also keep runs that hold nothing in a range from being \
             opened; `none` searches every run that covers the key. `grf`, `grf-huffman`, `chucky` and `remix` are \
             one filter for the whole tree, and so for all levels.";
        Performance, bits_per_key: f64 = "10", Real { min: 0.5, max: 64.0, unit: "bits" },
            "Filter memory for each key, be it of its table's filter or of a global one. 10 bits let about one absent \
             key in a hundred through to a block.";
        Performance, filter_allocation: FilterAllocation = "uniform", OneOf,
            "How filter memory is divided between the levels: the same for every key, or by `monkey` more for the \
             keys of small runs, so that all runs together let the fewest absent keys through for the same sum.";
        Performance, filter_range: u64 = "64", Count { min: 1, max: 1 << 32 },
            "The widest range, in neighbouring integers, that a `rosetta` filter is made for; wider ones it asks in \
             pieces.";
        Performance, filter_units: u64 = "6", Count { min: 1, max: 16 },
            "Units of an `elastic` filter: more than all of them a hot segment cannot have.";
        Performance, filter_unit_bits: f64 = "4", Real { min: 0.5, max: 16.0, unit: "bits" },
            "Bits of one unit of an `elastic` filter for each key, in place of `bits_per_key`.";
        Performance, filter_unit_bytes: u64 = "4 KiB", Bytes { min: 128, max: 16 * MIB },
            "Size of one unit of an `elastic` filter, and so how many neighbouring keys are one segment, which is \
             what heat is known of.";
        Performance, key_map: KeyMapChoice = "auto", OneOf,
            "How a global filter finds a key's place: by a map that is `learned` from the keys and keeps their order, \
             which serves points and ranges; by the `digest`, which serves points of any keys; or `mixed`, by order \
             from stretch to stretch and by digest within. `auto` is learned where that works, else mixed.";
        Performance, prefix_filter: PrefixFilter = "none", Prefixes,
            "Which prefixes of keys a global filter knows, so that `prefix` scans of them ask it: those of one or two \
             lengths in bytes, or those up to the first byte that is a `delimiter`. Each distinct prefix costs as \
             much filter memory as a key.";
        Performance, eager_filter_rebuild: bool = "false", Flag,
            "Build a stretch of a global filter anew as soon as a compaction has rewritten the oldest run below it, so \
             that entries of deleted keys go at once; otherwise only when the stretch has grown by an eighth as well. \
             Less filter memory and fewer false positives where much is deleted, for the time of rebuilding.";
        Performance, verify_filters: bool = "true", Flag,
            "Ask each new filter for every one of its keys before it is used, so that a fault of memory or \
             processor cannot hide a key; a filter that fails is left out. Costs one probe a key.";
        Performance, levels: usize = "7", Count { min: 2, max: 16 },
            "Levels of the tree, level 0 among them. Cannot be made smaller than the deepest level in use.";
        Performance, compaction: CompactionChoice = "leveling", Compactions,
            "The shape of the tree: `leveling` reads fewest runs, `tiering` rewrites least, `lazy-leveling` and \
             `hybrid:N` lie between, `fragmented` never rewrites the level below; `fifo` and `time-window` keep \
             what `retain_bytes` and `time_to_live` allow.";
        Performance, merge: MergeGranularity = "auto", OneOf,
            "How much of a level one merge takes: all of it, some tables, or groups of tables that overlap \
             perfectly. `auto` is what suits the policy.";
        Performance, picker: FilePicker = "least-overlap", OneOf,
            "Which tables a partial merge takes first.";
        Performance, deterministic: bool = "false", Flag,
            "Make the tree's shape a function of the number of flushes alone, whatever they hold: a level is \
             merged down after a fixed number of them, also if deletes and updates have kept it small. Needs \
             full or partitioned merges.";
        Performance, size_ratio: PerLevel<u64> = "10", Counts { min: 2, max: 1000 },
            "How many times larger each level is than the one above (for tiering: how many runs of a level make one \
             of the next), for each level from 0 on; what level 0 collects is level0_runs. Larger ratios make fewer \
             levels to read and, with leveling, more bytes rewritten for each byte written.";
        Behaviour, retain_bytes: u64 = "unlimited", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "How many bytes of tables `fifo` and `time-window` keep; the oldest beyond that are dropped.";
        Behaviour, time_to_live: Option<Duration> = "none", Age,
            "How long after it was written an entry is dropped.";
        Performance, time_window: Option<Duration> = "1 h", Age,
            "The window of `time-window`: only what was written within one is merged together.";
        Performance, table_bytes: u64 = "64 MiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Size at which a compaction starts the next table. Smaller tables make smaller compactions and more \
             files.";
        Performance, level0_runs: usize = "4", Count { min: 1, max: NO_LIMIT },
            "Runs in level 0 that start a compaction. More save rewriting and cost each read one more run.";
        Performance, slowdown_runs: usize = "20", Count { min: 1, max: NO_LIMIT },
            "Runs in level 0 from which on writes are slowed down; at least level0_runs.";
        Performance, stop_runs: usize = "36", Count { min: 1, max: NO_LIMIT },
            "Runs in level 0 at which writes wait; at least slowdown_runs.";
        Performance, slowdown_debt_bytes: u64 = "64 GiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Bytes that compaction has yet to rewrite from which on writes are slowed down.";
        Performance, stop_debt_bytes: u64 = "256 GiB", Bytes { min: 4 * KIB, max: NO_LIMIT },
            "Bytes that compaction has yet to rewrite at which writes wait; at least slowdown_debt_bytes.";
    }
    besides {}
}

impl PartialEq for Options {
    /// Compares everything that the text form holds; not `file_system`.
    fn eq(&self, other: &Self) -> bool {
        self.same_table(other) && self.keyspace == other.keyspace
    }
}

impl PartialEq for KeyspaceOptions {
    fn eq(&self, other: &Self) -> bool {
        self.same_table(other)
    }
}

impl Options {
    /// Checks every value's range and how the values fit together.
    pub fn check(&self) -> Result<(), OptionsError> {
        for field in Self::FIELDS {
            field.check(self, true)?;
        }
        self.keyspace.check_named(true)
    }

    /// Sets one option by its name and text; options of the default keyspace have the prefix `keyspace.`.
    /// On an error nothing has changed. How values fit together is for [`check`](Self::check).
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        self.set_at(0, name, value)
    }

    fn set_at(&mut self, line: usize, name: &str, value: &str) -> Result<(), OptionsError> {
        let value = value.trim();
        if let Some(field) = Self::FIELDS.iter().find(|f| f.qualified == name) {
            return field.set(self, true, value);
        }
        match KeyspaceOptions::FIELDS.iter().find(|f| f.qualified == name) {
            Some(field) => field.set(&mut self.keyspace, true, value),
            None => Err(OptionsError::Unknown { line, name: excerpt(name) }),
        }
    }

    /// The text form, one line for every option, behaviour first.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for class in [OptionClass::Behaviour, OptionClass::Performance] {
            heading(&mut text, class);
            for field in Self::FIELDS.iter().filter(|f| f.class == class) {
                field.print_line(self, true, &mut text);
            }
            self.keyspace.print_class(class, true, &mut text);
        }
        text
    }

    /// Reads the text form and checks it. Options that it does not name have their defaults.
    pub fn from_text(text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::default();
        for assignment in assignments(text) {
            let (line, name, value) = assignment?;
            options.set_at(line, name, value)?;
        }
        options.check()?;
        Ok(options)
    }

    /// All options with their defaults, ranges and consequences, in the order of the text form's classes.
    pub fn describe() -> Vec<OptionInfo> {
        let own = Self::FIELDS.iter().map(|f| f.info(true));
        by_class(own.chain(KeyspaceOptions::FIELDS.iter().map(|f| f.info(true))))
    }
}

impl Options {
    /// Options that choose themselves within `memory_bytes` of filters and block cache: a quarter for the cache, at most 1 GiB,
    /// the rest for filters. Filters and compaction policy follow the cost model ([`advise`](crate::advise)) for the
    /// workload that is declared in `keyspace.workload` or, by default, was seen: at opening, and whenever a compaction has
    /// brought data to rest, with hysteresis. What was decided is in [`Stats::tuning`](crate::Stats::tuning).
    ///
    /// A new database begins with the defaults. Everything else may be set as usual; the options named at
    /// [`auto_memory_bytes`](Self::auto_memory_bytes) are only what the first choice begins with.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let mut options = tamis::Options::auto(256 << 20);
    /// options.set("keyspace.workload", "empty-get 50, get 30, put 20")?; // leave it out to have it observed
    /// let db = tamis::Db::open(dir.path(), options)?;
    /// assert!(db.stats().tuning.is_empty(), "nothing to decide on yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn auto(memory_bytes: u64) -> Options {
        let cache_bytes = (memory_bytes / 4).min(GIB);
        Options {
            auto_memory_bytes: memory_bytes.max(1),
            cache_bytes,
            filter_budget_bytes: memory_bytes - cache_bytes,
            ..Options::default()
        }
    }
}

impl KeyspaceOptions {
    /// Checks every value's range and how the values fit together.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.check_named(false)
    }

    fn check_named(&self, qualified: bool) -> Result<(), OptionsError> {
        for field in Self::FIELDS {
            field.check(self, qualified)?;
        }
        self.check_order("slowdown_runs", self.slowdown_runs, "level0_runs", self.level0_runs, qualified)?;
        self.check_order("stop_runs", self.stop_runs, "slowdown_runs", self.slowdown_runs, qualified)?;
        let (slow, stop) = (self.slowdown_debt_bytes, self.stop_debt_bytes);
        self.check_order("stop_debt_bytes", stop, "slowdown_debt_bytes", slow, qualified)?;
        self.check_filter(qualified)?;
        self.check_merge(qualified)
    }

    /// A global filter is one for all levels, so nothing is divided between them.
    fn check_filter(&self, qualified: bool) -> Result<(), OptionsError> {
        self.check_elastic(qualified)?;
        let Some(global) = self.filter.as_slice().iter().find(|choice| choice.is_global()) else {
            return Ok(());
        };
        let word = global.word();
        if self.filter.global().is_none() {
            let expected =
                format!("it takes {word}, a filter for the whole tree, for all levels or for none of them");
            return self.refuse("filter", Levels.print(&self.filter), expected, qualified);
        }
        if self.filter_allocation != FilterAllocation::Uniform {
            let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
            let expected =
                format!("it takes uniform with `{prefix}filter` = {word}, one filter for all levels");
            return self.refuse(
                "filter_allocation",
                self.filter_allocation.word().into(),
                expected,
                qualified,
            );
        }
        Ok(())
    }

    /// Elastic filters divide memory by heat, and there are only so many independent hash functions.
    fn check_elastic(&self, qualified: bool) -> Result<(), OptionsError> {
        let choices = self.filter.as_slice();
        let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
        if let Some(elastic) = choices.iter().find(|choice| choice.is_elastic())
            && self.filter_allocation != FilterAllocation::Uniform
        {
            let expected = format!(
                "it takes uniform with `{prefix}filter` = {}, which follows the heat",
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
                    "it takes at most {most} with `{prefix}filter` = elastic-independent and \
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

    /// What `auto` stands for under the chosen policy.
    pub(crate) fn granularity(&self) -> MergeGranularity {
        use CompactionChoice::*;
        match (self.merge, self.compaction) {
            (MergeGranularity::Auto, LazyLeveling | Hybrid(1)) => MergeGranularity::Partitioned,
            (MergeGranularity::Auto, Leveling | Hybrid(_)) if self.deterministic => {
                MergeGranularity::Partitioned
            }
            (MergeGranularity::Auto, Leveling | Hybrid(_) | Fragmented) => MergeGranularity::Partial,
            (MergeGranularity::Auto, Tiering | Fifo | TimeWindow) => MergeGranularity::Full,
            (named, _) => named,
        }
    }

    fn check_merge(&self, qualified: bool) -> Result<(), OptionsError> {
        use CompactionChoice::*;
        let allowed: &[MergeGranularity] = match self.compaction {
            Tiering | Fifo | TimeWindow => &[MergeGranularity::Full],
            Fragmented => &[MergeGranularity::Partial],
            Leveling | LazyLeveling | Hybrid(_) if self.deterministic => {
                &[MergeGranularity::Full, MergeGranularity::Partitioned]
            }
            Leveling | LazyLeveling | Hybrid(_) => {
                &[MergeGranularity::Full, MergeGranularity::Partial, MergeGranularity::Partitioned]
            }
        };
        let prefix = if qualified { KEYSPACE_PREFIX } else { "" };
        let refuse = |name, value, expected| self.refuse(name, value, expected, qualified);
        if !allowed.contains(&self.granularity()) {
            let words: Vec<&str> = allowed.iter().map(|merge| merge.word()).collect();
            let how = if self.deterministic { " and deterministic = true" } else { "" };
            let expected = format!(
                "it takes auto or {} with `{prefix}compaction` = {}{how}",
                words.join(" or "),
                self.compaction
            );
            return refuse("merge", self.merge.word().into(), expected);
        }
        if self.deterministic && matches!(self.compaction, Fragmented | Fifo | TimeWindow) {
            let expected = format!(
                "it takes false with `{prefix}compaction` = {}, which goes by sizes or times",
                self.compaction
            );
            return refuse("deterministic", "true".into(), expected);
        }
        if self.compaction == TimeWindow && self.time_window.is_none() {
            return refuse(
                "time_window",
                "none".into(),
                "it takes a time with `compaction` = time-window".into(),
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
        let expected = format!("it takes at least what `{prefix}{least_name}` is, {least}");
        Err(OptionsError::Value { name, value: value.to_string(), expected })
    }

    /// Sets one option by its name and text. On an error nothing has changed. How values fit together is for
    /// [`check`](Self::check).
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), OptionsError> {
        self.set_at(0, name, value)
    }

    /// The text of one option's value.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        Self::FIELDS.iter().find(|field| field.name == name).map(|field| (field.print)(self))
    }

    fn set_at(&mut self, line: usize, name: &str, value: &str) -> Result<(), OptionsError> {
        match Self::FIELDS.iter().find(|f| f.name == name) {
            Some(field) => field.set(self, false, value.trim()),
            None => Err(OptionsError::Unknown { line, name: excerpt(name) }),
        }
    }

    fn print_class(&self, class: OptionClass, qualified: bool, text: &mut String) {
        for field in Self::FIELDS.iter().filter(|f| f.class == class) {
            field.print_line(self, qualified, text);
        }
    }

    /// The text form, one line for every option, behaviour first, names without prefix.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for class in [OptionClass::Behaviour, OptionClass::Performance] {
            heading(&mut text, class);
            self.print_class(class, false, &mut text);
        }
        text
    }

    /// Reads the text form and checks it. Options that it does not name have their defaults.
    pub fn from_text(text: &str) -> Result<Self, OptionsError> {
        let mut options = KeyspaceOptions::default();
        for assignment in assignments(text) {
            let (line, name, value) = assignment?;
            options.set_at(line, name, value)?;
        }
        options.check()?;
        Ok(options)
    }

    /// All options with their defaults, ranges and consequences, in the order of the text form.
    pub fn describe() -> Vec<OptionInfo> {
        by_class(Self::FIELDS.iter().map(|f| f.info(false)))
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
    let (mut all, performance): (Vec<_>, Vec<_>) =
        infos.partition(|info| info.class == OptionClass::Behaviour);
    all.extend(performance);
    all
}

/// An option that contradicts what a keyspace on disk was made with; the fields of
/// [`OpenError::Incompatible`](crate::error::OpenError::Incompatible).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incompatible {
    pub(crate) name: &'static str,
    pub(crate) stored: String,
    pub(crate) asked: String,
    pub(crate) advice: String,
}

/// What keeps a keyspace whose tables reach down to `deepest_level_in_use` from being opened with the options
/// `asked`. Everything else (sizes, filters, compression, ratios) may change at any time: old tables keep
/// what they were built with, and compactions replace them.
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
            advice:
                "operands that wait for it would change their meaning; write the values to a new keyspace"
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

#[cfg(test)]
mod tests;
