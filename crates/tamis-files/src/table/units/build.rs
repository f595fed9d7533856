//! Builds a table's filter units while the table is written.

use tamis_base::key::common_prefix_len;
use tamis_env::sync::channel::{Receiver, Sender, bounded};
use tamis_env::sync::thread::{self, JoinHandle};
use tamis_filter::{BloomScheme, Digest, ElasticGroup, ElasticSpec, FilterError, IndependentDigests, Verify};

use xxhash_rust::xxh3::Xxh3;

use super::directory::Trailer;
use super::{VERSION, group_salt, layout_of, segment_keys};
use crate::codec::Encode;

/// How many segments may be queued for the building thread. Adding keys waits while the queue is
/// full.
const QUEUE: usize = 2;

/// Why a table's filter could not be built.
#[derive(Debug, thiserror::Error)]
pub enum FilterBuildError {
    /// A segment's filter could not be built.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The building thread panicked.
    #[error("the thread that built it panicked")]
    Panicked,
}

/// Builds an elastic filter from ascending keys.
///
/// A complete segment goes to a thread that builds its units while more keys arrive. The thread
/// starts once a complete segment is followed by another, so a table of one segment needs no
/// thread. If no thread can be started, the caller builds the units. Dropping the builder waits for
/// the thread, which has at most three segments to finish.
///
/// Memory: the units built so far, and eight bytes per key for at most five segments (the open one,
/// one that may absorb the rest of the table, two in the queue, one in progress). Independent
/// hashing keeps 248 bytes per key instead of eight.
#[derive(Debug)]
pub struct ElasticBuilder {
    spec: ElasticSpec,
    verify: Verify,
    salt: Option<u64>,
    /// Keys in a full segment, and the minimum for the last one.
    full: usize,
    fewest: usize,
    open: Segment,
    /// The last key of a full segment, to cut the next segment's first key to what tells the two
    /// apart.
    last: Option<Vec<u8>>,
    /// A full segment not yet followed by enough keys for another.
    held: Option<Segment>,
    pub(super) work: Work,
}

/// A run of neighbouring keys.
#[derive(Debug)]
pub(super) struct Segment {
    first: Vec<u8>,
    keys: Keys,
}

/// What the units need of the keys.
#[derive(Debug)]
enum Keys {
    Shared(Vec<Digest>),
    Independent(Vec<IndependentDigests>),
}

impl Segment {
    fn new(scheme: BloomScheme) -> Segment {
        let keys = match scheme {
            BloomScheme::Independent => Keys::Independent(Vec::new()),
            BloomScheme::Rotation | BloomScheme::DoubleHashing => Keys::Shared(Vec::new()),
        };
        Segment { first: Vec::new(), keys }
    }

    fn len(&self) -> usize {
        match &self.keys {
            Keys::Shared(keys) => keys.len(),
            Keys::Independent(keys) => keys.len(),
        }
    }

    fn append(&mut self, other: Segment) {
        match (&mut self.keys, other.keys) {
            (Keys::Shared(keys), Keys::Shared(more)) => keys.extend(more),
            (Keys::Independent(keys), Keys::Independent(more)) => keys.extend(more),
            _ => unreachable!("the segments of a table are of one scheme"),
        }
    }
}

/// Where the units are built.
#[derive(Debug)]
pub(super) enum Work {
    /// There is nothing to build yet.
    None,
    Here(Assembler),
    There(Worker),
}

impl ElasticBuilder {
    /// Creates an empty builder. `unit_bytes` is the target for a unit's encoded length. Without a
    /// `salt`, one is derived from the keys of the first segment, so it depends only on the
    /// contents.
    pub fn new(
        (units, bits_per_key, scheme): (u32, f64, BloomScheme),
        unit_bytes: u64,
        verify: Verify,
        salt: Option<u64>,
    ) -> ElasticBuilder {
        let layout = layout_of(scheme, VERSION);
        let spec = ElasticSpec { units, bits_per_key, scheme, layout };
        let full = segment_keys(layout, bits_per_key, unit_bytes);
        let (open, fewest) = (Segment::new(scheme), full.div_ceil(4));
        ElasticBuilder { spec, verify, salt, full, fewest, open, last: None, held: None, work: Work::None }
    }

    /// Sets the table's salt. Must be called before the first key is added.
    pub fn set_salt(&mut self, salt: u64) {
        self.salt = Some(salt);
    }

    /// Adds a key with its digest. Keys must ascend; another version of the last key changes
    /// nothing. Waits if the building thread is three segments behind.
    #[inline]
    pub fn add(&mut self, key: &[u8], digest: Digest) {
        // To a filter, keys with equal digests are one key. A key skipped here belongs to the
        // previous key's segment, as the next segment starts after both.
        let probes = self.spec.units * self.spec.probes();
        let independent = match &self.open.keys {
            Keys::Shared(keys) if keys.last() == Some(&digest) => return self.skip(key),
            Keys::Shared(_) => None,
            Keys::Independent(keys) => {
                let digests = IndependentDigests::of(key, probes);
                if keys.last().is_some_and(|last| last.as_slice() == digests.as_slice()) {
                    return self.skip(key);
                }
                Some(digests)
            }
        };
        if self.open.len() == self.full {
            let next = Segment::new(self.spec.scheme);
            self.held = Some(std::mem::replace(&mut self.open, next));
        }
        if self.open.len() == 0 {
            let told = self.last.as_ref().map_or(key.len(), |last| common_prefix_len(last, key) + 1);
            self.open.first.extend_from_slice(&key[..told.min(key.len())]);
        }
        if self.open.len() + 1 == self.full {
            self.end_segment(key);
        }
        match (&mut self.open.keys, independent) {
            (Keys::Shared(keys), _) => keys.push(digest),
            (Keys::Independent(keys), Some(digests)) => keys.push(digests),
            (Keys::Independent(_), None) => unreachable!("made above"),
        }
        if self.open.len() == self.fewest
            && let Some(held) = self.held.take()
        {
            self.start(&held);
            self.hand_over(held);
        }
    }

    /// Remembers the last key of a full segment.
    fn end_segment(&mut self, key: &[u8]) {
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Skips a key that the open segment already has, or one with the same digest, which the
    /// segment must also cover.
    fn skip(&mut self, key: &[u8]) {
        if self.open.len() == self.full {
            self.end_segment(key);
        }
    }

    fn assembler(&self, first: &Segment) -> Assembler {
        let salt = self.salt.unwrap_or_else(|| salt_from(first));
        Assembler::new(self.spec, salt, self.verify)
    }

    /// Ensures that there is a builder of units, in the background if possible.
    fn start(&mut self, first: &Segment) {
        if !matches!(self.work, Work::None) {
            return;
        }
        let assembler = self.assembler(first);
        self.work = match Worker::start(move |segments| assembler.run(segments)) {
            Ok(worker) => Work::There(worker),
            Err(why) => {
                log::debug!("building a filter without a thread of its own: {why}");
                Work::Here(self.assembler(first))
            }
        };
    }

    fn hand_over(&mut self, segment: Segment) {
        match &mut self.work {
            Work::None => {
                let mut assembler = self.assembler(&segment);
                assembler.add(segment);
                self.work = Work::Here(assembler);
            }
            Work::Here(assembler) => assembler.add(segment),
            Work::There(worker) => worker.add(segment),
        }
    }

    /// Returns the bytes of the filter part; `None` without keys. Waits for the thread. Peak
    /// memory: the result, and one row of units (one unit of all segments) that is being copied
    /// into it.
    ///
    /// # Errors
    /// An error of [`ElasticGroup::build`] for a segment, or a panic of the thread.
    pub fn finish(mut self) -> Result<Option<Vec<u8>>, FilterBuildError> {
        let last = std::mem::replace(&mut self.open, Segment::new(self.spec.scheme));
        let last = match self.held.take() {
            Some(mut held) => {
                held.append(last);
                held
            }
            None => last,
        };
        if last.len() > 0 {
            self.hand_over(last);
        }
        match self.work {
            Work::None => Ok(None),
            Work::Here(assembler) => Ok(Some(assembler.finish()?)),
            Work::There(worker) => worker.finish().map(Some),
        }
    }
}

/// Derives a salt that differs between tables unless their first segments have the same keys.
fn salt_from(segment: &Segment) -> u64 {
    let mut hasher = Xxh3::new();
    match &segment.keys {
        Keys::Shared(keys) => keys.iter().for_each(|digest| hasher.update(&digest.get().to_le_bytes())),
        Keys::Independent(keys) => {
            let firsts = keys.iter().filter_map(|digests| digests.as_slice().first());
            firsts.for_each(|digest| hasher.update(&digest.get().to_le_bytes()));
        }
    }
    hasher.digest()
}

/// Builds the units of segments and collects them.
#[derive(Debug)]
pub(super) struct Assembler {
    spec: ElasticSpec,
    salt: u64,
    verify: Verify,
    /// One row per unit number: that unit of all segments.
    rows: Vec<Vec<u8>>,
    directory: Vec<u8>,
    segments: u32,
    failed: Option<FilterError>,
}

impl Assembler {
    pub(super) fn new(spec: ElasticSpec, salt: u64, verify: Verify) -> Assembler {
        let rows = vec![Vec::new(); spec.units as usize];
        Assembler { spec, salt, verify, rows, directory: Vec::new(), segments: 0, failed: None }
    }

    fn run(mut self, segments: Receiver<Segment>) -> Result<Vec<u8>, FilterError> {
        segments.iter().for_each(|segment| self.add(segment));
        self.finish()
    }

    /// Builds the units of the next segment. Does nothing after an error; `finish` returns it.
    fn add(&mut self, segment: Segment) {
        if self.failed.is_none() {
            self.failed = self.build(segment).err();
        }
    }

    fn build(&mut self, segment: Segment) -> Result<(), FilterError> {
        let salt = group_salt(self.spec.layout, self.salt, self.segments as usize);
        let group = match &segment.keys {
            Keys::Shared(keys) => ElasticGroup::build(self.spec, keys, salt, self.verify)?,
            Keys::Independent(keys) => {
                let group = ElasticGroup::build_independent(self.spec, keys, salt)?;
                if self.verify == Verify::Yes {
                    let all = group.set(self.spec.units);
                    for key in keys {
                        if !all.contains_independent(key)? {
                            return Err(FilterError::SelfCheck);
                        }
                    }
                }
                group
            }
        };
        for (unit, row) in group.units().iter().zip(&mut self.rows) {
            unit.write_to(row);
        }
        self.directory.put_bytes(&segment.first);
        self.directory.put_varint(segment.len() as u64);
        self.directory.put_varint(group.units()[0].encoded_len() as u64);
        let too_large = FilterError::TooLarge { keys: segment.len() as u64 };
        self.segments = self.segments.checked_add(1).ok_or(too_large)?;
        Ok(())
    }

    fn finish(self) -> Result<Vec<u8>, FilterError> {
        if let Some(why) = self.failed {
            return Err(why);
        }
        let trailer = Trailer {
            salt: self.salt,
            directory_bytes: self.directory.len() as u64,
            segments: self.segments,
            spec: self.spec,
            probes: self.spec.probes() as u8,
        };
        let units: usize = self.rows.iter().map(Vec::len).sum();
        let mut out = Vec::with_capacity(units + self.directory.len() + Trailer::BYTES);
        // Each row is freed before the next is copied.
        self.rows.into_iter().for_each(|row| out.extend_from_slice(&row));
        out.extend_from_slice(&self.directory);
        trailer.encode(&mut out);
        Ok(out)
    }
}

/// The building thread. It ends when the queue is closed and empty.
#[derive(Debug)]
pub(super) struct Worker {
    queue: Option<Sender<Segment>>,
    thread: Option<JoinHandle<Result<Vec<u8>, FilterError>>>,
}

impl Worker {
    pub(super) fn start(
        work: impl FnOnce(Receiver<Segment>) -> Result<Vec<u8>, FilterError> + Send + 'static,
    ) -> std::io::Result<Worker> {
        let (queue, segments) = bounded(QUEUE);
        let thread = thread::spawn("tamis-filter".into(), move || work(segments))?;
        Ok(Worker { queue: Some(queue), thread: Some(thread) })
    }

    fn add(&self, segment: Segment) {
        // The receiver is gone only if the thread panicked, which `finish` reports.
        if let Some(queue) = &self.queue {
            let _ = queue.send(segment);
        }
    }

    fn finish(mut self) -> Result<Vec<u8>, FilterBuildError> {
        self.queue = None;
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(built)) => Ok(built?),
            Some(Err(_)) | None => Err(FilterBuildError::Panicked),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
