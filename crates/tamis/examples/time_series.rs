//! Measurements by sensor and time, of which the old ones go: `cargo run -p tamis --example
//! time_series`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::sync::Arc;
use std::time::Duration;

use tamis::clock::ManualClock;
use tamis::options::CompactionChoice;
use tamis::{KeyspaceOptions, Options, ReadError, Slice};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;

/// The sensor, then the time in big-endian form: the measurements of a sensor are side by side, and
/// in the order of time.
fn key(sensor: &str, seconds: u64) -> Vec<u8> {
    [sensor.as_bytes(), b"\0", &seconds.to_be_bytes()].concat()
}

/// Returns the time and the value of a measurement.
fn decoded(item: Result<(Slice, Slice), ReadError>) -> Result<(u64, f64), ReadError> {
    let (key, value) = item?;
    let seconds = key.last_chunk::<8>().expect("every key ends with the time");
    Ok((u64::from_be_bytes(*seconds), f64::from_le_bytes(value[..].try_into().expect("eight bytes"))))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let start = 1_700_000_000;
    // A program leaves `clock` out. This one does not want to wait for a week.
    let clock = Arc::new(ManualClock::new(start));
    let db = Options::default().clock(Some(clock.clone())).open(dir.path())?;
    // What is written within a window of time is merged together, so that old measurements leave
    // the disk as whole tables.
    let week = KeyspaceOptions::default()
        .time_to_live(Some(Duration::from_secs(7 * DAY)))
        .compaction(CompactionChoice::TimeWindow)
        .time_window(Some(Duration::from_secs(DAY)));
    let values = db.create_keyspace("temperature", week)?;
    for hour in 0..10 * 24 {
        let time = start + hour * HOUR;
        clock.set(time);
        values.put(key("roof", time), (hour as f64).to_le_bytes())?;
        values.put(key("cellar", time), 11.5f64.to_le_bytes())?;
    }
    let now = start + (10 * 24 - 1) * HOUR;

    // The latest: the last key of the sensor's prefix.
    let latest = values.prefix("roof\0").next_back().ok_or("no measurement")?;
    assert_eq!(decoded(latest)?, (now, 239.0));
    // A day: from one key to another.
    let day = values.range(key("roof", now - DAY)..key("roof", now)).map(decoded);
    let day: Vec<(u64, f64)> = day.collect::<Result<_, _>>()?;
    let mean = day.iter().map(|(_, value)| value).sum::<f64>() / day.len() as f64;
    println!("mean of the last day: {mean}");
    assert_eq!((day.len(), mean), (24, 226.5));
    // The last three, newest first.
    let three: Result<Vec<_>, _> = values.prefix("roof\0").rev().take(3).map(decoded).collect();
    assert_eq!(three?.iter().map(|(_, value)| *value).collect::<Vec<_>>(), [239.0, 238.0, 237.0]);

    // A week is left. Age counts from the write, whatever time the key says, and an entry may stay
    // for another 128th of its life: here, an hour and twenty minutes.
    let oldest = decoded(values.prefix("roof\0").next().ok_or("no measurement")?)?.0;
    println!("the oldest is {} hours old", (now - oldest) / HOUR);
    assert!((now - 7 * DAY - 2 * HOUR..=now - 7 * DAY).contains(&oldest));
    clock.advance(8 * DAY);
    assert!(values.is_empty()?);
    Ok(())
}
