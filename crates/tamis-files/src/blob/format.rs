//! The fixed-size end of a blob file.

use tamis_base::ids::BlobFileId;
use tamis_env::memory::PageVec;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::codec::{Decoder, Encode};
use crate::table::Damage;

/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = 48;

/// Bytes of the footer that its checksum covers.
const COVERED_BYTES: usize = 32;

/// The last eight bytes of every blob file.
const MAGIC: [u8; 8] = *b"tamis\0bl";

/// An intact footer of a later version.
pub(super) const NEWER: Damage = Damage("a blob file of a newer format than this library reads (1)");

/// The format version that this library writes, and the only one it reads.
const FORMAT_VERSION: u32 = 1;

/// Reports whether a file's last bytes mark it as a blob file.
pub fn is_marked(end: &[u8]) -> bool {
    end.len() >= FOOTER_BYTES && end.ends_with(&MAGIC)
}

/// What a blob file records about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Its number, which is also in its name.
    pub id: BlobFileId,
    /// The number of records.
    pub records: u64,
    /// Bytes of all values, before compression.
    pub value_bytes: u64,
}

impl Footer {
    /// Appends the footer, which starts at file offset `offset`.
    pub(super) fn encode(&self, offset: u64, out: &mut PageVec<u8>) {
        let start = out.len();
        out.put_u64(self.id);
        out.put_u64(self.records);
        out.put_u64(self.value_bytes);
        out.put_u32(FORMAT_VERSION);
        out.put_u32(0);
        let sum = xxh3_64_with_seed(&out[start..], offset);
        out.put_u64(sum);
        out.extend_from_slice(&MAGIC);
    }

    /// Decodes the footer that starts at file offset `offset`.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], offset: u64) -> Result<Footer, Damage> {
        if bytes[FOOTER_BYTES - MAGIC.len()..] != MAGIC {
            return Err(Damage("not a blob file, or one whose end is missing"));
        }
        const CUT: Damage = Damage("a footer that is too short");
        let mut input = Decoder::new(bytes);
        let mut number = || input.u64().ok_or(CUT);
        let footer = Footer { id: number()?, records: number()?, value_bytes: number()? };
        let version = input.u32().ok_or(CUT)?;
        let reserved = input.u32().ok_or(CUT)?;
        let sum = input.u64().ok_or(CUT)?;
        if xxh3_64_with_seed(&bytes[..COVERED_BYTES], offset) != sum {
            return Err(Damage("the checksum of the footer does not match its bytes"));
        }
        if version != FORMAT_VERSION || reserved != 0 {
            return Err(NEWER);
        }
        Ok(footer)
    }
}
