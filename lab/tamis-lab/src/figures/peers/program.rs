//! The comparison program as a child process.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::report::{bytes, grouped};
use tamis_bench::workload::Workload;

use crate::figures::Row;
use crate::figures::peers::rows;

/// What errors of the program are said to come from.
const PROGRAM: &str = "the comparison program";

/// How often the program is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Of what the program said last, at most so many bytes are told.
const TOLD: usize = 2000;

/// One system of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// What it is called in rows.
    pub side: String,
    /// What the program calls it: `rocksdb`, `tamis:OPTION=VALUE`.
    pub name: String,
}

/// What the comparison program is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The program.
    pub program: PathBuf,
    /// One suite, by its name there.
    pub suite: &'static str,
    /// Whether the workloads are just those of the suite, and need not be named.
    pub suite_workloads: bool,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// tamis first, which the others are held against.
    pub systems: Vec<System>,
    /// Keys that exist when it begins.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations of the fastest workloads, over all threads; the program does fewer of slow ones.
    pub ops: u64,
    /// Rounds.
    pub rounds: u32,
    /// Threads side by side.
    pub threads: Vec<usize>,
    /// Filter bits a key.
    pub filter_bits: u32,
    /// Bytes of a memtable, and how large tables grow.
    pub memtable_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Whether tables are read past the page cache.
    pub direct: bool,
    /// Drives every random choice.
    pub seed: u64,
    /// Where databases are made; where the program makes them by itself if nowhere.
    pub dir: Option<PathBuf>,
}

impl Comparison {
    /// In a sentence.
    pub(super) fn describe(&self) -> String {
        let sides: Vec<&str> = self.systems.iter().map(|system| &system.side[..]).collect();
        format!(
            "{}; {} keys of {} bytes, values of {} bytes, {} filter bits a key, memtables of {}, block cache {}, {}; {} rounds \
             of up to {} operations",
            sides.join(", "),
            grouped(self.keys),
            self.key_bytes,
            self.value_bytes,
            self.filter_bits,
            bytes(self.memtable_bytes),
            bytes(self.cache_bytes),
            if self.direct { "direct I/O" } else { "through the page cache" },
            self.rounds,
            grouped(self.ops)
        )
    }

    /// The program's arguments, rows going to `out`.
    fn arguments(&self, out: &Path) -> Vec<OsString> {
        let names = |names: Vec<&str>| names.join(",");
        let numbers: Vec<String> = self.threads.iter().map(usize::to_string).collect();
        let mut arguments: Vec<OsString> = vec!["run".into()];
        let mut flag = |name: &str, value: &dyn AsRef<OsStr>| {
            arguments.push(name.into());
            arguments.push(value.as_ref().to_owned());
        };
        flag("--suites", &self.suite);
        flag("--systems", &names(self.systems.iter().map(|system| &system.name[..]).collect()));
        flag("--keys", &self.keys.to_string());
        flag("--key-bytes", &self.key_bytes.to_string());
        flag("--value-bytes", &self.value_bytes.to_string());
        flag("--ops", &self.ops.to_string());
        flag("--rounds", &self.rounds.to_string());
        flag("--filter-bits", &self.filter_bits.to_string());
        flag("--memtable", &self.memtable_bytes.to_string());
        flag("--cache", &self.cache_bytes.to_string());
        flag("--threads", &numbers.join(","));
        flag("--seed", &self.seed.to_string());
        if !self.suite_workloads {
            flag("--workloads", &names(self.workloads.iter().map(|workload| workload.name()).collect()));
        }
        if let Some(dir) = &self.dir {
            flag("--dir", dir);
        }
        flag("--out", &out);
        if self.direct {
            arguments.push("--direct".into());
        }
        arguments
    }
}

/// The systems that the program has: engines that are compiled in, and tamis.
///
/// Fails with [`BenchError::Request`] if there is no such program, or if it is another.
pub fn compiled_in(program: &Path) -> Result<Vec<String>, BenchError> {
    let output = Command::new(program).arg("list").stdin(Stdio::null()).output();
    let output = output.map_err(|error| not_run(program, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let systems = text.lines().skip_while(|line| line.trim() != "Systems:").skip(1);
    let names: Vec<String> =
        systems.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    if !output.status.success() || !names.iter().any(|name| name == "tamis") {
        return Err(BenchError::Request(format!(
            "--peers: {} does not say which systems it has; it should be the program of the crate tamis-peers{}",
            program.display(),
            last_words(&output.stderr)
        )));
    }
    Ok(names)
}

/// Runs the comparison, and gives a row for each system, workload and number of threads, and notes. Takes as long as the
/// program, and the disk space of a database for each system.
///
/// # Errors
///
/// The program cannot be run or refuses its arguments ([`BenchError::Request`]); it ends early, a system of it fails or gives a
/// wrong answer, it has no rows of a system that it was asked for ([`BenchError::Store`]).
pub fn step(comparison: &Comparison, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
    let failed = |operation, path: &Path| {
        let path = path.to_owned();
        move |source| BenchError::Io { operation, path, source }
    };
    let parent = comparison.dir.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&parent).map_err(failed("make", &parent))?;
    let made = tempfile::Builder::new().prefix("tamis-peers-rows-").tempdir_in(&parent);
    let dir = made.map_err(failed("make a directory in", &parent))?;
    let (out, said) = (dir.path().join("out"), dir.path().join("stderr"));
    let errors = File::create(&said).map_err(failed("make", &said))?;
    let mut command = Command::new(&comparison.program);
    command.args(comparison.arguments(&out)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let child = command.spawn().map_err(|error| not_run(&comparison.program, &error))?;
    let file = out.join("rows.jsonl");
    let status = wait(Running(child), &file, comparison, progress)?;
    let words = last_words(&fs::read(&said).unwrap_or_default());
    let store = |why: String| Err(BenchError::Store { system: PROGRAM, source: why.into() });
    match status.code() {
        Some(0) => {}
        Some(1) => return store(format!("an engine gave a wrong answer, nothing of it counts{words}")),
        Some(2) => {
            return Err(BenchError::Request(format!(
                "--peers: {} does not take what it is asked; it should be of the same version{words}",
                comparison.program.display()
            )));
        }
        Some(3) => return store(format!("not everything could be measured{words}")),
        _ => return store(format!("it ended early, {status}{words}")),
    }
    let bytes = fs::read(&file).map_err(failed("read", &file))?;
    rows::of(&bytes, comparison).or_else(store)
}

/// A child that does not outlive this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // It may end by itself meanwhile.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Waits, and tells how many rows there are.
fn wait(
    mut child: Running,
    file: &Path,
    comparison: &Comparison,
    progress: &dyn Progress,
) -> Result<ExitStatus, BenchError> {
    let steps = comparison.workloads.len() * comparison.threads.len() * comparison.systems.len();
    progress.begin("other engines", steps as u64 * u64::from(comparison.rounds), "rows");
    let (mut seen, mut lines) = (0, 0);
    let status = loop {
        let done = child.0.try_wait().map_err(|source| BenchError::Io {
            operation: "wait for",
            path: comparison.program.clone(),
            source,
        })?;
        // Appended to only, so what was counted stays.
        let more = fs::metadata(file).map_or(0, |metadata| metadata.len()) > seen;
        if let Some(text) = more.then(|| fs::read(file).ok()).flatten() {
            let now = text.iter().filter(|&&byte| byte == b'\n').count() as u64;
            progress.advance(now.saturating_sub(lines));
            (seen, lines) = (text.len() as u64, now);
        }
        match done {
            Some(status) => break status,
            None => std::thread::sleep(GLANCE),
        }
    };
    progress.end();
    Ok(status)
}

fn not_run(program: &Path, error: &std::io::Error) -> BenchError {
    BenchError::Request(format!(
        "--peers: {} cannot be run: {error}; build it in lab/peers with `cargo build --release --features \
         rocksdb,leveldb`",
        program.display()
    ))
}

/// The end of what was said, behind a colon; nothing if nothing was said.
fn last_words(said: &[u8]) -> String {
    // Cut in the middle of a character, that one is replaced.
    let text = String::from_utf8_lossy(&said[said.len().saturating_sub(TOLD)..]).trim().to_owned();
    if text.is_empty() { text } else { format!(":\n{text}") }
}
