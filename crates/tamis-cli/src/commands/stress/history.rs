//! The operations of a stress child: operation `n` of thread `t` is a pure function of seed, `t`
//! and `n`, so that the parent can replay it. Threads write disjoint keys, so each history is
//! checked on its own.

use std::collections::BTreeMap;

use tamis_bench::random::{Random, mix64};

/// The number of keys of one thread: small enough for frequent overwrites and deletes, large enough
/// for a lost write to show.
const KEYS: u64 = 10_000;

/// The length of the longest value in bytes.
const LONGEST_VALUE: u64 = 1500;

/// The number of writes in the largest batch.
const LARGEST_BATCH: u64 = 24;

/// The number of keys in the widest deleted range: small, since a delete hides earlier lost writes.
const WIDEST_RANGE: u64 = 20;

/// The contents of a thread's keys.
pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// From the first key (included) to the second (excluded).
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// One write: changes that must appear together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) changes: Vec<Change>,
    /// Whether the write is synced before it returns.
    pub(super) synced: bool,
}

/// Returns the prefix of all keys of a thread.
pub(super) fn prefix(thread: usize) -> Vec<u8> {
    format!("t{thread:03}-").into_bytes()
}

fn key(thread: usize, number: u64) -> Vec<u8> {
    let mut key = prefix(thread);
    key.extend_from_slice(format!("{number:05}").as_bytes());
    key
}

/// Returns operation `n` of a thread.
pub(super) fn operation(seed: u64, thread: usize, n: u64) -> Operation {
    let mut random = Random::part(seed ^ mix64(thread as u64), n);
    let changes = match random.below(100) {
        0..56 => vec![put(&mut random, thread, n)],
        56..72 => vec![Change::Delete(key(thread, random.below(KEYS)))],
        72..98 => {
            let count = 2 + random.below(LARGEST_BATCH - 1);
            (0..count).map(|_| any_change(&mut random, thread, n)).collect()
        }
        _ => vec![delete_range(&mut random, thread)],
    };
    Operation { changes, synced: random.chance(20) }
}

fn any_change(random: &mut Random, thread: usize, n: u64) -> Change {
    match random.below(100) {
        0..76 => put(random, thread, n),
        76..98 => Change::Delete(key(thread, random.below(KEYS))),
        _ => delete_range(random, thread),
    }
}

/// Returns a put whose value identifies the operation, so that no two operations leave the same
/// state.
fn put(random: &mut Random, thread: usize, n: u64) -> Change {
    let mut value = n.to_le_bytes().to_vec();
    let len = random.below(LONGEST_VALUE) as usize;
    while value.len() < len {
        value.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    Change::Put(key(thread, random.below(KEYS)), value)
}

fn delete_range(random: &mut Random, thread: usize) -> Change {
    let start = random.below(KEYS);
    Change::DeleteRange(key(thread, start), key(thread, start + 1 + random.below(WIDEST_RANGE)))
}

/// Applies an operation and returns the keys that it may have changed.
pub(super) fn apply(model: &mut Model, operation: &Operation) -> Vec<Vec<u8>> {
    let mut touched = Vec::new();
    for change in &operation.changes {
        match change {
            Change::Put(key, value) => {
                model.insert(key.clone(), value.clone());
                touched.push(key.clone());
            }
            Change::Delete(key) => {
                model.remove(key);
                touched.push(key.clone());
            }
            Change::DeleteRange(start, end) => {
                let gone: Vec<Vec<u8>> =
                    model.range(start.clone()..end.clone()).map(|(key, _)| key.clone()).collect();
                for key in gone {
                    model.remove(&key);
                    touched.push(key);
                }
            }
        }
    }
    touched
}

/// Returns the largest number of operations from `from` to `to` after which the model equals
/// `found`, if there is one. `model` is the state after `from` operations and is left at the number
/// returned.
pub(super) fn find_state(
    model: &mut Model,
    found: &Model,
    operation: impl Fn(u64) -> Operation,
    from: u64,
    to: u64,
) -> Option<u64> {
    // The keys on which the two disagree, kept up to date so that an operation costs only the keys
    // it touches.
    let mut different: std::collections::BTreeSet<Vec<u8>> = std::collections::BTreeSet::new();
    for key in model.keys().chain(found.keys()) {
        if model.get(key) != found.get(key) {
            different.insert(key.clone());
        }
    }
    let mut ahead = model.clone();
    let mut matching = different.is_empty().then_some(from);
    for n in from..to {
        for key in apply(&mut ahead, &operation(n)) {
            if ahead.get(&key) == found.get(&key) {
                different.remove(&key);
            } else {
                different.insert(key);
            }
        }
        if different.is_empty() {
            matching = Some(n + 1);
        }
    }
    for n in from..matching? {
        apply(model, &operation(n));
    }
    matching
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_after(count: u64) -> Model {
        let mut model = Model::new();
        for n in 0..count {
            apply(&mut model, &operation(5, 0, n));
        }
        model
    }

    #[test]
    fn operations_repeat_and_differ_between_threads_and_seeds() {
        for n in 0..50 {
            assert_eq!(operation(5, 1, n), operation(5, 1, n));
            assert_ne!(operation(5, 1, n), operation(5, 2, n));
            assert_ne!(operation(5, 1, n), operation(6, 1, n));
        }
        let all: Vec<Operation> = (0..1000).map(|n| operation(5, 0, n)).collect();
        assert!(all.iter().any(|o| o.synced) && all.iter().any(|o| !o.synced));
        assert!(all.iter().any(|o| o.changes.len() > 10));
        assert!(all.iter().any(|o| matches!(o.changes[..], [Change::DeleteRange(..)])));
    }

    #[test]
    fn the_state_after_every_number_of_operations_is_recognised() {
        for (from, count) in [(0, 0), (0, 300), (250, 251), (100, 300)] {
            let mut model = state_after(from);
            let found = state_after(count);
            let n = find_state(&mut model, &found, |n| operation(5, 0, n), from, count + 5).unwrap();
            assert!(n >= count);
            assert_eq!(state_after(n), found);
            assert_eq!(model, found);
        }
    }

    #[test]
    fn half_a_batch_a_lost_write_and_a_stray_key_are_detected() {
        let batch = (0..).find(|&n| operation(5, 0, n).changes.len() > 5).unwrap();
        let look = |found: &Model| find_state(&mut Model::new(), found, |n| operation(5, 0, n), 0, batch + 3);

        let mut half = state_after(batch);
        let mut first = operation(5, 0, batch);
        first.changes.truncate(3);
        apply(&mut half, &first);
        assert_eq!(look(&half), None, "half a batch");

        let mut gap = state_after(batch - 1);
        apply(&mut gap, &operation(5, 0, batch));
        assert_ne!(gap, state_after(batch + 1), "the write before the batch matters");
        assert_eq!(look(&gap), None, "a write missing before others");

        let mut stray = state_after(batch);
        stray.insert(b"t000-x".to_vec(), vec![]);
        assert_eq!(look(&stray), None, "a stray key");
    }
}
