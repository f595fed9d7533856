"""A keyspace as a mutable mapping."""

from __future__ import annotations

import array
import ctypes
import mmap
import pathlib
import tracemalloc
from collections.abc import Mapping, MutableMapping

import pytest

import tamis


def test_a_key_has_the_value_that_was_set_last(db: tamis.Database) -> None:
    db[b"key"] = b"1"
    db[b"key"] = b"2"
    assert db[b"key"] == b"2"
    assert db.get(b"key") == b"2"
    assert b"key" in db
    del db[b"key"]
    assert b"key" not in db
    assert db.get(b"key") is None
    assert db.get(b"key", 7) == 7


def test_absent_keys_are_key_errors_with_the_key(db: tamis.Database) -> None:
    with pytest.raises(KeyError) as failed:
        db[b"\xff"]
    assert failed.value.args == (b"\xff",)
    with pytest.raises(KeyError):
        del db[b"key"]
    with pytest.raises(KeyError):
        db.pop(b"key")
    with pytest.raises(KeyError):
        db.popitem()
    db.delete(b"key")


def test_everything_with_the_buffer_protocol_is_a_key_and_a_value(db: tamis.Database) -> None:
    data = bytearray(b"0123456789")
    strided = memoryview(data)[::2]
    numbers = array.array("I", [1, 2])
    for key in (bytearray(b"a"), memoryview(b"b"), numbers, strided):
        db[key] = key
    assert list(db) == [numbers.tobytes(), b"02468", b"a", b"b"]
    assert all(key == value for key, value in db.items())
    assert type(db[memoryview(b"a")]) is bytes
    mutable = bytearray(b"before")
    db[b"copy"] = mutable
    mutable[:] = b"after!"
    assert db[b"copy"] == b"before"


@pytest.mark.parametrize("key", ["text", 1, None, [1, 2]])
def test_other_keys_are_type_errors(db: tamis.Database, key: object) -> None:
    for call in (lambda: db[key], lambda: db.put(key, b""), lambda: db.put(b"", key), lambda: db.items(start=[key])):
        with pytest.raises(TypeError):
            call()


def test_empty_keys_and_values_and_zeros_are_kept(db: tamis.Database) -> None:
    db[b""] = b""
    db[b"\0"] = b"\0\0"
    assert list(db.items()) == [(b"", b""), (b"\0", b"\0\0")]


def test_lengths_are_exact_and_estimates_are_close(db: tamis.Database) -> None:
    assert len(db) == 0 and not db
    db.update((b"%05d" % n, b"x" * 100) for n in range(10_000))
    db.delete(b"%05d" % 7)
    assert len(db) == 9_999 and db
    db.flush()
    assert 8_000 < db.approximate_len() < 12_000
    assert 4_000 < db.approximate_len(start=b"%05d" % 5_000) < 6_000
    assert db.approximate_size() > 10_000


def test_it_is_registered_as_a_mapping(db: tamis.Database) -> None:
    assert isinstance(db, MutableMapping)
    assert isinstance(db.keyspace("other", create=True), MutableMapping)
    assert isinstance(db.snapshot(), Mapping) and not isinstance(db.snapshot(), MutableMapping)
    methods = {name for name in dir(MutableMapping) if callable(getattr(MutableMapping, name))}
    assert {name for name in methods if not hasattr(db, name)} <= {"__class_getitem__"}


def test_the_methods_of_dict(db: tamis.Database) -> None:
    db.update({b"a": b"1", b"b": b"2"})
    db.update([(b"c", b"3"), (b"d", b"4")], durability="sync")
    assert dict(db.items()) == {b"a": b"1", b"b": b"2", b"c": b"3", b"d": b"4"}
    assert dict(db) == dict(db.items())
    assert db.pop(b"a") == b"1" and db.pop(b"a", None) is None and db.pop(b"a", b"no") == b"no"
    assert db.popitem() == (b"b", b"2")
    assert db.setdefault(b"c", b"new") == b"3" and db.setdefault(b"e", b"new") == b"new"
    assert list(db.keys()) == [b"c", b"d", b"e"] and list(db.values()) == [b"3", b"4", b"new"]
    assert list(reversed(db)) == [b"e", b"d", b"c"]
    db.clear()
    assert list(db) == []


def test_multi_get_keeps_the_order_of_keys(db: tamis.Database) -> None:
    db.update((b"%d" % n, b"v%d" % n) for n in range(100))
    db.flush()
    keys = [b"%d" % n for n in (5, 200, 5, 99, 0)]
    assert db.multi_get(keys) == [b"v5", None, b"v5", b"v99", b"v0"]
    assert db.multi_get(iter(keys)) == db.multi_get(keys)
    assert db.multi_get([]) == []
    with pytest.raises(TypeError):
        db.multi_get([b"1", "2"])


def test_keys_and_values_have_their_limits(db: tamis.Database) -> None:
    db[b"k" * 65_536] = b"v" * (16 << 20)
    assert len(db[b"k" * 65_536]) == 16 << 20
    with pytest.raises(tamis.InvalidArgument, match="65537") as failed:
        db[b"k" * 65_537] = b""
    assert failed.value.code == "key-too-long" and isinstance(failed.value, ValueError)


def test_atomic_changes_of_one_key(db: tamis.Database) -> None:
    assert db.compare_and_swap(b"k", None, b"1")
    assert not db.compare_and_swap(b"k", None, b"2")
    assert db.compare_and_swap(b"k", b"1", b"2")
    assert not db.compare_and_swap(b"k", b"1", None)
    assert db.take(b"k") == b"2" and db.take(b"k") is None
    assert db.increment(b"n") == 1 and db.increment(b"n", -3) == -2
    assert int.from_bytes(db[b"n"], "little", signed=True) == -2
    with pytest.raises(OverflowError):
        db.increment(b"n", 1 << 63)
    assert db.update(b"u", lambda value: b"first" if value is None else value + b"!") == b"first"
    assert db.update(b"u", lambda value: bytearray(value + b"!")) == b"first!"
    assert db.update(b"u", lambda value: None) is None and b"u" not in db


def test_an_update_that_raises_changes_nothing(db: tamis.Database) -> None:
    db[b"k"] = b"v"
    with pytest.raises(ZeroDivisionError):
        db.update(b"k", lambda value: 1 / 0)
    with pytest.raises(TypeError):
        db.update(b"k", lambda value: "text")
    assert db[b"k"] == b"v"
    for arguments in ((), (1, 2, 3), (5,)):
        with pytest.raises(TypeError):
            db.update(*arguments)


def test_an_update_sees_what_was_written_while_it_ran(db: tamis.Database) -> None:
    seen = []

    def change(value):
        seen.append(value)
        if len(seen) == 1:
            db[b"k"] = b"other"
        return b"mine"

    assert db.update(b"k", change) == b"mine"
    assert seen == [None, b"other"] and db[b"k"] == b"mine"


def test_attributes_say_what_is_open(db: tamis.Database, path) -> None:
    assert db.path == path and db.name == "default" and not db.closed and not db.read_only
    assert str(path) in repr(db)
    assert tamis.__version__.count(".") == 2


def test_what_is_too_long_for_a_value_is_refused_before_it_is_copied(db: tamis.Database) -> None:
    """4 GiB were copied before: minutes, and the memory."""
    try:
        room = mmap.mmap(-1, 1 << 32)
    except OSError:
        pytest.skip("no room for 4 GiB of zeros that are never looked at")
    tracemalloc.start()
    try:
        for write in (
            lambda: db.put(b"k", room),
            lambda: db.merge(b"k", room),
            lambda: db.compare_and_swap(b"k", None, room),
            lambda: db.batch().put(b"k", room),
            lambda: db.get(room),
        ):
            with pytest.raises(tamis.InvalidArgument) as refused:
                write()
            assert refused.value.code == "value-too-long"
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
        room.close()


def test_arrays_of_objects_are_refused(db: tamis.Database) -> None:
    """Their bytes are pointers, which were stored."""
    objects = (ctypes.py_object * 2)(1, 2)

    class Pair(ctypes.Structure):
        _fields_ = [("Other", ctypes.c_int32), ("object", ctypes.py_object)]

    class Numbers(ctypes.Structure):
        _fields_ = [("Other", ctypes.c_int32), ("O", ctypes.c_int32)]

    for wrong in (objects, memoryview(objects), (Pair * 1)(Pair(1, "x"))):
        for use in (lambda: db.put(b"k", wrong), lambda: db.get(wrong), lambda: db.batch().put(wrong, b"")):
            with pytest.raises(TypeError):
                use()
    db[b"numbers"] = array.array("H", [1, 2])
    db[b"fields"] = (Numbers * 1)(Numbers(3, 4))
    assert db[b"numbers"] == array.array("H", [1, 2]).tobytes() and len(db[b"fields"]) == 8


def test_increments_wrap_around(db: tamis.Database) -> None:
    db[b"n"] = (2**63 - 1).to_bytes(8, "little")
    assert db.increment(b"n") == -(2**63)
    with pytest.raises(OverflowError):
        db.increment(b"n", 2**63)


def test_the_licenses_of_what_is_linked_are_there() -> None:
    notice = (pathlib.Path(tamis.__file__).parent / "THIRD-PARTY.txt").read_text()
    assert "\npyo3 " in notice and "Permission is hereby granted" in notice
