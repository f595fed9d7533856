//! The tests: their names, how long each takes, and which mutants it reaches.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::build::{Built, TestBinary};
use crate::child::{End, Next, Program, run};
use crate::results::read_lines;

/// Limits of what is run, in bytes.
const MEMORY: u64 = 6 << 30;
const FILE: u64 = 2 << 30;

/// A test as it is without mutants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Test {
    /// The program, as in [`TestBinary::name`].
    pub binary: String,
    pub name: String,
    /// How long it takes in a process of its own.
    pub seconds: f64,
    pub passes: bool,
    /// The mutants for which it makes a difference whether they are on.
    pub differs: Vec<u32>,
    /// Other mutants that it reaches.
    pub reached: Vec<u32>,
}

/// All tests of a build.
#[derive(Debug)]
pub struct Suite {
    pub built: Built,
    pub tests: Vec<Test>,
    /// Where temporary directories are made.
    pub temporary: PathBuf,
}

/// What running tests with a mutant has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// The kind of failure, and the test if it is known.
    Fail(&'static str, Option<String>),
}

impl Suite {
    /// Runs each test of the build once and records what it reaches. Tests that were recorded
    /// before are not run again.
    pub fn new(scratch: &Path, temporary: &Path) -> io::Result<Suite> {
        let built = Built::read(scratch)?;
        let path = scratch.join("suite.jsonl");
        let tests: Vec<Test> = read_lines(&path)?;
        let mut suite = Suite { built, tests, temporary: temporary.to_owned() };
        let done: HashSet<(String, String)> =
            suite.tests.iter().map(|test| (test.binary.clone(), test.name.clone())).collect();
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        for binary in suite.built.tests.clone() {
            for name in list(&binary)? {
                if done.contains(&(binary.name.clone(), name.clone())) {
                    continue;
                }
                let test = suite.record(&binary, &name, scratch)?;
                if !test.passes {
                    println!("left out, since it fails without mutants: {} {name}", binary.name);
                }
                writeln!(file, "{}", serde_json::to_string(&test)?)?;
                suite.tests.push(test);
            }
        }
        Ok(suite)
    }

    /// Runs one test with nothing on, and sees which mutants it reaches.
    fn record(&self, binary: &TestBinary, name: &str, scratch: &Path) -> io::Result<Test> {
        let cover = Cover::new(scratch, self.built.highest)?;
        let mut program = self.program(binary, &[name]);
        program.environment.push(("TAMIS_MUTANT_COVER", cover.path.clone().into()));
        let started = Instant::now();
        let mut passed = false;
        let end = run(&program, Duration::from_secs(300), |line| {
            passed |= line.starts_with("test result: ok. 1 passed");
            Next::Wait(Duration::from_secs(300))
        })?;
        let seconds = started.elapsed().as_secs_f64();
        let (differs, reached) = cover.read()?;
        let passes = passed && end == End::Exit(Some(0));
        Ok(Test { binary: binary.name.clone(), name: name.to_owned(), seconds, passes, differs, reached })
    }

    /// Runs tests of one program in one process with the mutant on, 0 for none.
    pub fn run(&self, mutant: u32, tests: &[&Test]) -> io::Result<Verdict> {
        let Some(binary) = tests.first().and_then(|first| self.binary(&first.binary)) else {
            return Ok(Verdict::Pass);
        };
        // The order in which they will be run.
        let mut waiting: Vec<&Test> = tests.to_vec();
        waiting.sort_by(|a, b| b.name.cmp(&a.name));
        let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        let mut program = self.program(binary, &names);
        program.environment.push(("TAMIS_MUTANT", mutant.to_string().into()));
        let patience = |waiting: &[&Test]| {
            let next = waiting.last().map_or(1.0, |test| test.seconds);
            Duration::from_secs_f64(next * 5.0 + 5.0)
        };
        let first = patience(&waiting);
        let mut failed = None;
        let end = run(&program, first, |line| {
            if let Some(result) = line.strip_prefix("test ")
                && let Some((name, result)) = result.rsplit_once(" ... ")
            {
                let name = name.trim_end_matches(" - should panic");
                if result.starts_with("FAILED") {
                    failed = Some(name.to_owned());
                    return Next::Stop;
                }
                waiting.retain(|test| test.name != name);
            }
            Next::Wait(patience(&waiting))
        })?;
        let current = waiting.last().map(|test| test.name.clone());
        Ok(match end {
            End::Enough => Verdict::Fail("failure", failed),
            End::Exit(Some(0)) => Verdict::Pass,
            End::Exit(_) => Verdict::Fail("crash", current),
            End::Hang => Verdict::Fail("hang", current),
            End::Space => Verdict::Fail("space", current),
        })
    }

    /// Runs the simulator for some seconds with the mutant on; `None` if it found nothing.
    pub fn simulate(
        &self,
        mutant: u32,
        transactions: bool,
        seconds: u64,
    ) -> io::Result<Option<&'static str>> {
        let mut program = self.simulator(transactions, seconds);
        program.environment.push(("TAMIS_MUTANT", mutant.to_string().into()));
        let patience = Duration::from_secs(seconds + 30);
        let started = Instant::now();
        let end = run(&program, patience, |_| Next::Wait(patience.saturating_sub(started.elapsed())))?;
        Ok(match end {
            End::Exit(Some(0)) => None,
            End::Exit(Some(1)) | End::Enough => Some("failure"),
            End::Exit(_) => Some("crash"),
            End::Hang => Some("hang"),
            End::Space => Some("space"),
        })
    }

    /// Returns the mutants that the simulator reaches within some seconds, and records them.
    pub fn simulated(&self, scratch: &Path, transactions: bool, seconds: u64) -> io::Result<HashSet<u32>> {
        let path = scratch.join(if transactions { "simulated-transactions.json" } else { "simulated.json" });
        if let Ok(text) = fs::read(&path) {
            return Ok(serde_json::from_slice(&text)?);
        }
        let cover = Cover::new(scratch, self.built.highest)?;
        let mut program = self.simulator(transactions, seconds);
        program.environment.push(("TAMIS_MUTANT_COVER", cover.path.clone().into()));
        let patience = Duration::from_secs(seconds + 60);
        let end = run(&program, patience, |_| Next::Wait(patience))?;
        if end != End::Exit(Some(0)) {
            return Err(io::Error::other(format!("the simulator fails without mutants: {end:?}")));
        }
        let (differs, _) = cover.read()?;
        fs::write(path, serde_json::to_vec(&differs)?)?;
        Ok(differs.into_iter().collect())
    }

    fn simulator(&self, transactions: bool, seconds: u64) -> Program {
        let mut arguments: Vec<String> = vec!["--seconds".into(), seconds.to_string()];
        match transactions {
            true => arguments.insert(0, "transactions".into()),
            false => arguments.extend(["--jobs", "1", "--shrink-seconds", "0"].map(String::from)),
        }
        Program {
            executable: self.built.simulator.clone(),
            directory: self.temporary.clone(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            memory: MEMORY,
            file: FILE,
            temporary: self.temporary.clone(),
        }
    }

    fn binary(&self, name: &str) -> Option<&TestBinary> {
        self.built.tests.iter().find(|binary| binary.name == name)
    }

    fn program(&self, binary: &TestBinary, names: &[&str]) -> Program {
        let mut arguments = vec!["--test-threads=1".into(), "--exact".into()];
        arguments.extend(names.iter().map(Into::into));
        let environment = [
            ("RUST_BACKTRACE", "0"),
            // The same cases each time; and a mutant is not worth the smallest case.
            ("PROPTEST_RNG_SEED", "1"),
            ("PROPTEST_MAX_SHRINK_ITERS", "0"),
            ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true"),
        ];
        Program {
            executable: binary.executable.clone(),
            directory: binary.directory.clone(),
            arguments,
            environment: environment.map(|(name, value)| (name, value.into())).to_vec(),
            memory: MEMORY,
            file: FILE,
            temporary: self.temporary.clone(),
        }
    }
}

/// Returns the names of the program's tests.
fn list(binary: &TestBinary) -> io::Result<Vec<String>> {
    let list = |ignored: bool| -> io::Result<Vec<String>> {
        let mut command = Command::new(&binary.executable);
        command.current_dir(&binary.directory).args(["--list", "--format", "terse"]);
        if ignored {
            command.arg("--ignored");
        }
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    let ignored: HashSet<String> = list(true)?.into_iter().collect();
    Ok(list(false)?.into_iter().filter(|name| !ignored.contains(name)).collect())
}

/// The file in which a process marks what it reaches.
struct Cover {
    path: PathBuf,
    half: usize,
}

impl Cover {
    fn new(scratch: &Path, highest: u32) -> io::Result<Cover> {
        let half = highest as usize / 8 + 1;
        let path = scratch.canonicalize()?.join("cover");
        fs::write(&path, vec![0; 2 * half])?;
        Ok(Cover { path, half })
    }

    /// Returns the mutants that made a difference, and the others that were reached.
    fn read(&self) -> io::Result<(Vec<u32>, Vec<u32>)> {
        let maps = fs::read(&self.path)?;
        let (reached, differs) = maps.split_at(self.half);
        let has = |map: &[u8], one: u32| map[one as usize / 8] >> (one % 8) & 1 == 1;
        let all = || 0..self.half as u32 * 8;
        let same = all().filter(|one| has(reached, *one) && !has(differs, *one)).collect();
        Ok((all().filter(|one| has(differs, *one)).collect(), same))
    }
}

/// Lists for each mutant the tests that may find it, by their place in `tests`.
pub fn by_mutant(tests: &[Test]) -> HashMap<u32, Vec<usize>> {
    let mut by = HashMap::<u32, Vec<usize>>::new();
    for (at, test) in tests.iter().enumerate().filter(|(_, test)| test.passes) {
        for mutant in &test.differs {
            by.entry(*mutant).or_default().push(at);
        }
    }
    by
}
