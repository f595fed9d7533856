"""Merges the versions of logs and tables into live entries."""

import heapq
import re

from .prim import Bad, M64
from .table import BLOB, DELETE, MERGE, PUT


class Cover:
    """The greatest range tombstone over a key, for keys that are asked in ascending order."""

    def __init__(self, tombstones):
        self.waiting = sorted(tombstones, key=lambda t: t[0], reverse=True)
        self.active = []

    def at(self, key):
        waiting, active = self.waiting, self.active
        while waiting and waiting[-1][0] <= key:
            _, end, seq = waiting.pop()[:3]
            # Without an end, the tuple sorts and compares as the greatest end.
            heapq.heappush(active, (-seq, (1, b"") if end is None else (0, end)))
        while active and active[0][1] <= (0, key):
            heapq.heappop(active)
        return -active[0][0] if active else 0


def expired_up_to(keyspace, samples, last, now):
    """Entries with this number or a smaller one have outlived the time to live; or -1."""
    if keyspace.ages is None:
        return -1
    since, expired = keyspace.ages
    ttl = time_to_live(keyspace)
    if ttl is not None:
        # The clock counts whole seconds: an entry may be nearly a second younger.
        gone = [number for time, number in samples if number <= last and time + ttl < now]
        # Entries up to *since* may have lost their numbers, so they expire together.
        if gone and gone[-1] >= since:
            expired = max(expired, gone[-1])
    return expired or -1


UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9,
         "d": 86400 * 10**9}
DURATION = re.compile(r"(\d{1,20})\s*(ns|us|ms|s|min|h|d)\Z", re.ASCII)


def time_to_live(keyspace):
    """Seconds, rounded up, or None if entries do not expire."""
    text = keyspace.options.get("time_to_live", "none")
    if text == "none":
        return None
    match = DURATION.match(text)
    if not match:
        raise Bad("manifest", None, f"keyspace {keyspace.name!r}: time_to_live = {text!r} is not "
                  "understood, so it is not known which entries have expired")
    return -(-int(match[1]) * UNITS[match[2]] // 10**9)


def add(base, operands):
    """Adds eight-byte little-endian numbers modulo 2^64. Other lengths have no meaning here."""
    values = operands if base is None else [base] + operands
    if any(len(value) != 8 for value in values):
        return None
    total = sum(int.from_bytes(value, "little") for value in values)
    return (total & M64).to_bytes(8, "little")


def append(base, operands):
    return (base or b"") + b"".join(operands)


def largest(base, operands):
    return max(operands if base is None else [base] + operands)


OPERATORS = {"add": add, "append": append, "max": largest}


def fold(keyspace, item):
    """The value of a key with operands, or None if the operator is not known here."""
    operator = OPERATORS.get(keyspace.options.get("merge_operator"))
    return operator(item.base, item.operands[::-1]) if operator else None


class Live:
    """A live key: a value, or operands (newest first) and their base."""

    __slots__ = ("key", "value", "operands", "base")

    def __init__(self, key, value=None, operands=None, base=None):
        self.key, self.value, self.operands, self.base = key, value, operands, base


def same(a, b, resolve):
    """Versions of one key with one number must agree. A log may have a value that a blob has."""
    if {a[3], b[3]} <= {PUT, BLOB}:
        return resolve(a) == resolve(b)
    return a[3:5] == b[3:5]


def live(stream, cover, expired, resolve):
    """Yields the live keys. Rows are (key, -number, source, kind, value, origin)."""
    current, done, operands, before = None, True, [], None
    for row in stream:
        key, negative, _, kind, value, origin = row
        if key != current:
            if operands:
                yield Live(current, operands=operands)
                operands = []
            current, done = key, False
            deleted = cover.at(key)
        elif negative == before[1]:
            if not same(before, row, resolve):
                raise Bad(origin.name, None, f"key {key.hex()} has another version with the same "
                          f"number {-negative} in {before[5].name}")
            continue
        before = row
        if done:
            continue
        if -negative < deleted or -negative <= expired or kind == DELETE:
            done = True
        elif kind == MERGE:
            operands.append(value)
        else:
            done = True
            found = value if kind == PUT else resolve(row)
            if operands:
                yield Live(key, operands=operands, base=found)
                operands = []
            else:
                yield Live(key, found)
    if operands:
        yield Live(current, operands=operands)
