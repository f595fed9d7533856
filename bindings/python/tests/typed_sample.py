"""Code as users write it, for mypy alone: each line has the type that it says, and each error that is expected occurs."""

from __future__ import annotations

from typing import Optional

import tamis
import tamis.aio
import tamis.dbm


def main(path: str) -> None:
    with tamis.open(path, durability="sync", bits_per_key=12, filter="ribbon") as db:
        db[b"a"] = bytearray(b"1")
        value: bytes = db[memoryview(b"a")]
        maybe: Optional[bytes] = db.get(b"a")
        sure: bytes = db.get(b"a", b"")
        first: Optional[tuple[bytes, bytes]] = db.first()
        for key, item in db.items(prefix=b"a", reverse=True):
            assert len(key) + len(item)
        many: list[Optional[bytes]] = db.multi_get([b"a", bytearray(b"b")])
        with db.batch(durability="sync") as batch:
            batch.put(b"a", b"1", keyspace=db.keyspace("users", create=True, merge_operator="add"))
        number: int = db.transact(lambda tx: len(tx[b"a"]))
        changed: Optional[bytes] = db.update(b"a", lambda old: (old or b"") + b"!")
        db.update({b"a": b"1"})
        reads: int = db.stats().read.gets
        smallest: bytes = db.stats().keyspaces[0].levels[0].runs[0].smallest
        print(value, maybe, sure, first, many, number, changed, reads, smallest)

        db["text"] = b""  # type: ignore[index]
        db.get(7)  # type: ignore[call-overload]
        db.transaction(isolation="perhaps")  # type: ignore[arg-type]
        tamis.open(path, no_such_option=1)  # type: ignore[call-arg]
        db.keyspace("users", bits_per_key=[])  # type: ignore[arg-type]
        db.snapshot()[b"a"] = b""  # type: ignore[index]

    with tamis.dbm.open(path, "c") as shelf:
        shelf["a"] = "1"


async def asynchronous(path: str) -> Optional[bytes]:
    async with await tamis.aio.open(path) as db:
        async for key, value in db.items(start=b"a"):
            assert key and value
        return await db.get(b"a")
