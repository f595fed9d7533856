"""Filters in tables: the frame, and the kinds that answer for keys."""

import struct

from .prim import Bad, M64, uint, xxh3

GOLDEN = 0x9E3779B97F4A7C15
TRAILER = 40
BLOOM, BLOCKED, RIBBON, FUSE, XOR, CUCKOO, ELASTIC = range(1, 8)
SURF, SNARF, ROSETTA, RENCODER, GRAFITE = range(16, 21)
NAMES = {"bloom": BLOOM, "blocked-bloom": BLOCKED, "ribbon": RIBBON, "fuse": FUSE, "xor": XOR,
         "cuckoo": CUCKOO, "surf": SURF, "snarf": SNARF, "rosetta": ROSETTA,
         "rencoder": RENCODER, "grafite": GRAFITE}
PROBES = (0x9018775B, 0x6EDD3A25, 0x8CE14C8B, 0x8687B18D, 0x7DAB7AD3, 0x1ED40C23, 0x9BA05717,
          0x3FE6E7BF, 0x9253F6B7, 0xCB674D99, 0x3BEC5519, 0x2D38DE7D, 0xBDA513BD, 0x57B39E4D,
          0x20F0AC5D, 0xBAFCABA9)
STEP = 0xA93F99F2E8A4987F


def digest(key):
    return xxh3(key, 0)


def reduce(h, n):
    return h * n >> 64


def rotate(h, n):
    return (h << n | h >> (64 - n)) & M64


def remix(d, s):
    t = (s + 1) * GOLDEN & M64
    t = (t ^ t >> 32) * 0x94D049BB133111EB & M64
    x = (d ^ t) * 0xBF58476D1CE4E5B9 & M64
    return (x ^ x >> 32) * 0x94D049BB133111EB & M64


def parity(x):
    return bin(x).count("1") & 1


def ceil(a, b):
    return -(-a // b)


def bits(words, at, n):
    """Bits `at` to `at + n - 1` of a sequence of words."""
    if not n:
        return 0
    first, last = at >> 6, at + n - 1 >> 6
    if last <= first + 1:
        value = words[first] | (words[last] << 64 if last > first else 0)
    else:
        part = words[first:last + 1]
        value = int.from_bytes(struct.pack(f"<{len(part)}Q", *part), "little")
    return value >> (at & 63) & (1 << n) - 1


class Frame:
    """A filter's payload and trailer, checked."""

    def __init__(self, buf, file, offset):
        self.file, self.offset = file, offset
        at = len(buf) - TRAILER
        if at < 0:
            raise self.bad("filter shorter than its trailer")
        self.salt, self.keys, self.units = struct.unpack_from("<3Q", buf, at)
        self.first, self.kind, self.second, version = buf[at + 24:at + 28]
        if buf[at + 28:at + 32] != b"TFL1":
            raise self.bad("filter: wrong magic number")
        if xxh3(buf[:at + 32], 0) != uint(buf, at + 32, 8):
            raise self.bad("filter: wrong checksum")
        if version != 1:
            raise self.bad(f"filter version {version} is not known")
        if not 1 <= self.units <= 1 << 32:
            raise self.bad(f"filter of {self.units} units")
        if at != self.units * (64 if self.kind == BLOCKED else 8):
            raise self.bad("filter: its length and its number of units differ")
        self.words = struct.unpack_from(f"<{at // 8}Q", buf)

    def bad(self, what):
        return Bad(self.file, self.offset, what)

    def need(self, condition, what):
        if not condition:
            raise self.bad(f"filter: {what}")


def load(buf, file, offset, name=None):
    """The filter in a byte string: an object that answers `holds(key)`."""
    from . import ranges, surf
    kinds = {BLOOM: Bloom, BLOCKED: BlockedBloom, RIBBON: Ribbon, FUSE: Fuse, XOR: Xor,
             CUCKOO: Cuckoo, ELASTIC: Unit, SURF: surf.Surf, SNARF: ranges.Snarf,
             ROSETTA: ranges.Rosetta, RENCODER: ranges.Rencoder, GRAFITE: ranges.Grafite}
    frame = Frame(buf, file, offset)
    if frame.kind not in kinds:
        raise frame.bad(f"filter of unknown kind {frame.kind}")
    if name is not None and NAMES[name] != frame.kind:
        raise frame.bad(f"filter of kind {frame.kind}, but the properties say {name}")
    return kinds[frame.kind](frame)


class Bloom:
    def __init__(self, f):
        f.need(1 <= f.first <= 30 and 1 <= f.second <= 3, "wrong parameters")
        self.f, self.m = f, f.units * 64

    def holds(self, key):
        f, m = self.f, self.m
        if f.second == 3:
            places = (remix(xxh3(key, i), f.salt) for i in range(f.first))
        else:
            d = digest(key)
            h = remix(d, f.salt)
            step = rotate(h, 32) if f.second == 1 else remix(d, f.salt ^ STEP)
            step |= 1
            places = (h + i * step & M64 for i in range(f.first))
        return all(f.words[p >> 6] >> (p & 63) & 1 for p in (reduce(g, m) for g in places))


def line_bits(words, line, low, shift, probes):
    """True if all bits of a key are set in a line of words."""
    for c in PROBES[:probes]:
        p = (low * c & 0xFFFFFFFF) >> shift
        if not words[line + (p >> 6)] >> (p & 63) & 1:
            return False
    return True


class BlockedBloom:
    def __init__(self, f):
        f.need(1 <= f.first <= 16 and f.second == 0, "wrong parameters")
        self.f = f

    def holds(self, key):
        f = self.f
        h = remix(digest(key), f.salt)
        # Two 32-bit words in order are one 64-bit word, bit for bit.
        return line_bits(f.words, 8 * reduce(h, f.units), h & 0xFFFFFFFF, 23, f.first)


class Ribbon:
    def __init__(self, f):
        self.f, self.lower = f, f.first
        f.need(self.lower <= 32, "wrong parameters")
        self.slots, self.upper = f.words[0] & (1 << 36) - 1, f.words[0] >> 36
        f.need(self.slots <= 1 << 32, "too many slots")
        f.need(self.slots or not self.lower, "columns without slots")
        self.whole, self.tail = self.slots // 64, self.slots % 64
        blocks = self.whole + (self.tail > 0)
        f.need(self.upper <= blocks, "more upper blocks than blocks")
        f.need(self.lower < 32 or self.upper == blocks, "more than 32 columns")
        used = self.tail * self.columns(self.whole)
        f.need(f.units == self.base(self.whole) + ceil(used, 64), "wrong number of units")
        f.need(not used % 64 or not f.words[-1] >> used % 64, "bits after the last block")
        self.key = f.salt ^ (f.second * 0x81E92B5B98BA91AD & M64)
        self.starts = max(self.slots - 127, 1)

    def columns(self, block):
        return self.lower + (block >= self.upper)

    def base(self, block):
        return 1 + block * self.lower + max(block - self.upper, 0)

    def column(self, block, c):
        if block < self.whole:
            return self.f.words[self.base(block) + c]
        if block == self.whole and self.tail:
            return bits(self.f.words, 64 * self.base(block) + c * self.tail, self.tail)
        return 0

    def holds(self, key):
        if not self.slots:
            return False
        h = remix(digest(key), self.key)
        s = reduce(h, self.starts)
        k = fold(h, 0xDD2D816782F2681F) | 1 | fold(h, 0xA63ADE4F90136CC3) << 64
        result = fold(h, 0x9CED8F42C62A2F51)
        block = s // 64
        # The shift drops slots before the start; what is above the 128 has no coefficient.
        k <<= s % 64
        for c in range(self.columns(block)):
            window = (self.column(block, c) | self.column(block + 1, c) << 64
                      | self.column(block + 2, c) << 128)
            if parity(window & k) != result >> (63 - c) & 1:
                return False
        return True


def fold(h, f):
    product = h * f
    return product & M64 ^ product >> 64


class Fingerprints:
    """What binary fuse, XOR and cuckoo filters share: a table of equal fields."""

    least = 0

    def __init__(self, f):
        self.f, self.w = f, f.first
        f.need(self.least <= self.w <= 32, "wrong width")
        if self.w == 0:
            f.need(f.second == 0 and f.words == (0,), "no fingerprints, but a payload")
            return
        f.need(self.least or f.keys, "fingerprints without keys")
        slots = self.sizes(f.units * 64 // self.w)
        f.need(f.units == ceil(slots * self.w, 64), "wrong number of units")
        f.need(f.keys or self.least == 0 or not any(f.words), "fingerprints without keys")

    def field(self, i):
        return bits(self.f.words, i * self.w, self.w)

    def holds(self, key):
        if self.w == 0:
            return self.f.keys > 0
        r = remix(digest(key), self.f.salt)
        return self.test(r ^ r >> 32)

    def three(self, h, a, b, c):
        print_ = ((h * 0x9FB21C651E98DF25 & M64) >> 32) & (1 << self.w) - 1
        return self.field(a) ^ self.field(b) ^ self.field(c) == print_


class Fuse(Fingerprints):
    def sizes(self, fields):
        f = self.f
        f.need(f.second <= 18, "wrong segment length")
        self.length = 1 << f.second
        self.segments = fields >> f.second
        f.need(self.segments >= 3, "fewer than three segments")
        return self.segments * self.length

    def test(self, h):
        length = self.length
        a = reduce(h, (self.segments - 2) * length)
        b = (a + length) ^ ((h >> 18) & (length - 1))
        c = (a + 2 * length) ^ (h & (length - 1))
        return self.three(h, a, b, c)


class Xor(Fingerprints):
    def sizes(self, fields):
        self.f.need(self.f.second == 0, "wrong parameters")
        self.m = fields // 3
        self.f.need(self.m >= 1, "no slots")
        return 3 * self.m

    def test(self, h):
        m = self.m
        return self.three(h, reduce(h, m), reduce(rotate(h, 21), m) + m,
                          reduce(rotate(h, 42), m) + 2 * m)


class Cuckoo(Fingerprints):
    least = 2

    def sizes(self, fields):
        self.f.need(self.f.second == 0, "wrong parameters")
        self.m = fields // 4
        self.f.need(self.m >= 1, "no buckets")
        return 4 * self.m

    def test(self, h):
        m = self.m
        print_ = 1 + ((h & 0xFFFFFFFF) * ((1 << self.w) - 1) >> 32)
        r = remix(print_, self.f.salt)
        i = reduce(h, m)
        j = (reduce(r ^ r >> 32, m) - i) % m
        return any(self.field(4 * bucket + k) == print_ for bucket in (i, j) for k in range(4))


class Unit:
    """One unit of an elastic filter."""

    # scheme bits: (hashing, layout)
    SCHEMES = {0: (1, "standard"), 1: (2, "standard"), 2: (3, "standard"), 4: (1, "blocked"),
               5: (2, "blocked"), 3: (1, "interleaved"), 7: (2, "interleaved")}

    def __init__(self, f):
        self.f = f
        self.index, self.group = f.first & 15, (f.first >> 4) + 1
        self.probes, scheme = f.second & 31, f.second >> 5
        f.need(self.index < self.group, "a unit's index is not below their number")
        f.need(scheme in self.SCHEMES, "unknown scheme of a unit")
        self.hashing, self.layout = self.SCHEMES[scheme]
        most = 30 if self.layout == "standard" else 16
        f.need(1 <= self.probes <= most, "wrong number of probes")
        if self.hashing == 3:
            f.need(self.probes * self.group <= 30, "too many probes in a group")
        if self.layout != "standard":
            f.need(f.units % (8 if self.layout == "blocked" else 4) == 0, "wrong number of words")

    def holds(self, key):
        f, u, k, w = self.f, self.index, self.probes, self.f.units
        if self.hashing == 3:
            places = (remix(xxh3(key, j), f.salt) for j in range(u * k, (u + 1) * k))
        else:
            d = digest(key)
            h = remix(d, f.salt)
            step = (rotate(h, 33) if self.hashing == 1 else remix(d, f.salt ^ STEP)) | 1
            if self.layout != "standard":
                t = h + u * step & M64
                low = (t * 0xD1B54A32D192ED03 & M64) >> 32
                if self.layout == "blocked":
                    return line_bits(f.words, 8 * reduce(t, w // 8), low, 23, k)
                return line_bits(f.words, 4 * reduce(h, w // 4), low, 24, k)
            places = (h + (u * k + i) * step & M64 for i in range(k))
        return all(f.words[p >> 6] >> (p & 63) & 1 for p in (reduce(g, 64 * w) for g in places))
