//! The preparation of operations: everything that must not be timed.

use std::ops::Range;

use crate::keys::KeySet;
use crate::random::{Permutation, Random};
use crate::run::RunSpec;
use crate::value;
use crate::workload::{MULTI_GET_KEYS, Workload, ZIPF_EXPONENT};
use crate::zipf::Zipf;

/// Bytes of prepared keys and values that a chunk should stay below, so that it does not push the database's
/// own data out of the processor's cache.
const CHUNK_BYTES: usize = 64 << 10;

/// The most operations in a chunk.
const CHUNK_OPS: usize = 1024;

/// What one operation does, and which answer is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Put `other` under `key`.
    Put,
    /// Get `key`, which has a value.
    GetExisting,
    /// Get `key`, which has none.
    GetAbsent,
    /// Look for a key from `key` to `other`.
    EmptyRange,
    /// Seek to `key`, which exists, and read so many entries behind it.
    Seek(usize),
}

/// One prepared operation; ranges point into [`Chunk::bytes`].
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) action: Action,
    pub(super) key: Range<usize>,
    pub(super) other: Range<usize>,
    /// The key's [`tag`](value::tag_of), where a value is expected.
    pub(super) tag: u64,
}

/// A few operations, ready to be executed.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    pub(super) ops: Vec<Op>,
}

/// Prepares the operations of one thread, chunk by chunk, in one reused buffer.
pub(super) struct Source<'a> {
    spec: &'a RunSpec<'a>,
    order: &'a [u64],
    thread: u64,
    threads: u64,
    random: Random,
    /// Scrambles fill order and Zipf ranks over the key set.
    permutation: Permutation,
    zipf: Option<Zipf>,
    chunk: Chunk,
    scratch: Vec<u8>,
}

impl<'a> Source<'a> {
    pub(super) fn new(spec: &'a RunSpec<'a>, order: &'a [u64], thread: u64, threads: u64) -> Self {
        let zipf = spec.workload == Workload::GetZipf;
        Source {
            spec,
            order,
            thread,
            threads,
            random: Random::part(spec.seed, (spec.workload as u64) << 32 | thread),
            permutation: Permutation::new(spec.keys.len(), spec.seed),
            zipf: zipf.then(|| Zipf::new(spec.keys.len(), ZIPF_EXPONENT)),
            chunk: Chunk::default(),
            scratch: Vec::new(),
        }
    }

    /// How many operations the next chunk should have.
    pub(super) fn chunk_ops(&self) -> u64 {
        let value = if self.spec.workload.writes() { self.spec.value_bytes } else { 0 };
        let ops = CHUNK_BYTES / (self.spec.keys.key_bytes() as usize + value + 1);
        let ops = ops.clamp(1, CHUNK_OPS);
        match self.spec.workload {
            Workload::MultiGet => ops.next_multiple_of(MULTI_GET_KEYS) as u64,
            _ => ops as u64,
        }
    }

    /// Prepares operations `from..from + count` of this thread.
    pub(super) fn prepare(&mut self, from: u64, count: u64) -> &Chunk {
        self.chunk.bytes.clear();
        self.chunk.ops.clear();
        for n in from..from + count {
            self.push(n);
        }
        &self.chunk
    }

    fn push(&mut self, n: u64) {
        let keys = self.spec.keys;
        match self.spec.workload {
            Workload::FillRandom => self.put(self.permutation.at(self.thread + n * self.threads), 0),
            Workload::FillSeq => self.put(self.order[(self.thread + n * self.threads) as usize], 0),
            Workload::Overwrite => self.overwrite(),
            Workload::GetEmpty => self.get_absent(),
            Workload::GetExisting => self.get_any(),
            Workload::GetMixed | Workload::MultiGet if self.random.chance(50) => self.get_absent(),
            Workload::GetMixed | Workload::MultiGet => self.get_any(),
            Workload::ReadWrite if self.random.chance(50) => self.overwrite(),
            Workload::ReadWrite => self.get_any(),
            Workload::GetZipf => {
                let zipf = self.zipf.as_ref().expect("made for this workload");
                let i = self.permutation.at(zipf.draw(&mut self.random));
                self.existing(Action::GetExisting, i);
            }
            Workload::Seek => {
                let i = self.random.below(keys.len());
                self.existing(Action::Seek(0), i);
            }
            Workload::SeekNext50 => {
                let i = self.random.below(keys.len());
                self.existing(Action::Seek(crate::workload::NEXT_ENTRIES), i);
            }
            Workload::RangeEmpty => self.empty_range(),
        }
    }

    fn put(&mut self, i: u64, version: u32) {
        let start = self.chunk.bytes.len();
        self.spec.keys.existing(i, &mut self.chunk.bytes);
        let end = self.chunk.bytes.len();
        let tag = value::tag_of(&self.chunk.bytes[start..end]);
        value::fill(tag, version, self.spec.value_bytes, &mut self.chunk.bytes);
        let other = end..self.chunk.bytes.len();
        self.chunk.ops.push(Op { action: Action::Put, key: start..end, other, tag });
    }

    fn overwrite(&mut self) {
        let (i, version) = (self.random.below(self.spec.keys.len()), self.random.next_u64() as u32);
        self.put(i, version);
    }

    fn get_any(&mut self) {
        let i = self.random.below(self.spec.keys.len());
        self.existing(Action::GetExisting, i);
    }

    fn existing(&mut self, action: Action, i: u64) {
        let start = self.chunk.bytes.len();
        self.spec.keys.existing(i, &mut self.chunk.bytes);
        let key = start..self.chunk.bytes.len();
        let tag = value::tag_of(&self.chunk.bytes[key.clone()]);
        self.chunk.ops.push(Op { action, key, other: 0..0, tag });
    }

    fn get_absent(&mut self) {
        let start = self.chunk.bytes.len();
        let i = self.random.below(self.spec.keys.absent_len());
        self.spec.keys.absent(i, &mut self.chunk.bytes);
        let key = start..self.chunk.bytes.len();
        self.chunk.ops.push(Op { action: Action::GetAbsent, key, other: 0..0, tag: 0 });
    }

    fn empty_range(&mut self) {
        let keys: &KeySet = self.spec.keys;
        let start = self.chunk.bytes.len();
        loop {
            self.scratch.clear();
            self.chunk.bytes.truncate(start);
            let i = self.random.below(keys.len());
            if keys.empty_range(i, &mut self.chunk.bytes, &mut self.scratch) {
                break;
            }
        }
        let middle = self.chunk.bytes.len();
        self.chunk.bytes.extend_from_slice(&self.scratch);
        let other = middle..self.chunk.bytes.len();
        self.chunk.ops.push(Op { action: Action::EmptyRange, key: start..middle, other, tag: 0 });
    }
}
