"""Filters over 64-bit integers: SNARF, Rosetta, REncoder, Grafite, and their key map."""

from bisect import bisect_left

from .filters import GOLDEN, bits, ceil, reduce, remix, rotate
from .prim import M64


class KeyMap:
    """How keys become integers. `end` is the word where the map starts."""

    def __init__(self, f):
        word = f.words[-1]
        size = word & 0xFFFFFFFF
        self.shortest, self.longest = word >> 32 & 255, word >> 40 & 255
        f.need(size <= 1024 and word >> 48 == 0, "wrong key map")
        f.need(self.shortest <= self.longest <= 9, "wrong lengths in the key map")
        words = ceil(size, 8)
        self.end = f.units - 1 - words
        f.need(self.end >= 0, "the key map reaches before the filter")
        raw = b"".join(w.to_bytes(8, "little") for w in f.words[self.end:-1])
        f.need(not any(raw[size:]), "bytes after the prefix")
        self.prefix = raw[:size]
        self.width = min(8, self.longest)

    def number(self, key):
        """The key's number, or None if the key does not start with the prefix."""
        if not key.startswith(self.prefix):
            return None
        part = key[len(self.prefix):len(self.prefix) + self.width]
        return int.from_bytes(part.ljust(self.width, b"\0"), "big")


class Numbers:
    """A filter that asks for a key's number."""

    def holds(self, key):
        number = self.map.number(key)
        return number is not None and self.test(number)


def unary(words, at, n):
    """Bits as text, the first one first. Slices of text are faster than shifts of long numbers."""
    return bin(bits(words, at, n) | 1 << n)[:2:-1]


def elias_fano(f, words, at, count, buckets, width):
    """All values of a sequence that starts at a bit, ascending."""
    values, zeros, low = [], 0, at + count + buckets
    for bit in unary(words, at, count + buckets):
        if bit == "0":
            zeros += 1
            continue
        rank = len(values)
        f.need(rank < count and zeros < buckets, "wrong bits in a sequence")
        values.append(zeros << width | bits(words, low + rank * width, width))
        f.need(rank == 0 or values[-1] >= values[-2], "a sequence descends")
    stored = len(values)
    f.need(not bits(words, low + stored * width, (count - stored) * width),
           "bits after a sequence")
    return values


class Snarf(Numbers):
    def __init__(self, f):
        self.f, self.width = f, f.first
        f.need(self.width <= 31 and f.second == 0 and f.salt == 0, "wrong parameters")
        self.map = KeyMap(f)
        end = self.map.end
        f.need(end >= 2, "SNARF without a header")
        k, self.c, self.buckets = f.words[0], f.words[1] & 0xFFFFFFFF, f.words[1] >> 32
        f.need(self.c <= 8192 and self.buckets <= 16384, "wrong header")
        f.need(self.buckets << self.width < 1 << 32, "wrong header")
        f.need(k <= end - 2, "the knots reach past the end")
        self.knots = f.words[2:2 + k]
        f.need(all(a < b for a, b in zip(self.knots, self.knots[1:])), "knots do not ascend")
        at, level = 2 + k, self.knots
        while len(level) > 16:
            above = level[::16]
            f.need(f.words[at:at + len(above)] == above, "wrong tree")
            at, level = at + len(above), above
        self.size = self.c * (self.width + 1) + self.buckets if self.buckets else 0
        self.at = 64 * at
        used = max(k - 1, 0) * self.size
        f.need(at + ceil(used, 64) == end, "wrong number of units")
        f.need(not used % 64 or not f.words[end - 1] >> used % 64, "bits after the last block")
        self.blocks = {}
        if self.buckets:
            for j in range(k - 1):
                self.block(j)

    def block(self, j):
        if j not in self.blocks:
            self.blocks[j] = elias_fano(self.f, self.f.words, self.at + j * self.size, self.c,
                                        self.buckets, self.width)
        return self.blocks[j]

    def test(self, x):
        knots = self.knots
        j = bisect_left(knots, x)
        if j < len(knots) and knots[j] == x:
            return True
        if j == 0 or j == len(knots):
            return False
        if not self.buckets:
            return self.c > 0
        lo, hi = knots[j - 1], knots[j]
        return self.position(x - lo, hi - lo) in self.block(j - 1)

    def position(self, t, gap):
        P = self.buckets << self.width
        if gap <= P:
            return t
        cut = max(0, gap.bit_length() - 32)
        slope = (P << 32) // ((gap >> cut) + 1)
        return t * slope >> 32 + cut


class Grafite(Numbers):
    def __init__(self, f):
        self.f, width = f, f.first
        f.need(width <= 63 and f.second == 0, "wrong parameters")
        self.map = KeyMap(f)
        end = self.map.end
        f.need(end >= 2, "Grafite without a header")
        buckets, count = f.words[:2]
        f.need(1 <= buckets and buckets << width <= 1 << 64, "wrong number of buckets")
        length = count + buckets
        f.need(length <= 64 * end, "wrong header")
        at = 2 + (self.directory_words(length, buckets) if length > 1024 else 0)
        used = length + count * width
        f.need(at + ceil(used, 64) == end, "wrong number of units")
        f.need(not used % 64 or not f.words[end - 1] >> used % 64, "bits after the hashes")
        hashes = elias_fano(f, f.words, 64 * at, count, buckets, width)
        self.hashes = set(hashes)
        f.need(len(self.hashes) == count, "the hashes are not distinct")
        if length > 1024:
            self.check_directory(unary(f.words, 64 * at, length), buckets)
        self.r = buckets << width
        w = [remix(i, f.salt) for i in range(4)]
        self.A, self.C = w[0] << 64 | w[1], w[2] << 64 | w[3]

    @staticmethod
    def directory_words(length, buckets):
        blocks = ceil(length, 512)
        return ceil(blocks, 128) + ceil(blocks, 4) + ceil((buckets - 1) // 2048 + 2, 2)

    def check_directory(self, text, buckets):
        f, blocks = self.f, ceil(len(text), 512)
        hints = (buckets - 1) // 2048 + 2
        before, zeros, at = [], 0, []
        for b in range(blocks):
            before.append(zeros)
            zeros += text.count("0", 512 * b, 512 * b + 512)
            while 2048 * len(at) < zeros and len(at) < hints - 1:
                at.append(b)
        at.append(blocks - 1)
        want = list(before[::128])
        want += self.pack([x - before[i // 128 * 128] for i, x in enumerate(before)], 16)
        want += self.pack(at, 32)
        f.need(list(f.words[2:2 + len(want)]) == want and len(at) == hints, "wrong directory")

    @staticmethod
    def pack(numbers, width):
        each = 64 // width
        return [sum(x << width * i for i, x in enumerate(numbers[j:j + each]))
                for j in range(0, len(numbers), each)]

    def test(self, x):
        r = self.r
        if r == 1 << 64:
            return x in self.hashes
        y = x // r
        q = ((self.A * y + self.C & (1 << 128) - 1) >> 64) * r >> 64
        return (q + x % r) % r in self.hashes


def node_hash(salt, h, p):
    z = p + salt + (h + 1) * GOLDEN & M64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & M64
    return z ^ z >> 31


class Nodes(Numbers):
    """Rosetta and REncoder: nodes of the numbers, without their low bits."""

    def test(self, x):
        if x & (1 << self.shift) - 1:
            return False
        y = x >> self.shift
        return all(self.node(h, y >> h) for h in self.heights)


class Rosetta(Nodes):
    def __init__(self, f):
        self.f = f
        f.need(f.first == 0 and f.second == 0, "wrong parameters")
        self.map = KeyMap(f)
        end = self.map.end
        f.need(end >= 3, "Rosetta without a header")
        self.shift = f.words[0] & 255
        f.need(self.shift <= 63 and f.words[0] >> 9 == 0 and f.words[1] & 1, "wrong header")
        self.heights = [h for h in range(64) if f.words[1] >> h & 1]
        f.need(self.heights[-1] + self.shift < 64, "heights do not fit the shift")
        kept = len(self.heights)
        f.need(3 + kept <= end, "the filters reach past the end")
        heads = f.words[2:2 + kept]
        starts = [head & (1 << 40) - 1 for head in heads] + [f.words[2 + kept]]
        f.need(starts[0] == 3 + kept and starts[-1] == end, "wrong places of filters")
        f.need(all(a < b for a, b in zip(starts, starts[1:])), "a filter is empty")
        f.need(all(1 <= head >> 56 <= 30 and not head >> 40 & 0xFFFF for head in heads),
               "wrong probes")
        self.filters = {h: (starts[i], starts[i + 1] - starts[i], heads[i] >> 56)
                        for i, h in enumerate(self.heights)}

    def node(self, h, p):
        at, words, probes = self.filters[h]
        g = node_hash(self.f.salt, h, p)
        step = rotate(g, 32) | 1
        for i in range(probes):
            place = reduce(g + i * step & M64, 64 * words)
            if not self.f.words[at + (place >> 6)] >> (place & 63) & 1:
                return False
        return True


class Rencoder(Nodes):
    def __init__(self, f):
        self.f = f
        f.need(f.first == 0 and f.second == 0, "wrong parameters")
        self.map = KeyMap(f)
        end = self.map.end
        f.need(end >= 8, "REncoder without a header")
        word = f.words[0]
        levels, self.shift, self.rows = word & 255, word >> 8 & 255, word >> 16 & 255
        f.need(self.shift <= 63 and 1 <= levels <= 64 - self.shift, "wrong levels")
        f.need(1 <= self.rows <= 7 and word >> 25 == 0 and not any(f.words[2:8]), "wrong header")
        self.lines = f.words[1]
        f.need(1 <= self.lines < 1 << 32 and 8 + 8 * self.lines == end, "wrong number of lines")
        self.heights = range(levels)

    def node(self, h, p):
        t = h // 9
        d = 8 - (h - 9 * t)
        i = (1 << d) + (p & (1 << d) - 1)
        g = node_hash(self.f.salt, t, p >> d)
        step = rotate(g, 33) | 1
        mixed = g * 0xD6E8FEB86659FD93 & M64
        for j in range(self.rows):
            line = 8 + 8 * reduce(g + j * step & M64, self.lines)
            bit = i ^ (mixed >> 1 + 9 * j & 511)
            if not self.f.words[line + (bit >> 6)] >> (bit & 63) & 1:
                return False
        return True
