//! The program's callbacks on its values: merge operators and compaction filters.
//!
//! Options refer to operators by name, because options are stored with the database. The program
//! that opens the database supplies the code behind each name in [`Operators`]. Built-in merge
//! operators need no entry.
//!
//! Operators are created before opening and shared read-only afterwards. Any thread may call one at
//! any time, so operators are `Sync` and must be pure functions of their arguments.

mod builtin;
mod filter;
mod merge;
mod missing;

use std::sync::Arc;

pub use filter::{CompactionFilter, Decision};
pub use merge::{MergeError, MergeOperator};
pub(crate) use merge::{merge, partial_merge};
use missing::MissingMerge;

use crate::error::OptionsError;

#[cfg(feature = "unstable-selector")]
use crate::selector::SelectorKind;

/// The operators that a program registers, by name.
///
/// ```
/// # use std::sync::Arc;
/// # use tamis::operators::{Decision, CompactionFilter, Operators};
/// # use tamis::Options;
/// #[derive(Debug)]
/// struct DropEmpty;
///
/// impl CompactionFilter for DropEmpty {
///     fn name(&self) -> &str {
///         "drop-empty"
///     }
///
///     fn filter(&self, _level: usize, _key: &[u8], value: &[u8]) -> Decision {
///         if value.is_empty() { Decision::Remove } else { Decision::Keep }
///     }
/// }
///
/// # let dir = tempfile::tempdir()?;
/// let mut options = Options::default();
/// options.operators = Operators::new().with_filter(Arc::new(DropEmpty));
/// options.keyspace.compaction_filter = Some("drop-empty".into());
/// let db = options.open(dir.path())?;
/// db.put("key", "")?;
/// db.compact()?;
/// assert_eq!(db.get("key")?, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Operators {
    merge: Vec<Arc<dyn MergeOperator>>,
    filters: Vec<Arc<dyn CompactionFilter>>,
    #[cfg(feature = "unstable-selector")]
    selectors: Vec<Arc<dyn SelectorKind>>,
    /// Whether a database may be opened if its keyspaces name unregistered operators.
    lenient: bool,
}

impl PartialEq for Operators {
    /// Reports whether both hold the same objects in the same order.
    fn eq(&self, other: &Self) -> bool {
        let same_merge = |(a, b): (&Arc<dyn MergeOperator>, &Arc<dyn MergeOperator>)| Arc::ptr_eq(a, b);
        let same_filter =
            |(a, b): (&Arc<dyn CompactionFilter>, &Arc<dyn CompactionFilter>)| Arc::ptr_eq(a, b);
        self.lenient == other.lenient
            && self.merge.len() == other.merge.len()
            && self.filters.len() == other.filters.len()
            && self.merge.iter().zip(&other.merge).all(same_merge)
            && self.filters.iter().zip(&other.filters).all(same_filter)
    }
}

impl Eq for Operators {}

/// An option that names an unregistered operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unregistered {
    /// The option.
    pub(crate) option: &'static str,
    /// The name it holds.
    pub(crate) name: String,
}

/// The operators of one keyspace.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyspaceOperators {
    pub(crate) merge: Option<Arc<dyn MergeOperator>>,
    pub(crate) filter: Option<Arc<dyn CompactionFilter>>,
    #[cfg(feature = "unstable-selector")]
    pub(crate) selector: Option<Arc<dyn SelectorKind>>,
    /// The merge operator or compaction filter that the options name but the program did not
    /// register. If set, `merge` fails, the keyspace takes no writes, and nothing in it is merged
    /// or filtered.
    pub(crate) missing: Option<Unregistered>,
}

impl KeyspaceOperators {
    /// Fails if the keyspace lacks an operator, naming it.
    pub(crate) fn check_complete(&self) -> Result<(), Unregistered> {
        self.missing.clone().map_or(Ok(()), Err)
    }
}

/// The operators that options name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperatorNames<'o> {
    pub(crate) merge: Option<&'o str>,
    pub(crate) filter: Option<&'o str>,
    pub(crate) selector: Option<&'o str>,
}

impl Operators {
    /// Creates a set with only the built-in operators.
    pub fn new() -> Operators {
        Operators::default()
    }

    /// Adds a merge operator. Of two with the same name, the later one wins. Opening refuses an
    /// operator with a built-in name (`add`, `append`, `max`): these mean the same to every program
    /// that opens a database.
    #[must_use]
    pub fn with_merge(mut self, operator: Arc<dyn MergeOperator>) -> Operators {
        self.merge.push(operator);
        self
    }

    /// Adds a compaction filter. Of two with the same name, the later one wins.
    #[must_use]
    pub fn with_filter(mut self, filter: Arc<dyn CompactionFilter>) -> Operators {
        self.filters.push(filter);
        self
    }

    /// Adds a filter for the whole tree. Of two with the same name, the later one wins.
    #[cfg(feature = "unstable-selector")]
    pub fn with_selector(mut self, selector: Arc<dyn SelectorKind>) -> Operators {
        self.selectors.push(selector);
        self
    }

    /// Allows opening a database whose keyspaces name merge operators or compaction filters that
    /// are not registered here: for programs that check, list and copy other programs' databases.
    /// Such a keyspace can be read, verified, and copied by a checkpoint. Only keys whose value an
    /// unknown merge operator would have to compute cannot be read
    /// ([`ReadError::Merge`](crate::ReadError::Merge), which names the operator). The keyspace
    /// takes no writes ([`WriteError::Unregistered`](crate::WriteError::Unregistered)), and nothing
    /// in it is compacted. Options that name no merge operator adopt the stored one of the default
    /// keyspace. Keyspaces whose operators are known work as usual.
    #[must_use]
    pub fn with_unknown(mut self) -> Operators {
        self.lenient = true;
        self
    }

    /// Refuses merge operators with a built-in name, which would never be called.
    pub(crate) fn check_names(&self) -> Result<(), OptionsError> {
        match self.merge.iter().find(|operator| builtin::find(operator.name()).is_some()) {
            None => Ok(()),
            Some(operator) => Err(OptionsError::Value {
                name: "operators",
                value: operator.name().to_owned(),
                expected: "a built-in merge operator has this name; choose another one".to_owned(),
            }),
        }
    }

    /// Reports whether unknown names are accepted: see [`with_unknown`](Self::with_unknown).
    pub(crate) fn accepts_unknown(&self) -> bool {
        self.lenient
    }

    #[cfg(feature = "unstable-selector")]
    fn selector(&self, name: &str) -> Option<Arc<dyn SelectorKind>> {
        self.selectors.iter().rev().find(|selector| selector.name() == name).cloned()
    }

    /// Without the feature `unstable-selector`, none can be registered.
    #[cfg(not(feature = "unstable-selector"))]
    fn selector(&self, _name: &str) -> Option<()> {
        None
    }

    /// Looks up the operators with these names. All must be known.
    pub(crate) fn resolve(&self, names: OperatorNames<'_>) -> Result<KeyspaceOperators, Unregistered> {
        let found = self.look_up(names)?;
        found.check_complete()?;
        Ok(found)
    }

    /// Like [`resolve`](Self::resolve), but a merge operator or compaction filter may be
    /// [missing](KeyspaceOperators::missing).
    pub(crate) fn look_up(&self, names: OperatorNames<'_>) -> Result<KeyspaceOperators, Unregistered> {
        let mut missing = None;
        let mut unregistered = |option, name: &str| {
            missing.get_or_insert(Unregistered { option, name: name.to_owned() });
        };
        let merge = names.merge.map(|name| {
            let own = || self.merge.iter().rev().find(|operator| operator.name() == name).cloned();
            builtin::find(name).or_else(own).unwrap_or_else(|| {
                unregistered("merge_operator", name);
                Arc::new(MissingMerge { name: name.to_owned() })
            })
        });
        let filter = names.filter.and_then(|name| {
            let own = self.filters.iter().rev().find(|filter| filter.name() == name).cloned();
            own.or_else(|| {
                unregistered("compaction_filter", name);
                None
            })
        });
        let selector = names.selector.map(|name| {
            self.selector(name).ok_or_else(|| Unregistered { option: "filter", name: name.to_owned() })
        });
        let _selector = selector.transpose()?;
        Ok(KeyspaceOperators {
            merge,
            filter,
            #[cfg(feature = "unstable-selector")]
            selector: _selector,
            missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Named(&'static str, u8);

    impl MergeOperator for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
            Ok(vec![self.1])
        }
    }

    fn answer(operators: &Operators, name: &str) -> Result<Vec<u8>, Unregistered> {
        let found = operators
            .resolve(OperatorNames { merge: Some(name), ..OperatorNames::default() })?
            .merge
            .expect("named");
        assert_eq!(found.name(), name);
        Ok(found.merge(b"", None, &[b"12345678"]).expect("well-formed"))
    }

    #[test]
    fn the_later_of_two_wins_and_built_in_names_keep_their_meaning() {
        let operators = Operators::new()
            .with_merge(Arc::new(Named("mine", 1)))
            .with_merge(Arc::new(Named("mine", 2)))
            .with_merge(Arc::new(Named("append", 3)));
        assert_eq!(answer(&operators, "mine"), Ok(vec![2]));
        for name in ["add", "append", "max"] {
            assert_eq!(answer(&operators, name), Ok(b"12345678".to_vec()), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_reported_with_its_option() {
        let operators = Operators::new().with_merge(Arc::new(Named("mine", 1)));
        let missing = |option, name: &str| Unregistered { option, name: name.into() };
        assert_eq!(answer(&operators, "yours"), Err(missing("merge_operator", "yours")));
        let filter = operators
            .resolve(OperatorNames { merge: Some("mine"), filter: Some("mine"), selector: None })
            .map(drop);
        assert_eq!(filter, Err(missing("compaction_filter", "mine")));
        let found = operators
            .look_up(OperatorNames { merge: Some("yours"), ..OperatorNames::default() })
            .expect("a stand-in");
        assert_eq!(found.missing, Some(missing("merge_operator", "yours")));
        let failed = found.merge.expect("named").merge(b"", None, &[b""]).expect_err("it merges nothing");
        assert!(failed.to_string().contains("does not have it"), "{failed}");
        let none = operators.resolve(OperatorNames::default()).expect("nothing is named");
        assert!(none.merge.is_none() && none.filter.is_none());
    }
}
