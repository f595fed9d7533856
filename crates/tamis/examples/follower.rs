//! One process writes, another one reads beside it and keeps up.
//!
//! `cargo run --release -p tamis --example follower`: starts itself once more as the writer, on a
//! directory of its own, and follows that.

#![allow(clippy::print_stdout, reason = "an example")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tamis::{Db, Options, WriteBatch};

/// The time in microseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// Writes the time under a hundred keys at once, ten thousand times, in four seconds.
fn write(dir: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    // Small, so that flushes and compactions go on meanwhile.
    options.keyspace.memtable_bytes = 1 << 20;
    let db = options.open(dir)?;
    let begin = Instant::now();
    for round in 0..10_000u32 {
        let mut batch = WriteBatch::new();
        for key in 0..100u32 {
            batch.put(key.to_be_bytes(), now().to_le_bytes());
        }
        batch.put("round", round.to_le_bytes());
        db.write(batch)?;
        std::thread::sleep((Duration::from_micros(400) * round).saturating_sub(begin.elapsed()));
    }
    db.close()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(dir) = std::env::args().nth(1) {
        return write(&dir);
    }
    let dir = tempfile::tempdir()?;
    // So that there is a database to follow.
    Db::open(dir.path())?.close()?;
    let mut writer = Command::new(std::env::current_exe()?).arg(dir.path()).stdin(Stdio::null()).spawn()?;

    let follower = Options::default().open_follower(dir.path())?;
    let (mut calls, mut spent, mut ages) = (0u32, Duration::ZERO, Vec::new());
    while writer.try_wait()?.is_none() {
        let begin = Instant::now();
        follower.catch_up()?;
        spent += begin.elapsed();
        calls += 1;
        // A batch is there as a whole, or not at all.
        let snapshot = follower.snapshot();
        let values: Vec<_> =
            (0..100u32).filter_map(|key| snapshot.get(key.to_be_bytes()).transpose()).collect();
        assert!(values.is_empty() || values.len() == 100);
        if let Some(value) = values.into_iter().next() {
            let written = u64::from_le_bytes(value?.as_ref().try_into()?);
            ages.push(now().saturating_sub(written));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let shown = follower.catch_up()?;
    let round = follower.get("round")?.ok_or("no round")?;
    ages.sort_unstable();
    let age = |part: usize| ages[(ages.len() - 1) * part / 1000] as f64 / 1000.0;
    println!("the follower shows write {shown}, round {}", u32::from_le_bytes(round.as_ref().try_into()?));
    println!("{calls} calls of catch_up, {:.0} µs each", spent.as_secs_f64() * 1e6 / f64::from(calls));
    println!("age of what was read: median {:.2} ms, p99 {:.2} ms", age(500), age(990));
    Ok(())
}
