//! Write batches: operations that become visible and durable together.
//!
//! A batch holds its operations in the encoding of the log (`docs/formats/logs.md`), so committing it
//! only copies bytes. [`ops`](WriteBatch::ops) reads them back. Recovery decodes the payloads of
//! log records with the same code, so that code trusts nothing.
//!
//! Invariants: an encoded range is never empty and its end is exclusive or open; keys and values
//! respect [`MAX_KEY_BYTES`] and [`MAX_VALUE_BYTES`]. An operation that exceeds a limit is not
//! added; the first such error is kept and reported when the batch is committed, so filling a batch
//! needs no error handling.

use std::ops::{Bound, RangeBounds};

use smallvec::SmallVec;
use tamis_base::ids::{DEFAULT_KEYSPACE, KeyspaceId};
use tamis_base::key::{MAX_KEY_BYTES, MAX_VALUE_BYTES, prefix_successor};
use tamis_files::codec::Encode;
use tamis_files::sums::{RecordHash, RecordSum};
use tamis_files::wal::ops::{BatchOp, Ops, tag};
use tamis_filter::Digest;

use crate::error::WriteError;

/// A set of writes that is applied atomically, in the order in which they were added: of two writes
/// to one key, the later one wins.
///
/// Keys may have up to [`MAX_KEY_BYTES`] and values up to [`MAX_VALUE_BYTES`] bytes. Adding a
/// larger write succeeds, but then committing the batch fails.
#[derive(Clone, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    len: usize,
    error: Option<WriteError>,
    /// The key digests of the operations that have one, in order. Computed when an operation is
    /// added, so that committing hashes nothing while other writers wait.
    digests: SmallVec<[Digest; 4]>,
    /// The keyspaces written to, each once.
    keyspaces: SmallVec<[KeyspaceId; 4]>,
    /// The keyspaces that merge operands are written to, each once.
    merged: SmallVec<[KeyspaceId; 2]>,
    /// The sum of the operations as they were added, if the batch is protected.
    sum: Option<RecordSum>,
    /// The open database that the named keyspaces belong to, and the name of the first of them.
    owner: Option<(u64, String)>,
}

debug_as!(WriteBatch, "WriteBatch", batch => "operations": batch.len, "bytes": batch.bytes.len());

impl WriteBatch {
    /// Creates an empty batch.
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Creates an empty batch with room for `bytes` bytes of operations: keys, values, and about
    /// six bytes per operation.
    pub fn with_capacity(bytes: usize) -> WriteBatch {
        WriteBatch { bytes: Vec::with_capacity(bytes), ..WriteBatch::default() }
    }

    /// Creates an empty batch that notices if its memory changes between the addition of an
    /// operation and its commit, as faulty memory does. The commit then fails. For databases with
    /// [`protect_writes`](crate::Options::protect_writes); others do not look. Costs a hash of each
    /// key and value.
    pub fn protected() -> WriteBatch {
        WriteBatch { sum: Some(RecordSum::default()), ..WriteBatch::default() }
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.put_id(DEFAULT_KEYSPACE, key.as_ref(), value.as_ref())
    }

    /// Deletes `key`; it need not exist.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.delete_id(DEFAULT_KEYSPACE, key.as_ref())
    }

    /// Applies `operand` to the value of `key` with the keyspace's merge operator, without reading
    /// it: the cost is that of a put. Committing the batch fails if the keyspace has no operator.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> &mut Self {
        self.merge_id(DEFAULT_KEYSPACE, key.as_ref(), operand.as_ref())
    }

    /// Deletes all keys in `range`, at a cost independent of their number. A range that starts
    /// after its end makes committing the batch fail; an empty range does nothing.
    pub fn delete_range<K: AsRef<[u8]>>(&mut self, range: impl RangeBounds<K>) -> &mut Self {
        self.delete_range_id(DEFAULT_KEYSPACE, range)
    }

    /// Deletes all keys that start with `prefix`, at a cost independent of their number. The empty
    /// prefix matches every key.
    pub fn delete_prefix(&mut self, prefix: impl AsRef<[u8]>) -> &mut Self {
        self.delete_prefix_id(DEFAULT_KEYSPACE, prefix.as_ref())
    }

    /// Like [`delete_prefix`](Self::delete_prefix), in a keyspace.
    pub(crate) fn delete_prefix_id(&mut self, keyspace: KeyspaceId, prefix: &[u8]) -> &mut Self {
        let end = prefix_successor(prefix);
        let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.delete_range_id::<&[u8]>(keyspace, (Bound::Included(prefix), end))
    }

    /// Like [`put`](Self::put), in a keyspace.
    pub(crate) fn put_id(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> &mut Self {
        self.pair(tag::PUT, keyspace, key, value)
    }

    /// Like [`merge`](Self::merge), in a keyspace.
    pub(crate) fn merge_id(&mut self, keyspace: KeyspaceId, key: &[u8], operand: &[u8]) -> &mut Self {
        let before = self.len;
        self.pair(tag::MERGE, keyspace, key, operand);
        if self.len > before && !self.merged.contains(&keyspace) {
            self.merged.push(keyspace);
        }
        self
    }

    /// Adds an operation with a key and a value.
    fn pair(&mut self, tag: u8, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> &mut Self {
        if let Err(e) = check_value(value).and_then(|()| check_key(key)) {
            return self.refuse(e);
        }
        self.bytes.reserve(key.len() + value.len() + 1 + 5 + 3 + 5);
        self.begin(tag, keyspace, key, value);
        self.put_key(key);
        self.bytes.put_bytes(value);
        self
    }

    /// Like [`delete`](Self::delete), in a keyspace.
    pub(crate) fn delete_id(&mut self, keyspace: KeyspaceId, key: &[u8]) -> &mut Self {
        if let Err(e) = check_key(key) {
            return self.refuse(e);
        }
        self.begin(tag::DELETE, keyspace, key, b"");
        self.put_key(key);
        self
    }

    /// Like [`delete_range`](Self::delete_range), in a keyspace.
    pub(crate) fn delete_range_id<K: AsRef<[u8]>>(
        &mut self,
        keyspace: KeyspaceId,
        range: impl RangeBounds<K>,
    ) -> &mut Self {
        match normalize_range(range) {
            Err(e) => return self.refuse(e),
            Ok(None) => {}
            Ok(Some((start, Some(end)))) => {
                self.begin(tag::DELETE_RANGE, keyspace, &start, &end);
                self.bytes.put_bytes(&start);
                self.bytes.put_bytes(&end);
            }
            Ok(Some((start, None))) => {
                self.begin(tag::DELETE_FROM, keyspace, &start, b"");
                self.bytes.put_bytes(&start);
            }
        }
        self
    }

    /// Like [`put_id`](Self::put_id), with the digest of `key`. Key and value have been checked.
    pub(crate) fn put_digested(&mut self, keyspace: KeyspaceId, key: &[u8], digest: Digest, value: &[u8]) {
        self.begin(tag::PUT, keyspace, key, value);
        self.put_key_digested(key, digest);
        self.bytes.put_bytes(value);
    }

    /// Like [`put_digested`](Self::put_digested), with a value that has not been checked.
    pub(crate) fn put_checked(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        digest: Digest,
        value: &[u8],
    ) -> Result<(), WriteError> {
        check_value(value)?;
        self.put_digested(keyspace, key, digest, value);
        Ok(())
    }

    /// Like [`delete_id`](Self::delete_id), with the digest of `key`, which has been checked.
    pub(crate) fn delete_digested(&mut self, keyspace: KeyspaceId, key: &[u8], digest: Digest) {
        self.begin(tag::DELETE, keyspace, key, b"");
        self.put_key_digested(key, digest);
    }

    /// Like [`merge_id`](Self::merge_id), with the digest of `key`. Key and operand have been
    /// checked.
    pub(crate) fn merge_digested(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        digest: Digest,
        operand: &[u8],
    ) {
        self.begin(tag::MERGE, keyspace, key, operand);
        self.put_key_digested(key, digest);
        self.bytes.put_bytes(operand);
        if !self.merged.contains(&keyspace) {
            self.merged.push(keyspace);
        }
    }

    /// Returns a batch of one operation that changes nothing but takes an ingestion's sequence
    /// number, so that the log's sequence numbers have no gap.
    pub(crate) fn ingestion(keyspace: KeyspaceId) -> WriteBatch {
        let mut batch = WriteBatch::new();
        batch.begin(tag::INGESTION, keyspace, b"", b"");
        batch.bytes.put_bytes(b"");
        batch
    }

    fn begin(&mut self, tag: u8, keyspace: KeyspaceId, key: &[u8], value: &[u8]) {
        if let Some(sum) = &mut self.sum {
            sum.add(RecordHash::of(tag, key, value), place_in_batch(self.len, keyspace));
        }
        self.bytes.put_u8(tag);
        self.bytes.put_varint(keyspace.into());
        self.len += 1;
        if !self.keyspaces.contains(&keyspace) {
            self.keyspaces.push(keyspace);
        }
    }

    fn put_key(&mut self, key: &[u8]) {
        self.put_key_digested(key, Digest::of(key));
    }

    fn put_key_digested(&mut self, key: &[u8], digest: Digest) {
        self.bytes.put_bytes(key);
        self.digests.push(digest);
    }

    fn refuse(&mut self, error: WriteError) -> &mut Self {
        self.error.get_or_insert(error);
        self
    }

    /// Returns the number of operations. Each one takes a sequence number.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reports whether the batch holds no operations.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of the batch in the log, in bytes.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Removes all operations and any pending error; keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.len = 0;
        self.error = None;
        self.sum = self.sum.map(|_| RecordSum::default());
        self.digests.clear();
        self.keyspaces.clear();
        self.merged.clear();
        self.owner = None;
    }

    /// Records that the batch writes to the keyspace `name` of the open database `owner`.
    pub(crate) fn claim(&mut self, owner: u64, name: &str) {
        match &self.owner {
            None => self.owner = Some((owner, name.to_owned())),
            Some((known, _)) if *known == owner => {}
            Some(_) => _ = self.refuse(WriteError::ForeignKeyspace { name: name.to_owned() }),
        }
    }

    /// Checks that every named keyspace belongs to the open database `owner`.
    pub(crate) fn check_owner(&self, owner: u64) -> Result<(), WriteError> {
        match &self.owner {
            Some((known, name)) if *known != owner => Err(WriteError::ForeignKeyspace { name: name.clone() }),
            _ => Ok(()),
        }
    }

    /// Makes the batch [protected](Self::protected) from now on.
    pub(crate) fn protect(&mut self) {
        self.sum.get_or_insert_with(|| sum_of(Ops::new(&self.bytes)));
    }

    /// Reports whether the operations are those that were added, as far as the batch is protected.
    pub(crate) fn is_intact(&self) -> bool {
        self.sum.is_none_or(|sum| {
            let ops = self.ops().map_while(Result::ok);
            let digests = ops.filter_map(|op| op.key().map(Digest::of));
            sum == sum_of(self.ops()) && digests.eq(self.digests.iter().copied())
        })
    }

    /// Returns the keyspaces written to, each once.
    pub(crate) fn keyspaces(&self) -> &[KeyspaceId] {
        &self.keyspaces
    }

    /// Returns the keyspaces that merge operands are written to, each once.
    pub(crate) fn merged(&self) -> &[KeyspaceId] {
        &self.merged
    }

    /// Returns the first error that adding an operation caused.
    pub(crate) fn check(&self) -> Result<(), WriteError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Returns the encoded operations.
    #[doc(hidden)]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns what comes before the value of the only operation, a put whose value is empty here,
    /// when it is `value`: the operation up to the value's length, and that length.
    pub(crate) fn around_value(&self, value: &[u8]) -> (&[u8], Vec<u8>) {
        debug_assert_eq!((self.len, self.bytes.last()), (1, Some(&0)), "a put of an empty value");
        let mut len = Vec::with_capacity(5);
        len.put_varint(value.len() as u64);
        (&self.bytes[..self.bytes.len() - 1], len)
    }

    /// Returns the key digests of the operations that have one, in the order in which they were
    /// added.
    pub(crate) fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// Returns the operations in the order in which they were added.
    pub(crate) fn ops(&self) -> Ops<'_> {
        Ops::new(&self.bytes)
    }
}

/// The number of an operation in the batch's sum.
fn place_in_batch(at: usize, keyspace: KeyspaceId) -> u64 {
    (at as u64).rotate_left(32) ^ u64::from(keyspace)
}

/// The sum of operations. What cannot be decoded is not part of it.
fn sum_of(ops: Ops<'_>) -> RecordSum {
    let mut sum = RecordSum::default();
    for (at, op) in ops.map_while(Result::ok).enumerate() {
        let (tag, key, value) = match op {
            BatchOp::Put { key, value, .. } => (tag::PUT, key, value),
            BatchOp::Merge { key, operand, .. } => (tag::MERGE, key, operand),
            BatchOp::Delete { key, .. } => (tag::DELETE, key, &b""[..]),
            BatchOp::DeleteRange { start, end: Some(end), .. } => (tag::DELETE_RANGE, start, end),
            BatchOp::DeleteRange { start, end: None, .. } => (tag::DELETE_FROM, start, &b""[..]),
            BatchOp::Ingestion { .. } => (tag::INGESTION, &b""[..], &b""[..]),
        };
        sum.add(RecordHash::of(tag, key, value), place_in_batch(at, op.keyspace()));
    }
    sum
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), WriteError> {
    match key.len() {
        0..=MAX_KEY_BYTES => Ok(()),
        len => Err(WriteError::KeyTooLong { len, max: MAX_KEY_BYTES }),
    }
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), WriteError> {
    match value.len() {
        0..=MAX_VALUE_BYTES => Ok(()),
        len => Err(WriteError::ValueTooLong { len, max: MAX_VALUE_BYTES }),
    }
}

/// A range as an inclusive start and an exclusive end (`None`: unbounded).
pub(crate) type NormalRange = (Vec<u8>, Option<Vec<u8>>);

/// Normalizes the bounds of a range. Returns `None` if the range is empty.
///
/// Errors: a bound longer than a key may be, or a start after the end.
pub(crate) fn normalize_range<K: AsRef<[u8]>>(
    range: impl RangeBounds<K>,
) -> Result<Option<NormalRange>, WriteError> {
    fn key_of<K: AsRef<[u8]>>(bound: Bound<&K>) -> Result<Option<&[u8]>, WriteError> {
        match bound {
            Bound::Included(key) | Bound::Excluded(key) => {
                check_key(key.as_ref())?;
                Ok(Some(key.as_ref()))
            }
            Bound::Unbounded => Ok(None),
        }
    }
    let (first, last) = (key_of(range.start_bound())?, key_of(range.end_bound())?);
    if let (Some(first), Some(last)) = (first, last)
        && first > last
    {
        return Err(WriteError::ReversedRange);
    }
    let mut start = first.unwrap_or_default().to_vec();
    if matches!(range.start_bound(), Bound::Excluded(_)) {
        start.push(0);
    }
    let mut end = last.map(<[u8]>::to_vec);
    if let (Bound::Included(_), Some(end)) = (range.end_bound(), &mut end) {
        end.push(0);
    }
    let empty = end.as_ref().is_some_and(|end| start >= *end);
    Ok((!empty).then_some((start, end)))
}

#[cfg(test)]
mod tests;
