//! The copy of the repository in which mutants are built.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::rooms;

/// Copies what git knows of the repository, and gives each crate of the engine the switch. Files
/// that are the same already are not written again, so that cargo does not build them again.
/// Files that are not `wanted` are left as they are.
pub fn copy(root: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> io::Result<()> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()?;
    if !listed.status.success() {
        return Err(io::Error::other("git cannot list the files of the repository"));
    }
    for name in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
        let from = root.join(name);
        // Listed, but removed and not committed yet; or a link.
        if from.is_file() && wanted(name) {
            write(&to.join(name), &with_switch(name, fs::read(&from)?))?;
        }
    }
    let switch = to.join("crates/tamis-mutant");
    write(&switch.join("src/lib.rs"), include_bytes!("switch/lib.rs"))?;
    write(&switch.join("Cargo.toml"), include_bytes!("switch/package.toml"))
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
