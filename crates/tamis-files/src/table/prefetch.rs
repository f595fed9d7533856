//! The processor's prefetch instruction, where available.

/// Prefetches the cache line of the first byte of `bytes`. This is a hint that affects timing only.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    prefetch_line(bytes.as_ptr());
}

/// Prefetches the cache line of the first byte of `place`.
#[inline]
pub(crate) fn prefetch_place<T>(place: &T) {
    prefetch_line(std::ptr::from_ref(place).cast());
}

#[inline]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no architectural effect and never faults, whatever the address. Every
    // x86-64 processor has SSE.
    #[allow(unused_unsafe)]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
