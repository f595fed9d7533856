//! The stand-in for a merge operator that the program did not register.

use crate::operators::merge::{MergeError, MergeOperator};

/// Answers every merge with an error, so that plain values can be read and operands are kept.
#[derive(Debug)]
pub(super) struct MissingMerge {
    pub(super) name: String,
}

impl MergeOperator for MissingMerge {
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Err(MergeError::new("the program that opened the database does not have it"))
    }
}
