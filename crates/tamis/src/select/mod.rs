//! Run selectors: the single interface between the tree and all filters.
//!
//! Given a pinned version and a key, a [`Selector`] returns the tables that may hold the key,
//! newest run first. The read path is the same whether a filter per table, loadable filter units or
//! one filter for the whole tree decides.
//!
//! Implementations: `table_filters` (the default: one filter per table, including elastic ones),
//! `global` (one for the tree) and `external` (supplied by the program). `auto` switches between
//! the first two.
//!
//! From the bottom: `probe` and `run_selector` are the vocabulary and the interface, `selector`
//! joins the implementations for one version, `tree_filter` for a keyspace. What only a filter for
//! the whole tree can tell is behind [`Selector::tree`], its upkeep behind [`TreeFilter::global`].
//!
//! # Contract
//!
//! * No false negatives. If a table holds any version of the key, it is among the candidates of its
//!   run. If it holds a version of any key in a range, it is not denied for that range. Debug
//!   builds check every rejection against the data.
//! * A selector belongs to one version and is immutable once published; any thread may call it.

mod accesses;
mod auto;
mod checks;
mod elastic;
#[cfg(feature = "unstable-selector")]
mod external;
mod global;
pub(crate) mod keys;
mod probe;
mod queries;
pub(crate) mod run_selector;
mod selector;
mod table_filters;
mod tree_filter;

pub(crate) use accesses::AccessSampler;
pub use auto::AutoFilterStats;
pub use checks::without_rejection_checks;
pub(crate) use global::{Built, Grf, Moment, Restored, SavedPart, Span, Switch, TakenEpoch, Task};
pub use global::{GlobalFilterStats, KeyMapStats};
pub(crate) use keys::key_list_problem;
pub(crate) use probe::{LeanKey, Probe};
pub(crate) use queries::QuerySampler;
pub use queries::QueryStats;
pub(crate) use run_selector::{Candidate, Candidates, MAX_BATCH, next_step};
pub(crate) use selector::Selector;
pub(crate) use table_filters::{TableFilters, ask_filter};
pub(crate) use tree_filter::{GlobalFilter, TreeFilter};
