//! Merge operators: writes that say how a value changes instead of what it becomes.

use std::fmt::Debug;

use crate::key::MAX_VALUE_BYTES;

/// Makes one value of a base and the operands that were merged into it.
///
/// A merge is a write like a put: it reads nothing. The operator runs when somebody reads the key, and in flushes and
/// compactions, which put operands together so that reads find few of them.
///
/// # Laws
///
/// Which operands meet which others depends on flushes, compactions and snapshots, so results must not. For all
/// operands `x…` older than `y…`:
///
/// * `merge(base, [x…, y…]) == merge(Some(merge(base, [x…])), [y…])`;
/// * if `partial_merge([x…])` is `Some(z)`, then `merge(base, [z, y…]) == merge(base, [x…, y…])` for every base, also
///   in whether they fail;
/// * the same arguments give the same result, on every machine and in every later version of the program. An operator
///   that has to change gets a new name.
///
/// It must not panic: a panic in a flush or compaction stops the database's writes.
pub trait MergeOperator: Send + Sync + Debug {
    /// The name that the keyspace option `merge_operator` calls it by: 1 to 64 letters, digits, or any of `-_.:/`.
    fn name(&self) -> &str;

    /// The value of `key` after all `operands` (oldest first, at least one) were applied to `base`; `None` if the key
    /// did not exist.
    ///
    /// An error is for operands or a base that the operator cannot make sense of. Reads of the key then fail with it;
    /// flushes and compactions keep everything as it is, and a later put or delete of the key makes it readable again.
    fn merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError>;

    /// One operand that does what all of `operands` (oldest first, at least two) do one after the other, whatever the
    /// base; `None` if there is none. Without it chains get no shorter until their base is met.
    fn partial_merge(&self, _key: &[u8], _operands: &[&[u8]]) -> Option<Vec<u8>> {
        None
    }
}

/// Why a merge operator could not make a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct MergeError {
    what: String,
}

impl MergeError {
    /// An error that says `what` is wrong: "an operand of 3 bytes".
    pub fn new(what: impl Into<String>) -> MergeError {
        MergeError { what: what.into() }
    }
}

/// [`MergeOperator::merge`] whose result is checked to be a possible value.
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

/// [`MergeOperator::partial_merge`] whose result is checked to be a possible operand.
pub(crate) fn partial_merge(operator: &dyn MergeOperator, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
    operator.partial_merge(key, operands).filter(|operand| operand.len() <= MAX_VALUE_BYTES)
}
