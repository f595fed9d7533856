//! A queue on disk, with several producers and workers: `cargo run -p tamis --example queue`.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tamis::{Db, Error, Keyspace, KeyspaceOptions, Options, Slice};

/// Adds a task at the end. Keys are numbers in big-endian form, which sort as the numbers do. The
/// number is drawn in the same transaction that adds the task, so tasks become visible in the order
/// of their numbers.
fn send(db: &Db, tasks: &Keyspace, task: &str) -> Result<(), Error> {
    db.transact(|tx| {
        let last = tx.get("last task")?;
        let last = last.map_or(0, |last| u64::from_be_bytes(last[..].try_into().expect("eight bytes")));
        tx.put("last task", (last + 1).to_be_bytes())?;
        tx.put_in(tasks, (last + 1).to_be_bytes(), task)?;
        Ok::<_, Error>(())
    })
}

/// Takes tasks until the queue is empty and closed; returns them. A task that was taken is deleted,
/// so a crash of the worker loses it. Where that matters, a transaction moves it to a keyspace of
/// tasks in work, and another one deletes it there once it is done.
fn work(tasks: &Keyspace, closed: &AtomicBool) -> Result<Vec<Slice>, Error> {
    let (mut done, mut from) = (Vec::new(), Slice::default());
    loop {
        // Asked first: what was sent before the queue was closed is seen below.
        let last_look = closed.load(Ordering::Acquire);
        // From the last key on. From the beginning, a read would step over the keys that were taken
        // and that no compaction has removed yet.
        let Some(item) = tasks.range(from.clone()..).next() else {
            if last_look {
                return Ok(done);
            }
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let (key, _) = item?;
        // Several workers may see a task. One of them takes it.
        if let Some(task) = tasks.take(&key)? {
            done.push(task);
        }
        from = key;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path(), Options::default())?;
    let tasks = db.create_keyspace("tasks", KeyspaceOptions::default())?;
    let closed = AtomicBool::new(false);

    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(|| work(&tasks, &closed))).collect();
        let (db, queue) = (&db, &tasks);
        let producers = ["letter", "parcel"].map(|kind| {
            scope.spawn(move || (0..500).try_for_each(|n| send(db, queue, &format!("{kind} {n:03}"))))
        });
        let sent = producers.map(|producer| producer.join());
        // Whatever happened to the producers, so that the workers end.
        closed.store(true, Ordering::Release);
        sent.into_iter().try_for_each(|sent| sent.expect("no panic"))?;
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<Vec<_>, Error>>()
    })?;

    let shares: Vec<usize> = done.iter().map(Vec::len).collect();
    println!("tasks done by each worker: {shares:?}");
    // Each task once, and each worker got those of a producer in order.
    let mut all = done.concat();
    all.sort();
    all.dedup();
    assert_eq!((all.len(), shares.iter().sum::<usize>()), (1000, 1000));
    for share in &done {
        assert!(share.iter().filter(|task| task.starts_with(b"letter")).is_sorted());
    }
    assert!(tasks.is_empty()?);
    Ok(())
}
