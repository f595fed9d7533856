"""The exceptions. ``Error.code`` names the error as every language binding of tamis does."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Any error of the engine. The text says what can be done."""

    #: The kind of the error, by its name in all languages: "conflict", "locked", "corrupt", …
    code: str
    #: The key concerned, of a Conflict and of "merge".
    key: Optional[bytes]
    #: The name of the keyspace concerned, where the error has one.
    keyspace: Optional[str]

    def __init__(
        self, message: str, code: str = "other", key: Optional[bytes] = None, keyspace: Optional[str] = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.key = key
        self.keyspace = keyspace

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.code, self.key, self.keyspace))


class ClosedError(Error):
    """The database is closed, or what was called has ended: a batch, iterator, snapshot or transaction, or a keyspace was dropped."""


class Conflict(Error):
    """Somebody else has written or locked what a transaction depends on. Nothing was committed; another attempt may succeed."""


class Locked(Error):
    """The database is open already, in this process or another one."""


class Corruption(Error):
    """Bytes on disk differ from what was written."""


class NotFound(Error, LookupError):
    """There is no database, or no keyspace, of that name."""


class Exists(Error):
    """There is one of that name already."""


class ReadOnly(Error):
    """The database was opened read-only."""


class InvalidArgument(Error, ValueError):
    """A key or value that is too long, a reversed range, a bad name."""


class InvalidOption(InvalidArgument):
    """An option that does not exist, or a value that it does not accept."""


class IoError(Error, OSError):
    """A system call failed. ``errno`` and ``filename`` are set where they are known."""

    def __init__(
        self,
        message: str,
        code: str = "io",
        key: Optional[bytes] = None,
        keyspace: Optional[str] = None,
        errno: Optional[int] = None,
        filename: Optional[str] = None,
    ) -> None:
        super().__init__(message, code, key, keyspace)
        self.errno = errno
        self.filename = filename

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.code, self.key, self.keyspace, self.errno, self.filename))


_BY_CODE: dict[str, type[Error]] = {
    "invalid-argument": InvalidArgument,
    "closed": ClosedError,
    "ended": ClosedError,
    "forked": ClosedError,
    "no-database": NotFound,
    "database-exists": Exists,
    "not-empty": Exists,
    "locked": Locked,
    "open-here": Locked,
    "incompatible": InvalidOption,
    "unregistered-operator": InvalidOption,
    "unknown-option": InvalidOption,
    "invalid-option": InvalidOption,
    "fixed-option": InvalidOption,
    "io": IoError,
    "no-space": IoError,
    "suspended": IoError,
    "corrupt": Corruption,
    "key-too-long": InvalidArgument,
    "value-too-long": InvalidArgument,
    "reversed-range": InvalidArgument,
    "read-only": ReadOnly,
    "foreign-keyspace": InvalidArgument,
    "no-merge-operator": InvalidArgument,
    "dropped": ClosedError,
    "keyspace-exists": Exists,
    "no-keyspace": NotFound,
    "bad-name": InvalidArgument,
    "default-keyspace": InvalidArgument,
    "conflict": Conflict,
    "too-old": Conflict,
    "lock-timeout": Conflict,
    "deadlock": Conflict,
    "no-savepoint": InvalidArgument,
    "prepared-exists": Exists,
    "not-prepared": ClosedError,
    "target-exists": Exists,
    "out-of-order": InvalidArgument,
    "empty-table": InvalidArgument,
    "not-a-table": InvalidArgument,
    "overlap": InvalidArgument,
}


def raised(
    code: str,
    message: str,
    key: Optional[bytes],
    keyspace: Optional[str],
    errno: Optional[int],
    filename: Optional[str],
) -> Error:
    """Return the exception for an error of the engine. Codes without a class of their own are Errors."""
    kind = _BY_CODE.get(code, Error)
    if issubclass(kind, IoError):
        return kind(message, code, key, keyspace, errno, filename)
    return kind(message, code, key, keyspace)


# Their names in programs and tracebacks.
for _class in {Error, *_BY_CODE.values()}:
    _class.__module__ = "tamis"
