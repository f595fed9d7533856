//! Judging the [condition](crate::conflicts::condition) of a batch against the writes since its
//! transaction began.

use tamis_base::key::SeqNo;

use crate::batch::WriteBatch;
use crate::conflicts::bugs::Bug;
use crate::conflicts::condition::{Condition, Refusal};
use crate::conflicts::footprint::{KeyspaceFootprint, met_by};
use crate::session::Session;

impl Session {
    /// Judges what is committed by now, without holding any lock: ranges may take a while. Only
    /// later writes are left for the leader.
    pub(crate) fn judge_ahead(&self, condition: &mut Condition) -> Result<(), Refusal> {
        // Load the visible number before the views: every write at or below it is in a memtable
        // that the view has or had.
        let seen = self.visible();
        for part in condition.parts.iter_mut().filter(|part| part.since < seen) {
            self.judge_part(part)?;
            part.since = seen;
        }
        Ok(())
    }

    /// Reports whether the condition of a group's member holds, and notes the verdict. `last` is
    /// the last write assigned, `ahead` are the members before it that commit, and `seq` is the
    /// number that its own last write would get. The caller holds the log lock.
    pub(crate) fn judge(
        &self,
        condition: &Condition,
        last: SeqNo,
        ahead: &[&WriteBatch],
        seq: SeqNo,
    ) -> bool {
        let judged = self.judged(condition, last, ahead);
        let holds = judged.is_ok();
        if !holds {
            self.observed.write_counters.conflicts.add(1);
        }
        let first = condition.verdict.set(judged.map(|()| seq));
        debug_assert!(first.is_ok(), "a condition is judged once");
        holds || self.transactions.history.bugs.make(Bug::Refused)
    }

    fn judged(&self, condition: &Condition, last: SeqNo, ahead: &[&WriteBatch]) -> Result<(), Refusal> {
        let dropped =
            condition.parts.iter().map(|part| &part.keyspace).find(|keyspace| keyspace.is_dropped());
        if let Some(keyspace) = dropped {
            return Err(Refusal::Dropped { name: keyspace.name().to_owned() });
        }
        let ahead = if self.transactions.history.bugs.make(Bug::Ahead) { &[] } else { ahead };
        let met = ahead.iter().find_map(|batch| met_by(&condition.parts, batch));
        if let Some((part, key)) = met {
            return Err(conflict(part, key));
        }
        condition.parts.iter().filter(|part| part.since < last).try_for_each(|part| self.judge_part(part))
    }

    fn judge_part(&self, part: &KeyspaceFootprint) -> Result<(), Refusal> {
        if part.is_empty() {
            return Ok(());
        }
        // Load the view before the history: see there.
        let view = part.keyspace.view.load();
        if part.keyspace.is_dropped() {
            return Err(Refusal::Dropped { name: part.keyspace.name().to_owned() });
        }
        let mut met = view.memtables.iter().find_map(|slot| part.meets_memtable(&slot.memtable));
        if met.is_none() {
            let ingested = |range: &_, seq| {
                if met.is_none() {
                    met = part.meets_ingested(range, seq);
                }
            };
            let kept = self.transactions.history.since(part.keyspace.id, part.since, ingested);
            let forgotten = || Refusal::Forgotten { keyspace: part.keyspace.name().to_owned() };
            let kept = kept.ok_or_else(forgotten)?;
            met = met.or_else(|| kept.iter().find_map(|slot| part.meets_memtable(&slot.memtable)));
        }
        met.map_or(Ok(()), |key| Err(conflict(part, key)))
    }
}

fn conflict(part: &KeyspaceFootprint, key: Vec<u8>) -> Refusal {
    Refusal::Conflict { keyspace: part.keyspace.name().to_owned(), key }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use smallvec::smallvec;

    use super::*;
    use crate::conflicts::footprint::Points;
    use crate::io::MemFs;
    use crate::{Db, Options, TransactionError, sync};

    fn open() -> Db {
        Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() }.open("/db").unwrap()
    }

    /// Others would wait for a leader that walks over ranges.
    #[test]
    fn ranges_are_judged_before_the_log_is_taken() {
        let db = open();
        db.put("b", "1").unwrap();
        let mut tx = db.transaction();
        assert_eq!(tx.range("a".."c").count(), 1);
        tx.put("x", "2").unwrap();
        db.put("b", "3").unwrap();
        let log = db.inner().log.lock();
        let done = AtomicBool::new(false);
        sync::thread::scope(|scope| {
            let commit = || {
                let committed = tx.commit();
                done.store(true, Ordering::SeqCst);
                committed
            };
            let commit = scope.spawn("commit".to_owned(), commit).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            while !done.load(Ordering::SeqCst) && Instant::now() < deadline {
                sync::thread::sleep(Duration::from_millis(1));
            }
            let was_done = done.load(Ordering::SeqCst);
            drop(log);
            let committed = commit.join().unwrap();
            assert!(matches!(committed, Err(TransactionError::Conflict { .. })) && was_done);
        });
        assert_eq!(db.stats().write.conflicts, 1);
    }

    #[test]
    fn what_was_judged_ahead_is_not_left_for_the_leader() {
        let db = open();
        (0..3).for_each(|i| db.put("a", [i]).unwrap());
        let keyspace = db.default_keyspace().inner.clone();
        let range = (1, (b"b".to_vec(), Some(b"c".to_vec())));
        let read = KeyspaceFootprint::new(keyspace.clone(), 1, Points::new(), vec![range]);
        let mut condition = Condition::new(smallvec![read, KeyspaceFootprint::existence(keyspace)]);
        let exists = condition.parts[1].since;
        db.inner().judge_ahead(&mut condition).unwrap();
        assert_eq!((condition.parts[0].since, condition.parts[1].since), (3, exists));
    }
}
