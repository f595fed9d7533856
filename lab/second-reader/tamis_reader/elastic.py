"""The elastic filter of a table: units, directory and trailer."""

import struct
from bisect import bisect_right

from .filters import ELASTIC, Frame, GOLDEN, Unit
from .prim import Bad, Cursor, M64, MAX_KEY, uint, xxh3

TRAILER = 56
MAGIC = b"tamis\0el"


class Elastic:
    def __init__(self, buf, file, offset):
        self.buf, self.file, self.offset = buf, file, offset
        at = len(buf) - TRAILER
        if at < 0:
            raise self.bad("shorter than its trailer")
        self.salt, bits, length, self.m = struct.unpack_from("<QdQI", buf, at)
        self.n, self.hashing, self.probes, zero = buf[at + 28:at + 32]
        version, zeros = struct.unpack_from("<II", buf, at + 32)
        if buf[at + 48:] != MAGIC:
            raise self.bad("wrong magic number")
        if length > at:
            raise self.bad("the directory reaches before the filter")
        if xxh3(buf[at - length:at + 40]) != uint(buf, at + 40, 8):
            raise self.bad("wrong checksum of directory and trailer")
        if version not in (1, 2):
            raise self.bad(f"version {version} is not known")
        if zero or zeros:
            raise self.bad("bytes that must be 0")
        if not 0 < bits <= 64:
            raise self.bad("wrong number of bits per key")
        if not (1 <= self.n <= 16 and 1 <= self.hashing <= 3 and 1 <= self.probes <= 16
                and self.m >= 1):
            raise self.bad("wrong parameters")
        if self.hashing == 3 and self.probes * self.n > 30:
            raise self.bad("too many probes in a group")
        self.version = version
        self.read_directory(at - length, at)
        self.read_units(at - length)

    def bad(self, what):
        return Bad(self.file, self.offset, f"elastic filter: {what}")

    def read_directory(self, start, end):
        c = Cursor(self.buf, self.file, self.offset, start, end)
        self.borders, self.keys, self.lengths = [], [], []
        if self.m > (end - start) // 3:
            raise self.bad("more segments than the directory has room for")
        for i in range(self.m):
            border = c.bytes("border of a segment", MAX_KEY)
            if i and border <= self.borders[-1]:
                raise c.bad("borders do not ascend")
            self.borders.append(border)
            self.keys.append(c.varint("keys of a segment", least=1))
            self.lengths.append(c.varint("length of a unit", start))
        c.done("directory")
        if sum(self.lengths) * self.n != start:
            raise self.bad("the units do not fill the payload")

    def segment_salt(self, i):
        if self.hashing != 3 and self.version == 2:
            return self.salt + i * GOLDEN & M64
        return xxh3(i.to_bytes(8, "little"), self.salt)

    def read_units(self, end):
        layout = "standard"
        if self.hashing != 3:
            layout = "interleaved" if self.version == 2 else "blocked"
        self.units, at = [[] for _ in range(self.m)], 0
        for u in range(self.n):
            for i, length in enumerate(self.lengths):
                frame = Frame(self.buf[at:at + length], self.file, self.offset + at)
                frame.need(frame.kind == ELASTIC, "not a unit of an elastic filter")
                unit = Unit(frame)
                want = (self.segment_salt(i), u, self.n, self.keys[i], self.probes,
                        self.hashing, layout)
                have = (frame.salt, unit.index, unit.group, frame.keys, unit.probes,
                        unit.hashing, unit.layout)
                frame.need(have == want, f"unit {u} of segment {i} has {have}, not {want}")
                self.units[i].append(unit)
                at += length

    def segment(self, key):
        return bisect_right(self.borders, key) - 1

    def holds(self, key):
        i = self.segment(key)
        return i >= 0 and all(unit.holds(key) for unit in self.units[i])

    def check_keys(self, keys):
        """The directory must count the table's keys. Neighbors with one digest count once."""
        counts, before = [0] * self.m, [None] * self.m
        for key in keys:
            i = self.segment(key)
            if i < 0:
                raise self.bad("a key lies before the first segment")
            seeds = range(self.probes * self.n) if self.hashing == 3 else (0,)
            digests = [xxh3(key, seed) for seed in seeds]
            counts[i] += digests != before[i]
            before[i] = digests
        if counts != self.keys:
            raise self.bad("the segments' numbers of keys are not those of the table")
