//! Large memory that goes back to the system as soon as it is dropped.
//!
//! An allocator may keep what was freed, and glibc's keeps the more the larger the blocks are that
//! a program frees: each mapped block that is freed raises the size from which it maps, and with
//! that the memory that each of its arenas keeps at its end. A job of some megabytes per table on
//! several threads thus leaves tens of megabytes behind. What is here comes from an anonymous
//! mapping if it is large, and leaves the allocator as it is, which belongs to the program.
//!
//! # Threads
//! The types own their memory and share nothing: they are as `Send` and `Sync` as their elements.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use memmap2::{MmapMut, MmapRaw};

/// From this size on memory is mapped, as an allocator would by itself: below it a mapping costs
/// more than it returns.
const MAPPED_BYTES: usize = 128 << 10;

/// Memory begins on a cache line.
const ALIGN: usize = 64;

/// A slice of fixed length that begins as zeros, on a cache line. Mapped if it is large; its pages
/// then take memory as they are first touched.
pub struct PageBox<T> {
    start: NonNull<T>,
    len: usize,
    memory: Memory,
}

enum Memory {
    /// No bytes.
    None,
    Allocated(Layout),
    /// Only held: it is unmapped when it is dropped.
    Mapped(#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "it owns the memory"))] MmapRaw),
}

// SAFETY: the pointer leads to memory that this value owns.
unsafe impl<T: Send> Send for PageBox<T> {}
// SAFETY: as above; a shared reference gives shared references to the elements only.
unsafe impl<T: Sync> Sync for PageBox<T> {}

impl<T> PageBox<T> {
    /// Creates a slice of `len` elements, whose bytes are all zero. Aborts the process when the
    /// system is out of memory, as an allocation does.
    ///
    /// # Panics
    /// If the slice does not fit the address space.
    ///
    /// # Safety
    /// Zero bytes must be a valid `T`. The elements are never dropped.
    pub unsafe fn zeroed(len: usize) -> PageBox<T> {
        const { assert!(align_of::<T>() <= ALIGN) };
        let bytes = len.checked_mul(size_of::<T>());
        let layout = bytes.and_then(|bytes| Layout::from_size_align(bytes, ALIGN).ok());
        let layout = layout.expect("a slice fits the address space");
        if layout.size() == 0 {
            return PageBox { start: NonNull::dangling(), len, memory: Memory::None };
        }
        if layout.size() >= MAPPED_BYTES
            && cfg!(not(miri))
            && let Ok(map) = MmapMut::map_anon(layout.size())
        {
            let map = MmapRaw::from(map);
            // Pages are aligned to more than a cache line.
            if let Some(start) = NonNull::new(map.as_mut_ptr().cast()) {
                return PageBox { start, len, memory: Memory::Mapped(map) };
            }
        }
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }.cast());
        let start = start.unwrap_or_else(|| handle_alloc_error(layout));
        PageBox { start, len, memory: Memory::Allocated(layout) }
    }

    /// Reports whether the memory is mapped.
    pub fn is_mapped(&self) -> bool {
        matches!(self.memory, Memory::Mapped(_))
    }
}

impl PageBox<u8> {
    /// Creates a slice of zeros in huge pages, if the system has them and it is large enough: for
    /// random access, which would miss the TLB in small ones.
    ///
    /// # Panics
    /// As [`zeroed`](Self::zeroed).
    pub fn huge(len: usize) -> PageBox<u8> {
        // SAFETY: a byte may be zero.
        let bytes = unsafe { PageBox::zeroed(len) };
        #[cfg(target_os = "linux")]
        if let Memory::Mapped(map) = &bytes.memory {
            let _ = map.advise(memmap2::Advice::HugePage); // only a hint
        }
        bytes
    }
}

impl<T> Deref for PageBox<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `len` valid elements, by the contract of `zeroed`, and lives as
        // long as `self`.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PageBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the memory is reached through `self` only.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for PageBox<T> {
    fn drop(&mut self) {
        if let Memory::Allocated(layout) = self.memory {
            // SAFETY: allocated in `zeroed` with this layout, and freed only here.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}

impl<T> fmt::Debug for PageBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBox").field("len", &self.len).field("mapped", &self.is_mapped()).finish()
    }
}

/// A growing array of plain data, like a [`Vec`], that is mapped while it is large.
pub struct PageVec<T> {
    memory: PageBox<MaybeUninit<T>>,
    /// So many elements are initialised.
    len: usize,
}

impl<T: Copy> PageVec<T> {
    /// Creates an empty array without memory.
    pub fn new() -> PageVec<T> {
        PageVec::with_capacity(0)
    }

    /// Creates an empty array with room for `capacity` elements.
    ///
    /// # Panics
    /// If they do not fit the address space, as for every other growth.
    pub fn with_capacity(capacity: usize) -> PageVec<T> {
        // SAFETY: any bytes are a valid `MaybeUninit`.
        PageVec { memory: unsafe { PageBox::zeroed(capacity) }, len: 0 }
    }

    /// Returns the number of elements there is room for.
    pub fn capacity(&self) -> usize {
        self.memory.len
    }

    /// Makes room for `more` elements, and for as many again as there are, so that many small
    /// growths stay cheap.
    #[inline]
    pub fn reserve(&mut self, more: usize) {
        if self.memory.len - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    fn grow(&mut self, more: usize) {
        let needed = self.len.checked_add(more).expect("an array fits the address space");
        let least = (ALIGN / size_of::<T>().max(1)).max(1);
        let mut grown = PageVec::with_capacity(needed.max(self.memory.len.saturating_mul(2)).max(least));
        grown.extend_from_slice(self);
        *self = grown;
    }

    /// Appends an element.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.reserve(1);
        // SAFETY: there is room for another element.
        unsafe { self.memory.start.add(self.len).write(MaybeUninit::new(value)) };
        self.len += 1;
    }

    /// Appends copies of all of `values`.
    #[inline]
    pub fn extend_from_slice(&mut self, values: &[T]) {
        self.reserve(values.len());
        // SAFETY: there is room for the elements, and memory that `self` alone refers to overlaps
        // no other slice.
        unsafe {
            let to = self.memory.start.add(self.len).cast::<T>();
            to.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len());
        }
        self.len += values.len();
    }

    /// Makes the array `len` elements long: cut, or with copies of `value` at the end.
    pub fn resize(&mut self, len: usize, value: T) {
        if let Some(more) = len.checked_sub(self.len) {
            self.reserve(more);
            self.memory[self.len..len].fill(MaybeUninit::new(value));
        }
        self.len = len;
    }

    /// Shortens the array to `len` elements, if it is longer.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Removes all elements and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Removes the first `count` elements.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn remove_front(&mut self, count: usize) {
        self.copy_within(count.., 0);
        self.len -= count;
    }
}

impl<T: Copy> Default for PageVec<T> {
    fn default() -> PageVec<T> {
        PageVec::new()
    }
}

impl<T: Copy> Deref for PageVec<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the first `len` elements are initialised, and live as long as `self`.
        unsafe { slice::from_raw_parts(self.memory.start.as_ptr().cast(), self.len) }
    }
}

impl<T: Copy> DerefMut for PageVec<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the memory is reached through `self` only.
        unsafe { slice::from_raw_parts_mut(self.memory.start.as_ptr().cast(), self.len) }
    }
}

impl<T: Copy> Extend<T> for PageVec<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        let values = values.into_iter();
        self.reserve(values.size_hint().0);
        values.for_each(|value| self.push(value));
    }
}

impl<T: Copy> Clone for PageVec<T> {
    fn clone(&self) -> PageVec<T> {
        let mut copy = PageVec::with_capacity(self.len);
        copy.extend_from_slice(self);
        copy
    }
}

impl<T> fmt::Debug for PageVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageVec").field("len", &self.len).field("memory", &self.memory).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_box_is_zeroed_aligned_and_mapped_if_large() {
        for len in [0, 1, 100, MAPPED_BYTES / 8 - 1, MAPPED_BYTES / 8, MAPPED_BYTES] {
            // SAFETY: zero bytes are a valid number.
            let mut numbers = unsafe { PageBox::<AtomicU64>::zeroed(len) };
            assert_eq!(numbers.is_mapped(), len * 8 >= MAPPED_BYTES && cfg!(not(miri)), "{len}");
            assert!(numbers.len() == len && (len == 0 || numbers.as_ptr().addr() % ALIGN == 0));
            assert!(numbers.iter().all(|number| number.load(Relaxed) == 0));
            if let Some(last) = numbers.last_mut() {
                *last.get_mut() = 7;
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    numbers.iter().for_each(|number| number.store(number.load(Relaxed) + 1, Relaxed))
                });
            });
            assert_eq!(numbers.last().map(|last| last.load(Relaxed)), (len > 0).then_some(8));
        }
    }

    #[test]
    #[should_panic(expected = "the address space")]
    fn a_box_beyond_the_address_space_is_refused() {
        // SAFETY: zero bytes are a valid number.
        drop(unsafe { PageBox::<u64>::zeroed(usize::MAX / 2) });
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u16),
        Extend(Vec<u16>),
        Iterate(Vec<u16>),
        Resize(usize, u16),
        Truncate(usize),
        RemoveFront(usize),
        Reserve(usize),
        Clear,
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Across the size from which memory is mapped.
        let most = if cfg!(miri) { 300 } else { MAPPED_BYTES };
        let values = proptest::collection::vec(any::<u16>(), 0..40);
        prop_oneof![
            4 => any::<u16>().prop_map(Step::Push),
            4 => values.clone().prop_map(Step::Extend),
            2 => values.prop_map(Step::Iterate),
            2 => (0..most, any::<u16>()).prop_map(|(len, value)| Step::Resize(len, value)),
            1 => (0..most).prop_map(Step::Truncate),
            2 => (0..most).prop_map(Step::RemoveFront),
            1 => (0..most).prop_map(Step::Reserve),
            1 => Just(Step::Clear),
            1 => Just(Step::Copy),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 10 } else { 200 }))]

        #[test]
        fn an_array_is_what_a_vector_is(steps in proptest::collection::vec(step(), 0..40)) {
            let (mut array, mut model) = (PageVec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Push(value) => {
                        array.push(value);
                        model.push(value);
                    }
                    Step::Extend(values) => {
                        array.extend_from_slice(&values);
                        model.extend(values);
                    }
                    Step::Iterate(values) => {
                        array.extend(values.iter().copied());
                        model.extend(values);
                    }
                    Step::Resize(len, value) => {
                        array.resize(len, value);
                        model.resize(len, value);
                    }
                    Step::Truncate(len) => {
                        array.truncate(len);
                        model.truncate(len);
                    }
                    Step::RemoveFront(count) => {
                        let count = count.min(model.len());
                        array.remove_front(count);
                        model.drain(..count);
                    }
                    Step::Reserve(more) => {
                        array.reserve(more);
                        prop_assert!(array.capacity() >= array.len() + more);
                    }
                    Step::Clear => {
                        array.clear();
                        model.clear();
                    }
                    Step::Copy => array = array.clone(),
                }
                prop_assert!(array.capacity() >= array.len());
                prop_assert_eq!(&array[..], &model[..]);
                let large = array.capacity() * size_of::<u16>() >= MAPPED_BYTES;
                prop_assert_eq!(array.memory.is_mapped(), large && cfg!(not(miri)));
            }
        }
    }
}
