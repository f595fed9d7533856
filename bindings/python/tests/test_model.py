"""Random histories against a model: the engine must answer as a sorted dict does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings, strategies
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from sortedcontainers import SortedDict

import tamis

# Few keys, so that histories meet them again; some are prefixes of others, and of all bytes.
KEYS = strategies.one_of(
    strategies.binary(max_size=3), strategies.sampled_from([b"", b"\0", b"\xff", b"\xff\xff", b"a", b"ab", b"abc"])
)
VALUES = strategies.one_of(strategies.binary(max_size=8), strategies.sampled_from([b"v" * 5_000, b""]))


class Model(RuleBasedStateMachine):
    snapshots = Bundle("snapshots")

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.model = SortedDict()
        self.open()

    def open(self) -> None:
        # Memtables of the smallest size, so that there are tables and compactions.
        path = Path(self.directory.name) / "db"
        self.db = tamis.open(path, memtable_bytes=4096, merge_operator="append", level0_runs=2)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.db[key] = value
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.db.delete(key)
        self.model.pop(key, None)

    @rule(key=KEYS)
    def pop(self, key: bytes) -> None:
        assert self.db.pop(key, None) == self.model.pop(key, None)

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key: bytes, value: bytes) -> None:
        assert self.db.setdefault(key, value) == self.model.setdefault(key, value)

    @rule(key=KEYS, value=strategies.binary(max_size=3))
    def merge(self, key: bytes, value: bytes) -> None:
        self.db.merge(key, value)
        self.model[key] = self.model.get(key, b"") + value

    @rule(key=KEYS, expected=strategies.one_of(strategies.none(), VALUES), new=strategies.one_of(strategies.none(), VALUES))
    def compare_and_swap(self, key: bytes, expected, new) -> None:
        swaps = self.model.get(key) == expected
        assert self.db.compare_and_swap(key, expected, new) == swaps
        if swaps and new is None:
            self.model.pop(key, None)
        elif swaps:
            self.model[key] = new

    @rule(rows=strategies.dictionaries(KEYS, VALUES, max_size=5), gone=strategies.lists(KEYS, max_size=3))
    def batch(self, rows, gone) -> None:
        with self.db.batch() as batch:
            for key, value in rows.items():
                batch[key] = value
            for key in gone:
                del batch[key]
        self.model.update(rows)
        for key in gone:
            self.model.pop(key, None)

    @rule(ends=strategies.tuples(KEYS, KEYS), included=strategies.booleans())
    def delete_range(self, ends, included: bool) -> None:
        start, stop = sorted(ends)
        self.db.delete_range(start, stop, include_stop=included)
        for key in list(self.model.irange(start, stop, inclusive=(True, included))):
            del self.model[key]

    @rule(prefix=KEYS)
    def delete_prefix(self, prefix: bytes) -> None:
        self.db.delete_prefix(prefix)
        for key in [key for key in self.model if key.startswith(prefix)]:
            del self.model[key]

    @rule(rows=strategies.dictionaries(KEYS, VALUES, max_size=4), undone=KEYS, commits=strategies.booleans())
    def transact(self, rows, undone: bytes, commits: bool) -> None:
        after = SortedDict(self.model)
        with self.db.transaction() as tx:
            for key, value in rows.items():
                tx[key] = value
                after[key] = value
            savepoint = tx.savepoint()
            tx.delete(undone)
            tx.rollback_to(savepoint)
            assert list(tx.items()) == list(after.items())
            if not commits:
                tx.rollback()
        if commits:
            self.model = after

    @rule(target=snapshots)
    def snapshot(self):
        return self.db.snapshot(), SortedDict(self.model)

    @rule(taken=consumes(snapshots))
    def read_snapshot(self, taken) -> None:
        snapshot, model = taken
        if not snapshot_is_closed(snapshot):
            assert list(snapshot.items()) == list(model.items())
            snapshot.close()

    @rule(ends=strategies.tuples(*[strategies.one_of(strategies.none(), KEYS)] * 3), flags=strategies.tuples(*[strategies.booleans()] * 3))
    def scan(self, ends, flags) -> None:
        (prefix, start, stop), (include_start, include_stop, reverse) = ends, flags
        found = self.db.items(
            prefix, start, stop, reverse=reverse, include_start=include_start, include_stop=include_stop
        )
        if start is not None and stop is not None and start > stop:
            keys = []
        else:
            keys = list(self.model.irange(start, stop, inclusive=(include_start, include_stop)))
        keys = [key for key in keys if key.startswith(prefix or b"")]
        assert list(found) == [(key, self.model[key]) for key in (reversed(keys) if reverse else keys)]

    @rule(keys=strategies.lists(KEYS, max_size=6))
    def read(self, keys) -> None:
        values = [self.model.get(key) for key in keys]
        assert self.db.multi_get(keys) == values
        assert [self.db.get(key) for key in keys] == values
        assert [key in self.db for key in keys] == [key in self.model for key in keys]

    @rule()
    def flush(self) -> None:
        self.db.flush()

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.open()

    @invariant()
    def the_ends_are_the_same(self) -> None:
        assert self.db.first() == (self.model.peekitem(0) if self.model else None)
        assert self.db.last() == (self.model.peekitem(-1) if self.model else None)
        assert bool(self.db) == bool(self.model)

    def teardown(self) -> None:
        if not hasattr(self, "db"):
            return
        assert dict(self.db) == dict(self.model) and len(self.db) == len(self.model)
        self.db.close()
        self.directory.cleanup()


def snapshot_is_closed(snapshot: tamis.Snapshot) -> bool:
    try:
        snapshot.seq
        return False
    except tamis.ClosedError:
        return True


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
