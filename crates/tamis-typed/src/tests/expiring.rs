//! Entries that expire. The clock stands still until a test moves it.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::collection::vec;
use proptest::prelude::*;
use tamis::operators::{CompactionFilter, Decision};
use tamis::{AdminError, Db, KeyspaceOptions, OpenError, Options, OptionsError, Readable, Slice, WriteBatch};

use crate::{Error, Expiring, Expiry, Key, Unexpired, Value};

/// A clock that tests set, in milliseconds since 1970.
#[derive(Clone, Default)]
struct Time(Arc<AtomicU64>);

impl Time {
    fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    fn expiry(&self) -> Expiry {
        let time = self.clone();
        Expiry::with_clock(move || at(time.0.load(Ordering::Relaxed)))
    }
}

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + ms(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Options in memory, without compactions that nobody asked for.
fn options(expiry: &Expiry) -> Options {
    let mut options = expiry.register(Options::in_memory());
    options.keyspace = keyspace_options();
    options
}

fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions { auto_compaction: false, ..KeyspaceOptions::default() }
}

fn open<K: Key, V: Value>() -> (Time, Db, Expiring<K, V>) {
    let time = Time::default();
    let db = options(&time.expiry()).open("expiring").expect("opens");
    let entries = time.expiry().create(&db, "entries", keyspace_options()).expect("is created");
    (time, db, entries)
}

fn keys<K: Key, V: Value>(iter: impl Iterator<Item = Result<(K, V), Error>>) -> Result<Vec<K>, Error> {
    iter.map(|entry| entry.map(|(key, _)| key)).collect()
}

/// The keys that the engine still stores.
fn stored<K: Key, V: Value>(entries: &Expiring<K, V>) -> Result<Vec<K>, Error> {
    entries.keyspace().iter().keys().map(|key| K::decode(&key?).map_err(Error::Key)).collect()
}

/// Flushes, and merges everything, the last level too: it is in no merge without a newer write.
fn compact<V: Value>(entries: &Expiring<i32, V>) -> Result<(), Error> {
    entries.delete(i32::MIN)?;
    entries.delete(i32::MAX)?;
    Ok(entries.keyspace().compact()?)
}

#[test]
fn every_read_hides_what_has_expired() -> Result<(), Error> {
    let (time, _db, numbers) = open::<i32, String>();
    for n in 0..6 {
        let text = n.to_string();
        match n % 2 {
            0 => numbers.put_for(n, &text, ms(10))?,
            _ => numbers.put(n, &text)?,
        }
    }
    assert_eq!(keys(numbers.iter())?, [0, 1, 2, 3, 4, 5]);
    assert_eq!(numbers.get(4)?.as_deref(), Some("4"));

    time.set(10);
    assert_eq!((numbers.get(4)?, numbers.get(5)?.as_deref()), (None, Some("5")));
    assert_eq!(numbers.multi_get(&[5, 0, 7, 1])?, [Some("5".to_owned()), None, None, Some("1".to_owned())]);
    assert!(!numbers.contains_key(2)? && numbers.contains_key(3)? && !numbers.contains_key(6)?);
    assert_eq!(keys(numbers.iter())?, [1, 3, 5]);
    assert_eq!(keys(numbers.iter().rev())?, [5, 3, 1]);
    assert_eq!(keys(numbers.range(2..5))?, [3]);
    assert_eq!(keys(numbers.range(..4).rev())?, [3, 1]);
    assert_eq!(numbers.first()?, Some((1, "1".to_owned())));
    numbers.put_for(9, "9", ms(0))?;
    assert_eq!(numbers.last()?, Some((5, "5".to_owned())));
    let mut iter = numbers.iter();
    iter.seek(2)?;
    assert_eq!(iter.next().transpose()?, Some((3, "3".to_owned())));
    // From both ends, each entry once.
    assert_eq!(keys(iter.by_ref().rev())?, [5]);
    assert!(iter.next().is_none() && iter.next_back().is_none());

    numbers.delete(3)?;
    numbers.delete_range(4..)?;
    assert_eq!(keys(numbers.iter())?, [1]);
    assert!(!numbers.is_empty()?);
    numbers.put_until(1, "1", at(10))?;
    assert!(numbers.is_empty()? && numbers.first()?.is_none() && numbers.last()?.is_none());
    // All the while, they are stored.
    assert_eq!(stored(&numbers)?, [0, 1, 2]);
    Ok(())
}

#[test]
fn prefixes_hide_what_has_expired() -> Result<(), Error> {
    fn check<K: Key>(
        key: K::Ref<'_>,
        prefix: impl Fn(&Expiring<K, ()>) -> Unexpired<K, ()>,
    ) -> Result<(), Error> {
        let (time, _db, entries) = open::<K, ()>();
        entries.put_for(key, (), ms(1))?;
        assert_eq!((prefix(&entries).count(), prefix(&entries).rev().count()), (1, 1));
        time.set(1);
        assert_eq!((prefix(&entries).count(), prefix(&entries).rev().count()), (0, 0));
        Ok(())
    }
    check::<String>("ab", |entries| entries.prefix("a"))?;
    check::<Vec<u8>>(b"ab", |entries| entries.prefix(b"a"))?;
    check::<(String, u8)>(("a", 1), |entries| entries.prefix("a"))?;
    check::<(String, u8, u8)>(("a", 1, 2), |entries| entries.prefix("a"))?;
    check::<(String, u8, u8)>(("a", 1, 2), |entries| entries.prefix2("a", 1))
}

#[test]
fn an_entry_is_hidden_from_its_expiry_on() -> Result<(), Error> {
    let (time, _db, numbers) = open::<i32, u8>();
    time.set(500);
    numbers.put_for(1, 1, ms(500))?;
    numbers.put_until(2, 2, at(1000))?;
    // Rounded down: early by less than a millisecond, and never late.
    numbers.put_until(3, 3, at(1000) + Duration::from_nanos(999_999))?;
    numbers.put_until(4, 4, at(1001))?;
    time.set(999);
    assert_eq!(keys(numbers.iter())?, [1, 2, 3, 4]);
    time.set(1000);
    assert_eq!(keys(numbers.iter())?, [4]);
    // A clock that is set back brings them back, unless they were dropped.
    time.set(999);
    assert_eq!(keys(numbers.iter())?, [1, 2, 3, 4]);
    time.set(1000);
    compact(&numbers)?;
    time.set(999);
    assert_eq!(keys(numbers.iter())?, [4]);
    Ok(())
}

#[test]
fn times_that_do_not_fit_become_the_nearest() -> Result<(), Error> {
    let (time, _db, numbers) = open::<i32, u8>();
    time.set(7);
    numbers.put_for(1, 1, Duration::MAX)?;
    numbers.put_for(2, 2, ms(u64::MAX))?;
    numbers.put_until(3, 3, at(u64::MAX) + Duration::from_secs(1))?;
    numbers.put_until(4, 4, UNIX_EPOCH - Duration::from_secs(1))?;
    numbers.put(5, 5)?;
    assert_eq!(keys(numbers.iter())?, [1, 2, 3, 5]);
    // Never is later than the last moment.
    time.set(u64::MAX);
    assert_eq!(keys(numbers.iter())?, [1, 2, 3, 5]);
    let bytes = numbers.keyspace().get(numbers.key_bytes(5))?.expect("it was put");
    assert_eq!(bytes, [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 5]);
    numbers.put_until(6, 6, at(0x0102))?;
    assert_eq!(numbers.keyspace().get(numbers.key_bytes(6))?.unwrap(), [0, 0, 0, 0, 0, 0, 1, 2, 6]);
    // A clock before 1970 shows 1970.
    let early = Expiry::with_clock(|| UNIX_EPOCH - Duration::from_secs(9));
    let early: Expiring<i32, u8> = early.open(numbers.keyspace().clone())?;
    assert_eq!(keys(early.iter())?, [1, 2, 3, 5, 6]);
    Ok(())
}

#[test]
fn flushes_and_compactions_drop_what_has_expired() -> Result<(), Error> {
    let (time, _db, numbers) = open::<i32, Slice>();
    let entries = || numbers.keyspace().stats().entries;
    for n in 0..100 {
        match n {
            0..50 => numbers.put_for(n, b"short", ms(10))?,
            _ => numbers.put_for(n, b"long", ms(20))?,
        }
    }
    numbers.keyspace().put(numbers.key_bytes(100), b"damaged")?;
    compact(&numbers)?;
    assert_eq!(entries(), 101);
    time.set(10);
    assert_eq!(keys(numbers.iter().take(50))?, (50..100).collect::<Vec<_>>());
    compact(&numbers)?;
    assert_eq!(entries(), 51);
    assert_eq!(stored(&numbers)?, (50..=100).collect::<Vec<_>>());
    assert_eq!(numbers.keyspace().get(numbers.key_bytes(7))?, None);
    assert_eq!(numbers.get(50)?.unwrap(), "long");

    // A flush drops what lives in memory; what cannot be decoded stays.
    time.set(20);
    numbers.put_for(-1, b"at once", ms(0))?;
    numbers.keyspace().flush()?;
    assert_eq!(numbers.keyspace().get(numbers.key_bytes(-1))?, None);
    compact(&numbers)?;
    assert_eq!(stored(&numbers)?, [100]);
    assert_eq!(numbers.keyspace().get(numbers.key_bytes(100))?.unwrap(), "damaged");
    assert!(matches!(numbers.get(100), Err(Error::Value(_))));
    Ok(())
}

#[test]
fn large_values_in_blob_files_are_dropped_too() -> Result<(), Error> {
    let time = Time::default();
    let db = options(&time.expiry()).open("expiring")?;
    let blobs = KeyspaceOptions { blob_threshold: 64, ..keyspace_options() };
    let values: Expiring<i32, Slice> = time.expiry().create(&db, "blobs", blobs)?;
    values.put_for(1, &[1; 1000], ms(10))?;
    values.put(2, &[2; 1000])?;
    compact(&values)?;
    assert!(values.keyspace().stats().blob_bytes > 2000);
    assert_eq!(values.get(1)?.unwrap(), [1; 1000]);
    time.set(10);
    compact(&values)?;
    assert_eq!(stored(&values)?, [2]);
    assert_eq!((values.get(1)?, values.get(2)?.unwrap()), (None, Slice::from(&[2; 1000][..])));
    Ok(())
}

/// Whatever lies beneath a value that expires, it stays hidden once the value is dropped.
#[test]
fn an_older_value_never_shines_through() -> Result<(), Error> {
    // In the last level, in another table of level 0, in the memtable with it.
    for beneath in [0, 1, 2] {
        let (time, db, numbers) = open::<i32, u8>();
        numbers.put(1, 1)?;
        match beneath {
            0 => compact(&numbers)?,
            1 => db.flush()?,
            _ => {}
        }
        numbers.put_for(1, 2, ms(10))?;
        // Its neighbours make the merge one of several entries.
        numbers.put(0, 0)?;
        numbers.put(2, 0)?;
        time.set(10);
        let hidden = |step: &str| -> Result<(), Error> {
            assert_eq!((numbers.get(1)?, numbers.contains_key(1)?), (None, false), "{beneath} {step}");
            assert_eq!(keys(numbers.iter())?, [0, 2], "{beneath} {step}");
            Ok(())
        };
        hidden("before the flush")?;
        numbers.keyspace().flush()?;
        hidden("after the flush")?;
        assert_eq!(stored(&numbers)?, [0, 2], "the engine has dropped it as well");
        // Not even a clock that is set back shows the older one.
        time.set(0);
        hidden("with an earlier clock")?;
        compact(&numbers)?;
        hidden("after the compaction")?;
        assert_eq!(numbers.keyspace().stats().entries, 2);
    }
    Ok(())
}

#[test]
fn a_new_value_is_a_new_life() -> Result<(), Error> {
    let (time, _db, numbers) = open::<i32, u8>();
    numbers.put_for(1, 1, ms(10))?;
    numbers.put(2, 1)?;
    time.set(5);
    // Prolonged; then limited; then after the end.
    numbers.put_for(1, 2, ms(10))?;
    numbers.put_for(2, 2, ms(10))?;
    time.set(14);
    assert_eq!(numbers.multi_get(&[1, 2])?, [Some(2), Some(2)]);
    compact(&numbers)?;
    time.set(15);
    assert_eq!(numbers.multi_get(&[1, 2])?, [None, None]);
    numbers.put(1, 3)?;
    numbers.put_for(2, 3, ms(1))?;
    compact(&numbers)?;
    assert_eq!(numbers.multi_get(&[1, 2])?, [Some(3), Some(3)]);
    time.set(16);
    compact(&numbers)?;
    assert_eq!(stored(&numbers)?, [1]);
    Ok(())
}

/// An entry whose life is prolonged between the look at the clock and the look at the state has
/// been alive all along, so a read finds it.
#[test]
fn the_moment_comes_before_the_state() -> Result<(), Error> {
    let (_, _db, numbers) = open::<i32, u8>();
    numbers.put_until(1, 1, at(10))?;
    let writer = numbers.clone();
    let prolonged = AtomicU64::new(10);
    // It shows the moment of the expiry, and the life is prolonged just then.
    let prolonging = Expiry::with_clock(move || {
        let now = prolonged.fetch_add(10, Ordering::Relaxed);
        writer.put_until(1, 1, at(now + 10)).expect("is written");
        at(now)
    });
    let numbers: Expiring<i32, u8> = prolonging.open(numbers.keyspace().clone())?;
    assert_eq!(numbers.get(1)?, Some(1));
    assert!(numbers.contains_key(1)?);
    assert_eq!(numbers.multi_get(&[1])?, [Some(1)]);
    assert_eq!(keys(numbers.iter())?, [1]);
    assert_eq!(keys(numbers.range(..))?, [1]);
    Ok(())
}

#[test]
fn a_snapshot_goes_by_one_moment() -> Result<(), Error> {
    let (time, db, numbers) = open::<i32, u8>();
    numbers.put(1, 1)?;
    numbers.put_for(1, 2, ms(10))?;
    numbers.put_for(2, 2, ms(20))?;
    numbers.put(3, 3)?;
    let snapshot = db.snapshot();
    let early = numbers.at(&snapshot);
    let iter = numbers.iter();
    time.set(10);
    // The view and the iterator go by their creation; a new view by its own.
    assert_eq!(keys(iter)?, [1, 2, 3]);
    assert_eq!(keys(early.iter())?, [1, 2, 3]);
    assert_eq!(keys(numbers.at(&snapshot).iter())?, [2, 3]);
    assert_eq!(numbers.get(1)?, None);

    // What a snapshot sees is not dropped, however long ago it has expired.
    time.set(30);
    compact(&numbers)?;
    assert_eq!((early.get(1)?, early.contains_key(2)?), (Some(2), true));
    assert_eq!(keys(early.iter().rev())?, [3, 2, 1]);
    assert_eq!(keys(numbers.at(&snapshot).iter())?, [3]);
    assert_eq!(keys(numbers.at(&snapshot).as_of(at(19)).iter())?, [2, 3]);
    assert_eq!(keys(early.clone().as_of(at(20)).iter())?, [3]);
    assert_eq!(stored(&numbers)?, [1, 2, 3]);
    drop(snapshot);
    compact(&numbers)?;
    assert_eq!(stored(&numbers)?, [3]);
    assert_eq!(keys(numbers.as_of(at(0)).iter())?, [3]);
    Ok(())
}

#[test]
fn batches_and_transactions() -> Result<(), Error> {
    fn sum<R: Readable>(numbers: &Expiring<i32, u64, R>) -> Result<u64, Error> {
        numbers.iter().try_fold(0, |sum, entry| Ok(sum + entry?.1))
    }
    let (time, db, numbers) = open::<i32, u64>();
    let mut batch = WriteBatch::new();
    numbers.put_in(&mut batch, 1, 1)?;
    numbers.put_for_in(&mut batch, 2, 10, ms(10))?;
    numbers.put_until_in(&mut batch, 3, 100, at(20))?;
    numbers.put_in(&mut batch, 4, 1000)?;
    numbers.delete_in(&mut batch, 4)?;
    db.write(batch)?;
    assert_eq!(sum(&numbers)?, 111);
    db.transact(|transaction| {
        let within = numbers.within(transaction);
        time.set(10);
        // One moment for one view, the next for the next.
        assert_eq!((sum(&within)?, within.get(2)?), (111, Some(10)));
        assert_eq!((sum(&numbers.within(transaction))?, sum(&numbers)?), (101, 101));
        numbers.put_for_in(transaction, 2, 20, ms(10))?;
        numbers.put_for_in(transaction, 5, 10_000, ms(0))?;
        assert_eq!(sum(&numbers.within(transaction))?, 121);
        assert!(!numbers.within(transaction).contains_key(5)?);
        Ok::<_, Error>(())
    })?;
    assert_eq!(sum(&numbers)?, 121);
    let mut transaction = db.lock_transaction()?;
    numbers.put_until_in(&mut transaction, 1, 2, at(15))?;
    numbers.delete_in(&mut transaction, 3)?;
    transaction.commit()?;
    assert_eq!(sum(&numbers)?, 22);
    time.set(15);
    assert_eq!(sum(&numbers)?, 20);
    Ok(())
}

#[test]
fn reopening_needs_the_filter_and_keeps_expiries() -> Result<(), Error> {
    let time = Time::default();
    let options = options(&time.expiry());
    let db = options.clone().open("expiring")?;
    let numbers: Expiring<i32, u8> = time.expiry().create(&db, "entries", keyspace_options())?;
    numbers.put_for(1, 1, ms(10))?;
    numbers.put_for(2, 2, ms(20))?;
    drop(numbers);
    db.close()?;

    let without = Options { operators: Default::default(), ..options.clone() };
    assert!(matches!(without.open("expiring"), Err(OpenError::Unregistered { .. })));
    time.set(10);
    let db = options.open("expiring")?;
    let numbers: Expiring<i32, u8> = time.expiry().open(db.keyspace("entries")?)?;
    assert_eq!(keys(numbers.iter())?, [2]);
    compact(&numbers)?;
    assert_eq!(stored(&numbers)?, [2]);
    Ok(())
}

#[derive(Debug)]
struct Other;

impl CompactionFilter for Other {
    fn name(&self) -> &str {
        "other"
    }

    fn filter(&self, _: usize, _: &[u8], _: &[u8]) -> Decision {
        Decision::Keep
    }
}

#[test]
fn the_filter_cannot_be_forgotten() -> Result<(), Error> {
    let time = Time::default();
    let expiry = time.expiry();
    let refused = |result: Result<Expiring<i32, u8>, Error>| match result.expect_err("is refused") {
        Error::Tamis(tamis::Error::Options(OptionsError::Value { value, .. })) => value,
        other => panic!("{other}"),
    };
    // In the keyspace.
    let mut options = options(&expiry);
    options.operators = options.operators.with_filter(Arc::new(Other));
    let db = options.open("expiring")?;
    assert_eq!(refused(expiry.open(db.default_keyspace().clone())), "none");
    let other = KeyspaceOptions { compaction_filter: Some("other".into()), ..KeyspaceOptions::default() };
    assert_eq!(refused(expiry.create(&db, "entries", other)), "other");
    assert!(matches!(db.keyspace("entries"), Err(AdminError::NoKeyspace { .. })));
    let error = expiry.open::<i32, u8>(db.default_keyspace().clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "option `compaction_filter` does not accept `none`: entries that expire need `tamis-typed.expiring`"
    );
    // In the database.
    let db = Options::in_memory().open("expiring")?;
    let error = expiry.create::<i32, u8>(&db, "entries", KeyspaceOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Tamis(tamis::Error::Admin(AdminError::Unregistered { .. }))));
    // The default keyspace has the option from each opening.
    let mut options = self::options(&expiry);
    options.keyspace.compaction_filter = Some(Expiry::NAME.into());
    let db = options.open("expiring")?;
    expiry.open::<i32, u8>(db.default_keyspace().clone())?.put(1, 1)
}

/// What is too short for an expiry is an error, and so is a wrong value, as long as it is alive.
#[test]
fn damaged_values_are_errors() -> Result<(), Error> {
    let (time, _db, texts) = open::<i32, String>();
    let put = |key, bytes: &[u8]| texts.keyspace().put(texts.key_bytes(key), bytes);
    put(1, &[0; 7])?;
    put(2, b"")?;
    put(3, &[0, 0, 0, 0, 0, 0, 0, 10])?;
    put(4, &[0, 0, 0, 0, 0, 0, 0, 10, 0xFF])?;
    texts.put(5, "five")?;
    for key in [1, 2] {
        let error = texts.get(key).unwrap_err();
        assert_eq!(error.source().expect("a reason").to_string(), "expiry: fewer than eight bytes");
        assert!(matches!(texts.contains_key(key), Err(Error::Value(_))));
    }
    assert!(matches!(texts.multi_get(&[5, 1]), Err(Error::Value(_))));
    assert_eq!(texts.get(3)?.as_deref(), Some(""));
    assert!(matches!(texts.get(4), Err(Error::Value(_))) && texts.contains_key(4)?);
    let errors = |iter: Unexpired<i32, String>| iter.map(|entry| entry.is_err()).collect::<Vec<_>>();
    assert_eq!(errors(texts.iter()), [true, true, false, true, false]);
    time.set(10);
    assert_eq!(errors(texts.iter()), [true, true, false]);
    assert_eq!(texts.get(4)?, None);
    compact(&texts)?;
    assert_eq!(stored(&texts)?, [1, 2, 5]);
    Ok(())
}

#[derive(Debug, Clone)]
enum Op {
    Put(i32),
    PutFor(i32, u64),
    PutUntil(i32, u64),
    Delete(i32),
    Advance(u64),
    Flush,
    Compact,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..6).prop_map(Op::Put),
        4 => (0..6, 0..8u64).prop_map(|(key, life)| Op::PutFor(key, life)),
        2 => (0..6, 0..40u64).prop_map(|(key, expiry)| Op::PutUntil(key, expiry)),
        1 => (0..6).prop_map(Op::Delete),
        4 => (0..4u64).prop_map(Op::Advance),
        2 => Just(Op::Flush),
        1 => Just(Op::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Reads are those of a map from which everything disappears in time; what a snapshot saw
    /// stays as of its moment; and what is stored is at least that.
    #[test]
    fn entries_are_those_of_a_map_that_forgets(ops in vec(op(), 0..60), snapshot_at in 0..60usize) {
        let (time, db, numbers) = open::<i32, u32>();
        let mut now = 0;
        let mut model: BTreeMap<i32, (u64, u32)> = BTreeMap::new();
        let mut snapshot = None;
        for (i, op) in ops.into_iter().enumerate() {
            let value = i as u32;
            match op {
                Op::Put(key) => {
                    numbers.put(key, value)?;
                    model.insert(key, (u64::MAX, value));
                }
                Op::PutFor(key, life) => {
                    numbers.put_for(key, value, ms(life))?;
                    model.insert(key, (now + life, value));
                }
                Op::PutUntil(key, expiry) => {
                    numbers.put_until(key, value, at(expiry))?;
                    model.insert(key, (expiry, value));
                }
                Op::Delete(key) => {
                    numbers.delete(key)?;
                    model.remove(&key);
                }
                Op::Advance(millis) => now += millis,
                Op::Flush => numbers.keyspace().flush()?,
                Op::Compact => compact(&numbers)?,
            }
            time.set(now);
            model.retain(|_, (expiry, _)| *expiry > now);
            let expected: Vec<_> = model.iter().map(|(key, (_, value))| (*key, *value)).collect();
            if i == snapshot_at {
                snapshot = Some((db.snapshot(), at(now), expected.clone()));
            }
            let forwards: Vec<_> = numbers.iter().collect::<Result<_, _>>()?;
            prop_assert_eq!(&forwards, &expected);
            let mut backwards: Vec<_> = numbers.iter().rev().collect::<Result<_, _>>()?;
            backwards.reverse();
            prop_assert_eq!(&backwards, &expected);
            for key in 0..6 {
                let value = model.get(&key).map(|(_, value)| *value);
                prop_assert_eq!(numbers.get(key)?, value);
                prop_assert_eq!(numbers.contains_key(key)?, value.is_some());
            }
            prop_assert!(numbers.keyspace().iter().count() >= expected.len());
            if let Some((snapshot, moment, expected)) = &snapshot {
                let then = numbers.at(snapshot).as_of(*moment);
                let seen: Vec<_> = then.iter().collect::<Result<_, _>>()?;
                prop_assert_eq!(&seen, expected);
            }
        }
        drop(snapshot);
        compact(&numbers)?;
        prop_assert_eq!(stored(&numbers)?, model.into_keys().collect::<Vec<_>>());
    }
}
