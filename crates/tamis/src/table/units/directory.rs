//! The directory of an elastic filter: which keys form a segment, and where its units are.

use tamis_filter::format::TRAILER_LEN as UNIT_TRAILER;
use tamis_filter::{BloomScheme, ElasticLayout, ElasticSpec, ElasticUnit, MAX_ELASTIC_UNITS, theory};
use xxhash_rust::xxh3::xxh3_64;

use super::{MAGIC, VERSION, group_salt, layout_of};
use crate::codec::{Decoder, Encode};
use crate::key::{MAX_KEY_BYTES, prefix_of};
use crate::table::frame::Damage;

const BAD_DIRECTORY: Damage = Damage("an elastic filter whose directory does not decode");

/// The fixed-size end of the filter part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trailer {
    pub(super) salt: u64,
    pub(super) directory_bytes: u64,
    pub(super) segments: u32,
    pub(super) spec: ElasticSpec,
    /// Probes per unit.
    pub(super) probes: u8,
}

impl Trailer {
    /// Salt, bits per key, length of the directory, segments, units, hashing, probes, zero, version, zero, checksum, magic.
    pub(super) const BYTES: usize = 56;

    /// Appends the trailer behind the directory that ends `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let directory_at = out.len() - self.directory_bytes as usize;
        out.put_u64(self.salt);
        out.put_u64(self.spec.bits_per_key.to_bits());
        out.put_u64(self.directory_bytes);
        out.put_u32(self.segments);
        out.extend_from_slice(&[self.spec.units as u8, self.spec.scheme as u8, self.probes, 0]);
        out.put_u32(VERSION);
        out.put_u32(0);
        let sum = xxh3_64(&out[directory_at..]);
        out.put_u64(sum);
        out.extend_from_slice(&MAGIC);
    }

    /// Decodes the trailer that ends `tail`. [`UnitDirectory::open`] verifies the checksum: until then the values are only
    /// known to be plausible.
    pub(super) fn decode(tail: &[u8]) -> Result<Trailer, Damage> {
        const CUT: Damage = Damage("an elastic filter that is too short");
        let (_, bytes) = tail.split_last_chunk::<{ Trailer::BYTES }>().ok_or(CUT)?;
        if !bytes.ends_with(&MAGIC) {
            return Err(Damage("not an elastic filter, or one whose end is missing"));
        }
        let mut input = Decoder::new(bytes);
        let (salt, bits) = (input.u64().ok_or(CUT)?, f64::from_bits(input.u64().ok_or(CUT)?));
        let (directory_bytes, segments) = (input.u64().ok_or(CUT)?, input.u32().ok_or(CUT)?);
        let [units, scheme, probes, zero] = *input.take(4).and_then(|b| b.first_chunk()).ok_or(CUT)?;
        if (input.u32().ok_or(CUT)?, input.u32().ok_or(CUT)?, zero) != (VERSION, 0, 0) {
            return Err(Damage("an elastic filter of a newer format than this library reads (1)"));
        }
        let scheme = match scheme {
            1 => BloomScheme::Rotation,
            2 => BloomScheme::DoubleHashing,
            3 => BloomScheme::Independent,
            _ => return Err(Damage("an elastic filter with an unknown kind of hashing")),
        };
        let (layout, units) = (layout_of(scheme), u32::from(units));
        let most_probes = match layout {
            ElasticLayout::Standard => theory::MAX_PROBES / units.max(1),
            ElasticLayout::Blocked => theory::MAX_BLOCKED_PROBES,
        };
        let possible = (1..=MAX_ELASTIC_UNITS).contains(&units)
            && (1..=most_probes).contains(&probes.into())
            && bits > 0.0
            && bits <= 64.0;
        if !possible {
            return Err(Damage("an elastic filter with impossible parameters"));
        }
        let spec = ElasticSpec { units, bits_per_key: bits, scheme, layout };
        Ok(Trailer { salt, directory_bytes, segments, spec, probes })
    }

    /// Returns the length of directory and trailer, if it fits a filter part of `part_len` bytes.
    pub(super) fn tail_len(&self, part_len: u64) -> Result<u64, Damage> {
        let len = self.directory_bytes.checked_add(Trailer::BYTES as u64);
        len.filter(|len| *len <= part_len).ok_or(BAD_DIRECTORY)
    }
}

/// One segment, without its prefix and its key's bytes.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// The end of its first key within the keys.
    key_end: usize,
    keys: u64,
    /// The end of its unit within a row.
    unit_end: u64,
}

/// Which keys form a segment, and where its units are. At least one segment. See the [module](super).
#[derive(Clone, Debug)]
pub(crate) struct UnitDirectory {
    /// The prefixes of the first keys, in ascending order.
    prefixes: Box<[u64]>,
    segments: Box<[Segment]>,
    /// The first keys, concatenated.
    keys: Box<[u8]>,
    spec: ElasticSpec,
    probes: u8,
    salt: u64,
}

impl UnitDirectory {
    /// Decodes the directory of a filter part of `part_len` bytes that ends with `tail`: directory, trailer and anything before
    /// them. Linear in the directory. An entry of at least three bytes takes 32 bytes and its key, so memory is bounded by the
    /// input.
    pub(crate) fn open(part_len: u64, tail: &[u8]) -> Result<UnitDirectory, Damage> {
        let trailer = Trailer::decode(tail)?;
        let tail_len = trailer.tail_len(part_len)?;
        let cut = usize::try_from(tail_len)
            .ok()
            .and_then(|len| tail.len().checked_sub(len))
            .ok_or(BAD_DIRECTORY)?;
        let tail = &tail[cut..];
        let (checked, end) = tail.split_at(tail.len() - 16);
        if end[..8] != xxh3_64(checked).to_le_bytes() {
            return Err(Damage("the checksum of an elastic filter's directory does not match its bytes"));
        }
        let directory = &tail[..tail.len() - Trailer::BYTES];
        // An entry takes at least three bytes.
        let count = trailer.segments as usize;
        if count == 0 || count > directory.len() / 3 {
            return Err(BAD_DIRECTORY);
        }
        let (mut prefixes, mut segments) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut keys = Vec::with_capacity(directory.len());
        let mut input = Decoder::new(directory);
        let (mut last, mut unit_end, mut total): (Option<&[u8]>, u64, u64) = (None, 0, 0);
        for _ in 0..count {
            let first = input.bytes().ok_or(BAD_DIRECTORY)?;
            let (count, len) = (input.varint().ok_or(BAD_DIRECTORY)?, input.varint().ok_or(BAD_DIRECTORY)?);
            if last.is_some_and(|last| last >= first) || first.len() > MAX_KEY_BYTES {
                return Err(Damage("an elastic filter whose segments do not ascend"));
            }
            last = Some(first);
            let payload = len.checked_sub(UNIT_TRAILER as u64).filter(|payload| *payload > 0);
            let word = if trailer.spec.layout == ElasticLayout::Blocked { 64 } else { 8 };
            payload.filter(|payload| payload.is_multiple_of(word)).ok_or(BAD_DIRECTORY)?;
            unit_end = unit_end.checked_add(len).ok_or(BAD_DIRECTORY)?;
            total = total.checked_add(count).filter(|_| count > 0).ok_or(BAD_DIRECTORY)?;
            keys.extend_from_slice(first);
            prefixes.push(prefix_of(first));
            segments.push(Segment { key_end: keys.len(), keys: count, unit_end });
        }
        let units = unit_end.checked_mul(trailer.spec.units.into());
        if !input.is_empty() || units != Some(part_len - tail_len) {
            return Err(Damage("an elastic filter whose directory does not account for all its bytes"));
        }
        Ok(UnitDirectory {
            prefixes: prefixes.into(),
            segments: segments.into(),
            keys: keys.into(),
            spec: trailer.spec,
            probes: trailer.probes,
            salt: trailer.salt,
        })
    }

    /// The number of segments; at least one. Methods that take a segment's number panic if it is out of range.
    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The number of units per group.
    pub(crate) fn units(&self) -> u32 {
        self.spec.units
    }

    /// The parameters of the units.
    pub(crate) fn spec(&self) -> ElasticSpec {
        self.spec
    }

    /// Probes per unit. Independent hashing needs this many digests of a key for each unit of a group.
    pub(crate) fn probes(&self) -> u32 {
        self.probes.into()
    }

    /// The segment that `key`, whose [`prefix_of`] is `prefix`, belongs to if the table holds it: the last one that starts at
    /// or before it, or the first. Costs a binary search over eight-byte prefixes; keys are compared only if prefixes are
    /// equal.
    #[inline]
    pub(crate) fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        let mut from = self.prefixes.partition_point(|&start| start < prefix);
        let mut to = from + self.prefixes[from..].partition_point(|&start| start == prefix);
        while from < to {
            let middle = from.midpoint(to);
            if self.first_key(middle) <= key {
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        from.saturating_sub(1)
    }

    /// The smallest key of a segment.
    #[inline]
    pub(crate) fn first_key(&self, segment: usize) -> &[u8] {
        let start = segment.checked_sub(1).map_or(0, |before| self.segments[before].key_end);
        &self.keys[start..self.segments[segment].key_end]
    }

    /// The number of distinct keys of a segment.
    pub(crate) fn keys(&self, segment: usize) -> u64 {
        self.segments[segment].keys
    }

    /// The number of distinct keys of the table.
    pub(crate) fn total_keys(&self) -> u64 {
        self.segments.iter().map(|segment| segment.keys).sum()
    }

    /// The location of a unit: offset within the filter part, and length, in bytes.
    pub(crate) fn unit_span(&self, segment: usize, unit: u32) -> (u64, u64) {
        debug_assert!(unit < self.spec.units);
        let start = segment.checked_sub(1).map_or(0, |before| self.segments[before].unit_end);
        let row = self.segments[self.segments.len() - 1].unit_end;
        (row * u64::from(unit) + start, self.segments[segment].unit_end - start)
    }

    /// The [`ElasticUnit::memory_bytes`] of a unit of this segment.
    pub(crate) fn unit_memory_bytes(&self, segment: usize) -> usize {
        ElasticUnit::memory_of(self.spec.layout, self.unit_span(segment, 0).1 as usize)
    }

    /// The salt of a segment's group.
    pub(crate) fn salt(&self, segment: usize) -> u64 {
        group_salt(self.salt, segment)
    }

    /// The theoretical false positive rate of one unit; that of `k` units is its `k`th power.
    pub(crate) fn rate(&self) -> f64 {
        let (bits, probes) = (self.spec.bits_per_key, self.probes.into());
        match self.spec.layout {
            ElasticLayout::Standard => theory::bloom_rate(bits, probes),
            ElasticLayout::Blocked => theory::blocked_bloom_rate(bits, probes),
        }
    }

    /// Memory of the directory in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.prefixes) + size_of_val(&*self.segments) + self.keys.len()
    }
}
