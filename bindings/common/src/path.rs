//! Paths that outlive the call.

use std::path::{Path, PathBuf};

/// Returns `path` independent of the current directory, for an object that goes on opening files below it: otherwise a program that
/// changes its directory would make the object look, and write, somewhere else.
///
/// A path that cannot be made absolute, as an empty one, is returned as it is: using it says what is wrong.
pub fn absolute(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
