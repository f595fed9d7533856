"""Compares the reader with the engine.

    compare.py SPECIMENS TAMIS [FLIPS]

SPECIMENS is the example `specimens` of the crate tamis-fuzzing, TAMIS the program `tamis`. Makes
databases with everything that the formats have, and compares what the two read from them. Then it
flips FLIPS bytes in each of two databases, one at a time: neither may show anything wrong, and what the
engine reports, the reader must report, too. The reader may report more: it reads all blocks, and
the engine skips those whose entries are all deleted by a range tombstone.
"""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from tamis_reader import __main__ as program
from tamis_reader.check import check
from tamis_reader.database import Database
from tamis_reader.prim import Bad

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURE = os.path.join(HERE, "..", "..", "crates", "tamis", "tests", "fixtures", "db-v1")
# How many files the soak has made when it is stopped.
FILES = 300


class Engine:
    def __init__(self, specimens):
        self.process = subprocess.Popen([specimens, "read"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def read(self, directory, now):
        """The entries as lines, and None; or what is damaged, as the second value."""
        self.process.stdin.write(f"{now} {directory}\n")
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.startswith('{"error"'):
                return None, line.strip()
            if line.startswith('{"entries"'):
                assert json.loads(line)["entries"] == len(lines)
                return "".join(lines), None
            lines.append(line)
        sys.exit(f"the engine ended while it read {directory}")


def read(directory, now):
    out = io.StringIO()
    try:
        program.print_live(Database(directory), now, out.write)
    except Bad as error:
        return None, str(error)
    return out.getvalue(), None


def compare(engine, directory, now, name):
    """Both must read the same, and no filter may reject a key of its table."""
    ours, wrong = read(directory, now)
    theirs, damaged = engine.read(directory, now)
    if wrong or damaged:
        sys.exit(f"{name}: the reader: {wrong}; the engine: {damaged}")
    if ours != theirs:
        show_difference(name, ours, theirs)
    counts = {}
    rejected = check(Database(directory), True, lambda line: count_kinds(line, counts))
    if rejected:
        sys.exit(f"{name}: filters reject {rejected} keys of their tables")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    print(f"{name}: {ours.count(chr(10))} entries are the same; {kinds}", flush=True)
    return ours


def count_kinds(line, counts):
    name, _, what = line.partition(": ")
    kind = os.path.splitext(name)[1][1:] or name.partition("-")[0]
    if kind == "blb" and what.startswith("a log"):
        kind = "blb (log)"
    if what.strip() not in ("not in use", "not a file of the database"):
        counts[kind] = counts.get(kind, 0) + 1


def show_difference(name, ours, theirs):
    only = [set(a.splitlines()) - set(b.splitlines()) for a, b in ((ours, theirs), (theirs, ours))]
    sys.exit(f"{name}: only the reader has {sorted(only[0])[:3]}, only the engine "
             f"{sorted(only[1])[:3]}")


def flip(engine, directory, now, name, flips):
    """Flips bytes of all files, spread evenly."""
    want, _ = engine.read(directory, now)
    files = sorted(f for f in os.listdir(directory) if f not in ("LOCK", "OPTIONS", "RESERVE"))
    sizes = {f: os.path.getsize(os.path.join(directory, f)) for f in files}
    # Zeros after the records of a log count less.
    weights = {f: min(sizes[f], 40_000) for f in files}
    step = sum(weights.values()) / flips
    counts = {"the same": 0, "refused": 0, "skipped": 0}
    for file in files:
        path = os.path.join(directory, file)
        with open(path, "r+b") as f:
            places = max(int(weights[file] / step), 12)
            for i in range(places):
                at = i * weights[file] // places
                f.seek(at)
                byte = f.read(1)
                if not byte:
                    break
                put(f, at, bytes([byte[0] ^ 1 << i % 8]))
                (ours, wrong), (theirs, damaged) = read(directory, now), engine.read(directory, now)
                put(f, at, byte)
                if ours is not None and theirs is not None:
                    judge(f"{name}, byte {at} of {file} flipped", file, want, ours, theirs)
                    counts["the same"] += 1
                elif ours is None and theirs is None:
                    counts["refused"] += 1
                elif theirs == want and "data block" in wrong:
                    counts["skipped"] += 1
                else:
                    sys.exit(f"{name}, byte {at} of {file} flipped: the reader: {wrong}; the "
                             f"engine: {damaged}")
    print(f"{name}: {counts['refused']} flipped bytes were noticed by both, "
          f"{counts['the same']} by none, {counts['skipped']} by the reader", flush=True)
    # Nothing may have been left behind.
    if engine.read(directory, now)[0] != want:
        sys.exit(f"{name}: the files are not what they were")


def put(file, at, byte):
    file.seek(at)
    file.write(byte)
    file.flush()


def judge(what, file, want, ours, theirs):
    if ours != theirs:
        show_difference(what, ours, theirs)
    # The last records of a log or manifest that was not closed look torn.
    if ours != want and not (file.endswith(".log") or file.startswith("MANIFEST")):
        sys.exit(f"{what}: both read something else")


def soak(engine, tamis, work):
    """A database that was closed, and one of a process that is stopped in the middle."""
    directory = os.path.join(work, "soak")
    run = [tamis, "soak", "--threads", "2", "--db"]
    subprocess.run(run + [directory, "--seconds", "2"], check=True, stdout=subprocess.DEVNULL)
    compare(engine, directory, 0, "soak, closed")
    directory = os.path.join(work, "killed-soak")
    process = subprocess.Popen(run + [directory, "--seconds", "600"], stdout=subprocess.DEVNULL)
    try:
        while largest(directory) < FILES:
            if process.poll() is not None:
                sys.exit("the soak ended by itself")
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        compare(engine, directory, 0, "soak, stopped and open")
    finally:
        process.kill()
        process.wait()
    compare(engine, directory, 0, "soak, killed")


def largest(directory):
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return max((int(m[1]) for m in (re.match(r"(\d+)\.", name) for name in names) if m), default=0)


def main(specimens, tamis, flips="600"):
    engine = Engine(specimens)
    with tempfile.TemporaryDirectory(prefix="second-reader-") as work:
        shutil.copytree(FIXTURE, os.path.join(work, "fixture"))
        compare(engine, os.path.join(work, "fixture"), 0, "fixture")
        made = subprocess.run([specimens, "make", work], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.splitlines()
        times = {name: int(now) for name, now in (line.split() for line in made)}
        for name, now in times.items():
            compare(engine, os.path.join(work, name), now, name)
        if "zstd" not in times:
            print("skipped: Zstandard, which this build does not have")
        # Earlier and later, too: what has expired differs.
        for name in ("closed", "aged-later"):
            for later in (-250, -149, -99, -50, 1, 40, 10_000):
                now = times[name] + later
                compare(engine, os.path.join(work, name), now, f"{name}, at {now}")
        soak(engine, tamis, work)
        for name in ("closed", "killed"):
            flip(engine, os.path.join(work, name), times[name], name, int(flips))
    engine.process.stdin.close()
    if engine.process.wait():
        sys.exit("the engine ended with an error")


if __name__ == "__main__":
    main(*sys.argv[1:])
