//! Loads under which engines were reported to do badly: thousands of keyspaces, overlapping range
//! deletes, space that is not given back. Prints a line for each figure.
//!
//! ```sh
//! cargo run --release -p tamis-bench --example reported -- keyspaces 10000
//! cargo run --release -p tamis-bench --example reported -- budget
//! cargo run --release -p tamis-bench --example reported -- tombstones 100000
//! cargo run --release -p tamis-bench --example reported -- overwrites
//! cargo run --release -p tamis-bench --example reported -- blobs
//! cargo run --release -p tamis-bench --example reported -- logs
//! ```
//!
//! Directories are created below `TMPDIR`; a file system in memory shows what the engine itself
//! costs.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tamis::{Db, Keyspace, Options};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const MIB: f64 = 1048576.0;

fn main() -> Result {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |default| args.get(1).map_or(Ok(default), |n| n.parse::<u32>());
    let dir = tempfile::tempdir()?;
    let path = dir.path();
    match args.first().map(String::as_str) {
        Some("keyspaces") => keyspaces(path, number(10_000)?),
        Some("budget") => budget(path, number(400)?),
        Some("tombstones") => tombstones(path, number(100_000)?),
        Some("overwrites") => overwrites(path, 0, number(500_000)?),
        Some("blobs") => overwrites(path, 1024, number(500_000)?),
        Some("logs") => logs(path),
        other => Err(format!("unknown load {other:?}").into()),
    }
}

/// Anonymous memory of this process in bytes, or 0 where the system does not tell.
fn anonymous() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) * 1024.0
}

/// Bytes of the files whose name ends in `suffix`, as allocated.
fn on_disk(path: &Path, suffix: &str) -> f64 {
    let files = fs::read_dir(path).into_iter().flatten().flatten();
    let named = files.filter(|file| file.file_name().to_string_lossy().ends_with(suffix));
    named.filter_map(|file| Some(allocated(&file.metadata().ok()?))).sum()
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> f64 {
    std::os::unix::fs::MetadataExt::blocks(metadata) as f64 * 512.0
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> f64 {
    metadata.len() as f64
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_secs_f64(), result)
}

/// The median of the seconds, in microseconds.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2] * 1e6
}

fn name(i: u32) -> String {
    format!("tenant {i}")
}

/// Creates, uses, drops and opens many keyspaces; puts are compared with those of a database with
/// one.
fn keyspaces(path: &Path, n: u32) -> Result {
    let (many, one) = (path.join("many"), path.join("one"));
    let open = |path: &Path| Db::open(path);
    let (db, alone) = (open(&many)?, open(&one)?);
    let before = anonymous();
    let (seconds, spaces) = timed(|| {
        (0..n)
            .map(|i| db.create_keyspace(&name(i), db.options().keyspace.clone()))
            .collect::<std::result::Result<Vec<_>, _>>()
    });
    let spaces = spaces?;
    println!("{n} keyspaces created: {seconds:.2} s");
    println!("idle: {:.1} KiB of anonymous memory each", (anonymous() - before) / 1024.0 / f64::from(n));
    let value = [7u8; 50];
    for ks in &spaces {
        ks.put("key", value)?;
    }
    println!("after a put in each: {:.1} KiB each", (anonymous() - before) / 1024.0 / f64::from(n));

    let single = alone.create_keyspace(&name(0), alone.options().keyspace.clone())?;
    let batch = |ks: &Keyspace, round: u32| -> Result<f64> {
        let (seconds, done) = timed(|| (0..20_000).try_for_each(|i| ks.put(format!("{round} {i}"), value)));
        done?;
        Ok(seconds / 20_000.0)
    };
    let (mut beside_many, mut beside_one) = (Vec::new(), Vec::new());
    for round in 0..15 {
        beside_one.push(batch(&single, round)?);
        beside_many.push(batch(&spaces[0], round)?);
    }
    let (many_us, one_us) = (median(beside_many), median(beside_one));
    println!("put: {many_us:.3} µs beside {n}, {one_us:.3} beside one: {:.3} times", many_us / one_us);

    let (seconds, done) = timed(|| spaces[1].flush());
    done?;
    println!("flush of one: {:.2} ms", seconds * 1e3);
    let mut drops = Vec::new();
    for i in 2..52 {
        let (seconds, done) = timed(|| db.drop_keyspace(&name(i)));
        done?;
        drops.push(seconds);
    }
    let slowest = drops.iter().copied().fold(0.0, f64::max) * 1e3;
    println!("drop: {:.2} ms, the slowest of 50 {slowest:.2}", median(drops) / 1e3);
    drop(spaces);
    let (seconds, done) = timed(|| db.close());
    done?;
    println!("close: {seconds:.2} s");
    for attempt in 0..3 {
        let before = anonymous();
        let (seconds, db) = timed(|| open(&many));
        let db = db?;
        let held = (anonymous() - before) / 1024.0 / f64::from(n);
        println!("open {attempt}: {seconds:.2} s, {held:.1} KiB each");
        db.close()?;
    }
    Ok(())
}

/// Many keyspaces with a put each and a budget of 16 MiB for all memtables.
fn budget(path: &Path, n: u32) -> Result {
    let db = Options::default().memtable_budget_bytes(16 << 20).open(path.join("db"))?;
    let before = anonymous();
    for i in 0..n {
        db.create_keyspace(&name(i), db.options().keyspace.clone())?.put("key", [7u8; 50])?;
    }
    println!("{n} keyspaces with a put each: {:.1} MiB of anonymous memory", (anonymous() - before) / MIB);
    Ok(())
}

fn key(i: u32) -> String {
    format!("{i:09}")
}

/// Range deletes that overlap; iterators and gets beside them.
fn tombstones(path: &Path, n: u32) -> Result {
    let before = anonymous();
    let db = Db::open(path.join("cutoff"))?;
    let (mut deletes, mut gets, mut seeks) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        db.put(key(i), "value")?;
        let (delete, done) = timed(|| db.delete_range(..key(i)));
        done?;
        let (get, found) = timed(|| db.get(key(i)));
        assert!(found?.is_some());
        if i % 100 == 0 {
            let (seek, first) = timed(|| db.iter().next());
            assert_eq!(first.expect("a pair")?.0, key(i).as_bytes());
            seeks.push(seek);
        }
        if i >= n - n / 10 {
            deletes.push(delete);
            gets.push(get);
        }
    }
    let seeks = seeks.split_off(seeks.len() * 9 / 10);
    println!(
        "moving cutoff, after {n}: delete {:.1} µs, get {:.1}, iterator {:.1}",
        median(deletes),
        median(gets),
        median(seeks)
    );

    let db = Db::open(path.join("nested"))?;
    let (mut deletes, mut firsts, mut gets) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..n {
        let (delete, done) = timed(|| db.delete_range(key(i)..key(3 * n - i)));
        done?;
        if i % 100 == 99 {
            let (first, item) = timed(|| db.iter().next());
            assert!(item.is_none());
            let (get, found) = timed(|| db.get(key(n)));
            assert!(found?.is_none());
            deletes.push(delete);
            firsts.push(first);
            gets.push(get);
        }
    }
    println!(
        "nested, {n}: delete {:.1} µs, iterator {:.1}, get {:.1}",
        median(deletes),
        median(firsts),
        median(gets)
    );

    let db = Db::open(path.join("clear"))?;
    let mut clears = Vec::new();
    for i in 0..n {
        db.put(key(i % 10), "value")?;
        let (clear, done) = timed(|| db.delete_range::<&str>(..));
        done?;
        clears.push(clear);
    }
    let clears = clears.split_off(clears.len() * 9 / 10);
    println!("clear, after {n}: {:.1} µs", median(clears));

    let db = Db::open(path.join("tables"))?;
    for i in 0..n {
        (0..3).try_for_each(|part| db.put(key(10 * i + part), "value"))?;
        db.delete_range(key(10 * i)..key(10 * i + 2))?;
    }
    db.flush()?;
    db.delete_range(key(3)..key(4))?;
    let seeks = (0..1000).map(|i| timed(|| db.range(key(i * 97 % n * 10)..).next()).0).collect();
    println!("one range delete in memory over {n} in tables: seek {:.1} µs", median(seeks));
    println!("anonymous memory of all: {:.1} MiB", (anonymous() - before) / MIB);

    for (of, flushed) in [("a memtable", false), ("a table", true)] {
        let (mut without, mut first, mut second) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..5 {
            let db = Db::open(path.join(format!("behind {of} {round}")))?;
            (0..300_000).try_for_each(|i| db.put(key(i), "value"))?;
            if flushed {
                db.flush()?;
            }
            let seek = |from: u32| timed(|| db.range(key(from)..).next()).0;
            without.push(seek(200_000));
            seek(299_999);
            db.delete_range(key(1)..key(299_999))?;
            first.push(seek(1));
            second.push(seek(1));
        }
        println!(
            "300,000 keys of {of}: first seek {:.1} µs; behind a range delete of all {:.1}, the next {:.1}",
            median(without),
            median(first),
            median(second)
        );
    }
    Ok(())
}

/// Keys that are overwritten without a pause; the space that they take at most.
fn overwrites(path: &Path, blob_threshold: u64, n: u32) -> Result {
    let path = path.join("db");
    let mut options = Options::default();
    options.set("keyspace.memtable_bytes", "8 MiB")?;
    options.set("keyspace.blob_threshold", &blob_threshold.to_string())?;
    if blob_threshold == 0 {
        options.set("background_bytes_per_second", "40 MiB")?;
    }
    let db = options.open(&path)?;
    let value: Vec<u8> = (0..4000u32).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
    let (started, mut looked, mut most) = (Instant::now(), Instant::now(), 0.0_f64);
    for i in 0..n {
        db.put(key(i % 5000), &value)?;
        if looked.elapsed() > Duration::from_millis(200) {
            looked = Instant::now();
            most = most.max(on_disk(&path, ""));
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{n} writes of 5,000 keys in {seconds:.1} s: at most {:.0} MiB on disk for 19 MiB of data",
        most / MIB
    );
    Ok(())
}

/// Random puts; the space that logs take at most.
fn logs(path: &Path) -> Result {
    let path = path.join("db");
    let db = Options::default().max_log_bytes(64 << 20).open(&path)?;
    let (mut most, mut reported) = (0.0_f64, 0);
    for i in 0..3_000_000u32 {
        db.put(i.wrapping_mul(0x9E37_79B9).to_be_bytes(), [7u8; 200])?;
        if i % 10_000 == 0 {
            most = most.max(on_disk(&path, ".log"));
            reported = reported.max(db.stats().log_allocated_bytes);
        }
    }
    println!(
        "logs: at most {:.1} MiB on disk, {:.1} reported; the limit is 64",
        most / MIB,
        reported as f64 / MIB
    );
    Ok(())
}
