"""tamis for asyncio: the same methods as coroutines, run by threads.

    >>> import tamis.aio
    >>> async with await tamis.aio.open("my-data") as db:
    ...     await db.put(b"key", b"value")
    ...     async for key, value in db.items(prefix=b"k"):
    ...         print(key, value)

Calls of the engine block; here each of them goes to a thread of the event loop's default executor, which it releases the interpreter
in. A call costs some ten microseconds more than the plain one, so that many small reads are better made together: `multi_get`, `items`,
or one function for `call`. Cancelling a coroutine does not stop the call that a thread has begun; of an iteration nothing is lost by it: the
next step has what the thread has fetched.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Optional, TypeVar, Union

import tamis

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self, Unpack

    from ._options import KeyspaceOptions
    from ._reports import (
        Explanation,
        IngestReport,
        KeyspaceStats,
        SalvageReport,
        SegmentStats,
        Stats,
        TableStats,
        VerifyReport,
    )

__all__ = [
    "Database",
    "Keyspace",
    "LockTransaction",
    "PreparedTransaction",
    "Reader",
    "Snapshot",
    "Transaction",
    "TransactionView",
    "open",
    "salvage",
    "verify",
]

_T = TypeVar("_T")
_Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
_File = Union[str, "os.PathLike[str]"]

# The items that one call of a thread fetches, at most.
_GROUP = 256


class _Stream(AsyncIterator[_T]):
    """An iteration, fetched in groups that grow. A step that is cancelled takes nothing with it: the fetch goes on in its thread, and the
    next step waits for it."""

    def __init__(self, make: Callable[[], tamis.Iterator[_T]]) -> None:
        self._make = make
        self._iterator: Optional[tamis.Iterator[_T]] = None
        self._group = 1
        self._items: deque[_T] = deque()
        self._fetch: Optional[asyncio.Future[list[_T]]] = None
        self._ended = False

    def _next_group(self) -> list[_T]:
        if self._iterator is None:
            self._iterator = self._make()
        items = list(islice(self._iterator, self._group))
        self._group = min(2 * self._group, _GROUP)
        return items

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            if self._fetch is None:
                self._fetch = asyncio.ensure_future(asyncio.to_thread(self._next_group))
            fetch = self._fetch
            await asyncio.wait([fetch])
            # Of several tasks that waited, the first one takes what came.
            if self._fetch is fetch:
                self._fetch = None
                self._ended = fetch.cancelled() or fetch.exception() is not None
                items = fetch.result()
                self._ended = not items
                self._items.extend(items)
        return self._items.popleft()

    async def aclose(self) -> None:
        """End the iteration, and give up what it keeps alive."""
        self._ended = True
        self._items.clear()
        if self._fetch is not None:
            await asyncio.wait([self._fetch])
        if self._iterator is not None:
            await asyncio.to_thread(self._iterator.close)


class _Begins(Generic[_T]):
    """What a thread begins, to be awaited or for ``async with``."""

    def __init__(self, begin: Callable[[], _T]) -> None:
        self._begin = begin
        self._begun: Any = None

    def __await__(self) -> Generator[Any, None, _T]:
        return asyncio.to_thread(self._begin).__await__()

    async def __aenter__(self) -> _T:
        self._begun = await asyncio.to_thread(self._begin)
        return await self._begun.__aenter__()  # type: ignore[no-any-return]

    async def __aexit__(self, *exc_info: object) -> None:
        await self._begun.__aexit__(*exc_info)


class Reader:
    """What can be read: see `tamis.Reader`. ``plain`` is the object behind it, for calls that need not be awaited."""

    def __init__(self, plain: tamis.Reader) -> None:
        self.plain = plain

    @property
    def name(self) -> str:
        """The keyspace's name."""
        return self.plain.name

    async def get(self, key: Buffer, default: Optional[bytes] = None) -> Optional[bytes]:
        """Return the value of ``key``, or ``default`` if it has none."""
        value = await asyncio.to_thread(self.plain.get, key)
        return default if value is None else value

    async def contains(self, key: Buffer) -> bool:
        """Report whether ``key`` has a value."""
        return await asyncio.to_thread(self.plain.__contains__, key)

    async def multi_get(self, keys: Iterable[Buffer]) -> list[Optional[bytes]]:
        """Return the values of several keys in their order; None for keys that have none."""
        return await asyncio.to_thread(self.plain.multi_get, keys)

    async def first(self) -> Optional[tuple[bytes, bytes]]:
        """Return the first key and its value; None if there is none."""
        return await asyncio.to_thread(self.plain.first)

    async def last(self) -> Optional[tuple[bytes, bytes]]:
        """Return the last key and its value; None if there is none."""
        return await asyncio.to_thread(self.plain.last)

    async def count(self) -> int:
        """Return the exact number of keys. Costs a scan of all of them."""
        return await asyncio.to_thread(self.plain.__len__)

    def items(
        self,
        prefix: Optional[Buffer] = None,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        **flags: bool,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Return an iterator over pairs of key and value, as `tamis.Reader.items` does."""
        return _Stream(lambda: self.plain.items(prefix, start, stop, **flags))

    def keys(
        self,
        prefix: Optional[Buffer] = None,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        **flags: bool,
    ) -> AsyncIterator[bytes]:
        """Return an iterator over keys; arguments as for `items`."""
        return _Stream(lambda: self.plain.keys(prefix, start, stop, **flags))

    def values(
        self,
        prefix: Optional[Buffer] = None,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        **flags: bool,
    ) -> AsyncIterator[bytes]:
        """Return an iterator over values; arguments as for `items`."""
        return _Stream(lambda: self.plain.values(prefix, start, stop, **flags))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys()


class Snapshot(Reader):
    """See `tamis.Snapshot`."""

    plain: tamis.Snapshot

    @property
    def seq(self) -> int:
        """The sequence number of the last write that the snapshot sees."""
        return self.plain.seq

    def keyspace(self, keyspace: Keyspace) -> Reader:
        """Return ``keyspace`` as of this snapshot."""
        return Reader(self.plain.keyspace(keyspace.plain))

    async def close(self) -> None:
        """Release what the snapshot keeps."""
        await asyncio.to_thread(self.plain.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()


class _Batch:
    """A batch in an ``async with`` block; its methods are those of `tamis.Batch`, and wait for nothing."""

    def __init__(self, batch: tamis.Batch) -> None:
        self._batch = batch

    async def __aenter__(self) -> tamis.Batch:
        return self._batch

    async def __aexit__(self, exc_type: Optional[type[BaseException]], *_exc_info: object) -> None:
        await asyncio.to_thread(self._batch.__exit__, exc_type)


class Keyspace(Reader):
    """See `tamis.Keyspace`."""

    plain: tamis.Keyspace

    async def put(self, key: Buffer, value: Buffer, *, durability: Optional[str] = None) -> None:
        """Set the value of ``key``."""
        await asyncio.to_thread(self.plain.put, key, value, durability=durability)

    async def delete(self, key: Buffer, *, durability: Optional[str] = None) -> None:
        """Delete ``key``; one that has no value may be deleted."""
        await asyncio.to_thread(self.plain.delete, key, durability=durability)

    async def merge(self, key: Buffer, operand: Buffer, *, durability: Optional[str] = None) -> None:
        """Apply ``operand`` to the value of ``key`` with the keyspace's merge operator."""
        await asyncio.to_thread(self.plain.merge, key, operand, durability=durability)

    async def write_all(
        self,
        pairs: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        durability: Optional[str] = None,
    ) -> None:
        """Write all pairs of a mapping, or of an iterable of pairs, in one batch."""
        await asyncio.to_thread(lambda: self.plain.update(pairs, durability=durability))

    async def update(
        self, key: Buffer, function: Callable[[Optional[bytes]], Optional[Buffer]]
    ) -> Optional[bytes]:
        """Replace the value of ``key`` by what ``function`` makes of it, in a thread; see `tamis.Keyspace.update`."""
        return await asyncio.to_thread(lambda: self.plain.update(key, function))

    async def popitem(self) -> tuple[bytes, bytes]:
        """Delete the first key, atomically, and return it with its value; raise KeyError if there is none."""
        return await asyncio.to_thread(self.plain.popitem)

    async def take(self, key: Buffer) -> Optional[bytes]:
        """Delete ``key`` and return the value that it had, atomically."""
        return await asyncio.to_thread(self.plain.take, key)

    async def setdefault(self, key: Buffer, default: Buffer) -> bytes:
        """Set the value of ``key`` to ``default`` if it has none, and return the value that it has then."""
        return await asyncio.to_thread(self.plain.setdefault, key, default)

    async def compare_and_swap(self, key: Buffer, expected: Optional[Buffer], new: Optional[Buffer]) -> bool:
        """Set the value of ``key`` to ``new`` if it is ``expected``. Report whether it was."""
        return await asyncio.to_thread(self.plain.compare_and_swap, key, expected, new)

    async def increment(self, key: Buffer, by: int = 1) -> int:
        """Add ``by`` to the number under ``key``, and return the sum."""
        return await asyncio.to_thread(self.plain.increment, key, by)

    async def delete_range(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        include_start: bool = True,
        include_stop: bool = False,
        durability: Optional[str] = None,
    ) -> None:
        """Delete all keys from ``start`` on and before ``stop``."""
        await asyncio.to_thread(
            self.plain.delete_range,
            start,
            stop,
            include_start=include_start,
            include_stop=include_stop,
            durability=durability,
        )

    async def delete_prefix(self, prefix: Buffer, *, durability: Optional[str] = None) -> None:
        """Delete all keys that begin with ``prefix``."""
        await asyncio.to_thread(self.plain.delete_prefix, prefix, durability=durability)

    async def clear(self) -> None:
        """Delete all keys."""
        await asyncio.to_thread(self.plain.clear)

    def batch(self, *, durability: Optional[str] = None) -> _Batch:
        """Return a batch for ``async with``, which is committed at the end of the block."""
        return _Batch(self.plain.batch(durability=durability))

    async def flush(self) -> None:
        """Write the memtables to tables."""
        await asyncio.to_thread(self.plain.flush)

    async def compact(self) -> None:
        """Merge all tables into the last level."""
        await asyncio.to_thread(self.plain.compact)

    async def compact_range(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        include_start: bool = True,
        include_stop: bool = False,
    ) -> None:
        """Merge the tables that hold keys from ``start`` on and before ``stop`` into the last level."""
        await asyncio.to_thread(
            self.plain.compact_range, start, stop, include_start=include_start, include_stop=include_stop
        )

    async def approximate_len(
        self, prefix: Optional[Buffer] = None, start: Optional[Buffer] = None, stop: Optional[Buffer] = None
    ) -> int:
        """Estimate the number of keys in a range; see `tamis.Keyspace.approximate_len`."""
        return await asyncio.to_thread(self.plain.approximate_len, prefix, start, stop)

    async def approximate_size(
        self, prefix: Optional[Buffer] = None, start: Optional[Buffer] = None, stop: Optional[Buffer] = None
    ) -> int:
        """Estimate the bytes that a range takes in tables."""
        return await asyncio.to_thread(self.plain.approximate_size, prefix, start, stop)

    async def ingest(self, files: Sequence[_File], *, move_files: bool = False, verify: bool = True) -> IngestReport:
        """Make tables that `tamis.TableBuilder` built part of the keyspace; see `tamis.Keyspace.ingest`."""
        return await asyncio.to_thread(self.plain.ingest, files, move_files=move_files, verify=verify)

    async def keyspace_stats(self) -> KeyspaceStats:
        """Return the keyspace's statistics."""
        return await asyncio.to_thread(self.plain.keyspace_stats)

    async def tables(self) -> list[TableStats]:
        """Return the tables on disk, by level, run and key."""
        return await asyncio.to_thread(self.plain.tables)

    @property
    def options(self) -> dict[str, str]:
        """The options in force, as their names and texts."""
        return self.plain.options

    async def set_options(self, **options: Unpack[KeyspaceOptions]) -> None:
        """Change options of the open keyspace, all or none; see `tamis.Keyspace.set_options`."""
        await asyncio.to_thread(lambda: self.plain.set_options(**options))

    async def explain(self, key: Buffer) -> Explanation:
        """Return the path of a read of ``key``."""
        return await asyncio.to_thread(self.plain.explain, key)

    async def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call ``function(keyspace, *arguments)`` in a thread, with the plain keyspace: for several operations in one go."""
        return await asyncio.to_thread(function, self.plain, *arguments)


class TransactionView(Reader):
    """See `tamis.TransactionView`."""

    plain: tamis.TransactionView

    async def put(self, key: Buffer, value: Buffer) -> None:
        """Set the value of ``key``."""
        await asyncio.to_thread(self.plain.put, key, value)

    async def delete(self, key: Buffer) -> None:
        """Delete ``key``; one that has no value may be deleted."""
        await asyncio.to_thread(self.plain.delete, key)

    async def merge(self, key: Buffer, operand: Buffer) -> None:
        """Apply ``operand`` to the value of ``key`` with the keyspace's merge operator."""
        await asyncio.to_thread(self.plain.merge, key, operand)

    async def delete_range(
        self,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        *,
        include_start: bool = True,
        include_stop: bool = False,
    ) -> None:
        """Delete all keys from ``start`` on and before ``stop``."""
        await asyncio.to_thread(
            self.plain.delete_range, start, stop, include_start=include_start, include_stop=include_stop
        )

    async def delete_prefix(self, prefix: Buffer) -> None:
        """Delete all keys that begin with ``prefix``."""
        await asyncio.to_thread(self.plain.delete_prefix, prefix)


class Transaction(TransactionView):
    """See `tamis.Transaction`. In an ``async with`` block it commits at the end, and is rolled back by an exception."""

    plain: tamis.Transaction

    def keyspace(self, keyspace: Keyspace) -> TransactionView:
        """Return ``keyspace`` as this transaction sees and changes it."""
        return TransactionView(self.plain.keyspace(keyspace.plain))

    async def commit(self) -> int:
        """Commit, and return the sequence number of the commit."""
        return await asyncio.to_thread(self.plain.commit)

    async def rollback(self) -> None:
        """Forget all writes, and end."""
        await asyncio.to_thread(self.plain.rollback)

    async def savepoint(self) -> tamis.Savepoint:
        """Return a point to come back to."""
        return await asyncio.to_thread(self.plain.savepoint)

    async def rollback_to(self, savepoint: tamis.Savepoint) -> None:
        """Undo all writes since a savepoint."""
        await asyncio.to_thread(self.plain.rollback_to, savepoint)

    async def ended(self) -> bool:
        """Report whether the transaction has ended."""
        return await asyncio.to_thread(lambda: self.plain.ended)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: Optional[type[BaseException]], *_exc_info: object) -> None:
        await asyncio.to_thread(self.plain.__exit__, exc_type)


class LockTransaction(Transaction):
    """See `tamis.LockTransaction`. Waits for locks are a thread's."""

    plain: tamis.LockTransaction

    async def get_for_update(self, key: Buffer, *, keyspace: Optional[Keyspace] = None) -> Optional[bytes]:
        """Return the value of ``key``, and lock it against readers as well as writers."""
        within = None if keyspace is None else keyspace.plain
        return await asyncio.to_thread(lambda: self.plain.get_for_update(key, keyspace=within))

    async def number(self) -> int:
        """Return the transaction's number, by which errors name it."""
        return await asyncio.to_thread(lambda: self.plain.number)

    async def prepare(self, name: Buffer) -> PreparedTransaction:
        """Store its writes durably under ``name``, as the first phase of a two-phase commit. It ends."""
        return PreparedTransaction(await asyncio.to_thread(self.plain.prepare, name))


class PreparedTransaction:
    """See `tamis.PreparedTransaction`."""

    def __init__(self, plain: tamis.PreparedTransaction) -> None:
        self.plain = plain

    @property
    def name(self) -> bytes:
        """The name under which it was prepared."""
        return self.plain.name

    async def commit(self) -> None:
        """Make its writes visible and durable."""
        await asyncio.to_thread(self.plain.commit)

    async def abort(self) -> None:
        """Forget its writes."""
        await asyncio.to_thread(self.plain.abort)


class Database(Keyspace):
    """See `tamis.Database`."""

    plain: tamis.Database

    async def close(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self.plain.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def keyspace(self, name: str, *, create: bool = False, **options: Unpack[KeyspaceOptions]) -> Keyspace:
        """Return the keyspace ``name``; see `tamis.Database.keyspace`."""
        return Keyspace(await asyncio.to_thread(lambda: self.plain.keyspace(name, create=create, **options)))

    async def create_keyspace(self, name: str, **options: Unpack[KeyspaceOptions]) -> Keyspace:
        """Create the keyspace ``name``."""
        return Keyspace(await asyncio.to_thread(lambda: self.plain.create_keyspace(name, **options)))

    async def keyspaces(self) -> list[str]:
        """Return the names of all keyspaces, in the order of their creation."""
        return await asyncio.to_thread(self.plain.keyspaces)

    async def rename_keyspace(self, name: str, new_name: str) -> None:
        """Rename the keyspace ``name``."""
        await asyncio.to_thread(self.plain.rename_keyspace, name, new_name)

    async def drop_keyspace(self, name: str) -> None:
        """Drop the keyspace ``name`` with all its keys."""
        await asyncio.to_thread(self.plain.drop_keyspace, name)

    async def snapshot(self) -> Snapshot:
        """Return a snapshot of all keyspaces as of now."""
        return Snapshot(await asyncio.to_thread(self.plain.snapshot))

    async def transact(self, function: Callable[[tamis.Transaction], _T], **options: Any) -> _T:
        """Call ``function`` in a thread with a transaction, and commit it; see `tamis.Database.transact`."""
        return await asyncio.to_thread(lambda: self.plain.transact(function, **options))

    def transaction(
        self,
        *,
        isolation: Literal["serializable", "snapshot"] = "serializable",
        durability: Optional[str] = None,
    ) -> _Begins[Transaction]:
        """Begin an optimistic transaction: ``async with db.transaction() as tx``, or ``tx = await db.transaction()``."""
        return _Begins(lambda: Transaction(self.plain.transaction(isolation=isolation, durability=durability)))

    def lock_transaction(
        self, *, timeout: float = 1.0, durability: Optional[str] = None
    ) -> _Begins[LockTransaction]:
        """Begin a transaction that locks what it reads and writes, as `transaction` begins one."""
        return _Begins(
            lambda: LockTransaction(self.plain.lock_transaction(timeout=timeout, durability=durability))
        )

    async def prepared_transactions(self) -> list[PreparedTransaction]:
        """Return the transactions that were prepared and not ended, also those of before a crash."""
        return [PreparedTransaction(one) for one in await asyncio.to_thread(self.plain.prepared_transactions)]

    async def sync(self) -> None:
        """Make every write acknowledged so far durable across a power failure."""
        await asyncio.to_thread(self.plain.sync)

    async def wait_for_compaction(self) -> None:
        """Wait until background work has nothing left to do."""
        await asyncio.to_thread(self.plain.wait_for_compaction)

    async def checkpoint(self, path: _File) -> None:
        """Make a copy of the database in the new directory ``path``."""
        await asyncio.to_thread(self.plain.checkpoint, path)

    async def verify(self) -> VerifyReport:
        """Read every file and check all of it."""
        return await asyncio.to_thread(self.plain.verify)

    async def stats(self) -> Stats:
        """Return the database's statistics."""
        return await asyncio.to_thread(self.plain.stats)

    async def segments(self) -> list[SegmentStats]:
        """Return the segments of elastic filters."""
        return await asyncio.to_thread(self.plain.segments)

    async def heatmap(
        self,
        *,
        keyspace: Optional[str] = None,
        by: Literal["data", "key"] = "data",
        what: Literal["hotness", "asked"] = "hotness",
        hex: bool = False,
    ) -> tamis.Heatmap:
        """Return a picture of where gets of absent keys go; see `tamis.Database.heatmap`."""
        return await asyncio.to_thread(self.plain.heatmap, keyspace=keyspace, by=by, what=what, hex=hex)

    @property
    def database_options(self) -> dict[str, str]:
        """The options of the database, as their names and texts."""
        return self.plain.database_options

    @property
    def path(self) -> Path:
        """The database's directory."""
        return self.plain.path

    @property
    def closed(self) -> bool:
        """Whether the database was closed."""
        return self.plain.closed

    @property
    def read_only(self) -> bool:
        """Whether it was opened read-only."""
        return self.plain.read_only


async def open(path: _Path, **options: Any) -> Database:
    """Open a database in a thread; arguments and errors are those of `tamis.open`."""
    return Database(await asyncio.to_thread(lambda: tamis.open(path, **options)))


async def verify(path: _Path, **options: Any) -> VerifyReport:
    """Check a database that need not be open; see `tamis.verify`."""
    return await asyncio.to_thread(lambda: tamis.verify(path, **options))


async def salvage(path: _Path, *, dry_run: bool = False, **options: Any) -> SalvageReport:
    """Restore a damaged database; see `tamis.salvage`."""
    return await asyncio.to_thread(lambda: tamis.salvage(path, dry_run=dry_run, **options))
