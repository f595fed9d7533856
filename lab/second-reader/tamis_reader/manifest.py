"""The manifest: CURRENT, edits, and the state that they make."""

import re

from . import log as logs
from .prim import Bad, Cursor, File, M64, MAX_BOUND, MAX_NUMBER

NAME = re.compile(r"MANIFEST-(\d{6}|[1-9]\d{6,})\Z", re.ASCII)
COUNTER = MAX_NUMBER + 1
U32 = (1 << 32) - 1
EXCLUDED, INCLUDED, UNBOUNDED = 0, 1, 2


class Table:
    """What the manifest says of a table."""

    __slots__ = ("keyspace", "level", "run", "id", "length", "low", "end", "high", "entries",
                 "deletes", "tombstones", "bytes", "seq_low", "seq_high", "epochs", "written",
                 "number", "snapshots", "blobs", "flush", "oldest_delete")

    def name(self):
        return f"{self.id:06}.tam"

    def upper(self):
        """The end of the key range as a value that sorts: the first key after it, or open."""
        if self.end == UNBOUNDED:
            return (1, b"")
        return (0, self.high + b"\0" if self.end == INCLUDED else self.high)

    def holds(self, key):
        return key >= self.low and (0, key) < self.upper()


class Keyspace:
    def __init__(self, number, name, options):
        self.number, self.name, self.options = number, name, options
        self.floor = 0
        self.epoch = 0
        self.ages = None
        self.tables = {}
        self.filters = {}


class State:
    def __init__(self):
        self.next_file = self.last = self.next_run = self.next_keyspace = 0
        self.floor = 0
        self.keyspaces = {}
        # All tables by id, and by keyspace, level and run.
        self.tables, self.runs = {}, {}
        self.samples = []
        self.hotness = {}
        self.closed = False
        self.name = None

    def oldest_log(self):
        """The first log that is needed."""
        if self.floor:
            return self.floor
        return min((k.floor for k in self.keyspaces.values()), default=0)

    def add(self, t):
        self.tables[t.id] = t
        self.keyspaces[t.keyspace].tables[t.id] = t
        self.runs.setdefault((t.keyspace, t.level, t.run), {})[t.id] = t

    def remove(self, t):
        del self.tables[t.id], self.keyspaces[t.keyspace].tables[t.id]
        del self.runs[t.keyspace, t.level, t.run][t.id]


def options(text, cursor):
    """The lines `name = value`. Names and values are not checked: two options matter here."""
    result = {}
    for line in text.split("\n"):
        line = line.partition("#")[0]
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        name = name.strip()
        if not equals or not name:
            raise cursor.bad(f"options: bad line {line!r}")
        result[name] = value.strip()
    return result


def pairs(cursor, what):
    """Pairs of varints up to the end, the first ones ascending."""
    result, before = [], -1
    while cursor.more():
        number = cursor.varint(what, MAX_NUMBER)
        if number <= before:
            raise cursor.bad(f"{what}: not ascending")
        before = number
        result.append((number, cursor.varint(what)))
    return result


def epoch_segment(cursor, before):
    """One segment of epochs: first key, lowest epoch, the one after the highest."""
    first = cursor.bytes("first key of an epoch segment", MAX_BOUND)
    low = cursor.varint("epoch", COUNTER)
    high = cursor.varint("epoch", COUNTER)
    if low >= high and (low, high) != (0, 0):
        raise cursor.bad("epochs: interval is empty")
    if before and first <= before[0]:
        raise cursor.bad("epochs: first keys do not ascend")
    if before and (low, high) == before[1:]:
        raise cursor.bad("epochs: neighbors are equal")
    return first, low, high


def field(cursor, what):
    """A tag and a cursor over the content of its field."""
    tag = cursor.varint(what + ", tag")
    length = cursor.varint(what + ", length", cursor.left())
    if length > cursor.left():
        raise cursor.bad(f"{what}: {length} bytes claimed, {cursor.left()} are there")
    start = cursor.pos
    cursor.pos += length
    return tag, Cursor(cursor.buf, cursor.file, cursor.base, start, cursor.pos)


def table(cursor, keyspace, level, run):
    t = Table()
    t.keyspace, t.level, t.run = keyspace, level, run
    t.id = cursor.varint("table id", MAX_NUMBER)
    t.length = cursor.varint("file length")
    t.low = cursor.bytes("smallest key", MAX_BOUND)
    t.end = cursor.uint(1, "end of the key range")
    if t.end > UNBOUNDED:
        raise cursor.bad(f"end of the key range: kind {t.end}")
    t.high = cursor.bytes("end of the key range", MAX_BOUND) if t.end != UNBOUNDED else None
    t.entries = cursor.varint("entries")
    t.deletes = cursor.varint("deletes")
    t.tombstones = cursor.varint("range tombstones")
    t.bytes = cursor.varint("bytes of keys and values")
    t.seq_low = cursor.varint("smallest sequence number", MAX_NUMBER)
    t.seq_high = cursor.varint("largest sequence number", MAX_NUMBER)
    count = cursor.varint("segments of epochs", cursor.left() // 3, 1)
    t.epochs, before = [], None
    for _ in range(count):
        before = epoch_segment(cursor, before)
        t.epochs.append(before)
    t.written, t.number, t.snapshots, t.blobs = (0, 0), None, [], []
    t.flush, t.oldest_delete = None, None
    seen = set()
    while cursor.more():
        tag, part = field(cursor, "extension of a table")
        if tag in seen:
            raise part.bad(f"extension {tag} occurs twice")
        seen.add(tag)
        extension(t, tag, part)
    if (0, t.low) >= t.upper():
        raise cursor.bad(f"table {t.id}: its key range is empty")
    if t.deletes > t.entries:
        raise cursor.bad(f"table {t.id}: more deletes than entries")
    if t.seq_low > t.seq_high:
        raise cursor.bad(f"table {t.id}: its sequence numbers are reversed")
    if t.oldest_delete and not t.seq_low <= t.oldest_delete[0] <= t.seq_high:
        raise cursor.bad(f"table {t.id}: its oldest delete is outside its numbers")
    if t.number is not None:
        if not t.seq_low == t.seq_high == t.number:
            raise cursor.bad(f"table {t.id}: numbers differ from its global number")
        if len(t.epochs) != 1 or t.epochs[0][2] != t.epochs[0][1] + 1:
            raise cursor.bad(f"table {t.id}: an ingested table needs one epoch")
    return t


def extension(t, tag, part):
    if tag == 1:
        t.written = (part.varint("oldest data"), part.varint("newest data"))
        if t.written[1] < t.written[0]:
            raise part.bad("newest data is older than the oldest")
    elif tag == 2:
        t.number = part.varint("global sequence number", MAX_NUMBER)
    elif tag == 3:
        t.snapshots = pairs(part, "snapshots")
    elif tag == 4:
        t.blobs = pairs(part, "blob files")
    elif tag == 5:
        t.flush = [part.varint("flush number")]
        while part.more():
            t.flush.append(part.varint("longer blocks"))
        if len(t.flush) > 65:
            raise part.bad("longer blocks: more than 64 levels")
    elif tag == 7:
        t.oldest_delete = (part.varint("oldest delete", MAX_NUMBER), part.varint("its time"))
    elif tag % 2 == 0:
        raise part.bad(f"extension with unknown even tag {tag}")
    else:
        return
    part.done(f"extension {tag}")


def samples(cursor):
    result, time, number = [], 0, 0
    while cursor.more():
        first = not result
        time += cursor.varint("time of a sample", M64, 0 if first else 1)
        number += cursor.varint("number of a sample", MAX_NUMBER, 1)
        if time > M64 or number > MAX_NUMBER:
            raise cursor.bad("clock samples: the sum is too large")
        result.append((time, number))
    return result


class Edit:
    """The fields of one edit, by tag, each with its offset for messages."""

    REPEATED = {12, 14, 16, 18, 20, 22, 25, 28, 29, 30, 31, 33}

    def __init__(self, log, record):
        self.fields = {}
        cursor = Cursor(log.data, log.name, 0, record.start, record.end)
        self.offset = record.offset
        while cursor.more():
            tag, part = field(cursor, "edit")
            value = self.decode(tag, part)
            if value is None:
                continue
            part.done(f"field {tag}")
            if tag in self.fields and tag not in self.REPEATED:
                raise part.bad(f"field {tag} occurs twice")
            self.fields.setdefault(tag, []).append(value)

    def decode(self, tag, c):
        if tag in (2, 4, 6, 8, 10):
            return c.varint("counter", COUNTER if tag != 10 else U32 + 1)
        if tag == 32:
            return c.varint("log id", MAX_NUMBER)
        if tag == 27:
            return samples(c)
        if tag == 29:
            return c.varint("table id", MAX_NUMBER), c.bytes("hotness")
        if tag not in (12, 14, 16, 18, 20, 22, 25, 28, 30, 31, 33):
            if tag % 2 == 0:
                raise c.bad(f"field with unknown even tag {tag}")
            return None
        keyspace = c.varint("keyspace", U32)
        if tag == 12:
            return keyspace, c.varint("log id", MAX_NUMBER)
        if tag == 14:
            name = c.text("name of a keyspace")
            return keyspace, name, options(c.text("options"), c)
        if tag == 16:
            return keyspace, options(c.text("options"), c)
        if tag == 18:
            return (keyspace,)
        if tag == 20:
            level, run = c.varint("level", 63), c.varint("run", MAX_NUMBER)
            return keyspace, table(c, keyspace, level, run)
        if tag == 25:
            return keyspace, c.varint("epoch", COUNTER)
        if tag == 28:
            return keyspace, (c.varint("since", MAX_NUMBER), c.varint("expired", MAX_NUMBER))
        if tag == 30:
            return keyspace, c.text("name of a keyspace")
        if tag == 31:
            return keyspace, c.varint("file number", MAX_NUMBER), c.varint("length")
        return keyspace, c.varint("file number", MAX_NUMBER)

    def get(self, tag):
        return self.fields.get(tag, ())


def apply(state, edit, file):
    """Applies an edit, in the order that the page states, whatever the order of its fields."""
    def bad(what):
        return Bad(file, edit.offset, what)

    def keyspace(number):
        if number not in state.keyspaces:
            raise bad(f"the edit names keyspace {number}, which does not exist")
        return state.keyspaces[number]

    def check_name(name):
        if any(k.name == name for k in state.keyspaces.values()):
            raise bad(f"the edit reuses the keyspace name {name!r}")

    for number, name, text in edit.get(14):
        if number in state.keyspaces:
            raise bad(f"the edit reuses the keyspace number {number}")
        check_name(name)
        state.keyspaces[number] = Keyspace(number, name, text)
        state.next_keyspace = max(state.next_keyspace, number + 1)
    for number, name in edit.get(30):
        if number == 0:
            raise bad("the edit renames the default keyspace")
        target = keyspace(number)
        check_name(name)
        target.name = name
    for number, text in edit.get(16):
        keyspace(number).options = text
    for number, floor in edit.get(12):
        target = keyspace(number)
        target.floor = max(target.floor, floor)
    for floor in edit.get(32):
        state.floor = max(state.floor, floor)
    for epoch in edit.get(6):
        for target in state.keyspaces.values():
            target.epoch = max(target.epoch, epoch)
    for number, epoch in edit.get(25):
        target = keyspace(number)
        target.epoch = max(target.epoch, epoch)
    for number, table_id in edit.get(22):
        t = keyspace(number).tables.get(table_id)
        if t is None:
            raise bad(f"the edit removes table {table_id}, which does not exist")
        state.remove(t)
    add_tables(state, edit, keyspace, bad)
    for table_id, content in edit.get(29):
        if table_id in state.tables:
            state.hotness[table_id] = content
    for number, (since, expired) in edit.get(28):
        target = keyspace(number)
        old = target.ages or (0, 0)
        target.ages = (max(old[0], since), max(old[1], expired))
    # Filter files of keyspaces that do not exist are not errors.
    for number, file_number in edit.get(33):
        if number in state.keyspaces:
            state.keyspaces[number].filters.pop(file_number, None)
    for number, file_number, length in edit.get(31):
        if number in state.keyspaces:
            state.keyspaces[number].filters[file_number] = length
        state.next_file = max(state.next_file, file_number + 1)
    for (number,) in edit.get(18):
        if number == 0:
            raise bad("the edit drops the default keyspace")
        for t in list(keyspace(number).tables.values()):
            state.remove(t)
        del state.keyspaces[number]
    for field_samples in edit.get(27):
        for sample in field_samples:
            add_sample(state.samples, *sample)
        thin(state.samples)
    for tag, name in ((2, "next_file"), (4, "last"), (8, "next_run"), (10, "next_keyspace")):
        for value in edit.get(tag):
            setattr(state, name, max(getattr(state, name), value))


def add_tables(state, edit, keyspace, bad):
    touched = {}
    for number, t in edit.get(20):
        target = keyspace(number)
        if t.id in state.tables:
            raise bad(f"the edit reuses the table id {t.id}")
        state.add(t)
        touched[number, t.level, t.run] = True
        state.next_file = max(state.next_file, t.id + 1)
        state.next_run = max(state.next_run, t.run + 1)
        state.last = max(state.last, t.seq_high)
        target.epoch = max(target.epoch, *(high for _, _, high in t.epochs))
    for run in touched:
        tables = sorted(state.runs[run].values(), key=lambda t: t.low)
        for a, b in zip(tables, tables[1:]):
            if a.upper() > (0, b.low):
                raise bad(f"tables {a.id} and {b.id} of one run have keys in common")


def add_sample(known, time, number):
    if known and number <= known[-1][1]:
        return
    if known and time <= known[-1][0]:
        known[-1] = (known[-1][0], number)
    else:
        known.append((time, number))


def thin(known):
    """Drops samples whose neighbors are close, from the oldest on. The ends stay."""
    if len(known) < 3:
        return
    newest, kept = known[-1][0], known[:1]
    for this, after in zip(known[1:], known[2:]):
        distance = after[0] - kept[-1][0]
        if distance > 1 and 128 * distance > newest - after[0]:
            kept.append(this)
    known[:] = kept + known[-1:]


def current(directory):
    """The name and number of the manifest in force."""
    with File(directory, "CURRENT") as file:
        if file.size > 64:
            raise Bad("CURRENT", 64, "longer than 64 bytes")
        text = file.all()
    name = text[:-1].decode("latin-1")
    match = NAME.match(name)
    if text[-1:] != b"\n" or not match or int(match[1]) > MAX_NUMBER:
        raise Bad("CURRENT", 0, "does not hold the name of a manifest and a newline")
    return name, int(match[1])


def read(directory):
    name, number = current(directory)
    with File(directory, name) as file:
        data = file.all()
    log = logs.parse(name, number, data, logs.MANIFEST)
    if not log.records:
        raise Bad(name, logs.HEADER, "the first record is damaged or missing")
    state = State()
    state.name = name
    for record in log.records:
        apply(state, Edit(log, record), name)
    state.closed = log.closed
    check(state, name)
    state.log = log
    return state


def check(state, name):
    counters = [state.next_file, state.next_run] + [k.epoch for k in state.keyspaces.values()]
    if max(counters) > 1 << 55 or state.last >= 1 << 55 or state.next_keyspace >= 1 << 31:
        raise Bad(name, None, "a counter has a value that no database reaches")
    for k in state.keyspaces.values():
        if max(k.floor, state.floor) > state.next_file:
            raise Bad(name, None, f"keyspace {k.number}: its log floor is above the next number")
        if k.ages and max(k.ages) > state.last:
            raise Bad(name, None, f"keyspace {k.number}: ages above the last sequence number")
    if 0 not in state.keyspaces:
        raise Bad(name, None, "the default keyspace does not exist")
