//! `tamis-mutants run`: lets the tests look for each mutant.
//!
//! Three passes, each with a file of results, so that a run that is cut off goes on where it was:
//!
//! 1. The tests that reach a mutant, until one fails or a budget of time is used up.
//! 2. For those alive, the simulator.
//! 3. For those alive, the tests that the budget left out.
//!
//! # Order of the tests
//!
//! First those that have found mutants of the same file, then those of its module and room, then
//! all others; the quick ones first. Tests of one program share processes, at first few, then more:
//! a process stops at the first failure.
//!
//! # Failures that are none
//!
//! A test that fails with the mutant on runs again, alone. If it passes, the same tests run without
//! the mutant: if they fail as well, the test is not used from then on.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::results::{self, FILES, Outcome, Record};
use crate::select::Selection;
use crate::site::Mutant;
use crate::suite::{Suite, Test, Verdict, by_mutant};

/// How a run goes about its work.
#[derive(Args, Clone, Debug)]
pub struct Plan {
    /// The directory of results.
    #[arg(long)]
    pub out: PathBuf,
    #[command(flatten)]
    pub selection: Selection,
    /// Ends after this time, in seconds.
    #[arg(long)]
    pub seconds: Option<u64>,
    /// The most time for tests of one mutant in the first pass, in seconds.
    #[arg(long, default_value_t = 10.0)]
    pub budget: f64,
    /// Tests that take longer than this are left to the last pass.
    #[arg(long, default_value_t = 5.0)]
    pub longest: f64,
    /// Simulates what is alive after the tests, for this many seconds.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    pub simulate: Option<u64>,
    /// Runs the tests that the budget left out for what is still alive.
    #[arg(long)]
    pub rest: bool,
    /// The most time of a test in the last pass, in seconds.
    #[arg(long, default_value_t = 60.0)]
    pub longest_of_rest: f64,
    /// Where temporary directories are made.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub temporary: PathBuf,
}

/// Time in seconds of the tests in the first processes of a mutant; then the last again and again.
const STEPS: [f64; 4] = [0.2, 0.8, 2.5, 8.0];

/// This many tests that found mutants of a file come first.
const FAVORITES: usize = 6;

struct Run<'a> {
    plan: &'a Plan,
    suite: &'a Suite,
    by: HashMap<u32, Vec<usize>>,
    reached: HashSet<u32>,
    /// Tests that found mutants of a file, the last one first.
    favorites: HashMap<String, Vec<usize>>,
    /// Tests that fail without mutants now and then.
    flaky: HashSet<usize>,
    ends: Option<Instant>,
}

/// Runs the passes of the plan.
pub fn run(scratch: &Path, plan: &Plan) -> io::Result<()> {
    fs::create_dir_all(&plan.out)?;
    fs::create_dir_all(&plan.temporary)?;
    let suite = Suite::new(scratch, &plan.temporary)?;
    let passing = suite.tests.iter().filter(|test| test.passes).count();
    let seconds: f64 = suite.tests.iter().map(|test| test.seconds).sum();
    println!("{} tests, {passing} pass; {seconds:.0} s in all", suite.tests.len());
    let mut run = Run {
        plan,
        suite: &suite,
        by: by_mutant(&suite.tests),
        reached: suite.tests.iter().flat_map(|test| test.reached.iter().copied()).collect(),
        favorites: HashMap::new(),
        flaky: HashSet::new(),
        ends: plan.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
    };
    let mutants = plan.selection.choose(&suite.built.mutants);
    let [tests, rest, simulation] = FILES;
    run.pass("tests", tests, &mutants, |run, mutant| run.test(mutant, false))?;
    let mut alive = run.alive(&mutants, tests)?;
    if let Some(seconds) = plan.simulate {
        let plain = suite.simulated(scratch, false, 3 * seconds)?;
        let transactions = suite.simulated(scratch, true, seconds)?;
        run.pass("simulation", simulation, &alive, |run, mutant| {
            run.simulate(mutant, seconds, &plain, &transactions)
        })?;
        alive = run.alive(&alive, simulation)?;
    }
    if plan.rest {
        run.pass("rest", rest, &alive, |run, mutant| run.test(mutant, true))?;
    }
    Ok(())
}

impl Run<'_> {
    /// Handles those of the mutants that have no result in the file yet.
    fn pass(
        &mut self,
        name: &str,
        file: &str,
        mutants: &[&Mutant],
        mut work: impl FnMut(&mut Self, &Mutant) -> io::Result<Record>,
    ) -> io::Result<()> {
        let done = results::read(&self.plan.out, file)?;
        let mut out = fs::OpenOptions::new().create(true).append(true).open(self.plan.out.join(file))?;
        let left: Vec<_> = mutants.iter().filter(|mutant| !done.contains_key(&mutant.id)).collect();
        println!("{name}: {} mutants, {} left", mutants.len(), left.len());
        let (started, mut killed) = (Instant::now(), 0);
        for (at, mutant) in left.iter().enumerate() {
            if self.ends.is_some_and(|ends| Instant::now() > ends) {
                println!("{name}: the time is over");
                return Ok(());
            }
            let record = work(self, mutant)?;
            killed += usize::from(record.outcome == Outcome::Killed);
            writeln!(out, "{}", serde_json::to_string(&record)?)?;
            if (at + 1) % 50 == 0 {
                let seconds = started.elapsed().as_secs();
                println!("{name}: {} of {} in {seconds} s, {killed} killed", at + 1, left.len());
            }
        }
        Ok(())
    }

    /// Returns the mutants that have no result in the file or are alive by it.
    fn alive<'m>(&self, mutants: &[&'m Mutant], file: &str) -> io::Result<Vec<&'m Mutant>> {
        let done = results::read(&self.plan.out, file)?;
        let is_killed =
            |mutant: &&&Mutant| done.get(&mutant.id).is_some_and(|one| one.outcome == Outcome::Killed);
        Ok(mutants.iter().filter(|mutant| !is_killed(mutant)).copied().collect())
    }

    /// Runs tests on the mutant: those within the budget, or the others.
    fn test(&mut self, mutant: &Mutant, rest: bool) -> io::Result<Record> {
        let started = Instant::now();
        let ordered = self.ordered(mutant);
        let of = ordered.len();
        let (within, beyond) = self.divide(ordered);
        let mut waiting = if rest { beyond } else { within };
        let mut record = Record {
            mutant: mutant.clone(),
            outcome: match of {
                0 if self.reached.contains(&mutant.number) => Outcome::NoDifference,
                0 => Outcome::NotReached,
                _ => Outcome::Alive,
            },
            kind: String::new(),
            by: String::new(),
            seconds: 0.0,
            ran: 0,
            of,
        };
        let mut step = 0;
        while !waiting.is_empty() && record.outcome != Outcome::Killed {
            let most = STEPS[step.min(STEPS.len() - 1)];
            step += 1;
            for batch in self.next_batches(&mut waiting, most) {
                record.ran += batch.len();
                if let Some((kind, by)) = self.look(mutant, &batch)? {
                    (record.outcome, record.kind, record.by) = (Outcome::Killed, kind.to_owned(), by);
                    break;
                }
            }
        }
        record.seconds = started.elapsed().as_secs_f64();
        Ok(record)
    }

    /// Returns the tests that may find the mutant, the best first.
    fn ordered(&self, mutant: &Mutant) -> Vec<usize> {
        let mut all: Vec<usize> = self.by.get(&mutant.number).cloned().unwrap_or_default();
        all.retain(|at| !self.flaky.contains(at));
        let tests = &self.suite.tests;
        let favorites = self.favorites.get(&mutant.file);
        let krate = mutant.room.split('/').next().unwrap_or_default();
        let room = mutant.module.split("::").next().unwrap_or_default();
        let rank = |at: usize| {
            let place = favorites.and_then(|all| all.iter().position(|one| *one == at));
            let (binary, name) = (&tests[at].binary, &tests[at].name);
            match place {
                Some(place) if place < FAVORITES && tests[at].seconds < 1.0 => place,
                _ if binary == krate && in_module(name, &mutant.module) => FAVORITES,
                _ if binary == krate && in_module(name, room) => FAVORITES + 1,
                _ => FAVORITES + 2,
            }
        };
        all.sort_by(|a, b| rank(*a).cmp(&rank(*b)).then(tests[*a].seconds.total_cmp(&tests[*b].seconds)));
        all
    }

    /// Divides tests in order into those within the budget and the others.
    fn divide(&self, ordered: Vec<usize>) -> (Vec<usize>, Vec<usize>) {
        let mut left = self.plan.budget;
        let tests = &self.suite.tests;
        let (mut within, mut beyond) = (Vec::new(), Vec::new());
        for at in ordered {
            let seconds = tests[at].seconds;
            if seconds <= left && seconds <= self.plan.longest {
                left -= seconds;
                within.push(at);
            } else if seconds <= self.plan.longest_of_rest {
                beyond.push(at);
            }
        }
        (within, beyond)
    }

    /// Takes tests for about `most` seconds, and groups them by program.
    fn next_batches(&self, waiting: &mut Vec<usize>, most: f64) -> Vec<Vec<usize>> {
        let (mut batches, mut seconds, mut taken) = (Vec::<Vec<usize>>::new(), 0.0, 0);
        let tests = &self.suite.tests;
        for at in waiting.iter() {
            if taken > 0 && seconds + tests[*at].seconds > most {
                break;
            }
            (seconds, taken) = (seconds + tests[*at].seconds, taken + 1);
            match batches.iter_mut().find(|batch| tests[batch[0]].binary == tests[*at].binary) {
                Some(batch) => batch.push(*at),
                None => batches.push(vec![*at]),
            }
        }
        waiting.drain(..taken);
        batches
    }

    /// Runs tests of one program on the mutant. Returns how it failed, and by which test.
    fn look(&mut self, mutant: &Mutant, batch: &[usize]) -> io::Result<Option<(&'static str, String)>> {
        let suite = self.suite;
        let mut batch = batch.to_vec();
        while !batch.is_empty() {
            let tests: Vec<&Test> = batch.iter().map(|at| &suite.tests[*at]).collect();
            let Verdict::Fail(kind, name) = suite.run(mutant.number, &tests)? else { return Ok(None) };
            let failed = name.and_then(|name| batch.iter().copied().find(|at| suite.tests[*at].name == name));
            let Some(failed) = failed else { return Ok(Some((kind, tests[0].binary.clone()))) };
            let test = &suite.tests[failed];
            let by = format!("{} {}", test.binary, test.name);
            // A hang is not waited for twice.
            let is_sure = kind == "hang" || suite.run(mutant.number, &[test])? != Verdict::Pass;
            if is_sure || suite.run(0, &tests)? == Verdict::Pass {
                let favorites = self.favorites.entry(mutant.file.clone()).or_default();
                favorites.retain(|at| *at != failed);
                favorites.insert(0, failed);
                return Ok(Some((kind, by)));
            }
            println!("not used any more, since it fails without mutants: {by}");
            self.flaky.insert(failed);
            batch.retain(|at| *at != failed);
        }
        Ok(None)
    }

    fn simulate(
        &mut self,
        mutant: &Mutant,
        seconds: u64,
        plain: &HashSet<u32>,
        transactions: &HashSet<u32>,
    ) -> io::Result<Record> {
        let started = Instant::now();
        let (mut ran, mut found, mut by) = (0, None, "");
        let programs = [("simulation", plain, false), ("simulation of transactions", transactions, true)];
        for (name, reached, of_transactions) in programs {
            if found.is_none() && reached.contains(&mutant.number) {
                let seconds = if of_transactions { seconds.div_ceil(3) } else { seconds };
                (ran, by) = (ran + 1, name);
                found = self.suite.simulate(mutant.number, of_transactions, seconds)?;
            }
        }
        Ok(Record {
            mutant: mutant.clone(),
            outcome: match (found, ran) {
                (Some(_), _) => Outcome::Killed,
                (None, 0) => Outcome::NotReached,
                (None, _) => Outcome::Alive,
            },
            kind: found.unwrap_or_default().to_owned(),
            by: found.map_or("", |_| by).to_owned(),
            seconds: started.elapsed().as_secs_f64(),
            ran,
            of: ran,
        })
    }
}

fn in_module(test: &str, module: &str) -> bool {
    module.is_empty() || test.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}
