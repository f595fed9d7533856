"""Ctrl-C during a call of the engine: the call is given up, and everything goes on from there."""

from __future__ import annotations

import _thread
import signal
from collections import deque
from functools import partial

import pytest

import tamis


def interrupted(call) -> None:
    """Makes a call while a signal has come and its handler has not run. From the signal to the call there is no Python code that would
    run the handler, and neither is there from the call to the mark: so what raises is the call."""
    marks: list[int] = []
    calls = (partial(_thread.interrupt_main), partial(call), partial(marks.append, 1))
    with pytest.raises(KeyboardInterrupt):
        deque(map(partial.__call__, calls), 0)
    assert not marks, "the call took no notice"


@pytest.fixture(autouse=True)
def handler():
    """A shell starts what runs in the background with this signal ignored, and nothing would be interrupted."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def many(db: tamis.Database) -> tamis.Database:
    db.update((b"%06d" % n, b"v" * 100) for n in range(5000))
    db.flush()
    return db


def test_a_wait_for_a_lock_is_given_up_and_the_transaction_goes_on(db: tamis.Database) -> None:
    db[b"a"] = b"1"
    holds = db.lock_transaction()
    holds[b"a"] = b"2"
    waits = db.lock_transaction(timeout=3600)
    waits[b"b"] = b"3"
    interrupted(partial(waits.get, b"a"))
    interrupted(partial(waits.get_for_update, b"a"))
    interrupted(partial(waits.put, b"a", b"4"))
    interrupted(partial(waits.delete_range, b"0", b"z"))
    interrupted(partial(waits.multi_get, [b"a"]))
    holds.commit()
    assert waits[b"a"] == b"2" and waits[b"b"] == b"3"
    waits.commit()
    assert db[b"b"] == b"3"


def test_long_calls_are_given_up(many: tamis.Database, path) -> None:
    for call in (
        partial(len, many),
        partial(list, many),
        partial(sorted, many.items()),
        many.verify,
        many.compact,
        partial(many.compact_range, b"0", b"9"),
    ):
        interrupted(call)
    assert len(many) == 5000 and many.verify().problems == ()
    many.compact()
    many.close()
    interrupted(partial(tamis._tamis._verify_at, str(path), [], {}))


def test_an_iteration_in_c_is_given_up_between_two_groups(many: tamis.Database) -> None:
    keys = iter(many)
    assert next(keys) == b"000000"
    interrupted(partial(deque, keys, 0))
    assert next(keys) == b"000001"
