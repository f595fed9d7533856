//! Merge operands: what a read does when a key's newest version is a merge operand.
//!
//! A chain collects operands until it meets their base: a put, or nothing (a delete, a range
//! tombstone over the next version, or the end of all versions). The keyspace's operator then
//! computes the value. A read without operands keeps an empty chain, which allocates nothing.
//!
//! Operands stay as stored in memtables and blocks. The operator is asked to combine every [`FOLD`]
//! of them into one, so many small operands take little memory, and each is visited at most once
//! for this. If it declines, memory grows with the number of operands.
//!
//! A chain belongs to one read on one thread.

use tamis_base::key::{Kind, SeqNo};
use tamis_files::table::{CursorOptions, TableCursor};

use crate::error::{ReadError, StorageError};
use crate::observe::cost::ReadCost;
use crate::operators::{MergeOperator, merge, partial_merge};
use crate::read::MemtableSlot;
use crate::slice::Slice;
use crate::tree::open_table::OpenTable;

/// The number of operands folded into one.
const FOLD: usize = 1024;

/// The value to which the operands apply.
#[derive(Debug)]
pub(crate) enum BaseValue {
    Value(Slice),
    Nothing,
}

impl BaseValue {
    fn bytes(&self) -> Option<&[u8]> {
        match self {
            BaseValue::Value(value) => Some(value),
            BaseValue::Nothing => None,
        }
    }
}

/// The order in which operands are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    NewestFirst,
    OldestFirst,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Operands {
    order: Order,
    /// In the order of addition.
    operands: Vec<Slice>,
    /// The number of operands at the end of `operands` that folding has not tried.
    unfolded: usize,
    /// The number of operands added.
    count: u64,
}

impl Operands {
    pub(crate) const fn new(order: Order) -> Operands {
        Operands { order, operands: Vec::new(), unfolded: 0, count: 0 }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.operands.is_empty()
    }

    /// Returns the number of operands added.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Removes all operands.
    pub(crate) fn clear(&mut self) {
        self.operands.clear();
        (self.unfolded, self.count) = (0, 0);
    }

    /// Adds `key`'s next operand.
    pub(crate) fn push(&mut self, key: &[u8], operand: Slice, operator: Option<&dyn MergeOperator>) {
        self.operands.push(operand);
        self.count += 1;
        self.unfolded += 1;
        if self.unfolded >= FOLD {
            let fresh = self.operands.len() - self.unfolded;
            let oldest_first = oldest_first(self.order, &self.operands[fresh..]);
            if let Some(one) = operator.and_then(|operator| partial_merge(operator, key, &oldest_first)) {
                self.operands.truncate(fresh);
                self.operands.push(Slice::from(one));
            }
            self.unfolded = 0;
        }
    }

    /// Adds operands newer than all of these and in the opposite order.
    pub(crate) fn add_newer(&mut self, newer: Operands) {
        debug_assert!(self.order == Order::OldestFirst && newer.order == Order::NewestFirst);
        self.operands.extend(newer.operands.into_iter().rev());
        self.count += newer.count;
        // Folding was tried on them, or they are few.
        self.unfolded = 0;
    }

    /// Returns the value of `key`: applies the operands, at least one, to `base`. Empties the
    /// operands.
    pub(crate) fn resolve(
        &mut self,
        key: &[u8],
        base: &BaseValue,
        operator: Option<&dyn MergeOperator>,
        cost: &mut ReadCost,
    ) -> Result<Slice, ReadError> {
        cost.merge_operands += self.count;
        let failed = |what: String| ReadError::Merge { key: key.to_vec(), what };
        // Writes reject operands without an operator, and a keyspace keeps its operator.
        let operator = operator.ok_or_else(|| failed("the keyspace has no merge operator".into()))?;
        let merged = merge(operator, key, base.bytes(), &oldest_first(self.order, &self.operands));
        self.clear();
        let value = merged.map_err(|error| failed(format!("operator `{}`: {error}", operator.name())))?;
        Ok(Slice::from(value))
    }

    /// Collects older operands in the memtable that holds the operand `seq`. `cover` is the newest
    /// visible range tombstone over the key. Returns the base if the memtable has it. Errors: a log
    /// that has a value cannot be read.
    pub(crate) fn follow_memtable(
        &mut self,
        slot: &MemtableSlot,
        key: &[u8],
        (seq, cover): (SeqNo, SeqNo),
        operator: Option<&dyn MergeOperator>,
        cost: &mut ReadCost,
    ) -> Result<Option<BaseValue>, StorageError> {
        let Some(older) = seq.checked_sub(1) else { return Ok(None) };
        let mut cursor = slot.memtable.cursor();
        cursor.seek(key, older);
        while cursor.valid() && cursor.key() == key {
            match cursor.kind() {
                _ if cover > cursor.seq() => return Ok(Some(BaseValue::Nothing)),
                Kind::Merge => self.push(key, Slice::from_memtable(cursor.pinned_value()), operator),
                Kind::Put => return Ok(Some(BaseValue::Value(Slice::from_memtable(cursor.pinned_value())))),
                Kind::Delete => return Ok(Some(BaseValue::Nothing)),
                Kind::PutBlob => {
                    let value = slot.memtable.read_logged(cursor.version().3, cost)?;
                    return Ok(Some(BaseValue::Value(Slice::from_block(value))));
                }
            }
            cursor.next();
        }
        Ok(None)
    }

    /// The same for a table. Costs a seek.
    pub(crate) fn follow_table(
        &mut self,
        table: &OpenTable,
        key: &[u8],
        (seq, cover): (SeqNo, SeqNo),
        operator: Option<&dyn MergeOperator>,
        cost: &mut ReadCost,
    ) -> Result<Option<BaseValue>, StorageError> {
        let Some(older) = seq.checked_sub(1) else { return Ok(None) };
        let mut cursor = TableCursor::new(table.table.clone(), CursorOptions::default());
        let mut walk = || {
            cursor.seek(key, older)?;
            while cursor.valid() && cursor.key() == key {
                match cursor.kind() {
                    _ if cover > cursor.seq() => return Ok(Some(BaseValue::Nothing)),
                    Kind::Merge => self.push(key, Slice::from_block(cursor.pinned_value()), operator),
                    Kind::Put => return Ok(Some(BaseValue::Value(Slice::from_block(cursor.pinned_value())))),
                    Kind::PutBlob => {
                        let value = table.read_blob(cursor.value(), true, cost)?;
                        return Ok(Some(BaseValue::Value(Slice::from_block(value))));
                    }
                    Kind::Delete => return Ok(Some(BaseValue::Nothing)),
                }
                cursor.next()?;
            }
            Ok(None)
        };
        let base = walk();
        cost.add_touched(&cursor.take_counts());
        base
    }
}

fn oldest_first(order: Order, operands: &[Slice]) -> Vec<&[u8]> {
    let mut operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
    if order == Order::NewestFirst {
        operands.reverse();
    }
    operands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{OperatorNames, Operators};

    #[test]
    fn many_operands_are_folded_in_both_orders() {
        let operators = Operators::new()
            .resolve(OperatorNames { merge: Some("append"), ..OperatorNames::default() })
            .expect("built in");
        let operator = operators.merge.as_deref();
        let count = 5 * FOLD + 7;
        let expected: Vec<u8> = (0..count).flat_map(|i| format!("{i},").into_bytes()).collect();
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let mut operands = Operands::new(order);
            for i in 0..count {
                let i = if order == Order::OldestFirst { i } else { count - 1 - i };
                operands.push(b"key", Slice::from(format!("{i},").into_bytes()), operator);
                assert!(operands.operands.len() < 5 + FOLD, "{} operands are kept", operands.operands.len());
            }
            let mut cost = ReadCost::default();
            let value =
                operands.resolve(b"key", &BaseValue::Nothing, operator, &mut cost).expect("well-formed");
            assert_eq!(value, expected);
            assert_eq!((cost.merge_operands, operands.is_empty()), (count as u64, true));
        }
    }

    #[test]
    fn operands_without_an_operator_are_an_error_that_names_the_key() {
        let mut operands = Operands::new(Order::NewestFirst);
        operands.push(b"k\xff", Slice::copy_of(b"1"), None);
        let error =
            operands.resolve(b"k\xff", &BaseValue::Nothing, None, &mut ReadCost::default()).unwrap_err();
        assert!(error.to_string().contains("`k\\xff`: the keyspace has no merge operator"), "{error}");
    }
}
