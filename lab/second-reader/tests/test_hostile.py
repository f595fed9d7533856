"""Hostile bytes: always an error, or the same output; never another exception, never a hang."""

import io
import os
import random
import unittest

from tamis_reader import __main__ as program
from tamis_reader.prim import Bad

from . import build
from .helpers import Case, everything, live

ROOT = os.path.join(os.path.dirname(__file__), "..", "..", "..")
FIXTURE = os.path.join(ROOT, "crates", "tamis", "tests", "fixtures", "db-v1")


def variants(data):
    """The bytes with every byte flipped, and cut at every length."""
    for i in range(len(data)):
        for flip in (1, 0xFF):
            yield data[:i] + bytes([data[i] ^ flip]) + data[i + 1:]
        yield data[:i]
    yield data + b"\0"
    yield data + data


class Signed(Case):
    """Checksums find every flipped byte and every cut of a closed database."""

    def test_flips_and_cuts(self):
        files = build.sample()
        self.save(files)
        want, all_ = live(self.directory), everything(self.directory)
        for name, data in files.items():
            for changed in variants(data):
                with open(self.path(name), "wb") as file:
                    file.write(changed)
                try:
                    self.assertIn(live(self.directory), (want,), name)
                    text = everything(self.directory)
                except Bad:
                    continue
                # A lost closing record, or bytes after one, change nothing.
                self.assertEqual(text, all_)
            with open(self.path(name), "wb") as file:
                file.write(data)

    def test_missing_files(self):
        files = build.sample()
        for name in files:
            left = {n: d for n, d in files.items() if n != name}
            with self.assertRaises(Bad):
                self.read(left)


class Resigned(Case):
    """Changed payloads with right checksums: another answer is possible, a crash is not."""

    def test_payloads(self):
        calls = []
        build.sample(lambda name, payload: calls.append(len(payload)) or payload)
        for target, length in enumerate(calls):
            for i in range(length):
                # Two of the six ways for each byte, in turn.
                for change in (i % 6, (i + 3) % 6):
                    self.run_one(target, i, change)

    def run_one(self, target, i, change):
        seen = -1

        def mutate(_, payload):
            nonlocal seen
            seen += 1
            if seen != target:
                return payload
            byte = payload[i]
            middle = (bytes([byte ^ 1]), b"\xff", b"\0", b"", bytes([byte]) * 2,
                      b"\xff" * 9 + b"\1")[change]
            return payload[:i] + middle + payload[i + 1:]

        self.save(build.sample(mutate))
        try:
            everything(self.directory)
        except Bad:
            pass


class Unfinished(Case):
    """A database that was not closed: only the records at the end of a log may be lost."""

    def test_flips(self):
        files = {}
        for name in os.listdir(FIXTURE):
            with open(os.path.join(FIXTURE, name), "rb") as file:
                files[name] = file.read()
        want = self.read(files)
        everything(self.directory)
        randoms = random.Random(1)
        # Damage to the last records of an unfinished log looks like a torn end.
        tail = {"MANIFEST-000002": 1420, "000015.log": 32}
        for name, data in files.items():
            step = 1 if len(data) < 700 else len(data) // 300
            for i in range(0, len(data), step):
                changed = bytearray(data)
                changed[i] ^= 1 << randoms.randrange(8)
                with open(self.path(name), "wb") as file:
                    file.write(changed)
                try:
                    text = live(self.directory)
                except Bad:
                    continue
                if i < tail.get(name, len(data)):
                    self.assertEqual(text, want, (name, i))
            with open(self.path(name), "wb") as file:
                file.write(data)


class Program(Case):
    def run_main(self, *args):
        from contextlib import redirect_stderr, redirect_stdout
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = program.main([self.directory, *args])
        return code, out.getvalue(), err.getvalue()

    def test_codes(self):
        files = build.sample()
        self.save(files)
        self.assertEqual(self.run_main("--now", "0")[0], 0)
        self.assertEqual(self.run_main("--filters")[0], 0)
        self.save({**files, "CURRENT": b"MANIFEST-1\n"})
        code, _, err = self.run_main()
        self.assertEqual(code, 1)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("CURRENT", err)

    def test_directories_and_pipes_as_files(self):
        self.save(build.sample())
        os.remove(self.path("000002.tam"))
        os.mkfifo(self.path("000002.tam"))
        self.assertEqual(self.run_main()[0], 1)
        os.remove(self.path("000002.tam"))
        os.mkdir(self.path("000002.tam"))
        self.assertEqual(self.run_main()[0], 1)


if __name__ == "__main__":
    unittest.main()
