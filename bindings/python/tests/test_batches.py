"""Batches, keyspaces, snapshots, merges."""

from __future__ import annotations

import pytest

import tamis


def test_a_batch_is_committed_at_the_end_of_its_block(db: tamis.Database) -> None:
    users = db.keyspace("users", create=True)
    db.update({b"gone": b"1", b"p/1": b"", b"p/2": b"", b"q": b""})
    with db.batch(durability="sync") as batch:
        batch[b"a"] = b"1"
        del batch[b"gone"]
        batch.put(b"u", b"2", keyspace=users)
        batch.delete_prefix(b"p/")
        batch.delete_range(b"q", b"r")
        assert len(batch) == 5 and batch.byte_len > 0
        assert list(db) == [b"gone", b"p/1", b"p/2", b"q"] and not users
    assert dict(db) == {b"a": b"1"} and dict(users) == {b"u": b"2"}
    for use in (lambda: batch.put(b"a", b""), batch.commit, lambda: len(batch)):
        with pytest.raises(tamis.ClosedError) as failed:
            use()
        assert failed.value.code == "ended"


def test_a_batch_is_dropped_by_an_exception(db: tamis.Database) -> None:
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch[b"a"] = b"1"
            1 / 0
    assert not db


def test_a_batch_that_is_refused_leaves_nothing(db: tamis.Database) -> None:
    with pytest.raises(tamis.InvalidArgument):
        with db.batch() as batch:
            batch[b"a"] = b"1"
            batch[b"k" * 65_537] = b""
    with pytest.raises(tamis.InvalidArgument) as failed:
        with db.batch() as batch:
            batch.merge(b"a", b"1")
    assert failed.value.code == "no-merge-operator"
    assert not db


def test_a_batch_may_be_cleared_and_committed_by_hand(db: tamis.Database) -> None:
    batch = db.batch()
    batch[b"a"] = b"1"
    batch.clear()
    batch[b"b"] = b"2"
    batch.commit()
    assert dict(db) == {b"b": b"2"}


def test_a_batch_of_a_keyspace_writes_there(db: tamis.Database) -> None:
    users = db.keyspace("users", create=True)
    with users.batch() as batch:
        batch[b"a"] = b"1"
        batch.put(b"b", b"2", keyspace=db)
    assert dict(users) == {b"a": b"1"} and dict(db) == {b"b": b"2"}


def test_keyspaces_of_another_database_are_refused(db: tamis.Database, tmp_path) -> None:
    with tamis.open(tmp_path / "other") as other:
        with pytest.raises(tamis.InvalidArgument) as failed:
            with db.batch() as batch:
                batch.put(b"a", b"", keyspace=other)
        assert failed.value.code == "foreign-keyspace"


def test_durability_is_checked(db: tamis.Database) -> None:
    db.put(b"a", b"1", durability="sync")
    db.put(b"b", b"1", durability="buffered")
    db.delete(b"b", durability="sync")
    assert list(db) == [b"a"]
    for call in (lambda: db.put(b"a", b"", durability="perhaps"), lambda: db.batch(durability="perhaps")):
        with pytest.raises(tamis.InvalidArgument, match="perhaps"):
            call()


def test_keyspaces_have_their_own_keys_and_options(db: tamis.Database) -> None:
    with pytest.raises(tamis.NotFound) as failed:
        db.keyspace("users")
    assert failed.value.code == "no-keyspace" and failed.value.keyspace == "users"
    users = db.create_keyspace("users", bits_per_key=12, compression="lz4", time_to_live=None)
    users[b"k"] = b"users"
    db[b"k"] = b"default"
    assert (db[b"k"], db.keyspace("users")[b"k"]) == (b"default", b"users")
    assert users.options["bits_per_key"] == "12" and users.name == "users"
    with pytest.raises(tamis.Exists):
        db.create_keyspace("users")
    assert db.keyspace("users", create=True)[b"k"] == b"users"
    assert db.keyspaces() == ["default", "users"]
    users.set_options(compaction="lazy-leveling", size_ratio=4)
    assert users.options["compaction"] == "lazy-leveling" and users.options["size_ratio"] == "4"
    db.rename_keyspace("users", "people")
    assert db.keyspace("people")[b"k"] == b"users"
    db.drop_keyspace("people")
    assert db.keyspaces() == ["default"]
    with pytest.raises(tamis.ClosedError) as dropped:
        users[b"k"]
    assert dropped.value.code == "dropped"
    for call in (lambda: db.drop_keyspace("people"), lambda: db.rename_keyspace("people", "x")):
        with pytest.raises(tamis.NotFound):
            call()
    with pytest.raises(tamis.InvalidArgument):
        db.drop_keyspace("default")
    with pytest.raises(tamis.InvalidArgument):
        db.create_keyspace("")
    with pytest.raises(TypeError, match="create=True"):
        db.keyspace("default", bits_per_key=9)


def test_snapshots_show_one_moment_of_all_keyspaces(db: tamis.Database) -> None:
    users = db.keyspace("users", create=True)
    db[b"a"], users[b"u"] = b"1", b"1"
    with db.snapshot() as snapshot:
        db[b"a"], users[b"u"] = b"2", b"2"
        db[b"b"] = b"2"
        assert dict(snapshot) == {b"a": b"1"} and len(snapshot) == 1
        assert snapshot.keyspace(users)[b"u"] == b"1" and snapshot.get(b"b") is None
        assert snapshot.multi_get([b"a", b"b"]) == [b"1", None]
        assert isinstance(snapshot.seq, int)
        view, items = snapshot.keyspace(users), snapshot.items()
        assert not hasattr(snapshot, "put")
    for use in (lambda: snapshot[b"a"], lambda: view[b"u"], lambda: snapshot.seq):
        with pytest.raises(tamis.ClosedError):
            use()
    assert list(items) == [(b"a", b"1")]
    snapshot.close()


def test_built_in_merge_operators_go_by_name(path) -> None:
    with tamis.open(path, merge_operator="append") as db:
        numbers = db.keyspace("numbers", create=True, merge_operator="add")
        for n in range(3):
            db.merge(b"log", b"%d;" % n)
            numbers.merge(b"sum", n.to_bytes(8, "little"), durability="sync")
        assert db[b"log"] == b"0;1;2;" and numbers.increment(b"sum", 0) == 3
        db.compact()
        assert db[b"log"] == b"0;1;2;"
        with pytest.raises(tamis.InvalidOption) as failed:
            db.create_keyspace("other", merge_operator="none-such")
        assert failed.value.code == "unregistered-operator"
    with pytest.raises(tamis.InvalidOption, match="append") as failed:
        tamis.open(path, merge_operator="add")
    assert failed.value.code == "incompatible"


def longest(key, base, operands):
    return max([base or b"", *operands], key=len)


def test_merge_operators_may_be_written_in_python(path) -> None:
    partial = []

    def some(key, operands):
        partial.append(len(operands))
        return longest(key, None, operands)

    operator = tamis.MergeOperator("longest", longest, some)
    with tamis.open(path, merge_operator=operator) as db:
        for word in (b"a", b"abc", b"ab"):
            db.merge(b"k", word)
            db.flush()
        assert db[b"k"] == b"abc"
        db.compact()
        assert db[b"k"] == b"abc" and dict(db) == {b"k": b"abc"}
        users = db.keyspace("users", create=True, merge_operator="longest")
        users.merge(b"k", b"users")
    with pytest.raises(tamis.InvalidOption) as failed:
        tamis.open(path, merge_operator="longest")
    assert failed.value.code == "unregistered-operator"
    with tamis.open(path, merge_operator="longest", operators=[operator]) as db:
        assert db[b"k"] == b"abc" and db.keyspace("users")[b"k"] == b"users"


def test_an_operator_that_raises_keeps_the_key_from_being_read(path) -> None:
    def fails(key, base, operands):
        raise RuntimeError("not today")

    with tamis.open(path, merge_operator=tamis.MergeOperator("fails", fails)) as db:
        db.merge(b"k", b"1")
        db[b"other"] = b"1"
        db.compact()
        with pytest.raises(tamis.Error, match="not today") as failed:
            db[b"k"]
        assert failed.value.code == "merge" and failed.value.key == b"k"
        with pytest.raises(tamis.Error, match="not today"):
            list(db.items())
        db[b"k"] = b"again"
        assert db[b"k"] == b"again"
