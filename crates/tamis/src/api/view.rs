//! One keyspace as a transaction sees it.

use crate::api::place::{HasPlace, Place};
use crate::handles::handle::Keyspace;
use crate::transaction::optimistic::Transaction;

/// One keyspace as a [`Transaction`] sees it, its own writes included. It has the read methods of
/// [`Readable`](crate::Readable); no import needed.
#[derive(Clone, Copy)]
pub struct TransactionView<'t> {
    pub(crate) transaction: &'t Transaction,
    pub(crate) keyspace: &'t Keyspace,
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

impl Transaction {
    /// Returns the transaction's view of one keyspace.
    ///
    /// # Panics
    ///
    /// If the keyspace belongs to another open database.
    pub fn keyspace<'t>(&'t self, keyspace: &'t Keyspace) -> TransactionView<'t> {
        let same = self.db.handle().inner.instance == keyspace.handle.inner.instance;
        let name = keyspace.name();
        assert!(same, "keyspace `{name}` and the transaction belong to different open databases");
        TransactionView { transaction: self, keyspace }
    }
}
