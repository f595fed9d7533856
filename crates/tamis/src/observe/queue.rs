//! The event queue, and the thread that delivers events to the listeners.
//!
//! # Threads and locks
//!
//! Any thread may push, with any of the engine's locks held: the queue's lock is a leaf, and
//! pushing wakes the thread that [delivers](Queue::deliver) without waiting for it. That thread
//! holds no lock while a listener runs. A full queue drops pushed events and counts them, so that a
//! hanging listener costs events, but neither memory nor writes.
//!
//! A listener that panics loses that event; other listeners still get it, and later events are
//! delivered.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::observe::events::{Event, EventListener};
use crate::sync::{Condvar, Mutex};

/// The maximum number of queued events.
const MOST: usize = 1 << 14;

#[derive(Default)]
pub(crate) struct EventQueue {
    listeners: Vec<Arc<dyn EventListener>>,
    waiting: Mutex<QueuedEvents>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedEvents {
    events: VecDeque<Event>,
    /// Events dropped since the last one that was pushed.
    lost: u64,
    /// No more events are accepted.
    ended: bool,
}

impl std::fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("listeners", &self.listeners.len()).finish_non_exhaustive()
    }
}

impl EventQueue {
    pub(super) fn new(listeners: &[Arc<dyn EventListener>]) -> EventQueue {
        EventQueue { listeners: listeners.to_vec(), ..EventQueue::default() }
    }

    #[inline]
    pub(crate) fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(super) fn push(&self, event: Event) {
        let mut waiting = self.waiting.lock();
        if waiting.ended {
            return;
        }
        if waiting.events.len() >= MOST {
            waiting.lost += 1;
            return;
        }
        if waiting.lost > 0 {
            let events = std::mem::take(&mut waiting.lost);
            waiting.events.push_back(Event::Lost { events });
        }
        waiting.events.push_back(event);
        drop(waiting);
        self.changed.notify_one();
    }

    /// Delivers events to the listeners until the queue has ended and is empty.
    pub(crate) fn deliver(&self) {
        loop {
            let events = {
                let mut waiting = self.waiting.lock();
                while waiting.events.is_empty() {
                    if waiting.ended {
                        return;
                    }
                    waiting = self.changed.wait(waiting);
                }
                std::mem::take(&mut waiting.events)
            };
            for event in &events {
                for listener in &self.listeners {
                    if catch_unwind(AssertUnwindSafe(|| listener.event(event))).is_err() {
                        log::error!("an event listener panicked");
                    }
                }
            }
        }
    }

    /// Ends the queue: events already in it are still delivered.
    pub(crate) fn end(&self) {
        let mut waiting = self.waiting.lock();
        if !std::mem::replace(&mut waiting.ended, true) && waiting.lost > 0 {
            let events = std::mem::take(&mut waiting.lost);
            waiting.events.push_back(Event::Lost { events });
        }
        drop(waiting);
        self.changed.notify_all();
    }

    /// Returns the memory of the queued events, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.waiting.lock().events.capacity() * size_of::<Event>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(message: &str) -> Event {
        Event::Warning { message: message.into() }
    }

    #[test]
    fn what_does_not_fit_is_counted_and_a_panic_costs_one_event() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let panics = |event: &Event| assert!(!matches!(event, Event::Lost { .. }), "on purpose");
        let collects = move |event: &Event| sink.lock().push(event.clone());
        let queue = EventQueue::new(&[Arc::new(panics), Arc::new(collects)]);
        (0..MOST + 7).for_each(|n| queue.push(warning(&n.to_string())));
        queue.waiting.lock().events.pop_front();
        queue.waiting.lock().events.pop_front();
        queue.push(warning("last"));
        queue.end();
        queue.push(warning("too late"));
        queue.deliver();
        let seen = seen.lock();
        assert_eq!(seen.len(), MOST);
        assert_eq!(seen[0], warning("2"));
        assert_eq!(seen[MOST - 2..], [Event::Lost { events: 7 }, warning("last")]);
    }
}
