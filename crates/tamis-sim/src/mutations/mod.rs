//! Known bugs, injected into copies of the engine to see whether the simulation finds them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

mod list;

use list::{MUTATIONS, Mutation, OF_TRANSACTIONS};

fn all() -> impl Iterator<Item = &'static Mutation> {
    MUTATIONS.iter().chain(OF_TRANSACTIONS)
}

/// Reports whether each bug still has exactly one place in the engine.
pub fn check(root: &Path) -> io::Result<bool> {
    let mut sound = true;
    for mutation in all() {
        for edit in mutation.edits {
            let places = std::fs::read_to_string(root.join(edit.file))?.matches(edit.find).count();
            if places != 1 {
                println!("{}: its place is in {} {places} times", mutation.name, edit.file);
                sound = false;
            }
        }
    }
    println!(
        "{} mistakes, {}",
        all().count(),
        if sound { "all have their places" } else { "not all have a place" }
    );
    Ok(sound)
}

/// Hunts for each bug; returns true if all were found.
pub fn hunt_all(root: &Path, limit: Duration, only: Option<&str>) -> io::Result<bool> {
    if !check(root)? {
        return Ok(false);
    }
    let work = tempfile::tempdir()?;
    let copy = work.path().join("tree");
    copy_tree(root, &copy)?;
    let (mut found, mut missed) = (0, Vec::new());
    for mutation in all().filter(|m| only.is_none_or(|only| m.name.contains(only))) {
        let originals = apply(mutation, &copy)?;
        println!("{}: {}", mutation.name, mutation.story);
        match look_for(mutation, &copy, &work.path().join("target"), limit)? {
            Some((after, how)) => {
                found += 1;
                println!("  found after {:.0} s: {how}", after.as_secs_f64());
            }
            None => {
                missed.push(mutation.name);
                println!("  not found within {} s", limit.as_secs());
            }
        }
        for (path, text) in originals {
            std::fs::write(path, text)?;
        }
    }
    println!("{found} found, {} missed {}", missed.len(), missed.join(", "));
    Ok(missed.is_empty())
}

/// Injects the bug; returns the original contents of the files.
fn apply(mutation: &Mutation, copy: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut originals: Vec<(PathBuf, String)> = Vec::new();
    for edit in mutation.edits {
        let path = copy.join(edit.file);
        let text = std::fs::read_to_string(&path)?;
        std::fs::write(&path, text.replacen(edit.find, edit.replace, 1))?;
        if !originals.iter().any(|(other, _)| *other == path) {
            originals.push((path, text));
        }
    }
    Ok(originals)
}

/// Builds the copy and runs seeds until one fails.
fn look_for(
    mutation: &Mutation,
    copy: &Path,
    target: &Path,
    limit: Duration,
) -> io::Result<Option<(Duration, String)>> {
    let manifest = copy.join("crates/tamis-sim/Cargo.toml");
    let built = Command::new("cargo")
        .args(["build", "--quiet", "--locked", "--profile", "mutant", "--manifest-path"])
        .arg(&manifest)
        .env("CARGO_TARGET_DIR", target)
        .stdout(Stdio::null())
        .status()?;
    if !built.success() {
        return Err(io::Error::other("the engine with the bug does not compile"));
    }
    let started = Instant::now();
    let of_transactions = OF_TRANSACTIONS.iter().any(|other| other.name == mutation.name);
    let how = if of_transactions { &["transactions"][..] } else { &["--shrink-seconds", "0"] };
    let output = Command::new(target.join("mutant/tamis-sim"))
        .args(how)
        .args(["--seconds", &limit.as_secs().to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let how = text.lines().find(|line| line.contains(" failed: ") || line.contains("ended the process"));
    Ok(how.map(|how| (started.elapsed(), how.chars().take(200).collect())))
}

/// Copies everything except the directories of git and cargo.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == "target" || name == ".git" {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        if entry.file_type()?.is_dir() {
            copy_tree(&from, &to)?;
        } else {
            std::fs::copy(&from, &to)?;
        }
    }
    Ok(())
}
