from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tamis


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def db(path: Path) -> Iterator[tamis.Database]:
    with tamis.open(path) as db:
        yield db
