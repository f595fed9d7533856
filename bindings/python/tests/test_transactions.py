"""Transactions: what they see, what they conflict with, and how they end."""

from __future__ import annotations

import threading

import pytest

import tamis


def test_a_transaction_sees_its_own_writes_and_commits_at_the_end(db: tamis.Database) -> None:
    users = db.keyspace("users", create=True)
    db.update({b"a": b"1", b"b": b"2", b"p/1": b""})
    with db.transaction() as tx:
        tx[b"a"] = b"10"
        del tx[b"b"]
        tx.delete_prefix(b"p/")
        tx.keyspace(users)[b"u"] = b"1"
        assert dict(tx) == {b"a": b"10"} and tx.keyspace(users)[b"u"] == b"1"
        assert tx.multi_get([b"a", b"b"]) == [b"10", None] and len(tx) == 1
        assert db[b"a"] == b"1" and not users and not tx.ended
        with pytest.raises(KeyError):
            del tx[b"b"]
    assert dict(db) == {b"a": b"10"} and dict(users) == {b"u": b"1"} and tx.ended


def test_a_transaction_is_rolled_back_by_an_exception_or_by_hand(db: tamis.Database) -> None:
    with pytest.raises(ZeroDivisionError):
        with db.transaction() as tx:
            tx[b"a"] = b"1"
            1 / 0
    with db.transaction() as tx:
        tx[b"a"] = b"1"
        tx.rollback()
    assert not db
    for use in (tx.rollback, lambda: tx[b"a"], lambda: tx.put(b"a", b""), tx.commit, tx.savepoint, lambda: tx.keyspace(db)[b"a"]):
        with pytest.raises(tamis.ClosedError) as failed:
            use()
        assert failed.value.code == "ended"


def test_a_conflict_names_the_key_and_commits_nothing(db: tamis.Database) -> None:
    db[b"a"] = b"1"
    tx = db.transaction()
    assert tx[b"a"] == b"1"
    tx[b"b"] = b"2"
    db[b"a"] = b"other"
    with pytest.raises(tamis.Conflict) as failed:
        tx.commit()
    assert (failed.value.code, failed.value.key, failed.value.keyspace) == ("conflict", b"a", "default")
    assert dict(db) == {b"a": b"other"}


def test_iteration_depends_on_no_more_than_it_returned(db: tamis.Database) -> None:
    db.update((b"%02d" % n, b"") for n in range(50))
    with db.transaction() as tx:
        keys = iter(tx)
        assert [next(keys) for _ in range(3)] == [b"00", b"01", b"02"]
        db[b"40"] = b"later"
        tx[b"done"] = b""
    with pytest.raises(tamis.Conflict):
        with db.transaction() as tx:
            assert len(list(tx)) == 51
            db[b"40"] = b"again"
            tx[b"done"] = b""


def test_snapshot_isolation_conflicts_by_writes_alone(db: tamis.Database) -> None:
    db.update({b"a": b"1", b"b": b"1"})
    one, other = db.transaction(isolation="snapshot"), db.transaction(isolation="snapshot", durability="sync")
    assert one[b"a"] == other[b"b"] == b"1"
    one[b"b"], other[b"a"] = b"2", b"2"
    assert one.commit() < other.commit()
    with pytest.raises(tamis.InvalidArgument, match="perhaps"):
        db.transaction(isolation="perhaps")


def test_transact_repeats_after_conflicts(db: tamis.Database) -> None:
    db[b"n"] = b"0"

    def work() -> None:
        for _ in range(50):
            db.transact(lambda tx: tx.put(b"n", b"%d" % (int(tx[b"n"]) + 1)), attempts=10_000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert db[b"n"] == b"200"


def test_transact_returns_and_raises_what_its_function_does(db: tamis.Database) -> None:
    assert db.transact(lambda tx: 7) == 7
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda tx: tx.put(b"a", b"") or 1 / 0)
    assert not db

    attempts = []

    def always(tx: tamis.Transaction) -> None:
        attempts.append(tx.get(b"k"))
        tx[b"other"] = b""
        db[b"k"] = b"%d" % len(attempts)

    with pytest.raises(tamis.Conflict):
        db.transact(always, attempts=5)
    assert len(attempts) == 5
    with pytest.raises(tamis.InvalidArgument):
        db.transact(always, attempts=0)


@pytest.mark.parametrize("begin", ["transaction", "lock_transaction"])
def test_savepoints_undo_later_writes(db: tamis.Database, begin: str) -> None:
    with getattr(db, begin)() as tx:
        tx[b"a"] = b"1"
        first = tx.savepoint()
        tx[b"b"] = b"2"
        second = tx.savepoint()
        tx.delete(b"a")
        tx.rollback_to(second)
        assert dict(tx.items()) == {b"a": b"1", b"b": b"2"}
        tx.rollback_to(first)
        with pytest.raises(tamis.InvalidArgument) as failed:
            tx.rollback_to(second)
        assert failed.value.code == "no-savepoint"
    assert dict(db) == {b"a": b"1"}


def test_transactions_merge(path) -> None:
    with tamis.open(path, merge_operator="append") as db:
        with db.transaction() as tx:
            tx.merge(b"a", b"1")
            assert tx[b"a"] == b"1"
        with db.lock_transaction() as tx:
            tx.merge(b"a", b"2")
        assert db[b"a"] == b"12"


def test_locks_are_waited_for_and_time_out(db: tamis.Database) -> None:
    users = db.keyspace("users", create=True)
    db[b"a"] = b"1"
    first, second = db.lock_transaction(), db.lock_transaction(timeout=0.01)
    assert first.get_for_update(b"a") == b"1" and first.get_for_update(b"u", b"none", keyspace=users) == b"none"
    assert first.number != second.number
    with pytest.raises(tamis.Conflict) as failed:
        second[b"a"] = b"2"
    assert failed.value.code == "lock-timeout" and failed.value.key == b"a"
    second.rollback()

    waiting = db.lock_transaction(timeout=30)
    begun, got = threading.Event(), []

    def wait() -> None:
        begun.set()
        got.append(waiting[b"a"])

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    first[b"a"] = b"first"
    first.commit()
    thread.join()
    assert got == [b"first"]
    waiting.rollback()
    for timeout in (-1, float("nan"), 1e300):
        with pytest.raises(ValueError):
            db.lock_transaction(timeout=timeout)


def test_a_deadlock_is_named_to_one_of_its_members(db: tamis.Database) -> None:
    one, other = db.lock_transaction(timeout=30), db.lock_transaction(timeout=30)
    one[b"a"], other[b"b"] = b"1", b"1"
    thread = threading.Thread(target=lambda: _until_conflict(one, b"b"))
    thread.start()
    failed = _until_conflict(other, b"a")
    thread.join()
    # Whoever closes the circle is told; the other one goes on.
    assert failed is None or failed.code == "deadlock"


def _until_conflict(tx: tamis.LockTransaction, key: bytes):
    try:
        tx[key] = b"2"
        tx.commit()
        return None
    except tamis.Conflict as failed:
        tx.rollback()
        return failed


def test_two_phase_commit_survives_a_reopening(path) -> None:
    with tamis.open(path) as db:
        for name, key in ((b"one", b"a"), (b"two", b"b")):
            tx = db.lock_transaction()
            tx[key] = b"1"
            prepared = tx.prepare(name)
            assert prepared.name == name and tx.ended
        tx = db.lock_transaction()
        tx[b"c"] = b"1"
        with pytest.raises(tamis.Exists):
            tx.prepare(b"one")
    with tamis.open(path) as db:
        left = {prepared.name: prepared for prepared in db.prepared_transactions()}
        assert set(left) == {b"one", b"two"} and not db
        left[b"one"].commit()
        left[b"two"].abort()
        assert dict(db) == {b"a": b"1"} and db.prepared_transactions() == []
        with pytest.raises(tamis.ClosedError):
            left[b"one"].commit()
