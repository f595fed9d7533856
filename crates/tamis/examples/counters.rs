//! Counters of several threads in four ways, with their times and what gets lost: `cargo run -p
//! tamis --release --example counters`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::time::Instant;

use tamis::{Db, Error, Options};

const THREADS: u64 = 4;
const EACH: u64 = 20_000;

fn count(db: &Db, key: &str) -> Result<u64, Error> {
    let value = db.get(key)?;
    Ok(value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().expect("eight bytes"))))
}

fn timed(db: &Db, name: &str, add: impl Fn(&Db, &str) -> Result<(), Error> + Sync) -> Result<(), Error> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..EACH).for_each(|_| add(db, name).expect("a sound disk")));
        }
    });
    let ns = started.elapsed().as_nanos() as f64 / (THREADS * EACH) as f64;
    let lost = THREADS * EACH - count(db, name)?;
    println!("{name:>24}: {ns:6.0} ns each, {lost} of {} lost", THREADS * EACH);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let mut options = Options::default();
    options.keyspace.merge_operator = Some("add".into());
    let db = options.open(dir.path())?;

    // Loses counts: another thread may write between the two.
    timed(&db, "get and put", |db, key| Ok(db.put(key, (count(db, key)? + 1).to_le_bytes())?))?;
    // Returns the new value.
    timed(&db, "increment", |db, key| Ok(db.increment(key, 1).map(drop)?))?;
    // Any function of the value.
    timed(&db, "update", |db, key| {
        let add = |old: Option<&[u8]>| {
            let old = old.map_or(0, |old| u64::from_le_bytes(old.try_into().expect("eight bytes")));
            Some((old + 1).to_le_bytes().to_vec())
        };
        Ok(db.update(key, add).map(drop)?)
    })?;
    // Several keys at once.
    timed(&db, "transact", |db, key| {
        db.transact(|tx| {
            let old =
                tx.get(key)?.map_or(0, |old| u64::from_le_bytes(old[..].try_into().expect("eight bytes")));
            tx.put(key, (old + 1).to_le_bytes())?;
            Ok(())
        })
    })?;
    // Reads nothing, and returns nothing.
    timed(&db, "merge operator `add`", |db, key| Ok(db.merge(key, 1u64.to_le_bytes())?))?;
    Ok(())
}
