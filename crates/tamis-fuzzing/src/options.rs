//! The text form of options.

use tamis::{KeyspaceOptions, Options};

/// Checks the text form of options, of a database and of a keyspace.
pub fn options(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Options::from_text(text) {
        Ok(options) => {
            options.check().expect("accepted options are valid");
            assert_eq!(
                Options::from_text(&options.to_text()),
                Ok(options),
                "options change when printed and read"
            );
        }
        Err(error) => assert!(error.to_string().len() < 1000, "an error repeats all of a hostile text"),
    }
    match KeyspaceOptions::from_text(text) {
        Ok(options) => {
            options.check().expect("accepted options are valid");
            assert_eq!(KeyspaceOptions::from_text(&options.to_text()), Ok(options));
        }
        Err(error) => assert!(error.to_string().len() < 1000, "an error repeats all of a hostile text"),
    }
    let mut options = Options::default();
    for line in text.lines() {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let before = options.clone();
        if options.set(name.trim(), value).is_err() {
            assert_eq!(options, before, "a refused value changes something");
        }
    }
    // Values accepted individually may contradict each other; they can be printed all the same.
    let printed = options.to_text();
    if options.check().is_ok() {
        assert_eq!(Options::from_text(&printed), Ok(options));
    }
}
