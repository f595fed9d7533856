//! Options that are about to change. See [`reshape`](crate::jobs::reshape).

use std::sync::Arc;

use tamis_base::collections::HashMap;
use tamis_base::ids::KeyspaceId;
use tamis_model::engine::Workload;

use crate::catalogue::shaping::Shaping;
use crate::catalogue::tuning::Tuning;
use crate::options::KeyspaceOptions;

/// What may change the options of one keyspace.
#[derive(Debug, Default)]
pub(crate) struct OptionsChange {
    /// Its workload as far as known, and the options change under consideration.
    tuning: Tuning,
    /// Options that take effect when the running compaction round ends.
    pub(crate) waiting: Option<Arc<Shaping>>,
}

/// What may change the options of keyspaces. Behind the `state` lock.
#[derive(Debug, Default)]
pub(crate) struct Reshaping {
    changes: HashMap<KeyspaceId, OptionsChange>,
}

impl Reshaping {
    /// Starts with the workloads seen in earlier sessions.
    pub(crate) fn having_seen(seen: Vec<(KeyspaceId, Workload)>) -> Reshaping {
        let change = |seen| OptionsChange { tuning: Tuning::having_seen(seen), waiting: None };
        Reshaping { changes: seen.into_iter().map(|(id, seen)| (id, change(seen))).collect() }
    }

    pub(crate) fn of(&mut self, keyspace: KeyspaceId) -> &mut OptionsChange {
        self.changes.entry(keyspace).or_default()
    }

    pub(crate) fn tuning(&mut self, keyspace: KeyspaceId) -> &mut Tuning {
        &mut self.of(keyspace).tuning
    }

    /// Returns the options that take effect when the running compaction round ends.
    pub(crate) fn waiting(&self, keyspace: KeyspaceId) -> Option<&Arc<Shaping>> {
        self.changes.get(&keyspace)?.waiting.as_ref()
    }

    /// Returns the last observed workload.
    pub(crate) fn seen(&self, keyspace: KeyspaceId) -> Option<Workload> {
        self.changes.get(&keyspace)?.tuning.seen
    }

    /// Reports whether anything is known that may change a keyspace's options.
    pub(crate) fn has_change(&self, keyspace: KeyspaceId) -> bool {
        self.changes.contains_key(&keyspace)
    }

    /// Returns the options to store when `now` are in effect.
    pub(crate) fn to_store(&self, keyspace: KeyspaceId, now: &KeyspaceOptions) -> KeyspaceOptions {
        self.changes.get(&keyspace).map_or_else(|| now.clone(), |change| change.tuning.stored(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_of_a_keyspace_may_change_its_options() {
        let workload: Workload = "get 50, put 50".parse().unwrap();
        let mut reshaping = Reshaping::having_seen(vec![(3, workload)]);
        assert_eq!((reshaping.seen(3), reshaping.seen(4)), (Some(workload), None));
        assert_eq!((reshaping.has_change(3), reshaping.has_change(4)), (true, false));
        assert!(reshaping.of(4).waiting.is_none());
        assert_eq!((reshaping.seen(4), reshaping.has_change(4)), (None, true));
    }
}
