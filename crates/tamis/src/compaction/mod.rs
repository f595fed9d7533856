//! Compaction in two separate parts: a *policy* is a pure function from the tree's shape to a *plan*; the *executor*
//! merges what a plan names and knows nothing of policies.

pub(crate) mod allocation;
pub(crate) mod blobs;
pub(crate) mod deletes;
pub(crate) mod execute;
pub(crate) mod filters;
pub(crate) mod parts;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod released;
pub(crate) mod shape;
#[cfg(test)]
pub(crate) mod simulator;
pub(crate) mod versions;
pub(crate) mod writer;

pub(crate) use filters::{FilterBuilder, NewKeys};
pub use policy::Promise;
pub(crate) use writer::{Lineage, MergeLineage, TableSink};
