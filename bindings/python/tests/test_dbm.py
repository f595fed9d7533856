"""The interface of `dbm`: the standard library's own tests of it, and `shelve`."""

from __future__ import annotations

import dbm
import errno
import os
import shelve
import stat
import unittest
from unittest import mock

import pytest

import tamis
import tamis.dbm


def kind(file) -> str | None:
    """`dbm.whichdb` for databases that are tamis', or not there."""
    return "tamis.dbm" if os.path.isdir(os.fsdecode(file)) else None


@pytest.fixture
def as_default():
    """Makes `tamis.dbm` what `dbm.open` creates and opens."""
    with mock.patch.multiple(
        dbm, _defaultmod=tamis.dbm, whichdb=kind, error=(dbm.error[0], tamis.dbm.error), create=True
    ), mock.patch.dict(dbm._modules, {"tamis.dbm": tamis.dbm}):
        yield


def library_tests():
    """The test cases of the standard library's `test_dbm`, where it is installed, as far as they are not about its own modules."""
    try:
        from test import test_dbm
    except ImportError:
        return []
    case = test_dbm.AnyDBMTestCase
    return [name for name in dir(case) if name.startswith("test_")]


@pytest.mark.parametrize("name", library_tests() or [pytest.param("", marks=pytest.mark.skip("no test.test_dbm here"))])
def test_of_the_standard_library(name: str, as_default, tmp_path, monkeypatch) -> None:
    from test import test_dbm

    monkeypatch.chdir(tmp_path)
    base = test_dbm.AnyDBMTestCase

    class Case(base, unittest.TestCase):
        module = tamis.dbm

        def tearDown(self) -> None:
            # Databases are directories here, which the original would not remove.
            pass

        def setUp(self) -> None:
            directory = os.path.dirname(test_dbm._fname)
            if directory:
                os.makedirs(directory)

    result = unittest.TestResult()
    Case(name).run(result)
    problems = [text for _, text in result.failures + result.errors]
    assert not problems, problems[0]
    if result.skipped:
        pytest.skip(result.skipped[0][1])


@pytest.fixture
def file(tmp_path) -> str:
    return str(tmp_path / "file")


def test_flags_say_how_to_open(file: str) -> None:
    for flag in "rw":
        with pytest.raises(tamis.dbm.error):
            tamis.dbm.open(file, flag)
    with pytest.raises(ValueError):
        tamis.dbm.open(file, "rw")
    with tamis.dbm.open(file, "c") as db:
        db["a"] = "1"
    with tamis.dbm.open(file, "c") as db:
        assert db[b"a"] == b"1"
    with tamis.dbm.open(file, "w") as db:
        db[b"b"] = b"2"
    with tamis.dbm.open(file) as db:
        assert db.keys() == [b"a", b"b"]
        writes = (
            lambda: db.__setitem__("a", "2"),
            # Whether the key exists or not: once an absent one raised KeyError, or none.
            lambda: db.__delitem__("a"),
            lambda: db.__delitem__("none"),
            lambda: db.setdefault("a", "2"),
            lambda: db.setdefault("none", "2"),
            lambda: db.pop("a"),
            lambda: db.clear(),
        )
        for write in writes:
            with pytest.raises(tamis.dbm.error) as raised:
                write()
            assert (raised.value.errno, raised.value.filename) == (errno.EACCES, file)
        db.sync()
    with tamis.dbm.open(file, "n") as db:
        assert len(db) == 0


def test_a_new_one_replaces_files_and_databases_but_no_other_directory(tmp_path, file: str) -> None:
    with open(file, "w") as garbage:
        garbage.write("garbage")
    with pytest.raises(tamis.dbm.error):
        tamis.dbm.open(file, "c")
    tamis.dbm.open(file, "n").close()
    with tamis.open(file) as db:
        db.keyspace("other", create=True)[b"a"] = b"1"
    tamis.dbm.open(file, "n").close()
    with tamis.open(file) as db:
        assert db.keyspaces() == ["default"]
        with pytest.raises(tamis.dbm.error):
            tamis.dbm.open(file, "n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    with pytest.raises(tamis.dbm.error):
        tamis.dbm.open(tmp_path / "mine", "n")
    assert [(file.name, file.read_text()) for file in (tmp_path / "mine").iterdir()] == [("letter", "dear")]


@pytest.mark.skipif(os.name != "posix", reason="access bits are those of POSIX")
def test_the_mode_is_that_of_the_new_directory(file: str) -> None:
    mask = os.umask(0o022)
    try:
        tamis.dbm.open(file, "c", 0o640).close()
    finally:
        os.umask(mask)
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o750


def test_keys_are_bytes_or_text(file: str) -> None:
    with tamis.dbm.open(file, "c") as db:
        db["ä"] = "ö"
        db[bytearray(b"b")] = memoryview(b"2")
        assert db["ä".encode()] == "ö".encode() and "ä" in db and b"b" in db
        assert db.get("none") is None and db.setdefault("new") == b"" and db.setdefault("b", "x") == b"2"
        assert sorted(db) == sorted(db.keys()) and dict(db.items())[b"b"] == b"2"
        for use in (lambda: db.__setitem__(7, b""), lambda: db[7], lambda: 7 in db, lambda: db.__delitem__(7)):
            with pytest.raises(TypeError):
                use()
        with pytest.raises(KeyError):
            del db["none"]
        assert db.pop("b") == b"2"
        db.clear()
        assert db.keys() == []


def test_a_closed_database_raises_its_error(file: str) -> None:
    db = tamis.dbm.open(file, "c")
    db.close()
    db.close()
    for use in (lambda: db["a"], lambda: len(db), lambda: list(db), db.sync, db.clear, lambda: "a" in db, db.__enter__):
        with pytest.raises(tamis.dbm.error):
            use()


def test_an_iterator_raises_its_error_after_a_close(file: str) -> None:
    """It was the engine's own error once, which is no OSError."""
    db = tamis.dbm.open(file, "c")
    db.update({"a": "1", "b": "2"})
    keys = iter(db)
    assert next(keys) == b"a"
    db.close()
    with pytest.raises(tamis.dbm.error):
        next(keys)


def test_a_missing_file_is_named(file: str) -> None:
    """As by the system: programs look at `errno`, and tell users the name."""
    with pytest.raises(tamis.dbm.error) as raised:
        tamis.dbm.open(file)
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, file)
    with pytest.raises(tamis.dbm.error) as raised:
        tamis.dbm.open(os.path.join(file, "in", "none"), "c")
    assert raised.value.errno == errno.ENOENT and raised.value.filename == os.path.join(file, "in", "none")


def test_errors_of_the_engine_are_its_error(file: str) -> None:
    with tamis.dbm.open(file, "c") as db:
        long = "k" * 65_537
        for use in (lambda: db.__setitem__(long, "v"), lambda: db.setdefault(long, "v"), lambda: db.__delitem__(long)):
            with pytest.raises(tamis.dbm.error):
                use()


@pytest.mark.parametrize("writeback", [False, True])
def test_shelve_runs_on_it(file: str, writeback: bool) -> None:
    with shelve.Shelf(tamis.dbm.open(file, "c"), writeback=writeback) as shelf:
        shelf["list"] = [1, 2]
        shelf["dict"] = {"a": (1, None)}
        if writeback:
            shelf["list"].append(3)
        shelf.sync()
        assert "list" in shelf and len(shelf) == 2
    with shelve.Shelf(tamis.dbm.open(file)) as shelf:
        assert dict(shelf) == {"list": [1, 2, 3] if writeback else [1, 2], "dict": {"a": (1, None)}}
