//! Merge operators: writes that describe a change to a value instead of a new value.

use std::fmt::Debug;

use tamis_base::key::MAX_VALUE_BYTES;

/// Combines a base value and the operands merged into it.
///
/// A merge is a write like a put: it reads nothing. The operator runs when the key is read, and in
/// flushes and compactions, which combine operands so that reads find few of them.
///
/// # Laws
///
/// Which operands are combined depends on flushes, compactions and snapshots; the result must not.
/// For all operands `x…` older than `y…`:
///
/// * `merge(base, [x…, y…]) == merge(Some(merge(base, [x…])), [y…])`;
/// * if `partial_merge([x…])` is `Some(z)`, then `merge(base, [z, y…]) == merge(base, [x…, y…])`
///   for every base, including whether they fail;
/// * the same arguments give the same result, on every machine and in every later version of the
///   program. An operator that has to change gets a new name.
///
/// It must not panic: a panic in a flush or compaction stops the database's writes.
pub trait MergeOperator: Send + Sync + Debug {
    /// Returns the name for the keyspace option `merge_operator`: 1 to 64 letters, digits, or any
    /// of `-_.:/`.
    fn name(&self) -> &str;

    /// Returns the value of `key` after applying all `operands` (oldest first, at least one) to
    /// `base`, which is `None` if the key did not exist.
    ///
    /// # Errors
    ///
    /// Return one for operands or a base that the operator cannot interpret. Reads of the key then
    /// fail with it; flushes and compactions keep base and operands as they are. A later put or
    /// delete makes the key readable again.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError>;

    /// Returns one operand equivalent to applying all of `operands` (oldest first, at least two) to
    /// any base, or `None` if there is none. Without it, operands pile up until a compaction
    /// reaches their base.
    fn partial_merge(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

/// Why a merge operator could not produce a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct MergeError {
    what: String,
}

impl MergeError {
    /// Creates an error that says `what` is wrong: "an operand of 3 bytes".
    pub fn new(what: impl Into<String>) -> MergeError {
        MergeError { what: what.into() }
    }
}

/// Calls [`MergeOperator::merge`] and checks that the result is a valid value.
pub(crate) fn merge(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>, MergeError> {
    let value = operator.merge(key, base, operands)?;
    match value.len() {
        0..=MAX_VALUE_BYTES => Ok(value),
        len => {
            Err(MergeError::new(format!("a result of {len} bytes: values hold at most {MAX_VALUE_BYTES}")))
        }
    }
}

/// Calls [`MergeOperator::partial_merge`] and checks that the result is a valid operand.
pub(crate) fn partial_merge(operator: &dyn MergeOperator, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
    operator.partial_merge(key, operands).filter(|operand| operand.len() <= MAX_VALUE_BYTES)
}
