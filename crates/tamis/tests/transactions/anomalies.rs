//! The anomalies of the literature, one test each: which isolation level admits it, and which
//! refuses the commit that would cause it.
//!
//! Names are those of Adya's "Weak Consistency" (1999) and of Berenson and others' "A Critique of
//! ANSI SQL Isolation Levels" (1995).

use tamis::transactions::Isolation::{self, Serializable, Snapshot};
use tamis::{Db, Transaction, TransactionError};

use crate::support::{begin, get, items, open};

const BOTH: [Isolation; 2] = [Snapshot, Serializable];

fn number(from: &impl tamis::Readable, key: &str) -> i64 {
    get(from, key).map_or(0, |value| value.parse().expect("a number"))
}

fn set(tx: &mut Transaction, key: &str, value: i64) {
    tx.put(key, value.to_string()).unwrap();
}

fn is_conflict(result: Result<u64, TransactionError>) -> bool {
    match result {
        Ok(_) => false,
        Err(TransactionError::Conflict { .. }) => true,
        Err(other) => panic!("{other}"),
    }
}

/// G0, dirty write: the writes of two transactions are interleaved. **Admitted by none.**
#[test]
fn dirty_writes() {
    for isolation in BOTH {
        let db = open();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        for (tx, value) in [(&mut a, 1), (&mut b, 2)] {
            set(tx, "x", value);
        }
        for (tx, value) in [(&mut b, 2), (&mut a, 1)] {
            set(tx, "y", value);
        }
        let first = is_conflict(a.commit());
        let second = is_conflict(b.commit());
        assert!(!first);
        // Under snapshot isolation the first committer wins; blind writes of serializable
        // transactions have an order.
        assert_eq!(second, isolation == Snapshot);
        assert_eq!(number(&db, "x"), number(&db, "y"));
    }
}

/// G1a, aborted read: a transaction reads what another one wrote and then gave up. **Admitted by
/// none.**
#[test]
fn aborted_reads() {
    for isolation in BOTH {
        let db = open();
        let mut writer = begin(&db, isolation);
        set(&mut writer, "x", 1);
        let reader = begin(&db, isolation);
        assert_eq!(number(&reader, "x"), 0);
        writer.rollback();
        assert_eq!(number(&reader, "x"), 0);
        assert_eq!(number(&db, "x"), 0);
    }
}

/// G1b, intermediate read: a transaction reads a value that its writer replaced before it
/// committed. **Admitted by none.**
#[test]
fn intermediate_reads() {
    for isolation in BOTH {
        let db = open();
        let mut writer = begin(&db, isolation);
        set(&mut writer, "x", 1);
        let reader = begin(&db, isolation);
        assert_eq!(number(&reader, "x"), 0);
        set(&mut writer, "x", 2);
        writer.commit().unwrap();
        assert_eq!(number(&reader, "x"), 0, "not even the final one: it began before");
        assert_eq!(number(&begin(&db, isolation), "x"), 2);
    }
}

/// G1c, circular information flow: each of two transactions reads what the other one wrote.
/// **Admitted by none.**
#[test]
fn circular_information_flow() {
    for isolation in BOTH {
        let db = open();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        set(&mut a, "x", 1);
        set(&mut b, "y", 1);
        assert_eq!((number(&a, "y"), number(&b, "x")), (0, 0));
        a.commit().unwrap();
        assert_eq!(number(&b, "x"), 0);
        drop(b);
    }
}

/// G-single, read skew: a transaction reads some of another one's writes, and what others of them
/// replaced. **Admitted by none.**
#[test]
fn read_skew() {
    for isolation in BOTH {
        let db = open();
        let reader = begin(&db, isolation);
        assert_eq!(number(&reader, "x"), 0);
        let mut writer = begin(&db, isolation);
        set(&mut writer, "x", 1);
        set(&mut writer, "y", 1);
        writer.commit().unwrap();
        assert_eq!(number(&reader, "y"), 0);
        assert!(!is_conflict(reader.commit()));
    }
}

/// P4, lost update (a case of G-single): two transactions add to the number that both have read.
/// **Admitted by none.**
#[test]
fn lost_updates() {
    for isolation in BOTH {
        let db = open();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        for tx in [&mut a, &mut b] {
            let read = number(tx, "x");
            set(tx, "x", read + 1);
        }
        assert!(!is_conflict(a.commit()));
        assert!(is_conflict(b.commit()));
        assert_eq!(number(&db, "x"), 1);
    }
}

/// Bank: transfers between accounts, and an auditor who adds all of them up. The total never
/// changes. **Admitted by none.**
#[test]
fn a_bank_total_is_constant_for_an_auditor_who_began_at_any_time() {
    for isolation in BOTH {
        let db = open();
        db.put("account/a", "60").unwrap();
        db.put("account/b", "40").unwrap();
        let total = |from: &Transaction| -> i64 {
            from.prefix("account/")
                .map(|item| String::from_utf8_lossy(&item.unwrap().1).parse::<i64>().unwrap())
                .sum()
        };
        let before = begin(&db, isolation);
        let mut transfer = begin(&db, isolation);
        let (a, b) = (number(&transfer, "account/a"), number(&transfer, "account/b"));
        set(&mut transfer, "account/a", a - 30);
        let during = begin(&db, isolation);
        set(&mut transfer, "account/b", b + 30);
        assert_eq!(total(&transfer), 100);
        transfer.commit().unwrap();
        let after = begin(&db, isolation);
        assert_eq!([&before, &during, &after].map(total), [100; 3]);
        assert_eq!([&before, &during, &after].map(|tx| number(tx, "account/a")), [60, 60, 30]);
    }
}

/// Write skew (a case of G2): two doctors are on call; each sees the other one and goes. **Admitted
/// by `Snapshot`.**
#[test]
fn write_skew() {
    for isolation in BOTH {
        let db = open();
        db.put("ada", "1").unwrap();
        db.put("kurt", "1").unwrap();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        for (tx, who) in [(&mut a, "ada"), (&mut b, "kurt")] {
            if number(tx, "ada") + number(tx, "kurt") == 2 {
                set(tx, who, 0);
            }
        }
        assert!(!is_conflict(a.commit()));
        assert_eq!(is_conflict(b.commit()), isolation == Serializable);
        let on_call = number(&db, "ada") + number(&db, "kurt");
        assert_eq!(on_call, if isolation == Serializable { 1 } else { 0 });
    }
}

/// Predicate write skew (a case of G2): two transactions count the bookings of a room, find none,
/// and each adds its own: a phantom for the other. No key that one read was written by the other.
/// **Admitted by `Snapshot`.**
#[test]
fn phantoms_and_predicates() {
    for isolation in BOTH {
        let db = open();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        for (tx, booking) in [(&mut a, "room7/ada"), (&mut b, "room7/kurt")] {
            if tx.prefix("room7/").count() == 0 {
                set(tx, booking, 1);
            }
        }
        assert!(!is_conflict(a.commit()));
        assert_eq!(is_conflict(b.commit()), isolation == Serializable);
        let bookings = items(db.prefix("room7/"));
        assert_eq!(bookings.len(), if isolation == Serializable { 1 } else { 2 });
    }
}

/// A predicate with several parts of different keyspaces. **Admitted by `Snapshot`.**
#[test]
fn predicate_write_skew_across_keyspaces() {
    for isolation in BOTH {
        let db = open();
        let left = db.create_keyspace("left", Default::default()).unwrap();
        let right = db.create_keyspace("right", Default::default()).unwrap();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        assert!(a.keyspace(&left).iter().next().is_none());
        a.put_in(&right, "x", "").unwrap();
        assert!(b.keyspace(&right).iter().next().is_none());
        b.put_in(&left, "x", "").unwrap();
        assert!(!is_conflict(a.commit()));
        assert_eq!(is_conflict(b.commit()), isolation == Serializable);
    }
}

/// Long fork (a case of G2): two readers see two independent writes in opposite orders. Both levels
/// read from snapshots of one order of commits, which rules it out even among readers. **Admitted
/// by none.**
#[test]
fn long_fork() {
    for isolation in BOTH {
        let db = open();
        let (mut a, mut b) = (begin(&db, isolation), begin(&db, isolation));
        set(&mut a, "x", 1);
        set(&mut b, "y", 1);
        let sees = |db: &Db| {
            let reader = begin(db, isolation);
            (number(&reader, "x"), number(&reader, "y"))
        };
        let early = sees(&db);
        a.commit().unwrap();
        let between = (sees(&db), sees(&db));
        b.commit().unwrap();
        assert_eq!((early, between, sees(&db)), ((0, 0), ((1, 0), (1, 0)), (1, 1)));
    }
}

/// Fekete's read-only anomaly (a case of G2): only a third, reading transaction makes the execution
/// of the other two impossible one after the other. **Admitted by `Snapshot`.**
#[test]
fn the_read_only_anomaly() {
    for isolation in BOTH {
        let db = open();
        // A withdrawal that overdraws costs a penalty of 1; the deposit of 20 comes first or it
        // does not.
        let mut withdraw = begin(&db, isolation);
        let sum = number(&withdraw, "checking") + number(&withdraw, "saving");
        let mut deposit = begin(&db, isolation);
        let saving = number(&deposit, "saving");
        set(&mut deposit, "saving", saving + 20);
        deposit.commit().unwrap();
        let report = begin(&db, isolation);
        let reported = (number(&report, "checking"), number(&report, "saving"));
        report.commit().unwrap();
        assert_eq!(reported, (0, 20), "so the deposit was first");
        set(&mut withdraw, "checking", if sum < 10 { -11 } else { -10 });
        assert_eq!(is_conflict(withdraw.commit()), isolation == Serializable, "so the withdrawal was first");
    }
}
