//! The sides, as named on the command line.

use std::fmt;
use std::str::FromStr;

use crate::engines::system::System;
use crate::transactions::side::Side;

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod tamis;

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Tamis,
    TamisSnapshot,
    TamisLocking,
    TamisUpdate,
    RocksdbOptimistic,
    RocksdbLocking,
    Fjall,
    FjallSingleWriter,
    Redb,
}

/// What is known of a side: its name, its engine's, and how it changes keys.
const KNOWN: [(Name, &str, &str, &str); 9] = [
    (Name::Tamis, "tamis", "tamis", "optimistic transactions by `transact`, serializable"),
    (Name::TamisSnapshot, "tamis-snapshot", "tamis", "the same with snapshot isolation"),
    (Name::TamisLocking, "tamis-locking", "tamis", "locking transactions, `get_for_update`"),
    (Name::TamisUpdate, "tamis-update", "tamis", "`update` of one key"),
    (Name::RocksdbOptimistic, "rocksdb-optimistic", "rocksdb", "OptimisticTransactionDB, `GetForUpdate`"),
    (Name::RocksdbLocking, "rocksdb-locking", "rocksdb", "TransactionDB, `GetForUpdate`"),
    (Name::Fjall, "fjall", "fjall", "OptimisticTxDatabase"),
    (Name::FjallSingleWriter, "fjall-single-writer", "fjall", "SingleWriterTxDatabase"),
    (Name::Redb, "redb", "redb", "write transactions, one at a time, `Durability::None`"),
];

/// An operation on a side that is only known at run time: see [`Name::with`].
pub(crate) trait Visitor {
    /// Its result.
    type Output;

    /// Executes it.
    fn visit<S: Side>(self) -> Self::Output;
}

impl Name {
    /// Returns all sides that are compiled in, in the order of reports.
    pub(crate) fn compiled_in() -> Vec<Name> {
        KNOWN.iter().map(|(name, ..)| *name).filter(|name| name.is_compiled_in()).collect()
    }

    /// Returns the side of this name, whether it is compiled in or not.
    pub(crate) fn find(text: &str) -> Option<Name> {
        KNOWN.iter().find(|(_, name, ..)| *name == text).map(|(name, ..)| *name)
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        self.known().1
    }

    /// Returns the engine's name.
    pub(crate) fn engine(self) -> &'static str {
        self.known().2
    }

    /// Describes how it changes keys.
    pub(crate) fn about(self) -> &'static str {
        self.known().3
    }

    /// Returns the most keys that one of its transactions can have.
    pub(crate) fn most_keys(self) -> usize {
        if self == Name::TamisUpdate { 1 } else { usize::MAX }
    }

    fn known(self) -> &'static (Name, &'static str, &'static str, &'static str) {
        &KNOWN[self as usize]
    }

    fn is_compiled_in(self) -> bool {
        System::compiled_in().contains(&self.engine())
    }

    /// Calls the visitor with the side's type.
    pub(crate) fn with<V: Visitor>(self, visitor: V) -> V::Output {
        match self {
            Name::Tamis => visitor.visit::<tamis::TamisSide<tamis::Optimistic<true>>>(),
            Name::TamisSnapshot => visitor.visit::<tamis::TamisSide<tamis::Optimistic<false>>>(),
            Name::TamisLocking => visitor.visit::<tamis::TamisSide<tamis::Locking>>(),
            Name::TamisUpdate => visitor.visit::<tamis::TamisSide<tamis::Update>>(),
            #[cfg(feature = "rocksdb")]
            Name::RocksdbOptimistic => {
                visitor.visit::<rocksdb::RocksSide<::rocksdb::OptimisticTransactionDB>>()
            }
            #[cfg(feature = "rocksdb")]
            Name::RocksdbLocking => visitor.visit::<rocksdb::RocksSide<::rocksdb::TransactionDB>>(),
            #[cfg(feature = "fjall")]
            Name::Fjall => visitor.visit::<fjall::FjallSide<fjall::Optimistic>>(),
            #[cfg(feature = "fjall")]
            Name::FjallSingleWriter => visitor.visit::<fjall::FjallSide<fjall::SingleWriter>>(),
            #[cfg(feature = "redb")]
            Name::Redb => visitor.visit::<crate::engines::redb::Redb>(),
            #[allow(unreachable_patterns, reason = "with all features there is no other side")]
            other => unreachable!("{other} is not compiled in, and so was not parsed"),
        }
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Name, String> {
        let text = text.trim();
        let Some(name) = Name::find(text) else {
            let known: Vec<_> = KNOWN.iter().map(|(_, name, ..)| *name).collect();
            return Err(format!("no side is called `{text}`; known are {}", known.join(", ")));
        };
        match name.is_compiled_in() {
            true => Ok(name),
            false => {
                let engine = name.engine();
                Err(format!(
                    "{text} is not compiled in: build with `--features {engine}`, or with `--features all`"
                ))
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_have_names_and_are_known_in_order() {
        for (at, (name, text, engine, about)) in KNOWN.iter().enumerate() {
            assert_eq!(*name as usize, at);
            assert!(text.starts_with(engine) && !about.is_empty());
            match name.is_compiled_in() {
                true => assert_eq!(text.parse(), Ok(*name)),
                false => assert!(text.parse::<Name>().unwrap_err().contains("--features")),
            }
        }
        assert!("rocksdb".parse::<Name>().unwrap_err().contains("rocksdb-locking"));
        assert!(Name::compiled_in().len() >= 4);
    }
}
