//! The built-in merge operators.

use std::sync::Arc;

use super::{MergeError, MergeOperator};

/// Returns the built-in operator with this name.
pub(super) fn find(name: &str) -> Option<Arc<dyn MergeOperator>> {
    match name {
        "add" => Some(Arc::new(Add)),
        "append" => Some(Arc::new(Append)),
        "max" => Some(Arc::new(Max)),
        _ => None,
    }
}

/// `add`: values and operands are eight-byte little-endian numbers, added modulo 2^64; a missing
/// base is 0. This works for `u64` and `i64` alike, up and down. (With saturating addition, the
/// result would depend on the order.)
#[derive(Debug)]
struct Add;

impl Add {
    fn number(what: &str, bytes: &[u8]) -> Result<u64, MergeError> {
        let bytes = <[u8; 8]>::try_from(bytes);
        bytes
            .map(u64::from_le_bytes)
            .map_err(|_| MergeError::new(format!("{what} that is not eight bytes long")))
    }

    fn sum(start: u64, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let sum = operands.iter().try_fold(start, |sum: u64, operand| {
            Add::number("an operand", operand).map(|number| sum.wrapping_add(number))
        });
        sum.map(|sum| sum.to_le_bytes().to_vec())
    }
}

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Add::sum(base.map_or(Ok(0), |base| Add::number("a value", base))?, operands)
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Add::sum(0, operands).ok()
    }
}

/// `append`: operands are appended to the value without a separator; a missing base is empty.
#[derive(Debug)]
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &str {
        "append"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let base = base.unwrap_or_default();
        let len = operands.iter().fold(base.len(), |sum, operand| sum.saturating_add(operand.len()));
        if len > tamis_base::key::MAX_VALUE_BYTES {
            return Err(MergeError::new(format!("a result of {len} bytes, which is too long")));
        }
        let mut value = Vec::with_capacity(len);
        value.extend_from_slice(base);
        operands.iter().for_each(|operand| value.extend_from_slice(operand));
        Ok(value)
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

/// `max`: the greatest in byte order (for big-endian numbers: the largest); a missing base is less
/// than any operand.
#[derive(Debug)]
struct Max;

impl MergeOperator for Max {
    fn name(&self) -> &str {
        "max"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        let greatest = operands.iter().copied().chain(base).max();
        Ok(greatest.unwrap_or_default().to_vec())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 3] = ["add", "append", "max"];

    fn merged(name: &str, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        find(name).expect("built in").merge(b"key", base, operands)
    }

    #[test]
    fn counters_go_up_and_down_and_wrap_around() {
        let number = |n: i64| n.to_le_bytes();
        let sum = |base: Option<i64>, operands: &[i64]| {
            let operands: Vec<[u8; 8]> = operands.iter().copied().map(number).collect();
            let operands: Vec<&[u8]> = operands.iter().map(|n| &n[..]).collect();
            let bytes = merged("add", base.map(number).as_ref().map(|n| &n[..]), &operands).expect("numbers");
            i64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        };
        assert_eq!(sum(None, &[5, -7]), -2);
        assert_eq!(sum(Some(40), &[1, 1]), 42);
        assert_eq!(sum(Some(i64::MAX), &[1]), i64::MIN);
    }

    #[test]
    fn a_malformed_number_is_an_error_and_has_no_partial_sum() {
        let one = 1u64.to_le_bytes();
        assert!(merged("add", None, &[&one, b"1"]).is_err());
        assert!(merged("add", Some(b"value"), &[&one]).is_err());
        assert_eq!(find("add").expect("built in").partial_merge(b"key", &[&one, b""]), None);
    }

    #[test]
    fn append_keeps_the_order_and_max_keeps_the_greatest() {
        assert_eq!(merged("append", Some(b"a"), &[b"b", b"", b"c"]).as_deref(), Ok(&b"abc"[..]));
        assert_eq!(merged("append", None, &[b""]).as_deref(), Ok(&b""[..]));
        assert_eq!(merged("max", Some(b"b"), &[b"a", b"ab"]).as_deref(), Ok(&b"b"[..]));
        assert_eq!(merged("max", None, &[b"a", b"ab"]).as_deref(), Ok(&b"ab"[..]));
    }

    proptest! {
        #[test]
        fn the_laws_hold_wherever_operands_are_split(
            base in proptest::option::of(operand()),
            operands in prop::collection::vec(operand(), 1..8),
            cut in 0..8usize,
        ) {
            let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
            let (old, new) = operands.split_at(cut.min(operands.len()));
            for name in NAMES {
                let operator = find(name).expect("built in");
                let whole = operator.merge(b"", base.as_deref(), &operands);
                if !old.is_empty() && !new.is_empty() {
                    let first = operator.merge(b"", base.as_deref(), old);
                    let then = first.and_then(|value| operator.merge(b"", Some(&value), new));
                    prop_assert_eq!(&then, &whole, "{}", name);
                }
                if old.len() >= 2 && let Some(one) = operator.partial_merge(b"", old) {
                    let fewer: Vec<&[u8]> = std::iter::once(&one[..]).chain(new.iter().copied()).collect();
                    prop_assert_eq!(&operator.merge(b"", base.as_deref(), &fewer), &whole, "{}", name);
                }
            }
        }
    }

    /// Mostly numbers, sometimes not.
    fn operand() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            9 => any::<u64>().prop_map(|number| number.to_le_bytes().to_vec()),
            1 => prop::collection::vec(any::<u8>(), 0..9),
        ]
    }
}
