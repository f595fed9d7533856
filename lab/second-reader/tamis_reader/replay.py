"""Replays the write-ahead logs that the manifest needs."""

import os
import re

from . import log as logs
from .prim import Bad, File, MAX_NUMBER
from .table import DELETE, MERGE, PUT

FILE = re.compile(r"(\d{6}|[1-9]\d{6,})\.(log|tam|blb|flt)\Z", re.ASCII)
KINDS = {logs.DELETE: DELETE, logs.PUT: PUT, logs.MERGE: MERGE}


def numbers(directory, kind):
    """The numbers of the files of a kind, ascending."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise Bad(directory, None, f"cannot be listed: {error.strerror}") from None
    found = (FILE.match(name) for name in names)
    return sorted(int(m[1]) for m in found if m and m[2] == kind and int(m[1]) <= MAX_NUMBER)


class Memtable:
    """What the logs hold of one keyspace: rows as tables yield them, and range tombstones."""

    def __init__(self):
        self.rows, self.tombstones = [], []


class Replay:
    def __init__(self, directory, state):
        self.directory, self.state = directory, state
        self.memtables = {number: Memtable() for number in state.keyspaces}
        self.notes = []
        self.logs = self.read(directory)
        self.torn = None
        self.last = self.reach()
        self.check_closing()
        self.apply()

    def read(self, directory):
        oldest = self.state.oldest_log()
        found = [n for n in numbers(directory, "log") if n >= oldest]
        if oldest and oldest not in found:
            raise Bad(f"{oldest:06}.log", None, "the manifest needs this log, which does not exist")
        result = []
        for index, number in enumerate(found):
            name = f"{number:06}.log"
            with File(directory, name) as file:
                log = logs.parse(name, number, file.all(), logs.WRITES)
            log.groups = [logs.group(log, record) for record in log.records]
            if log.successor is not None:
                follower = found[index + 1] if index + 1 < len(found) else None
                if follower != log.successor:
                    raise Bad(name, log.end, f"log {log.successor:06}.log continues this one, "
                              "but does not exist or is not the next")
            result.append(log)
        return result

    def reach(self):
        """Returns the last number that the logs reach. Drops everything after a torn log."""
        last = None
        for index, log in enumerate(self.logs):
            for group in log.groups:
                if self.torn and group.synced:
                    raise Bad(self.torn.name, self.torn.torn, "damaged: the log is cut off here, "
                              f"and {log.name} says that it had been synced")
                if not self.torn and last is not None and group.first != last + 1:
                    raise Bad(log.name, group.offset, f"sequence number {group.first} follows "
                              f"{last}")
                if not self.torn:
                    last = group.first + group.count - 1
            if self.torn and log.groups:
                self.notes.append(f"{log.name} is dropped: {self.torn.name} is torn")
                log.groups = []
            # Without its closing record a log is torn, unless it is the last and ends cleanly.
            is_last = index == len(self.logs) - 1
            if not self.torn and log.torn is not None and not (is_last and log.clean):
                self.torn = log
        return last

    def check_closing(self):
        state, last = self.state, self.logs[-1] if self.logs else None
        if not state.oldest_log() and (self.last or numbers(self.directory, "tam")):
            raise Bad(state.name, None, "needs no log and has no table, but there are some")
        if state.closed and last and (self.last or 0) != state.last:
            # All may be in tables: then the last log was closed without a record.
            if self.last or self.torn or not any(log.closed for log in self.logs):
                raise Bad((self.torn or last).name, self.torn.torn if self.torn else None,
                          f"the logs end with number {self.last or 0}, but the database was "
                          f"closed with {state.last}")
        if last and last.groups and last.closed and not state.closed:
            raise Bad(last.name, last.end, "the log is closed, but the manifest is not")

    def apply(self):
        keyspaces = self.state.keyspaces
        for log in self.logs:
            for group in log.groups:
                for seq, (tag, number, key, second) in enumerate(group.ops, group.first):
                    keyspace = keyspaces.get(number)
                    if keyspace is None and number >= self.state.next_keyspace:
                        raise Bad(log.name, group.offset, f"a write to keyspace {number}, which "
                                  "never existed")
                    if keyspace and log.id >= keyspace.floor:
                        self.add(log, seq, tag, self.memtables[number], key, second)
        for memtable in self.memtables.values():
            memtable.rows.sort(key=lambda row: row[:2])

    @staticmethod
    def add(log, seq, tag, memtable, key, second):
        if tag in KINDS:
            memtable.rows.append((key, -seq, KINDS[tag], second or b"", log))
        elif tag != logs.INGESTION:
            end = second if tag == logs.RANGE else None
            memtable.tombstones.append((key, end, seq, log.name))
