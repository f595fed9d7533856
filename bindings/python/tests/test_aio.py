"""The interface for asyncio."""

from __future__ import annotations

import asyncio

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
                assert await snapshot.get(b"a") == b"1" and await snapshot.of(users).contains(b"n")
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
            await db.sync_log()
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
            held = db.sync.lock_transaction()
            held[b"a"] = b"1"
            waiting = db.sync.lock_transaction(timeout=30)
            read = asyncio.ensure_future(asyncio.to_thread(waiting.get, b"a"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not read.done()
            held.commit()
            assert await read == b"1"
            waiting.rollback()

    asyncio.run(main())
