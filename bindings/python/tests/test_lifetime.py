"""Opening, closing, and what lives on; threads, forks and the end of the interpreter."""

from __future__ import annotations

import datetime
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from typing import Optional

import pytest

import tamis


def test_everything_of_a_closed_database_says_so(path) -> None:
    db = tamis.open(path)
    users = db.keyspace("users", create=True)
    db.update((b"%d" % n, b"") for n in range(100))
    snapshot, items, batch = db.snapshot(), db.items(), db.batch()
    tx, lock = db.transaction(), db.lock_transaction()
    tx[b"a"] = lock[b"b"] = b"1"
    view, writes = snapshot.keyspace(users), tx.keyspace(users)
    next(items)
    db.close()
    db.close()
    assert db.closed and "closed" in repr(db)
    uses = [
        lambda: db[b"1"],
        lambda: db.put(b"1", b""),
        lambda: list(db),
        lambda: db.flush(),
        lambda: db.stats(),
        lambda: db.path,
        lambda: users[b"1"],
        lambda: users.options,
        lambda: snapshot[b"1"],
        lambda: view.get(b"1"),
        lambda: next(items),
        lambda: batch.put(b"1", b""),
        batch.commit,
        lambda: tx[b"1"],
        lambda: writes.get(b"1"),
        tx.commit,
        tx.rollback,
        lock.commit,
        lambda: db.snapshot(),
        lambda: db.transaction(),
        lambda: db.prepared_transactions(),
        lambda: db.keyspace("users"),
    ]
    for use in uses:
        with pytest.raises(tamis.ClosedError) as failed:
            use()
        assert failed.value.code == "closed"
    # Whatever still refers to the closed one, it can be opened again.
    with tamis.open(path) as again:
        assert len(again) == 100
    for end in (snapshot.close, items.close):
        end()


def test_objects_may_outlive_the_database_object(path) -> None:
    items = tamis.open(path, merge_operator="append").items()
    gc.collect()
    assert list(items) == []
    with pytest.raises(tamis.Locked):
        tamis.open(path)
    del items
    gc.collect()
    with tamis.open(path, merge_operator="append") as db:
        db[b"a"] = b"1"
        users = db.keyspace("users", create=True)
    del db
    gc.collect()
    with pytest.raises(tamis.ClosedError):
        users[b"a"]


def test_a_database_is_open_once(path) -> None:
    with tamis.open(path) as db:
        db[b"a"] = b"1"
        with pytest.raises(tamis.Locked) as failed:
            tamis.open(path)
        assert failed.value.code == "open-here"
        with tamis.open(path, read_only=True) as reader:
            assert reader[b"a"] == b"1" and reader.read_only
            with pytest.raises(tamis.ReadOnly):
                reader[b"a"] = b"2"
        code = f"import tamis\ntry: tamis.open({str(path)!r})\nexcept tamis.Locked as e: print(e.code)"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert answer.stdout == "locked\n"


def test_paths_are_of_any_kind(tmp_path) -> None:
    for path in (str(tmp_path / "str"), os.fsencode(tmp_path / "bytes"), tmp_path / "path"):
        tamis.open(path).close()
    with pytest.raises(TypeError):
        tamis.open(7)


def test_options_go_by_name(path) -> None:
    options = dict(
        cache_bytes=1 << 20,
        durability="sync",
        pin_metadata=False,
        bits_per_key=12.5,
        filter="ribbon",
        time_to_live=datetime.timedelta(hours=12),
        compaction_filter=None,
        memtable_bytes="8 MiB",
    )
    with tamis.open(path, **options) as db:
        database, keyspace = db.database_options, db.options
        assert (database["cache_bytes"], database["durability"], database["pin_metadata"]) == ("1 MiB", "sync", "false")
        assert (keyspace["bits_per_key"], keyspace["filter"]) == ("12.5", "ribbon")
        assert (keyspace["time_to_live"], keyspace["compaction_filter"]) == ("12 h", "none")
        assert db.keyspace("new", create=True, filter="cuckoo").options["filter"] == "cuckoo"
        with pytest.raises(tamis.InvalidOption) as failed:
            db.set_options(merge_operator="add")
        assert failed.value.code in ("fixed-option", "invalid-option")
    for code, wrong in (("unknown-option", {"bits": 1}), ("invalid-option", {"bits_per_key": "many"})):
        with pytest.raises(tamis.InvalidOption) as failed:
            tamis.open(path, **wrong)
        assert failed.value.code == code and isinstance(failed.value, ValueError)
    with pytest.raises(TypeError, match="cache_bytes"):
        tamis.open(path, cache_bytes=[])


def test_databases_that_are_not_there_or_are(path) -> None:
    with pytest.raises(tamis.NotFound) as failed:
        tamis.open(path, create_if_missing=False)
    assert failed.value.code == "no-database" and not path.exists()
    tamis.open(path).close()
    with pytest.raises(tamis.Exists):
        tamis.open(path, error_if_exists=True)


def test_failed_system_calls_are_os_errors(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as failed:
        tamis.open(tmp_path / "file" / "db")
    assert isinstance(failed.value, tamis.IoError) and failed.value.code == "io"
    assert failed.value.errno == 20 and str(tmp_path) in str(failed.value.filename)


def test_damage_is_named(path) -> None:
    with tamis.open(path) as db:
        db.update((b"%d" % n, b"v" * 100) for n in range(1000))
        db.flush()
    table = next(path.glob("*.tam"))
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 1
    table.write_bytes(data)
    with tamis.open(path) as db:
        with pytest.raises(tamis.Corruption, match=table.name) as failed:
            list(db.items())
        assert failed.value.code == "corrupt"


def test_exceptions_survive_pickling(db: tamis.Database) -> None:
    errors = [tamis.Conflict("text", "conflict", b"k", "users"), tamis.IoError("text", "io", None, None, 5, "file")]
    for error in errors:
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == "text" and vars(copy) == vars(error)
    assert copy.errno == 5 and copy.filename == "file"


def test_threads_share_a_database(db: tamis.Database) -> None:
    failures = []

    def work(number: int) -> None:
        try:
            mine = [b"%d/%04d" % (number, n) for n in range(500)]
            for key in mine:
                db[key] = key
            assert db.multi_get(mine) == mine
            assert list(db.keys(prefix=b"%d/" % number)) == mine
            for key in mine[::2]:
                del db[key]
            db.increment(b"total", len(mine) // 2)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(db) == 8 * 250 + 1 and db.increment(b"total", 0) == 8 * 250


def test_threads_share_an_iterator(db: tamis.Database) -> None:
    db.update((b"%05d" % n, b"") for n in range(20_000))
    keys, seen = iter(db), [[] for _ in range(4)]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(keys)) for mine in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(key for mine in seen for key in mine) == [b"%05d" % n for n in range(20_000)]


def test_a_close_beside_other_threads_ends_them(path) -> None:
    db = tamis.open(path)
    db.update((b"%04d" % n, b"v" * 100) for n in range(1000))
    begun, ends = threading.Barrier(5), []

    def work(use) -> None:
        begun.wait()
        try:
            while True:
                use()
        except BaseException as end:
            ends.append(end)

    uses = [lambda: db[b"0001"], lambda: db.put(b"k", b"v"), lambda: list(db.items()), lambda: db.transact(len)]
    threads = [threading.Thread(target=work, args=(use,)) for use in uses]
    for thread in threads:
        thread.start()
    begun.wait()
    db.close()
    for thread in threads:
        thread.join()
    assert [type(end) for end in ends] == [tamis.ClosedError] * 4


def test_operators_in_python_do_not_deadlock_with_their_callers(path) -> None:
    """The engine's threads need the interpreter to merge, while callers wait for the engine: they must have released it."""

    def total(key, base, operands):
        return b"%d" % sum(map(int, [base or b"0", *operands]))

    operator = tamis.MergeOperator("total", total, lambda key, operands: total(key, None, operands))
    with tamis.open(path, merge_operator=operator, memtable_bytes=64 << 10, max_memtables=2) as db:

        def work() -> None:
            for n in range(2000):
                db.merge(b"k%d" % (n % 7), b"1")
                if n % 200 == 0:
                    list(db.items())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        db.flush()
        db.compact()
        db.wait_for_compaction()
        assert sum(map(int, db.values())) == 8000
    kept = weakref.ref(operator)
    del operator, db
    gc.collect()
    assert kept() is None


def test_other_threads_run_while_one_waits_for_a_lock(db: tamis.Database) -> None:
    held = db.lock_transaction()
    held[b"a"] = b"1"
    waiting = db.lock_transaction(timeout=30)
    thread = threading.Thread(target=lambda: waiting.get(b"a"))
    thread.start()
    # Would never end if the waiting thread kept the interpreter.
    assert sum(1 for _ in range(100_000)) == 100_000
    held.commit()
    thread.join()
    waiting.rollback()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_must_open_anew_and_harms_nothing(path) -> None:
    code = textwrap.dedent(
        f"""
        import os, sys, tamis
        db = tamis.open({str(path)!r})
        db[b"a"] = b"1"
        items, snapshot, tx = db.items(), db.snapshot(), db.lock_transaction()
        tx[b"b"] = b"1"
        child = os.fork()
        if child == 0:
            for use in (lambda: db[b"a"], lambda: next(items), lambda: snapshot[b"a"], tx.commit):
                try:
                    use()
                    os._exit(1)
                except tamis.ClosedError as refused:
                    assert refused.code == "forked" and "fork" in str(refused)
            with tamis.open({str(path / "child")!r}) as other:
                other[b"a"] = b"child"
            items.close(), snapshot.close()
            del items, snapshot, tx
            db.close()
            del db
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        tx.commit()
        db[b"c"] = b"1"
        print(list(db))
        """
    )
    # Python 3.12 and later warn of every fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (answer.stdout, answer.stderr) == ("[b'a', b'b', b'c']\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_living_child_keeps_nobody_out(path) -> None:
    """The child holds the parent's database, and lives until the parent has closed it and opened it again."""
    code = textwrap.dedent(
        f"""
        import os, tamis
        db = tamis.open({str(path)!r})
        db[b"a"] = b"1"
        theirs, ours = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            os.read(theirs, 1)
            os._exit(0 if db.closed else 1)
        os.close(theirs)
        db.close()
        with tamis.open({str(path)!r}) as db:
            db[b"b"] = b"1"
            print(list(db))
            os.close(ours)
            assert os.waitpid(child, 0)[1] == 0
        """
    )
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (answer.stdout, answer.stderr) == ("[b'a', b'b']\n", "")


def test_what_is_open_at_the_end_of_the_interpreter_is_closed(path) -> None:
    code = textwrap.dedent(
        f"""
        import tamis
        merge = tamis.MergeOperator("last", lambda key, base, operands: operands[-1])
        db = tamis.open({str(path)!r}, merge_operator=merge, memtable_bytes=64 << 10)
        for n in range(5000):
            db.merge(b"%d" % (n % 50), b"%d" % n)
        items = db.items()
        next(items)
        """
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (answer.returncode, answer.stderr) == (0, "")
    operator = tamis.MergeOperator("last", lambda key, base, operands: operands[-1])
    with tamis.open(path, read_only=True, merge_operator=operator) as db:
        assert len(db) == 50 and db.stats().warnings == ()


def test_a_subinterpreter_is_refused_and_ends(path) -> None:
    """With a database open in one, the process hung at its end."""
    pytest.importorskip("_xxsubinterpreters")
    within = f"""if True:
        try:
            import tamis
            tamis.open({str(path)!r})
        except ImportError as refused:
            print(refused, flush=True)
    """
    code = f"import _xxsubinterpreters as subs; subs.run_string(subs.create(), {within!r})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (answer.returncode, answer.stderr) == (0, "") and "subinterpreter" in answer.stdout


def test_a_relative_path_survives_a_change_of_directory(tmp_path, monkeypatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "db").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    db, table = tamis.open("db"), tamis.TableBuilder("table")
    monkeypatch.chdir(elsewhere)
    for round in range(3):
        db.put(b"%d" % round, b"v")
        db.flush()
    table.put(b"t", b"v")
    assert table.finish().path == tmp_path / "table"
    db.ingest([tmp_path / "table"])
    db.compact()
    assert db.path == tmp_path / "db"
    db.close()
    assert list((elsewhere / "db").iterdir()) == []
    with tamis.open(tmp_path / "db") as db:
        assert list(db) == [b"0", b"1", b"2", b"t"]


def test_a_merge_operator_that_uses_what_is_read_with_is_refused(path) -> None:
    uses: list[Callable[[], object]] = []

    def merge(key: bytes, base: Optional[bytes], operands: list[bytes]) -> bytes:
        for use in uses:
            use()
        return b"".join(operands)

    with tamis.open(path, merge_operator=tamis.MergeOperator("calls", merge)) as db:
        db.merge(b"k", b"v")
        items, tx = db.items(), db.transaction()
        for use, read in [
            (lambda: next(items), lambda: list(items)),
            (lambda: items.close(), lambda: list(items)),
            (lambda: tx.get(b"other"), lambda: tx.get(b"k")),
            (tx.rollback, lambda: tx.get(b"k")),
        ]:
            items = db.items()
            uses[:] = [use]
            with pytest.raises(tamis.Error, match="cannot use the object") as refused:
                read()
            assert refused.value.code == "merge"
        # Others may be used there, and the same ones afterwards.
        uses[:] = [lambda: db.get(b"other"), lambda: db.items().close()]
        assert tx.get(b"k") == b"v" and list(db.items()) == [(b"k", b"v")]


def test_an_empty_path_is_not_the_current_directory(path, tmp_path, monkeypatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with tamis.open(path) as db:
        with pytest.raises(tamis.IoError, match="the path is empty"):
            db.checkpoint("")
    with pytest.raises(tamis.IoError, match="the path is empty"):
        tamis.open("")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("name", ["add", "append", "max"])
def test_an_operator_with_a_built_in_name_is_refused(tmp_path, name) -> None:
    """It was left aside without a word, and the built-in one was called."""
    operator = tamis.MergeOperator(name, lambda key, base, operands: operands[-1])
    with pytest.raises(tamis.InvalidOption, match="built-in"):
        tamis.open(tmp_path / "db", merge_operator=operator)
    assert not (tmp_path / "db").exists()


def test_a_closed_database_is_not_entered(tmp_path) -> None:
    db = tamis.open(tmp_path / "db")
    db.close()
    with pytest.raises(tamis.ClosedError):
        with db:
            pass


def test_operators_of_other_types_are_refused(tmp_path) -> None:
    for wrong in (("m", None), (7, max), ("m", max, 7)):
        with pytest.raises(TypeError):
            tamis.MergeOperator(*wrong)
    for call in (tamis.open, tamis.verify, tamis.salvage):
        with pytest.raises(TypeError):
            call(tmp_path / "db", operators=[1])
    assert not (tmp_path / "db").exists()


def test_exceptions_have_the_names_that_programs_use() -> None:
    assert repr(tamis.Conflict) == "<class 'tamis.Conflict'>"
