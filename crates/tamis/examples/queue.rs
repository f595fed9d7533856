//! A queue on disk that loses no task if a worker dies: `cargo run -p tamis --example queue`.
//!
//! The key of a task begins with the time from which on it may be taken. A worker that takes a task
//! moves it to the end of a lease; if the worker dies, the task is due again at that time. So a
//! task may be done twice, but is never lost.
#![allow(clippy::print_stdout, reason = "an example for the terminal")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tamis::transactions::TransactionOptions;
use tamis::{Db, Durability, Error, Keyspace, KeyspaceOptions, WriteBatch};

struct Queue {
    db: Db,
    /// Keys: milliseconds (big-endian, so that they sort by time), producer and number.
    tasks: Keyspace,
    /// The last number of each producer.
    numbers: Keyspace,
}

/// A task that a worker has taken. Whoever takes it after the lease gets another key.
struct Lease {
    key: Vec<u8>,
    task: Vec<u8>,
}

fn millis_in(pause: Duration) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    (now + pause).as_millis() as u64
}

fn key(due: u64, id: &[u8]) -> Vec<u8> {
    [&due.to_be_bytes()[..], id].concat()
}

impl Queue {
    fn open(db: Db) -> Result<Queue, Error> {
        let tasks = db.get_or_create_keyspace("tasks", KeyspaceOptions::default())?;
        let numbers = db.get_or_create_keyspace("numbers", KeyspaceOptions::default())?;
        Ok(Queue { db, tasks, numbers })
    }

    /// Adds a task; it survives a power cut once this returns. Each producer is one thread and has
    /// its own numbers, so producers never conflict.
    fn send(&self, producer: &str, task: &str) -> Result<(), Error> {
        let last = self.numbers.get(producer)?;
        let last = last.map_or(0, |last| u64::from_be_bytes(last[..].try_into().expect("eight bytes")));
        let number = (last + 1).to_be_bytes();
        let key = key(millis_in(Duration::ZERO), &[producer.as_bytes(), &number[..]].concat());
        let mut batch = WriteBatch::new();
        batch.put_in(&self.tasks, key, task).put_in(&self.numbers, producer, number);
        Ok(self.db.write_with(batch, Durability::Sync)?)
    }

    /// Takes the first task that is due, if there is one.
    fn take(&self, lease: Duration) -> Result<Option<Lease>, Error> {
        for due in self.tasks.range(..key(millis_in(Duration::ZERO) + 1, b"")).keys() {
            // Several workers may see the task. For all but the first to commit, it is gone.
            if let Some(taken) = self.change(&due?, Some(lease))? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Makes a task due again after a pause, or removes it; `None` if it has another key by now.
    fn change(&self, old: &[u8], pause: Option<Duration>) -> Result<Option<Lease>, Error> {
        // A power cut may undo a move: the task is due earlier. What is done stays done.
        let durability = pause.is_none().then_some(Durability::Sync);
        self.db.transact_with(TransactionOptions { durability, ..TransactionOptions::default() }, |tx| {
            let Some(task) = tx.keyspace(&self.tasks).get(old)? else { return Ok(None) };
            let new = key(pause.map_or(0, millis_in), &old[8..]);
            tx.delete_in(&self.tasks, old)?;
            if pause.is_some() {
                tx.put_in(&self.tasks, &new, &task)?;
            }
            Ok(Some(Lease { key: new, task: task.to_vec() }))
        })
    }
}

/// Works until no task is left. Returns the tasks that were done.
fn work(queue: &Queue) -> Result<Vec<Vec<u8>>, Error> {
    let mut done = Vec::new();
    while !queue.tasks.is_empty()? {
        match queue.take(Duration::from_secs(30))? {
            // The worker does the task, and then removes it, if its lease has not been taken over.
            Some(lease) => done.extend(queue.change(&lease.key, None)?.map(|lease| lease.task)),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Ok(done)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let queue = Queue::open(Db::open(dir.path())?)?;
    let send = |name: &'static str| (0..100).try_for_each(|n| queue.send(name, &format!("{name} {n}")));
    std::thread::scope(|scope| {
        let producers = ["east", "west"].map(|producer| scope.spawn(move || send(producer)));
        producers.into_iter().try_for_each(|producer| producer.join().expect("no panic"))
    })?;
    // One worker gives a task back. Another one takes a task, and its process dies.
    let tried = queue.take(Duration::from_secs(30))?.ok_or("no task")?;
    queue.change(&tried.key, Some(Duration::from_millis(5)))?.ok_or("no lease")?;
    let lost = queue.take(Duration::from_millis(10))?.ok_or("no task")?;
    drop(queue);
    let queue = Queue::open(Db::open(dir.path())?)?;
    let shares = std::thread::scope(|scope| {
        let workers = [(); 3].map(|()| scope.spawn(|| work(&queue)));
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    })?;
    println!("tasks done by each worker: {:?}", shares.iter().map(Vec::len).collect::<Vec<_>>());
    let done = std::collections::BTreeSet::from_iter(shares.concat());
    assert_eq!((done.len(), shares.concat().len()), (200, 200), "every task, and each once");
    // Both tasks were delivered again. The worker that was thought dead finds its lease over.
    assert!(done.contains(&tried.task) && done.contains(&lost.task));
    assert!(queue.change(&lost.key, None)?.is_none());
    Ok(())
}
