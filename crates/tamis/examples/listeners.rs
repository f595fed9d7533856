//! Listeners: what a database tells a program while it works.
//!
//! Run: `cargo run --release -p tamis --example listeners`

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use tamis::Options;
use tamis::events::Event;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let listener = |event: &Event| match event {
        Event::FlushEnded(flush) => {
            println!(
                "flushed {} bytes of memtables to {} in {:?}",
                flush.memtable_bytes, flush.bytes_written, flush.took
            );
        }
        Event::CompactionEnded(merge) => println!(
            "{} of `{}` ({}): {} bytes read, {} written to level {} in {:?}",
            merge.work,
            merge.keyspace,
            merge.reason,
            merge.bytes_read,
            merge.bytes_written,
            merge.output_level,
            merge.took
        ),
        Event::StallEnded { cause, took } => println!("writes stalled for {took:?}: {}", cause.name()),
        Event::SlowOperation(slow) => println!("{slow}"),
        Event::Warning { message } => println!("warning: {message}"),
        _ => {}
    };
    let mut options = Options::default()
        .listeners(vec![Arc::new(listener)])
        .slow_operation_threshold(Some(Duration::from_millis(20)));
    options.keyspace.memtable_bytes = 1 << 20;
    let db = options.open(dir.path())?;
    for i in 0..100_000u32 {
        db.put(i.wrapping_mul(0x9E37_79B9).to_be_bytes(), [7; 100])?;
    }
    db.compact()?;
    // Waits until the listener has been told of everything.
    db.close()?;
    Ok(())
}
