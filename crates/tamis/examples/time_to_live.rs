//! Entries that expire: `cargo run -p tamis --example time_to_live`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::sync::Arc;
use std::time::Duration;

use tamis::clock::ManualClock;
use tamis::{KeyspaceOptions, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    // A program leaves `clock` out. This one does not want to wait.
    let clock = Arc::new(ManualClock::new(1_700_000_000));
    let db = Options::default().clock(Some(clock.clone())).open(dir.path())?;
    let minute = KeyspaceOptions::default().time_to_live(Some(Duration::from_secs(60)));
    let sessions = db.create_keyspace("sessions", minute)?;
    sessions.put("ada", "token 1")?;
    clock.advance(40);
    sessions.put("bob", "token 2")?;
    let before = db.snapshot();
    clock.advance(40);
    println!("ada: {:?}, bob: {:?}", sessions.get("ada")?, sessions.get("bob")?);
    assert!(sessions.get("ada")?.is_none() && sessions.get("bob")?.is_some());
    // A snapshot sees what had not expired when it was taken.
    assert_eq!(before.keyspace(&sessions).get("ada")?.unwrap(), "token 1");
    // A new put is a new life.
    sessions.put("bob", "token 3")?;
    clock.advance(40);
    assert_eq!(sessions.get("bob")?.unwrap(), "token 3");
    Ok(())
}
