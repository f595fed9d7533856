//! The licenses of the crates that a library is linked from, which ask to be with every copy of it: for the build scripts of what is handed out
//! as binaries.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Writes the notice of the package that is being built to `file`, from `cargo metadata`: every crate that is linked for this target, with its
/// license, and the texts that its package has, each once. To be called by a build script.
///
/// # Panics
///
/// If that cannot be done: what lacks the notice must not be handed out.
#[expect(clippy::print_stdout, reason = "a build script talks to Cargo on its standard output")]
pub fn write(file: &Path) {
    let var =
        |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"));
    let manifest = Path::new(&var("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    // The versions that are being built, and no look at a network that can be done without.
    let ask = |offline: &[&str]| {
        Command::new(var("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &var("TARGET")])
            .args(offline)
            .arg("--manifest-path")
            .arg(&manifest)
            .output()
            .expect("cargo runs")
    };
    // Packages of the workspace that this one does not need may not have been downloaded.
    let asked = Some(ask(&["--offline"])).filter(|asked| asked.status.success()).unwrap_or_else(|| ask(&[]));
    assert!(asked.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&asked.stderr));
    let metadata: Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    let notice = notice(&metadata, &var("CARGO_PKG_NAME"), &|package| texts(package));
    fs::create_dir_all(file.parent().expect("a file has a directory")).expect("a directory");
    // Left alone if it is current, so that nothing is built again for it.
    if fs::read_to_string(file).ok().as_deref() != Some(&notice) {
        fs::write(file, notice).expect("the notice can be written");
    }
    let manifest = manifest.display();
    println!("cargo::rerun-if-changed={manifest}\ncargo::rerun-if-changed={}", file.display());
    let lock = Path::new(metadata["workspace_root"].as_str().expect("a path")).join("Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// Returns the notice of a package; `texts` has the texts of another one.
fn notice(metadata: &Value, package: &str, texts: &dyn Fn(&Value) -> Vec<String>) -> String {
    let of = |list: &'static str| metadata[list].as_array().into_iter().flatten();
    let packages: BTreeMap<&str, &Value> =
        of("packages").map(|package| (text(package, "id"), package)).collect();
    let nodes = metadata["resolve"]["nodes"].as_array().into_iter().flatten();
    let nodes: BTreeMap<&str, &Value> = nodes.map(|node| (text(node, "id"), node)).collect();
    let root = packages.values().find(|known| text(known, "name") == package).expect("it is known to cargo");

    let (mut linked, mut pending) = (BTreeSet::new(), vec![text(root, "id")]);
    while let Some(id) = pending.pop() {
        // What runs while building is not part of what is built.
        let kinds =
            packages[id]["targets"].as_array().into_iter().flatten().flat_map(|t| t["kind"].as_array());
        if kinds.flatten().any(|kind| kind == "proc-macro") || !linked.insert(id) {
            continue;
        }
        for dependency in nodes[id]["deps"].as_array().into_iter().flatten() {
            let kinds = dependency["dep_kinds"].as_array();
            if kinds.into_iter().flatten().any(|kind| kind["kind"].is_null()) {
                pending.push(text(dependency, "pkg"));
            }
        }
    }
    // Ours come from no registry.
    let mut others: Vec<&Value> =
        linked.iter().map(|id| packages[id]).filter(|p| !p["source"].is_null()).collect();
    others.sort_by_key(|package| (text(package, "name"), text(package, "version")));

    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut notice = format!("{package} is linked from these packages, under their licenses:\n\n");
    for package in others {
        let name = format!("{} {}", text(package, "name"), text(package, "version"));
        notice += &format!("{name}: {}\n", text(package, "license"));
        for text in texts(package) {
            by_text.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in by_text {
        notice += &format!("\n{}\n{}:\n\n{}\n", "-".repeat(80), names.join(", "), text.trim_end());
    }
    notice
}

/// Returns the licenses and notices in a package.
fn texts(package: &Value) -> Vec<String> {
    let manifest = Path::new(text(package, "manifest_path"));
    let entries = manifest.parent().into_iter().flat_map(fs::read_dir).flatten().flatten();
    let is_one = |name: &str| {
        let name = name.to_ascii_uppercase();
        ["LICENSE", "LICENCE", "UNLICENSE", "COPYING", "COPYRIGHT", "NOTICE"]
            .iter()
            .any(|word| name.starts_with(word))
    };
    let mut files: Vec<_> = entries.filter(|entry| is_one(&entry.file_name().to_string_lossy())).collect();
    files.sort_by_key(fs::DirEntry::file_name);
    files.iter().filter_map(|file| fs::read_to_string(file.path()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_named_and_what_only_builds_is_not() {
        let package = |name: &str, source: Option<&str>, kind: &str| {
            serde_json::json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source,
                "targets": [{"kind": [kind]}]})
        };
        let needs = |id: &str, deps: &[(&str, Option<&str>)]| {
            let deps: Vec<_> = deps
                .iter()
                .map(|(name, kind)| serde_json::json!({"pkg": name, "dep_kinds": [{"kind": kind}]}))
                .collect();
            serde_json::json!({"id": id, "deps": deps})
        };
        let registry = Some("registry");
        let metadata = serde_json::json!({
            "packages": [
                package("ours", None, "cdylib"), package("engine", None, "lib"), package("linked", registry, "lib"),
                package("deep", registry, "lib"), package("macros", registry, "proc-macro"),
                package("syn", registry, "lib"), package("builds", registry, "lib"), package("tests", registry, "lib"),
            ],
            "resolve": {"nodes": [
                needs("ours", &[("engine", None), ("builds", Some("build")), ("tests", Some("dev"))]),
                needs("engine", &[("linked", None), ("macros", None)]),
                needs("linked", &[("deep", None)]), needs("deep", &[]), needs("macros", &[("syn", None)]),
                needs("syn", &[]), needs("builds", &[]), needs("tests", &[]),
            ]},
        });
        let notice = notice(&metadata, "ours", &|_| vec!["Permission".to_owned()]);
        assert!(notice.contains("deep 1.0.0: MIT\nlinked 1.0.0: MIT\n"), "{notice}");
        assert!(notice.ends_with("deep 1.0.0, linked 1.0.0:\n\nPermission\n"), "{notice}");
        for absent in ["engine 1", "macros", "syn", "builds", "tests"] {
            assert!(!notice.contains(absent), "{absent}: {notice}");
        }
    }
}
