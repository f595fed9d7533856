//! The options of a keyspace that may change while it is open, and what follows from them.

use tamis_policy::compaction::policy::{CompactionPolicy, policy_for};

use crate::options::KeyspaceOptions;

/// The current options of a keyspace, and the policy derived from them.
#[derive(Debug)]
pub(crate) struct Shaping {
    pub(crate) options: KeyspaceOptions,
    pub(crate) policy: Box<dyn CompactionPolicy>,
}

impl Shaping {
    pub(crate) fn new(options: KeyspaceOptions) -> Shaping {
        Shaping { policy: policy_for(&options.policy()), options }
    }
}
