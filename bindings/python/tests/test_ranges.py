"""Iteration: ranges, prefixes, both directions, and what iterators see."""

from __future__ import annotations

import pytest

import tamis

KEYS = [b"a", b"a/1", b"a/2", b"b", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"]


@pytest.fixture
def full(db: tamis.Database) -> tamis.Database:
    db.update((key, b"<" + key + b">") for key in KEYS)
    return db


def expected(prefix=b"", start=None, stop=None, include_start=True, include_stop=False):
    def inside(key):
        after = start is None or key > start or include_start and key == start
        before = stop is None or key < stop or include_stop and key == stop
        return key.startswith(prefix) and after and before

    return sorted(filter(inside, KEYS))


@pytest.mark.parametrize("prefix", [b"", b"a", b"a/", b"b\xff", b"\xff", b"x"])
@pytest.mark.parametrize("start", [None, b"", b"a/1", b"a/15", b"b\xff"])
@pytest.mark.parametrize("stop", [None, b"", b"a/2", b"b\xff\xff", b"\xff"])
@pytest.mark.parametrize("flags", [(True, False), (False, False), (True, True), (False, True)])
def test_ranges_hold_what_they_say(full, prefix, start, stop, flags) -> None:
    include_start, include_stop = flags
    arguments = dict(prefix=prefix, start=start, stop=stop, include_start=include_start, include_stop=include_stop)
    keys = expected(prefix, start, stop, include_start, include_stop)
    assert list(full.keys(**arguments)) == keys
    assert list(full.keys(**arguments, reverse=True)) == keys[::-1]
    assert list(full.items(**arguments)) == [(key, b"<" + key + b">") for key in keys]
    assert list(full.values(**arguments, reverse=True)) == [b"<" + key + b">" for key in keys[::-1]]


def test_arguments_may_be_positional(full: tamis.Database) -> None:
    assert list(full.keys(b"a")) == [b"a", b"a/1", b"a/2"]
    assert list(full.keys(None, b"a/2", b"c")) == [b"a/2", b"b", b"b\xff", b"b\xff\xff"]


def test_first_and_last(full: tamis.Database) -> None:
    assert full.first() == (b"a", b"<a>") and full.last() == (b"\xff\xff", b"<\xff\xff>")
    full.clear()
    assert full.first() is None and full.last() is None


def test_an_iterator_shows_the_state_of_its_creation(full: tamis.Database) -> None:
    keys = iter(full)
    assert next(keys) == b"a"
    full[b"a/15"] = b"later"
    del full[b"c"]
    full.flush()
    full.compact()
    assert [b"a", *keys] == KEYS
    assert list(keys) == [] and next(keys, None) is None


def test_iterators_seek_within_their_range(full: tamis.Database) -> None:
    keys = full.keys(prefix=b"a")
    keys.seek(b"a/15")
    assert list(keys) == [b"a/2"]
    keys.seek(b"")
    assert list(keys) == [b"a", b"a/1", b"a/2"]
    keys.seek(b"z")
    assert list(keys) == []
    with pytest.raises(tamis.InvalidArgument):
        full.keys(reverse=True).seek(b"a")


def test_an_iterator_may_be_asked_from_both_ends(full: tamis.Database) -> None:
    keys = full.keys()
    # What was fetched ahead is not lost, and not returned twice.
    assert [next(keys) for _ in range(4)] == KEYS[:4]
    assert [keys.next_back(), keys.next_back()] == [KEYS[-1], KEYS[-2]]
    assert next(keys) == KEYS[4] and keys.next_back() == KEYS[-3] and next(keys) == KEYS[5]
    assert keys.next_back() is None and next(keys, None) is None
    keys.seek(b"b")
    assert list(keys) == KEYS[3:6]
    for count in range(len(KEYS) + 1):
        items = full.items()
        front = [next(items) for _ in range(count)]
        back = list(iter(items.next_back, None))
        assert [key for key, _ in front + back[::-1]] == KEYS
    with pytest.raises(tamis.InvalidArgument):
        full.keys(reverse=True).next_back()


def test_a_closed_iterator_says_so(full: tamis.Database) -> None:
    with full.items() as items:
        next(items)
    with pytest.raises(tamis.ClosedError):
        next(items)
    items.close()


def test_long_iterations_come_in_groups_and_lose_nothing(db: tamis.Database) -> None:
    rows = {b"%06d" % n: b"v" * (n % 3000) for n in range(5_000)}
    db.update(rows)
    assert dict(db.items()) == rows
    assert list(db.items(reverse=True)) == sorted(rows.items(), reverse=True)


def test_ranges_are_deleted_whole(full: tamis.Database) -> None:
    full.delete_range(b"a/1", b"b")
    assert list(full) == [key for key in KEYS if not b"a/1" <= key < b"b"]
    full.delete_range(b"b", b"b\xff", include_start=False, include_stop=True)
    assert b"b" in full and b"b\xff" not in full
    full.delete_prefix(b"\xff")
    assert full.last() == (b"c", b"<c>")
    full.delete_range(stop=b"b", durability="sync")
    assert full.first() == (b"b", b"<b>")
    with pytest.raises(tamis.InvalidArgument) as failed:
        full.delete_range(b"z", b"a")
    assert failed.value.code == "reversed-range"
    full.delete_range()
    assert not full
