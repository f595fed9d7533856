"""Writes filters as the page says: the shapes that the sample filters do not have."""

import struct

from tamis_reader import filters, ranges
from tamis_reader.prim import xxh3

from .build import string, u64, varint


def frame(words, kind, first=0, second=0, salt=0, keys=1):
    body = b"".join(map(u64, words)) + struct.pack(
        "<3Q4B4s", salt, keys, len(words), first, kind, second, 1, b"TFL1")
    return body + u64(xxh3(body))


def words_of(bits):
    """Words from a list of bits, the first one lowest."""
    return [sum(bit << i for i, bit in enumerate(bits[at:at + 64]))
            for at in range(0, len(bits), 64)]


def words_of_bytes(data):
    return [int.from_bytes(data[i:i + 8], "little") for i in range(0, len(data), 8)]


def blocks(children, marks):
    out, before = [], [0, 0]
    for at in range(0, len(children), 512):
        part = [(words_of(seq[at:at + 512]) + [0] * 8)[:8] for seq in (children, marks)]
        out.append(before[0] | before[1] << 32)
        for n, seq in enumerate(part):
            total, word = 0, 0
            for j in range(8):
                word |= total << 9 * (j - 1) if j else 0
                total += bin(seq[j]).count("1")
            out.append(word)
            before[n] += total
        for pair in zip(*part):
            out += pair
    return out


def surf(keys, dense_levels, h, r, shift=1, salt=9):
    keys = sorted(keys)
    prefix = b""
    if len(keys) > 1:
        while len(keys[0]) > len(prefix) and all(
                k.startswith(keys[0][:len(prefix) + 1]) for k in keys):
            prefix = keys[0][:len(prefix) + 1]
    rests = [k[len(prefix):] for k in keys]
    nodes, level, dense, height = [], [b""], 0, 0
    places = {True: ([], []), False: ([], [])}
    labels, ends, suffixes, starts, children_dense, leaves_dense = b"", [], [], [], 0, 0
    while level:
        is_dense, below = height < dense_levels, []
        children, marks = places[is_dense]
        for node in level:
            under = [k for k in rests if k.startswith(node)]
            ends.append(node in under)
            if not is_dense:
                starts.append(len(labels))
            table = [0] * 256, [0] * 256
            for i, label in enumerate(sorted({k[len(node)] for k in under if k != node})):
                path = node + bytes([label])
                some = [k for k in under if k.startswith(path)]
                child = len(some) > 1
                if child:
                    below.append(path)
                else:
                    key, after = prefix + some[0], some[0][len(path):][:4].ljust(4, b"\0")
                    top = filters.remix(filters.digest(key), salt) >> 64 - h if h else 0
                    real = int.from_bytes(after, "big") >> 32 - r
                    suffixes += [(real << h | top) >> b & 1 for b in range(h + r)]
                if is_dense:
                    table[0][label], table[1][label] = int(child), 1
                    children_dense += child
                    leaves_dense += not child
                else:
                    labels += bytes([label])
                    children.append(int(child))
                    marks.append(int(i == 0))
            if is_dense:
                children += table[0]
                marks += table[1]
        nodes += level
        dense += len(level) * is_dense
        height += any(k not in level for k in rests if any(k.startswith(n) for n in level))
        level = below
    hints = [starts[i] // 512 for i in range(0, len(starts), 1 << shift)]
    lengths = [len(k) for k in rests]
    words = [dense | len(nodes) << 32, len(labels) | children_dense << 32,
             leaves_dense | height << 32, min(lengths) | max(lengths) << 32,
             shift | any(ends) << 8 | len(prefix) << 32]
    words += blocks(*places[True]) + blocks(*places[False])
    words += [sum(x << 32 * i for i, x in enumerate(hints[j:j + 2]))
              for j in range(0, len(hints), 2)]
    words += words_of_bytes(labels)
    words += words_of([int(e) for e in ends]) if any(ends) else []
    words += words_of_bytes(prefix) + words_of(suffixes)
    return frame(words, filters.SURF, h, r, salt, len(keys))


def key_map(prefix, shortest, longest):
    return words_of_bytes(prefix) + [len(prefix) | shortest << 32 | longest << 40]


def elias_fano(values, count, buckets, width):
    unary = [0] * (count + buckets)
    low = []
    for i, value in enumerate(values):
        unary[(value >> width) + i] = 1
        low += [value >> b & 1 for b in range(width)]
    return unary + low + [0] * ((count - len(values)) * width)


def grafite(numbers, buckets, width, salt=3):
    """Keys are eight bytes, big-endian."""
    reader = object.__new__(ranges.Grafite)
    w = [filters.remix(i, salt) for i in range(4)]
    reader.r, reader.A, reader.C = buckets << width, w[0] << 64 | w[1], w[2] << 64 | w[3]
    collected = set()

    class Collect:
        def __contains__(self, value):
            collected.add(value)
            return True

    reader.hashes = Collect()
    for number in numbers:
        reader.test(number)
    hashes = sorted(collected)
    bits = elias_fano(hashes, len(hashes), buckets, width)
    unary, directory = bits[:len(hashes) + buckets], []
    if len(unary) > 1024:
        before = [unary[:512 * b].count(0) for b in range(-(-len(unary) // 512))]
        zeros = [i for i, bit in enumerate(unary) if not bit]
        hints = [zeros[z] // 512 for z in range(0, buckets, 2048)] + [len(before) - 1]
        small = [x - before[i // 128 * 128] for i, x in enumerate(before)]
        directory = before[::128] + words_of_bytes(struct.pack(f"<{len(small)}H", *small))
        directory += words_of_bytes(struct.pack(f"<{len(hints)}I", *hints))
    words = [buckets, len(hashes)] + directory + words_of(bits) + key_map(b"", 8, 8)
    return frame(words, filters.GRAFITE, width, 0, salt)


def snarf(numbers, every, width, c, buckets):
    numbers = sorted(numbers)
    knots = numbers[::every]
    if knots[-1] != numbers[-1]:
        knots.append(numbers[-1])
    words, level = [len(knots), c | buckets << 32] + knots, knots
    while len(level) > 16:
        level = level[::16]
        words += level
    reader = object.__new__(ranges.Snarf)
    reader.buckets, reader.width = buckets, width
    bits = []
    for lo, hi in zip(knots, knots[1:]):
        values = sorted(reader.position(x - lo, hi - lo) for x in numbers if lo < x < hi)
        bits += elias_fano(values, c, buckets, width)
    words += words_of(bits) + key_map(b"", 8, 8)
    return frame(words, filters.SNARF, width)


def elastic(segments, version, hashing, units, probes, words=8, salt=5):
    """Segments are lists of keys. The bits are set where the reader looks for them."""
    scheme = {1: {1: 4, 2: 3}, 2: {1: 5, 2: 7}, 3: {1: 2, 2: 2}}[hashing][version]
    directory, payload = b"", b""
    before = None
    for keys in segments:
        n = next(i for i in range(len(keys[0]) + 1) if before is None or keys[0][:i] > before)
        directory += string(keys[0][:n]) + varint(len(keys)) + varint(8 * words + 40)
        before = keys[-1]
    for u in range(units):
        for i, keys in enumerate(segments):
            if hashing != 3 and version == 2:
                own = salt + i * filters.GOLDEN & filters.M64
            else:
                own = xxh3(i.to_bytes(8, "little"), salt)
            bits = Bits(words)
            blank = frame([0] * words, filters.ELASTIC, u | units - 1 << 4, probes | scheme << 5,
                          own, len(keys))
            unit = filters.load(blank, "test", 0)
            unit.f.words = bits
            for key in keys:
                unit.holds(key)
            payload += frame(bits.words, filters.ELASTIC, u | units - 1 << 4,
                             probes | scheme << 5, own, len(keys))
    tail = struct.pack("<QdQI4BII", salt, 3.0, len(directory), len(segments), units, hashing,
                       probes, 0, version, 0)
    return payload + directory + tail + u64(xxh3(directory + tail)) + b"tamis\0el"


class Bits:
    """Words that set each bit that is looked at."""

    def __init__(self, n):
        self.words = [0] * n

    def __getitem__(self, i):
        return Word(self, i)


class Word:
    def __init__(self, bits, i):
        self.bits, self.i = bits, i

    def __rshift__(self, n):
        self.bits.words[self.i] |= 1 << n
        return 1
