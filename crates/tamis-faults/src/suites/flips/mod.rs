//! Single bits flipped in registers and memory of a process that writes, flushes and compacts.

mod cause;
mod outcome;
mod table;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Bench, remove};
use crate::desk::Desk;
use crate::machine::{Ended, Setup, Worker, collect};
use crate::oracle::{Phase, Records, STEPS, batches};
use crate::report::{Failure, stopped};
use crate::strike::{Kind, Missed, Strike, code_start, names, strike};
use crate::wire::Message;
use crate::worker::Protect;
use cause::Cause;
use outcome::{AFTER, Account, Outcome, Verdict};
use table::Table;

const SUITE: &str = "flips";
/// The number of sets of options: several with each filter.
const TURNS: u64 = 48;
/// The number of jobs without a flip by which the phases of a set of options are measured.
const MEASURED: usize = 3;
/// A job takes a twentieth of a second.
const PATIENCE: Duration = Duration::from_secs(3);
/// A phase may end before the flip; so many times a run begins again.
const ATTEMPTS: u32 = 8;
/// The number of silent runs whose databases are kept.
const MOST_KEPT: u64 = 40;

/// What is to be hit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    number: u64,
    turn: u64,
    phase: Phase,
    /// The part of the phase's time after which the bit is flipped.
    at: f64,
    kind: Kind,
    /// The seed of the choices that depend on the process: thread, register, page, bit.
    rest: u64,
}

impl Plan {
    fn new(seed: u64, number: u64) -> Plan {
        let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        Plan {
            number,
            turn: rng.u64(..TURNS),
            phase: Phase::ALL[rng.usize(..Phase::ALL.len())],
            at: rng.f64(),
            kind: Kind::ALL[rng.usize(..Kind::ALL.len())],
            rest: rng.u64(..),
        }
    }

    /// Returns the arguments that repeat it.
    fn again(&self, seed: u64) -> String {
        format!("--seed {seed} flips --flip {}", self.number)
    }

    /// Returns the segment of the phase that the moment is in, and the time within it.
    fn moment(&self, times: &[u64]) -> (usize, u64) {
        let segments: Vec<usize> = (0..STEPS.len()).filter(|at| STEPS[*at].phase() == self.phase).collect();
        let all: u64 = segments.iter().map(|segment| times[*segment]).sum();
        let mut left = (self.at * all as f64) as u64;
        for segment in &segments {
            if left < times[*segment] {
                return (*segment, left);
            }
            left -= times[*segment];
        }
        (segments[segments.len() - 1], 0)
    }
}

/// One run: a directory with a database, a desk, and the logs of the workers.
struct Ground {
    home: PathBuf,
    seed: u64,
    turn: u64,
    protect: Protect,
}

impl Ground {
    fn setup(&self, job: &str, more: &[String]) -> Setup {
        let mut args = vec![job.to_owned(), "--dir".into(), self.path("database").to_string_lossy().into()];
        args.extend(["--seed", &self.seed.to_string(), "--turn", &self.turn.to_string()].map(str::to_owned));
        args.extend(["--protect".into(), self.protect.word().into()]);
        args.extend_from_slice(more);
        Setup::new(args, &self.home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// Runs the job, and `during` while it runs, which gets the worker's process and a channel of
    /// the segments that begin.
    fn job<T>(
        &self,
        during: impl FnOnce(u32, &Desk, &Receiver<usize>) -> T,
    ) -> Result<(Ended, Vec<Message>, Desk, T), String> {
        let path = self.path("desk");
        let desk = Desk::create(&path, self.seed).map_err(|error| format!("{}: {error}", path.display()))?;
        let setup = self.setup("flips", &["--desk".to_owned(), path.to_string_lossy().into_owned()]);
        let messages = Arc::new(Mutex::new(Vec::new()));
        let (heard, (begins, begun)) = (messages.clone(), channel());
        let mut worker = Worker::start(&setup, move |message| match message {
            Message::Phase(segment) => {
                // Nobody listens after the flip.
                let _ = begins.send(segment.parse().unwrap_or(usize::MAX));
            }
            message => heard.lock().unwrap_or_else(|e| e.into_inner()).push(message),
        })
        .map_err(|error| format!("a worker: {error}"))?;
        let result = during(worker.id(), &desk, &begun);
        let ended = worker.wait(PATIENCE);
        let messages = std::mem::take(&mut *messages.lock().unwrap_or_else(|e| e.into_inner()));
        Ok((ended, messages, desk, result))
    }

    /// Reads everything in a new process.
    fn check(&self, acknowledged: u32) -> Result<(Ended, Vec<Message>), String> {
        let setup = self.setup("flips-check", &["--batches".to_owned(), acknowledged.to_string()]);
        collect(&setup, PATIENCE).map_err(|error| format!("a worker: {error}"))
    }

    fn account(&self, job: Ended, job_messages: Vec<Message>, desk: &Desk) -> Result<Account, String> {
        let acknowledged = desk.acknowledged();
        let (check, check_messages) = self.check(acknowledged.clone().unwrap_or_default())?;
        let log = std::fs::read(self.path("worker.log")).unwrap_or_default();
        let warnings = String::from_utf8_lossy(&log)
            .lines()
            .filter(|line| line.starts_with("WARN"))
            .map(str::to_owned)
            .collect();
        Ok(Account { job, job_messages, acknowledged, check, check_messages, warnings })
    }
}

/// The results of all runs.
struct Results {
    table: Table,
    /// One line for each run.
    lines: std::fs::File,
    silent: u64,
    dir: PathBuf,
}

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    let times = measure(bench)?;
    let dir = bench.report.dir_of(SUITE);
    let create = || {
        std::fs::create_dir_all(&dir)?;
        std::fs::File::create(dir.join("flips.txt"))
    };
    let lines = create().map_err(|error| format!("{}: {error}", dir.display()))?;
    let results = Mutex::new(Results { table: Table::default(), lines, silent: 0, dir: dir.clone() });
    let numbers: Vec<u64> = match bench.amount.flip {
        Some(number) => vec![number],
        None => (0..bench.amount.flips).collect(),
    };
    bench.share(numbers.len(), |at| {
        let plan = Plan::new(bench.amount.seed, numbers[at]);
        let Some(times) = &times[plan.turn as usize] else { return Ok(()) };
        one(bench, &plan, times, &results)
    })?;
    let results = results.into_inner().unwrap_or_else(|e| e.into_inner());
    if results.table.is_empty() {
        bench.report.skip("flips: no bit could be flipped; ptrace may be forbidden");
        return Ok(());
    }
    println!("\n{}\n{}", results.table.markdown(), results.table.causes());
    println!("each flip in a line: {}", dir.join("flips.txt").display());
    Ok(())
}

/// Measures the segments of the job with each set of options: the shortest of several times.
fn measure(bench: &Bench<'_>) -> Result<Vec<Option<Vec<u64>>>, String> {
    let all = Mutex::new(vec![None; TURNS as usize]);
    let needed: std::collections::BTreeSet<u64> = match bench.amount.flip {
        Some(number) => [Plan::new(bench.amount.seed, number).turn].into(),
        None => (0..bench.amount.flips).map(|number| Plan::new(bench.amount.seed, number).turn).collect(),
    };
    let needed: Vec<u64> = needed.into_iter().collect();
    bench.share(needed.len(), |number| {
        let turn = needed[number];
        let mut least: Option<Vec<u64>> = None;
        for _ in 0..MEASURED {
            let ground = Ground {
                home: bench.fresh_dir(&format!("flips-measure-{turn}"))?,
                seed: bench.amount.seed,
                turn,
                protect: bench.amount.protect,
            };
            let (ended, messages, desk, ()) = ground.job(|_, _, _| ())?;
            let times = desk.times();
            let account = ground.account(ended, messages, &desk)?;
            let verdict = account.judge(Records { seed: bench.amount.seed });
            let is_whole = account.acknowledged == Ok(batches());
            if verdict.outcome != Outcome::Nothing || !is_whole {
                let what = format!("without a flip: {}: {:?}", verdict.outcome.name(), verdict.details);
                let how = ground.setup("flips", &[]).command();
                bench.report.fail(Failure { suite: SUITE, what, how }, &[&ground.home]);
            }
            least = Some(match least {
                None => times,
                Some(least) => least.iter().zip(&times).map(|(a, b)| *a.min(b)).collect(),
            });
            remove(&ground.home);
        }
        all.lock().unwrap_or_else(|e| e.into_inner())[turn as usize] = least;
        Ok(())
    })?;
    Ok(all.into_inner().unwrap_or_else(|e| e.into_inner()))
}

fn one(bench: &Bench<'_>, plan: &Plan, times: &[u64], results: &Mutex<Results>) -> Result<(), String> {
    let (segment, after) = plan.moment(times);
    for attempt in 0..ATTEMPTS {
        if stopped() {
            return Ok(());
        }
        let ground = Ground {
            home: bench.fresh_dir(&format!("flip-{}", plan.number))?,
            seed: bench.amount.seed,
            turn: plan.turn,
            protect: bench.amount.protect,
        };
        let mut rng = fastrand::Rng::with_seed(plan.rest.wrapping_add(u64::from(attempt)));
        let (ended, messages, desk, hit) = ground.job(|process, desk, begun| {
            wait_for(segment, begun).and_then(|()| {
                wait_until(desk, segment, after);
                let allows = |is_main: bool| !is_main || desk.is_inside();
                strike(process, plan.kind, &mut rng, || !desk.is_in(segment), allows)
            })
        })?;
        match hit {
            Ok(hit) => {
                let account = ground.account(ended, messages, &desk)?;
                let verdict = account.judge(Records { seed: bench.amount.seed });
                let run = Run { plan, segment, attempt, hit: &hit, verdict: &verdict, ground: &ground };
                let kept = run.keep(bench, results);
                remove(&ground.home);
                return kept;
            }
            Err(Missed::Over) => {
                bench.report.count(SUITE, "flips that came too late, and were tried again", 1);
                remove(&ground.home);
            }
            Err(Missed::Failed(error)) => {
                let how = plan.again(bench.amount.seed);
                let what = format!("a bit could not be flipped: {error}");
                bench.report.fail(Failure { suite: SUITE, what, how }, &[]);
                remove(&ground.home);
                return Ok(());
            }
        }
    }
    bench.report.count(SUITE, "flips given up", 1);
    Ok(())
}

/// Waits until a segment begins.
fn wait_for(segment: usize, begun: &Receiver<usize>) -> Result<(), Missed> {
    loop {
        match begun.recv_timeout(PATIENCE) {
            Ok(found) if found == segment => return Ok(()),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(Missed::Over),
        }
    }
}

/// Waits until some time has passed since a segment began, unless it ends before.
fn wait_until(desk: &Desk, segment: usize, after: u64) {
    // A sleep takes about this much longer.
    const SLACK: u64 = 120_000;
    while desk.is_in(segment) {
        let elapsed = desk.elapsed();
        if elapsed >= after {
            return;
        }
        if after - elapsed > SLACK {
            std::thread::sleep(Duration::from_nanos(after - elapsed - SLACK));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// One run that is over.
struct Run<'r> {
    plan: &'r Plan,
    segment: usize,
    attempt: u32,
    hit: &'r Strike,
    verdict: &'r Verdict,
    ground: &'r Ground,
}

impl Run<'_> {
    /// Describes the run in one line.
    fn line(&self, code: &[String], cause: Option<Cause>) -> String {
        let Plan { number, turn, phase, at, .. } = self.plan;
        let thread = self.hit.stacks.first().map_or("?", |stack| &stack.thread);
        // A function of the C library, and who called it.
        let functions = code.get(..2).unwrap_or(code);
        let is_outside = functions.first().is_some_and(|name| name.starts_with("in "));
        let function = functions[..functions.len().min(1 + usize::from(is_outside))].join(" from ");
        format!(
            "flip={number} turn={turn} phase={} step={} at={at:.4} attempt={} thread={thread} place=\"{}\" \
             in=\"{function}\" outcome=\"{}\" {}{}",
            phase.name(),
            self.segment,
            self.attempt,
            self.hit.place,
            self.verdict.outcome.name(),
            cause.map_or(String::new(), |cause| format!("cause=\"{}\" ", cause.name())),
            self.verdict.details.first().map_or("", String::as_str)
        )
    }

    /// Adds the run to the results, and keeps what explains it if it is silent.
    fn keep(&self, bench: &Bench<'_>, results: &Mutex<Results>) -> Result<(), String> {
        let start = code_start(std::process::id()).unwrap_or(0);
        let code = self.hit.stacks.first().map(|stack| names(stack, start)).unwrap_or_default();
        let outcome = self.verdict.outcome;
        let details = &self.verdict.details;
        let cause = (outcome == Outcome::Silent).then(|| cause::tell(&self.hit.place, &code, details));
        let line = self.line(&code, cause);
        let mut results = results.lock().unwrap_or_else(|e| e.into_inner());
        results.table.add(self.plan.phase, self.plan.kind, outcome);
        if let Some(cause) = cause {
            results.table.add_silent(cause, details.iter().any(|what| what.starts_with(AFTER)));
        }
        let mut keep = || -> std::io::Result<()> {
            writeln!(results.lines, "{line}")?;
            if !matches!(outcome, Outcome::Silent | Outcome::BeforeEngine) {
                return Ok(());
            }
            results.silent += 1;
            let dir = results.dir.join(format!("{}-{}", outcome.name().replace(' ', "-"), self.plan.number));
            std::fs::create_dir_all(&dir)?;
            std::fs::write(dir.join("flip.txt"), self.explain(&line, bench.amount.seed, start))?;
            if results.silent <= MOST_KEPT {
                crate::machine::copy_dir(&self.ground.home, &dir.join("home"))?;
            }
            Ok(())
        };
        keep().map_err(|error| format!("evidence: {error}"))?;
        bench.report.count(SUITE, format!("flips: {}", outcome.name()), 1);
        if outcome == Outcome::Silent && bench.amount.protect == Protect::On {
            let what = format!("silent in spite of protection: {}", self.verdict.details.join("; "));
            let failure = Failure { suite: SUITE, what, how: self.plan.again(bench.amount.seed) };
            bench.report.fail(failure, &[&self.ground.home]);
        }
        Ok(())
    }

    fn explain(&self, line: &str, seed: u64, start: u64) -> String {
        let mut text = format!("{line}\nagain: {}\n\n", self.plan.again(seed));
        self.verdict.details.iter().for_each(|detail| text += &format!("{detail}\n"));
        text += &format!("\n{}", self.hit.place.dump());
        for stack in &self.hit.stacks {
            text += &format!("\nthread {}\n", stack.thread);
            names(stack, start).iter().for_each(|name| text += &format!("    {name}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plans_depend_on_seed_and_number_and_hit_everything() {
        let plans: Vec<Plan> = (0..3000).map(|number| Plan::new(1, number)).collect();
        assert_eq!(plans[7], Plan::new(1, 7));
        assert_ne!(plans[7].rest, Plan::new(2, 7).rest);
        let pairs: BTreeSet<_> = plans.iter().map(|plan| (plan.phase, plan.kind)).collect();
        assert_eq!(pairs.len(), Phase::ALL.len() * Kind::ALL.len());
        assert_eq!(plans.iter().map(|plan| plan.turn).collect::<BTreeSet<_>>().len(), TURNS as usize);
    }

    #[test]
    fn moments_lie_in_segments_of_the_phase_in_proportion_to_their_time() {
        let times: Vec<u64> = (0..STEPS.len() as u64).map(|segment| 1000 * (segment + 1)).collect();
        let mut plan = Plan::new(1, 1);
        let mut counts = vec![0; STEPS.len()];
        for phase in Phase::ALL {
            for part in 0..1000 {
                (plan.phase, plan.at) = (phase, f64::from(part) / 1000.0);
                let (segment, after) = plan.moment(&times);
                assert_eq!(STEPS[segment].phase(), phase);
                assert!(after < times[segment]);
                counts[segment] += 1;
            }
        }
        assert!(counts.iter().all(|count| *count > 0));
        // The two first flushes.
        assert!(counts[1] < counts[3]);
    }
}
