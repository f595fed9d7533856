"""SuRF: a trie over the keys of a table."""

from .filters import ceil, bits, digest, remix


class Places:
    """Blocks of two bit sequences with counts, checked against the bits."""

    def __init__(self, f, words, places):
        self.children, self.marks = [], []
        children = marks = 0
        for block in range(len(words) // 19):
            w = words[19 * block:19 * block + 19]
            f.need(w[0] == children | marks << 32, "wrong counts before a block")
            self.children += w[3::2]
            self.marks += w[4::2]
            children += sum(map(count, w[3::2]))
            marks += sum(map(count, w[4::2]))
            for head, seq in ((w[1], w[3::2]), (w[2], w[4::2])):
                total, want = 0, 0
                for j in range(7):
                    total += count(seq[j])
                    want |= total << 9 * j
                f.need(head == want, "wrong counts in a block")
        for seq in (self.children, self.marks):
            f.need(not bits(seq, places, 64 * len(seq) - places), "bits after the last place")
        self.before_child, self.before_mark = sums(self.children), sums(self.marks)

    def child(self, place):
        return self.children[place >> 6] >> (place & 63) & 1

    def mark(self, place):
        return self.marks[place >> 6] >> (place & 63) & 1

    def children_before(self, place):
        return before(self.children, self.before_child, place)

    def marks_before(self, place):
        return before(self.marks, self.before_mark, place)


def count(x):
    return bin(x).count("1")


def sums(words):
    result, total = [], 0
    for word in words:
        result.append(total)
        total += count(word)
    return result + [total]


def before(words, totals, place):
    at = place >> 6
    if at == len(words):
        return totals[at]
    return totals[at] + count(words[at] & (1 << (place & 63)) - 1)


class Surf:
    def __init__(self, f):
        self.f, self.h, self.r = f, f.first, f.second
        f.need(self.h <= 32 and self.r <= 32, "wrong parameters")
        f.need(f.units >= 5, "SuRF without a header")
        low, high = [w & 0xFFFFFFFF for w in f.words[:5]], [w >> 32 for w in f.words[:5]]
        self.dense, self.labels_sparse, self.leaves_dense, self.shortest = low[:4]
        self.nodes, self.children_dense, self.height, self.longest, prefix = high
        shift, ends = low[4] & 255, low[4] >> 8 & 1
        f.need(shift <= 9 and low[4] < 512, "wrong header")
        f.need(self.dense <= self.nodes, "more dense nodes than nodes")
        f.need(self.shortest <= self.longest, "lengths of keys are reversed")
        inner = max(self.nodes - 1, 0)
        self.leaves = self.leaves_dense + self.labels_sparse - (inner - self.children_dense)
        f.need(self.children_dense <= inner and self.leaves >= 0, "wrong counts in the header")
        S, D, N = self.labels_sparse, self.dense, self.nodes
        self.at = 5
        dense = self.take(19 * ceil(256 * D, 512))
        sparse = self.take(19 * ceil(S, 512))
        hints = self.take(ceil(ceil(N - D, 1 << shift), 2))
        self.labels = self.bytes(self.take(ceil(S, 8)), S, "labels")
        self.ends = self.take(ceil(N, 64) if ends else 0)
        self.prefix = self.bytes(self.take(ceil(prefix, 8)), prefix, "prefix")
        self.suffixes = self.take(ceil(self.leaves * (self.h + self.r), 64))
        f.need(self.at == f.units, "words after the last section")
        self.dense_places = Places(f, dense, 256 * D)
        self.sparse_places = Places(f, sparse, S)
        self.starts = [i for i in range(S) if self.sparse_places.mark(i)]
        self.check(hints, shift, ends)

    def take(self, n):
        self.f.need(n <= self.f.units - self.at, "a section reaches past the end")
        self.at += n
        return self.f.words[self.at - n:self.at]

    def bytes(self, words, n, what):
        raw = b"".join(w.to_bytes(8, "little") for w in words)
        self.f.need(not any(raw[n:]), f"bytes after the {what}")
        return raw[:n]

    def check(self, hints, shift, ends):
        f, D, S, N = self.f, self.dense, self.labels_sparse, self.nodes
        dense, sparse = self.dense_places, self.sparse_places
        f.need(dense.children_before(256 * D) == self.children_dense, "wrong count of children")
        f.need(dense.marks_before(256 * D) - self.children_dense == self.leaves_dense,
               "wrong count of leaves")
        f.need(all(not c & ~m for c, m in zip(dense.children, dense.marks)),
               "a child without a label")
        f.need(self.children_dense + sparse.children_before(S) == max(N - 1, 0),
               "the children are not the nodes")
        # A sparse root without labels is the node of an empty single key.
        f.need(len(self.starts) == N - D or (N == 1 and not S), "the marks are not the nodes")
        f.need(not S or self.starts[0] == 0, "the first label starts no node")
        for k in range(ceil(N - D, 1 << shift) if self.starts else 0):
            hint = hints[k >> 1] >> 32 * (k & 1) & 0xFFFFFFFF
            f.need(hint == self.starts[k << shift] // 512, "wrong hint")
        if ends and N % 64:
            f.need(not self.ends[-1] >> N % 64, "bits after the ends")
        f.need(not ends or any(self.ends), "no key ends at a node")
        used = self.leaves * (self.h + self.r)
        if used % 64:
            f.need(not self.suffixes[-1] >> used % 64, "bits after the suffixes")
        f.need(self.levels() == self.height, "wrong height")

    def levels(self):
        """Levels that have labels."""
        first, last, height = 0, min(1, self.nodes), 0
        while first < last:
            height += self.place(last) > self.place(first)
            nodes = 1 + self.children_upto(last)
            first, last = last, nodes
        return height

    def place(self, node):
        """Labels of all nodes before a node."""
        if node <= self.dense:
            return self.dense_places.marks_before(256 * node)
        sparse = node - self.dense
        start = self.starts[sparse] if sparse < len(self.starts) else self.labels_sparse
        return self.dense_places.marks_before(256 * self.dense) + start

    def children_upto(self, node):
        if node <= self.dense:
            return self.dense_places.children_before(256 * node)
        sparse = node - self.dense
        start = self.starts[sparse] if sparse < len(self.starts) else self.labels_sparse
        return self.children_dense + self.sparse_places.children_before(start)

    def holds(self, key):
        if not self.nodes or key[:len(self.prefix)] != self.prefix:
            return False
        rest = key[len(self.prefix):]
        if not self.shortest <= len(rest) <= self.longest:
            return False
        node = 0
        for depth, label in enumerate(rest):
            if node < self.dense:
                places, place = self.dense_places, 256 * node + label
                if not places.mark(place):
                    return False
                first_child, leaf = 1, places.marks_before(place)
            else:
                places, place = self.sparse_places, self.find(node - self.dense, label)
                if place is None:
                    return False
                first_child, leaf = 1 + self.children_dense, self.leaves_dense + place
            children = places.children_before(place)
            if not places.child(place):
                return self.suffix(leaf - children, key, rest[depth + 1:])
            node = first_child + children
        return bool(self.ends) and bool(self.ends[node >> 6] >> (node & 63) & 1)

    def find(self, node, label):
        if node >= len(self.starts):
            return None
        end = self.starts[node + 1] if node + 1 < len(self.starts) else self.labels_sparse
        place = self.labels.find(bytes((label,)), self.starts[node], end)
        return None if place < 0 else place

    def suffix(self, leaf, key, after):
        h, r = self.h, self.r
        kept = bits(self.suffixes, leaf * (h + r), h + r)
        top = remix(digest(key), self.f.salt) >> (64 - h) if h else 0
        real = int.from_bytes(after[:4].ljust(4, b"\0"), "big") >> (32 - r)
        return kept == real << h | top
