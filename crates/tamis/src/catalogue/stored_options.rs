//! Options of keyspaces as a database stores them, parsed once for many of the same.

use std::sync::Arc;

use crate::error::OptionsError;
use crate::options::KeyspaceOptions;

/// Options as parsed from the manifest. Thousands of keyspaces mostly have the same text, which is
/// parsed once.
#[derive(Debug, Default)]
pub(crate) struct StoredOptions(Option<(Arc<str>, KeyspaceOptions)>);

impl StoredOptions {
    pub(crate) fn get(&mut self, text: &Arc<str>) -> Result<&KeyspaceOptions, OptionsError> {
        let known = self.0.take().filter(|(known, _)| known == text);
        let parsed = match known {
            Some(known) => known,
            None => (text.clone(), KeyspaceOptions::from_stored(text)?),
        };
        Ok(&self.0.insert(parsed).1)
    }
}
