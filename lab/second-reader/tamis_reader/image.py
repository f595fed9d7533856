"""Filter files: the index and the heads of images."""

import struct

from .prim import Bad, Cursor, File, MAX_BOUND, MAX_NUMBER, uint, xxh3

FOOTER = 56
MAGIC = b"tamis\0fi"


class FilterFile:
    def __init__(self, directory, number, keyspace, length):
        self.name = f"{number:06}.flt"
        with File(directory, self.name) as file:
            data = file.all()
        at = len(data) - FOOTER
        if len(data) != length:
            raise self.bad(None, f"{len(data)} bytes long, not {length} as the manifest says")
        if at < 0:
            raise self.bad(0, "shorter than a footer")
        if data[at + 48:] != MAGIC:
            raise self.bad(at + 48, "not a filter file: wrong magic number")
        if xxh3(data[at:at + 40], at) != uint(data, at + 40, 8):
            raise self.bad(at, "footer: wrong checksum")
        have, size, check, space, version, zero = struct.unpack_from("<3QIIQ", data, at)
        if version != 1:
            raise self.bad(at + 28, f"version {version} is not known")
        if (have, space, zero) != (number, keyspace, 0):
            raise self.bad(at, f"footer of file {have} of keyspace {space}")
        if size > at or xxh3(data[at - size:at], at - size) != check:
            raise self.bad(at, "index: wrong length or checksum")
        self.number, self.data = number, data
        self.images = list(self.read_index(Cursor(data, self.name, 0, at - size, at)))

    def bad(self, offset, what):
        return Bad(self.name, offset, what)

    def read_index(self, c):
        at, limit = 0, c.pos
        while c.more():
            kind = c.uint(1, "kind of an image")
            if kind > 1:
                raise c.bad(f"image of kind {kind}")
            low = c.bytes("first key of an image", MAX_BOUND)
            ends = c.uint(1, "end of an image")
            if ends > 1:
                raise c.bad(f"end of an image: {ends}")
            high = c.bytes("end of an image", MAX_BOUND) if ends else None
            if high is not None and high <= low:
                raise c.bad("the range of an image is empty")
            until = c.varint("until", MAX_NUMBER + 1)
            made = c.varint("made", self.number)
            place = c.varint("place", (1 << 32) - 1)
            length = c.varint("length of an image", limit - at)
            check = c.uint(8, "checksum of an image")
            part = self.data[at:at + length]
            if xxh3(part, at) != check:
                raise self.bad(at, "image: wrong checksum")
            image = Image(Cursor(part, self.name, at))
            image.kind, image.low, image.high, image.until = kind, low, high, until
            image.made, image.place = made, place
            yield image
            at += length
        if at != limit:
            raise c.bad("the lengths of the images do not add up")


class Image:
    """The head of an image. The partition after it is a cache, so it is not read."""

    def __init__(self, c):
        self.version = c.uint(4, "version of an image")
        self.known = self.version == 1
        if not self.known:
            return
        if c.uint(4, "key_map") > 4:
            raise c.bad("key_map that is not known")
        prefix = c.raw(4, "prefix_filter")
        used = {0: 0, 1: 1, 2: 2, 3: 1}.get(prefix[0])
        if used is None or any(prefix[1 + used:]):
            raise c.bad("prefix_filter that is not known")
        c.raw(8, "bits per key")
        tables = c.uint(4, "tables")
        if tables > c.left() // 8:
            raise c.bad(f"{tables} tables claimed, {c.left()} bytes are there")
        self.tables = [c.uint(8, "table") for _ in range(tables)]
