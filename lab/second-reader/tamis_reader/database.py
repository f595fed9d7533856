"""A database directory: manifest, logs, tables and blob files together."""

import heapq
import os

from . import manifest, merge
from .blob import Blobs
from .prim import Bad
from .replay import Replay
from .table import BLOB, Table


class Database:
    def __init__(self, directory):
        if not os.path.isdir(directory):
            raise Bad(directory, None, "not a directory")
        self.directory = directory
        self.state = manifest.read(directory)
        self.replay = Replay(directory, self.state)
        self.last = max(self.state.last, self.replay.last or 0)
        self.blobs = Blobs(directory)
        self.open = {}

    def keyspaces(self):
        return sorted(self.state.keyspaces.values(), key=lambda k: k.name)

    def table(self, meta):
        if meta.id not in self.open:
            table = Table(self.directory, meta.name(), meta)
            table.close()
            table.listed = dict(meta.blobs)
            if table.properties.keyspace != meta.keyspace and 21 in table.properties.seen:
                raise Bad(table.name, None, f"written for keyspace {table.properties.keyspace}, "
                          f"not {meta.keyspace}")
            # All of its blob files must be there, even if no live value is in them.
            for number, _ in meta.blobs:
                self.blobs.file(number)
            self.open[meta.id] = table
        return self.open[meta.id]

    def tables(self, keyspace):
        """The tables by run: newest data need not come first, numbers decide."""
        return sorted(keyspace.tables.values(), key=lambda t: (t.level, t.run, t.low))

    def streams(self, keyspace, check=None):
        runs = {}
        for meta in self.tables(keyspace):
            runs.setdefault((meta.level, meta.run), []).append(self.table(meta))
        streams = [self.run(tables, i, check) for i, tables in enumerate(runs.values(), 1)]
        rows = self.replay.memtables[keyspace.number].rows
        streams.append((key, seq, 0, kind, value, log) for key, seq, kind, value, log in rows)
        return streams

    @staticmethod
    def run(tables, index, check):
        for table in tables:
            for key, seq, kind, value in table.entries(check):
                yield key, seq, index, kind, value, table
            table.close()

    def versions(self, keyspace, check=None):
        return heapq.merge(*self.streams(keyspace, check))

    def tombstones(self, keyspace):
        """All range tombstones: (first key, end or None, number, file)."""
        result = list(self.replay.memtables[keyspace.number].tombstones)
        for meta in self.tables(keyspace):
            table = self.table(meta)
            for first, end, numbers in table.tombstones:
                for number in numbers if meta.number is None else [meta.number]:
                    result.append((first, end, number, table.name))
        return sorted(result, key=lambda t: (t[0], -t[2], t[3]))

    def resolve(self, row):
        return self.blobs.value(row[4], row[5]) if row[3] == BLOB else row[4]

    def live(self, keyspace, now):
        cover = merge.Cover(self.tombstones(keyspace))
        expired = merge.expired_up_to(keyspace, self.state.samples, self.last, now)
        return merge.live(self.versions(keyspace), cover, expired, self.resolve)
