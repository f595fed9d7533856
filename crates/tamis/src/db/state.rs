//! The contents of the `state` lock.

use std::sync::Arc;

use crate::db::catalogue::Catalogue;
use crate::db::filter_upkeep::FilterUpkeep;
use crate::db::log::files::LogFiles;
use crate::db::read_debts::ReadDebts;
use crate::db::reshaping::Reshaping;
use crate::db::scheduler::Scheduler;
use crate::db::tree::KeyspaceInner;
use crate::select::Task;

/// Everything behind the `state` lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) catalogue: Catalogue,
    pub(crate) scheduler: Scheduler,
    pub(crate) filters: FilterUpkeep,
    pub(crate) reshaping: Reshaping,
    pub(crate) read_debts: ReadDebts,
    pub(crate) logs: LogFiles,
}

impl State {
    /// Returns the next work on a filter of any keyspace.
    pub(crate) fn next_filter_work(&mut self) -> Option<(Arc<KeyspaceInner>, Task)> {
        self.filters.next(&self.catalogue)
    }
}
