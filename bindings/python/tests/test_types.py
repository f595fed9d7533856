"""The stubs and the lists of names say what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tamis
from tamis import _options, _tamis


def test_every_option_is_known_to_type_checkers() -> None:
    database, keyspace = (dict((row[0], row) for row in rows) for rows in _tamis._describe_options())
    assert set(_options.KeyspaceOptions.__annotations__) == set(keyspace)
    own = {name for name in database if not name.startswith("keyspace.")}
    # `merge_operator` is a parameter of its own.
    assert set(_options.DatabaseOptions.__annotations__) == own | set(keyspace) - {"merge_operator"}
    assert not own & set(keyspace), "an option of both would be ambiguous"


def test_everything_has_documentation() -> None:
    classes = [tamis._tamis.__dict__[name] for name in dir(_tamis) if isinstance(getattr(_tamis, name), type)]
    assert len(classes) > 10
    for one in classes:
        assert one.__doc__ and one.__module__ == "tamis", one
        for name, member in vars(one).items():
            assert name.startswith("_") or member.__doc__, f"{one.__name__}.{name}"
    assert all(getattr(tamis, name).__doc__ for name in tamis.__all__)


@pytest.mark.parametrize(
    "command",
    [
        ["mypy", "--strict", "-p", "tamis"],
        ["mypy", "--strict", str(Path(__file__).parent / "typed_sample.py")],
        ["mypy.stubtest", "tamis", "--ignore-disjoint-bases"],
    ],
    ids=["package", "sample", "stubs"],
)
def test_types_hold(command: list[str], tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    if command[0] == "mypy.stubtest" and sys.version_info < (3, 10):
        pytest.skip("stubtest compares with the standard library of Python 3.10 and later")
    run = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
