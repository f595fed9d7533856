//! Mapped files, and how their pages come from the device.
//!
//! While all mapped files fit in half of the memory, more is read than what is touched, so that
//! files are soon in memory: a [piece](ReadAround) at the first touch, and as much as the kernel
//! likes for faults after that, when it has reclaimed pages.
//!
//! Beyond that memory is *scarce*: pages are reclaimed and read again all the time, and a fault
//! that reads megabytes around its page takes the time of many reads and evicts what others need.
//! Then all mappings have the advice that nothing is read but what is touched, also those from
//! before. A block that lies in two pages would cost two faults, so each touch of a block is
//! announced, not the first alone, and what is read in order is announced further and further
//! [ahead](InOrder).
//!
//! # Threads
//!
//! Any thread may map, announce and drop at any time. Counts and flags only inform hints
//! (`Relaxed`). The list of mappings has a lock, which is held while all of them are advised:
//! dropping one takes no lock, as it may happen there.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::Mmap;

use super::read_around::{MOST_PIECES, PIECE, ReadAround};
use super::{Access, MappedPages, Touch};

/// The kernel cuts longer requests to what it reads ahead, or to the longest request of the device.
#[cfg(unix)]
const ONE_REQUEST: usize = 256 << 10;

/// The smallest page of any system; where pages are larger, the advice covers them all the same.
const PAGE: usize = 4096;

/// All files that a file system has mapped, and the memory that is there to cache them.
#[derive(Debug)]
pub(super) struct MappedBytes {
    now: AtomicU64,
    memory: u64,
    scarce: AtomicBool,
    maps: Mutex<Maps>,
}

/// The mappings that are read at random; some of them may be gone.
#[derive(Debug, Default)]
struct Maps {
    all: Vec<Weak<Pages>>,
    /// The length at which those that are gone are removed.
    sweep_at: usize,
}

impl MappedBytes {
    pub(super) fn new(memory: u64) -> MappedBytes {
        let maps = Mutex::default();
        MappedBytes { now: AtomicU64::new(0), memory, scarce: AtomicBool::new(false), maps }
    }

    /// Counts a mapping while it lives, and gives advice to the kernel: to this mapping, or if
    /// memory is scarce from now on, or no longer, to all.
    pub(super) fn keep(self: &Arc<Self>, map: Mmap, access: Access) -> Arc<Pages> {
        let len = map.len();
        self.now.fetch_add(len as u64, Relaxed);
        let is_random = access == Access::Random;
        let (around, in_order) = (ReadAround::new(len), InOrder::default());
        let pages = Arc::new(Pages { map, mapped: self.clone(), is_random, around, in_order });
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if is_random {
            if maps.all.len() >= maps.sweep_at {
                maps.all.retain(|map| map.strong_count() > 0);
                maps.sweep_at = 2 * maps.all.len() + 16;
            }
            maps.all.push(Arc::downgrade(&pages));
        }
        if self.changes() {
            maps.all.iter().filter_map(Weak::upgrade).for_each(|map| map.advise());
        }
        // With the lock held: advice that another thread gives to all comes before or after.
        pages.advise();
        drop(maps);
        pages
    }

    /// Decides anew whether memory is scarce, and returns whether that has changed. Memory must be
    /// plainly enough again: files come and go with every compaction.
    fn changes(&self) -> bool {
        let (was, half) = (self.is_scarce(), self.memory / 2);
        let most = if was { half - half / 8 } else { half };
        let is = self.now.load(Relaxed) > most;
        self.scarce.store(is, Relaxed);
        was != is
    }

    fn is_scarce(&self) -> bool {
        self.scarce.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }
}

/// A counted mapping.
#[derive(Debug)]
pub(super) struct Pages {
    map: Mmap,
    mapped: Arc<MappedBytes>,
    is_random: bool,
    around: ReadAround,
    in_order: InOrder,
}

impl Pages {
    /// Tells the kernel how the mapping is read. Only a hint: errors are ignored.
    fn advise(&self) {
        #[cfg(unix)]
        {
            let advice = match self.is_random {
                true if !self.mapped.is_scarce() => memmap2::Advice::Normal,
                true => memmap2::Advice::Random,
                false => memmap2::Advice::Sequential,
            };
            let _ = self.map.advise(advice);
        }
    }
}

impl Pages {
    /// Returns what to ask the system for before `part` is touched, if anything.
    fn ask(&self, part: Range<usize>, touch: Touch) -> Option<Range<usize>> {
        match (self.is_random, touch) {
            (true, _) if !self.mapped.is_scarce() => self.around.ask(part),
            (true, Touch::Next) => self.in_order.ask(part),
            (true, Touch::Later) => Some(part),
            (true, Touch::Alone) | (false, _) => Some(part).filter(spans_pages),
        }
    }
}

impl MappedPages for Pages {
    fn will_need(&self, part: Range<usize>, touch: Touch) {
        let Some(part) = self.ask(part, touch) else { return };
        #[cfg(unix)]
        {
            let (mut at, end) = (part.start / PAGE * PAGE, part.end.min(self.map.len()));
            while at < end {
                let len = (end - at).min(ONE_REQUEST);
                // Only a hint: errors are ignored.
                let _ = self.map.advise_range(memmap2::Advice::WillNeed, at, len);
                at += len;
            }
        }
        #[cfg(not(unix))]
        let _ = part;
    }

    fn are_scarce(&self) -> bool {
        self.is_random && self.mapped.is_scarce()
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.mapped.now.fetch_sub(self.map.len() as u64, Relaxed);
    }
}

/// Reports whether a part lies in more than one page. A single one is read by the fault as well.
fn spans_pages(part: &Range<usize>) -> bool {
    part.start / PAGE != part.end.saturating_sub(1) / PAGE
}

/// Whether the parts of a mapping are read in order, by their last one. Threads that read one
/// mapping in order at the same time hide that from each other, which costs them the reading ahead.
#[derive(Debug, Default)]
struct InOrder {
    /// The end of the last part.
    next: AtomicUsize,
    /// The end of what was announced.
    ahead: AtomicUsize,
    /// How far beyond the part that was.
    window: AtomicUsize,
}

impl InOrder {
    /// Returns what to announce before `part` is touched, if anything.
    fn ask(&self, part: Range<usize>) -> Option<Range<usize>> {
        if self.next.swap(part.end, Relaxed) != part.start {
            self.window.store(0, Relaxed);
            self.ahead.store(part.end, Relaxed);
            return Some(part).filter(spans_pages);
        }
        let announced = self.ahead.load(Relaxed);
        if part.end <= announced {
            return None;
        }
        let window = (self.window.load(Relaxed) * 2).clamp(PIECE, MOST_PIECES * PIECE);
        self.window.store(window, Relaxed);
        let end = part.end.saturating_add(window);
        self.ahead.store(end, Relaxed);
        Some(part.start.max(announced.min(part.end))..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(bytes: usize) -> (tempfile::TempDir, Mmap) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; bytes]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: nobody else knows the file.
        (dir, unsafe { Mmap::map(&file) }.unwrap())
    }

    /// Mappings from before kept the advice that there is room: of a database of two thirds of the
    /// memory three quarters were read 8 MiB a fault, and a seek took 325 µs where RocksDB's took
    /// 37.
    #[test]
    fn all_mappings_learn_that_memory_is_scarce_and_that_it_is_not() {
        let mapped = Arc::new(MappedBytes::new(20 * PAGE as u64));
        let files: Vec<_> = (0..4).map(|_| map(4 * PAGE)).collect();
        let mut files = files.into_iter().map(|(dir, map)| (dir, mapped.clone().keep(map, Access::Random)));
        let (a, b) = (files.next().unwrap(), files.next().unwrap());
        assert!(!a.1.are_scarce() && !b.1.are_scarce(), "8 of 10 pages");
        let c = files.next().unwrap();
        assert!(a.1.are_scarce() && b.1.are_scarce() && c.1.are_scarce(), "12 of 10");
        #[cfg(target_os = "linux")]
        if takes_advice() {
            assert_eq!([&a.1, &b.1, &c.1].map(|pages| is_random_to_the_kernel(&pages.map)), [true; 3]);
        }
        drop(c);
        drop(b);
        let d = files.next().unwrap();
        assert!(!a.1.are_scarce() && !d.1.are_scarce(), "8 of 10 again");
        #[cfg(target_os = "linux")]
        assert_eq!([&a.1, &d.1].map(|pages| is_random_to_the_kernel(&pages.map)), [false; 2]);
        assert_eq!(mapped.now(), 8 * PAGE as u64);
    }

    /// Emulators of other processors may ignore it.
    #[cfg(target_os = "linux")]
    fn takes_advice() -> bool {
        let (_dir, map) = map(PAGE);
        map.advise(memmap2::Advice::Random).unwrap();
        is_random_to_the_kernel(&map)
    }

    /// Returns whether the mapping has the flag `rr` in `/proc/self/smaps`: "random read".
    #[cfg(target_os = "linux")]
    fn is_random_to_the_kernel(map: &Mmap) -> bool {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", map.as_ptr() as usize);
        let of_map = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let flags = of_map.into_iter().find_map(|line| line.strip_prefix("VmFlags:")).unwrap();
        flags.split_whitespace().any(|flag| flag == "rr")
    }

    #[test]
    fn memory_must_be_plainly_enough_again() {
        let mapped = Arc::new(MappedBytes::new(40 * PAGE as u64));
        let keep = |pages: usize| {
            let (dir, map) = map(pages * PAGE);
            (dir, mapped.keep(map, Access::Random))
        };
        assert!(!keep(20).1.are_scarce(), "20 of 20");
        let (a, b) = (keep(18), keep(3));
        assert!(a.1.are_scarce(), "21 of 20 pages");
        drop(b);
        let c = keep(1);
        assert!(a.1.are_scarce(), "19 of 20: above seven eighths");
        drop(a);
        drop(c);
        assert!(!keep(4).1.are_scarce());
        assert!(Arc::new(MappedBytes::new(0)).keep(map(1).1, Access::Random).are_scarce(), "unknown memory");
        assert!(!Arc::new(MappedBytes::new(0)).keep(map(1).1, Access::Sequential).are_scarce());
    }

    #[test]
    fn what_is_touched_later_is_asked_for_at_once_and_what_is_touched_alone_if_it_spans_pages() {
        let scarce = Arc::new(MappedBytes::new(0)).keep(map(9 * PAGE).1, Access::Random);
        let (one, two) = (PAGE..2 * PAGE, PAGE + 5..2 * PAGE + 5);
        for _ in 0..2 {
            assert_eq!(scarce.ask(one.clone(), Touch::Later), Some(one.clone()));
            assert_eq!(scarce.ask(one.clone(), Touch::Alone), None);
            assert_eq!(scarce.ask(two.clone(), Touch::Alone), Some(two.clone()));
        }
        // In order, but nothing is read ahead.
        assert_eq!(scarce.ask(two.end..3 * PAGE, Touch::Alone), None);
        let room = Arc::new(MappedBytes::new(1 << 30)).keep(map(9 * PAGE).1, Access::Random);
        assert_eq!(room.ask(one.clone(), Touch::Later), Some(0..PIECE), "as at any first touch");
        assert_eq!(room.ask(one, Touch::Later), None);
    }

    #[test]
    fn parts_in_order_are_announced_further_and_further_ahead() {
        let order = InOrder::default();
        assert_eq!(order.ask(9 * PAGE + 1..9 * PAGE + 5), None, "one page");
        assert_eq!(order.ask(50 * PAGE - 100..51 * PAGE - 100), Some(50 * PAGE - 100..51 * PAGE - 100));
        assert_eq!(
            order.ask(50 * PAGE - 100..51 * PAGE - 100),
            Some(50 * PAGE - 100..51 * PAGE - 100),
            "again"
        );
        let (mut lengths, mut announced) = (Vec::new(), 51 * PAGE - 100);
        for at in (51..2000).map(|page| page * PAGE - 100) {
            if let Some(asked) = order.ask(at..at + PAGE) {
                assert_eq!(asked.start, announced.max(at));
                announced = asked.end;
                lengths.push((asked.end - at - PAGE) / PIECE);
            }
            assert!(announced >= at + PAGE);
        }
        assert_eq!(lengths[..7], [1, 2, 4, 8, 16, 32, 64]);
        assert!(lengths[7..].iter().all(|&length| length == MOST_PIECES));
        assert_eq!(order.ask(0..2 * PAGE), Some(0..2 * PAGE), "elsewhere it begins anew");
    }
}
