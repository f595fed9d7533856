"""Blob files, and logs that serve as blob files."""

from . import log as logs
from .prim import Bad, Cursor, File, MAX_NUMBER, MAX_VALUE, uint, unblock, xxh3

FOOTER = 48
MAGIC = b"tamis\0bl"


class Reference:
    __slots__ = ("file", "offset", "span", "length", "checksum")

    def __init__(self, value, table):
        # Offsets in messages count from the start of the reference.
        c = Cursor(value, f"{table}: reference {value[:64].hex()}")
        self.file = c.varint("file", MAX_NUMBER)
        self.offset = c.varint("offset of the record")
        self.span = c.varint("span", least=9)
        self.length = c.varint("length of the value", MAX_VALUE)
        self.checksum = c.uint(8, "checksum")
        c.done("reference")


class BlobFile:
    def __init__(self, directory, number):
        self.name, self.number = f"{number:06}.blb", number
        self.file = File(directory, self.name)
        try:
            self.open()
        finally:
            self.file.close()

    def open(self):
        file, size = self.file, self.file.size
        tail = file.read(max(size - FOOTER, 0), min(size, FOOTER), "footer")
        if tail[-8:] == MAGIC and size >= FOOTER:
            self.is_log = False
            self.open_blob(tail, size - FOOTER)
            return
        self.is_log = True
        head = file.read(0, min(size, logs.HEADER), "header")
        wrong = logs.header_error(head, self.name, logs.WRITES, self.number)
        if wrong:
            raise Bad(self.name, 0, f"neither a blob file nor a log: {wrong}")
        if not logs.ends_closed(tail, self.name, self.number, size):
            raise Bad(self.name, max(size - FOOTER, 0), "neither a blob file nor a complete log: "
                      "no footer and no closing record at the end")
        self.end = size

    def open_blob(self, tail, at):
        if xxh3(tail[:32], at) != uint(tail, 32, 8):
            raise Bad(self.name, at, "footer: wrong checksum")
        if uint(tail, 24, 4) != 1:
            raise Bad(self.name, at + 24, f"blob version {uint(tail, 24, 4)} is not known")
        if uint(tail, 28, 4):
            raise Bad(self.name, at + 28, "footer: bytes that must be 0")
        if uint(tail, 0, 8) != self.number:
            raise Bad(self.name, at, f"the footer is that of file {uint(tail, 0, 8)}")
        self.records, self.bytes = uint(tail, 8, 8), uint(tail, 16, 8)
        self.end = at
        # A record takes nine bytes at least.
        if self.records * 9 > at:
            raise Bad(self.name, at, "more records than the file has room for")

    def value(self, ref):
        if ref.offset + ref.span > self.end:
            raise Bad(self.name, ref.offset, "a reference reaches past the records")
        raw = self.file.read(ref.offset, ref.span, "record")
        if self.is_log:
            value = raw
            if ref.offset < logs.HEADER or xxh3(value, ref.offset) != ref.checksum:
                raise Bad(self.name, ref.offset, "value in a log: wrong checksum")
        else:
            value = unblock(raw, self.name, ref.offset, "record")
            if uint(raw, len(raw) - 8, 8) != ref.checksum:
                raise Bad(self.name, ref.offset, "the record is not the one referred to")
        if len(value) != ref.length:
            raise Bad(self.name, ref.offset, f"value of {len(value)} bytes, not {ref.length}")
        return value


class Blobs:
    """All blob files of a directory, opened when they are needed."""

    def __init__(self, directory):
        self.directory, self.files, self.opened = directory, {}, 0

    def file(self, number):
        if number not in self.files:
            self.files[number] = BlobFile(self.directory, number)
        return self.files[number]

    def value(self, value, table):
        """The value behind a reference that a table has."""
        ref = Reference(value, table.name)
        if ref.file not in table.listed:
            raise Bad(table.name, None, f"refers to blob file {ref.file}, which it does not list")
        file = self.file(ref.file)
        if file.file.fd is None:
            self.bound()
        return file.value(ref)

    def bound(self):
        """Keeps the number of open files small: a file opens again when it is read."""
        self.opened += 1
        if self.opened % 64 == 0:
            self.close()

    def close(self):
        for file in self.files.values():
            file.file.close()
