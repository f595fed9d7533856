//! A channel of bounded length from one thread to another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Condvar, Mutex};

/// A channel that holds up to `bound` values, which is at least 1.
pub fn bounded<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Queue { values: VecDeque::with_capacity(bound), closed: false };
    let shared = Arc::new(Shared { bound, queue: Mutex::new(queue), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

#[derive(Debug)]
struct Shared<T> {
    bound: usize,
    queue: Mutex<Queue<T>>,
    /// Signalled after every change. At most one thread waits: either the queue is full or it is empty.
    changed: Condvar,
}

#[derive(Debug)]
struct Queue<T> {
    values: VecDeque<T>,
    /// One of the ends is gone.
    closed: bool,
}

impl<T> Shared<T> {
    fn close(&self) {
        self.queue.lock().closed = true;
        self.changed.notify_all();
    }
}

/// The end that values go in at.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Waits for room and adds a value; gives it back if nobody receives any more.
    pub fn send(&self, value: T) -> Result<(), T> {
        let mut queue = self.0.queue.lock();
        while queue.values.len() >= self.0.bound && !queue.closed {
            queue = self.0.changed.wait(queue);
        }
        if queue.closed {
            return Err(value);
        }
        queue.values.push_back(value);
        drop(queue);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The end that values come out at.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// All values, until the sender is gone and everything it sent was received.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.receive())
    }

    /// Waits for the next value; `None` once the sender is gone and everything it sent was received.
    fn receive(&self) -> Option<T> {
        let mut queue = self.0.queue.lock();
        while queue.values.is_empty() && !queue.closed {
            queue = self.0.changed.wait(queue);
        }
        let value = queue.values.pop_front();
        drop(queue);
        self.0.changed.notify_all();
        value
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_order_and_the_end_is_seen() {
        let (sender, receiver) = bounded(2);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..100).for_each(|i| sender.send(i).unwrap()));
            let received: Vec<i32> = std::iter::from_fn(|| receiver.receive()).collect();
            assert_eq!(received, (0..100).collect::<Vec<_>>());
        });
    }

    #[test]
    fn a_value_that_nobody_will_receive_comes_back() {
        let (sender, receiver) = bounded(1);
        sender.send(1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(receiver));
            assert_eq!(sender.send(2), Err(2));
        });
    }
}
