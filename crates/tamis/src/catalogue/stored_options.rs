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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_parsed_once_in_a_row_and_what_is_ignored_is_told_once() {
        let mut stored = StoredOptions::default();
        let text = |bits: u32| Arc::<str>::from(format!("bits_per_key = {bits}\n"));
        for bits in [9, 9, 12, 9] {
            let expected = KeyspaceOptions::from_stored(&text(bits)).unwrap();
            assert_eq!(*stored.get(&text(bits)).unwrap(), expected);
        }
        assert_eq!(stored.take_ignored(), [""; 0]);
        assert!(stored.get(&"bits_per_key = many\n".into()).is_err());
        stored.ignored = ["b = 2", "a = 1", "b = 2"].map(str::to_owned).to_vec();
        assert_eq!(stored.take_ignored(), ["a = 1", "b = 2"]);
        assert_eq!(stored.take_ignored(), [""; 0]);
    }

    /// Which options there are depends on the features of the build.
    #[test]
    fn options_that_this_build_does_not_have_are_collected() {
        let text = "restart_interval = 7\nbits_per_key = 9\n";
        let mut stored = StoredOptions::default();
        for _ in 0..2 {
            stored.get(&text.into()).unwrap();
        }
        let expected =
            if cfg!(feature = "measure") { vec![] } else { vec!["restart_interval = 7".to_owned()] };
        assert_eq!(stored.take_ignored(), expected);
    }
}
