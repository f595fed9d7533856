//! An operator of the program's own: sets that grow without being read first. `cargo run -p tamis
//! --example merge_operator`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::collections::BTreeSet;
use std::sync::Arc;

use tamis::operators::{MergeError, MergeOperator, Operators};
use tamis::{OpenError, Options};

/// Adds elements to a set. A set is its elements in order, one a line; an operand is a set, too.
#[derive(Debug)]
struct Union;

impl Union {
    fn of<'a>(sets: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
        let elements = sets.flat_map(|set| set.split(|&byte| byte == b'\n'));
        let elements: BTreeSet<&[u8]> = elements.filter(|element| !element.is_empty()).collect();
        Vec::from_iter(elements).join(&b'\n')
    }
}

impl MergeOperator for Union {
    /// The name is stored with the database. If the rules change, the operator gets a new name.
    fn name(&self) -> &str {
        "union"
    }

    /// For reads, and for compactions that reach the key's value.
    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Ok(Union::of(base.into_iter().chain(operands.iter().copied())))
    }

    /// For compactions that have operands only. Without this, operands pile up.
    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(Union::of(operands.iter().copied()))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let operators = Operators::new().with_merge(Arc::new(Union));
    let mut options = Options::default().operators(operators);
    options.keyspace.merge_operator = Some("union".into());
    let db = options.clone().open(dir.path())?;

    // A value, or a delete, is what later operands are applied to.
    db.put("tags/tamis", "rust\nstorage")?;
    db.merge("tags/tamis", "lsm-tree\nrust")?;
    assert_eq!(db.get("tags/tamis")?.ok_or("no set")?, "lsm-tree\nrust\nstorage");
    db.delete("tags/tamis")?;
    db.merge("tags/tamis", "flour")?;
    assert_eq!(db.get("tags/tamis")?.ok_or("no set")?, "flour");

    // Threads add to one set, and none reads it: nothing is lost, and nobody tries again.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..1000 {
                    db.merge("visitors", format!("{:03}", (7 * n + thread) % 100)).expect("a sound disk");
                }
            });
        }
    });
    let before = db.get("visitors")?.ok_or("no set")?;
    println!("{} visitors in {} bytes", before.split(|&byte| byte == b'\n').count(), before.len());
    assert_eq!(before.split(|&byte| byte == b'\n').count(), 100);
    // Compactions apply the operands, and the value stays the same.
    db.compact()?;
    assert_eq!(db.get("visitors")?.ok_or("no set")?, before);

    // Every program that opens the database brings the operator.
    db.close()?;
    let without = options.operators(Operators::new());
    assert!(matches!(without.open(dir.path()), Err(OpenError::Unregistered { .. })));
    Ok(())
}
