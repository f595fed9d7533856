//! The copy of the repository in which mutants are built.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::rooms;

/// The crate of the switch, which is not in the repository.
const SWITCH: &str = "crates/tamis-mutant";

/// Copies what git knows of the repository, and gives each crate of the engine the switch. Files
/// that are the same already are not written again, so that cargo does not build them again.
/// Files that are not `wanted` are left as they are; those that the repository no longer has go.
pub fn copy(root: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> io::Result<()> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()?;
    if !listed.status.success() {
        return Err(io::Error::other("git cannot list the files of the repository"));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let names: HashSet<&str> = listed.split_terminator('\0').collect();
    if to.exists() {
        let is_here = |name: &str| names.contains(name) && root.join(name).is_file();
        prune(to, "", &|name| is_here(name) || name.starts_with(SWITCH))?;
    }
    for name in names {
        let from = root.join(name);
        // Listed, but removed and not committed yet; or a link.
        if from.is_file() && wanted(name) {
            write(&to.join(name), &with_switch(name, fs::read(&from)?))?;
        }
    }
    let switch = to.join(SWITCH);
    write(&switch.join("src/lib.rs"), include_bytes!("switch/lib.rs"))?;
    write(&switch.join("Cargo.toml"), include_bytes!("switch/package.toml"))
}

/// Removes the files of a copy that are not to stay. `inside` is the directory's name in the copy,
/// empty or with a slash at its end. A module that had moved would be there twice.
fn prune(dir: &Path, inside: &str, stays: &dyn Fn(&str) -> bool) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{inside}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                prune(&entry.path(), &format!("{name}/"), stays)?;
            }
        } else if !stays(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Adds the switch to the dependencies of a crate of the engine.
fn with_switch(name: &str, content: Vec<u8>) -> Vec<u8> {
    let is_engine = rooms::CRATES.iter().any(|krate| name == format!("crates/{krate}/Cargo.toml"));
    if !is_engine {
        return content;
    }
    let text = String::from_utf8_lossy(&content);
    text.replacen(
        "\n[dependencies]\n",
        "\n[dependencies]\ntamis-mutant = { path = \"../tamis-mutant\" }\n",
        1,
    )
    .into_bytes()
}

/// Writes the file unless it has this content.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_the_repository_no_longer_has_are_removed() {
        let copy = tempfile::tempdir().unwrap();
        for name in ["src/client.rs", "src/client/mod.rs", "target/built", "Cargo.toml"] {
            write(&copy.path().join(name), b"text").unwrap();
        }
        prune(copy.path(), "", &|name| ["src/client/mod.rs", "Cargo.toml"].contains(&name)).unwrap();
        let left = ["src/client.rs", "src/client/mod.rs", "target/built", "Cargo.toml"];
        let left = left.map(|name| copy.path().join(name).exists());
        assert_eq!(left, [false, true, true, true]);
    }
}
