//! Backs a database up, loses it, restores it, and compares.
//!
//! `cargo run -p tamis-remote --example backup` uses a temporary directory. With a size it
//! measures: `cargo run --release -p tamis-remote --example backup -- 1000` (MB of data).

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use tamis::{Db, ReadError};
use tamis_remote::{BackupOptions, Repository, RestoreOptions, Retention, Transfer, Which};

/// Returns the number of entries, and a hash of all of them.
fn contents(db: &Db) -> Result<(u64, u64), ReadError> {
    let (mut count, mut hasher) = (0, DefaultHasher::new());
    for item in db {
        item?.hash(&mut hasher);
        count += 1;
    }
    Ok((count, hasher.finish()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let megabytes: u64 = std::env::args().nth(1).map_or(Ok(20), |text| text.parse())?;
    let work = tempfile::tempdir()?;
    let db = Db::open(work.path().join("db"))?;
    let mut number = 0u64;
    let mut fill = |count: u64| -> Result<(), Box<dyn Error>> {
        for _ in 0..count {
            number += 1;
            let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let value: Vec<u8> = (0..125u64)
                .flat_map(|i| (number ^ i << 40).wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes())
                .collect();
            db.put(key, value)?;
        }
        Ok(())
    };
    fill(megabytes * 1000)?;
    db.flush()?;
    db.wait_for_compaction()?;

    // Any address that `Repository::open` takes: with the feature `aws`, s3://bucket/prefix.
    let url = work.path().join("backups");
    let url = url.to_str().ok_or("a path that is no text")?;
    let repository = Repository::open(url, Transfer::default())?;
    let options =
        BackupOptions { cache: Some(work.path().join("db/backup-cache.json")), ..BackupOptions::default() };
    let measured = |what: &str,
                    bytes: &dyn Fn() -> Result<u64, Box<dyn Error>>|
     -> Result<(), Box<dyn Error>> {
        let (before, begin) = (repository.requests(), Instant::now());
        let bytes = bytes()?;
        let (seconds, requests) = (begin.elapsed().as_secs_f64(), repository.requests().since(&before));
        let rate = bytes as f64 / 1e6 / seconds;
        println!(
            "{what}: {bytes} bytes in {seconds:.2} s, {rate:.0} MB/s; {} requests, {} bytes sent, {} fetched",
            requests.total(),
            requests.bytes_sent,
            requests.bytes_fetched
        );
        Ok(())
    };
    measured("first backup", &|| Ok(repository.backup(&db, options.clone())?.bytes))?;
    fill(megabytes * 10)?;
    db.flush()?;
    measured("second backup, after 1 % more", &|| Ok(repository.backup(&db, options.clone())?.bytes))?;
    let newest = repository.find(Which::Latest)?;
    measured("verification", &|| {
        let verified = repository.verify(&newest, false, None)?;
        if !verified.problems.is_empty() {
            return Err(verified.problems.join("\n").into());
        }
        Ok(verified.bytes)
    })?;
    let (expected, last) = (contents(&db)?, db.snapshot().seq());
    db.close()?;
    std::fs::remove_dir_all(work.path().join("db"))?;
    let target = work.path().join("restored");
    measured("restore", &|| Ok(repository.restore(&newest, &target, &RestoreOptions::default())?.bytes))?;
    let db = Db::open(&target)?;
    println!("restored up to write {} of {last}", db.snapshot().seq());
    assert_eq!(contents(&db)?, expected);

    // Only the newest stays, and what it needs. An hour's grace would keep what is that young.
    let mut retention = Retention::default();
    retention.grace = std::time::Duration::ZERO;
    let pruned = repository.prune(&retention)?;
    println!(
        "pruned {} states and {} objects; {} objects stay",
        pruned.states_removed, pruned.objects_removed, pruned.objects_kept
    );
    Ok(())
}
