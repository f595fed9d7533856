//! A ring of records: the newest takes the place of the oldest.
//!
//! # Invariants
//!
//! * Records stand one behind another from `tail` to `head`. None crosses the end of the memory:
//!   what is left there is skipped, up to `round_end`.
//! * A record's bytes stay as they are until a later one is written over them, which happens only
//!   after it was taken from the tail.

use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_env::memory::PageBox;
use tamis_files::table::prefetch;

/// Records begin at multiples of this.
pub(super) const ALIGN: usize = 8;

/// A cache line.
const LINE: usize = 64;

/// The lines of a record that are fetched ahead.
const PREFETCHED_LINES: usize = 5;

/// What stands before a record's key and value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) seq: SeqNo,
    pub(super) edition: u64,
    pub(super) keyspace: KeyspaceId,
    pub(super) mark: u32,
    pub(super) key_bytes: u16,
    pub(super) value_bytes: u16,
    pub(super) uses: u8,
}

impl Header {
    pub(super) const BYTES: usize = 32;
    /// The place of `uses`.
    const USES: usize = 28;

    fn to_bytes(self) -> [u8; Header::BYTES] {
        let mut out = [0; Header::BYTES];
        out[..8].copy_from_slice(&self.seq.to_ne_bytes());
        out[8..16].copy_from_slice(&self.edition.to_ne_bytes());
        out[16..20].copy_from_slice(&self.keyspace.to_ne_bytes());
        out[20..24].copy_from_slice(&self.mark.to_ne_bytes());
        out[24..26].copy_from_slice(&self.key_bytes.to_ne_bytes());
        out[26..28].copy_from_slice(&self.value_bytes.to_ne_bytes());
        out[Header::USES] = self.uses;
        out
    }

    #[inline]
    fn of(bytes: &[u8; Header::BYTES]) -> Header {
        let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().expect("in the header"));
        let half = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("in the header"));
        let short = |at: usize| u16::from_ne_bytes(*bytes[at..].first_chunk().expect("in the header"));
        Header {
            seq: word(0),
            edition: word(8),
            keyspace: half(16),
            mark: half(20),
            key_bytes: short(24),
            value_bytes: short(26),
            uses: bytes[Header::USES],
        }
    }

    fn end(&self) -> usize {
        Header::BYTES + usize::from(self.key_bytes) + usize::from(self.value_bytes)
    }

    /// The bytes that the record takes in the ring.
    pub(super) fn taken(&self) -> usize {
        self.end().next_multiple_of(ALIGN)
    }
}

/// `head` and `tail` count all bytes ever written and taken, those that were skipped included.
#[derive(Debug)]
pub(super) struct Ring {
    memory: PageBox<u8>,
    head: u64,
    tail: u64,
    /// Where the records of the last complete round end.
    round_end: usize,
}

impl Ring {
    pub(super) fn new(bytes: usize) -> Ring {
        let memory = PageBox::huge(bytes / ALIGN * ALIGN);
        let round_end = memory.len();
        Ring { memory, head: 0, tail: 0, round_end }
    }

    pub(super) fn capacity(&self) -> usize {
        self.memory.len()
    }

    pub(super) fn used(&self) -> usize {
        (self.head - self.tail) as usize
    }

    fn place(&self, at: u64) -> usize {
        (at % self.memory.len() as u64) as usize
    }

    /// The bytes that have to be skipped so that `bytes` do not cross the end.
    fn skipped(&self, bytes: usize) -> usize {
        let rest = self.memory.len() - self.place(self.head);
        if rest < bytes { rest } else { 0 }
    }

    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.used() + self.skipped(bytes) + bytes <= self.memory.len()
    }

    /// Takes the next `bytes`, which [fit](Self::fits), and returns their place.
    fn take(&mut self, bytes: usize) -> usize {
        let skipped = self.skipped(bytes);
        if skipped > 0 {
            self.round_end = self.place(self.head);
            self.head += skipped as u64;
        }
        let place = self.place(self.head);
        self.head += bytes as u64;
        if self.place(self.head) == 0 {
            self.round_end = self.memory.len();
        }
        place
    }

    /// Writes a record that [fits](Self::fits), and returns its place.
    pub(super) fn push(&mut self, header: &Header, key: &[u8], value: &[u8]) -> usize {
        let place = self.take(header.taken());
        let (front, rest) = self.memory[place..place + header.end()].split_at_mut(Header::BYTES);
        front.copy_from_slice(&header.to_bytes());
        let (to_key, to_value) = rest.split_at_mut(key.len());
        to_key.copy_from_slice(key);
        to_value.copy_from_slice(value);
        place
    }

    /// Writes the record that was just [taken](Self::pop) from `place` once more, if it fits, and
    /// returns its new place.
    pub(super) fn push_again(&mut self, place: usize, header: &Header) -> Option<usize> {
        if !self.fits(header.taken()) {
            return None;
        }
        let to = self.take(header.taken());
        self.memory.copy_within(place..place + header.taken(), to);
        self.set_uses(to, header.uses);
        Some(to)
    }

    /// Takes the oldest record, whose bytes stay until something is written. Returns its place.
    pub(super) fn pop(&mut self) -> Option<usize> {
        if self.tail == self.head {
            return None;
        }
        let len = self.memory.len() as u64;
        if self.place(self.tail) == self.round_end && self.tail / len < self.head / len {
            self.tail = self.tail.next_multiple_of(len);
        }
        let place = self.place(self.tail);
        self.tail += self.header(place).taken() as u64;
        Some(place)
    }

    /// How long a record has been here: the older, the less.
    pub(super) fn age(&self, place: usize) -> usize {
        (place + self.memory.len() - self.place(self.tail)) % self.memory.len()
    }

    #[inline]
    pub(super) fn header(&self, place: usize) -> Header {
        Header::of(self.memory[place..].first_chunk().expect("a whole header"))
    }

    /// Fetches the lines of a record of some hundred bytes at once: else each waits for the one
    /// before.
    #[inline]
    pub(super) fn prefetch(&self, place: usize) {
        self.memory[place..].chunks(LINE).take(PREFETCHED_LINES).for_each(prefetch);
    }

    #[inline]
    pub(super) fn set_uses(&mut self, place: usize, uses: u8) {
        self.memory[place + Header::USES] = uses;
    }

    /// The record's key and value.
    #[inline]
    pub(super) fn record(&self, place: usize, header: &Header) -> (&[u8], &[u8]) {
        let bytes = &self.memory[place + Header::BYTES..place + header.end()];
        bytes.split_at(usize::from(header.key_bytes))
    }
}
