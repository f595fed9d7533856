//! The types of options: the values that they take, and the description of every option.
//!
//! The options themselves are [`Options`] of a database and [`KeyspaceOptions`] of a keyspace, both
//! at the crate's root. Values that are words in the text form can be parsed
//! ([`FromStr`](std::str::FromStr)) and printed ([`Display`](std::fmt::Display)) one by one:
//!
//! ```
//! use tamis::options::{FilterChoice, ReadMode};
//!
//! assert_eq!("ribbon".parse(), Ok(FilterChoice::Ribbon));
//! assert_eq!(ReadMode::Direct.to_string(), "direct");
//! ```

pub(crate) mod definition;
mod domain;
mod policy;
mod prefixes;
mod table;
mod text;
pub(crate) mod values;
mod words;
mod workload;

pub use crate::memory::SharedReadMemory;
pub use crate::memory::limit::MemoryLimit;
pub use crate::memory::writes::SharedWriteMemory;
pub(crate) use definition::{Incompatible, KeyspaceOptions, Options, ignored, incompatible};
pub use definition::{Proposal, Tuner, TuningCase};
pub use prefixes::PrefixFilter;
pub use table::{OptionClass, OptionInfo};
pub use text::ParseValueError;
pub(crate) use values::Durability;
pub use values::{
    AsyncReads, BloomHashing, ChecksumMode, CompactionChoice, Compression, CompressionPerLevel, FilePicker,
    FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, LogWrites, MergeGranularity, OnDamage,
    PerLevel, ReadMode, SelectorName, SurfSuffix,
};

#[cfg(test)]
mod tests;
