//! How a block is stored: its bytes, possibly compressed, and a trailer with the compression method
//! and a checksum.
//!
//! ```text
//! payload | compression: u8 | checksum: u64
//! checksum: XXH3-64 of (payload, compression), seeded with the block's file offset
//! ```
//!
//! Because of the seed, a misplaced block fails its checksum just as one with a flipped bit does. A
//! compressed payload starts with the uncompressed length (u32). This is at most
//! [`MAX_DECODED_BYTES`] and at most [`MAX_RATIO`] times the payload, which bounds the memory that
//! a stored number can request.

use std::sync::Arc;

use tamis_env::memory::PageVec;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::settings::Compression;

/// Bytes of the trailer after every block's payload.
pub(crate) const TRAILER_BYTES: usize = 9;

/// Larger blocks are stored uncompressed, since compression needs the block in contiguous memory
/// twice.
pub(crate) const MAX_DECODED_BYTES: usize = 256 << 20;

/// The largest accepted ratio of uncompressed to stored length. LZ4 cannot exceed it by
/// construction.
const MAX_RATIO: usize = 255;

/// After this many consecutive blocks that compression did not shrink, it is tried less and less
/// often, …
const VAIN_ATTEMPTS: u32 = 4;

/// … skipping up to this many blocks between attempts.
const MOST_SKIPPED: u32 = 16;

/// What is wrong with bytes that no builder writes; the reader adds the file and the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub &'static str);

impl Compression {
    fn from_byte(byte: u8) -> Option<Compression> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// Seals blocks into their stored form. With random or already compressed values, trying to
/// compress every block would cost a merge half of its time. So where compression does not help,
/// most blocks are stored without an attempt until one shrinks again.
#[derive(Debug, Default)]
pub(crate) struct Sealer {
    /// Compressed bytes. Keeps its length between calls, so that it is not zeroed each time.
    scratch: Vec<u8>,
    /// Consecutive attempts in vain.
    vain: u32,
    /// Further blocks to store without an attempt.
    skipped: u32,
}

impl Sealer {
    /// Turns the uncompressed block `out[start..]` into its stored form for file offset `offset`.
    pub(crate) fn seal_next(
        &mut self,
        out: &mut PageVec<u8>,
        start: usize,
        offset: u64,
        wanted: Compression,
    ) {
        let method = self.pack_next(out, start, wanted);
        close(out, start, offset, method);
    }

    /// Compresses the block `out[start..]` if that is tried and saves at least an eighth. Returns
    /// how it is to be [closed](close).
    pub(crate) fn pack_next(
        &mut self,
        out: &mut PageVec<u8>,
        start: usize,
        wanted: Compression,
    ) -> Compression {
        if wanted == Compression::None || self.skipped > 0 {
            self.skipped = self.skipped.saturating_sub(1);
            return Compression::None;
        }
        let method = self.pack(out, start, wanted);
        if method != Compression::None {
            self.vain = 0;
        } else {
            self.vain += 1;
            let beyond = self.vain.saturating_sub(VAIN_ATTEMPTS);
            self.skipped = if beyond == 0 { 0 } else { MOST_SKIPPED.min(1 << beyond.min(31)) };
        }
        method
    }

    /// Like [`pack_next`](Self::pack_next), but always tries.
    fn pack(&mut self, out: &mut PageVec<u8>, start: usize, wanted: Compression) -> Compression {
        let compressed = compress(&out[start..], wanted, &mut self.scratch);
        compressed.map_or(Compression::None, |(method, len)| {
            out.truncate(start);
            out.extend_from_slice(&self.scratch[..len]);
            method
        })
    }

    /// Like [`seal_next`](Self::seal_next), but always tries to compress.
    pub(crate) fn seal(&mut self, out: &mut PageVec<u8>, start: usize, offset: u64, wanted: Compression) {
        let method = self.pack(out, start, wanted);
        close(out, start, offset, method);
    }
}

/// Appends the trailer to the block `out[start..]`, which was compressed by `method`.
pub(crate) fn close(out: &mut PageVec<u8>, start: usize, offset: u64, method: Compression) {
    out.push(method as u8);
    let sum = xxh3_64_with_seed(&out[start..], offset);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// Returns the trailer of an uncompressed block given in two pieces.
pub(crate) fn trailer_of_pieces(head: &[u8], tail: &[u8], offset: u64) -> [u8; TRAILER_BYTES] {
    let mut hasher = Xxh3::with_seed(offset);
    hasher.update(head);
    hasher.update(tail);
    hasher.update(&[Compression::None as u8]);
    let mut trailer = [Compression::None as u8; TRAILER_BYTES];
    trailer[1..].copy_from_slice(&hasher.digest().to_le_bytes());
    trailer
}

/// Puts the compressed payload of `raw` at the start of `out`, and returns the method and the
/// payload's length. `None` means that `raw` should be stored uncompressed.
fn compress(raw: &[u8], wanted: Compression, out: &mut Vec<u8>) -> Option<(Compression, usize)> {
    if wanted == Compression::None || raw.len() > MAX_DECODED_BYTES {
        return None;
    }
    let worth = |len: usize| len <= raw.len() - raw.len() / 8;
    let head = (raw.len() as u32).to_le_bytes();
    #[cfg(feature = "zstd")]
    if wanted == Compression::Zstd
        && let Ok(packed) = zstd::bulk::compress(raw, 3)
    {
        out.clear();
        out.extend_from_slice(&head);
        out.extend_from_slice(&packed);
        // If it exceeds the ratio that readers accept, LZ4 below does well enough.
        if !worth(out.len()) {
            return None;
        } else if raw.len() <= MAX_RATIO * out.len() {
            return Some((Compression::Zstd, out.len()));
        }
    }
    let most = head.len() + lz4_flex::block::get_maximum_output_size(raw.len());
    if out.len() < most {
        out.resize(most, 0);
    }
    let (len, packed) = out.split_at_mut(head.len());
    len.copy_from_slice(&head);
    match lz4_flex::block::compress_into(raw, packed) {
        Ok(len) if worth(head.len() + len) => Some((Compression::Lz4, head.len() + len)),
        _ => None,
    }
}

/// Splits a stored block into payload and compression method. Reads one byte.
#[inline]
pub(crate) fn open(stored: &[u8]) -> Result<(&[u8], Compression), Damage> {
    let Some((payload, trailer)) = stored.split_last_chunk::<TRAILER_BYTES>() else {
        return Err(Damage("a block shorter than its trailer"));
    };
    match Compression::from_byte(trailer[0]) {
        Some(method) => Ok((payload, method)),
        None => Err(Damage("a block compressed by an unknown method")),
    }
}

/// Verifies the checksum of a stored block at file offset `offset`. Cost: about 25 ns per KiB.
pub(crate) fn verify(stored: &[u8], offset: u64) -> Result<(), Damage> {
    match stored.split_last_chunk::<8>() {
        Some((protected, sum)) if xxh3_64_with_seed(protected, offset) == u64::from_le_bytes(*sum) => Ok(()),
        _ => Err(Damage("the checksum of a block does not match its bytes")),
    }
}

/// Decompresses a payload compressed by `method` (not `None`).
pub(crate) fn decompress(payload: &[u8], method: Compression) -> Result<Arc<[u8]>, Damage> {
    let Some((len, packed)) = payload.split_first_chunk::<4>() else {
        return Err(Damage("a compressed block without its length"));
    };
    let len = u32::from_le_bytes(*len) as usize;
    if len > MAX_DECODED_BYTES || len > payload.len().saturating_mul(MAX_RATIO) {
        return Err(Damage("a compressed block with an impossible length"));
    }
    let mut block = zeroed(len);
    let out = Arc::get_mut(&mut block).expect("a new block has one owner");
    let written = match method {
        Compression::None => return Err(Damage("a block that is not compressed")),
        Compression::Lz4 => lz4_flex::block::decompress_into(packed, out).ok(),
        #[cfg(feature = "zstd")]
        Compression::Zstd => zstd::bulk::decompress_to_buffer(packed, out).ok(),
        #[cfg(not(feature = "zstd"))]
        Compression::Zstd => {
            return Err(Damage(
                "a block compressed with Zstandard, which this build cannot read \
                 (crate feature `zstd`)",
            ));
        }
    };
    if written != Some(len) {
        return Err(Damage("a compressed block that does not decompress to its length"));
    }
    Ok(block)
}

/// Returns shared, zeroed memory in one allocation, to be filled through `Arc::get_mut`.
pub(crate) fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0u8, len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(raw: &[u8], offset: u64, wanted: Compression) -> Vec<u8> {
        let mut out = PageVec::new();
        out.extend_from_slice(b"before");
        out.extend_from_slice(raw);
        Sealer::default().seal(&mut out, 6, offset, wanted);
        out[6..].to_vec()
    }

    #[test]
    fn compressible_blocks_shrink_and_round_trip() {
        let raw = b"the same words, ".repeat(100);
        let stored = sealed(&raw, 77, Compression::Lz4);
        assert!(stored.len() < raw.len() / 4);
        verify(&stored, 77).unwrap();
        let (payload, method) = open(&stored).unwrap();
        assert_eq!(method, Compression::Lz4);
        assert_eq!(&decompress(payload, method).unwrap()[..], &raw[..]);
    }

    #[test]
    fn blocks_that_hardly_shrink_are_stored_raw() {
        let raw: Vec<u8> = (0..1000u64).flat_map(|i| xxh3_64_with_seed(b"x", i).to_le_bytes()).collect();
        let stored = sealed(&raw, 0, Compression::Lz4);
        assert_eq!(open(&stored).unwrap(), (&raw[..], Compression::None));
        assert_eq!(trailer_of_pieces(&raw[..9], &raw[9..], 0)[..], stored[raw.len()..]);
    }

    #[test]
    fn compression_is_tried_less_often_where_it_is_of_no_use_and_again_after_a_success() {
        let random: Vec<u8> = (0..500u64).flat_map(|i| xxh3_64_with_seed(b"x", i).to_le_bytes()).collect();
        let words = b"the same words, ".repeat(250);
        let mut sealer = Sealer::default();
        let mut packs = |raw: &[u8]| {
            let mut out = PageVec::new();
            out.extend_from_slice(raw);
            sealer.seal_next(&mut out, 0, 9, Compression::Lz4);
            verify(&out, 9).unwrap();
            open(&out).unwrap().1 != Compression::None
        };
        assert!((0..1000).all(|_| !packs(&random)));
        let missed = (0..100).take_while(|_| !packs(&words)).count();
        assert!(missed <= MOST_SKIPPED as usize, "{missed}");
        assert!((0..100).all(|_| packs(&words)), "all attempts succeed");
        // Data that shrinks now and then is tried every time.
        assert!((0..100).all(|i| packs(if i % 4 == 0 { &words } else { &random }) == (i % 4 == 0)));
    }

    #[test]
    fn a_block_at_another_offset_is_rejected() {
        let stored = sealed(b"block", 4096, Compression::None);
        verify(&stored, 4096).unwrap();
        assert!(verify(&stored, 0).is_err());
    }

    #[test]
    fn impossible_uncompressed_lengths_are_rejected_without_allocating() {
        let mut payload = u32::MAX.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0; 64]);
        assert!(decompress(&payload, Compression::Lz4).is_err());
        payload[..4].copy_from_slice(&100_000u32.to_le_bytes());
        assert!(decompress(&payload, Compression::Lz4).is_err());
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn without_the_feature_zstd_blocks_are_rejected_by_name() {
        let damage = decompress(&[8, 0, 0, 0, 1, 2, 3], Compression::Zstd).unwrap_err();
        assert!(damage.0.contains("feature `zstd`"));
    }

    #[cfg(feature = "zstd")]
    #[test]
    fn zstd_blocks_round_trip_even_beyond_the_accepted_ratio() {
        for raw in [b"the same words, ".repeat(100), vec![0; 1 << 20]] {
            let stored = sealed(&raw, 1, Compression::Zstd);
            let (payload, method) = open(&stored).unwrap();
            assert!(stored.len() < raw.len() / 4);
            assert_eq!(&decompress(payload, method).unwrap()[..], &raw[..]);
        }
    }
}
