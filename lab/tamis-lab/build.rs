//! Tells the laboratory's programs which commit they were built from, for the record beside their rows.

use std::process::Command;

/// What they are built from, besides the Rust toolchain and other engines.
const SOURCES: [&str; 5] =
    ["../../crates", "..", ":(exclude)../results", "../../Cargo.toml", "../../Cargo.lock"];

fn main() {
    // Written by git at every commit, checkout and reset.
    println!("cargo:rerun-if-changed=../../.git/logs/HEAD");
    for path in
        ["build.rs", "src", "../peers/src", "../rivals/src", "../Cargo.toml", "../Cargo.lock", "../../crates"]
    {
        println!("cargo:rerun-if-changed={path}");
    }
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).map(|commit| {
        let changed = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat());
        if changed.is_none_or(|changed| !changed.is_empty()) { commit + " with changes" } else { commit }
    });
    println!("cargo:rustc-env=TAMIS_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
