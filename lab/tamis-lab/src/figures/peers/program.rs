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

/// The source that errors of the program name.
const PROGRAM: &str = "the comparison program";

/// Interval at which the program is polled.
const GLANCE: Duration = Duration::from_millis(50);

/// Maximum number of bytes of the program's last output in messages.
const TOLD: usize = 2000;

/// One system of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct System {
    /// Its name in rows.
    pub side: String,
    /// Its name in the program: `rocksdb`, `tamis:OPTION=VALUE`.
    pub name: String,
}

/// A request to the comparison program.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The program.
    pub program: PathBuf,
    /// One suite, by its name there.
    pub suite: &'static str,
    /// Whether the workloads are exactly those of the suite, and need not be named.
    pub suite_workloads: bool,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The systems; tamis, which the others are compared to, comes first.
    pub systems: Vec<System>,
    /// Number of keys at the beginning.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations of the fastest workloads, over all threads; the program executes fewer of slow ones.
    pub ops: u64,
    /// Rounds.
    pub rounds: u32,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Filter bits per key.
    pub filter_bits: u32,
    /// Size of memtables and tables in bytes.
    pub memtable_bytes: u64,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Whether tables are read past the page cache.
    pub direct: bool,
    /// Drives every random choice.
    pub seed: u64,
    /// Directory of the databases; the program's default if absent.
    pub dir: Option<PathBuf>,
}

impl Comparison {
    /// Returns a description in a sentence.
    pub(super) fn describe(&self) -> String {
        let sides: Vec<&str> = self.systems.iter().map(|system| &system.side[..]).collect();
        format!(
            "{}; {} keys of {} bytes, values of {} bytes, {} filter bits per key, memtables of {}, block cache {}, {}; {} rounds \
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

    /// Returns the program's arguments; rows go to `out`.
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

/// Returns the systems that the program has: the engines compiled in, and tamis.
///
/// Fails with [`BenchError::Request`] if the program does not exist or is a different one.
pub fn compiled_in(program: &Path) -> Result<Vec<String>, BenchError> {
    let output = Command::new(program).arg("list").stdin(Stdio::null()).output();
    let output = output.map_err(|error| not_run(program, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let systems = text.lines().skip_while(|line| line.trim() != "Systems:").skip(1);
    let names: Vec<String> =
        systems.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    if !output.status.success() || !names.iter().any(|name| name == "tamis") {
        return Err(BenchError::Request(format!(
            "--peers: {} does not list its systems; it should be the program of the crate tamis-peers{}",
            program.display(),
            last_words(&output.stderr)
        )));
    }
    Ok(names)
}

/// Runs the comparison, and returns notes and a row for each system, workload and number of threads. Takes as long as
/// the program, and the disk space of a database for each system.
///
/// # Errors
///
/// [`BenchError::Request`] if the program cannot be run or rejects its arguments; [`BenchError::Store`] if it ends
/// early, if one of its systems fails or returns a wrong answer, or if a requested system has no rows.
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
        Some(1) => return store(format!("an engine returned a wrong answer, so no result counts{words}")),
        Some(2) => {
            return Err(BenchError::Request(format!(
                "--peers: {} rejects the request; it should be of the same version{words}",
                comparison.program.display()
            )));
        }
        Some(3) => return store(format!("not everything could be measured{words}")),
        _ => return store(format!("it ended early, {status}{words}")),
    }
    let bytes = fs::read(&file).map_err(failed("read", &file))?;
    rows::of(&bytes, comparison).or_else(store)
}

/// A child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // It may have exited in the meantime.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Waits for the program and reports the number of rows so far.
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
        // The file only grows, so rows counted once remain.
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

/// Returns the end of the output after a colon; empty if there was none.
fn last_words(said: &[u8]) -> String {
    // A character cut in the middle is replaced.
    let text = String::from_utf8_lossy(&said[said.len().saturating_sub(TOLD)..]).trim().to_owned();
    if text.is_empty() { text } else { format!(":\n{text}") }
}
