"""The interface of the standard library's `dbm`, on a tamis database: for `shelve` and other programs that know it.

    >>> import shelve
    >>> import tamis.dbm
    >>> with shelve.Shelf(tamis.dbm.open("shelf", "c")) as shelf:
    ...     shelf["key"] = {"any": "object"}

Keys and values are bytes; str is encoded as UTF-8. A database is a directory. Everything else that tamis has is in `tamis.open`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, MutableMapping
from typing import Any, Optional, Union

import tamis

__all__ = ["error", "open"]


class error(OSError):
    """What goes wrong in a database, by the name that `dbm` modules give it."""


_Bytes = Union[bytes, bytearray, memoryview, str]


def _error(failed: Exception, path: Optional[str] = None) -> error:
    """Return the error of this module for one of the engine or the system, with `errno` and `filename` where there is a number."""
    number: Optional[int] = getattr(failed, "errno", None)
    if number is None:
        number = next((number for kind, number in _NUMBERS.items() if isinstance(failed, kind)), None)
    if number is None:
        return error(str(failed))
    return error(number, str(failed), getattr(failed, "filename", None) or path)


# What the system would say of a file.
_NUMBERS: dict[type[tamis.Error], int] = {
    tamis.NotFound: errno.ENOENT,
    tamis.ReadOnly: errno.EACCES,
    tamis.Locked: errno.EAGAIN,
}


@contextlib.contextmanager
def _errors(path: Optional[str] = None) -> Iterator[None]:
    try:
        yield
    except error:
        raise
    except (tamis.Error, OSError) as failed:
        raise _error(failed, path) from failed


def _encoded(data: Any) -> Any:
    """Return text as bytes. What is neither is left to the engine to refuse."""
    return data.encode() if isinstance(data, str) else data


class _Database(MutableMapping[Any, bytes]):
    """What `open` returns."""

    def __init__(self, db: tamis.Database) -> None:
        self._db = db

    def _open_db(self) -> tamis.Database:
        if self._db.closed:
            raise error("the database is closed")
        return self._db

    def __getitem__(self, key: _Bytes) -> bytes:
        with _errors():
            return self._open_db()[_encoded(key)]

    def _writable_db(self) -> tamis.Database:
        """What may be written to: otherwise the same error, whether a key exists or not."""
        db = self._open_db()
        if db.read_only:
            raise error(errno.EACCES, "the database was opened read-only", str(db.path))
        return db

    def __setitem__(self, key: _Bytes, value: _Bytes) -> None:
        with _errors():
            self._writable_db()[_encoded(key)] = _encoded(value)

    def __delitem__(self, key: _Bytes) -> None:
        with _errors():
            del self._writable_db()[_encoded(key)]

    def pop(self, key: Any, *default: Any) -> Any:
        """Delete ``key`` and return the value that it had, atomically. Without a value, return ``default`` if given, or raise KeyError."""
        with _errors():
            return self._writable_db().pop(_encoded(key), *default)

    def popitem(self) -> tuple[bytes, bytes]:
        """Delete the first key and return it with its value; raise KeyError if there is none."""
        with _errors():
            return self._writable_db().popitem()

    def __contains__(self, key: object) -> bool:
        with _errors():
            return _encoded(key) in self._open_db()

    def __iter__(self) -> Iterator[bytes]:
        with _errors():
            return self._keys(iter(self._open_db()))

    @staticmethod
    def _keys(keys: Iterator[bytes]) -> Iterator[bytes]:
        with _errors():
            yield from keys

    def __len__(self) -> int:
        """Return the exact number of keys. Costs a scan of all of them."""
        with _errors():
            return len(self._open_db())

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Return the list of all keys, in their order."""
        with _errors():
            return list(self._open_db().keys())

    def setdefault(self, key: _Bytes, default: _Bytes = b"") -> bytes:
        """Set the value of ``key`` to ``default`` if it has none, and return the value that it has then."""
        with _errors():
            return self._writable_db().setdefault(_encoded(key), _encoded(default))

    def clear(self) -> None:
        """Delete all keys, at the cost of one write."""
        with _errors():
            self._writable_db().clear()

    def sync(self) -> None:
        """Make all writes so far durable across a power failure."""
        with _errors():
            if not self._open_db().read_only:
                self._db.sync()

    def close(self) -> None:
        """Close the database; a second call does nothing."""
        with _errors():
            self._db.close()

    def __enter__(self) -> _Database:
        self._open_db()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self.close()


def open(
    file: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]], flag: str = "r", mode: int = 0o666
) -> _Database:
    """Open the database ``file``.

    ``flag``: "r" opens an existing database for reading, "w" for reading and writing; "c" creates it if it is not there; "n" always
    begins with an empty one. An "n" removes a regular file of the name, and all keys of a database. A directory with files of others is
    refused.
    ``mode``: the access bits of a new directory, to which those for searching it are added where reading is permitted.

    Raises:
        error: if the database is not there, is open already, or cannot be opened.
        ValueError: for another flag.
    """
    if flag not in ("r", "w", "c", "n"):
        raise ValueError("flag is one of 'r', 'w', 'c', and 'n'")
    path = os.fsdecode(file)
    with _errors(path):
        if flag in "cn":
            if flag == "n" and os.path.isfile(path):
                os.remove(path)
            if not os.path.lexists(path):
                os.mkdir(path, mode | (mode & 0o444) >> 2)
        db = tamis.open(path, read_only=flag == "r", create_if_missing=flag in "cn")
        if flag == "n":
            db.clear()
            for name in db.keyspaces():
                if name != db.name:
                    db.drop_keyspace(name)
    return _Database(db)
