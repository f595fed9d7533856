"""tamis beside plyvel (LevelDB), rocksdict (RocksDB), lmdb and sqlite3, as Python programs use them, in one run.

    python bench/compare.py                       # 1,000,000 keys, 5 rounds: about a quarter of an hour on two idle cores
    python bench/compare.py --keys 20000          # to see that it works

Each round measures all sides one after the other, each time beginning with another one; each side in a process of its own, so that its
memory is its own. The table has the medians over all rounds and, below them, the range. Sides whose package is not installed are left
out. Writes are buffered: the log, or the journal, is written and not synced. Every answer is checked.

* put: one call for each key, in random order. sqlite3 and lmdb have a transaction for each, which they are made for less than the others.
* batch: 1,000 keys a batch, in random order, into an empty database.
* get: existing and absent keys, in random order, from a database that was reopened.
* scan: all items in order.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

BATCH = 1000


class Tamis:
    package = "tamis"

    def __init__(self, path: str) -> None:
        import tamis

        self.db = tamis.open(path)
        self.get: Callable[[bytes], Any] = self.db.get
        self.put: Callable[[bytes, bytes], Any] = self.db.put
        self.close = self.db.close

    def put_all(self, rows: list[tuple[bytes, bytes]]) -> None:
        with self.db.batch() as batch:
            for key, value in rows:
                batch.put(key, value)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return self.db.items()


class Plyvel:
    package = "plyvel"

    def __init__(self, path: str) -> None:
        import plyvel

        # As much memory as tamis has by default, and the filter that LevelDB has none of by default.
        self.db = plyvel.DB(
            path, create_if_missing=True, write_buffer_size=64 << 20, lru_cache_size=64 << 20, bloom_filter_bits=10
        )
        self.get = self.db.get
        self.put = self.db.put
        self.close = self.db.close

    def put_all(self, rows: list[tuple[bytes, bytes]]) -> None:
        with self.db.write_batch() as batch:
            for key, value in rows:
                batch.put(key, value)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        iterator: Iterator[tuple[bytes, bytes]] = self.db.iterator()
        return iterator


class Rocksdict:
    package = "rocksdict"

    def __init__(self, path: str) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(10, False)
        table.set_block_cache(rocksdict.Cache(64 << 20))
        options.set_block_based_table_factory(table)
        self.module = rocksdict
        self.db = rocksdict.Rdict(path, options)
        self.get = self.db.get
        self.put = self.db.put
        self.close = self.db.close

    def put_all(self, rows: list[tuple[bytes, bytes]]) -> None:
        batch = self.module.WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        self.db.write(batch)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        items: Iterator[tuple[bytes, bytes]] = self.db.items()
        return items


class Lmdb:
    package = "lmdb"

    def __init__(self, path: str) -> None:
        import lmdb

        self.env = lmdb.open(path, map_size=64 << 30, sync=False)
        self.close = self.env.close
        self.read = self.env.begin(buffers=False)
        self.get = self.read.get

    def put(self, key: bytes, value: bytes) -> None:
        with self.env.begin(write=True) as tx:
            tx.put(key, value)

    def put_all(self, rows: list[tuple[bytes, bytes]]) -> None:
        with self.env.begin(write=True) as tx:
            for key, value in rows:
                tx.put(key, value)

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        items: Iterator[tuple[bytes, bytes]] = iter(self.read.cursor())
        return items


class Sqlite:
    package = "sqlite3"

    def __init__(self, path: str) -> None:
        import sqlite3

        os.makedirs(path, exist_ok=True)
        self.db = sqlite3.connect(os.path.join(path, "file"), isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = OFF")
        self.db.execute("PRAGMA cache_size = -65536")
        self.db.execute("CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")
        self.close = self.db.close

    def get(self, key: bytes) -> Any:
        row = self.db.execute("SELECT v FROM kv WHERE k = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def put(self, key: bytes, value: bytes) -> None:
        self.db.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, value))

    def put_all(self, rows: list[tuple[bytes, bytes]]) -> None:
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO kv VALUES (?, ?)", rows)
        self.db.execute("COMMIT")

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return self.db.execute("SELECT k, v FROM kv ORDER BY k")


SIDES: dict[str, Any] = {side.package: side for side in (Tamis, Plyvel, Rocksdict, Lmdb, Sqlite)}
ROWS = ["put", "batch", "get, existing", "get, absent", "scan", "memory, MiB", "disk, MiB"]


def measure(name: str, directory: str, keys: int, value_bytes: int, seed: int) -> dict[str, float]:
    """Measure one side once: nanoseconds per operation, memory of the process and size on disk in MiB."""
    draw = random.Random(seed)
    # Values do not repeat within what a block's compression sees.
    payload = draw.randbytes((1 << 20) + value_bytes)

    def row(number: int) -> tuple[bytes, bytes]:
        start = number * 8191 % (1 << 20)
        # Multiplying by an odd number spreads keys without repeating any.
        key = (number * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8, "big")
        return b"k" + key, payload[start : start + value_bytes]

    rows = [row(number) for number in range(keys)]
    absent = [key + b"x" for key, _ in rows]
    before = memory()
    found: dict[str, float] = {}

    @contextlib.contextmanager
    def timed(what: str, operations: int) -> Iterator[None]:
        begun = time.perf_counter_ns()
        yield
        found[what] = (time.perf_counter_ns() - begun) / operations

    make = SIDES[name]
    # One call for each: a tenth of the keys, as sides with a transaction for each take long.
    few = rows[: max(keys // 10, 1)]
    side = make(os.path.join(directory, "put"))
    with timed("put", len(few)):
        put = side.put
        for key, value in few:
            put(key, value)
    side.close()

    path = os.path.join(directory, "batch")
    side = make(path)
    with timed("batch", keys):
        for start in range(0, keys, BATCH):
            side.put_all(rows[start : start + BATCH])
    side.close()

    side = make(path)
    draw.shuffle(rows)
    draw.shuffle(absent)
    with timed("get, existing", keys):
        get = side.get
        for key, value in rows:
            if get(key) != value:
                raise SystemExit(f"{name}: a wrong value of {key!r}")
    with timed("get, absent", keys):
        for key in absent:
            if get(key) is not None:
                raise SystemExit(f"{name}: a value of {key!r}")
    with timed("scan", keys):
        count = sum(1 for _ in side.scan())
    if count != keys:
        raise SystemExit(f"{name}: {count} items of {keys}")
    found["memory, MiB"] = (memory() - before) / 2**20
    side.close()
    found["disk, MiB"] = sum(file.stat().st_blocks * 512 for file in Path(path).rglob("*") if file.is_file()) / 2**20
    return found


def memory() -> int:
    """The largest memory of this process so far, in bytes; mapped files count as far as they were touched."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """The medians and ranges as a table in Markdown; the best of each row is bold."""
    names = list(results)
    lines = ["| ns per operation | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for row in ROWS:
        medians = {name: statistics.median(one[row] for one in results[name]) for name in names}
        best = min(medians.values())
        cells = []
        for name in names:
            measured = [one[row] for one in results[name]]
            text = f"{medians[name]:,.0f}"
            text = f"**{text}**" if medians[name] == best else text
            cells.append(f"{text} ({min(measured):,.0f}–{max(measured):,.0f})")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", default=",".join(SIDES), help="separated by commas")
    parser.add_argument("--dir", help="where the databases are made; a temporary directory")
    parser.add_argument("--one", nargs=3, metavar=("SIDE", "DIRECTORY", "SEED"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        side, directory, seed = arguments.one
        print(json.dumps(measure(side, directory, arguments.keys, arguments.value_bytes, int(seed))))
        return

    asked = arguments.sides.split(",")
    if unknown := set(asked) - set(SIDES):
        parser.error(f"there is no side {', '.join(sorted(unknown))}")
    sides = [name for name in asked if importlib.util.find_spec(name)]
    for name in set(asked) - set(sides):
        print(f"left out: {name} is not installed", file=sys.stderr)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(arguments.rounds):
        turn = number % len(sides)
        for name in sides[turn:] + sides[:turn]:
            directory = tempfile.mkdtemp(dir=arguments.dir)
            try:
                command = [sys.executable, __file__, "--keys", str(arguments.keys)]
                command += ["--value-bytes", str(arguments.value_bytes), "--one", name, directory, str(number)]
                run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                results[name].append(json.loads(run.stdout))
            finally:
                shutil.rmtree(directory)
            print(f"round {number + 1} of {arguments.rounds}: {name}", file=sys.stderr)
    print(table(results))
    print()
    python = ".".join(map(str, sys.version_info[:3]))
    print(
        f"Medians of {arguments.rounds} rounds, sides interleaved (least–most): {arguments.keys:,} keys of 9 bytes, values of "
        f"{arguments.value_bytes}; CPython {python}. Memory is what the process took at most beyond its keys."
    )


if __name__ == "__main__":
    main()
