"""Reads every part of every file, and asks filters about keys."""

import os

from . import elastic, filters, keylist, log as logs
from .blob import Reference
from .filters import digest
from .image import FilterFile
from .prim import Bad, File, unblock
from .replay import FILE, numbers
from .table import BLOB, fingerprint

EXPECTED = {"CURRENT", "LOCK", "OPTIONS", "RESERVE", "STATS"}


class Check:
    def __init__(self, database, ask, write):
        self.database, self.ask, self.write = database, ask, write
        self.references = {}
        self.rejected = 0
        self.seen = set(EXPECTED)

    def line(self, name, text):
        self.seen.add(name)
        self.write(f"{name}: {text}\n")

    def run(self):
        state = self.database.state
        self.line(state.name, f"{len(state.log.records)} edits, {ending(state.log)}")
        self.check_logs()
        for keyspace in self.database.keyspaces():
            for meta in self.database.tables(keyspace):
                self.check_table(keyspace, meta)
            for number, length in sorted(keyspace.filters.items()):
                self.check_filter_file(keyspace, number, length)
            # The merge has its own checks: numbers that clash, values that are not there.
            for _ in self.database.live(keyspace, 0):
                pass
        self.check_blobs()
        for name in sorted(os.listdir(self.database.directory)):
            if name not in self.seen:
                kind = "not in use" if FILE.match(name) else "not a file of the database"
                self.write(f"{name}: {kind}\n")

    def check_logs(self):
        for log in self.database.replay.logs:
            count = sum(group.count for group in log.groups)
            self.line(log.name, f"{len(log.groups)} records, {count} writes, {ending(log)}")
        for note in self.database.replay.notes:
            self.line(note.split()[0], note)
        oldest = self.database.state.oldest_log()
        for number in numbers(self.database.directory, "log"):
            if number < oldest:
                self.line(f"{number:06}.log", "older than the first log that is needed")

    def check_table(self, keyspace, meta):
        table = self.database.table(meta)
        keys, sizes, blobs = [], 0, {}

        def block(b):
            if b.fingerprints and any(
                    fingerprint(digest(key)) != mark for key, mark in zip(b.keys, b.fingerprints)):
                raise b.bad("wrong fingerprints")

        for key, _, kind, value in table.entries(block):
            if not keys or keys[-1] != key:
                keys.append(key)
            sizes += len(key) + len(value)
            if kind == BLOB:
                # The manifest counts both the reference and the value behind it.
                sizes += self.reference(table, value, blobs)
        if meta.bytes != sizes:
            raise Bad(table.name, None, f"{sizes} bytes of keys and values, not {meta.bytes} as "
                      "the manifest says")
        if sorted(blobs.items()) != meta.blobs:
            raise Bad(table.name, None, f"refers to the bytes {blobs} of blob files, not to "
                      f"{meta.blobs}")
        what = self.check_filter(table, keys)
        table.close()
        self.line(table.name, f"keyspace {keyspace.name!r}, level {meta.level}, run {meta.run}, "
                  f"{meta.entries} entries in {len(table.blocks)} blocks, "
                  f"{len(table.tombstones)} range tombstones, {what}")

    def reference(self, table, value, blobs):
        """Checks a reference and the value behind it; returns the value's length."""
        ref = Reference(value, table.name)
        place = (ref.file, ref.offset)
        if place in self.references:
            raise Bad(table.name, None, f"refers to the record at {place}, as another entry does")
        self.database.blobs.value(value, table)
        self.references[place] = ref
        blobs[ref.file] = blobs.get(ref.file, 0) + ref.span
        return ref.length

    def check_filter(self, table, keys):
        kind = table.properties.filter
        offset, span = table.parts["filter"]
        if kind in ("", "global"):
            if span:
                raise table.bad(offset, f"a filter part, but property 13 is {kind!r}")
            return "no filter" if not kind else "filter of the tree"
        if not span:
            raise table.bad(offset, f"no filter part, but property 13 is {kind!r}")
        buf = unblock(table.file.read(offset, span, "filter"), table.name, offset, "filter", True)
        if kind == "keys":
            if keylist.read(buf, table.name, offset) != keys:
                raise table.bad(offset, "the key list does not have the table's keys")
            return f"key list of {len(keys)} keys"
        if kind == "elastic":
            filter_ = elastic.Elastic(buf, table.name, offset)
            filter_.check_keys(keys)
        elif kind in filters.NAMES:
            filter_ = filters.load(buf, table.name, offset, kind)
        else:
            raise table.bad(offset, f"filter of unknown kind {kind!r}")
        if not self.ask:
            return f"filter {kind}"
        missing = [key for key in keys if not filter_.holds(key)]
        self.rejected += len(missing)
        for key in missing[:10]:
            self.write(f"{table.name}: the filter {kind} rejects the key {key.hex()}\n")
        return f"filter {kind}: asked {len(keys)} keys, rejects {len(missing)}"

    def check_filter_file(self, keyspace, number, length):
        name = f"{number:06}.flt"
        if not os.path.exists(os.path.join(self.database.directory, name)):
            self.line(name, "missing, which is not an error")
            return
        file = FilterFile(self.database.directory, number, keyspace.number, length)
        for image in file.images:
            if image.until > keyspace.epoch:
                raise Bad(name, None, "an image's `until` is above the next epoch")
        known = sum(image.known for image in file.images)
        self.line(name, f"keyspace {keyspace.name!r}, {len(file.images)} images, {known} of "
                  "known versions")

    def check_blobs(self):
        listed = {n for t in self.database.state.tables.values() for n, _ in t.blobs}
        for number in sorted(listed):
            file = self.database.blobs.file(number)
            refs = sorted((r.offset, r.offset + r.span, r.length)
                          for (n, _), r in self.references.items() if n == number)
            used = sum(end - start for start, end, _ in refs)
            for (_, end, _), (start, _, _) in zip(refs, refs[1:]):
                if start < end:
                    raise Bad(file.name, start, "references overlap")
            if file.is_log:
                with File(self.database.directory, file.name) as f:
                    log = logs.parse(file.name, number, f.all(), logs.WRITES, finished=True)
                for record in log.records:
                    logs.group(log, record)
                self.line(file.name, f"a log, {len(refs)} values in use")
                continue
            if len(refs) > file.records or sum(r[2] for r in refs) > file.bytes:
                raise Bad(file.name, file.end, "more records in use than the footer says")
            if used == file.end and (len(refs), sum(r[2] for r in refs)) != (
                    file.records, file.bytes):
                raise Bad(file.name, file.end, "the footer's counts are wrong")
            self.line(file.name, f"{file.records} records, {len(refs)} in use, "
                      f"{file.end - used} bytes of garbage")


def ending(log):
    if log.closed:
        return "closed"
    if any(log.data[log.torn:]):
        return f"torn at offset {log.torn}"
    return f"not closed, ends at offset {log.torn}"


def check(database, ask, write):
    """Returns the number of keys that a filter of their table rejects."""
    result = Check(database, ask, write)
    result.run()
    return result.rejected
