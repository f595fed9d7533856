"""The key list of a table whose keyspace has a filter for the whole tree."""

import struct

from .prim import Bad, Cursor, MAX_KEY, uint, xxh3

TRAILER = 40
MAGIC = b"tamis\0kl"


def read(buf, file, offset):
    """The keys, ascending."""
    def bad(what):
        return Bad(file, offset, f"key list: {what}")

    at = len(buf) - TRAILER
    if at < 0:
        raise bad("shorter than its trailer")
    count, length, version, zero = struct.unpack_from("<QQII", buf, at)
    if buf[at + 32:] != MAGIC:
        raise bad("wrong magic number")
    if xxh3(buf[:at + 24]) != uint(buf, at + 24, 8):
        raise bad("wrong checksum")
    if version != 1:
        raise bad(f"version {version} is not known")
    if zero:
        raise bad("bytes that must be 0")
    if length > at:
        raise bad("the directory reaches before the list")
    start = at - length
    c = Cursor(buf, file, offset, start, at)
    if not length:
        if start or count:
            raise bad("keys without a directory")
        return []
    return chunked(c, start, count)


def chunked(c, start, count):
    last = c.bytes("last key", MAX_KEY)
    chunks, place, total = [], 0, 0
    while c.more():
        length = c.varint("length of a chunk", start - place)
        number = c.varint("keys of a chunk", length + 1, 1)
        first = c.bytes("first key of a chunk", MAX_KEY)
        chunks.append((place, length, number, first))
        place += length
        total += number
    if place != start:
        raise c.bad("the chunks do not fill the list")
    if total != count:
        raise c.bad("the chunks' numbers of keys do not add up")
    keys = []
    for place, length, number, first in chunks:
        part = Cursor(c.buf, c.file, c.base, place, place + length)
        if keys and first <= keys[-1]:
            raise part.bad("keys do not ascend from chunk to chunk")
        keys.append(first)
        for _ in range(number - 1):
            keys.append(following(part, keys[-1]))
        part.done("chunk")
    if keys[-1] != last:
        raise c.bad("the list does not end with its last key")
    return keys


def following(c, before):
    halves = c.uint(1, "halves")
    shared, rest = halves >> 4, halves & 15
    if shared == 15:
        shared += c.varint("shared bytes", MAX_KEY)
    if rest == 15:
        rest += c.varint("length of the rest", MAX_KEY)
    rest += 1
    if shared > len(before) or shared + rest > MAX_KEY:
        raise c.bad("a key shares more than there is, or is too long")
    tail = c.raw(rest, "rest of a key")
    # The shared bytes must be all that the keys have in common, and the key must be greater.
    if shared < len(before) and tail[0] <= before[shared]:
        raise c.bad("a key is not above the one before, or shares more than it says")
    return before[:shared] + tail
