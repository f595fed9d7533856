"""The interface for asyncio."""

from __future__ import annotations

import asyncio
import threading

import pytest

import tamis
import tamis.aio


def test_coroutines_do_what_the_plain_methods_do(path) -> None:
    async def main() -> None:
        async with await tamis.aio.open(str(path), merge_operator="append") as db:
            await asyncio.gather(*(db.put(b"%03d" % n, b"v%d" % n) for n in range(100)))
            assert await db.get(b"007") == b"v7" and await db.get(b"none") is None and await db.get(b"none", b"d") == b"d"
            assert await db.contains(b"007") and await db.count() == 100
            assert await db.multi_get([b"001", b"x"]) == [b"v1", None]
            assert [key async for key in db] == [b"%03d" % n for n in range(100)]
            items = [item async for item in db.items(prefix=b"09", reverse=True)]
            assert items[0] == (b"099", b"v99") and len(items) == 10
            assert await db.first() == (b"000", b"v0") and await db.last() == (b"099", b"v99")
            async with db.batch(durability="sync") as batch:
                batch[b"a"] = b"1"
                batch.delete_prefix(b"0")
            assert [value async for value in db.values()] == [b"1"]
            users = await db.keyspace("users", create=True, bits_per_key=8)
            assert await users.increment(b"n", 5) == 5
            async with await db.snapshot() as snapshot:
                await db.delete(b"a")
                assert await snapshot.get(b"a") == b"1" and await snapshot.keyspace(users).contains(b"n")
            assert await db.transact(lambda tx: tx.put(b"t", b"1") or 3, attempts=2) == 3
            await db.merge(b"t", b"2")
            assert await db.take(b"t") == b"12"
            assert await db.update(b"u", lambda value: b"new") == b"new"
            await db.write_all({b"x": b"1", b"y": b"2"})
            assert await db.compare_and_swap(b"x", b"1", None) and await db.setdefault(b"y", b"3") == b"2"
            await db.delete_range(b"u", b"v")
            await db.delete_prefix(b"z")
            assert await db.call(lambda plain, n: len(plain) + n, 10) == 11
            await db.flush()
            await db.compact()
            await db.sync()
            assert (await db.explain(b"y")).outcome.kind == "found"
            assert (await db.stats()).write.flushes > 0 and (await db.verify()).problems == ()
            await db.checkpoint(str(path) + "-copy")
            await db.drop_keyspace("users")
            await db.clear()
            with pytest.raises(ZeroDivisionError):
                async with db.batch() as batch:
                    batch[b"a"] = b"1"
                    1 / 0
            assert not await db.count()
        with pytest.raises(tamis.ClosedError):
            await db.get(b"a")

    asyncio.run(main())


def test_the_event_loop_runs_while_a_call_waits(path) -> None:
    async def main() -> None:
        async with await tamis.aio.open(str(path)) as db:
            held = db.plain.lock_transaction()
            held[b"a"] = b"1"
            waiting = db.plain.lock_transaction(timeout=30)
            read = asyncio.ensure_future(asyncio.to_thread(waiting.get, b"a"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not read.done()
            held.commit()
            assert await read == b"1"
            waiting.rollback()

    asyncio.run(main())


def test_a_cancelled_step_does_not_end_the_stream() -> None:
    """`asyncio.wait_for` around a step that takes too long once ended the scan, without a word: 31 of 5,000 keys."""
    go_on = threading.Event()

    def slowly():
        for n in range(1000):
            if n == 20:
                assert go_on.wait(60)
            yield n

    async def main() -> None:
        stream = tamis.aio._Stream(slowly)
        seen = []
        for _ in range(15):
            seen.append(await stream.__anext__())
        for _ in range(3):
            # The group that has the item is being fetched for as long as it takes.
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(stream.__anext__(), 0.01)
        go_on.set()
        seen += [n async for n in stream]
        assert seen == list(range(1000))
        with pytest.raises(StopAsyncIteration):
            await stream.__anext__()

    asyncio.run(main())


def test_tasks_share_a_stream_and_an_error_ends_it() -> None:
    def failing():
        yield from range(100)
        raise ZeroDivisionError

    async def main() -> None:
        stream = tamis.aio._Stream(failing)
        seen: list[int] = []

        async def take() -> None:
            async for n in stream:
                seen.append(n)

        ends = await asyncio.gather(*(take() for _ in range(4)), return_exceptions=True)
        assert sorted(seen) == list(range(len(seen))) and len(seen) >= 63
        assert sum(isinstance(end, ZeroDivisionError) for end in ends) == 1

    asyncio.run(main())


def test_a_stream_is_closed(path) -> None:
    async def main() -> None:
        async with await tamis.aio.open(path) as db:
            await db.write_all({b"a": b"1", b"b": b"2"})
            keys = db.keys()
            assert await keys.__anext__() == b"a"
            await keys.aclose()
            with pytest.raises(StopAsyncIteration):
                await keys.__anext__()

    asyncio.run(main())


def test_transactions_keyspaces_options_and_maintenance_are_coroutines(path) -> None:
    async def main() -> None:
        async with await tamis.aio.open(path) as db:
            users = await db.create_keyspace("users")
            assert users.name == "users" and await db.keyspaces() == ["default", "users"]
            await users.set_options(bits_per_key=12)
            assert users.options["bits_per_key"] == "12" and db.database_options and db.path and not db.read_only
            async with db.transaction() as tx:
                await tx.put(b"a", b"1")
                await tx.keyspace(users).put(b"u", b"2")
                assert await tx.get(b"a") == b"1" and [key async for key in tx] == [b"a"]
            assert await tx.ended() and await users.get(b"u") == b"2"
            with pytest.raises(ZeroDivisionError):
                async with db.transaction(isolation="snapshot") as tx:
                    await tx.delete(b"a")
                    1 / 0
            tx = await db.lock_transaction(timeout=60)
            assert await tx.get_for_update(b"u", keyspace=users) == b"2"
            before = await tx.savepoint()
            await tx.delete_prefix(b"a")
            await tx.rollback_to(before)
            await tx.put(b"p", b"3")
            prepared = await tx.prepare(b"name")
            assert prepared.name == b"name" and [one.name for one in await db.prepared_transactions()] == [b"name"]
            await prepared.commit()
            assert await db.multi_get([b"a", b"p"]) == [b"1", b"3"]
            await db.sync()
            await db.flush()
            await db.compact_range(b"a", b"b")
            await db.wait_for_compaction()
            assert await db.approximate_len() >= 0 and await db.approximate_size() > 0
            assert await db.tables() and (await db.keyspace_stats()).name == "default"
            assert await db.segments() == []
            await db.rename_keyspace("users", "people")
            assert await db.popitem() == (b"a", b"1")
        assert db.closed
        assert (await tamis.aio.verify(path)).problems == ()
        assert await tamis.aio.salvage(path, dry_run=True)

    asyncio.run(main())


def test_every_plain_method_is_there() -> None:
    """So that a new one is not forgotten here."""
    elsewhere = {"contains", "count", "write_all", "call"}
    for kind in ("Keyspace", "Database", "Snapshot", "TransactionView", "Transaction", "LockTransaction", "Reader"):
        plain = {name for name in dir(getattr(tamis, kind)) if not name.startswith("_")}
        # `batch[…] = …` and `del db[…]`, which cannot be awaited, are `put` and `take`; `pop` is `take`.
        missing = plain - set(dir(getattr(tamis.aio, kind))) - elsewhere - {"pop"}
        assert not missing, (kind, missing)
