//! When a device has done a read: its queue and its bus, as arithmetic on time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Device;

/// What one read fetches without paying for its length.
const PAGE_BYTES: u64 = 4 << 10;

/// The reads that a device is at, and how long its bus is taken. Times are nanoseconds of one clock.
///
/// * At most `queue_depth` reads overlap. One that finds the queue full begins when the first of those before it ends,
///   so reads begin in the order in which they were admitted.
/// * A read of up to 4 KiB takes `read_ns` from its beginning; what is beyond takes its transfer time on top.
/// * All transfers share one bus of `bytes_per_second`: many reads at once end no sooner than it can carry their bytes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// When the reads under way end, the first on top. Some may have ended.
    ends: BinaryHeap<Reverse<u64>>,
    bus_free: u64,
}

impl Queue {
    /// When a read of `len` bytes ends that arrives at `now`. O(log depth).
    pub(super) fn admit(&mut self, device: &Device, now: u64, len: usize) -> u64 {
        while self.ends.peek().is_some_and(|end| end.0 <= now) {
            self.ends.pop();
        }
        let mut begin = now;
        // More than one too many only after the device was exchanged for one with a shorter queue.
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
