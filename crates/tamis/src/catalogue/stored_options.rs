//! Options of keyspaces as a database stores them, parsed once for many of the same.

use std::sync::Arc;

use crate::error::OptionsError;
use crate::options::{KeyspaceOptions, ignored};

/// Options as parsed from the manifest. Thousands of keyspaces mostly have the same text, which is
/// parsed once.
#[derive(Debug, Default)]
pub(crate) struct StoredOptions {
    last: Option<(Arc<str>, KeyspaceOptions)>,
    /// What this build does not have, of each text that was parsed.
    ignored: Vec<String>,
}

impl StoredOptions {
    pub(crate) fn get(&mut self, text: &Arc<str>) -> Result<&KeyspaceOptions, OptionsError> {
        let known = self.last.take().filter(|(known, _)| known == text);
        let parsed = match known {
            Some(known) => known,
            None => {
                self.ignored.extend(ignored(text));
                (text.clone(), KeyspaceOptions::from_stored(text)?)
            }
        };
        Ok(&self.last.insert(parsed).1)
    }

    /// Returns the stored options that this build does not have, each once.
    pub(crate) fn take_ignored(&mut self) -> Vec<String> {
        let mut ignored = std::mem::take(&mut self.ignored);
        ignored.sort_unstable();
        ignored.dedup();
        ignored
    }
}
