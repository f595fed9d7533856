"""Statistics and reports as frozen dataclasses.

Their fields are the engine's. Those that this version of the package does not know are ignored. Sizes are in bytes.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Any, Optional, Union, get_args, get_origin, get_type_hints


# For classes with a field of the name.
_Bytes = bytes


class _Report:
    """Any of these."""


_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|[tnr\\])")


def _unescaped(text: str) -> bytes:
    """Return the bytes of a key or path, which JSON has as text with escapes."""
    out, end = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        out += text[end : match.start()].encode()
        escape = match[1]
        out += bytes([int(escape[1:], 16)]) if escape[0] == "x" else _ESCAPES[escape]
        end = match.end()
    return bytes(out + text[end:].encode())


# The types of their fields, which take a while to find out.
_HINTS: dict[type[Any], dict[str, Any]] = {}


def _hints(kind: type[Any]) -> dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _value(hint: Any, value: Any) -> Any:
    """Return what JSON has for a field as the field's type."""
    if get_origin(hint) is Union:
        inner = next(one for one in get_args(hint) if one is not type(None))
        return None if value is None else _value(inner, value)
    if get_origin(hint) is tuple:
        inner, *others = get_args(hint)
        if others == [...]:
            return tuple(_value(inner, one) for one in value)
        return tuple(_value(one, part) for one, part in zip((inner, *others), value))
    if hint is bytes:
        return _unescaped(value)
    if hint is Path:
        return Path(os.fsdecode(_unescaped(value)))
    if hint is float:
        # JSON has no numbers that are not finite.
        return float("nan") if value is None else float(value)
    if isinstance(hint, type) and issubclass(hint, _Report):
        return _report(hint, value)
    return value


def _report(kind: Any, values: dict[str, Any]) -> Any:
    return kind(**{name: _value(hint, values.get(name)) for name, hint in _hints(kind).items()})


def load(kind: str, text: str) -> Any:
    """Return the report of that class from its JSON."""
    values = loads(text)
    if isinstance(values, list):
        return [_report(globals()[kind], one) for one in values]
    return _report(globals()[kind], values)


@dataclass(frozen=True)
class ReadCost(_Report):
    """The cost of reads. Sums over operations; subtract two readings to get the cost in between."""

    #: Those of io_reads that were issued together with others, so that their latencies overlap.
    batched_reads: int
    #: Bytes of the records of those values, as stored.
    blob_bytes: int
    #: Values read from blob files.
    blob_reads: int
    #: Data blocks touched, from any source.
    block_reads: int
    #: Bytes of the blocks touched, as stored.
    bytes_read: int
    #: Data blocks, and values of blob files, found in the block cache.
    cache_hits: int
    #: Data blocks, and values of blob files, looked up in the block cache and not found.
    cache_misses: int
    #: Blocks and records of blob files whose checksum was computed.
    checksums_verified: int
    #: Digests computed from keys.
    digests: int
    #: Scans that ended without returning an entry.
    empty_scans: int
    #: Entries returned by iterators.
    entries: int
    #: Table filter probes that passed a key that was not there.
    false_positives: int
    #: Table filter probes that ruled out the key.
    filter_negatives: int
    #: Table filters probed. A probe of a global filter counts once, however many runs it covers.
    filter_probes: int
    #: Point lookups that found a value.
    found: int
    #: Point lookups: a get or contains counts as one, a multi_get of n keys as n.
    gets: int
    #: Bytes read by those system calls.
    io_bytes: int
    #: Read system calls for data, index and filter blocks, and for records of blob files.
    io_reads: int
    #: Memtable filters probed.
    memtable_probes: int
    #: Merge operands applied.
    merge_operands: int
    #: Range probes after which a table was opened that had nothing within the iterator's bounds. Under a global filter: runs that
    #: were opened because it named them but had nothing in the key range.
    range_false_positives: int
    #: Range probes that ruled out the range, or everything before some later key. For a global filter: those that named no run.
    range_negatives: int
    #: Table filters probed by iterators, for a key range. A probe of a global filter counts once, however many runs it covers; one
    #: that the filter cannot answer does not count.
    range_probes: int
    #: Point lookups that the record cache answered.
    record_hits: int
    #: Runs of which iterators opened a table; counted once for each end of an iterator.
    runs_opened: int
    #: Runs whose data was searched by a point lookup.
    runs_searched: int
    #: Iterators positioned, by a seek or by the first item requested at an end.
    scans: int
    #: Cursors positioned in a run by iterators.
    seeks: int
    #: Keys without a value that iterators stepped over: deleted, or expired.
    tombstones_skipped: int
    #: Versions that iterators stepped over: newer than what they read, or older than the one that counts. Not counted are those that
    #: they passed by a seek.
    versions_skipped: int


@dataclass(frozen=True)
class WriteCost(_Report):
    """The cost of writes since the database was opened. Times are in nanoseconds, sizes in bytes."""

    #: Bytes of the blob files among those that flushes and compactions wrote.
    blob_write_bytes: int
    #: Compactions that were cancelled; their partial output was removed.
    cancelled: int
    #: Bytes of the tables that compactions read, and of the values in blob files that they moved.
    compaction_read_bytes: int
    #: Bytes of the tables and blob files that compactions wrote.
    compaction_write_bytes: int
    #: Compactions that rewrote tables.
    compactions: int
    #: Commits of transactions, and attempts to change one key, that were refused because of a conflict.
    conflicts: int
    #: Tables dropped whole because their contents were too old to keep.
    dropped_tables: int
    #: Flushes that failed and were retried.
    failed_flushes: int
    #: Bytes of the tables and blob files that flushes wrote.
    flush_bytes: int
    #: Memtables flushed.
    flushes: int
    #: Records appended to the log: each is one group of batches committed together.
    groups: int
    #: Bytes of the tables ingested.
    ingested_bytes: int
    #: Tables ingested.
    ingested_tables: int
    #: Bytes appended to the log.
    log_bytes: int
    #: Those of them that were copied into a mapping of the log, without a write call.
    log_mapped_bytes: int
    #: Syncs of a log file.
    log_syncs: int
    #: Time that flushes and compactions waited for the rate limit of background writes.
    pace_nanos: int
    #: How often the reserve was released on a full disk.
    reserves_spent: int
    #: Compactions that failed or met a full disk, and were undone, to be retried later.
    set_aside: int
    #: Time that commits were delayed.
    slowdown_nanos: int
    #: Commits that were delayed because compactions or flushes lagged behind.
    slowdowns: int
    #: Time that writes were stalled.
    stall_nanos: int
    #: How often writes stalled until a flush or compaction was done.
    stalls: int
    #: Parts of merges that were split into parts.
    sub_jobs: int
    #: How often writes were suspended until the logs were replaced.
    suspensions: int
    #: Compactions that only moved tables a level down.
    trivial_moves: int
    #: Bytes of the keys and values written.
    user_bytes: int
    #: Operations written (each put, merge, delete or range delete of a batch counts as one).
    writes: int


@dataclass(frozen=True)
class Promise(_Report):
    """The bounds that a compaction policy promises for every tree it has shaped, once no compaction is due; None where it
    promises nothing. docs/compaction.md has the formulas."""

    #: Maximum number of runs that a read may have to check, per level from level 0.
    runs_per_level: tuple[Optional[int], ...]
    #: Maximum number of tables in all levels.
    tables: Optional[int]
    #: Bytes of all tables divided by live bytes.
    space_amplification: Optional[float]
    #: Bytes written by flushes and compactions divided by bytes flushed, over long periods.
    write_amplification: Optional[float]


@dataclass(frozen=True)
class QueryStats(_Report):
    """What the reads of a keyspace ask for that reach its tables: shares of all of them, of which older ones count less. Until
    there are reads, the mix that the option workload declares or an expected one."""

    #: The share of gets that find none.
    absent_gets: float
    #: The share of those that find nothing, of all reads.
    empty_ranges: float
    #: Tables searched in vain per get, because a filter named them.
    false_positives_per_get: float
    #: The share of gets that find a value.
    found_gets: float
    #: The absent keys, ranges and positions of seeks that are kept as samples: at most 256 of each.
    kept: tuple[int, int, int]
    #: The reads observed since the database was opened; one in 64 is sampled and stands for the others.
    observed: int
    #: The share of iterations positioned with an end in their direction.
    ranges: float
    #: The share of iterations positioned without an end.
    seeks: float


@dataclass(frozen=True)
class AutoFilterStats(_Report):
    """The filter that filter = auto has chosen, and why. Times are of the part of a read that depends on the filter, in
    nanoseconds, by the rule."""

    #: Changes of what answers since the database was opened.
    changes: int
    #: The same under a global filter.
    global_ns: float
    #: What answers: per-table, global, or per-table, building the global filter.
    in_force: str
    #: The time of a read of the present tree and mix under a filter per table; 0 without runs.
    per_table_ns: float
    #: Why, in words.
    reason: str
    #: Tables without a filter of their own, which so need the global filter.
    tables_without_own_filter: int
    #: The filter that the rule wants: per-table or global. New tables are written for it.
    wanted: str


@dataclass(frozen=True)
class KeyMapStats(_Report):
    """The partitions of a global filter that use one kind of key map."""

    #: False positive rate of the learned map on keys held out at build time (a share of 1): the mean over the partitions where it
    #: was measured.
    holdout_rate: Optional[float]
    #: The best rate that any map can have, for comparison.
    ideal_rate: float
    #: learned, digest or mixed.
    map: str
    #: Number of partitions that use it.
    partitions: int


@dataclass(frozen=True)
class GlobalFilterStats(_Report):
    """A keyspace's global filter at one moment. Sizes are in bytes."""

    #: Memory of the current partitions and their directory.
    bytes: int
    #: Bits of run codes per entry, if the filter has any.
    code_bits: float
    #: Partitions whose codes were collected since opening, without reading keys, and the time this took in nanoseconds.
    collected: tuple[int, int]
    #: How often a key list was found damaged since opening. The keys then come from the data.
    damaged_lists: int
    #: Number of entries: one for each key of each run, minus those that could be joined, plus those of deleted keys that are still
    #: present.
    entries: int
    #: Expected number of entries that match a random absent key.
    expected_rate: float
    #: Key ranges whose partition was read from a filter file since opening.
    images_loaded: int
    #: Partitions saved in filter files since opening.
    images_saved: int
    #: Keys added since opening, without rebuilds, and the time this took in nanoseconds.
    inserted: tuple[int, int]
    #: Keys read from the data of tables since opening, as these have no key list, or a damaged one: for rebuilds, and to add what
    #: the filter files lack.
    keys_from_data: int
    #: Keys read from key lists since opening: those of flushed and ingested tables.
    keys_from_lists: int
    #: grf, or the name of a filter that the program supplies.
    kind: str
    #: The kinds of key maps in use, the number of partitions of each, and why.
    maps: tuple[KeyMapStats, ...]
    #: Memory of old partitions that only readers of older versions use.
    old_bytes: int
    #: Number of key ranges with a partition of their own.
    partitions: int
    #: Rebuilds since opening, and the time they took in nanoseconds.
    rebuilt: tuple[int, int]
    #: Number of flushes and ingestions whose keys are not in the filter yet.
    tables_outside: int
    #: Number of key ranges read without the filter, because their partitions are not built yet or could not be.
    unbuilt: int


@dataclass(frozen=True)
class RunStats(_Report):
    """One sorted run."""

    #: The bytes of its files.
    bytes: int
    #: The number of its key versions.
    entries: int
    #: The flush epochs whose data it may hold, as a half-open range.
    epochs: tuple[int, int]
    #: The bytes of its filters in memory.
    filter_bytes: int
    #: The kinds of its filters, each listed once; keys stands for a key list, and global for nothing, both for a global filter.
    filters: tuple[str, ...]
    #: Its largest key (empty if it is unbounded).
    largest: _Bytes
    #: Its id.
    run: int
    #: Its smallest key.
    smallest: _Bytes
    #: The number of its tables.
    tables: int


@dataclass(frozen=True)
class LevelStats(_Report):
    """One level."""

    #: Its number.
    level: int
    #: Its runs, newest first.
    runs: tuple[RunStats, ...]
    #: The size at which it is compacted (0: the limit is a number of runs).
    target_bytes: int


@dataclass(frozen=True)
class KeyspaceStats(_Report):
    """One keyspace."""

    #: What filter = auto has chosen, and why, if that is its filter.
    auto_filter: Optional[AutoFilterStats]
    #: The bytes of the blob files.
    blob_bytes: int
    #: The number of blob files, which hold large values.
    blob_files: int
    #: Those of them that no table refers to any more; snapshots may.
    blob_garbage_bytes: int
    #: The number of deletes among them.
    deletes: int
    #: The number of key versions on disk, including deletes.
    entries: int
    #: The last write that has outlived the keyspace's time to live, as have all writes before it; 0: none.
    expired_seq: int
    #: Filter bits in memory per key version on disk.
    filter_bits_per_key: float
    #: The bytes of the filters in memory.
    filter_bytes: int
    #: The bytes of the filter files.
    filter_file_bytes: int
    #: The number of filter files, which hold parts of the global filter.
    filter_files: int
    #: The part of the filters' bytes that lies in mapped tables.
    filter_mapped_bytes: int
    #: The keyspace's global filter, if it has one.
    global_filter: Optional[GlobalFilterStats]
    #: The bytes of the indexes in memory.
    index_bytes: int
    #: The levels from 0 down to the deepest that the options allow.
    levels: tuple[LevelStats, ...]
    #: The bytes in the memtables.
    memtable_bytes: int
    #: The number of key versions in the memtables.
    memtable_entries: int
    #: The number of memtables, including the active one.
    memtables: int
    #: Its name.
    name: str
    #: The epoch of its next flush.
    next_epoch: int
    #: The age of the oldest delete, of a key or a range, on disk, in seconds: the most that it can be. None if there is no delete.
    oldest_delete_seconds: Optional[int]
    #: The compaction policy's name.
    policy: str
    #: What the policy guarantees for a tree like this one when no compaction is due.
    promise: Promise
    #: What its reads ask for, if its filter goes by that.
    queries: Optional[QueryStats]
    #: The number of range tombstones on disk.
    range_tombstones: int
    #: The bytes of all keys and values on disk before compression.
    raw_bytes: int
    #: The exponent of the Zipf distribution that fits the recent gets that found a value (0: uniform), if enough were sampled. Each
    #: thread samples one get in 64; multi_get is not sampled.
    read_skew: Optional[float]
    #: Bytes of those keys and values that compactions kept for snapshots that have since been released: the most that rewriting the
    #: tables would free. It is an overestimate if another snapshot needs some of them too.
    reclaimable_bytes: int
    #: The number of sorted runs on disk.
    runs: int
    #: The bytes of the table files.
    table_bytes: int
    #: The number of tables that hold a key list instead of a filter, for a global filter.
    tables_with_key_list: int
    #: The number of tables that are read without their filter because it is damaged or of an unknown kind.
    tables_with_unusable_filter: int
    #: The number of tables built without a filter, other than for a global one.
    tables_without_filter: int
    #: The declared workload, or the one that the engine observed last, possibly in an earlier session.
    workload: Optional[dict[str, Any]]


@dataclass(frozen=True)
class ReaderStats(_Report):
    """The oldest state of a keyspace that something still reads: an iterator, mostly. In a keyspace whose policy drops data it may also be
    a snapshot."""

    #: Bytes of blob files of which this is true.
    blob_bytes: int
    #: The keyspace's name.
    keyspace: str
    #: For how many seconds the state has existed: its readers are at most that old.
    max_age_seconds: int
    #: The size of memtables that the state has and the tree does not have any more. Other readers, and open transactions, may need them
    #: too.
    memtable_bytes: int
    #: For how many seconds the state has been replaced: its readers are at least that old.
    min_age_seconds: int
    #: Bytes of table files that the state has and the tree does not have any more. Other readers may need them too.
    table_bytes: int


@dataclass(frozen=True)
class ConsumerStats(_Report):
    """A named consumer of changes."""

    #: Its name.
    name: str
    #: The last sequence number that it has acknowledged.
    position: int


@dataclass(frozen=True)
class SnapshotStats(_Report):
    """The live snapshots of one state of the database."""

    #: Seconds since the first of them was taken.
    age_seconds: int
    #: The number of snapshots: calls of Db::snapshot, not counting clones.
    handles: int
    #: Bytes that they keep on disk: key versions in tables, before compression, that compactions have met since, plus
    #: pinned_table_bytes.
    pinned_bytes: int
    #: Bytes of whole tables that were since dropped or replaced, in keyspaces whose policy drops data.
    pinned_table_bytes: int
    #: The sequence number up to which they see writes.
    seq: int


@dataclass(frozen=True)
class DamagedTable(_Report):
    """A table that is damaged, or was when it was opened."""

    #: Key versions that it holds, or held.
    entries: int
    #: The keyspace's name.
    keyspace: str
    #: The largest key that it covers (empty if it is unbounded).
    largest: _Bytes
    #: The level that it lies in.
    level: int
    #: Its file.
    path: Path
    #: Whether it could not be opened, so that every read that needs it is an error. Otherwise only reads of its damaged parts fail.
    quarantined: bool
    #: The smallest key that it covers.
    smallest: _Bytes
    #: The table's number.
    table: int
    #: What is wrong.
    what: str


@dataclass(frozen=True)
class ScrubStats(_Report):
    """What the scrub has done since the database was opened."""

    #: Bytes read, including those of the unfinished pass.
    bytes: int
    #: Logs read in full.
    logs: int
    #: Completed passes over everything.
    passes: int
    #: The damage found by the last complete pass and the current one, in words; the first hundred problems.
    problems: tuple[str, ...]
    #: Tables read in full.
    tables: int


@dataclass(frozen=True)
class JobStats(_Report):
    """A running compaction."""

    #: The bytes of its inputs.
    bytes_in: int
    #: The bytes written so far.
    bytes_written: int
    #: The levels of its inputs, shallowest and deepest.
    input_levels: tuple[int, int]
    #: The keyspace's name.
    keyspace: str
    #: The level of its outputs.
    output_level: int
    #: The number of key-range parts that it is split into.
    parts: int
    #: Whether it is waiting for the end of a pause.
    paused: bool
    #: Why it was started, in one or two words.
    reason: str
    #: The number of runs that it reads from.
    runs_in: int
    #: merge, move or drop.
    work: str


@dataclass(frozen=True)
class TuningDecision(_Report):
    """One change requested by the tuner."""

    #: Names and values of the options that change, as text.
    changes: tuple[tuple[str, str], ...]
    #: The predicted saving, as a fraction of an operation's time.
    gain: float
    #: The keyspace's name.
    keyspace: str
    #: Why, in words.
    reason: str
    #: The workload that the change was made for, as text.
    workload: str


@dataclass(frozen=True)
class OverlapStats(_Report):
    """How block reads overlap, and how often they have done so since the database was opened."""

    #: The number of batches of more than one read.
    batches: int
    #: The maximum number of overlapping reads.
    depth: int
    #: io-uring or threads.
    method: str
    #: The number of reads in those batches.
    reads: int


@dataclass(frozen=True)
class ElasticStats(_Report):
    """The elastic filters of a database. A "get" is one point lookup in any keyspace; gets are the logical clock. Sizes are in
    bytes."""

    #: The memory budget.
    budget_bytes: int
    #: The number of segments with no unit enabled, with one, two and so on.
    by_units: tuple[int, ...]
    #: Sampled gets that were discarded because too many arrived at once.
    dropped_samples: int
    #: Units replaced by others.
    evictions: int
    #: E[Extra_IO] of the paper: expected wasted block reads per get.
    expected_extra_reads: float
    #: Units that could not be loaded: the read failed, or the unit was damaged.
    failed_loads: int
    #: Gets since the database was created or opened, as far as they were counted.
    gets: int
    #: The part of it that is always in memory: segment boundaries, and what is known of segments.
    index_bytes: int
    #: The keys in them.
    keys: int
    #: The same if every segment had the best number of bits for its hotness, which need not be whole units, and nothing but these
    #: bits took memory: no filter of this size could do with fewer.
    least_extra_reads: float
    #: What was learned from a get counts half after eight times as many gets.
    life_time: int
    #: Bytes fetched by these reads.
    load_bytes: int
    #: File reads for these loads. Adjacent units of a new table share one.
    load_reads: int
    #: Units loaded since the database was opened.
    loads: int
    #: Memory of evicted units that gets are still using, in addition.
    retired_bytes: int
    #: The current sampling interval: one get in this many is sampled.
    sampling: int
    #: The segments of all tables.
    segments: int
    #: The memory used: units, including those being loaded, and what is always in memory.
    used_bytes: int


@dataclass(frozen=True)
class LatencyHistogram(_Report):
    """How often an operation took how long. Times are in nanoseconds."""

    #: The longest.
    max_nanos: int
    #: The mean.
    mean_nanos: int
    #: The time within which half of them were done.
    p50_nanos: int
    #: The time within which nine in ten were done.
    p90_nanos: int
    #: The time within which 99 in a hundred were done.
    p99_nanos: int
    #: The time within which 999 in a thousand were done.
    p999_nanos: int
    #: The number of operations that were timed.
    samples: int


@dataclass(frozen=True)
class Latencies(_Report):
    """How long operations took since the database was opened."""

    #: A compaction that rewrote tables.
    compaction: LatencyHistogram
    #: A flush of memtables to a table.
    flush: LatencyHistogram
    #: A get or contains; one in about 256 of each thread.
    get: LatencyHistogram
    #: A write, or a commit of a transaction, that waits for the log's sync, or is judged by conditions.
    group_write: LatencyHistogram
    #: An ingestion of external tables.
    ingestion: LatencyHistogram
    #: A sync of the log.
    log_sync: LatencyHistogram
    #: An edit of the manifest, with its sync.
    manifest_edit: LatencyHistogram
    #: A multi_get of any number of keys; one in 16 of each thread.
    multi_get: LatencyHistogram
    #: The positioning of an iterator, and its first item where that is what positions it; one in 16 of each thread.
    seek: LatencyHistogram
    #: A write's wait for a flush or compaction.
    stall: LatencyHistogram
    #: A write that is not synced, from the call to its return, with all stalls; one in 16 of each thread.
    write: LatencyHistogram


@dataclass(frozen=True)
class MemoryReport(_Report):
    """The memory of an open database by owner, in bytes."""

    #: Blocks, and values of blob files, in the block cache, with its overhead for each.
    block_cache: int
    #: Filters of tables, and units of elastic filters, on the heap.
    filters: int
    #: Gaps between keys that iterators jump over.
    gaps: int
    #: Global filters.
    global_filters: int
    #: Memtables that are in tables by now, but that iterators or other reads still hold.
    held_memtables: int
    #: Indexes of tables, and what is known of their blocks.
    indexes: int
    #: Locks that transactions hold.
    locks: int
    #: Records of the log that are being assembled.
    log_buffers: int
    #: Memtables, active and waiting for their flush, with their filters.
    memtables: int
    #: What is known of each table and blob file without opening it, in the tree and in the manifest's state, with range tombstones.
    metadata: int
    #: Histograms of latencies, and events that wait for listeners.
    observers: int
    #: Records in the record cache, with all overhead.
    record_cache: int
    #: Samples of what is read, by which filters and caches are chosen and divided.
    samples: int
    #: Memory of flushed memtables that waits for the next.
    spare_memtables: int
    #: Memtables that are in tables by now, but kept for open transactions.
    transaction_history: int


@dataclass(frozen=True)
class StallStats(_Report):
    """How often and how long writes have waited for one cause since the database was opened."""

    #: The cause.
    cause: str
    #: The number of waits; of slowdowns, the number of commits that were to be delayed.
    count: int
    #: Their time.
    nanos: int


@dataclass(frozen=True)
class Stats(_Report):
    """Counters and shape of a database at one moment. All sizes are in bytes."""

    #: The capacity of the block cache.
    cache_capacity_bytes: int
    #: Bytes in the block cache.
    cache_used_bytes: int
    #: The named consumers of changes.
    change_consumers: tuple[ConsumerStats, ...]
    #: Tables known to be damaged: those that are quarantined, and those in which a read, a compaction, verify or the scrub has found
    #: damage since the database was opened. No compaction touches them.
    damaged_tables: tuple[DamagedTable, ...]
    #: The newest sequence number up to which all writes are known to survive a power failure.
    durable_seq: int
    #: The elastic filters of all keyspaces, if any table has one.
    elastic: Optional[ElasticStats]
    #: The size of all filters in memory.
    filter_bytes: int
    #: The part of it that lies in mapped tables: page cache, of which the system may take back what is not read.
    filter_mapped_bytes: int
    #: The size of all indexes in memory.
    index_bytes: int
    #: The running compactions.
    jobs: tuple[JobStats, ...]
    #: Every keyspace.
    keyspaces: tuple[KeyspaceStats, ...]
    #: How long operations took since the database was opened.
    latencies: Latencies
    #: Bytes of all log files on disk, which max_log_bytes limits: log_bytes, the space reserved for the next records, and log files
    #: kept to be overwritten.
    log_allocated_bytes: int
    #: The bytes of those log files.
    log_bytes: int
    #: The number of log files that are still needed.
    log_files: int
    #: The memory that the database takes, by owner.
    memory: MemoryReport
    #: The size of all memtables.
    memtable_bytes: int
    #: The oldest sequence number from which on changes can be read; 0 in a database that is open read-only.
    oldest_change: int
    #: The oldest of the states of keyspaces that are not the current ones, and that iterators or other reads still hold, if there is
    #: any. Values that reads returned may keep their memtable or table, too; they are not counted here, nor are iterators over keyspaces
    #: that were dropped.
    oldest_reader: Optional[ReaderStats]
    #: The oldest live snapshot's sequence number.
    oldest_snapshot: Optional[int]
    #: The number of open table files: those that are not mapped, within max_open_files.
    open_table_files: int
    #: How block reads overlap; None if they do not.
    overlapping_reads: Optional[OverlapStats]
    #: Why writes stopped for good, if they did.
    poisoned: Optional[str]
    #: The cost of reads since the database was opened.
    read: ReadCost
    #: The memory that block cache and elastic filters have together at the moment: read_memory_bytes, or the share of
    #: shared_read_memory, which falls to 0 at closing; also 0 if each has its own limit.
    read_memory_bytes: int
    #: Bytes of all blob files of which this is true.
    readers_blob_bytes: int
    #: The size of all memtables that are in no keyspace any more, but in a state that something still reads.
    readers_memtable_bytes: int
    #: Bytes of all table files that are in no keyspace any more, but in a state that something still reads.
    readers_table_bytes: int
    #: The capacity of the record cache.
    record_cache_capacity_bytes: int
    #: Bytes in the record cache, with all overhead.
    record_cache_used_bytes: int
    #: Space on the device that is kept in reserve for a full disk.
    reserve_bytes: int
    #: The size of these logs on disk, besides log_allocated_bytes.
    retained_log_bytes: int
    #: The number of logs that are kept only for readers of changes.
    retained_logs: int
    #: What the scrub has done, if it is enabled.
    scrub: Optional[ScrubStats]
    #: The number of live snapshots; those of the same state count once.
    snapshots: int
    #: The live snapshots, oldest first.
    snapshots_live: tuple[SnapshotStats, ...]
    #: How often and how long writes waited, by cause; every cause once.
    stalls: tuple[StallStats, ...]
    #: Why writes are suspended, if they are: see WriteError::Suspended.
    suspended: Optional[str]
    #: The size of flushed memtables kept for open transactions, within transaction_history_bytes.
    transaction_history_bytes: int
    #: Failed work that is being retried, described in words; empty if all is well.
    troubles: tuple[str, ...]
    #: The last 32 changes that the tuner has made since the database was opened.
    tuning: tuple[TuningDecision, ...]
    #: The newest sequence number that readers see.
    visible_seq: int
    #: Warnings raised while the database was opened and since, in words.
    warnings: tuple[str, ...]
    #: The cost of writes since the database was opened.
    write: WriteCost


@dataclass(frozen=True)
class TableStats(_Report):
    """One table of the tree on disk."""

    #: Bytes of the values in blob files that it refers to.
    blob_bytes: int
    #: Bytes of its file.
    bytes: int
    #: The number of deletes among them.
    deletes: int
    #: Key versions, including deletes.
    entries: int
    #: The number of segments of its key range that differ in their epochs.
    epoch_segments: int
    #: The flush epochs whose data it may hold, as a half-open range.
    epochs: tuple[int, int]
    #: The number of its file.
    id: int
    #: The end of its key range: a key, and whether that key is included; None: unbounded.
    largest: Optional[tuple[_Bytes, bool]]
    #: Its level.
    level: int
    #: Its run; of two runs in the same level, the one with the larger number is newer.
    run: int
    #: The smallest key that it covers.
    smallest: _Bytes
    #: When its oldest and its newest data was flushed, in seconds since 1970; 0: unknown.
    written: tuple[int, int]


@dataclass(frozen=True)
class SegmentStats(_Report):
    """One segment of a table with an elastic filter: several thousand adjacent keys."""

    #: Lookups of any keys that probed it, per get of the database.
    asked: float
    #: The number of its units in memory.
    enabled: int
    #: Its end: the next segment's smallest key, or the table's largest key (empty if unbounded).
    end: _Bytes
    #: Its hotness: lookups of keys that it does not hold, per get of the database, which its filter can save.
    hotness: float
    #: The number of its keys.
    keys: int
    #: The keyspace's name.
    keyspace: str
    #: The level of the table's run.
    level: int
    #: The run's id.
    run: int
    #: The segment's number within the table.
    segment: int
    #: Its smallest key.
    smallest: _Bytes
    #: The table's number.
    table: int
    #: The share of its block reads that the block cache does not answer, lately.
    uncached: float
    #: The bytes of one of its units in memory.
    unit_bytes: int
    #: The total number of its units.
    units: int


@dataclass(frozen=True)
class ExplainBlock(_Report):
    """A data block that a read touched."""

    #: Its stored size in bytes.
    bytes: int
    #: Whether the decoded block came from the block cache.
    from_cache: bool
    #: The answer of the block's hash index: hit, absent, collision (searched by key), or none.
    hash_index: str
    #: Offset of the block in its file, in bytes.
    offset: int


@dataclass(frozen=True)
class ExplainUnits(_Report):
    """The segment of an elastic filter that covers a key."""

    #: Number of its units in memory.
    enabled: int
    #: Its hotness: the estimated number of lookups of absent keys that probe it, per get of the database.
    hotness: float
    #: Its number within the table.
    segment: int
    #: Number of segments of the table.
    segments: int
    #: Total number of its units.
    units: int


@dataclass(frozen=True)
class ExplainStep(_Report):
    """One step of a read, in the order taken. Fields that its kind lacks are None."""

    #: "memtable" or "run".
    kind: str
    #: The answer of its filter: "no", "maybe" or "not_asked".
    filter: str
    #: Whether it held a visible version of the key.
    found: bool
    #: Of a memtable: whether it is the one that takes writes.
    active: Optional[bool]
    #: Of a memtable: number of key versions in it.
    entries: Optional[int]
    #: Of a run: its level.
    level: Optional[int]
    #: Of a run: its id.
    run: Optional[int]
    #: Of a run: the one table whose key range holds the key; None if the key lies outside all of them.
    table: Optional[int]
    #: Of a run: the units used for the answer, if the filter is an elastic one.
    units: Optional[ExplainUnits]
    #: Of a run: the last block touched, if any.
    block: Optional[ExplainBlock]


@dataclass(frozen=True)
class ExplainOutcome(_Report):
    """The result of a read. Fields that its kind lacks are None."""

    #: "found", "deleted", "deleted_by_range", "expired" or "absent".
    kind: str
    #: The sequence number of the version, the delete or the range delete.
    seq: Optional[int]
    #: The length of the value in bytes.
    value_bytes: Optional[int]
    #: Everything before the write with this number has expired.
    horizon: Optional[int]


@dataclass(frozen=True)
class Explanation(_Report):
    """The path of one read, produced by the code that serves get with a recorder that keeps each step."""

    #: The cost.
    cost: ReadCost
    #: Its digest, with which every filter and hash index was probed.
    digest: int
    #: The filter that named the tables to search: one per table, one for the tree, or external. With filter = auto, also why.
    filter: str
    #: The key looked up.
    key: _Bytes
    #: The result.
    outcome: ExplainOutcome
    #: The steps, in order.
    steps: tuple[ExplainStep, ...]


@dataclass(frozen=True)
class IngestedTable(_Report):
    """One file that was ingested."""

    #: Its length in bytes.
    bytes: int
    #: Entries in it, including deletes.
    entries: int
    #: The keyspace that it went into.
    keyspace: str
    #: The level that it went into.
    level: int
    #: Where it came from.
    source: Path
    #: The number of the table that it became.
    table: int


@dataclass(frozen=True)
class IngestReport(_Report):
    """What an ingestion did."""

    #: The bytes of all tables.
    bytes: int
    #: Entries in all tables, including deletes.
    entries: int
    #: Files to be moved whose original name could not be removed; they were ingested all the same.
    left: tuple[Path, ...]
    #: The sequence number of everything that was ingested; 0 if there were no files.
    seq: int
    #: The tables that the files became, by keyspace and key.
    tables: tuple[IngestedTable, ...]


@dataclass(frozen=True)
class ExternalTableInfo(_Report):
    """A summary of an external table."""

    #: Length of the file in bytes.
    bytes: int
    #: Number of entries that are deletes.
    deletes: int
    #: Number of keys, deletes included.
    entries: int
    #: The end of the covered keys.
    largest: Optional[tuple[_Bytes, bool]]
    #: The file.
    path: Path
    #: Number of deleted ranges, after overlapping ones were joined.
    range_deletes: int
    #: Bytes of all keys and values before compression.
    raw_bytes: int
    #: The smallest key covered by an entry or a range delete.
    smallest: _Bytes


@dataclass(frozen=True)
class VerifiedFile(_Report):
    """One file that was checked."""

    #: Key versions in a table, as far as known; values in a blob file, including those that no table refers to any more; writes
    #: that could be read from a log; 0 for others.
    entries: int
    #: Its name.
    file: str
    #: The keyspace that it belongs to; empty for a manifest or a log, which have parts of all keyspaces, and if it is unknown.
    keyspace: str
    #: What it is.
    kind: str
    #: What is wrong with it, in words; empty if it is sound.
    problems: tuple[str, ...]


@dataclass(frozen=True)
class VerifyReport(_Report):
    """What Db::verify found."""

    #: Blob files read, as far as tables refer to them.
    blob_files: int
    #: Data blocks read.
    blocks: int
    #: Bytes of the tables, values in blob files, and filter files read.
    bytes: int
    #: Key versions seen.
    entries: int
    #: Every file that was read, damaged or sound.
    files: tuple[VerifiedFile, ...]
    #: Filter files read.
    filter_files: int
    #: Writes read from the logs.
    log_writes: int
    #: Everything that is wrong, in words, with file and offset.
    problems: tuple[str, ...]
    #: Tables read.
    tables: int
    #: Why the database cannot be opened, if damage keeps it from that: only Db::verify_at finds out.
    unopenable: Optional[str]


@dataclass(frozen=True)
class SalvagedTable(_Report):
    """One table."""

    #: Its number of entries, as far as known.
    entries: int
    #: What happens to it.
    fate: str
    #: The file's name.
    file: str
    #: The keyspace that it belongs to; empty if unknown.
    keyspace: str
    #: Why; empty for a table that is kept because the manifest says so.
    why: str


@dataclass(frozen=True)
class SalvagedLog(_Report):
    """One log."""

    #: The file's name.
    file: str
    #: What is damaged in it, in words.
    problems: tuple[str, ...]
    #: The number of those that are in no table yet: they are part of the database now.
    replayed: int
    #: The number of writes that could be read.
    writes: int


@dataclass(frozen=True)
class SalvagedKeyspace(_Report):
    """One keyspace."""

    #: The number of entries in them.
    entries: int
    #: Its name.
    name: str
    #: Where its name and options come from, in words.
    source: str
    #: The number of its tables now.
    tables: int


@dataclass(frozen=True)
class SalvageReport(_Report):
    """What a salvage found and did, or would do."""

    #: Whether nothing was changed.
    dry_run: bool
    #: Entries in all tables that could be opened.
    entries_found: int
    #: Entries in the tables that are now part of the database. The difference is superseded data, not a loss.
    entries_kept: int
    #: The keyspaces, by number.
    keyspaces: tuple[SalvagedKeyspace, ...]
    #: Every log in the directory, by number.
    logs: tuple[SalvagedLog, ...]
    #: What is lost, or may be, one sentence each. Empty: nothing was lost.
    losses: tuple[str, ...]
    #: What is wrong with CURRENT and the manifest, in words; empty if nothing is.
    manifest: tuple[str, ...]
    #: What was done: the files that got a second name, each with that name, by name. Empty if nothing was changed.
    moved: tuple[tuple[str, str], ...]
    #: Other notable findings, none of them a loss.
    notes: tuple[str, ...]
    #: Names of other files that are set aside, or copied before they are replaced: manifests, filter files, blob files, CURRENT,
    #: OPTIONS.
    others: tuple[str, ...]
    #: Whether the tree had to be rebuilt from the tables found, because the manifest does not describe it (any more).
    rebuilt: bool
    #: Every table in the directory or named by the manifest, by number.
    tables: tuple[SalvagedTable, ...]
    #: What the opening that put the restored state in force warned of; empty if nothing was changed.
    warnings: tuple[str, ...]
    #: Writes in logs that are not in any table yet.
    writes_replayed: int


@dataclass(frozen=True)
class ReadMemoryShare(_Report):
    """The share of one database in a SharedReadMemory. Sizes are in bytes."""

    #: The database's directory.
    path: Path
    #: Its share: the sum of the next three.
    bytes: int
    #: The capacity of its block cache.
    cache_bytes: int
    #: The budget of its elastic filters.
    filter_bytes: int
    #: The capacity of its record cache.
    record_bytes: int
    #: The bytes in its block cache.
    cache_used_bytes: int
    #: The memory used by its elastic filters.
    filter_used_bytes: int
    #: The bytes in its record cache.
    record_used_bytes: int
    #: The number of steps that the three gave or took.
    steps: int


@dataclass(frozen=True)
class WriteMemoryUse(_Report):
    """What the memtables of one database take of a SharedWriteMemory. Sizes are in bytes."""

    #: The database's directory.
    path: Path
    #: Memtables that are written to.
    active_bytes: int
    #: Memtables that are being flushed, or wait for that.
    sealed_bytes: int
