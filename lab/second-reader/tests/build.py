"""Writes small databases, byte by byte as the format pages say. For the tests only.

`mutate(name, payload)` may change any payload before it is signed, so that tests reach what lies
behind the checksums.
"""

import os
import struct

import lz4.block
import xxhash
import zstandard

from tamis_reader import log as logs

xxh3 = xxhash.xxh3_64_intdigest


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def string(data):
    return varint(len(data)) + data


def field(tag, *parts):
    return varint(tag) + string(b"".join(varint(p) if isinstance(p, int) else p for p in parts))


def u64(n):
    return struct.pack("<Q", n)


def same(name, payload):
    return payload


class Log:
    """A record log. Each record says that everything before it was durable, unless told."""

    def __init__(self, number, kind, flags=0, mutate=same):
        head = b"TAMISLOG" + struct.pack("<IBBHQ", 1, kind, flags, 0, number)
        self.number, self.mutate, self.data = number, mutate, head + u64(xxh3(head, 0))
        self.starts = []

    def record(self, payload, type_=1, distance=0, name="record"):
        payload = self.mutate(name, payload)
        at = len(self.data)
        self.starts.append(at)
        seed = logs.seed(self.number, at)
        head = bytes([type_]) + varint(len(payload)) + varint(distance)
        check = xxh3(head, seed ^ logs.M64) & 0xFFFFFFFF
        body = struct.pack("<I", check) + head + payload
        self.data += u64(xxh3(body, seed)) + body
        return self

    def write(self, first, *ops, synced=1, distance=0):
        payload = varint(synced) + varint(first) + varint(len(ops)) + b"".join(ops)
        return self.record(payload, distance=distance, name="writes")

    def close(self, successor=None, distance=0):
        return self.record(u64(successor) if successor else b"", 2, distance, "closing")


def op(tag, keyspace, key, second=None):
    return bytes([tag]) + varint(keyspace) + string(key) + (
        b"" if second is None else string(second))


def block(payload, offset, method=0):
    if method:
        packed = (lz4.block.compress(payload, store_size=False) if method == 1
                  else zstandard.ZstdCompressor().compress(payload))
        payload = struct.pack("<I", len(payload)) + packed
    payload += bytes([method])
    return payload + u64(xxh3(payload, offset))


def data_block(entries, restart=1, prints=True):
    """Entries are (key, number, kind, value)."""
    values = keys = key_ends = value_ends = b""
    small = min(e[1] for e in entries)
    wide = max(e[1] for e in entries) > small
    first = b""
    for i, (key, _, _, value) in enumerate(entries):
        values += value
        if i >> restart << restart == i:
            first, shared = key, 0
        else:
            shared = len(os.path.commonprefix([first, key]))
        keys += bytes([shared]) + key[shared:]
        key_ends += struct.pack("<H", len(keys))
        value_ends += struct.pack("<I", len(values))
    numbers = b"".join(struct.pack("<H", e[1] - small) for e in entries) if wide else b""
    kinds = bytes(e[2] for e in entries)
    has_kinds = any(kind != 1 for kind in kinds)
    marks = bytes((xxh3(e[0]) * 0xD6E8FEB86659FD93 & logs.M64) >> 56 for e in entries)
    foot = struct.pack("<II", len(entries), len(keys)) + small.to_bytes(7, "little") + struct.pack(
        "<BHBBBBH", 2 * wide, prints, restart, 2, 4, has_kinds, 0)
    return (values + keys + key_ends + value_ends + numbers + kinds * has_kinds
            + marks * prints + foot)


class Table:
    def __init__(self, blocks, tombstones=(), filter_=b"", filter_kind="", method=0, external=0,
                 blobs=(), mutate=same, separators=None):
        entries = [e for part in blocks for e in part]
        data = b""
        index = varint(len(blocks))
        for i, part in enumerate(blocks):
            raw = block(mutate("data", data_block(part)), len(data), method)
            data += raw
            separator = separators[i] if separators else part[-1][0]
            index += varint(len(raw)) + string(separator)
        spans = [len(data)]

        def add(name, payload, method=0):
            nonlocal data
            raw = block(mutate(name, payload), len(data), method) if payload else b""
            spans.append(len(raw))
            data += raw

        add("filter", filter_)
        fragments, end = b"", None
        for first, after, numbers in tombstones:
            touch = end is not None and first == end
            fragments += bytes([touch | 2 * (after is None)])
            fragments += b"" if touch else string(first)
            fragments += b"" if after is None else string(after)
            fragments += varint(len(numbers)) + varint(numbers[0])
            fragments += b"".join(varint(a - b) for a, b in zip(numbers, numbers[1:]))
            end = after
        add("tombstones", varint(len(tombstones)) + fragments if tombstones else b"")
        add("index", index, method)
        numbers = [e[1] for e in entries] or [0]
        facts = {1: len(entries), 2: sum(e[2] == 0 for e in entries), 3: len(tombstones),
                 4: sum(len(e[0]) for e in entries), 5: sum(len(e[3]) for e in entries),
                 6: len(blocks), 9: min(numbers), 10: max(numbers), 20: external}
        props = b"".join(field(tag, n) for tag, n in facts.items() if n)
        if entries:
            props += field(7, entries[0][0]) + field(8, entries[-1][0])
        props += field(12, b"xxh3-64") + field(13, filter_kind.encode())
        if blobs:
            props += field(26, *[n for pair in blobs for n in pair])
        add("properties", props)
        foot = struct.pack("<5QII", *spans, 2 if blobs else 1, 0)
        self.data = data + foot + u64(xxh3(foot, len(data))) + b"tamis\0tb"
        self.entries, self.facts = entries, facts
        self.tombstones, self.blobs = tombstones, list(blobs)
        self.values = 0

    def edit(self, number, keyspace=0, level=0, run=None, epoch=1, g=None, low=None, end=None,
             extra=b""):
        """The field that adds the table. The range is that of the entries, unless given."""
        numbers = [e[1] for e in self.entries] + [n for t in self.tombstones for n in t[2]]
        if g is not None:
            numbers = [g]
            extra += field(2, g)
        if self.blobs:
            extra += field(4, *[n for pair in self.blobs for n in pair])
        low = self.entries[0][0] if low is None else low
        end = b"\1" + string(self.entries[-1][0]) if end is None else end
        f = self.facts
        return field(20, keyspace, level, number if run is None else run, number, len(self.data),
                     string(low), end, f[1], f[2], f[3], f[4] + f[5] + self.values,
                     min(numbers), max(numbers), 1, string(low), epoch, epoch + 1, extra)


def blob_file(number, values, mutate=same, method=0):
    """The bytes of a blob file and a reference to each value."""
    data, refs = b"", []
    for value in values:
        raw = block(mutate("record", value), len(data), method)
        refs.append(varint(number) + varint(len(data)) + varint(len(raw)) + varint(len(value))
                    + raw[-8:])
        data += raw
    foot = struct.pack("<3QII", number, len(values), sum(map(len, values)), 1, 0)
    return data + foot + u64(xxh3(foot, len(data))) + b"tamis\0bl", refs


def bloom(keys, salt=7, units=2):
    """A filter of kind 1 with four probes and double hashing."""
    from tamis_reader import filters
    words = [0] * units
    for key in keys:
        d = xxh3(key)
        h, step = filters.remix(d, salt), filters.remix(d, salt ^ filters.STEP) | 1
        for i in range(4):
            p = filters.reduce(h + i * step & filters.M64, 64 * units)
            words[p >> 6] |= 1 << (p & 63)
    body = struct.pack(f"<{units}Q", *words) + struct.pack(
        "<3Q4B4s", salt, len(keys), units, 4, 1, 2, 1, b"TFL1")
    return body + u64(xxh3(body))


def keyspace(number, name, options=""):
    return field(14, number, string(name.encode()), string(options.encode()))


def manifest(number, edits, closed=None, mutate=same):
    log = Log(number, 2, mutate=mutate)
    for edit in edits:
        log.record(edit, name="edit")
    if closed is not None:
        log.record(field(4, closed), name="edit").close()
    return log.data


def save(directory, files):
    os.makedirs(directory, exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(directory, name), "wb") as file:
            file.write(data)


def sample(mutate=same):
    """A closed database with something of everything, as files."""
    files = {"CURRENT": b"MANIFEST-000001\n"}
    files["000004.blb"], (ref, other) = blob_file(4, [b"large" * 20, b"big" * 30], mutate, 2)
    old = Table([[(b"a", 1, 1, b"one"), (b"ab", 2, 1, b"two"), (b"b", 3, 2, b"+x")],
                 [(b"c", 5, 3, ref), (b"d", 4, 1, b"four")]],
                [(b"aa", b"ab\0", [4]), (b"ab\0", b"b", [7, 4])],
                bloom([b"a", b"ab", b"b", b"c", b"d"]), "bloom", 2, 0,
                [(4, span(ref))], mutate, [b"b", b"d"])
    old.values = 100
    new = Table([[(b"b", 8, 2, b"+y"), (b"c", 9, 0, b""), (b"e", 10, 3, other)]],
                filter_kind="", method=1, blobs=[(4, span(other))], mutate=mutate)
    new.values = 90
    external = Table([[(b"b", 0, 1, b"in"), (b"f", 0, 1, b"ext")]], [(b"g", None, [1])],
                     external=1, mutate=mutate)
    files["000002.tam"], files["000003.tam"], files["000005.tam"] = (
        old.data, new.data, external.data)
    edits = [keyspace(0, "default") + keyspace(1, "other", "# text\nmerge_operator = append\n")
             + field(12, 0, 10) + field(12, 1, 10) + field(2, 20) + field(4, 10) + field(10, 2),
             old.edit(2, low=b"a", end=b"\1\1d", level=6) + new.edit(3),
             external.edit(5, g=11, epoch=2, end=b"\2", level=1)]
    files["MANIFEST-000001"] = manifest(1, edits, 17, mutate)
    first = Log(10, 1, mutate=mutate)
    first.write(11, op(16, 0, b""))
    first.write(12, op(1, 0, b"a", b"log"), op(4, 1, b"m", b"1"), op(4, 1, b"m", b"2"))
    first.close(11)
    second = Log(11, 1, 1, mutate=mutate)
    second.write(15, op(2, 0, b"d", b"e"), op(1, 1, b"k", b""))
    second.write(17, op(3, 1, b"z"))
    second.close()
    files["000010.log"], files["000011.log"] = first.data, second.data
    return files


def span(ref):
    """The span in a reference whose numbers are all below 128 or two bytes long."""
    from tamis_reader.blob import Reference
    return Reference(ref, "test").span
