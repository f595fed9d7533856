"""What the pages say, one rule at a time."""

import json
import unittest

from tamis_reader import filters, keylist, manifest, merge, ranges
from tamis_reader.prim import Bad, Cursor, xxh3

from . import build
from .build import Log, Table, field, keyspace, op, string, varint
from .helpers import Case


def database(*edits, logs_=(), closed=None, files=None, options=""):
    """Files of a database with the keyspaces `default` (0) and `other` (1)."""
    first = keyspace(0, "default", options) + keyspace(1, "other") + field(2, 50) + field(32, 10)
    result = {"CURRENT": b"MANIFEST-000001\n",
              "MANIFEST-000001": build.manifest(1, (first,) + edits, closed)}
    for log in logs_ or [Log(10, 1)]:
        result[f"{log.number:06}.log"] = log.data
    return {**result, **(files or {})}


def put(key, value=b"v", keyspace_=0):
    return op(1, keyspace_, key, value)


class Pages(unittest.TestCase):
    """Numbers that the pages give."""

    def test_hashing(self):
        self.assertEqual(filters.digest(b""), 0x2D06800538D394C2)
        self.assertEqual(filters.digest(b"a"), 0xE6C632B61E964E1F)
        self.assertEqual(filters.remix(0, 0), 0x8A69C62210514E99)
        self.assertEqual(filters.remix(0x0123456789ABCDEF, 7), 0xAB94FD38BFE8FF4D)
        self.assertEqual(ranges.node_hash(0, 0, 0), 0xE220A8397B1DCDAF)

    def test_key_list(self):
        body = bytes.fromhex("10630163640263640503026162")
        body += build.u64(3) + build.u64(8) + b"\1\0\0\0\0\0\0\0"
        body += build.u64(xxh3(body)) + b"tamis\0kl"
        self.assertEqual(keylist.read(body, "test", 0), [b"ab", b"ac", b"cd"])

    def test_varint(self):
        for data in (b"\x80\0", b"\xff" * 9 + b"\2", b"\x80" * 10 + b"\1", b"\x80", b""):
            with self.assertRaises(Bad):
                Cursor(data, "test").varint()
        self.assertEqual(Cursor(b"\xff" * 9 + b"\1", "test").varint(), (1 << 64) - 1)


class Logs(Case):
    def keys(self, files):
        lines = self.read(files).splitlines()
        return [bytes.fromhex(json.loads(line)["key"]).decode() for line in lines]

    def two(self, cut, synced):
        """A log of two records that was cut in the second, and the log after it."""
        first = Log(10, 1).write(1, put(b"a")).write(2, put(b"b"), distance=24)
        first.data = first.data[:len(first.data) - cut]
        return first, Log(11, 1).write(3, put(b"c"), synced=synced)

    def test_torn_end(self):
        self.assertEqual(self.keys(database(logs_=self.two(1, 0)[:1])), ["a"])
        log = Log(10, 1).write(1, put(b"a"))
        log.data += bytes(1000)
        self.assertEqual(self.keys(database(logs_=[log])), ["a"])

    def test_torn_log_drops_later_ones(self):
        self.assertEqual(self.keys(database(logs_=self.two(1, 0))), ["a"])

    def test_torn_log_that_was_synced(self):
        self.refuse(database(logs_=self.two(1, 1)), "had been synced")

    def test_log_without_its_closing_record(self):
        self.refuse(database(logs_=self.two(0, 1)), "had been synced")
        self.assertEqual(self.keys(database(logs_=self.two(0, 0))), ["a", "b"])

    def test_gap_after_closed_log(self):
        first = Log(10, 1).write(1, put(b"a")).close(11)
        self.refuse(database(logs_=[first, Log(11, 1).write(3, put(b"c"))]), "number 3 follows 1")

    def damaged(self, distance):
        log = Log(10, 1).write(1, put(b"a")).write(2, put(b"b")).write(3, put(b"c"),
                                                                      distance=distance)
        at = log.starts[1]
        log.data = log.data[:at] + b"\xff" + log.data[at + 1:]
        return log, at

    def test_damage_that_a_later_record_shows(self):
        self.refuse(database(logs_=[self.damaged(0)[0]]), "damaged")

    def test_intact_records_after_a_tear_are_dropped(self):
        log, at = self.damaged(0)
        distance = log.starts[2] - at
        self.assertEqual(self.keys(database(logs_=[self.damaged(distance)[0]])), ["a"])

    def test_old_bytes_in_a_reused_file(self):
        old = Log(9, 1).write(1, put(b"x")).write(2, put(b"y"))
        log = Log(10, 1, 1).write(1, put(b"a"))
        log.data += old.data[len(log.data):]
        self.assertEqual(self.keys(database(logs_=[log])), ["a"])
        old.number = 10
        self.assertEqual(self.keys(database(logs_=[old])), [])

    def test_bad_header_before_a_record(self):
        log = Log(10, 1).write(1, put(b"a"))
        log.data = b"X" + log.data[1:]
        self.refuse(database(logs_=[log]), "header is damaged")

    def test_named_logs_must_exist(self):
        files = database()
        del files["000010.log"]
        self.refuse(files, "does not exist")
        self.refuse(database(logs_=[Log(10, 1).write(1, put(b"a")).close(12)]), "000012.log")

    def test_closing(self):
        log = Log(10, 1).write(1, put(b"a")).close()
        self.assertEqual(self.keys(database(logs_=[log], closed=1)), ["a"])
        self.refuse(database(logs_=[log], closed=2), "the logs end with number 1")
        self.refuse(database(logs_=[log]), "the manifest is not")

    def test_closed_database_with_an_empty_log(self):
        log = Log(10, 1).write(1, put(b"a")).close()
        for cut in range(len(log.data)):
            part = Log(10, 1)
            part.data = log.data[:cut]
            files = database(logs_=[part], closed=1)
            if cut >= log.starts[1]:
                self.assertEqual(self.keys(files), ["a"])
            else:
                self.refuse(files, "000010.log")

    def test_numbers_go_on_from_log_to_log(self):
        first = Log(10, 1).write(1, put(b"a"), put(b"b")).close(11)
        for number in (2, 4):
            logs_ = [first, Log(11, 1).write(number, put(b"c"))]
            self.refuse(database(logs_=logs_), f"number {number} follows 2")

    def test_header_of_another_log(self):
        for number, part in ((9, None), (11, "a later one")):
            log = Log(number, 1)
            log.number = 10
            if part:
                self.refuse(database(logs_=[log]), part)
            else:
                self.assertEqual(self.keys(database(logs_=[log])), [])

    def test_closed_database_whose_logs_lost_everything(self):
        first = Log(10, 1).write(1, put(b"a")).close(11)
        cut = Log(10, 1)
        cut.data = first.data[:32]
        later = Log(11, 1).write(2, put(b"b"), synced=0).close()
        self.refuse(database(logs_=[cut, later], closed=2), "000010.log")
        self.assertEqual(self.keys(database(logs_=[cut, Log(11, 1).close()], closed=0)), [])

    def test_manifest_that_lost_its_edits(self):
        files = database(logs_=[Log(10, 1).write(1, put(b"a"))])
        files["MANIFEST-000001"] = build.manifest(1, [keyspace(0, "default")])
        self.refuse(files, "needs no log")

    def test_floor_of_a_keyspace(self):
        first = Log(10, 1).write(1, put(b"a"), put(b"o", keyspace_=1)).close(11)
        files = database(field(12, 0, 11), logs_=[first, Log(11, 1).write(3, put(b"b"))])
        self.assertEqual(self.keys(files), ["b", "o"])

    def test_keyspace_that_never_existed(self):
        log = Log(10, 1).write(1, put(b"a", keyspace_=7))
        self.refuse(database(logs_=[log]), "never existed")
        self.assertEqual(self.keys(database(field(10, 8), logs_=[log])), [])

    def test_rejected_operations(self):
        for bad in (op(9, 0, b"a"), op(2, 0, b"b", b"a"), op(2, 0, b"b", b"b"), op(16, 0, b"x"),
                    op(1, 0, bytes(65537), b""), op(0, 0, b"a") + b"\0"):
            self.refuse(database(logs_=[Log(10, 1).write(1, bad)]), "000010.log")
        self.refuse(database(logs_=[Log(10, 1).write(1, put(b"a"), op(16, 0, b""))]), "ingestion")
        self.refuse(database(logs_=[Log(10, 1).record(b"\2\1\1" + op(0, 0, b"a"))]), "flags")
        self.refuse(database(logs_=[Log(10, 1).record(b"\1\1\0")]), "operations")

    def test_version(self):
        log = Log(10, 1)
        head = log.data[:8] + b"\2" + log.data[9:24]
        log.data = head + build.u64(xxh3(head, 0))
        self.refuse(database(logs_=[log]), "version 2")


class Manifests(Case):
    def table(self, number, low, high, **more):
        t = Table([[(low, 1, 1, b""), (high, 2, 1, b"")]])
        return t, t.edit(number, **more)

    def test_rejected_edits(self):
        a, edit = self.table(2, b"a", b"c")
        _, other = self.table(3, b"c", b"d", run=2)
        _, apart = self.table(3, b"d", b"e", run=2)
        self.read(database(edit + apart, files={"000002.tam": a.data, "000003.tam": apart and
                                                self.table(3, b"d", b"e")[0].data}))
        for what, part in ((edit + edit, "reuses the table id"), (edit + other, "in common"),
                           (field(22, 0, 9), "does not exist"), (field(12, 5, 9), "keyspace 5"),
                           (keyspace(1, "x"), "reuses the keyspace number"),
                           (keyspace(2, "other"), "reuses the keyspace name"),
                           (field(18, 0), "drops the default"), (field(34, 0), "even tag 34"),
                           (field(30, 0, string(b"x")), "renames the default"),
                           (field(4, 1, 1), "after the contents"), (b"\4\x05\1", "length"),
                           (field(27, 5, 1, 0, 1), "sample"), (field(28, 0, 1, 0), "ages"),
                           (field(14, 2, string(b"\xff"), string(b"")), "UTF-8")):
            self.refuse(database(what), part)

    def test_rejected_tables(self):
        t = Table([[(b"a", 5, 1, b"")]])
        for extra, part in ((field(6, 0), "unknown even tag"), (field(2, 5) * 2, "twice"),
                            (field(1, 5, 4), "older"), (field(7, 6, 0), "oldest delete"),
                            (field(3, 2, 0, 2, 0), "ascending")):
            self.refuse(database(t.edit(2, extra=extra)), part)
        self.refuse(database(t.edit(2, end=b"\0" + string(b"a"))), "range is empty")

    def test_unknown_odd_tags_are_skipped(self):
        t = Table([[(b"a", 5, 1, b"")]])
        self.read(database(t.edit(2, extra=field(9, 1)) + field(99, 7),
                           files={"000002.tam": t.data}))

    def test_names_moves_and_drops(self):
        t = Table([[(b"a", 5, 1, b"")]])
        move = field(22, 1, 2) + t.edit(2, keyspace=1, level=6)
        files = database(t.edit(2, keyspace=1), field(30, 1, string(b"new")) + move,
                         files={"000002.tam": t.data})
        self.assertIn('"new"', self.read(files))
        files = database(t.edit(2, keyspace=1), field(18, 1), files={"000002.tam": t.data})
        self.assertEqual(self.read(files), "")

    def test_torn_and_damaged_edits(self):
        files = database(field(4, 1), field(4, 2))
        data = files["MANIFEST-000001"]
        self.read({**files, "MANIFEST-000001": data[:-1]})
        first = Log(1, 2).record(b"")
        self.refuse({**files, "MANIFEST-000001": data[:len(first.data)]}, "first record")

    def test_samples(self):
        known = []
        for sample in ((0, 5), (0, 6), (10, 6), (10, 8), (9, 9), (20, 20)):
            manifest.add_sample(known, *sample)
        self.assertEqual(known, [(0, 6), (10, 9), (20, 20)])
        known = [(0, 1), (1, 2), (2, 3), (3, 4)] + [(1000, 5)]
        manifest.thin(known)
        self.assertEqual(known, [(0, 1), (3, 4), (1000, 5)])


class Ages(Case):
    def files(self, since, expired):
        log = Log(10, 1).write(1, *(put(b"%d" % i) for i in range(1, 6)))
        return database(field(4, 5) + field(28, 0, since, expired) + field(27, 100, 2, 50, 2),
                        logs_=[log], options="time_to_live = 10 s\n")

    def count(self, since, expired, now):
        return self.read(self.files(since, expired), now).count("\n")

    def test_time_to_live(self):
        self.assertEqual(self.count(0, 0, 109), 5)
        self.assertEqual(self.count(0, 0, 111), 3)
        self.assertEqual(self.count(0, 0, 110), 5)
        self.assertEqual(self.count(0, 0, 161), 1)
        self.assertEqual(self.count(0, 3, 0), 2)

    def test_lost_numbers(self):
        # Everything up to 3 counts as written with number 3.
        self.assertEqual(self.count(3, 0, 111), 5)
        self.assertEqual(self.count(3, 0, 161), 1)

    def test_text(self):
        space = manifest.Keyspace(0, "x", {"time_to_live": "7 d"})
        self.assertEqual(merge.time_to_live(space), 7 * 86400)
        space.options["time_to_live"] = "1500 ms"
        self.assertEqual(merge.time_to_live(space), 2)
        space.options["time_to_live"] = "7 moons"
        with self.assertRaises(Bad):
            merge.time_to_live(space)


class Tables(Case):
    def with_table(self, table, **more):
        return database(table.edit(2, **more), files={"000002.tam": table.data})

    def test_order(self):
        good = [(b"a", 5, 1, b""), (b"a", 4, 1, b""), (b"b", 9, 1, b"")]
        self.read(self.with_table(Table([good])))
        for bad in (good[::-1], [good[1], good[0]], [good[0], good[0]]):
            self.refuse(self.with_table(Table([bad])), "")
            self.refuse(self.with_table(Table([[e] for e in bad])), "")

    def test_separators(self):
        blocks = [[(b"a", 5, 1, b"")], [(b"c", 5, 1, b"")]]
        self.read(self.with_table(Table(blocks, separators=[b"bb", b"c"])))
        for bad in ([b"Z", b"c"], [b"c", b"c"], [b"d", b"c"], [b"a", b"d"]):
            self.refuse(self.with_table(Table(blocks, separators=bad)), "000002.tam")

    def test_kinds(self):
        self.refuse(self.with_table(Table([[(b"a", 5, 3, b"")]])), "unknown kind")
        self.refuse(self.with_table(Table([[(b"a", 5, 4, b"")]])), "unknown kind")
        self.refuse(self.with_table(Table([[(b"a", 5, 0, b"x")]])), "delete with a value")

    def test_operands(self):
        rows = [(b"k", 9, 2, b"3"), (b"k", 8, 2, b"2"), (b"k", 7, 1, b"1"), (b"l", 5, 2, b"x"),
                (b"l", 4, 0, b""), (b"m", 3, 2, b"y"), (b"m", 1, 1, b"z")]
        table = Table([rows], [(b"m", None, [2])])
        lines = self.read(self.with_table(table, end=b"\2")).splitlines()
        self.assertEqual([json.loads(line) for line in lines], [
            {"keyspace": "default", "key": "6b", "operands": ["33", "32"], "base": "31"},
            {"keyspace": "default", "key": "6c", "operands": ["78"], "base": None},
            {"keyspace": "default", "key": "6d", "operands": ["79"], "base": None}])

    def test_folding(self):
        number = (1 << 64) - 1
        for name, base, operands, want in (
                ("append", b"a", [b"b", b"c"], b"abc"), ("append", None, [b"b"], b"b"),
                ("add", build.u64(number), [build.u64(3)], build.u64(2)),
                ("add", None, [build.u64(3)], build.u64(3)), ("add", b"x", [b""], None),
                ("max", b"b", [b"a", b"c"], b"c"), ("other", b"", [b""], None)):
            space = manifest.Keyspace(0, "x", {"merge_operator": name})
            item = merge.Live(b"k", operands=operands[::-1], base=base)
            self.assertEqual(merge.fold(space, item), want)

    def test_tombstones_delete_older_versions_only(self):
        rows = [(b"a", 1, 1, b""), (b"b", 2, 1, b""), (b"c", 3, 1, b"")]
        table = Table([rows], [(b"a", b"b\0", [2])])
        self.assertEqual(self.read(self.with_table(table)).count("\n"), 2)

    def test_external(self):
        table = Table([[(b"a", 0, 1, b"")]], [(b"a", b"b", [1])], external=1)
        files = self.with_table(table, g=7, end=b"\0" + string(b"b"))
        self.assertIn('"61"', self.read(files))
        self.refuse(self.with_table(table, end=b"\0" + string(b"b")), "global number")
        plain = Table([[(b"a", 0, 1, b"")]])
        self.refuse(self.with_table(plain, g=7), "global number")

    def test_tables_that_contradict_each_other(self):
        a, b = Table([[(b"a", 5, 1, b"x")]]), Table([[(b"a", 5, 1, b"y")]])
        files = database(a.edit(2) + b.edit(3), files={"000002.tam": a.data,
                                                       "000003.tam": b.data})
        self.refuse(files, "another version")
        files["000003.tam"] = a.data
        self.assertEqual(self.read(files).count("\n"), 1)


class Blobs(Case):
    def files(self, ref, blob, length):
        table = Table([[(b"a", 5, 3, ref)]], blobs=[(4, 59)])
        table.values = length
        return database(table.edit(2), files={"000002.tam": table.data, "000004.blb": blob})

    def test_log_as_blob_file(self):
        log = Log(4, 1).write(1, put(b"k", b"the value"))
        at = log.data.index(b"the value")
        log.close(5)
        ref = varint(4) + varint(at) + varint(9) + varint(9) + build.u64(xxh3(b"the value", at))
        files = self.files(ref, log.data, 9)
        self.assertIn(b"the value".hex(), self.read(files))
        self.refuse({**files, "000004.blb": log.data[:-1]}, "closing record")
        bad = ref[:-1] + bytes([ref[-1] ^ 1])
        self.refuse(self.files(bad, log.data, 9), "checksum")

    def test_rejected_references(self):
        blob, (ref,) = build.blob_file(4, [b"v" * 50])
        self.read(self.files(ref, blob, 50))
        wrong = ref[:3] + varint(51) + ref[4:]
        for bad, part in ((wrong, "50 bytes, not 51"), (ref + b"x", "after the contents"),
                          (ref[:1] + varint(60) + ref[2:], "past the records"),
                          (varint(5) + ref[1:], "does not list")):
            self.refuse(self.files(bad, blob, 50), part)
        other, _ = build.blob_file(4, [b"w" * 50])
        self.refuse(self.files(ref, other, 50), "not the one referred to")
        other, _ = build.blob_file(5, [b"v" * 50])
        self.refuse(self.files(ref, other, 50), "file 5")


if __name__ == "__main__":
    unittest.main()
