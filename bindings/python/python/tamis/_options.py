"""The options by name, for type checkers. `tamis options` explains each; a test compares the names with the engine's."""

from __future__ import annotations

from datetime import timedelta
from typing import Optional, TypedDict, Union


class _CommonOptions(TypedDict, total=False):
    """Options of keyspaces, but for the one that `tamis.open` takes in another form."""

    auto_compaction: bool
    compaction_filter: Optional[str]
    retain_bytes: Union[int, str]
    time_to_live: Union[str, timedelta, None]
    max_tombstone_age: Union[str, timedelta, None]
    read_compaction: bool
    workload: str
    memtable_bytes: Union[int, str]
    max_memtables: int
    block_bytes: Union[int, str]
    restart_interval: int
    compression: Optional[str]
    blob_threshold: Union[int, str]
    blob_garbage: float
    filter: Optional[str]
    bits_per_key: float
    filter_allocation: str
    filter_units: int
    prefix_filter: Union[int, str, None]
    levels: int
    compaction: str
    merge: str
    size_ratio: Union[int, str]
    time_window: Union[str, timedelta, None]
    table_bytes: Union[int, str]
    level0_runs: int
    slowdown_runs: int
    stop_runs: int
    slowdown_debt_bytes: Union[int, str]


class KeyspaceOptions(_CommonOptions, total=False):
    """Options of one keyspace."""

    merge_operator: Optional[str]


class DatabaseOptions(_CommonOptions, total=False):
    """Options of a database, with those of its default keyspace and of new ones."""

    create_if_missing: bool
    create_among_others: bool
    error_if_exists: bool
    durability: str
    salvage: bool
    on_damage: str
    scrub_bytes_per_second: Union[int, str]
    verify_checksums: str
    log_writes: str
    protect_writes: bool
    read_mode: str
    async_reads: str
    cache_bytes: Union[int, str]
    record_cache_bytes: Union[int, str]
    filter_budget_bytes: Union[int, str]
    read_memory_bytes: Union[int, str]
    auto_memory_bytes: Union[int, str]
    pin_metadata: bool
    memtable_budget_bytes: Union[int, str]
    transaction_history_bytes: Union[int, str]
    max_log_bytes: Union[int, str]
    reserve_bytes: Union[int, str]
    max_open_files: int
    background_threads: int
    background_bytes_per_second: Union[int, str]
    recycled_logs: int
    changes_keep_bytes: Union[int, str]
    changes_keep_time: Union[str, timedelta, None]
    changes_max_bytes: Union[int, str]
    slow_operation_threshold: Union[str, timedelta, None]
    publish_stats: Union[str, timedelta, None]
