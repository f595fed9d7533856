//! Carries out compaction plans: merges what a plan names. Knows nothing of the policies that made
//! the plan; those are in `tamis-policy`.

pub(crate) mod allocation;
pub(crate) mod blob_output;
pub(crate) mod blobs;
pub(crate) mod execute;
pub(crate) mod filters;
pub(crate) mod logged;
pub(crate) mod parts;
pub(crate) mod sink;
pub(crate) mod versions;
pub(crate) mod writer;

pub(crate) use filters::{FilterBuilder, NewKeys};
pub(crate) use sink::{Lineage, MergeLineage, TableSink};
