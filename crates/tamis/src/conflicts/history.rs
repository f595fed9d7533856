//! Recent commits, for the validation of transactions: was a key, or any key of a range, written
//! after some moment?
//!
//! The memtables have the answer already: every write since they began, under its sequence number,
//! in key order, behind a filter by digest. So writers pay nothing for transactions and keep
//! nothing for them. What memtables lack are the writes of flushed memtables, and ingestions, which
//! never were in one. Both are kept here while a transaction that may ask for them is open.
//!
//! # Invariants
//!
//! * For every keyspace, the view's memtables and those kept here hold all writes after the
//!   keyspace's *floor*. A transaction that began before the floor cannot be validated, and its
//!   commit is refused ([`TransactionError::TooOld`]).
//! * A memtable is kept here before it leaves the view, and a validation loads the view first: so
//!   it finds every memtable in one or the other.
//! * An ingestion is recorded before its number becomes visible, and kept at least until then.
//! * Nothing is kept that every open transaction has seen from its beginning. Without a
//!   transaction, nothing visible is kept.
//! * Whatever is released raises the floor. Changes of single keys ([`atomic`](crate::api::atomic))
//!   are validated without being among the open transactions, and start over if they are older than
//!   the floor.
//!
//! # Bounds
//!
//! The memtables kept take at most `transaction_history_bytes`. Beyond that the oldest are
//! released, which raises floors. Of ingestions, the newest [`MOST_INGESTED`] files are kept.
//!
//! # Threads and locks
//!
//! One leaf lock. Flushes and ingestions add to the history (under `state`); transactions that end
//! release from it. Flushes and releases hold `snapshots`, so that the list of open transactions
//! does not change meanwhile. The holder of the log's lock asks. Nothing under the lock can fail.
//!
//! [`TransactionError::TooOld`]: crate::TransactionError::TooOld

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tamis_base::collections::HashMap;
use tamis_base::ids::KeyspaceId;
use tamis_base::key::SeqNo;
use tamis_policy::compaction::shape::KeyRange;

use crate::conflicts::bugs::{Bug, Bugs};
use crate::read::MemtableSlot;
use crate::sync::Mutex;

/// The most ingested files that are remembered.
const MOST_INGESTED: usize = 4096;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct History {
    limit: u64,
    /// Whether anything is kept: only a hint, for transactions that end. Set and cleared under the
    /// lock.
    pub(crate) any: AtomicBool,
    kept: Mutex<KeptWrites>,
    /// What tests let it, and its callers, do wrong.
    pub(crate) bugs: Bugs,
}

#[derive(Debug, Default)]
struct KeptWrites {
    /// Oldest first.
    memtables: VecDeque<KeptMemtable>,
    bytes: u64,
    /// Oldest first.
    ingested: VecDeque<Ingested>,
    /// For each keyspace, the newest write that is no longer kept; 0 if it is not listed.
    floors: HashMap<KeyspaceId, SeqNo>,
}

#[derive(Debug)]
pub(crate) struct KeptMemtable {
    keyspace: KeyspaceId,
    slot: Arc<MemtableSlot>,
    /// Its last write.
    last: SeqNo,
    bytes: u64,
}

/// The key range of one ingested file.
#[derive(Debug)]
pub(crate) struct Ingested {
    pub(crate) keyspace: KeyspaceId,
    pub(crate) seq: SeqNo,
    pub(crate) range: KeyRange,
}

impl KeptWrites {
    fn raise_floor(&mut self, keyspace: KeyspaceId, seq: SeqNo) {
        let floor = self.floors.entry(keyspace).or_default();
        *floor = (*floor).max(seq);
    }

    /// Removes the memtables for which `gone` holds, and returns them, since freeing one takes a
    /// while.
    fn give_up(&mut self, gone: impl Fn(&KeptMemtable) -> bool) -> Vec<KeptMemtable> {
        let mut given_up = Vec::new();
        for memtable in std::mem::take(&mut self.memtables) {
            if gone(&memtable) {
                self.bytes -= memtable.bytes;
                self.raise_floor(memtable.keyspace, memtable.last);
                given_up.push(memtable);
            } else {
                self.memtables.push_back(memtable);
            }
        }
        given_up
    }
}

impl History {
    pub(crate) fn new(limit: u64) -> History {
        History { limit, any: AtomicBool::new(false), kept: Mutex::default(), bugs: Bugs::default() }
    }

    /// Returns what is kept of a keyspace for a transaction that began at `since`: memtables and
    /// ingested ranges with later writes. `None` if some of it was released. Load the keyspace's
    /// view before.
    pub(crate) fn since(
        &self,
        keyspace: KeyspaceId,
        since: SeqNo,
        mut ingested: impl FnMut(&KeyRange, SeqNo),
    ) -> Option<Vec<Arc<MemtableSlot>>> {
        let kept = self.kept.lock();
        if self.bugs.make(Bug::Flushed) {
            return Some(Vec::new());
        }
        if kept.floors.get(&keyspace).is_some_and(|floor| *floor > since) {
            return None;
        }
        let later = |of: KeyspaceId, seq: SeqNo| of == keyspace && seq > since;
        kept.ingested
            .iter()
            .filter(|one| later(one.keyspace, one.seq))
            .for_each(|one| ingested(&one.range, one.seq));
        let memtables = kept.memtables.iter().filter(|one| later(one.keyspace, one.last));
        Some(memtables.map(|one| one.slot.clone()).collect())
    }

    /// Returns the bytes of the memtables kept.
    pub(crate) fn bytes(&self) -> u64 {
        if self.any.load(Relaxed) { self.kept.lock().bytes } else { 0 }
    }

    pub(crate) fn keep(
        &self,
        keyspace: KeyspaceId,
        slots: &[Arc<MemtableSlot>],
        oldest: Option<SeqNo>,
    ) -> Vec<KeptMemtable> {
        let mut kept = self.kept.lock();
        let mut given_up = Vec::new();
        for slot in slots {
            let Some(last) = slot.memtable.max_seq() else { continue };
            // It keeps the logs of its large values open, too.
            let bytes = (slot.memtable.memory_bytes() + slot.memtable.logged_bytes()) as u64;
            let wanted = oldest.is_some_and(|oldest| last > oldest) && bytes <= self.limit;
            if !wanted {
                kept.raise_floor(keyspace, last);
            } else if !kept.memtables.iter().any(|known| Arc::ptr_eq(&known.slot, slot)) {
                kept.memtables.push_back(KeptMemtable { keyspace, slot: slot.clone(), last, bytes });
                kept.bytes += bytes;
            }
        }
        while kept.bytes > self.limit {
            let Some(oldest) = kept.memtables.iter().map(|memtable| memtable.last).min() else { break };
            given_up.extend(kept.give_up(|memtable| memtable.last == oldest));
        }
        self.any.store(!kept.memtables.is_empty() || !kept.ingested.is_empty(), Relaxed);
        given_up
    }

    pub(crate) fn note_ingested(&self, new: impl Iterator<Item = Ingested>) {
        let mut kept = self.kept.lock();
        kept.ingested.extend(new);
        while kept.ingested.len() > MOST_INGESTED
            && let Some(oldest) = kept.ingested.pop_front()
        {
            kept.raise_floor(oldest.keyspace, oldest.seq);
        }
        self.any.store(true, Relaxed);
    }

    /// Forgets a dropped keyspace: transactions that depend on it cannot commit. Returns its
    /// memtables, which take a while to free.
    pub(crate) fn forget(&self, keyspace: KeyspaceId) -> Vec<KeptMemtable> {
        let mut kept = self.kept.lock();
        let given_up = kept.give_up(|memtable| memtable.keyspace == keyspace);
        kept.floors.remove(&keyspace);
        given_up
    }

    /// Releases what every transaction has seen: all writes up to `seen`.
    pub(crate) fn trim(&self, seen: SeqNo) -> Vec<KeptMemtable> {
        let mut kept = self.kept.lock();
        let given_up = kept.give_up(|memtable| memtable.last <= seen);
        for one in std::mem::take(&mut kept.ingested) {
            if one.seq <= seen {
                kept.raise_floor(one.keyspace, one.seq);
            } else {
                kept.ingested.push_back(one);
            }
        }
        self.any.store(!kept.memtables.is_empty() || !kept.ingested.is_empty(), Relaxed);
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis_base::key::KeyEnd;

    fn slot(seq: SeqNo) -> Arc<MemtableSlot> {
        let memtable = crate::memtable::Memtable::with_chunks(1 << 20, 0, None);
        let op = tamis_files::wal::ops::BatchOp::Put { keyspace: 1, key: b"key", value: b"value" };
        memtable.writer().insert_op(&op, op.key().map(tamis_filter::Digest::of), seq, None);
        MemtableSlot::new(Arc::new(memtable), 1)
    }

    #[test]
    fn a_memtable_is_kept_if_a_transaction_is_older_and_the_limit_allows() {
        let slots = [slot(5), slot(9)];
        let bytes =
            slots.each_ref().map(|slot| (slot.memtable.memory_bytes() + slot.memtable.logged_bytes()) as u64);
        let kept = |history: &History, since| {
            history
                .since(1, since, |_, _| ())
                .map(|slots| slots.iter().filter_map(|one| one.memtable.max_seq()).collect())
        };
        let history = History::new(bytes[0] + bytes[1]);
        assert!(history.keep(1, &slots[..1], None).is_empty());
        assert!(history.keep(1, &slots[..1], Some(5)).is_empty());
        assert_eq!(history.bytes(), 0, "every transaction has seen it");
        assert_eq!((kept(&history, 4), kept(&history, 5)), (None, Some(vec![])));
        let history = History::new(bytes[0] + bytes[1]);
        for _ in 0..2 {
            // Together they are as large as allowed.
            assert!(history.keep(1, &slots, Some(4)).is_empty());
            assert_eq!(history.bytes(), bytes[0] + bytes[1]);
        }
        assert_eq!((kept(&history, 4), kept(&history, 5)), (Some(vec![5, 9]), Some(vec![9])));
        // The oldest goes for a third.
        let given_up = history.keep(1, &[slot(12)], Some(4));
        assert_eq!(given_up.iter().map(|one| one.last).collect::<Vec<_>>(), [5]);
        assert_eq!((kept(&history, 4), kept(&history, 5)), (None, Some(vec![9, 12])));
        assert_eq!(history.trim(9).len(), 1);
        assert_eq!((kept(&history, 8), kept(&history, 9)), (None, Some(vec![12])));
        assert_eq!(history.forget(1).len(), 1);
        assert_eq!((history.bytes(), kept(&history, 0)), (0, Some(vec![])));
        // One that is as large as allowed.
        let history = History::new(bytes[0]);
        assert!(history.keep(1, &slots[..1], Some(4)).is_empty());
        assert_eq!(kept(&history, 4), Some(vec![5]));
    }

    /// An ingestion of a file with the keys from "a" to "b".
    fn ingested(seq: SeqNo) -> Ingested {
        let range = KeyRange { smallest: b"a"[..].into(), largest: KeyEnd::Included(b"b"[..].into()) };
        Ingested { keyspace: 1, seq, range }
    }

    /// Transactions that end release from the history only if something is kept.
    #[test]
    fn whether_anything_is_kept_is_known_without_the_lock() {
        let history = History::new(u64::MAX);
        let any = || history.any.load(Relaxed);
        assert!(!any());
        history.note_ingested(std::iter::once(ingested(5)));
        assert!(any());
        assert!(history.keep(1, &[slot(3)], None).is_empty());
        assert!(any(), "the ingestion is still kept");
        history.trim(4);
        assert!(any());
        history.trim(5);
        assert!(!any());
        assert!(history.keep(1, &[slot(7)], Some(6)).is_empty());
        assert!(any());
        assert_eq!(history.trim(7).len(), 1);
        assert!(!any());
    }

    #[test]
    fn the_newest_ingested_files_are_kept() {
        let history = History::new(0);
        let found = |since| {
            let mut found = 0;
            history.since(1, since, |_, _| found += 1).map(|_| found)
        };
        history.note_ingested((1..=MOST_INGESTED as SeqNo).map(ingested));
        assert_eq!(found(0), Some(MOST_INGESTED));
        history.note_ingested(std::iter::once(ingested(5000)));
        assert_eq!((found(0), found(1)), (None, Some(MOST_INGESTED)));
    }

    /// When a transaction ended while an ingestion was being committed, the ingestion used to be
    /// forgotten: transactions that began before its number was visible, and changes of single keys
    /// under way, missed it.
    #[test]
    fn an_ingestion_is_kept_until_it_is_visible_and_not_forgotten_in_silence() {
        let history = History::new(0);
        let found = |since| {
            let mut count = 0;
            history.since(1, since, |_, _| count += 1).map(|_| count)
        };
        history.note_ingested(std::iter::once(ingested(5)));
        history.trim(4);
        assert_eq!((found(4), found(5)), (Some(1), Some(0)));
        history.trim(5);
        assert_eq!((found(4), found(5)), (None, Some(0)));
    }
}
