#!/usr/bin/env python3
"""Creates the key samples of `filter-bench` from the packages that contain them.

    npm pack @ip-location-db/geo-whois-asn-country@2.3.2026061719
    tar xzf ip-location-db-geo-whois-asn-country-2.3.2026061719.tgz
    python3 make_key_samples.py ips package/geo-whois-asn-country-ipv4-num.csv ipv4-blocks.txt.gz

    pip download --no-deps wordfreq==3.1.1
    unzip wordfreq-3.1.1-py3-none-any.whl wordfreq/data/large_en.msgpack.gz
    python3 make_key_samples.py words wordfreq/data/large_en.msgpack.gz words-en.txt.gz

`ips` writes the first address of every block as a number: the first one, then the difference to the preceding one, one
per line, ascending. `words` writes the most frequent words, one per line, sorted as bytes. The same input gives
identical output (with the same zlib).

    python3 make_key_samples.py list FILE...

writes all words of such files, one per line, to standard output.
"""

import gzip
import struct
import sys

WORDS = 120_000


def ips(source):
    with open(source, encoding="ascii") as lines:
        starts = sorted({int(line.split(",")[0]) for line in lines})
    return b"".join(b"%d\n" % (b - a) for a, b in zip([0] + starts, starts)), len(starts)


def unpack(data, at=0):
    """One MessagePack value of those that occur in the file, and where it ends."""
    tag = data[at]
    at += 1
    if tag < 0x80:
        return tag, at
    if tag < 0x90:
        return unpack_map(data, at, tag & 15)
    if tag < 0xA0:
        return unpack_list(data, at, tag & 15)
    if tag < 0xC0:
        return data[at:at + (tag & 31)], at + (tag & 31)
    if tag == 0xD9:
        return data[at + 1:at + 1 + data[at]], at + 1 + data[at]
    if tag in (0xDC, 0xDD):
        form = ">H" if tag == 0xDC else ">I"
        return unpack_list(data, at + struct.calcsize(form), struct.unpack_from(form, data, at)[0])
    raise ValueError(f"tag {tag:#x} at {at}")


def unpack_list(data, at, count):
    items = []
    for _ in range(count):
        item, at = unpack(data, at)
        items.append(item)
    return items, at


def unpack_map(data, at, count):
    flat, at = unpack_list(data, at, 2 * count)
    return dict(zip(flat[::2], flat[1::2])), at


def all_words(source):
    """The words of a file of wordfreq, the most frequent first."""
    with gzip.open(source) as file:
        (header, *classes), _ = unpack(file.read())
    assert header[b"format"] == b"cB", header
    return [word for same in classes for word in same if b"\n" not in word]


def words(source):
    frequent = all_words(source)[:WORDS]
    return b"".join(word + b"\n" for word in sorted(set(frequent))), len(frequent)


def main(what, *files):
    if what == "list":
        for source in files:
            sys.stdout.buffer.write(b"".join(word + b"\n" for word in all_words(source)))
        return
    source, out = files
    body, count = {"ips": ips, "words": words}[what](source)
    with open(out, "wb") as file:
        with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=file, mtime=0) as packed:
            packed.write(body)
    print(count, "keys,", len(body), "bytes unpacked")


if __name__ == "__main__":
    main(*sys.argv[1:])
