"""An embeddable key-value storage engine: an ordered map on disk, from bytes to bytes.

    >>> import tamis
    >>> with tamis.open("my-data") as db:
    ...     db[b"fr/lyon"] = b"45.75,4.85"
    ...     for key, value in db.items(prefix=b"fr/"):
    ...         print(key, value)

Keys and values are bytes-like objects. A database is a mutable mapping of its default keyspace; the methods that wait for the disk or
for other threads let other Python threads run. Errors are subclasses of `tamis.Error`.

After a fork the child must open databases anew; those of the parent raise ClosedError there. Databases that are still open when the
interpreter exits are closed.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _tamis
from ._errors import (
    ClosedError,
    Conflict,
    Corruption,
    Error,
    Exists,
    InvalidArgument,
    InvalidOption,
    IoError,
    Locked,
    NotFound,
    ReadOnly,
)
from ._figures import Figure, Figures
from ._heatmap import Heatmap
from ._tamis import (
    Batch,
    Database,
    Iterator,
    Keyspace,
    LockTransaction,
    PreparedTransaction,
    Reader,
    Savepoint,
    SharedReadMemory,
    SharedWriteMemory,
    Snapshot,
    TableBuilder,
    Transaction,
    TransactionView,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import DatabaseOptions
    from ._reports import SalvageReport, VerifyReport


_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


@dataclass(frozen=True)
class MergeOperator:
    """A merge operator written in Python.

    ``merge(key, base, operands)`` returns the value of ``key`` after applying all ``operands`` (a list of bytes, oldest first, at least
    one) to ``base``, which is None if the key had no value. ``partial_merge(key, operands)`` returns one operand that is equivalent to
    several, or None if there is none; without it operands pile up until a compaction meets their base.

    The result must not depend on which operands are combined first, and must be the same whenever it is computed: ``name`` is stored
    with the keyspace, and a function that has to change gets a new name. A read for which one raises fails, until it
    no longer does or the key is written again. Background threads call the functions, too.
    """

    name: str
    merge: Callable[[bytes, Optional[bytes], list[bytes]], Union[bytes, bytearray, memoryview]]
    partial_merge: Optional[Callable[[bytes, list[bytes]], Union[bytes, bytearray, memoryview, None]]] = None


_opened: weakref.WeakSet[Database] = weakref.WeakSet()


def open(
    path: _Path,
    *,
    read_only: bool = False,
    merge_operator: Union[str, MergeOperator, None] = None,
    operators: Iterable[MergeOperator] = (),
    shared_read_memory: Optional[SharedReadMemory] = None,
    shared_write_memory: Optional[SharedWriteMemory] = None,
    **options: Unpack[DatabaseOptions],
) -> Database:
    """Open the database in the directory ``path``, and create it if it is not there.

    ``options`` are those of `tamis options`, by their names: of the database (``durability="sync"``, ``cache_bytes=1 << 30``,
    ``create_if_missing=False``), and of the default keyspace and new ones (``bits_per_key=12``, ``filter="ribbon"``). Values are text as
    the engine reads it, or bool, int, float, timedelta, or None for ``none``.

    ``read_only``: change nothing and take no lock; shows the state at this moment, also beside a process that writes.
    ``merge_operator``: that of the default keyspace, the same at every opening, and of new ones: a built-in one by name ("add", "append",
    "max"), or one in Python.
    ``operators``: further ones that keyspaces of the database name in their options.
    ``shared_read_memory``, ``shared_write_memory``: limits for memory that several databases of this process share.

    Raises:
        Locked: if it is open already, in this process or another one.
        NotFound, Exists: if it is not there, or is there, and the options say that it has to be otherwise.
        InvalidOption: for options that do not exist, accept another value, or contradict the stored database.
        Corruption: for damage, with its file and offset.
        IoError: for a failed system call.
    """
    known = list(operators)
    given: dict[str, Any] = dict(options)
    if isinstance(merge_operator, MergeOperator):
        known.append(merge_operator)
        given["merge_operator"] = merge_operator.name
    elif merge_operator is not None:
        given["merge_operator"] = merge_operator
    memory = (shared_read_memory, shared_write_memory)
    db = Database._open(os.fsdecode(path), read_only, known, given, memory)
    _opened.add(db)
    return db


def verify(
    path: _Path, *, operators: Iterable[MergeOperator] = (), **options: Unpack[DatabaseOptions]
) -> VerifyReport:
    """Check the database in ``path`` without its lock and without changing anything, also one that damage keeps from being opened.

    Damage is no exception: it is in the report. Reads every file.
    """
    return _tamis._verify_at(os.fsdecode(path), list(operators), dict(options))


def salvage(
    path: _Path,
    *,
    dry_run: bool = False,
    operators: Iterable[MergeOperator] = (),
    **options: Unpack[DatabaseOptions],
) -> SalvageReport:
    """Restore the damaged database in ``path`` to a consistent state with everything that can still be read.

    No file is removed: those that are no longer part of it are renamed, and the report lists them. ``dry_run``: change nothing, and
    report what would be done. Raises what `open` raises, but not for damage.
    """
    return _tamis._salvage(os.fsdecode(path), dry_run, list(operators), dict(options))


@atexit.register
def _close_all() -> None:
    """Closes what is open while background threads can still run Python code."""
    failed: Optional[Error] = None
    for db in list(_opened):
        try:
            db.close()
        except Error as error:
            failed = error
    if failed is not None:
        raise failed


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tamis._after_fork_in_child)

Mapping.register(Reader)
MutableMapping.register(Keyspace)

__version__ = _tamis.__version__

__all__ = [
    "Batch",
    "ClosedError",
    "Conflict",
    "Corruption",
    "Database",
    "Error",
    "Exists",
    "Figure",
    "Figures",
    "Heatmap",
    "InvalidArgument",
    "InvalidOption",
    "IoError",
    "Iterator",
    "Keyspace",
    "LockTransaction",
    "Locked",
    "MergeOperator",
    "NotFound",
    "PreparedTransaction",
    "ReadOnly",
    "Reader",
    "Savepoint",
    "SharedReadMemory",
    "SharedWriteMemory",
    "Snapshot",
    "TableBuilder",
    "Transaction",
    "TransactionView",
    "open",
    "salvage",
    "verify",
]
