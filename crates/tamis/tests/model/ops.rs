//! Histories: the operations, the few keys they use, and how they are generated.

use std::ops::Bound;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::moves::Move;
use crate::oracle::Range;

/// The maximum number of keyspaces; number 0 is the default one and always exists.
pub(crate) const KEYSPACES: usize = 3;

/// The keys of a history. Each universe is different for range filters: dense numbers have hardly a
/// gap, sparse ones hardly anything else, and strings are prefixes of each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Universe {
    Strings,
    /// Consecutive eight-byte numbers.
    Dense,
    /// Eight-byte numbers: a few close together, then a large gap.
    Sparse,
    /// Sparse numbers after a common prefix, with longer and shorter relatives.
    Prefixed,
}

/// The number of keys in each universe.
pub(crate) const KEYS: usize = 45;

impl Universe {
    pub(crate) fn keys(self) -> Vec<Vec<u8>> {
        const START: u64 = 5_000_000_000;
        // Fifteen positions over all numbers, starting with the first.
        let spread = |i: usize| (i as u64 / 3 * (u64::MAX / 15)).saturating_add([0, 1, 40][i % 3]);
        let mut keys: Vec<Vec<u8>> = match self {
            Universe::Strings => strings(),
            Universe::Dense => (0..KEYS as u64).map(|i| (START + i).to_be_bytes().to_vec()).collect(),
            Universe::Sparse => (0..KEYS - 2)
                .map(|i| spread(i).to_be_bytes().to_vec())
                .chain([u64::MAX - 1, u64::MAX].map(|n| n.to_be_bytes().to_vec()))
                .collect(),
            Universe::Prefixed => (0..KEYS - 6)
                .map(|i| [&b"number/"[..], &spread(i).to_be_bytes()[..]].concat())
                .chain(
                    [
                        &b""[..],
                        b"number",
                        b"number/",
                        b"number/\0\0\0\0\0\0\0\x01\0",
                        b"number0",
                        b"\xff\xff",
                    ]
                    .map(<[u8]>::to_vec),
                )
                .collect(),
        };
        keys.sort();
        assert!(keys.len() == KEYS && keys.windows(2).all(|pair| pair[0] < pair[1]));
        keys
    }
}

/// Few, so that they meet often; closely related, to test prefixes, cuts between tables and bounds.
fn strings() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = [
        &b""[..],
        b"\0",
        b"\0\0",
        b"a",
        b"a\0",
        b"a\0\0",
        b"aa",
        b"ab",
        b"b",
        b"b\xff",
        b"b\xff\xff",
        b"c",
        b"longprefix",
        b"longprefix\0",
        b"m",
        b"z",
        b"\xfe\xff",
        b"\xff",
        b"\xff\xff",
    ]
    .map(<[u8]>::to_vec)
    .into();
    keys.extend((0..10).map(|i| format!("longprefix{i}").into_bytes()));
    keys.extend((0..10).map(|i| format!("longprefix5{i:02}").into_bytes()));
    keys.extend([7, 8, 9, 40].map(|n| vec![0xff; n]));
    keys.extend([vec![b'm'; 300], vec![b'n'; 64 << 10]]);
    keys
}

/// The bytes of the value with this number.
pub(crate) fn value_of(number: u64, len: usize) -> Vec<u8> {
    let mut value = format!("{number}:").into_bytes();
    value.extend((0..len).map(|i| b'a' + ((i as u64 * 7 + number) % 23) as u8));
    value.truncate(len.max(1));
    if len == 0 { Vec::new() } else { value }
}

/// A range with bounds that are keys of the universe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(pub(crate) Bound<usize>, pub(crate) Bound<usize>);

impl Span {
    pub(crate) fn of(self, keys: &[Vec<u8>]) -> Range {
        let at = |bound: Bound<usize>| bound.map(|i| keys[i].clone());
        Range(at(self.0), at(self.1))
    }
}

/// A change of one keyspace.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(usize, usize),
    Merge(usize, usize),
    Delete(usize),
    DeleteRange(Span),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Change(usize, Change),
    Batch(Vec<(usize, Change)>),
    /// Puts of adjacent keys, to fill a memtable.
    Fill {
        keyspace: usize,
        from: usize,
        count: usize,
        len: usize,
    },
    /// Deletes of adjacent keys, in one direction or the other, and reads of what is left around
    /// them, so that later reads know of the gap.
    Drain {
        keyspace: usize,
        from: usize,
        count: usize,
        backward: bool,
    },
    /// Changes of one key, one after the other, with a snapshot between them: many versions of it.
    /// Two bits of `kinds` choose each change.
    Rewrite {
        keyspace: usize,
        key: usize,
        count: usize,
        kinds: u64,
        snapshot: usize,
    },
    Get(usize, usize),
    MultiGet(usize, Vec<usize>),
    Scan(usize, Span),
    Prefix {
        keyspace: usize,
        key: usize,
        cut: usize,
    },
    CheckAll,
    Verify,
    TakeSnapshot,
    ReadSnapshot(usize, usize, Span),
    DropSnapshot(usize),
    OpenIter {
        keyspace: usize,
        span: Span,
        snapshot: Option<usize>,
    },
    StepIter(usize, Vec<Move>),
    RefreshIter(usize),
    DropIter(usize),
    Flush(Option<usize>),
    Compact(usize),
    Settle,
    /// Sets a keyspace's shape options to those of the settings of this number while it is in use.
    Reshape(usize, usize),
    /// Closes (or only drops) all handles and opens with the settings of this number.
    Reopen {
        close: bool,
        settings: usize,
    },
    ReadOnly,
    Crash,
    Checkpoint,
    CreateKeyspace(usize),
    DropKeyspace(usize),
}

fn key() -> impl Strategy<Value = usize> {
    0..KEYS
}

fn keyspace() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0), 1 => Just(1), 1 => Just(2)]
}

fn bound() -> impl Strategy<Value = Bound<usize>> {
    prop_oneof![3 => key().prop_map(Bound::Included), 3 => key().prop_map(Bound::Excluded), 1 => Just(Bound::Unbounded)]
}

/// Mostly forwards, sometimes reversed or empty.
pub(crate) fn span() -> impl Strategy<Value = Span> {
    (bound(), bound(), 0..20).prop_map(|(a, b, luck)| {
        let place = |bound: &Bound<usize>| match bound {
            Bound::Included(i) | Bound::Excluded(i) => Some(*i),
            Bound::Unbounded => None,
        };
        match (place(&a), place(&b)) {
            (Some(x), Some(y)) if x > y && luck > 0 => Span(b, a),
            _ => Span(a, b),
        }
    })
}

fn value_len() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0), 6 => 1..40usize, 3 => 200..400usize, 1 => 1000..6000usize]
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        10 => (key(), value_len()).prop_map(|(key, len)| Change::Put(key, len)),
        // Operands are many where keys are few, and appended values grow.
        8 => (key(), 0..30usize).prop_map(|(key, len)| Change::Merge(key % 10, len)),
        3 => (key(), 0..60usize).prop_map(|(key, len)| Change::Merge(key, len)),
        3 => key().prop_map(Change::Delete),
        2 => span().prop_map(Change::DeleteRange),
    ]
}

fn step() -> impl Strategy<Value = Move> {
    prop_oneof![3 => Just(Move::Next), 3 => Just(Move::Lent), 3 => Just(Move::Back), 3 => Just(Move::LentBack), 1 => key().prop_map(Move::Seek)]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let writes = prop_oneof![
        10 => (keyspace(), change()).prop_map(|(ks, change)| Op::Change(ks, change)),
        3 => vec((keyspace(), change()), 0..8).prop_map(Op::Batch),
        4 => (keyspace(), key(), 1..20usize, 1..500usize)
            .prop_map(|(keyspace, from, count, len)| Op::Fill { keyspace, from, count, len }),
    ];
    let writes = prop_oneof![
        17 => writes,
        3 => (keyspace(), key(), 5..40usize, any::<u64>(), 0..60usize).prop_map(
            |(keyspace, key, count, kinds, snapshot)| Op::Rewrite { keyspace, key, count, kinds, snapshot }
        ),
        3 => (keyspace(), key(), 3..40usize, any::<bool>())
            .prop_map(|(keyspace, from, count, backward)| Op::Drain { keyspace, from, count, backward }),
    ];
    let reads = prop_oneof![
        4 => (keyspace(), key()).prop_map(|(ks, key)| Op::Get(ks, key)),
        2 => (keyspace(), vec(key(), 0..70)).prop_map(|(ks, keys)| Op::MultiGet(ks, keys)),
        3 => (keyspace(), span()).prop_map(|(ks, span)| Op::Scan(ks, span)),
        1 => (keyspace(), key(), 0..12usize)
            .prop_map(|(keyspace, key, cut)| Op::Prefix { keyspace, key, cut }),
        1 => Just(Op::CheckAll),
        1 => Just(Op::Verify),
    ];
    let held = prop_oneof![
        3 => Just(Op::TakeSnapshot),
        3 => (0..8usize, keyspace(), span()).prop_map(|(s, ks, span)| Op::ReadSnapshot(s, ks, span)),
        2 => (0..8usize).prop_map(Op::DropSnapshot),
        3 => (keyspace(), span(), proptest::option::of(0..8usize))
            .prop_map(|(keyspace, span, snapshot)| Op::OpenIter { keyspace, span, snapshot }),
        5 => (0..8usize, vec(step(), 1..12)).prop_map(|(iter, steps)| Op::StepIter(iter, steps)),
        1 => (0..8usize).prop_map(Op::RefreshIter),
        1 => (0..8usize).prop_map(Op::DropIter),
    ];
    let shape = prop_oneof![
        6 => proptest::option::of(keyspace()).prop_map(Op::Flush),
        3 => keyspace().prop_map(Op::Compact),
        2 => Just(Op::Settle),
        2 => (keyspace(), 0..4usize).prop_map(|(ks, settings)| Op::Reshape(ks, settings)),
    ];
    let whole = prop_oneof![
        3 => (any::<bool>(), 0..4usize).prop_map(|(close, settings)| Op::Reopen { close, settings }),
        1 => Just(Op::ReadOnly),
        1 => Just(Op::Crash),
        1 => Just(Op::Checkpoint),
        2 => (1..KEYSPACES).prop_map(Op::CreateKeyspace),
        1 => (1..KEYSPACES).prop_map(Op::DropKeyspace),
    ];
    prop_oneof![12 => writes, 4 => reads, 6 => held, 5 => shape, 2 => whole]
}
