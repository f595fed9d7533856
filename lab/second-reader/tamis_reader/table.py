"""Tables: footer, index, properties, data blocks, range tombstones."""

import struct

from .prim import (Bad, Cursor, File, MAX_BOUND, MAX_KEY, MAX_NUMBER, M64, uint, unblock, xxh3)
from . import manifest

FOOTER = 64
MAGIC = b"tamis\0tb"
DELETE, PUT, MERGE, BLOB = 0, 1, 2, 3
FORMATS = {2: "H", 4: "I", 8: "Q"}
NUMBERS = {1: "B", 2: "H", 4: "I"}
TEXT_PROPERTIES = {12: "digest", 13: "filter", 14: "library", 22: "keyspace_name"}
NUMBER_PROPERTIES = {1: "entries", 2: "deletes", 3: "tombstones", 4: "key_bytes",
                     5: "value_bytes", 6: "blocks", 9: "seq_low", 10: "seq_high",
                     20: "external", 21: "keyspace", 24: "flushed"}


class Properties:
    def __init__(self, cursor):
        self.low = self.high = b""
        self.epochs, self.written, self.merged, self.blobs = [], None, None, []
        for name in TEXT_PROPERTIES.values():
            setattr(self, name, "")
        for name in NUMBER_PROPERTIES.values():
            setattr(self, name, 0)
        seen = set()
        while cursor.more():
            tag, part = manifest.field(cursor, "properties")
            if tag in seen:
                raise part.bad(f"property {tag} occurs twice")
            seen.add(tag)
            if self.decode(tag, part):
                part.done(f"property {tag}")
        self.seen = seen

    def decode(self, tag, c):
        if tag in NUMBER_PROPERTIES:
            setattr(self, NUMBER_PROPERTIES[tag], c.varint(f"property {tag}"))
        elif tag in TEXT_PROPERTIES:
            try:
                text = c.raw(c.left()).decode("utf-8")
            except UnicodeDecodeError:
                raise c.bad(f"property {tag}: not UTF-8") from None
            setattr(self, TEXT_PROPERTIES[tag], text)
        elif tag in (7, 8):
            setattr(self, "low" if tag == 7 else "high", c.raw(c.left()))
        elif tag == 11:
            self.epochs = epochs(c)
        elif tag == 23:
            self.written = (c.varint("oldest data"), c.varint("newest data"))
            if self.written[0] > self.written[1]:
                raise c.bad("newest data is older than the oldest")
        elif tag == 25:
            self.merged = Merged(c)
        elif tag == 26:
            self.blobs = manifest.pairs(c, "blob files")
        else:
            return False
        return True


def epochs(cursor):
    result, before = [], None
    while cursor.more():
        before = manifest.epoch_segment(cursor, before)
        result.append(before)
    return result


class Merged:
    """Property 25. Only a salvage needs it, so it is checked and kept as it is."""

    def __init__(self, c):
        self.mark = c.varint("mark", MAX_NUMBER + 1)
        self.low = c.bytes("first key of the merge's range", MAX_BOUND)
        ends = c.uint(1, "end of the merge's range")
        if ends > 1:
            raise c.bad(f"end of the merge's range: {ends}")
        self.high = c.bytes("end of the merge's range", MAX_BOUND) if ends else None
        self.epochs = epochs(self.part(c))
        self.inputs = self.numbers(self.part(c))
        self.origins = self.numbers(self.part(c))
        if any(number >= self.mark for number in self.inputs):
            raise c.bad("an input of the merge is not below the mark")

    @staticmethod
    def part(c):
        length = c.varint("length", c.left())
        start = c.pos
        c.raw(length)
        return Cursor(c.buf, c.file, c.base, start, c.pos)

    @staticmethod
    def numbers(c):
        result, number = [], 0
        while c.more():
            number += c.varint("file number", MAX_NUMBER, 1 if result else 0)
            result.append(number)
        return result


class Table:
    """An open table. `entries` yields its versions in order."""

    def __init__(self, directory, name, meta=None):
        self.name, self.meta = name, meta
        self.file = File(directory, name)
        try:
            self.open()
        except BaseException:
            self.file.close()
            raise

    def close(self):
        self.file.close()

    def bad(self, offset, what):
        return Bad(self.name, offset, what)

    def open(self):
        size = self.file.size
        if size < FOOTER:
            raise self.bad(0, "shorter than a footer")
        if self.meta and self.meta.length != size:
            raise self.bad(None, f"{size} bytes long, not {self.meta.length} as the manifest says")
        at = size - FOOTER
        footer = self.file.read(at, FOOTER, "footer")
        if footer[56:] != MAGIC:
            raise self.bad(at + 56, "not a table: wrong magic number")
        if xxh3(footer[:48], at) != uint(footer, 48, 8):
            raise self.bad(at, "footer: wrong checksum")
        spans = struct.unpack_from("<5Q", footer)
        self.version, zero = struct.unpack_from("<II", footer, 40)
        if self.version not in (1, 2):
            raise self.bad(at + 40, f"table version {self.version} is not known")
        if zero:
            raise self.bad(at + 44, "footer: bytes that must be 0")
        if sum(spans) != at:
            raise self.bad(at, "footer: the spans do not add up to the file's length")
        starts = [sum(spans[:i]) for i in range(5)]
        self.parts = dict(zip(("data", "filter", "tombstones", "index", "properties"),
                              zip(starts, spans)))
        self.properties = Properties(self.cursor("properties"))
        self.read_index()
        self.read_tombstones()
        self.check_properties()

    def cursor(self, part, plain=True):
        offset, span = self.parts[part]
        raw = self.file.read(offset, span, part)
        return Cursor(unblock(raw, self.name, offset, part, plain), self.name, offset)

    def read_index(self):
        c = self.cursor("index", plain=False)
        offset, total = 0, self.parts["data"][1]
        count = c.varint("number of data blocks", c.left() // 2)
        self.blocks, before = [], b""
        for _ in range(count):
            span = c.varint("span of a block", total - offset, 10)
            separator = c.bytes("separator", MAX_KEY)
            if separator < before:
                raise c.bad("separators descend")
            before = separator
            self.blocks.append((offset, span, separator))
            offset += span
        if offset != total:
            raise c.bad("the spans of the blocks do not add up to the footer's")
        c.done("index")

    def read_tombstones(self):
        """Fragments (first key, end or None, numbers descending)."""
        self.tombstones = []
        if not self.parts["tombstones"][1]:
            return
        c = self.cursor("tombstones")
        count = c.varint("fragments", c.left() // 3, 1)
        end, numbers = b"", None
        for i in range(count):
            flags = c.uint(1, "flags of a fragment")
            if flags > 3 or (flags & 1 and not i):
                raise c.bad(f"flags {flags} of a fragment")
            if flags & 1:
                first = end
            else:
                first = c.bytes("first key of a fragment", MAX_BOUND)
                if i and first <= end:
                    raise c.bad("fragments overlap, or touch without saying so")
            if flags & 2 and i != count - 1:
                raise c.bad("a fragment without an end is not the last")
            end = None if flags & 2 else c.bytes("end of a fragment", MAX_BOUND)
            if end is not None and end <= first:
                raise c.bad("a fragment is empty")
            before = numbers
            numbers = self.numbers(c)
            if flags & 1 and numbers == before:
                raise c.bad("fragments that touch have the same numbers")
            self.tombstones.append((first, end, numbers))
        c.done("range tombstones")

    @staticmethod
    def numbers(c):
        count = c.varint("sequence numbers of a fragment", c.left(), 1)
        number = c.varint("number of a range tombstone", MAX_NUMBER, 1)
        result = [number]
        for _ in range(count - 1):
            number -= c.varint("number of a range tombstone", number - 1, 1)
            result.append(number)
        return result

    def check_properties(self):
        p, meta = self.properties, self.meta
        at = self.parts["properties"][0]
        if p.digest != "xxh3-64":
            raise self.bad(at, f"digest function {p.digest!r} is not known")
        if p.external not in (0, 1):
            raise self.bad(at, f"rules {p.external} for external tables are not known")
        if p.blocks != len(self.blocks):
            raise self.bad(at, "properties and index differ in the number of blocks")
        if p.blobs and self.version == 1:
            raise self.bad(at, "refers to blob files, which version 1 cannot")
        if self.blocks and self.blocks[-1][2] != p.high:
            raise self.bad(at, "the last separator is not the largest key")
        if p.tombstones != len(self.tombstones):
            raise self.bad(at, "wrong number of range tombstones")
        if p.external:
            self.check_external(at)
        if not meta:
            return
        if bool(p.external) != (meta.number is not None):
            raise self.bad(at, "external table without a global number, or the reverse")
        for name in ("entries", "deletes", "tombstones"):
            if getattr(p, name) != getattr(meta, name):
                raise self.bad(at, f"the manifest has {getattr(meta, name)} {name}, the "
                               f"properties {getattr(p, name)}")
        if p.merged and meta.id < p.merged.mark:
            raise self.bad(at, "the table is older than the merge that wrote it")
        if p.epochs and p.epochs != meta.epochs:
            raise self.bad(at, "properties and manifest have different epochs")
        if p.blobs != meta.blobs:
            raise self.bad(at, "properties and manifest list different blob files")
        for first, end, numbers in self.tombstones:
            if first < meta.low or (end is None and meta.end != manifest.UNBOUNDED):
                raise self.bad(self.parts["tombstones"][0], "outside the table's key range")
            if end is not None and (0, end) > meta.upper():
                raise self.bad(self.parts["tombstones"][0], "outside the table's key range")
            if meta.number is None and not (
                    meta.seq_low <= numbers[-1] and numbers[0] <= meta.seq_high):
                raise self.bad(self.parts["tombstones"][0], "outside the table's numbers")

    def check_external(self, at):
        p = self.properties
        if p.seq_low or p.seq_high:
            raise self.bad(at, "an external table has sequence numbers")
        if not p.entries and not self.tombstones:
            raise self.bad(at, "an external table is empty")
        if p.blobs or self.version == 2:
            raise self.bad(at, "an external table refers to blob files")
        if p.epochs:
            raise self.bad(at, "an external table has epochs")
        if any(numbers != [1] for _, _, numbers in self.tombstones):
            raise self.bad(at, "an external table has a range tombstone with another number")

    def check_range(self, first, last):
        """The key range of an external table is that of its keys and range tombstones."""
        lows = [key for key in (first,) if key is not None]
        uppers = [(0, key + b"\0") for key in (last,) if key is not None]
        if self.tombstones:
            end = self.tombstones[-1][1]
            lows.append(self.tombstones[0][0])
            uppers.append((1, b"") if end is None else (0, end))
        if self.meta.low != min(lows) or self.meta.upper() != max(uppers):
            raise self.bad(None, "the manifest's key range is not that of the external table")

    def block(self, index):
        offset, span, _ = self.blocks[index]
        raw = self.file.read(offset, span, "data block")
        return Block(unblock(raw, self.name, offset, "data block"), self.name, offset,
                     self.version)

    def entries(self, check=None):
        """Yields (key, -number, kind, value), in order. `check` is called with each block."""
        p, meta, number = self.properties, self.meta, None
        if meta:
            number = meta.number
        deletes = count = key_bytes = value_bytes = 0
        seq_low, seq_high = M64, 0
        last, last_seq, first = None, None, None
        separator = None
        for index, (offset, _, next_separator) in enumerate(self.blocks):
            block = self.block(index)
            if check:
                check(block)
            keys, seqs = block.keys, block.seqs
            if last is not None:
                if keys[0] < last or (keys[0] == last and seqs[0] >= last_seq):
                    raise self.bad(offset, "block is not in order with the block before")
                # The separator lies from the last key on and below the next block's first.
                if not (separator < keys[0] or separator == keys[0] == last):
                    raise self.bad(offset, "separator is not below the block's first key")
            else:
                first = keys[0]
            last, last_seq, separator = keys[-1], seqs[-1], next_separator
            if last > separator:
                raise self.bad(offset, "the block's last key is above its separator")
            count += block.n
            deletes += block.kinds.count(0) if block.kinds else 0
            key_bytes += sum(map(len, keys))
            value_bytes += block.value_bytes
            seq_low, seq_high = min(seq_low, min(seqs)), max(seq_high, max(seqs))
            if number is not None:
                if len(set(keys)) != len(keys) or seq_high:
                    raise self.bad(offset, "external table with numbers or repeated keys")
                seqs = [number] * block.n
            yield from block.rows(seqs)
        if count == 0:
            seq_low = first = last = None
        facts = (("entries", count), ("deletes", deletes), ("key_bytes", key_bytes),
                 ("value_bytes", value_bytes), ("low", first or b""), ("high", last or b""),
                 ("seq_low", seq_low or 0), ("seq_high", seq_high))
        for name, value in facts:
            if getattr(p, name) != value:
                raise self.bad(self.parts["properties"][0],
                               f"{name} is {getattr(p, name)!r}, but the data has {value!r}")
        if number is not None:
            self.check_range(first, last)
        if meta and count:
            if not (meta.holds(first) and meta.holds(last)):
                raise self.bad(None, "keys outside the range that the manifest has")
            if number is None and not meta.seq_low <= seq_low <= seq_high <= meta.seq_high:
                raise self.bad(None, "numbers outside those that the manifest has")


class Block:
    """A decoded data block: lists of keys, numbers, kinds (None: all puts) and values."""

    def __init__(self, buf, file, offset, version):
        self.file, self.offset = file, offset
        size = len(buf)
        if size < 24:
            raise self.bad("data block without its footer")
        foot = size - 24
        n, key_size = struct.unpack_from("<II", buf, foot)
        smallest = uint(buf, foot + 8, 7)
        width, prints, shift, kw, vw, has_kinds, zero = struct.unpack_from(
            "<BHBBBBH", buf, foot + 15)
        if (n < 1 or width > 7 or prints > 1 or shift > 31 or kw not in FORMATS
                or vw not in FORMATS or has_kinds > 1 or zero):
            raise self.bad("data block with a wrong footer")
        fixed = key_size + n * (kw + vw + width + has_kinds + prints)
        if fixed > foot:
            raise self.bad("data block shorter than its parts")
        keys_at = foot - fixed
        ends_at = keys_at + key_size
        values_at = ends_at + n * kw
        seqs_at = values_at + n * vw
        kinds_at = seqs_at + n * width
        self.n, self.buf = n, buf
        self.read_keys(keys_at, ends_at, key_size, kw, shift)
        self.read_seqs(seqs_at, smallest, width)
        self.kinds = buf[kinds_at:kinds_at + n] if has_kinds else None
        self.fingerprints = buf[kinds_at + n * has_kinds:foot] if prints else None
        self.read_values(values_at, keys_at, vw, version)
        self.check_order()

    def bad(self, what):
        return Bad(self.file, self.offset, what)

    def read_keys(self, at, ends_at, size, width, shift):
        buf, keys = self.buf, []
        ends = struct.unpack_from(f"<{self.n}{FORMATS[width]}", buf, ends_at)
        start, first, mask = 0, b"", (1 << shift) - 1
        if ends[-1] != size:
            raise self.bad("the last key does not end where the keys end")
        for i, end in enumerate(ends):
            if end <= start or end > size:
                raise self.bad("key ends do not ascend")
            shared = buf[at + start]
            if i & mask:
                if shared > len(first):
                    raise self.bad("a key shares more than the first key has")
                keys.append(first[:shared] + buf[at + start + 1:at + end])
            else:
                if shared:
                    raise self.bad("the first key of a group shares bytes")
                first = buf[at + start + 1:at + end]
                keys.append(first)
            start = end
        self.keys = keys

    def read_seqs(self, at, smallest, width):
        buf, n = self.buf, self.n
        if not width:
            self.seqs = [smallest] * n
            return
        if width in NUMBERS:
            rest = struct.unpack_from(f"<{n}{NUMBERS[width]}", buf, at)
        else:
            rest = [uint(buf, i, width) for i in range(at, at + n * width, width)]
        if min(rest) != 0 or max(rest) + smallest > MAX_NUMBER:
            raise self.bad("sequence numbers do not fit the block's smallest")
        self.seqs = [smallest + value for value in rest]

    def read_values(self, at, limit, width, version):
        buf, values, start = self.buf, [], 0
        for end in struct.unpack_from(f"<{self.n}{FORMATS[width]}", buf, at):
            if end < start or end > limit:
                raise self.bad("value ends do not ascend")
            values.append(buf[start:end])
            start = end
        self.values, self.value_bytes = values, start
        if not self.kinds:
            return
        if max(self.kinds) > (BLOB if version == 2 else MERGE):
            raise self.bad("entry of an unknown kind")
        if any(value and not kind for kind, value in zip(self.kinds, values)):
            raise self.bad("a delete with a value")

    def check_order(self):
        keys, seqs = self.keys, self.seqs
        if max(map(len, keys)) > MAX_KEY:
            raise self.bad("key longer than 65,536 bytes")
        for i in range(1, self.n):
            if keys[i - 1] >= keys[i] and (keys[i - 1] != keys[i] or seqs[i - 1] <= seqs[i]):
                raise self.bad("entries are not in order")

    def rows(self, seqs):
        kinds = self.kinds or b"\1" * self.n
        return zip(self.keys, [-s for s in seqs], kinds, self.values)


def fingerprint(digest):
    return (digest * 0xD6E8FEB86659FD93 & M64) >> 56
