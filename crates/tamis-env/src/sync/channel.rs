//! A bounded channel from one thread to another.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Condvar, Mutex};

/// Creates a channel that holds up to `bound` values, at least 1.
pub fn bounded<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Queue { values: VecDeque::with_capacity(bound), closed: false };
    let shared = Arc::new(Shared { bound, queue: Mutex::new(queue), changed: Condvar::new() });
    (Sender(shared.clone()), Receiver(shared))
}

#[derive(Debug)]
struct Shared<T> {
    bound: usize,
    queue: Mutex<Queue<T>>,
    /// Signalled after every change. At most one thread waits, since the queue is never both full
    /// and empty.
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

/// The sending end.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Waits for room and adds a value; returns it if the receiver is gone.
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

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Iterates over all values until the sender is gone and everything it sent was received.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.receive())
    }

    /// Waits for the next value; `None` once the sender is gone and everything it sent was
    /// received.
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
    fn values_arrive_in_order_and_then_the_end() {
        let (sender, receiver) = bounded(2);
        std::thread::scope(|scope| {
            scope.spawn(move || (0..100).for_each(|i| sender.send(i).unwrap()));
            let received: Vec<i32> = std::iter::from_fn(|| receiver.receive()).collect();
            assert_eq!(received, (0..100).collect::<Vec<_>>());
        });
    }

    #[test]
    fn a_value_without_a_receiver_is_returned() {
        let (sender, receiver) = bounded(1);
        sender.send(1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(receiver));
            assert_eq!(sender.send(2), Err(2));
        });
    }
}
