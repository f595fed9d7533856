"""tamis for asyncio: the same methods as coroutines, run by threads.

    >>> import tamis.aio
    >>> async with await tamis.aio.open("my-data") as db:
    ...     await db.put(b"key", b"value")
    ...     async for key, value in db.items(prefix=b"k"):
    ...         print(key, value)

Calls of the engine block; here each of them goes to a thread of the event loop's default executor, which it releases the interpreter
in. A call costs some ten microseconds more than the plain one, so that many small reads are better made together: `multi_get`, `items`,
or one function for `call`. Cancelling a coroutine does not stop the call that a thread has begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union

import tamis

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self, Unpack

    from ._options import KeyspaceOptions
    from ._reports import Explanation, Stats, VerifyReport

__all__ = ["Database", "Keyspace", "Reader", "Snapshot", "open"]

_T = TypeVar("_T")

# The items that one call of a thread fetches, at most.
_GROUP = 256


async def _stream(make: Callable[[], tamis.Iterator[_T]]) -> AsyncIterator[_T]:
    iterator = await asyncio.to_thread(make)
    group = 1
    while items := await asyncio.to_thread(lambda: list(islice(iterator, group))):
        for item in items:
            yield item
        group = min(2 * group, _GROUP)


class Reader:
    """What can be read: see `tamis.Reader`. ``sync`` is the object behind it, for calls that need not be awaited."""

    def __init__(self, sync: tamis.Reader) -> None:
        self.sync = sync

    async def get(self, key: Buffer, default: Optional[bytes] = None) -> Optional[bytes]:
        """Return the value of ``key``, or ``default`` if it has none."""
        value = await asyncio.to_thread(self.sync.get, key)
        return default if value is None else value

    async def contains(self, key: Buffer) -> bool:
        """Report whether ``key`` has a value."""
        return await asyncio.to_thread(self.sync.__contains__, key)

    async def multi_get(self, keys: Iterable[Buffer]) -> list[Optional[bytes]]:
        """Return the values of several keys in their order; None for keys that have none."""
        return await asyncio.to_thread(self.sync.multi_get, keys)

    async def first(self) -> Optional[tuple[bytes, bytes]]:
        """Return the first key and its value; None if there is none."""
        return await asyncio.to_thread(self.sync.first)

    async def last(self) -> Optional[tuple[bytes, bytes]]:
        """Return the last key and its value; None if there is none."""
        return await asyncio.to_thread(self.sync.last)

    async def count(self) -> int:
        """Return the exact number of keys. Costs a scan of all of them."""
        return await asyncio.to_thread(self.sync.__len__)

    def items(
        self,
        prefix: Optional[Buffer] = None,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        **flags: bool,
    ) -> AsyncIterator[tuple[bytes, bytes]]:
        """Return an iterator over pairs of key and value, as `tamis.Reader.items` does."""
        return _stream(lambda: self.sync.items(prefix, start, stop, **flags))

    def keys(
        self,
        prefix: Optional[Buffer] = None,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        **flags: bool,
    ) -> AsyncIterator[bytes]:
        """Return an iterator over keys; arguments as for `items`."""
        return _stream(lambda: self.sync.keys(prefix, start, stop, **flags))

    def values(
        self,
        prefix: Optional[Buffer] = None,
        start: Optional[Buffer] = None,
        stop: Optional[Buffer] = None,
        **flags: bool,
    ) -> AsyncIterator[bytes]:
        """Return an iterator over values; arguments as for `items`."""
        return _stream(lambda: self.sync.values(prefix, start, stop, **flags))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.keys()


class Snapshot(Reader):
    """See `tamis.Snapshot`."""

    sync: tamis.Snapshot

    def of(self, keyspace: Keyspace) -> Reader:
        """Return ``keyspace`` as of this snapshot."""
        return Reader(self.sync.of(keyspace.sync))

    async def close(self) -> None:
        """Release what the snapshot keeps."""
        await asyncio.to_thread(self.sync.close)

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

    sync: tamis.Keyspace

    async def put(self, key: Buffer, value: Buffer, *, durability: Optional[str] = None) -> None:
        """Set the value of ``key``."""
        await asyncio.to_thread(self.sync.put, key, value, durability=durability)

    async def delete(self, key: Buffer, *, durability: Optional[str] = None) -> None:
        """Delete ``key``; one that has no value may be deleted."""
        await asyncio.to_thread(self.sync.delete, key, durability=durability)

    async def merge(self, key: Buffer, operand: Buffer, *, durability: Optional[str] = None) -> None:
        """Apply ``operand`` to the value of ``key`` with the keyspace's merge operator."""
        await asyncio.to_thread(self.sync.merge, key, operand, durability=durability)

    async def write_all(
        self,
        pairs: Union[Mapping[bytes, Buffer], Iterable[tuple[Buffer, Buffer]]],
        *,
        durability: Optional[str] = None,
    ) -> None:
        """Write all pairs of a mapping, or of an iterable of pairs, in one batch."""
        await asyncio.to_thread(lambda: self.sync.update(pairs, durability=durability))

    async def update(
        self, key: Buffer, function: Callable[[Optional[bytes]], Optional[Buffer]]
    ) -> Optional[bytes]:
        """Replace the value of ``key`` by what ``function`` makes of it, in a thread; see `tamis.Keyspace.update`."""
        return await asyncio.to_thread(lambda: self.sync.update(key, function))

    async def take(self, key: Buffer) -> Optional[bytes]:
        """Delete ``key`` and return the value that it had, atomically."""
        return await asyncio.to_thread(self.sync.take, key)

    async def setdefault(self, key: Buffer, default: Buffer) -> bytes:
        """Set the value of ``key`` to ``default`` if it has none, and return the value that it has then."""
        return await asyncio.to_thread(self.sync.setdefault, key, default)

    async def compare_and_swap(self, key: Buffer, expected: Optional[Buffer], new: Optional[Buffer]) -> bool:
        """Set the value of ``key`` to ``new`` if it is ``expected``. Report whether it was."""
        return await asyncio.to_thread(self.sync.compare_and_swap, key, expected, new)

    async def increment(self, key: Buffer, by: int = 1) -> int:
        """Add ``by`` to the number under ``key``, and return the sum."""
        return await asyncio.to_thread(self.sync.increment, key, by)

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
            self.sync.delete_range, start, stop, include_start=include_start, include_stop=include_stop
        )

    async def delete_prefix(self, prefix: Buffer) -> None:
        """Delete all keys that begin with ``prefix``."""
        await asyncio.to_thread(self.sync.delete_prefix, prefix)

    async def clear(self) -> None:
        """Delete all keys."""
        await asyncio.to_thread(self.sync.clear)

    def batch(self, *, durability: Optional[str] = None) -> _Batch:
        """Return a batch for ``async with``, which is committed at the end of the block."""
        return _Batch(self.sync.batch(durability=durability))

    async def flush(self) -> None:
        """Write the memtables to tables."""
        await asyncio.to_thread(self.sync.flush)

    async def compact(self) -> None:
        """Merge all tables into the last level."""
        await asyncio.to_thread(self.sync.compact)

    async def explain(self, key: Buffer) -> Explanation:
        """Return the path of a read of ``key``."""
        return await asyncio.to_thread(self.sync.explain, key)

    async def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call ``function(keyspace, *arguments)`` in a thread, with the plain keyspace: for several operations in one go."""
        return await asyncio.to_thread(function, self.sync, *arguments)


class Database(Keyspace):
    """See `tamis.Database`."""

    sync: tamis.Database

    async def close(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self.sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    async def keyspace(self, name: str, *, create: bool = False, **options: Unpack[KeyspaceOptions]) -> Keyspace:
        """Return the keyspace ``name``; see `tamis.Database.keyspace`."""
        return Keyspace(await asyncio.to_thread(lambda: self.sync.keyspace(name, create=create, **options)))

    async def drop_keyspace(self, name: str) -> None:
        """Drop the keyspace ``name`` with all its keys."""
        await asyncio.to_thread(self.sync.drop_keyspace, name)

    async def snapshot(self) -> Snapshot:
        """Return a snapshot of all keyspaces as of now."""
        return Snapshot(await asyncio.to_thread(self.sync.snapshot))

    async def transact(self, function: Callable[[tamis.Transaction], _T], **options: Any) -> _T:
        """Call ``function`` in a thread with a transaction, and commit it; see `tamis.Database.transact`."""
        return await asyncio.to_thread(lambda: self.sync.transact(function, **options))

    async def sync_log(self) -> None:
        """Make every write acknowledged so far durable across a power cut."""
        await asyncio.to_thread(self.sync.sync)

    async def checkpoint(self, path: str) -> None:
        """Make a copy of the database in the new directory ``path``."""
        await asyncio.to_thread(self.sync.checkpoint, path)

    async def verify(self) -> VerifyReport:
        """Read every file and check all of it."""
        return await asyncio.to_thread(self.sync.verify)

    async def stats(self) -> Stats:
        """Return the database's statistics."""
        return await asyncio.to_thread(self.sync.stats)


async def open(path: str, **options: Any) -> Database:
    """Open a database in a thread; arguments and errors are those of `tamis.open`."""
    return Database(await asyncio.to_thread(lambda: tamis.open(path, **options)))
