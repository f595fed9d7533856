//! A writer that ships its states, and a replica that follows it from the store.
//!
//! `cargo run -p tamis-remote --example replica`: in memory and a temporary directory. With a
//! number of seconds it measures how far a replica is behind, with a state shipped every second:
//! `cargo run --release -p tamis-remote --example replica -- 20`

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::memory::InMemory;
use tamis::Db;
use tamis_remote::{ReplicaOptions, Repository, ShipOptions, Transfer};

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u64 = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let work = tempfile::tempdir()?;
    let store = Arc::new(InMemory::new());
    let repository = || Repository::with_store(store.clone(), "states", Transfer::default());

    let db = Db::open(work.path().join("db"))?;
    for number in 0..100_000u32 {
        db.put(number.to_be_bytes(), [7; 200])?;
    }
    db.flush()?;
    let mut ship = ShipOptions::default();
    ship.interval = Duration::from_secs(1);
    ship.backup.cache = Some(work.path().join("db/backup-cache.json"));
    // The database keeps its logs until they are shipped, so that every write can be restored to.
    let shipper = repository().ship_changes(&db, "shipping", ship)?;
    shipper.ship_now()?;

    let mut options = ReplicaOptions::default();
    options.follow_interval = Some(Duration::from_secs(1));
    options.options.cache_bytes = 0;
    let begin = Instant::now();
    let replica = repository().open_replica(&work.path().join("cache"), options)?;
    let opened = replica.stats().requests;
    println!(
        "opened in {:.0} ms: {} requests, {} bytes",
        begin.elapsed().as_secs_f64() * 1e3,
        opened.total(),
        opened.bytes_fetched
    );

    // Counted without the looks for newer states, which the background makes meanwhile.
    let reader = replica.db();
    let fetched = || replica.stats().cache_misses;
    let before = fetched();
    for number in 0..1000u32 {
        assert!(reader.get([&number.to_be_bytes()[..], b"absent"].concat())?.is_none());
    }
    let between = fetched();
    let begin = Instant::now();
    for number in (0..100_000u32).step_by(100) {
        assert!(reader.get(number.to_be_bytes())?.is_some());
    }
    let each = begin.elapsed().as_secs_f64() * 1e6 / 1000.0;
    println!(
        "1,000 absent keys: {} blocks fetched; 1,000 present keys: {}, {each:.0} µs each",
        between - before,
        fetched() - between
    );

    let clock = Instant::now();
    let mut lags = Vec::new();
    while clock.elapsed() < Duration::from_secs(seconds) {
        db.put("now", clock.elapsed().as_nanos().to_be_bytes())?;
        std::thread::sleep(Duration::from_millis(5));
        if let Some(shown) = replica.db().get("now")? {
            let shown = u128::from_be_bytes(shown.as_ref().try_into()?);
            lags.push(Duration::from_nanos((clock.elapsed().as_nanos() - shown) as u64));
        }
    }
    lags.sort_unstable();
    if let (Some(middle), Some(most)) = (lags.get(lags.len() / 2), lags.last()) {
        println!(
            "behind by {} ms in the middle, {} ms at most ({} looks)",
            middle.as_millis(),
            most.as_millis(),
            lags.len()
        );
    }
    let stats = replica.stats();
    println!("shipped {} states; the replica shows state {}", shipper.shipped().states, stats.state);
    shipper.close()?;
    Ok(())
}
