//! When a read of a device ends: its queue and its bus, as arithmetic on time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Device;

/// The most bytes that a read fetches without transfer time.
const PAGE_BYTES: u64 = 4 << 10;

/// The reads in flight on a device, and the time until which its bus is busy. Times are nanoseconds
/// of one clock.
///
/// * At most `queue_depth` reads overlap. One that finds the queue full begins when the first of
///   those before it ends, so reads begin in the order in which they were admitted.
/// * A read of up to 4 KiB takes `read_ns` from its beginning; what is beyond takes its transfer
///   time on top.
/// * All transfers share one bus of `bytes_per_second`: many reads at once end no sooner than it
///   can carry their bytes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The end times of the reads in flight, the first on top. Some may have passed.
    ends: BinaryHeap<Reverse<u64>>,
    bus_free: u64,
}

impl Queue {
    /// Returns the end time of a read of `len` bytes that arrives at `now`. O(log depth).
    pub(super) fn admit(&mut self, device: &Device, now: u64, len: usize) -> u64 {
        while self.ends.peek().is_some_and(|end| end.0 <= now) {
            self.ends.pop();
        }
        let mut begin = now;
        // More than one in excess only after the device was replaced by one with a shorter queue.
        while self.ends.len() >= device.queue_depth.max(1) {
            let Some(Reverse(end)) = self.ends.pop() else { break };
            begin = end;
        }
        let len = len as u64;
        self.bus_free = self.bus_free.max(begin).saturating_add(device.transfer_ns(len));
        let beyond = device.transfer_ns(len.saturating_sub(PAGE_BYTES));
        let end = begin.saturating_add(device.read_ns).saturating_add(beyond).max(self.bus_free);
        self.ends.push(Reverse(end));
        end
    }
}
