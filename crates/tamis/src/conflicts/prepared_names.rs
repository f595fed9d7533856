//! Which transactions are prepared. See [`prepared`](crate::transaction::prepared).

use std::collections::BTreeMap;

use crate::conflicts::locks::Owner;
use crate::sync::Mutex;

/// The state of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PreparedPhase {
    /// The transaction is being prepared, committed or aborted.
    Busy,
    Prepared,
}

#[derive(Debug, Default)]
pub(crate) struct PreparedNames {
    pub(crate) loaded: bool,
    pub(crate) by_name: BTreeMap<Vec<u8>, (Owner, PreparedPhase)>,
}

/// The prepared transactions of an open database.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) names: Mutex<PreparedNames>,
}
