"""The exceptions. ``Error.code`` names the error as every language binding of tamis does."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Any error of the engine. ``code`` is its name in all bindings; the text says what can be done."""

    code: str

    def __init__(self, message: str, code: str = "other") -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (*self.args, self.code))


class ClosedError(Error):
    """The database, or the batch, iterator, snapshot or transaction, has ended."""


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
    """The database was opened read-only, or lacks the operator that its keyspace needs for writing."""


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
        errno: Optional[int] = None,
        filename: Optional[str] = None,
    ) -> None:
        super().__init__(message, code)
        self.errno = errno
        self.filename = filename

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (*self.args, self.code, self.errno, self.filename))


_BY_CODE: dict[str, type[Error]] = {
    "closed": ClosedError,
    "conflict": Conflict,
    "locked": Locked,
    "open_here": Locked,
    "io": IoError,
    "options": InvalidOption,
    "too_long": InvalidArgument,
    "invalid_argument": InvalidArgument,
    "read_only": ReadOnly,
    "not_found": NotFound,
    "exists": Exists,
}


def raised(code: str, message: str, errno: Optional[int], filename: Optional[str]) -> Error:
    """Return the exception for an error of the engine."""
    kind = _BY_CODE.get(code, Error)
    if issubclass(kind, IoError):
        return kind(message, code, errno, filename)
    return kind(message, code)
