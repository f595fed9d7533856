//! The tables that a run cursor reads.

use std::sync::Arc;

use crate::read::View;
use crate::tree::open_table::OpenTable;

/// The tables that the run cursors of one merge iterate over.
#[derive(Debug)]
pub(crate) enum RunTables {
    /// Those of a view's version, whose filters may be probed.
    Of(Arc<View>),
    List(Vec<Arc<OpenTable>>),
}
