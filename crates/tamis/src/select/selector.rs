//! The selector of one version: joins the variants.

use std::ops::{Deref, Range};

#[cfg(feature = "unstable-selector")]
use super::external::ExternalSelector;
use super::global::{GlobalSelector, LiveTables};
use super::probe::Probe;
use super::run_selector::{Candidates, RunSelector, WholeTree};
use super::table_filters::TableFilters;
use crate::observe::cost::ReadCost;
use crate::tree::version::Version;

/// The selector of one version, built in or supplied by the program.
#[derive(Debug)]
pub(crate) enum Selector {
    /// A filter per table, including elastic ones. While the tree's filter is being built behind
    /// them, its codes must distinguish the tables of the version.
    PerTable(TableFilters, #[expect(dead_code, reason = "held for the filter to come")] Option<LiveTables>),
    /// One filter for the tree.
    Global(GlobalSelector),
    /// One filter for the tree, supplied by the program.
    #[cfg(feature = "unstable-selector")]
    External(ExternalSelector),
    /// A test's.
    #[cfg(test)]
    Test(Box<dyn WholeTree>),
}

impl Selector {
    /// See [`RunSelector::select`]. The built-in selectors need no virtual call.
    #[inline]
    pub(crate) fn select(
        &self,
        version: &Version,
        probe: &mut Probe<'_>,
        runs: Range<usize>,
        out: &mut Candidates,
        cost: &mut ReadCost,
    ) {
        match self {
            Selector::PerTable(filters, _) => filters.select(version, probe, runs, out, cost),
            Selector::Global(filter) => filter.select(version, probe, runs, out, cost),
            #[cfg(any(test, feature = "unstable-selector"))]
            other => (**other).select(version, probe, runs, out, cost),
        }
    }

    /// Returns the tables' filters, if they answer.
    #[inline]
    pub(crate) fn tables(&self) -> Option<&TableFilters> {
        match self {
            Selector::PerTable(filters, _) => Some(filters),
            _ => None,
        }
    }

    /// Returns the tables' filters, if they answer and can tell anything about key ranges.
    #[inline]
    pub(crate) fn range_filters(&self) -> Option<&TableFilters> {
        self.tables().filter(|filters| filters.answers_ranges())
    }

    /// Returns the filter for the whole tree, if one answers.
    #[inline]
    pub(crate) fn tree(&self) -> Option<&dyn WholeTree> {
        match self {
            Selector::PerTable(..) => None,
            Selector::Global(filter) => Some(filter),
            #[cfg(feature = "unstable-selector")]
            Selector::External(filter) => Some(filter),
            #[cfg(test)]
            Selector::Test(selector) => Some(&**selector),
        }
    }

    /// Reports whether one probe serves all runs. If so, [`select`](Self::select) is called once
    /// with all runs of the version, however many.
    #[inline]
    pub(crate) fn is_global(&self) -> bool {
        self.tables().is_none()
    }

    /// Names the scope of the answering filter.
    pub(crate) fn whose(&self) -> &'static str {
        match self {
            Selector::PerTable(..) => "per table",
            Selector::Global(_) => "for the tree",
            #[cfg(feature = "unstable-selector")]
            Selector::External(_) => "external",
            #[cfg(test)]
            Selector::Test(_) => "a test's",
        }
    }
}

impl Deref for Selector {
    type Target = dyn RunSelector;

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Selector::PerTable(filters, _) => filters,
            Selector::Global(filter) => filter,
            #[cfg(feature = "unstable-selector")]
            Selector::External(filter) => filter,
            #[cfg(test)]
            Selector::Test(selector) => &**selector,
        }
    }
}
