//! The files of a crate: its tree of modules, without those that only tests have.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::conditional::is_built;

/// A file of a crate.
pub struct Module {
    /// The path below the root of the repository.
    pub file: PathBuf,
    /// The path of the module, without the crate.
    pub path: Vec<String>,
    pub text: String,
    pub parsed: syn::File,
}

/// Returns all files of the crate.
pub fn modules(root: &Path, krate: &str) -> io::Result<Vec<Module>> {
    let mut found = Vec::new();
    let src = Path::new("crates").join(krate).join("src");
    walk(root, src.join("lib.rs"), &src, Vec::new(), &mut found)?;
    Ok(found)
}

/// Adds the file and the modules below it, whose files are in `dir`.
fn walk(
    root: &Path,
    file: PathBuf,
    dir: &Path,
    path: Vec<String>,
    found: &mut Vec<Module>,
) -> io::Result<()> {
    let text = fs::read_to_string(root.join(&file))?;
    let parsed =
        syn::parse_file(&text).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
    let mut below = Vec::new();
    if is_built(&parsed.attrs) {
        declared(&parsed.items, dir, &path, &mut below);
        found.push(Module { file, path, text, parsed });
    }
    for (dir, path) in below {
        let beside = dir.with_extension("rs");
        let file = if root.join(&beside).exists() { beside } else { dir.join("mod.rs") };
        walk(root, file, &dir, path, found)?;
    }
    Ok(())
}

/// Lists the modules that are files of their own, each with the directory of its own modules.
fn declared(items: &[syn::Item], dir: &Path, path: &[String], found: &mut Vec<(PathBuf, Vec<String>)>) {
    for item in items {
        let syn::Item::Mod(module) = item else { continue };
        if !is_built(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        let (dir, path) = (dir.join(&name), [path, std::slice::from_ref(&name)].concat());
        match &module.content {
            Some((_, items)) => declared(items, &dir, &path, found),
            // A module elsewhere would need its path; the engine has none.
            None if module.attrs.iter().any(|attribute| attribute.path().is_ident("path")) => {}
            None => found.push((dir, path)),
        }
    }
}
