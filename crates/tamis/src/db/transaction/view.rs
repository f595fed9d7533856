//! One keyspace as a transaction sees it.

use crate::db::Keyspace;
use crate::db::readable::{HasPlace, Place};
use crate::db::transaction::Transaction;

/// One keyspace as a [`Transaction`] sees it, its own writes included. Its reads are those of
/// [`Readable`](crate::Readable), which need no import here.
#[derive(Clone, Copy)]
pub struct TransactionView<'t> {
    pub(super) transaction: &'t Transaction,
    pub(super) keyspace: &'t Keyspace,
}

debug_as!(TransactionView<'_>, "TransactionView", view =>
    "transaction": view.transaction,
    "keyspace": view.keyspace.name()
);

impl HasPlace for TransactionView<'_> {
    fn place(&self) -> Place<'_> {
        Place::within(self.keyspace, self.transaction)
    }
}

impl HasPlace for Transaction {
    fn place(&self) -> Place<'_> {
        Place::within(self.db.default_keyspace(), self)
    }
}
