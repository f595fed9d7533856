//! Filters for the whole tree that GRF is compared with, as selectors of the engine ([`tamis::selector`]):
//!
//! | name | what it is |
//! | --- | --- |
//! | `chucky` | a cuckoo filter of fingerprints and run numbers, for points (Dayan and Twitto, SIGMOD 2021) |
//! | `remix` | for every 32 keys, the runs that hold any of them, for points and iterators (Zhong et al., FAST 2021) |
//! | `grf-huffman` | GRF with Huffman-coded run numbers in place of its codes (GRF_H in the GRF paper) |
//!
//! ```
//! use tamis::Options;
//!
//! # let dir = std::env::temp_dir().join(format!("rivals-doc-{}", std::process::id()));
//! let mut options = Options::default();
//! tamis_rivals::set_filter(&mut options, "chucky")?;
//! let db = options.open(&dir)?;
//! db.put("key", "value")?;
//! db.flush()?;
//! assert_eq!(db.get("key")?.as_deref(), Some(&b"value"[..]));
//! # drop(db);
//! # std::fs::remove_dir_all(dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod tree;
mod version;

use std::sync::Arc;

use tamis::operators::Operators;
use tamis::options::FilterChoice;
use tamis::selector::{SelectorKind, SelectorSpec, TreeSelector};
use tamis::{Options, OptionsError};
use tamis_filter::global::RunIndexKind;

/// A filter that names a key's current run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    name: &'static str,
    kind: RunIndexKind,
}

/// All of them.
pub const ALL: [Rival; 3] = [
    Rival { name: "grf-huffman", kind: RunIndexKind::GrfHuffman },
    Rival { name: "chucky", kind: RunIndexKind::Chucky },
    Rival { name: "remix", kind: RunIndexKind::Remix },
];

impl Rival {
    /// Returns the filter with this name.
    pub fn named(name: &str) -> Option<Rival> {
        ALL.into_iter().find(|rival| rival.name == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// Returns the choice of it as a keyspace's filter. The options must have it among their [operators].
    pub fn choice(self) -> FilterChoice {
        FilterChoice::external(self.name).expect("the name of a filter")
    }
}

impl SelectorKind for Rival {
    fn name(&self) -> &str {
        self.name
    }

    fn create(&self, spec: &SelectorSpec) -> Box<dyn TreeSelector> {
        Box::new(tree::CurrentRuns::new(self.kind, spec))
    }
}

/// Adds all of them to the operators of a program.
pub fn operators(operators: Operators) -> Operators {
    ALL.into_iter().fold(operators, |operators, rival| operators.with_selector(Arc::new(rival)))
}

/// Sets the default keyspace's filter to one of the engine's or one of these, by name.
///
/// # Errors
/// If there is no filter of that name.
pub fn set_filter(options: &mut Options, name: &str) -> Result<(), OptionsError> {
    match Rival::named(name) {
        Some(rival) => {
            options.operators = operators(std::mem::take(&mut options.operators));
            options.keyspace.filter = rival.choice().into();
            Ok(())
        }
        None => options.set("keyspace.filter", name),
    }
}
