//! `tamis-mutants build`: the copy, its tests and its simulator, and what is known of them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compile::Copy;
use crate::copy::copy;
use crate::find::find;
use crate::rooms;
use crate::select::Selection;
use crate::site::Mutant;

/// Tests of the engine as a whole that are quick.
const INTEGRATION: &[&str] = &[
    "engine",
    "model",
    "global_filters",
    "crash",
    "damage",
    "transactions",
    "elastic",
    "all_kinds",
    "membership",
    "processes",
];

/// What a build leaves for runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Built {
    /// The mutants that compile.
    pub mutants: Vec<Mutant>,
    /// The highest number of any mutant.
    pub highest: u32,
    pub tests: Vec<TestBinary>,
    pub simulator: PathBuf,
}

/// A program with tests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TestBinary {
    /// The crate and the target.
    pub name: String,
    pub executable: PathBuf,
    /// Where its tests are run.
    pub directory: PathBuf,
}

impl Built {
    /// Reads what the last build has left.
    pub fn read(scratch: &Path) -> io::Result<Built> {
        let text = fs::read(scratch.join("built.json")).map_err(|error| {
            io::Error::new(error.kind(), format!("no build in {}: {error}", scratch.display()))
        })?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// Builds the mutants of the selection under `scratch`.
pub fn build(root: &Path, scratch: &Path, selection: &Selection, cargo: &str) -> io::Result<Built> {
    let found = find(root)?;
    let chosen: HashSet<u32> = selection.choose(&found.mutants).iter().map(|mutant| mutant.number).collect();
    println!("{} of {} mutants", chosen.len(), found.mutants.len());
    fs::create_dir_all(scratch)?;
    let tree = scratch.canonicalize()?.join("tree");
    copy_keeping_rewritten(root, &tree, &found.sources)?;
    let all = found.mutants.iter().map(|mutant| mutant.number);
    let dropped = all.filter(|number| !chosen.contains(number)).collect();
    let mut copy = Copy::new(&tree, cargo, &found.sources, dropped);

    let mut packages = Vec::new();
    for krate in rooms::CRATES {
        packages.extend(["-p", krate]);
    }
    let mut check = vec!["check", "--keep-going", "--lib"];
    check.extend(&packages);
    copy.build(&tree, &check, true)?;
    let mut test = vec!["test", "--no-run", "--lib"];
    test.extend(&packages);
    for name in INTEGRATION {
        test.extend(["--test", name]);
    }
    let tests = copy.build(&tree, &test, false)?;
    let sim = tree.join("crates/tamis-sim");
    let simulate = ["build", "--profile", "mutant"];
    let before = copy.dropped.len();
    let simulators = copy.build(&sim, &simulate, false)?;
    // What the simulator did not accept is missing from the tests, too.
    let tests = if copy.dropped.len() == before { tests } else { copy.build(&tree, &test, false)? };

    let name = |package: &Path, target: &str| {
        let package = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if package.replace('-', "_") == target { package } else { format!("{package}/{target}") }
    };
    // Kept apart, so that a run can go on while cargo builds something else.
    let programs = scratch.canonicalize()?.join("programs");
    let keep = |executable: &Path| -> io::Result<PathBuf> {
        let kept = programs.join(executable.file_name().unwrap_or_default());
        fs::create_dir_all(&programs)?;
        fs::copy(executable, &kept)?;
        Ok(kept)
    };
    let mut binaries = Vec::new();
    for one in tests.into_iter().filter(|one| one.is_test) {
        binaries.push(TestBinary {
            name: name(&one.package, &one.target),
            executable: keep(&one.executable)?,
            directory: one.package,
        });
    }
    let simulator = simulators
        .into_iter()
        .find(|one| one.target == "tamis-sim")
        .ok_or_else(|| io::Error::other("cargo made no simulator"))?;
    let built = Built {
        highest: found.mutants.len() as u32,
        mutants: found.mutants.into_iter().filter(|one| !copy.dropped.contains(&one.number)).collect(),
        tests: binaries,
        simulator: keep(&simulator.executable)?,
    };
    println!("{} mutants, {} programs with tests", built.mutants.len(), built.tests.len());
    for known in ["suite.jsonl", "simulated.json", "simulated-transactions.json"] {
        match fs::remove_file(scratch.join(known)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::write(scratch.join("built.json"), serde_json::to_vec(&built)?)?;
    Ok(built)
}

/// Makes the copy without putting the plain sources back first, which would build them again.
fn copy_keeping_rewritten(root: &Path, tree: &Path, sources: &[crate::site::Source]) -> io::Result<()> {
    let rewritten: HashSet<&str> = sources.iter().map(|source| source.file.as_str()).collect();
    copy(root, tree, &|name| !rewritten.contains(name))
}
