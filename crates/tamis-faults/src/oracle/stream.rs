//! Writes by number.

use super::model::Space;

/// Number of keys of one thread in one keyspace.
const KEYS: u64 = 200;
/// Length of the first and the last key of a keyspace where keys are long: a few flushes with such
/// keys fill a manifest, so that it is rolled.
const LONG_KEY_BYTES: usize = 40 << 10;

/// The source of one thread's writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) seed: u64,
    /// The session: a number that was lost and is assigned again denotes another write.
    pub(crate) epoch: u64,
    pub(crate) thread: u32,
    pub(crate) long_keys: bool,
    /// Whether some values are so large that they are written to the log by calls of their own.
    pub(crate) large_values: bool,
    /// Whether few writes are synced, so that much is in caches.
    pub(crate) seldom_synced: bool,
}

/// The method of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Batch,
    /// As external tables, one for each keyspace written.
    Ingestion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Put(Space, Vec<u8>, Vec<u8>),
    Delete(Space, Vec<u8>),
    DeleteRange(Space, Vec<u8>, Vec<u8>),
    /// In the keyspace of sums.
    Add(Vec<u8>, u64),
}

/// One atomic write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) ops: Vec<Op>,
    pub(crate) way: Way,
    /// Whether its acknowledgement promises durability across a power cut.
    pub(crate) synced: bool,
}

/// Returns the key under which a thread stores the number of its last write, and what it had seen
/// of other threads.
pub(crate) fn counter_key(thread: u32) -> Vec<u8> {
    format!("{}{thread:02}", layout::COUNTERS).into_bytes()
}

/// Returns the key that a journalled write adds to its own.
pub(crate) fn done_key(number: u64) -> Vec<u8> {
    format!("{}{number:08}", layout::DONE).into_bytes()
}

/// Returns the key of what a journalled write adds to fill the file system.
pub(crate) fn ballast_key(number: u64) -> Vec<u8> {
    format!("{}{number:08}", layout::BALLAST).into_bytes()
}

/// Prefixes of keys that are not data.
pub(crate) mod layout {
    pub(crate) const BALLAST: &str = "z/";
    pub(crate) const COUNTERS: &str = "seq/";
    pub(crate) const DONE: &str = "done/";
}

impl Stream {
    /// Returns the first stream of a seed, without anything special.
    pub(crate) fn plain(seed: u64) -> Stream {
        Stream { seed, epoch: 0, thread: 0, long_keys: false, large_values: false, seldom_synced: false }
    }

    /// Returns the write with this number.
    pub(crate) fn write(&self, number: u64) -> Write {
        let mut rng = self.rng(number);
        let way = if rng.u32(..60) == 0 { Way::Ingestion } else { Way::Batch };
        let synced = way == Way::Ingestion || rng.u32(..if self.seldom_synced { 60 } else { 4 }) == 0;
        let count = if rng.u32(..20) == 0 { 30 } else { rng.usize(1..=6) };
        let ops = (0..count).map(|_| self.op(&mut rng, way)).collect();
        Write { ops, way, synced }
    }

    /// Returns a generator for the reads and the pace of one thread; no write depends on it.
    pub(crate) fn aside(&self) -> fastrand::Rng {
        self.rng(u64::MAX)
    }

    fn rng(&self, number: u64) -> fastrand::Rng {
        let mut mixed = self.seed;
        for part in [self.epoch, u64::from(self.thread), number] {
            mixed = (mixed ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^= mixed >> 29;
        }
        fastrand::Rng::with_seed(mixed)
    }

    fn op(&self, rng: &mut fastrand::Rng, way: Way) -> Op {
        let space = match rng.u32(..10) {
            0..5 => Space::Default,
            5..8 => Space::Wide,
            // External tables have no operands.
            _ if way == Way::Ingestion => Space::Wide,
            _ => Space::Sums,
        };
        let mut place = rng.u64(..KEYS);
        if self.long_keys && rng.u32(..12) == 0 {
            place = if rng.bool() { 0 } else { KEYS - 1 };
        }
        let key = self.key(space, place);
        match (rng.u32(..20), space) {
            (0, _) => {
                let end = (place + rng.u64(1..30)).min(KEYS - 1);
                Op::DeleteRange(space, self.key(space, place), self.key(space, end))
            }
            (1..4, _) => Op::Delete(space, key),
            (_, Space::Sums) => Op::Add(key, rng.u64(..1000)),
            _ if self.large_values && rng.u32(..60) == 0 => Op::Put(space, key, large_value(rng)),
            _ => Op::Put(space, key, value(rng)),
        }
    }

    /// Returns the key at a position of the thread's part of a keyspace. The keys of a thread are
    /// contiguous.
    pub(crate) fn key(&self, space: Space, place: u64) -> Vec<u8> {
        let mut key = match space {
            Space::Default | Space::Sums => format!("{:02}/{place:05}", self.thread).into_bytes(),
            Space::Wide => ((u64::from(self.thread) << 48) | (place * 977)).to_be_bytes().to_vec(),
        };
        if self.long_keys && space != Space::Sums && (place == 0 || place == KEYS - 1) {
            key.resize(LONG_KEY_BYTES, b'~');
        }
        key
    }

    /// Returns every key that the thread ever writes in a keyspace.
    pub(crate) fn keys(&self, space: Space) -> impl Iterator<Item = Vec<u8>> {
        let stream = *self;
        (0..KEYS).map(move |place| stream.key(space, place))
    }
}

/// Returns incompressible bytes.
fn large_value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut value = vec![0; rng.usize(60 << 10..150 << 10)];
    rng.fill(&mut value);
    value
}

/// Returns bytes of which some are unique and some are compressible.
fn value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let len = match rng.u32(..10) {
        0..6 => rng.usize(..64),
        6..9 => rng.usize(..500),
        _ => rng.usize(..4000),
    };
    let mut value: Vec<u8> = rng.u64(..).to_le_bytes().to_vec();
    let filler = rng.u8(..);
    value.extend((0..len).map(|at| if at % 3 == 0 { rng.u8(..) } else { filler }));
    value
}
