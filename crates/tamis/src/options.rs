//! The types of options: the values that they take, and the description of every option.
//!
//! The options themselves are [`Options`] of a database and [`KeyspaceOptions`] of a keyspace, both at the crate's
//! root.

pub(crate) mod definition;
mod domain;
mod prefixes;
mod table;
pub(crate) mod values;
mod workload;

pub(crate) use definition::{Incompatible, KeyspaceOptions, Options, incompatible};
pub use prefixes::PrefixFilter;
pub use table::{OptionClass, OptionInfo};
pub(crate) use values::Durability;
pub use values::{
    AsyncReads, BloomHashing, ChecksumMode, CompactionChoice, Compression, CompressionPerLevel, FilePicker,
    FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, MergeGranularity, OnDamage, PerLevel,
    ReadMode, SurfSuffix,
};

#[cfg(test)]
mod tests;
