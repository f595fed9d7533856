//! Commits that are timed: a sample, and every one that waits for a sync or where slow ones are to be reported.

use std::sync::Arc;

use crate::batch::WriteBatch;
use crate::db::inner::DbInner;
use crate::db::transaction::condition::Condition;
use crate::error::WriteError;
use crate::observe::Explained;
use crate::observe::latency::Operation;
use crate::sync;

impl DbInner {
    #[cold]
    #[inline(never)]
    pub(super) fn commit_timed(
        &self,
        batch: WriteBatch,
        sync: bool,
        condition: Option<&Arc<Condition>>,
    ) -> Result<(), WriteError> {
        let kind = if sync || condition.is_some() { Operation::GroupWrite } else { Operation::Write };
        let (operations, bytes) = (batch.len(), batch.byte_len());
        let keyspace = batch.keyspaces().first().copied();
        let before = self.observer.times_all().then(|| self.write_counters.read());
        let started = sync::now();
        let result = self.commit_untimed(batch, sync, condition);
        self.observer.timed(kind, started, || {
            let cost = self.write_counters.read() - before.unwrap_or_default();
            let meanwhile = cost.fields().filter(|(_, count)| *count > 0);
            let meanwhile: Vec<String> = meanwhile.map(|(name, count)| format!("{name} {count}")).collect();
            let directory = self.directory.load();
            let keyspace = keyspace.and_then(|id| directory.get(&id));
            Explained {
                keyspace: keyspace.map_or_else(String::new, |keyspace| keyspace.name().to_owned()),
                key: None,
                explanation: format!(
                    "{operations} operations of {bytes} bytes{}; meanwhile, by all writers: {}",
                    if sync { ", synced" } else { "" },
                    meanwhile.join(", ")
                ),
            }
        });
        result
    }
}
