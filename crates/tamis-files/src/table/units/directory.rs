//! The directory of an elastic filter: which keys form each segment and where its units are.

use tamis_base::key::{BorderKey, MAX_KEY_BYTES};
use tamis_filter::format::TRAILER_LEN as UNIT_TRAILER;
use tamis_filter::{BloomScheme, ElasticLayout, ElasticSpec, ElasticStack, MAX_ELASTIC_UNITS, theory};
use xxhash_rust::xxh3::xxh3_64;

use super::borders::Borders;
use super::{MAGIC, VERSION, group_salt, layout_of, unit_granule};
use crate::codec::{Decoder, Encode};
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
    /// Salt, bits per key, length of the directory, segments, units, hashing, probes, zero,
    /// version, zero, checksum, magic.
    pub(super) const BYTES: usize = 56;

    /// Appends the trailer to `out`, which ends with the directory.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let directory_at = out.len() - self.directory_bytes as usize;
        out.put_u64(self.salt);
        out.put_u64(self.spec.bits_per_key.to_bits());
        out.put_u64(self.directory_bytes);
        out.put_u32(self.segments);
        out.extend_from_slice(&[self.spec.units as u8, self.spec.scheme as u8, self.probes, 0]);
        out.put_u32(if self.spec.layout == ElasticLayout::Blocked { 1 } else { VERSION });
        out.put_u32(0);
        let sum = xxh3_64(&out[directory_at..]);
        out.put_u64(sum);
        out.extend_from_slice(&MAGIC);
    }

    /// Decodes the trailer at the end of `tail`. The values are merely plausible until
    /// [`UnitDirectory::open`] verifies the checksum.
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
        let version = input.u32().ok_or(CUT)?;
        if !(1..=VERSION).contains(&version) || (input.u32().ok_or(CUT)?, zero) != (0, 0) {
            return Err(Damage("an elastic filter of a newer format than this library reads (2)"));
        }
        let scheme = match scheme {
            1 => BloomScheme::Rotation,
            2 => BloomScheme::DoubleHashing,
            3 => BloomScheme::Independent,
            _ => return Err(Damage("an elastic filter with an unknown kind of hashing")),
        };
        let (layout, units) = (layout_of(scheme, version), u32::from(units));
        let most_probes = match layout {
            ElasticLayout::Standard => theory::MAX_PROBES / units.max(1),
            ElasticLayout::Blocked | ElasticLayout::Interleaved => theory::MAX_BLOCKED_PROBES,
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

    /// Returns the length of directory and trailer, which must fit a filter part of `part_len`
    /// bytes.
    pub(super) fn tail_len(&self, part_len: u64) -> Result<u64, Damage> {
        let len = self.directory_bytes.checked_add(Trailer::BYTES as u64);
        len.filter(|len| *len <= part_len).ok_or(BAD_DIRECTORY)
    }
}

/// A segment's keys, and the eight-byte words of its units' payloads.
type Size = (u32, u32);

/// The sizes of all segments. Writers make all but the last one alike.
#[derive(Debug)]
enum Sizes {
    Alike {
        count: u32,
        each: Size,
        last: Size,
    },
    /// The words are cumulative, including the segment's own.
    Any(Box<[Size]>),
}

impl Sizes {
    fn new(sizes: &[Size]) -> Sizes {
        let (&last, others) = sizes.split_last().expect("there is at least one segment");
        let each = others.first().copied().unwrap_or(last);
        if others.iter().all(|&size| size == each) {
            return Sizes::Alike { count: sizes.len() as u32, each, last };
        }
        let up_to = sizes.iter().scan(0u32, |words, &(keys, own)| {
            *words += own;
            Some((keys, *words))
        });
        Sizes::Any(up_to.collect())
    }

    fn keys(&self, segment: usize) -> u64 {
        match self {
            Sizes::Alike { count, each, last } => {
                if segment + 1 < *count as usize { each.0 } else { last.0 }.into()
            }
            Sizes::Any(sizes) => sizes[segment].0.into(),
        }
    }

    /// Returns the words of all earlier segments, and of this one.
    #[inline]
    fn words(&self, segment: usize) -> (u64, u64) {
        match self {
            Sizes::Alike { count, each, last } => {
                let own = if segment + 1 < *count as usize { each.1 } else { last.1 };
                (segment as u64 * u64::from(each.1), own.into())
            }
            Sizes::Any(sizes) => {
                let before = segment.checked_sub(1).map_or(0, |before| sizes[before].1);
                (before.into(), u64::from(sizes[segment].1 - before))
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Sizes::Alike { .. } => 0,
            Sizes::Any(sizes) => size_of_val(&**sizes),
        }
    }
}

/// Which keys form each segment, and where its units are. Has at least one segment. See the
/// [module](super).
#[derive(Debug)]
pub struct UnitDirectory {
    borders: Borders,
    sizes: Sizes,
    spec: ElasticSpec,
    probes: u8,
    salt: u64,
    /// The part of a stack common to all groups of the table; [`stack`](Self::stack) fills in the
    /// rest.
    stack: ElasticStack,
}

impl UnitDirectory {
    /// Decodes the directory of a filter part of `part_len` bytes. `tail` is the end of the part
    /// and contains at least the directory and trailer. Takes time linear in the directory. An
    /// entry of at least three bytes takes 22 bytes and its key, so the input bounds the memory.
    pub fn open(part_len: u64, tail: &[u8]) -> Result<UnitDirectory, Damage> {
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
        let mut sizes = Vec::with_capacity(count);
        let mut key_ends = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(directory.len());
        let mut input = Decoder::new(directory);
        let (mut last, mut words_end, mut total): (Option<&[u8]>, u64, u64) = (None, 0, 0);
        let granule = unit_granule(trailer.spec.layout) as u64;
        for _ in 0..count {
            let first = input.bytes().ok_or(BAD_DIRECTORY)?;
            let (count, len) = (input.varint().ok_or(BAD_DIRECTORY)?, input.varint().ok_or(BAD_DIRECTORY)?);
            if last.is_some_and(|last| last >= first) || first.len() > MAX_KEY_BYTES {
                return Err(Damage("an elastic filter whose segments do not ascend"));
            }
            last = Some(first);
            let payload = len.checked_sub(UNIT_TRAILER as u64).filter(|payload| *payload > 0);
            let payload = payload.filter(|payload| payload.is_multiple_of(granule)).ok_or(BAD_DIRECTORY)?;
            words_end = words_end.checked_add(payload / 8).ok_or(BAD_DIRECTORY)?;
            total = total.checked_add(count).filter(|_| count > 0).ok_or(BAD_DIRECTORY)?;
            keys.extend_from_slice(first);
            let narrow = |number: u64| u32::try_from(number).map_err(|_| BAD_DIRECTORY);
            key_ends.push(narrow(keys.len() as u64)?);
            sizes.push((narrow(count)?, narrow(payload / 8)?));
            narrow(words_end)?;
        }
        let row = words_end * 8 + (count * UNIT_TRAILER) as u64;
        let units = row.checked_mul(trailer.spec.units.into());
        if !input.is_empty() || units != Some(part_len - tail_len) {
            return Err(Damage("an elastic filter whose directory does not account for all its bytes"));
        }
        let (spec, probes) = (trailer.spec, trailer.probes);
        let any = (0, 1, granule / 8);
        let stack = ElasticStack::new(spec, probes, any)
            .map_err(|_| Damage("an elastic filter with impossible parameters"))?;
        Ok(UnitDirectory {
            borders: Borders::new(keys, key_ends),
            sizes: Sizes::new(&sizes),
            spec,
            probes,
            salt: trailer.salt,
            stack,
        })
    }

    /// The number of segments, at least one. Methods that take a segment's number panic if it is
    /// out of range.
    #[inline]
    pub fn segments(&self) -> usize {
        self.borders.count()
    }

    /// The number of units per group.
    #[inline]
    pub fn units(&self) -> u32 {
        self.spec.units
    }

    /// The parameters of the units.
    #[inline]
    pub fn spec(&self) -> ElasticSpec {
        self.spec
    }

    /// Probes per unit. Independent hashing needs this many digests of a key per unit of a group.
    #[inline]
    pub fn probes(&self) -> u32 {
        self.probes.into()
    }

    /// Returns the segment that `key` belongs to if the table holds it: the last one that starts at
    /// or before it, or the first. `prefix` is the key's [`prefix_of`](tamis_base::key::prefix_of).
    #[inline(always)]
    pub fn segment_of(&self, key: &[u8], prefix: u64) -> usize {
        self.borders.segment_of(key, prefix)
    }

    /// A lower bound on a segment's keys that is above all keys of the previous segment. As of
    /// format 2, it is the shortest such prefix of the segment's first key.
    #[inline]
    pub fn first_key(&self, segment: usize) -> BorderKey {
        self.borders.get(segment)
    }

    /// The number of distinct keys in a segment.
    #[inline]
    pub fn keys(&self, segment: usize) -> u64 {
        self.sizes.keys(segment)
    }

    /// The number of distinct keys in the table.
    #[inline]
    pub fn total_keys(&self) -> u64 {
        (0..self.segments()).map(|segment| self.keys(segment)).sum()
    }

    /// Returns the payload words, in one row of units, of all earlier segments and of this one.
    #[inline]
    fn words(&self, segment: usize) -> (u64, u64) {
        self.sizes.words(segment)
    }

    /// Returns the location of a unit: its offset within the filter part and its length, in bytes.
    pub fn unit_span(&self, segment: usize, unit: u32) -> (u64, u64) {
        debug_assert!(unit < self.spec.units);
        let trailer = UNIT_TRAILER as u64;
        let (before_last, last) = self.words(self.segments() - 1);
        let row = (before_last + last) * 8 + self.segments() as u64 * trailer;
        let (before, own) = self.words(segment);
        (row * u64::from(unit) + before * 8 + segment as u64 * trailer, own * 8 + trailer)
    }

    /// Returns how a segment's units lie in memory together.
    #[inline]
    pub fn stack(&self, segment: usize) -> ElasticStack {
        self.stack.of_group(self.salt(segment), self.keys(segment), self.words(segment).1)
    }

    /// The salt of a segment's group.
    #[inline]
    pub fn salt(&self, segment: usize) -> u64 {
        group_salt(self.spec.layout, self.salt, segment)
    }

    /// The theoretical false positive rates of 0, 1, … all units together.
    #[inline]
    pub fn rates(&self) -> Vec<f64> {
        self.spec.layout.rates(self.spec.bits_per_key, self.probes.into(), self.spec.units)
    }

    /// Memory of the directory in bytes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.borders.memory_bytes() + self.sizes.memory_bytes()
    }
}
