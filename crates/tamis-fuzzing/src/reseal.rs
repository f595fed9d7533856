//! Corrects the checksums of mutated files, so that the decoders behind them see the mutation.
//!
//! Written from the documents in `docs/` and not from the writers, and lenient: anything that makes
//! no sense is left as it is. Correct bytes stay the same.

use tamis_files::codec::Decoder;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const LOG_HEADER: usize = 32;
const RECORD_TYPE_AT: usize = 12;
const TABLE_FOOTER: usize = 64;
const BLOCK_TRAILER: usize = 9;
const FILTER_CHECKSUM: usize = 8;
const KEY_LIST_CHECKSUM: usize = 8;
const KEY_LIST_MAGIC: &[u8] = b"tamis\0kl";
const IMAGES_FOOTER: usize = 56;
const BLOB_FOOTER: usize = 48;
const BLOB_MAGIC: &[u8] = b"tamis\0bl";
const LOG_MAGIC: &[u8] = b"TAMISLOG";
const ELASTIC_TRAILER: usize = 56;
const ELASTIC_MAGIC: &[u8] = b"tamis\0el";
/// No index in a corpus is longer.
const MOST_UNPACKED: usize = 1 << 20;

/// Returns the id in the header of a log; 7 without a header.
pub fn log_id(bytes: &[u8]) -> u64 {
    bytes.get(16..24).and_then(|id| id.first_chunk()).map_or(7, |id| u64::from_le_bytes(*id))
}

/// Reseals a log or a manifest: the header, then every record up to the first that does not fit.
pub fn log(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if out.len() < LOG_HEADER {
        return out;
    }
    let sum = xxh3_64(&out[..24]);
    out[24..32].copy_from_slice(&sum.to_le_bytes());
    let id = log_id(&out);
    let mut at = LOG_HEADER;
    while let Some(end) = record(&mut out, id, at) {
        at = end;
    }
    out
}

/// Reseals the record at `at` and returns its end.
fn record(out: &mut [u8], id: u64, at: usize) -> Option<usize> {
    let mut head = Decoder::new(out.get(at + RECORD_TYPE_AT..)?);
    let before = head.remaining();
    if !(1..=2).contains(&head.u8()?) {
        return None;
    }
    let (payload, _distance) = (head.varint_usize()?, head.varint()?);
    let head_end = at + RECORD_TYPE_AT + (before - head.remaining());
    let end = head_end.checked_add(payload).filter(|end| *end <= out.len())?;
    let seed = record_seed(id, at as u64);
    let check = xxh3_64_with_seed(&out[at + RECORD_TYPE_AT..head_end], !seed) as u32;
    out[at + 8..at + 12].copy_from_slice(&check.to_le_bytes());
    let sum = xxh3_64_with_seed(&out[at + 8..end], seed);
    out[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    Some(end)
}

fn record_seed(id: u64, offset: u64) -> u64 {
    let mut x = id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ offset;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns the parts of a table as offset and length, trailers included: data, filter, tombstones,
/// index, properties. `None` if its footer makes no sense.
pub fn table_layout(bytes: &[u8]) -> Option<[(usize, usize); 5]> {
    let footer_at = bytes.len().checked_sub(TABLE_FOOTER)?;
    let mut footer = Decoder::new(&bytes[footer_at..]);
    let mut at = 0usize;
    let mut parts = [(0, 0); 5];
    for part in &mut parts {
        let span = usize::try_from(footer.u64()?).ok()?;
        *part = (at, span);
        at = at.checked_add(span).filter(|end| *end <= footer_at)?;
    }
    Some(parts)
}

/// Returns the spans of a table's data blocks according to its index, as far as they fit.
pub fn table_blocks(bytes: &[u8]) -> Vec<(usize, usize)> {
    let Some([data, _, _, index, _]) = table_layout(bytes) else { return Vec::new() };
    let stored = &bytes[index.0..index.0 + index.1];
    let Some(content) = block_content(stored) else { return Vec::new() };
    let mut blocks = Vec::new();
    let mut entries = Decoder::new(&content);
    let mut at = 0usize;
    let mut next = |entries: &mut Decoder<'_>| {
        let span = entries.varint_usize()?;
        entries.bytes()?;
        let end = at.checked_add(span).filter(|end| *end <= data.1)?;
        let block = (at, span);
        at = end;
        Some(block)
    };
    if entries.varint().is_some() {
        blocks.extend(std::iter::from_fn(|| next(&mut entries)));
    }
    blocks
}

/// Returns the decompressed content of a stored block.
pub fn block_content(stored: &[u8]) -> Option<Vec<u8>> {
    let payload = stored.get(..stored.len().checked_sub(BLOCK_TRAILER)?)?;
    match stored[payload.len()] {
        0 => Some(payload.to_vec()),
        1 => {
            let (len, packed) = payload.split_first_chunk::<4>()?;
            let len = Some(u32::from_le_bytes(*len) as usize).filter(|len| *len <= MOST_UNPACKED)?;
            lz4_flex::block::decompress(packed, len).ok()
        }
        _ => None,
    }
}

/// Reseals a table: the other parts, the footer, and every data block that the index names. If the
/// table has a filter, its data blocks are resealed only with `beside_filter`: the filter may then
/// deny keys that the blocks hold, on which debug builds of the engine rightly panic.
pub fn table(bytes: &[u8], beside_filter: bool) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let Some(footer_at) = out.len().checked_sub(TABLE_FOOTER) else { return out };
    if let Some(parts) = table_layout(&out) {
        let (at, span) = parts[1];
        if beside_filter && span > BLOCK_TRAILER {
            seal_filter(&mut out[at..at + span - BLOCK_TRAILER]);
        }
        let blocks = if beside_filter || span == 0 { table_blocks(&out) } else { Vec::new() };
        for (at, span) in blocks.into_iter().chain(parts[1..].iter().copied()) {
            if span >= BLOCK_TRAILER {
                let sum = xxh3_64_with_seed(&out[at..at + span - 8], at as u64);
                out[at + span - 8..at + span].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
    let sum = xxh3_64_with_seed(&out[footer_at..footer_at + 48], footer_at as u64);
    out[footer_at + 48..footer_at + 56].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Returns a table that claims to have `entries` entries. Reseals a blob file and a reference to
/// it: the footer, the record that the reference names, and the checksum in the reference.
pub fn blobs(reference: &[u8], file: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut reference, mut file) = (reference.to_vec(), file.to_vec());
    // A value may look like a log.
    if file.starts_with(LOG_MAGIC) && !file.ends_with(BLOB_MAGIC) {
        file = log(&file);
        seal_place(&mut reference, &file);
    } else {
        seal_blobs(&mut reference, &mut file);
    }
    (reference, file)
}

/// Gives a reference the checksum of the bytes of a log that it stands for.
fn seal_place(reference: &mut [u8], log: &[u8]) -> Option<()> {
    let mut input = Decoder::new(reference);
    let (_file, offset, span, _len) =
        (input.varint()?, input.varint_usize()?, input.varint_usize()?, input.varint()?);
    let value = log.get(offset..offset.checked_add(span)?)?;
    *reference.last_chunk_mut::<8>()? = xxh3_64_with_seed(value, offset as u64).to_le_bytes();
    Some(())
}

fn seal_blobs(reference: &mut [u8], file: &mut [u8]) -> Option<()> {
    let end = file.len().checked_sub(BLOB_FOOTER)?;
    let sum = xxh3_64_with_seed(&file[end..end + 32], end as u64);
    file[end + 32..end + 40].copy_from_slice(&sum.to_le_bytes());
    let mut input = Decoder::new(reference);
    let (_file, offset, span, _len) =
        (input.varint()?, input.varint_usize()?, input.varint_usize()?, input.varint()?);
    let record = file[..end].get_mut(offset..offset.checked_add(span)?)?;
    let (covered, trailer) = record.split_last_chunk_mut::<8>()?;
    *trailer = xxh3_64_with_seed(covered, offset as u64).to_le_bytes();
    *reference.last_chunk_mut::<8>()? = *trailer;
    Some(())
}

/// Returns a table whose properties claim another number of entries.
///
/// # Panics
///
/// If it is none.
pub fn claiming_entries(table: &[u8], entries: u64) -> Vec<u8> {
    use tamis_files::codec::Encode;

    let [.., (at, span)] = table_layout(table).expect("a whole table");
    let content = block_content(&table[at..at + span]).expect("properties are not compressed");
    let (mut fields, mut changed) = (Decoder::new(&content), Vec::new());
    while let Some((tag, field)) = fields.varint().zip(fields.bytes()) {
        changed.put_varint(tag);
        // The very first field is the number of entries.
        let mut number = Vec::new();
        number.put_varint(entries);
        changed.put_bytes(if tag == 1 { &number } else { field });
    }
    changed.extend([0; BLOCK_TRAILER]);
    let footer_at = table.len() - TABLE_FOOTER;
    let mut out = [&table[..at], &changed, &table[footer_at..]].concat();
    let span_at = at + changed.len() + 32;
    out[span_at..span_at + 8].copy_from_slice(&(changed.len() as u64).to_le_bytes());
    self::table(&out, true)
}

/// Reseals a filter: its checksum.
pub fn filter(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    seal_filter(&mut out);
    out
}

/// Reseals a key list: its checksum.
pub fn key_list(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    seal_key_list(&mut out);
    out
}

fn seal_key_list(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(KEY_LIST_CHECKSUM + KEY_LIST_MAGIC.len()) {
        let sum = xxh3_64(&bytes[..at]);
        bytes[at..at + KEY_LIST_CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Reseals a filter file: the checksums of its images, of its index, and of its footer.
pub fn filter_images(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    seal_filter_images(&mut out);
    out
}

fn seal_filter_images(bytes: &mut [u8]) -> Option<()> {
    let footer_at = bytes.len().checked_sub(IMAGES_FOOTER)?;
    let index_bytes = Decoder::new(&bytes[footer_at + 8..]).u64()?;
    if let Some(index_at) = usize::try_from(index_bytes).ok().and_then(|len| footer_at.checked_sub(len)) {
        seal_images(bytes, index_at, footer_at);
        let sum = xxh3_64_with_seed(&bytes[index_at..footer_at], index_at as u64);
        bytes[footer_at + 16..footer_at + 24].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = xxh3_64_with_seed(&bytes[footer_at..footer_at + 40], footer_at as u64);
    bytes[footer_at + 40..footer_at + 48].copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// Corrects the checksums in an index, as far as its entries make sense.
fn seal_images(bytes: &mut [u8], index_at: usize, footer_at: usize) -> Option<()> {
    let (mut at, mut image_at) = (index_at, 0usize);
    while at < footer_at {
        let mut entry = Decoder::new(&bytes[at..footer_at]);
        entry.u8()?;
        entry.bytes()?;
        if entry.u8()? == 1 {
            entry.bytes()?;
        }
        let (_until, _made, _place) = (entry.varint()?, entry.varint()?, entry.varint()?);
        let end = image_at.checked_add(entry.varint_usize()?).filter(|end| *end <= index_at)?;
        let sum_at = footer_at - entry.remaining();
        entry.u64()?;
        at = footer_at - entry.remaining();
        let sum = xxh3_64_with_seed(&bytes[image_at..end], image_at as u64);
        bytes[sum_at..at].copy_from_slice(&sum.to_le_bytes());
        image_at = end;
    }
    Some(())
}

/// Reseals an elastic filter: the checksums of its units and of its directory.
pub fn elastic(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    seal_elastic(&mut out);
    out
}

fn seal_elastic(bytes: &mut [u8]) {
    let Some((directory_at, units)) = elastic_layout(bytes) else { return };
    for (at, len) in units {
        if len >= FILTER_CHECKSUM {
            let sum_at = at + len - FILTER_CHECKSUM;
            let sum = xxh3_64(&bytes[at..sum_at]);
            bytes[sum_at..at + len].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sum_at = bytes.len() - FILTER_CHECKSUM - ELASTIC_MAGIC.len();
    let sum = xxh3_64(&bytes[directory_at..sum_at]);
    bytes[sum_at..sum_at + FILTER_CHECKSUM].copy_from_slice(&sum.to_le_bytes());
}

/// Returns the offset of an elastic filter's directory, and the offsets and lengths of its units,
/// as far as they fit.
fn elastic_layout(bytes: &[u8]) -> Option<(usize, Vec<(usize, usize)>)> {
    let trailer_at = bytes.len().checked_sub(ELASTIC_TRAILER)?;
    let mut trailer = Decoder::new(&bytes[trailer_at + 16..]);
    let directory_at = trailer_at.checked_sub(usize::try_from(trailer.u64()?).ok()?)?;
    let (segments, groups) = (trailer.u32()?, trailer.u8()?);
    let mut directory = Decoder::new(&bytes[directory_at..trailer_at]);
    let mut lengths = Vec::new();
    let length = |directory: &mut Decoder<'_>| {
        directory.bytes()?;
        directory.varint()?;
        directory.varint_usize()
    };
    for _ in 0..segments {
        match length(&mut directory) {
            Some(len) => lengths.push(len),
            None => break,
        }
    }
    let mut at = 0usize;
    let spans = lengths.iter().cycle().take(lengths.len() * usize::from(groups)).map_while(|len| {
        let end = at.checked_add(*len).filter(|end| *end <= directory_at)?;
        Some((std::mem::replace(&mut at, end), *len))
    });
    Some((directory_at, spans.collect()))
}

/// Reseals a filter, or the block in its place.
fn seal_filter(bytes: &mut [u8]) {
    if bytes.ends_with(KEY_LIST_MAGIC) {
        return seal_key_list(bytes);
    }
    if bytes.ends_with(ELASTIC_MAGIC) {
        return seal_elastic(bytes);
    }
    if let Some(at) = bytes.len().checked_sub(FILTER_CHECKSUM) {
        let sum = xxh3_64(&bytes[..at]);
        bytes[at..].copy_from_slice(&sum.to_le_bytes());
    }
}
