//! The fixed-size end of a table file, which locates its parts.

use tamis_env::memory::PageVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::frame::{Damage, TRAILER_BYTES};
use crate::codec::{Decoder, Encode};

/// Bytes of the footer.
pub(crate) const FOOTER_BYTES: usize = 64;

/// The last eight bytes of every table file.
const MAGIC: [u8; 8] = *b"tamis\0tb";

/// An intact footer of a later version.
pub(crate) const NEWER: Damage = Damage("a table of a newer format than this library reads (2)");

/// The format version of a table without references to blob files.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// The format version of a table with such references, which a reader of version 1 would return as
/// values. The newest version that this library reads.
const FORMAT_WITH_BLOBS: u32 = 2;

/// A part of the file, including its trailer; `span` 0 means that the part is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Offset of its first byte in the file.
    pub(crate) offset: u64,
    /// Bytes in the file, including the trailer.
    pub(crate) span: u64,
}

/// The parts of a table file. They are adjacent and in field order, so their lengths determine
/// everything and account for every byte of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Bytes of all data blocks.
    pub data_span: u64,
    /// The filter, opaque.
    pub(crate) filter: Part,
    /// The range tombstones, opaque.
    pub(crate) tombstones: Part,
    /// The index.
    pub(crate) index: Part,
    /// The properties.
    pub(crate) properties: Part,
    /// Whether entries refer to blob files.
    pub blobs: bool,
}

impl Footer {
    /// Bytes of the footer.
    pub const BYTES: u64 = FOOTER_BYTES as u64;

    /// Reports whether a file's last bytes mark it as a table.
    #[inline]
    pub fn is_marked(end: &[u8]) -> bool {
        end.len() >= FOOTER_BYTES && end.ends_with(&MAGIC)
    }

    /// Appends the footer, which starts at file offset `offset`.
    pub(crate) fn encode(&self, offset: u64, out: &mut PageVec<u8>) {
        let start = out.len();
        for span in
            [self.data_span, self.filter.span, self.tombstones.span, self.index.span, self.properties.span]
        {
            out.put_u64(span);
        }
        out.put_u32(if self.blobs { FORMAT_WITH_BLOBS } else { FORMAT_VERSION });
        out.put_u32(0);
        let sum = xxh3_64_with_seed(&out[start..], offset);
        out.put_u64(sum);
        out.extend_from_slice(&MAGIC);
    }

    /// Decodes the footer of a file of `file_bytes` bytes and checks that the parts fill the file.
    /// [`NEWER`] if nothing is wrong but that this library is too old.
    pub(crate) fn decode(bytes: &[u8; FOOTER_BYTES], file_bytes: u64) -> Result<Footer, Damage> {
        if bytes[56..] != MAGIC {
            return Err(Damage("not a table file, or one whose end is missing"));
        }
        let offset = file_bytes - FOOTER_BYTES as u64;
        let mut input = Decoder::new(bytes);
        const CUT: Damage = Damage("a footer that is too short");
        let mut spans = [0u64; 5];
        for span in &mut spans {
            *span = input.u64().ok_or(CUT)?;
        }
        let version = input.u32().ok_or(CUT)?;
        let reserved = input.u32().ok_or(CUT)?;
        let sum = input.u64().ok_or(CUT)?;
        if xxh3_64_with_seed(&bytes[..48], offset) != sum {
            return Err(Damage("the checksum of the footer does not match its bytes"));
        }
        if !(FORMAT_VERSION..=FORMAT_WITH_BLOBS).contains(&version) || reserved != 0 {
            return Err(NEWER);
        }
        let mut next = spans[0];
        let mut part = |span: u64, required: bool| {
            let offset = next;
            next = next.checked_add(span).ok_or(Damage("a footer with impossible lengths"))?;
            if (required || span > 0) && span < TRAILER_BYTES as u64 {
                return Err(Damage("a footer with a part shorter than its trailer"));
            }
            Ok(Part { offset, span })
        };
        let footer = Footer {
            data_span: spans[0],
            filter: part(spans[1], false)?,
            tombstones: part(spans[2], false)?,
            index: part(spans[3], true)?,
            properties: part(spans[4], true)?,
            blobs: version == FORMAT_WITH_BLOBS,
        };
        if next != offset {
            return Err(Damage("a footer whose parts do not fill the file"));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Footer, [u8; FOOTER_BYTES]) {
        let footer = Footer {
            data_span: 100,
            filter: Part { offset: 100, span: 0 },
            tombstones: Part { offset: 100, span: 20 },
            index: Part { offset: 120, span: 30 },
            properties: Part { offset: 150, span: 50 },
            blobs: false,
        };
        let mut bytes = PageVec::new();
        footer.encode(200, &mut bytes);
        (footer, bytes[..].try_into().unwrap())
    }

    #[test]
    fn footers_round_trip() {
        let (mut footer, bytes) = sample();
        assert_eq!(Footer::decode(&bytes, 264), Ok(footer));
        footer.blobs = true;
        let mut bytes = PageVec::new();
        footer.encode(200, &mut bytes);
        assert_eq!(Footer::decode(bytes[..].try_into().unwrap(), 264), Ok(footer));
    }

    #[test]
    fn any_changed_byte_or_other_file_length_is_rejected() {
        let (_, bytes) = sample();
        assert!(Footer::decode(&bytes, 265).is_err());
        for i in 0..FOOTER_BYTES {
            let mut bad = bytes;
            bad[i] ^= 1;
            assert!(Footer::decode(&bad, 264).is_err(), "byte {i}");
        }
    }
}
