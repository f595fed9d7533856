//! The bytes of a filter file's index and footer.

use tamis_base::ids::{FilterFileId, KeyspaceId};
use tamis_base::key::{KeyBytes, MAX_KEY_BYTES};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::codec::{Decoder, Encode};

/// Bytes of the footer.
pub(super) const FOOTER_BYTES: usize = 56;

/// The last eight bytes of every filter file.
const MAGIC: [u8; 8] = *b"tamis\0fi";

/// The format version that this library writes, and the only one it reads.
const FORMAT_VERSION: u32 = 1;

/// What is wrong with bytes that no writer produces; the reader adds the file's path.
pub(super) type Damage = &'static str;

const BAD_INDEX: Damage = "an index that does not decode";

/// What a partition's filter holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ImageKind {
    /// The keys of the range.
    Keys = 0,
    /// The known prefixes of the range's keys.
    Prefixes = 1,
}

impl ImageKind {
    /// Every kind, once.
    pub const ALL: [ImageKind; 2] = [ImageKind::Keys, ImageKind::Prefixes];

    fn from_byte(byte: u8) -> Option<ImageKind> {
        match byte {
            0 => Some(ImageKind::Keys),
            1 => Some(ImageKind::Prefixes),
            _ => None,
        }
    }

    /// Returns the kind in one word.
    pub fn name(self) -> &'static str {
        match self {
            ImageKind::Keys => "keys",
            ImageKind::Prefixes => "prefixes",
        }
    }
}

/// An image, as described by its file's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What the image holds.
    pub kind: ImageKind,
    /// The first key of its range.
    pub start: KeyBytes,
    /// The exclusive end of its range; `None` if unbounded.
    pub end: Option<KeyBytes>,
    /// The image has every key of its range that is in a table whose epochs are all below this.
    pub until: u64,
    /// The file it was first written to. Copies keep this.
    pub made: FilterFileId,
    /// Its index among the images first written to that file.
    pub(crate) place: u32,
    /// Bytes of the image.
    pub bytes: u64,
    /// Offset of its first byte in the file.
    pub(super) offset: u64,
    /// XXH3-64 of its bytes, seeded with the offset.
    pub(super) sum: u64,
}

impl Image {
    /// Describes an image that is in no file yet.
    pub fn new(
        kind: ImageKind,
        (start, end): (KeyBytes, Option<KeyBytes>),
        until: u64,
        (made, place): (FilterFileId, u32),
        bytes: u64,
    ) -> Image {
        debug_assert!(end.as_ref().is_none_or(|end| start < *end), "an empty key range");
        Image { kind, start, end, until, made, place, bytes, offset: 0, sum: 0 }
    }

    /// Orders images by when they were made, oldest first.
    pub fn age(&self) -> (FilterFileId, u32) {
        (self.made, self.place)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.kind as u8);
        out.put_bytes(&self.start);
        out.put_u8(self.end.is_some().into());
        if let Some(end) = &self.end {
            out.put_bytes(end);
        }
        out.put_varint(self.until);
        out.put_varint(self.made);
        out.put_varint(self.place.into());
        out.put_varint(self.bytes);
        out.put_u64(self.sum);
    }

    fn decode(input: &mut Decoder<'_>, offset: u64) -> Option<Image> {
        let kind = ImageKind::from_byte(input.u8()?)?;
        let start = key(input)?;
        let end = match input.u8()? {
            0 => None,
            1 => Some(key(input)?),
            _ => return None,
        };
        let (until, made) = (input.varint()?, input.varint()?);
        let place = u32::try_from(input.varint()?).ok()?;
        let (bytes, sum) = (input.varint()?, input.u64()?);
        Some(Image { kind, start, end, until, made, place, bytes, offset, sum })
    }
}

/// Decodes a border of a key range. It may be the successor of the longest key, which is one byte
/// longer.
fn key(input: &mut Decoder<'_>) -> Option<KeyBytes> {
    input.bytes().filter(|key| key.len() <= MAX_KEY_BYTES + 1).map(KeyBytes::from)
}

/// Decodes an index. The images lie back to back from the start of the file and take `payload`
/// bytes.
///
/// Cost: linear in the index. Memory: at most a few tens of times the index's bytes, as an entry
/// takes at least 15.
pub(super) fn decode_index(bytes: &[u8], payload: u64, file: FilterFileId) -> Result<Vec<Image>, Damage> {
    let mut input = Decoder::new(bytes);
    let (mut images, mut offset) = (Vec::new(), 0u64);
    while !input.is_empty() {
        let image = Image::decode(&mut input, offset).ok_or(BAD_INDEX)?;
        offset = offset.checked_add(image.bytes).filter(|end| *end <= payload).ok_or(BAD_INDEX)?;
        if image.end.as_ref().is_some_and(|end| *end <= image.start) {
            return Err("an index with an empty key range");
        }
        if image.made > file {
            return Err("an index with an image of a later file");
        }
        images.push(image);
    }
    if offset != payload {
        return Err("an index whose images do not fill the file");
    }
    Ok(images)
}

/// The fixed-size end of a filter file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// The number of the file.
    pub(super) file: FilterFileId,
    /// The keyspace whose tables the images cover.
    pub(super) keyspace: KeyspaceId,
    /// Bytes of the index.
    pub(super) index_bytes: u64,
    /// XXH3-64 of the index, seeded with its offset.
    pub(super) index_sum: u64,
}

impl Footer {
    /// Appends the footer, which starts at file offset `offset`.
    pub(super) fn encode(&self, offset: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u64(self.file);
        out.put_u64(self.index_bytes);
        out.put_u64(self.index_sum);
        out.put_u32(self.keyspace);
        out.put_u32(FORMAT_VERSION);
        out.put_u64(0);
        let sum = xxh3_64_with_seed(&out[start..], offset);
        out.put_u64(sum);
        out.extend_from_slice(&MAGIC);
    }

    /// Decodes the footer of a file of `file_bytes` bytes. Checks that the index fits before it.
    pub(super) fn decode(bytes: &[u8; FOOTER_BYTES], file_bytes: u64) -> Result<Footer, Damage> {
        if bytes[48..] != MAGIC {
            return Err("not a filter file, or one whose end is missing");
        }
        let offset = file_bytes.checked_sub(FOOTER_BYTES as u64).ok_or("a file shorter than its footer")?;
        let mut input = Decoder::new(bytes);
        let mut fields = || {
            let (file, index_bytes, index_sum) = (input.u64()?, input.u64()?, input.u64()?);
            let (keyspace, version, zero) = (input.u32()?, input.u32()?, input.u64()?);
            Some((Footer { file, keyspace, index_bytes, index_sum }, version, zero, input.u64()?))
        };
        let (footer, version, zero, sum) = fields().ok_or("a footer that is too short")?;
        if xxh3_64_with_seed(&bytes[..40], offset) != sum {
            return Err("the checksum of the footer does not match its bytes");
        }
        if version != FORMAT_VERSION || zero != 0 {
            return Err("a filter file of a format that this library does not read (it reads 1)");
        }
        if footer.index_bytes > offset {
            return Err("a footer with an index longer than the file");
        }
        Ok(footer)
    }
}

/// Reports whether a file's last bytes mark it as a filter file.
pub fn is_marked(end: &[u8]) -> bool {
    end.len() >= FOOTER_BYTES && end.ends_with(&MAGIC)
}
