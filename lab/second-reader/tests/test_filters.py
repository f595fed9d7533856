"""Filters of shapes that the samples do not have."""

import random
import unittest

from tamis_reader import elastic, filters
from tamis_reader.prim import Bad

from . import build_filters as build


def big(numbers):
    return [n.to_bytes(8, "big") for n in numbers]


class Shapes(unittest.TestCase):
    def check(self, buf, keys, others=(), most=0.0, load=filters.load):
        filter_ = load(buf, "test", 0)
        self.assertEqual([k for k in keys if not filter_.holds(k)], [])
        held = [k for k in others if k not in keys and filter_.holds(k)]
        self.assertLessEqual(len(held), most * len(others))
        return filter_

    def test_surf(self):
        randoms = random.Random(3)
        long = [bytes(randoms.randrange(97, 100) for _ in range(randoms.randrange(12)))
                for _ in range(900)]
        sets = [long, [b"x" + k for k in long], [b"a", b"ab", b"abc", b"b", b"abd"], [b""],
                [b"one"], [b"", b"q"], big(randoms.randrange(1 << 64) for _ in range(300))]
        for keys in sets:
            keys = sorted(set(keys))
            for dense, h, r in ((0, 0, 0), (1, 8, 0), (2, 0, 8), (3, 4, 20), (99, 32, 32)):
                for shift in (0, 2):
                    buf = build.surf(keys, dense, h, r, shift)
                    self.check(buf, keys, [b"zz%d" % i for i in range(50)], 0.1)

    def test_surf_keys_that_end_at_a_node(self):
        filter_ = self.check(build.surf([b"a", b"ab", b"abc", b"b"], 1, 0, 0),
                             [b"a", b"ab", b"abc", b"b"])
        for key in (b"", b"ac", b"c", b"abd", b"abca"):
            self.assertFalse(filter_.holds(key), key)

    def test_grafite(self):
        randoms = random.Random(4)
        numbers = [randoms.randrange(1 << 64) for _ in range(3000)]
        others = big(randoms.randrange(1 << 64) for _ in range(1000))
        for buckets, width in ((3000, 6), (9000, 4), (5, 12), (1 << 12, 20)):
            buf = build.grafite(numbers, buckets, width)
            rate = 3 * len(numbers) / (buckets << width) + 0.01
            self.check(buf, big(numbers), others, rate)
        self.check(build.grafite([5, 1 << 63], 2, 63), big([5, 1 << 63]), others, 0)

    def test_snarf(self):
        randoms = random.Random(5)
        numbers = sorted({randoms.randrange(1 << 64) for _ in range(3000)} | set(range(50)))
        others = big(randoms.randrange(1 << 64) for _ in range(1000))
        for every, width, c, buckets in ((10, 5, 10, 16), (100, 8, 100, 60), (200, 3, 199, 300)):
            self.check(build.snarf(numbers, every, width, c, buckets), big(numbers), others, 0.2)

    def test_elastic(self):
        keys = sorted(b"key %d" % (i * 7919 % 100000) for i in range(90))
        segments = [keys[:30], keys[30:31], keys[31:]]
        for version in (1, 2):
            for hashing in (1, 2, 3):
                buf = build.elastic(segments, version, hashing, 3, 2)
                filter_ = self.check(buf, keys, [b"other %d" % i for i in range(300)], 0.2,
                                     elastic.Elastic)
                filter_.check_keys(keys)
                with self.assertRaises(Bad):
                    filter_.check_keys(keys[:-1])

    def test_empty_filters(self):
        for words, kind, keys in (([0], filters.RIBBON, 0), ([0], filters.FUSE, 0),
                                  ([0], filters.XOR, 0), ([0], filters.CUCKOO, 0)):
            first = 2 if kind == filters.CUCKOO else 0
            filter_ = filters.load(build.frame(words, kind, first, keys=keys), "test", 0)
            self.assertFalse(filter_.holds(b"a"))
        for kind in (filters.FUSE, filters.XOR):
            self.assertTrue(filters.load(build.frame([0], kind, keys=5), "test", 0).holds(b"a"))


if __name__ == "__main__":
    unittest.main()
