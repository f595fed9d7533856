//! Which share of each room of the engine the simulation executes.
//!
//! Builds this program with instrumentation in a directory of its own, runs seeds, and sums what
//! `llvm-cov` says of each file. The tools are those of the compiler: `rustup component add
//! llvm-tools`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

/// The seeds of one process. It writes its counters when it ends.
const SEEDS_OF_PROCESS: u64 = 50;

/// The begin of the list of rooms in `ARCHITECTURE.md`.
const LIST: &str = "<!-- rooms, from the bottom up -->\n```text\n";

/// What `llvm-cov export` prints.
#[derive(Deserialize)]
struct Export {
    data: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    files: Vec<File>,
}

#[derive(Deserialize)]
struct File {
    filename: PathBuf,
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    lines: Count,
    regions: Count,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Count {
    count: u64,
    covered: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.count += other.count;
        self.covered += other.covered;
    }

    fn percent(self) -> f64 {
        self.covered as f64 * 100.0 / self.count.max(1) as f64
    }
}

/// Runs seeds and prints the coverage of each room. `target` keeps the build; a temporary directory
/// does not.
pub fn coverage(root: &Path, from: u64, seeds: u64, jobs: u64, target: Option<&Path>) -> io::Result<bool> {
    let work = tempfile::tempdir()?;
    let target = target.map_or_else(|| work.path().join("target"), Path::to_owned);
    let tools = tools()?;
    let program = build(root, &target)?;
    let sound = run(&program, work.path(), from, seeds, jobs)?;
    let profile = work.path().join("all.profdata");
    let raw = std::fs::read_dir(work.path())?.map(|entry| entry.map(|entry| entry.path()));
    let raw = raw
        .filter(|path| path.as_ref().map_or(true, |path| path.extension().is_some_and(|e| e == "profraw")));
    let raw = raw.collect::<io::Result<Vec<PathBuf>>>()?;
    let mut merge = Command::new(tools.join("llvm-profdata"));
    succeed(merge.args(["merge", "-sparse", "-o"]).arg(&profile).args(&raw))?;
    let exported = Command::new(tools.join("llvm-cov"))
        .args(["export", "--summary-only", "--format=text", "--instr-profile"])
        .arg(&profile)
        .arg(&program)
        .output()?;
    if !exported.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&exported.stderr).into_owned()));
    }
    let export: Export = serde_json::from_slice(&exported.stdout).map_err(io::Error::other)?;
    print(root, &std::fs::read_to_string(root.join("ARCHITECTURE.md"))?, &export)?;
    Ok(sound)
}

/// Returns the directory of the compiler's tools.
fn tools() -> io::Result<PathBuf> {
    let ask = |what: &[&str]| -> io::Result<String> {
        Ok(String::from_utf8_lossy(&Command::new("rustc").args(what).output()?.stdout).into_owned())
    };
    let about = ask(&["-vV"])?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let tools = Path::new(ask(&["--print", "sysroot"])?.trim()).join("lib/rustlib").join(host).join("bin");
    match tools.join("llvm-cov").exists() {
        true => Ok(tools),
        false => Err(io::Error::other("needs `rustup component add llvm-tools`")),
    }
}

fn build(root: &Path, target: &Path) -> io::Result<PathBuf> {
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut cargo = Command::new("cargo");
    cargo
        .args(["build", "--quiet", "--locked", "--profile", "mutant", "--manifest-path"])
        .arg(root.join("crates/tamis-sim/Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .env("RUSTFLAGS", format!("{flags} -C instrument-coverage"));
    succeed(&mut cargo)?;
    Ok(target.join("mutant/tamis-sim"))
}

fn succeed(command: &mut Command) -> io::Result<()> {
    match command.status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{:?} failed", command.get_program()))),
    }
}

/// Runs the seeds in processes that each leave a file of counters; false if any failed.
fn run(program: &Path, work: &Path, from: u64, seeds: u64, jobs: u64) -> io::Result<bool> {
    let parts: Vec<(u64, u64)> = (from..from + seeds)
        .step_by(SEEDS_OF_PROCESS as usize)
        .map(|first| (first, (first + SEEDS_OF_PROCESS).min(from + seeds)))
        .collect();
    let mut sound = true;
    for parts in parts.chunks(jobs as usize) {
        let mut running = Vec::new();
        for (first, end) in parts {
            let child = Command::new(program)
                .args(["work", &first.to_string(), "1", &end.to_string()])
                .env("LLVM_PROFILE_FILE", work.join("%p.profraw"))
                .stdout(Stdio::piped())
                .spawn()?;
            running.push(child);
        }
        for child in running {
            let output = child.wait_with_output()?;
            for failure in
                String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with("failed"))
            {
                println!("{failure}");
                sound = false;
            }
        }
    }
    Ok(sound)
}

/// Returns the crates with their rooms, from the bottom up.
fn rooms(architecture: &str) -> Vec<(String, Vec<String>)> {
    let list = architecture.split_once(LIST).map_or("", |(_, list)| list);
    let list = list.split_once("```").map_or("", |(list, _)| list);
    let mut crates: Vec<(String, Vec<String>)> = Vec::new();
    for word in list.split_whitespace() {
        match (word.strip_suffix(':'), crates.last_mut()) {
            (Some(name), _) => crates.push((name.to_owned(), Vec::new())),
            (None, Some((_, rooms))) => rooms.push(word.to_owned()),
            (None, None) => {}
        }
    }
    crates
}

fn print(root: &Path, architecture: &str, export: &Export) -> io::Result<()> {
    let crates = root.join("crates").canonicalize()?;
    let mut sums: BTreeMap<(String, String), (Count, Count)> = BTreeMap::new();
    for file in export.data.iter().flat_map(|data| &data.files) {
        let Some(place) = place_of(&crates, &file.filename) else { continue };
        let (lines, regions) = sums.entry(place).or_default();
        lines.add(file.summary.lines);
        regions.add(file.summary.regions);
    }
    println!("{:<13} {:<12} {:>7} {:>7} {:>8}", "crate", "room", "lines", "of", "regions");
    for (name, rooms) in rooms(architecture) {
        for room in rooms {
            let (lines, regions) = sums.get(&(name.clone(), room.clone())).copied().unwrap_or_default();
            // A room without code that can be executed has no share.
            if lines.count > 0 {
                let (of_lines, of_regions) = (lines.percent(), regions.percent());
                println!("{name:<13} {room:<12} {of_lines:>6.1}% {:>7} {of_regions:>7.1}%", lines.count);
            }
        }
    }
    Ok(())
}

/// Returns the crate and the room of a source file.
fn place_of(crates: &Path, file: &Path) -> Option<(String, String)> {
    let mut parts =
        file.strip_prefix(crates).ok()?.components().map(|part| part.as_os_str().to_string_lossy());
    let name = parts.next()?.into_owned();
    let room = parts.nth(1)?.trim_end_matches(".rs").to_owned();
    Some((name, room))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_read_from_the_list() {
        let text = format!("before\n{LIST}a: one two\nb: three\nfour\n```\nafter c: five");
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let expected = [("a".to_owned(), list(&["one", "two"])), ("b".to_owned(), list(&["three", "four"]))];
        assert_eq!(rooms(&text), expected);
    }

    #[test]
    fn a_file_is_in_the_room_that_its_path_begins_with() {
        let crates = Path::new("/r/crates");
        let place = |path: &str| place_of(crates, Path::new(path));
        assert_eq!(place("/r/crates/tamis/src/log.rs"), Some(("tamis".into(), "log".into())));
        assert_eq!(place("/r/crates/tamis/src/read/iter.rs"), Some(("tamis".into(), "read".into())));
        assert_eq!(place("/elsewhere/src/log.rs"), None);
    }
}
