"""The command line."""

import argparse
import json
import os
import sys
import time

from .database import Database
from .merge import fold
from .prim import Bad

KINDS = {0: "delete", 1: "put", 2: "merge", 3: "put-blob"}


def print_live(database, now, write, folded=True):
    for keyspace in database.keyspaces():
        name = json.dumps(keyspace.name)
        for item in database.live(keyspace, now):
            head = f'{{"keyspace": {name}, "key": "{item.key.hex()}", '
            value = item.value
            if item.operands and folded:
                value = fold(keyspace, item)
            if value is not None:
                write(f'{head}"value": "{value.hex()}"}}\n')
                continue
            operands = ", ".join(f'"{operand.hex()}"' for operand in item.operands)
            base = "null" if item.base is None else f'"{item.base.hex()}"'
            write(f'{head}"operands": [{operands}], "base": {base}}}\n')


def print_versions(database, write):
    for keyspace in database.keyspaces():
        for first, end, number, file in database.tombstones(keyspace):
            line = {"keyspace": keyspace.name, "first": first.hex(),
                    "end": None if end is None else end.hex(), "sequence": number,
                    "kind": "delete-range", "file": file}
            write(json.dumps(line) + "\n")
        for row in database.versions(keyspace):
            key, negative, _, kind, value, origin = row
            line = {"keyspace": keyspace.name, "key": key.hex(), "sequence": -negative,
                    "kind": KINDS[kind], "file": origin.name}
            if kind:
                line["value"] = database.resolve(row).hex()
            if kind == 3:
                line["reference"] = value.hex()
            write(json.dumps(line) + "\n")


def run(args, write):
    database = Database(args.directory)
    if args.check or args.filters:
        from .check import check
        rejected = check(database, args.filters, write)
        if rejected:
            raise Bad(args.directory, None, f"filters reject {rejected} keys of their tables")
    elif args.versions:
        print_versions(database, write)
    else:
        now = int(time.time()) if args.now is None else args.now
        print_live(database, now, write, not args.operands)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="tamis_reader", description=(
        "Reads a tamis database directory and prints what is in it, as JSON lines."))
    parser.add_argument("directory")
    parser.add_argument("--now", type=int, metavar="SECONDS",
                        help="the time for entries that expire, in seconds since 1970")
    parser.add_argument("--operands", action="store_true",
                        help="print merge operands even if the operator is known")
    parser.add_argument("--versions", action="store_true", help="print every version")
    parser.add_argument("--check", action="store_true", help="read everything, print a summary")
    parser.add_argument("--filters", action="store_true",
                        help="as --check, and ask every filter about every key")
    args = parser.parse_args(argv)
    try:
        run(args, sys.stdout.write)
        sys.stdout.flush()
        return 0
    except Bad as error:
        message = str(error)
    except MemoryError:
        message = f"{args.directory}: not enough memory"
    except BrokenPipeError:
        # The reader of the output has gone. Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    sys.stdout.flush()
    print(f"tamis_reader: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
