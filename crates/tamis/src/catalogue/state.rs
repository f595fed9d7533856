//! The contents of the `state` lock.

use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::catalogue::filter_upkeep::FilterUpkeep;
use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::log_files::LogFiles;
use crate::catalogue::read_debts::ReadDebts;
use crate::catalogue::reshaping::Reshaping;
use crate::catalogue::scheduler::Scheduler;
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
