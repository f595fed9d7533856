//! What writes are gathered in before they are committed together.

use tamis::transactions::LockTransaction;
use tamis::{Keyspace, Transaction, WriteBatch};

/// Writes that are committed together: a [`WriteBatch`], a [`Transaction`] or a
/// [`LockTransaction`]. The trait is sealed: no other type can implement it.
pub trait Pending: Gather {}

/// Seals [`Pending`].
pub trait Gather {
    #[doc(hidden)]
    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<(), tamis::Error>;

    #[doc(hidden)]
    fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), tamis::Error>;
}

impl Pending for WriteBatch {}

impl Gather for WriteBatch {
    fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<(), tamis::Error> {
        self.put_in(keyspace, key, value);
        Ok(())
    }

    fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), tamis::Error> {
        self.delete_in(keyspace, key);
        Ok(())
    }
}

macro_rules! transactions {
    ($($type:ty),*) => {$(
        impl Pending for $type {}

        impl Gather for $type {
            fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<(), tamis::Error> {
                Ok(self.put_in(keyspace, key, value)?)
            }

            fn delete(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<(), tamis::Error> {
                Ok(self.delete_in(keyspace, key)?)
            }
        }
    )*};
}

transactions!(Transaction, LockTransaction);
