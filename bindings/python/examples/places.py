"""Loads 171,075 places of the world (GeoNames, CC BY 4.0, geonames.org), then asks for some of them."""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tamis

SAMPLE = Path(__file__).parents[3] / "crates/tamis-bench/data/geonames-cities.tsv.gz"


def places() -> Iterator[tuple[bytes, bytes]]:
    """Keys `COUNTRY/REGION/NAME@LATITUDE,LONGITUDE`, and the district of each as a JSON object."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as lines:
        for line in lines:
            key, _, district = line.rstrip("\n").partition("\t")
            yield key.encode(), json.dumps({"district": district}).encode()


def main(path: str) -> None:
    with tamis.open(path, filter="ribbon") as db:
        begun = time.perf_counter()
        db.update(places())
        print(f"loaded {len(db):,} places in {time.perf_counter() - begun:.2f} s into {path}")
        db.flush()

        print("\nIceland, from the last one on:")
        for key, _ in list(db.items(prefix=b"IS/", reverse=True))[:3]:
            print(" ", key.decode())

        counts = db.keyspace("countries", create=True)
        for key in db:
            counts.increment(key[:2])
        largest = sorted(counts.items(), key=lambda item: -int.from_bytes(item[1], "little"))[:3]
        print("\nmost places:", ", ".join(f"{name.decode()} {int.from_bytes(n, 'little'):,}" for name, n in largest))

        explanation = db.explain(key)
        print(f"\na read of {key.decode()}: {explanation.outcome.kind} after {explanation.cost.digests} digest, ", end="")
        print(f"{explanation.cost.filter_probes} filters and {explanation.cost.block_reads} blocks")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
