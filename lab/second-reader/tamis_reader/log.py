"""Record logs: the frame of write-ahead logs and manifests, and the records of writes."""

import re

from .prim import (Bad, Cursor, M64, MAX_BOUND, MAX_KEY, MAX_NUMBER, MAX_VALUE, uint, xxh3)

MAGIC = b"TAMISLOG"
HEADER = 32
WRITES, MANIFEST = 1, 2
DATA, CLOSING = 1, 2

DELETE, PUT, RANGE, RANGE_OPEN, MERGE, INGESTION = 0, 1, 2, 3, 4, 16

TYPES = re.compile(rb"[\x01\x02]")


def seed(log_id, offset):
    x = (log_id * 0x9E3779B97F4A7C15 & M64) ^ offset
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


class Record:
    __slots__ = ("offset", "type", "start", "end", "distance")

    def __init__(self, offset, type_, start, end, distance):
        self.offset, self.type, self.distance = offset, type_, distance
        self.start, self.end = start, end


class Log:
    """A parsed log.

    `records` are its data records. `torn` is where it ends, if it is not closed. `clean` says that
    nothing there looks like the start of another record.
    """

    def __init__(self, name, log_id, data):
        self.name, self.id, self.data = name, log_id, data
        self.records = []
        self.closed = False
        self.successor = None
        self.torn = None
        self.clean = True
        self.end = HEADER

    def payload(self, record):
        return self.data[record.start:record.end]


def header_error(data, name, kind, log_id):
    """None, or why the header does not start this log. Raises if it is refused for good."""
    if len(data) < HEADER:
        return "the header is cut off"
    if data[:8] != MAGIC or xxh3(data[:24], 0) != uint(data, 24, 8):
        return "the header is damaged"
    version = uint(data, 8, 4)
    if version != 1:
        raise Bad(name, 8, f"log version {version} is not known")
    if data[12] != kind:
        raise Bad(name, 12, f"log of kind {data[12]}, not {kind}")
    found = uint(data, 16, 8)
    # A file is overwritten by later logs only.
    if found > log_id:
        raise Bad(name, 16, f"the header is that of log {found}, a later one")
    return None if found == log_id else f"the header is that of log {found}"


def head_at(log, at):
    """The record whose intact head is at an offset, or None."""
    data = log.data
    if len(data) - at < 15:
        return None
    kind = data[at + 12]
    if kind not in (DATA, CLOSING):
        return None
    cursor = Cursor(data, log.name, 0, at + 13)
    try:
        length = cursor.varint()
        distance = cursor.varint()
    except Bad:
        return None
    start = cursor.pos
    if length > len(data) - start or distance > at:
        return None
    if xxh3(data[at + 12:start], seed(log.id, at) ^ M64) & 0xFFFFFFFF != uint(data, at + 8, 4):
        return None
    return Record(at, kind, start, start + length, distance)


def record_at(log, at, hashed=None):
    """The intact record at an offset, or None. `hashed` counts the bytes hashed in a search."""
    record = head_at(log, at)
    if record is None:
        return None
    if hashed is not None:
        hashed[0] += record.end - at
    content = memoryview(log.data)[at + 8:record.end]
    return record if xxh3(content, seed(log.id, at)) == uint(log.data, at, 8) else None


def later_records(log, at):
    """All intact records after an offset. Most offsets fail at the type, so those go first."""
    hashed, limit = [0], 8 * len(log.data) + (1 << 20)
    skip = at
    for match in TYPES.finditer(log.data, min(at + 13, len(log.data))):
        place = match.start() - 12
        if place < skip:
            continue
        record = record_at(log, place, hashed)
        if hashed[0] > limit:
            raise Bad(log.name, at, "damaged: the search for later records takes too long")
        if record:
            skip = record.end
            yield record


def parse(name, log_id, data, kind, finished=False):
    """Reads all records; raises for damage, notes a torn end."""
    log = Log(name, log_id, data)
    wrong = header_error(data, name, kind, log_id)
    if wrong:
        if finished or kind == MANIFEST or record_at(log, HEADER):
            raise Bad(name, 0, wrong)
        log.torn, at = 0, 0
    else:
        at = HEADER
        while True:
            record = record_at(log, at)
            if record is None:
                break
            at = record.end
            if record.type == DATA:
                log.records.append(record)
                continue
            close(log, record, kind)
            log.end = at
            return log
        if finished:
            raise Bad(name, at, "damaged: no intact record before the closing record")
        log.torn = at
    log.clean = not head_at(log, at) and (reused(data, log_id) or not any(data[at:]))
    for later in later_records(log, at):
        log.clean = False
        if later.offset - later.distance > at:
            raise Bad(name, at, "damaged: bytes that a later record says were durable, at offset "
                      f"{later.offset}")
    log.end = at
    return log


def reused(data, log_id):
    """True if the file held another log before, whose bytes may follow the last record."""
    intact = data[:8] == MAGIC and len(data) >= HEADER and xxh3(data[:24]) == uint(data, 24, 8)
    return intact and (uint(data, 16, 8) != log_id or bool(data[13] & 1))


def close(log, record, kind):
    length = record.end - record.start
    if length not in (0, 8) or (length and kind == MANIFEST):
        raise Bad(log.name, record.start, "closing record with a payload of wrong length")
    log.closed = True
    if length:
        log.successor = uint(log.data, record.start, 8)
        if log.successor <= log.id:
            raise Bad(log.name, record.start, f"log {log.successor} cannot continue this one")


def ends_closed(tail, name, log_id, size):
    """True if the last bytes of a log, at most 64 of them, end with its closing record."""
    for length in range(15, 43):
        at, place = len(tail) - length, size - length
        if at < 0 or place < HEADER or tail[at + 12] != CLOSING:
            continue
        c = Cursor(tail, name, 0, at + 13)
        try:
            payload = c.varint()
            c.varint("distance", place)
        except Bad:
            continue
        key = seed(log_id, place)
        if payload in (0, 8) and c.left() == payload and xxh3(tail[at + 8:], key) == uint(
                tail, at, 8):
            return True
    return False


class Group:
    """One record of writes: flags, the first number, the operations."""

    __slots__ = ("offset", "synced", "first", "count", "ops")

    def __init__(self, offset, synced, first, count, ops):
        self.offset, self.synced, self.first = offset, synced, first
        self.count, self.ops = count, ops


def group(log, record):
    """Decodes a record of writes. An operation is (tag, keyspace, key, second or None)."""
    cursor = Cursor(log.data, log.name, 0, record.start, record.end)
    flags = cursor.varint("flags", 1)
    first = cursor.varint("sequence number", MAX_NUMBER)
    # An operation takes at least three bytes, which bounds the count.
    count = cursor.varint("number of operations", max(cursor.left() // 3, 1), 1)
    if first + count - 1 > MAX_NUMBER:
        raise cursor.bad("sequence numbers reach 2^56")
    ops = []
    varint, raw = cursor.varint, cursor.raw
    for _ in range(count):
        tag = cursor.uint(1, "tag")
        keyspace = varint("keyspace", (1 << 32) - 1)
        if tag in (PUT, DELETE, MERGE):
            key = raw(varint("key length", MAX_KEY), "key")
            second = None
            if tag != DELETE:
                second = raw(varint("value length", MAX_VALUE), "value")
        elif tag in (RANGE, RANGE_OPEN):
            key = cursor.bytes("first key of a range", MAX_BOUND)
            second = cursor.bytes("end of a range", MAX_BOUND) if tag == RANGE else None
            if tag == RANGE and second <= key:
                raise cursor.bad("range of keys that is empty")
        elif tag == INGESTION:
            key, second = cursor.bytes("key of an ingestion", 0), None
            if count != 1:
                raise cursor.bad("ingestion that is not a record of its own")
        else:
            raise cursor.bad(f"operation with unknown tag {tag}")
        ops.append((tag, keyspace, key, second))
    cursor.done("record")
    return Group(record.offset, bool(flags & 1), first, count, ops)
