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
