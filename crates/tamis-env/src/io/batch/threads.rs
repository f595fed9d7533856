//! Batches read in threads, for kernels that have no io_uring or forbid it.
//!
//! # Invariants
//!
//! * The number of threads is limited. They are started when there are more reads than idle
//!   threads, and live until the pool is dropped, which joins them.
//! * A job owns its file and memory, so no borrow crosses threads. Every job is answered or its
//!   channel closed, even if its thread panics: no caller waits forever.
//!
//! One lock guards the queue; it is never held while reading. The calling thread reads along, and
//! reads everything itself if no thread can be started.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::{Outcome, Stretch};
use crate::io::ReadFile;

#[derive(Debug)]
struct Job {
    /// Jobs are numbered in the order in which they were requested.
    number: u64,
    file: Arc<dyn ReadFile>,
    offset: u64,
    len: usize,
    /// The job's index in the batch.
    place: usize,
    answer: Sender<(usize, io::Result<Arc<[u8]>>)>,
}

impl Job {
    fn run(self) {
        let bytes = Stretch { file: self.file, offset: self.offset, len: self.len }.read();
        // The caller waits for all answers; it is gone only if it panicked.
        let _ = self.answer.send((self.place, bytes));
    }
}

#[derive(Debug, Default)]
struct Queue {
    /// In the order of their numbers.
    jobs: VecDeque<Job>,
    /// The number of the next job.
    next: u64,
    /// The number of threads that wait for a job.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closing: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Shared {
    /// The queue is consistent whenever its lock is free, so a panic elsewhere does not matter.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job.run();
                queue = self.queue();
            } else if queue.closing {
                return;
            } else {
                queue.idle += 1;
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

/// A pool of reading threads.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    most: usize,
}

impl Pool {
    /// Creates a pool without threads that never starts more than `most`.
    pub(super) fn new(most: usize) -> Pool {
        Pool { shared: Arc::default(), most }
    }

    /// Reads the ranges that may overlap and leaves the rest untouched. Any thread may call this.
    pub(super) fn read(&self, stretches: &[Stretch], outcomes: &mut [Outcome]) {
        let places: Vec<usize> = (0..stretches.len()).filter(|&i| stretches[i].overlaps()).collect();
        let Some((&mine, others)) = places.split_first() else { return };
        let (answer, answers) = mpsc::channel();
        let end = self.push(others.iter().map(|&place| {
            let Stretch { file, offset, len } = stretches[place].clone();
            Job { number: 0, file, offset, len, place, answer: answer.clone() }
        }));
        drop(answer);
        outcomes[mine] = Some(stretches[mine].read());
        loop {
            // Queued jobs of any caller may be done here, but none that was queued later, or a
            // steady stream of requests could keep this thread busy forever.
            let waiting = {
                let jobs = &mut self.shared.queue().jobs;
                if jobs.front().is_some_and(|job| job.number < end) { jobs.pop_front() } else { None }
            };
            let Some(job) = waiting else { break };
            job.run();
        }
        for (place, bytes) in answers {
            outcomes[place] = Some(bytes);
        }
    }

    /// Queues and numbers jobs; all their numbers are below the returned one.
    fn push(&self, jobs: impl Iterator<Item = Job>) -> u64 {
        let mut queue = self.shared.queue();
        let mut end = queue.next;
        queue.jobs.extend(jobs.map(|job| {
            end += 1;
            Job { number: end - 1, ..job }
        }));
        queue.next = end;
        let missing = queue.jobs.len().saturating_sub(queue.idle).min(self.most - queue.threads.len());
        for _ in 0..missing {
            let shared = Arc::clone(&self.shared);
            match std::thread::Builder::new().name("tamis-read".into()).spawn(move || shared.work()) {
                Ok(thread) => queue.threads.push(thread),
                Err(e) => {
                    log::warn!("no thread could be started for reading: {e}");
                    break;
                }
            }
        }
        drop(queue);
        self.shared.wake.notify_all();
        end
    }

    #[cfg(all(test, unix))]
    pub(super) fn threads(&self) -> usize {
        self.shared.queue().threads.len()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let threads = {
            let mut queue = self.shared.queue();
            queue.closing = true;
            std::mem::take(&mut queue.threads)
        };
        self.shared.wake.notify_all();
        for thread in threads {
            // The panic of a reading thread has already been handled.
            let _ = thread.join();
        }
    }
}
