"""Primitives: the error, checked reads of files and of bytes, checksums, blocks."""

import os
import stat

import lz4.block
import xxhash
import zstandard

xxh3 = xxhash.xxh3_64_intdigest

M64 = (1 << 64) - 1
MAX_NUMBER = (1 << 56) - 1
MAX_KEY = 65536
MAX_BOUND = MAX_KEY + 1
MAX_VALUE = (1 << 32) - 1
MAX_BLOCK = 256 << 20


class Bad(Exception):
    """The one error for wrong bytes: file, offset and what is wrong."""

    def __init__(self, file, offset, what):
        super().__init__(file, offset, what)
        self.file, self.offset, self.what = file, offset, what

    def __str__(self):
        where = self.file if self.offset is None else f"{self.file}: offset {self.offset}"
        return f"{where}: {self.what}"


class Cursor:
    """Reads numbers and byte strings from a buffer and never past its end."""

    __slots__ = ("buf", "pos", "end", "file", "base")

    def __init__(self, buf, file, base=0, pos=0, end=None):
        self.buf, self.file, self.base = buf, file, base
        self.pos, self.end = pos, len(buf) if end is None else end

    def bad(self, what):
        return Bad(self.file, self.base + self.pos, what)

    def left(self):
        return self.end - self.pos

    def more(self):
        return self.pos < self.end

    def varint(self, what="number", most=M64, least=0):
        pos, end, buf = self.pos, self.end, self.buf
        if pos < end and buf[pos] < 128:
            value = buf[pos]
            pos += 1
        else:
            value = shift = 0
            while True:
                if pos >= end:
                    raise self.bad(f"{what}: varint is cut off")
                byte = buf[pos]
                pos += 1
                if shift == 63 and byte > 1:
                    raise self.bad(f"{what}: varint is longer than ten bytes or 64 bits")
                value |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
            if byte == 0:
                raise self.bad(f"{what}: varint is not in its shortest form")
        if not least <= value <= most:
            raise self.bad(f"{what}: {value} is not within {least} to {most}")
        self.pos = pos
        return value

    def raw(self, n, what="bytes"):
        if n > self.end - self.pos:
            raise self.bad(f"{what}: {n} bytes claimed, {self.end - self.pos} are there")
        start = self.pos
        self.pos = start + n
        return bytes(self.buf[start:self.pos])

    def bytes(self, what="bytes", most=M64):
        n = self.varint(what + ", length", most)
        return self.raw(n, what)

    def uint(self, width, what="number"):
        return int.from_bytes(self.raw(width, what), "little")

    def text(self, what):
        start = self.pos
        try:
            return self.bytes(what).decode("utf-8")
        except UnicodeDecodeError:
            self.pos = start
            raise self.bad(f"{what}: not UTF-8") from None

    def done(self, what):
        if self.pos != self.end:
            raise self.bad(f"{what}: {self.end - self.pos} bytes after the contents")


class File:
    """A regular file, opened for reading only, and again if it was closed in between."""

    def __init__(self, directory, name):
        self.name, self.path, self.fd = name, os.path.join(directory, name), None
        self.open()
        self.size = os.fstat(self.fd).st_size

    def open(self):
        try:
            # A FIFO would block, so the kind is checked before the file is opened.
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                raise Bad(self.name, None, "not a regular file")
            self.fd = os.open(self.path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            raise Bad(self.name, None, "the file does not exist") from None
        except OSError as error:
            raise Bad(self.name, None, f"cannot be opened: {error.strerror}") from None

    def read(self, offset, length, what):
        if offset < 0 or length < 0 or offset + length > self.size:
            raise Bad(self.name, offset, f"{what}: reaches past the end of the file")
        if self.fd is None:
            self.open()
        parts, left = [], length
        try:
            os.lseek(self.fd, offset, os.SEEK_SET)
            while left:
                part = os.read(self.fd, min(left, 1 << 30))
                if not part:
                    raise Bad(self.name, offset, f"{what}: the file became shorter")
                parts.append(part)
                left -= len(part)
        except OSError as error:
            raise Bad(self.name, offset, f"{what}: {error.strerror}") from None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def all(self):
        return self.read(0, self.size, "contents")

    def close(self):
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def uint(buf, at, width):
    return int.from_bytes(buf[at:at + width], "little")


def unblock(raw, file, offset, what, plain=False):
    """Checks a block with its trailer and returns the uncompressed payload."""
    if len(raw) < 9:
        raise Bad(file, offset, f"{what}: shorter than a block's trailer")
    if xxh3(raw[:-8], offset) != uint(raw, len(raw) - 8, 8):
        raise Bad(file, offset, f"{what}: wrong checksum")
    method, payload = raw[-9], raw[:-9]
    if method == 0:
        return payload
    if method > 2 or plain:
        raise Bad(file, offset, f"{what}: compression {method} is not allowed here")
    if len(payload) < 4:
        raise Bad(file, offset, f"{what}: compressed block without a length")
    length = uint(payload, 0, 4)
    if length > MAX_BLOCK or length > 255 * len(payload):
        raise Bad(file, offset, f"{what}: uncompressed length {length} is too large")
    try:
        unpack = unpack_lz4 if method == 1 else unpack_zstd
        result = unpack(payload[4:], length)
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError) as error:
        raise Bad(file, offset, f"{what}: does not decompress: {error}") from None
    if len(result) != length:
        raise Bad(file, offset, f"{what}: {len(result)} bytes uncompressed, not {length}")
    return result


def unpack_lz4(data, length):
    return lz4.block.decompress(data, uncompressed_size=length)


def unpack_zstd(data, length):
    # The library allocates what the frame claims, so the claim is checked first.
    claim = zstandard.get_frame_parameters(data).content_size
    if claim != zstandard.CONTENTSIZE_UNKNOWN and claim != length:
        raise ValueError(f"the frame claims {claim} bytes")
    if length == 0:
        return b""
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_BLOCK)
    return unpacker.decompress(data, max_output_size=length, allow_extra_data=False)
