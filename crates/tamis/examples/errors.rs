//! Errors, and what a program does about each: `cargo run -p tamis --example errors`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::{AdminError, Db, Error, KeyspaceOptions, OpenError, Options, TransactionError, WriteError};

/// Everything converts into [`Error`], so `?` is enough where a caller decides.
fn load(db: &Db, name: &str) -> Result<usize, Error> {
    let keyspace = db.keyspace(name)?;
    keyspace.put("key", "value")?;
    keyspace.iter().try_fold(0, |count, item| Ok::<_, Error>(item.map(|_| count + 1)?))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;

    // Opening: by whom it is locked, and whether it is there at all.
    match Db::open(dir.path()) {
        Err(OpenError::OpenHere { .. }) => println!("open in this process: clone the handle that is there"),
        Err(OpenError::Locked { .. }) => println!("open in another process: wait, or open it read-only"),
        other => return Err(format!("{other:?}").into()),
    }
    let missing = Options::default().create_if_missing(false);
    assert!(matches!(missing.open(dir.path().join("no")), Err(OpenError::NotFound { .. })));

    // Keyspaces.
    match load(&db, "users") {
        Err(Error::Admin(AdminError::NoKeyspace { name })) => println!("no keyspace `{name}` yet: create it"),
        other => return Err(format!("{other:?}").into()),
    }
    db.create_keyspace("users", KeyspaceOptions::default())?;
    assert_eq!(load(&db, "users")?, 1);

    // Writes: what can never succeed, and what may later.
    match db.put(vec![b'k'; tamis::MAX_KEY_BYTES + 1], "") {
        Err(WriteError::KeyTooLong { len, max }) => println!("a key of {len} bytes, at most {max}: a bug"),
        Err(WriteError::Suspended { cause }) => {
            println!("the disk is full or failed; writes resume by themselves: {cause}")
        }
        Err(WriteError::Storage(error)) if error.is_out_of_space() => {
            println!("the disk is full: delete something")
        }
        other => return Err(format!("{other:?}").into()),
    }

    // Transactions: a conflict is worth another attempt.
    let mut tx = db.transaction();
    tx.get("key")?;
    tx.put("other", "")?;
    db.put("key", "in between")?;
    match tx.commit() {
        Err(error @ TransactionError::Conflict { .. }) => {
            println!("again? {}: {error}", error.is_retryable())
        }
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}
