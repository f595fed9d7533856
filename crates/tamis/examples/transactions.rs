//! Transfers between accounts, by threads that meet; an audit beside them; write skew, and how it
//! is refused: `cargo run -p tamis --example transactions`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use tamis::transactions::{Isolation, TransactionOptions};
use tamis::{Db, Error, Readable, TransactionError};

fn number(from: &impl Readable, key: &str) -> Result<i64, Error> {
    let value = from.get(key)?;
    Ok(value.map_or(0, |value| String::from_utf8_lossy(&value).parse().expect("a number")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;
    for account in ["ada", "bob", "eve"] {
        db.put(account, "100")?;
    }

    // Repeated until nobody else has touched what was read.
    std::thread::scope(|scope| {
        for (from, to) in [("ada", "bob"), ("bob", "eve"), ("eve", "ada")] {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..100 {
                    let moved = db.transact(|tx| {
                        let (a, b) = (number(tx, from)?, number(tx, to)?);
                        tx.put(from, (a - 1).to_string())?;
                        tx.put(to, (b + 1).to_string())?;
                        Ok::<_, Error>(())
                    });
                    moved.expect("a hundred attempts are enough");
                }
            });
        }
    });
    let audit = db.transaction();
    let total = number(&audit, "ada")? + number(&audit, "bob")? + number(&audit, "eve")?;
    println!("300 transfers, {} conflicts, total {total}", db.stats().write.conflicts);
    assert_eq!(total, 300);

    // Two doctors on call: each may go if the other one stays.
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        db.put("on-call/ada", "1")?;
        db.put("on-call/bob", "1")?;
        let options = TransactionOptions { isolation, ..TransactionOptions::default() };
        let (mut one, mut two) = (db.transaction_with(options), db.transaction_with(options));
        for (tx, who) in [(&mut one, "on-call/ada"), (&mut two, "on-call/bob")] {
            if number(tx, "on-call/ada")? + number(tx, "on-call/bob")? == 2 {
                tx.put(who, "0")?;
            }
        }
        one.commit()?;
        match two.commit() {
            Ok(_) => println!("{isolation:?}: both went, nobody is on call"),
            Err(TransactionError::Conflict { key, .. }) => {
                println!("{isolation:?}: the second one stays, for {} has changed", key.escape_ascii());
            }
            Err(error) => return Err(error.into()),
        }
    }

    // A savepoint within a transaction.
    let mut tx = db.transaction();
    tx.put("order", "two of each")?;
    let before = tx.savepoint();
    tx.delete_range("a".."f")?;
    assert_eq!(number(&tx, "ada")?, 0);
    tx.rollback_to(before)?;
    tx.commit()?;
    assert_eq!(number(&db, "ada")?, 100);
    Ok(())
}
