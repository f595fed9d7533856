"""Statistics, explanations, maintenance."""

from __future__ import annotations

import dataclasses
import json

import pytest

import tamis
from tamis import _reports


def test_statistics_are_frozen_dataclasses_all_the_way_down(db: tamis.Database) -> None:
    db.update((b"\xff%03d\\\n" % n, b"v" * 100) for n in range(1000))
    db.flush()
    db[b"k"] = b"v"
    db.get(b"absent")
    stats = db.stats()
    assert stats.write.flushes == 1 and stats.read.gets == 1 and stats.warnings == ()
    (keyspace,) = stats.keyspaces
    assert keyspace == db.keyspace_stats() and (keyspace.name, keyspace.entries) == ("default", 1000)
    (run,) = keyspace.levels[0].runs
    assert (run.smallest, run.largest) == (b"\xff000\\\n", b"\xff999\\\n")
    (table,) = db.tables()
    assert table.smallest == run.smallest and table.largest == (run.largest, True) and table.run == run.run
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.read = None
    assert hash(stats.read) == hash(db.stats().read)
    assert json.dumps(dataclasses.asdict(stats.write))


def test_an_explanation_names_the_steps_of_a_read(db: tamis.Database) -> None:
    db[b"\0k"] = b"value"
    db.flush()
    explanation = db.explain(b"\0k")
    assert explanation.key == b"\0k" and explanation.cost.block_reads == 1
    assert (explanation.outcome.kind, explanation.outcome.value_bytes) == ("found", 5)
    (run,) = explanation.steps
    assert (run.kind, run.found, run.level, run.filter) == ("run", True, 0, "maybe")
    assert run.block is not None and run.block.bytes > 0
    db[b"\0k"] = b"again"
    (memtable,) = db.explain(b"\0k").steps
    assert (memtable.kind, memtable.found, memtable.active, memtable.level) == ("memtable", True, True, None)
    absent = db.explain(b"none")
    assert absent.outcome.kind == "absent" and absent.steps[-1].filter in ("no", "not_asked")


def test_reports_know_every_field_of_the_engine(db: tamis.Database, path, monkeypatch) -> None:
    """Fields that only a newer engine has are ignored; that this one has none of them is checked here."""
    seen = []

    def noting(kind, values):
        seen.append((kind, set(values)))
        return report(kind, values)

    report = _reports._report
    monkeypatch.setattr(_reports, "_report", noting)
    db[b"k"] = b"v"
    db.flush()
    with db.snapshot():
        db.stats(), db.tables(), db.explain(b"k"), db.verify()
    db.close()
    tamis.verify(path), tamis.salvage(path, dry_run=True)
    assert len({kind for kind, _ in seen}) > 10
    optional = {_reports.ExplainStep, _reports.ExplainOutcome}
    for kind, names in seen:
        fields = {field.name for field in dataclasses.fields(kind)}
        assert names <= fields and (kind in optional or names == fields), kind


def test_unknown_fields_are_ignored_and_escapes_undone() -> None:
    text = json.dumps({"file": "a", "keyspace": "", "kind": "new", "entries": 1, "problems": [], "later": {"x": 1}})
    assert _reports.load("VerifiedFile", text).kind == "new"
    for data in (b"", b"plain", b"\\x00", b"\0\t\n\r\xff\x7f", "é\x85".encode(), bytes(range(256))):
        escaped = data.decode("utf-8", "surrogateescape").replace("\\", "\\\\")
        escaped = escaped.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
        escaped = "".join(f"\\x{ord(c) & 255:02x}" if ord(c) < 32 or 0xDC80 <= ord(c) <= 0xDCFF else c for c in escaped)
        assert _reports._unescaped(escaped) == data


def test_a_checkpoint_is_a_database_of_its_own(db: tamis.Database, tmp_path) -> None:
    db[b"a"] = b"1"
    db.checkpoint(tmp_path / "copy")
    db[b"a"] = b"2"
    with tamis.open(tmp_path / "copy") as copy:
        assert copy[b"a"] == b"1"
    with pytest.raises(tamis.Exists) as failed:
        db.checkpoint(tmp_path / "copy")
    assert failed.value.code == "target-exists"


def test_verification_lists_every_file_and_finds_damage(db: tamis.Database, path) -> None:
    db.update((b"%d" % n, b"v" * 100) for n in range(1000))
    db.flush()
    db.sync()
    report = db.verify()
    assert report.problems == () and report.tables == 1 and {file.kind for file in report.files} >= {"table", "log"}
    db.close()
    table = next(path.glob("*.tam"))
    data = bytearray(table.read_bytes())
    data[100] ^= 1
    table.write_bytes(data)
    report = tamis.verify(path)
    assert any(table.name in problem for problem in report.problems) and report.unopenable is None


def test_salvage_restores_what_can_be_read(path) -> None:
    with tamis.open(path) as db:
        db.update((b"%d" % n, b"v" * 100) for n in range(1000))
        db.flush()
    next(path.glob("MANIFEST-*")).unlink()
    with pytest.raises(tamis.Error):
        tamis.open(path)
    plan = tamis.salvage(path, dry_run=True)
    assert plan.dry_run and plan.moved == ()
    report = tamis.salvage(path)
    assert "CURRENT" in dict(report.moved) and all((path / kept).exists() for _, kept in report.moved)
    assert report.rebuilt and report.entries_kept == 1000 and report.tables[0].fate
    with tamis.open(path) as db:
        assert len(db) == 1000


def test_tables_built_outside_are_ingested(db: tamis.Database, tmp_path) -> None:
    db.update({b"a": b"old", b"b": b"old", b"c": b"old"})
    with tamis.TableBuilder(tmp_path / "one", compression="lz4") as table:
        table.put(b"a", b"new")
        table.delete(b"b")
        assert len(table) == 2
    table = tamis.TableBuilder(tmp_path / "two")
    table.delete_range(b"c", b"d")
    table.put(b"x", b"new")
    info = table.finish()
    assert (info.entries, info.range_deletes, info.smallest, info.path) == (1, 1, b"c", tmp_path / "two")
    report = db.ingest([tmp_path / "one", tmp_path / "two"], move_files=True)
    assert report.entries >= 3 and {table.source for table in report.tables} == {tmp_path / "one", tmp_path / "two"}
    assert dict(db) == {b"a": b"new", b"x": b"new"} and not (tmp_path / "one").exists()


def test_tables_that_cannot_be_built_leave_no_file(db: tamis.Database, tmp_path) -> None:
    with pytest.raises(tamis.InvalidArgument) as failed:
        with tamis.TableBuilder(tmp_path / "table") as table:
            table.put(b"b", b"")
            table.put(b"a", b"")
    assert failed.value.code == "out-of-order" and not (tmp_path / "table").exists()
    with pytest.raises(tamis.ClosedError):
        table.put(b"c", b"")
    with pytest.raises(tamis.InvalidArgument) as failed:
        tamis.TableBuilder(tmp_path / "table").finish()
    assert failed.value.code == "empty-table"
    (tmp_path / "table").write_bytes(b"none")
    with pytest.raises(tamis.Exists):
        tamis.TableBuilder(tmp_path / "table")
    with pytest.raises(tamis.InvalidArgument) as failed:
        db.ingest([tmp_path / "table"])
    assert failed.value.code == "not-a-table"


def test_databases_share_memory(tmp_path) -> None:
    reads, writes = tamis.SharedReadMemory(96 << 20), tamis.SharedWriteMemory(64 << 20)

    def sharing(name: str) -> tamis.Database:
        return tamis.open(tmp_path / name, shared_read_memory=reads, shared_write_memory=writes)

    with sharing("one") as one, sharing("two") as two:
        one[b"k"] = b"v"
        assert [member.path for member in reads.members()] == [tmp_path / "one", tmp_path / "two"]
        assert two.stats().read_memory_bytes == 48 << 20
        assert two.stats().read_memory_bytes == reads.members()[1].bytes
        used = writes.members()
        assert used[0].active_bytes > used[1].active_bytes >= 0 and used[0].sealed_bytes == 0
        reads.bytes, writes.bytes = 24 << 20, 8 << 20
        assert one.stats().read_memory_bytes == 12 << 20 and writes.bytes == 8 << 20
        with pytest.raises(tamis.InvalidOption):
            tamis.open(tmp_path / "three", shared_read_memory=reads, cache_bytes=1 << 20)
        with pytest.raises(TypeError):
            tamis.open(tmp_path / "three", shared_read_memory=1 << 20)
    assert reads.members() == writes.members() == []
    for bytes in (-1, 1 << 64, "1 MiB"):
        with pytest.raises((OverflowError, TypeError)):
            tamis.SharedWriteMemory(bytes)
