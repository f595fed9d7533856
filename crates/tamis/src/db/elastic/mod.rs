//! Elastic filters of an open database: which units are in memory, who counts what is asked, who loads.

mod report;

use crate::db::inner::DbInner;

pub use report::{ElasticStats, SegmentStats};

/// What all elastic filters of one database share.
#[derive(Debug, Default)]
pub(crate) struct Elastic {}

impl Elastic {
    /// What is in memory and why; `None` if no table has an elastic filter.
    pub(crate) fn report(&self) -> Option<ElasticStats> {
        None
    }
}

impl DbInner {
    /// See [`Db::segments`](crate::Db::segments).
    pub(crate) fn segments(&self) -> Vec<SegmentStats> {
        Vec::new()
    }
}
