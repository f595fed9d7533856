//! One file per subcommand.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod build_table;
pub(crate) mod checkpoint;
pub(crate) mod compact;
pub(crate) mod del;
pub(crate) mod demo;
pub(crate) mod dump;
pub(crate) mod experiment;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod heatmap;
pub(crate) mod import;
pub(crate) mod ingest;
pub(crate) mod keyspaces;
pub(crate) mod load;
pub(crate) mod options;
pub(crate) mod put;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod soak;
pub(crate) mod stats;
pub(crate) mod stress;
pub(crate) mod verify;
