//! Loading: puts, flushes and compactions in turn, each timed separately.

use std::time::Instant;

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::keys::KeySet;
use tamis_bench::progress::Progress;
use tamis_bench::run::Fill;
use tamis_bench::value;

/// Number of puts that are prepared at once, so that keys and values stay in the processor's caches.
const CHUNK: u64 = 1024;

/// Nanoseconds of loading, by what took them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// In the calls that put.
    pub(super) put_ns: u64,
    /// Waiting for flushes.
    pub(super) flush_ns: u64,
    /// Waiting for compactions after them.
    pub(super) compaction_ns: u64,
}

/// Puts all keys in the order of their numbers in `flushes` equal portions, and waits after each until it is flushed
/// and no compaction is due. So the tree does not depend on the speed of compactions.
pub(super) fn fill(
    db: &Db,
    keys: &KeySet,
    value_bytes: usize,
    flushes: u64,
    progress: &dyn Progress,
) -> Result<Times, BenchError> {
    let mut times = Times::default();
    let (mut bytes, mut entries) = (Vec::new(), Vec::new());
    progress.begin("load", keys.len(), "keys");
    for flush in 0..flushes {
        let (mut next, end) =
            (first_of(keys.len(), flush, flushes), first_of(keys.len(), flush + 1, flushes));
        while next < end {
            let until = end.min(next + CHUNK);
            bytes.clear();
            entries.clear();
            for number in next..until {
                let start = bytes.len();
                keys.existing(number, &mut bytes);
                let middle = bytes.len();
                value::fill(value::tag_of(&bytes[start..]), 0, value_bytes, &mut bytes);
                entries.push((start, middle, bytes.len()));
            }
            let begun = Instant::now();
            for &(start, middle, end) in &entries {
                db.put(&bytes[start..middle], &bytes[middle..end])?;
            }
            times.put_ns += ns_since(begun);
            progress.advance(until - next);
            next = until;
        }
        let (flush_ns, compaction_ns) = settle(db)?;
        times.flush_ns += flush_ns;
        times.compaction_ns += compaction_ns;
    }
    progress.end();
    Ok(times)
}

/// Returns the number of the first key of a portion.
fn first_of(keys: u64, portion: u64, portions: u64) -> u64 {
    (u128::from(keys) * u128::from(portion) / u128::from(portions.max(1))) as u64
}

/// Flushes, then waits until no compaction is due and filters are complete. Returns the nanoseconds of both.
pub(super) fn settle(db: &Db) -> Result<(u64, u64), BenchError> {
    let begun = Instant::now();
    db.flush()?;
    let flush_ns = ns_since(begun);
    let begun = Instant::now();
    db.wait_for_compaction()?;
    db.wait_for_filters()?;
    Ok((flush_ns, ns_since(begun)))
}

/// Reads everything once from end to end: afterwards all blocks are in the page cache and mapped, if they fit.
///
/// # Errors
///
/// [`BenchError::WrongAnswer`] if there are not exactly the loaded keys.
pub(super) fn read_all(db: &Db, keys: &KeySet, fill: &Fill) -> Result<(), BenchError> {
    let (mut found, mut last) = (0, None);
    for item in db.iter() {
        let (key, _) = item?;
        found += 1;
        last = Some(key);
    }
    if found == fill.loaded && last.as_ref().is_none_or(|key| keys.contains(key)) {
        return Ok(());
    }
    let key = last.map_or_else(String::new, |key| key.iter().map(|b| format!("{b:02x}")).collect());
    Err(BenchError::WrongAnswer {
        workload: "a scan of all keys".into(),
        key,
        expected: format!("{} keys", fill.loaded),
        got: found.to_string(),
    })
}

fn ns_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {

    use tamis_bench::progress::NoProgress;

    use super::*;

    #[test]
    fn portions_are_equal_and_cover_all_keys() {
        let firsts: Vec<u64> = (0..=3).map(|portion| first_of(10, portion, 3)).collect();
        assert_eq!(firsts, [0, 3, 6, 10]);
        assert_eq!(first_of(u64::MAX, 7, 7), u64::MAX);
    }

    #[test]
    fn a_missing_or_additional_key_is_a_wrong_answer() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path().join("db")).unwrap();
        let keys = KeySet::uniform(500, 8, 1).unwrap();
        fill(&db, &keys, 16, 3, &NoProgress).unwrap();
        let fill = Fill::numbered(&keys);
        read_all(&db, &keys, &fill).unwrap();
        let mut key = Vec::new();
        keys.existing(3, &mut key);
        db.delete(&key).unwrap();
        assert!(read_all(&db, &keys, &fill).unwrap_err().is_wrong_answer());
        // As many keys, but the last one is foreign.
        db.put([0xFF; 9], []).unwrap();
        assert!(read_all(&db, &keys, &fill).unwrap_err().is_wrong_answer());
    }
}
