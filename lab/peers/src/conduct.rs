//! Executes plans: one worker per system, all with the same requests, one at a time.
//!
//! Rounds are interleaved: each step of a round visits the systems one after the other, so that other activity on the
//! machine affects all of them. The first system rotates from round to round. Databases are loaded and measured by
//! different processes, so that memory left over from a load does not count. Databases that are only read are loaded
//! once for all plans, unless the plan wants them anew in each round.
//!
//! A wrong answer ends the whole run. A worker that fails otherwise is excluded until the end of the plan; rows give
//! the reason, and the others continue.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use tamis_bench::Workload;

use crate::directory;
use crate::engines::system::{System, Visitor};
use crate::engines::{Engine, Setup};
use crate::failure::Failure;
use crate::instructions::Start;
use crate::link::{Link, Trouble};
use crate::protocol::{Answer, Order, Request};
use crate::record::{Figures, Row};
use crate::suites::{Loading, Plan, Step};

/// Prefix of [`Row::refused`] if a worker failed, to distinguish it from an unsupported option.
pub(crate) const STOPPED: &str = "stopped: ";

/// Ratio of the operations of a step to those whose instructions are counted.
const COUNTED_SHARE: u64 = 100;

/// Minimum and maximum of the operations whose instructions are counted, some 50 times as slowly as they are otherwise executed.
const COUNTED_OPS: (u64, u64) = (64, 2000);

/// Number of puts of a fill whose instructions are counted.
const COUNTED_PUTS: u64 = 20_000;

/// The receiver of events. Called from one thread.
pub(crate) trait Audience {
    /// Reports the beginning of an activity. After it returns, output to the terminal must be minimal.
    fn doing(&mut self, what: &str);

    /// Receives a complete row.
    fn row(&mut self, row: &Row) -> Result<(), Failure>;

    /// Receives a sentence for people.
    fn note(&mut self, text: &str);
}

/// The systems, the directory and the audience of a comparison.
pub(crate) struct Stage<'a> {
    /// The systems, in the order of the first round.
    pub systems: &'a [System],
    /// Starts a worker for a system.
    pub spawn: &'a dyn Fn(&System) -> io::Result<Link>,
    /// Starts a worker that counts instructions; `None`: they are not counted.
    pub count: Option<&'a Start<'a>>,
    /// Directory for databases, which are removed when no longer needed.
    pub dir: &'a Path,
    /// The receiver of events.
    pub audience: &'a mut dyn Audience,
}

/// Returns the version of a system's engine.
pub(crate) fn version_of(system: &System) -> String {
    struct Version;

    impl Visitor for Version {
        type Output = String;

        fn visit<E: Engine>(self) -> String {
            E::version()
        }
    }

    system.with(Version)
}

/// Returns where a put of a system is when it returns.
fn durability_of(system: &System, plan: &Plan) -> String {
    struct Durability(Setup);

    impl Visitor for Durability {
        type Output = &'static str;

        fn visit<E: Engine>(self) -> &'static str {
            E::durability(&self.0)
        }
    }

    system.with(Durability(plan.setup(PathBuf::new(), system.overrides()))).to_owned()
}

/// Returns the reason if a system does not have the operations of a step.
fn lacks(system: &System, plan: &Plan, step: &Step) -> Option<&'static str> {
    struct Lacks(Workload, usize);

    impl Visitor for Lacks {
        type Output = Option<&'static str>;

        fn visit<E: Engine>(self) -> Option<&'static str> {
            E::lacks(self.0, self.1)
        }
    }

    system.with(Lacks(step.workload, plan.batch))
}

/// Executes the plans in order, and returns the failures of systems that could not continue.
///
/// # Errors
///
/// A wrong answer; a row that could not be written; a directory that could not be created or removed.
pub(crate) fn conduct(plans: &[Plan], stage: Stage<'_>) -> Result<Vec<String>, Failure> {
    let mut conductor = Conductor { stage, troubles: Vec::new(), stock: Vec::new(), made: 0 };
    for (i, plan) in plans.iter().enumerate() {
        if plan.fills() {
            conductor.fill(plan)?;
        } else {
            conductor.run(plan)?;
        }
        conductor.clear(&plans[i + 1..])?;
    }
    Ok(conductor.troubles)
}

struct Conductor<'a> {
    stage: Stage<'a>,
    troubles: Vec<String>,
    stock: Vec<Database>,
    /// Number of directories created.
    made: u64,
}

/// An existing database.
struct Database {
    system: usize,
    /// The properties for which it can be reused.
    loading: Option<Loading>,
    dir: PathBuf,
}

/// One system in a plan.
struct Side {
    link: Link,
    dir: PathBuf,
    options: BTreeMap<String, String>,
    /// Nanoseconds of the last opening.
    open_ns: u64,
    loaded: u64,
}

/// The status of a system in a plan.
enum Standing {
    Ready(Box<Side>),
    Refused(String),
}

impl Conductor<'_> {
    /// Executes fills: every step of every round has its own worker and directory.
    fn fill(&mut self, plan: &Plan) -> Result<(), Failure> {
        let systems = self.stage.systems;
        let mut out = vec![false; systems.len()];
        for round in 0..plan.rounds {
            for (at, step) in plan.steps.iter().enumerate() {
                for i in rotated(systems.len(), round) {
                    if out[i] {
                        continue;
                    }
                    if let Some(why) = lacks(&systems[i], plan, step) {
                        self.refuse(plan, &[*step], i, round, why)?;
                        continue;
                    }
                    self.doing(plan, step.workload.name(), &systems[i], Some(round));
                    let dir = self.new_dir(i, None)?;
                    let done = self.fill_once(plan, step, i, &dir, round);
                    self.discard(&dir)?;
                    match done {
                        Ok(Ok(row)) => self.stage.audience.row(&row)?,
                        Ok(Err(why)) => {
                            self.refuse(plan, &plan.steps, i, round, &why)?;
                            out[i] = true;
                        }
                        Err(trouble) => {
                            self.stop(plan, &plan.steps[at..], i, round, trouble)?;
                            out[i] = true;
                        }
                    }
                }
            }
        }
        for i in (0..systems.len()).filter(|&i| !out[i]) {
            for step in &plan.steps {
                let dir = self.new_dir(i, None)?;
                let done = self.count(plan, std::slice::from_ref(step), i, &dir, 0);
                self.discard(&dir)?;
                self.uncounted(done)?;
            }
        }
        Ok(())
    }

    /// Returns a row, or the reason for a refusal.
    fn fill_once(
        &mut self,
        plan: &Plan,
        step: &Step,
        i: usize,
        dir: &Path,
        round: u32,
    ) -> Result<Result<Row, String>, Trouble> {
        let mut link = self.spawn(i, plan.memory_bytes)?;
        let setup = plan.setup(dir.to_owned(), self.stage.systems[i].overrides());
        let open = Request::Open { setup, data: plan.data.clone(), loaded: 0 };
        let options = match link.ask(&open)? {
            Answer::Opened { options, .. } => options,
            Answer::Refused { why } => return Ok(Err(why)),
            other => return Err(self.strange(i, &other)),
        };
        let order = order_of(step.workload);
        let (threads, loaded) = (step.threads, plan.loaded);
        let (batch, inline, rest) = (plan.batch, plan.inline, plan.rest);
        let fill = Request::Fill { order, loaded, threads, batch, inline, rest };
        let (figures, _) = self.measured(i, &mut link, &fill)?;
        self.quit(i, link)?;
        Ok(Ok(self.row(plan, step, i, round, options, figures)))
    }

    /// Executes all other plans, whose databases last for the whole plan, or for a round.
    fn run(&mut self, plan: &Plan) -> Result<(), Failure> {
        let all = vec![true; self.stage.systems.len()];
        if !plan.reload {
            let mut sides = self.sides(plan, &all, 0)?;
            for round in 0..plan.rounds {
                self.round(plan, &mut sides, round)?;
            }
            return self.finish(plan, sides, true).map(drop);
        }
        let mut left = all;
        for round in 0..plan.rounds {
            let mut sides = self.sides(plan, &left, round)?;
            self.round(plan, &mut sides, round)?;
            left = self.finish(plan, sides, round + 1 == plan.rounds)?;
            let unshared = self.stock.iter().filter(|database| database.loading.is_none());
            let unshared: Vec<PathBuf> = unshared.map(|database| database.dir.clone()).collect();
            unshared.iter().try_for_each(|dir| self.discard(dir))?;
        }
        Ok(())
    }

    /// Loads and opens the databases of the systems that are `wanted`.
    fn sides(&mut self, plan: &Plan, wanted: &[bool], round: u32) -> Result<Vec<Option<Box<Side>>>, Failure> {
        let mut sides: Vec<Option<Box<Side>>> = wanted.iter().map(|_| None).collect();
        for i in rotated(wanted.len(), round).filter(|&i| wanted[i]) {
            match self.prepare(plan, i)? {
                Ok(Standing::Ready(side)) => sides[i] = Some(side),
                Ok(Standing::Refused(why)) => self.refuse(plan, &plan.steps, i, round, &why)?,
                Err(trouble) => self.stop(plan, &plan.steps, i, round, trouble)?,
            }
        }
        Ok(sides)
    }

    /// Executes the steps of a round. A side that fails is none from then on.
    fn round(&mut self, plan: &Plan, sides: &mut [Option<Box<Side>>], round: u32) -> Result<(), Failure> {
        for (at, step) in plan.steps.iter().enumerate() {
            for i in rotated(sides.len(), round) {
                let Some(side) = &mut sides[i] else { continue };
                if let Some(why) = lacks(&self.stage.systems[i], plan, step) {
                    self.refuse(plan, &[*step], i, round, why)?;
                    continue;
                }
                self.doing(plan, step.workload.name(), &self.stage.systems[i].clone(), Some(round));
                match self.run_once(plan, step, i, side, round) {
                    Ok(row) => self.stage.audience.row(&row)?,
                    Err(trouble) => {
                        sides[i] = None;
                        self.stop(plan, &plan.steps[at..], i, round, trouble)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Closes the databases and, if `last`, counts instructions. Returns which systems can go on.
    fn finish(
        &mut self,
        plan: &Plan,
        sides: Vec<Option<Box<Side>>>,
        last: bool,
    ) -> Result<Vec<bool>, Failure> {
        let mut left = vec![false; sides.len()];
        for (i, side) in sides.into_iter().enumerate() {
            let Some(side) = side else { continue };
            let Side { link, dir, loaded, .. } = *side;
            match self.quit(i, link) {
                Ok(()) => {
                    left[i] = true;
                    if last {
                        let done = self.count(plan, &plan.steps, i, &dir, loaded);
                        self.uncounted(done)?;
                    }
                }
                Err(trouble) => self.stop(plan, &[], i, plan.rounds, trouble)?,
            }
        }
        Ok(left)
    }

    /// Counts instructions of steps with one thread that insert no keys, on a database with `loaded` keys, which may be written to: for
    /// fills the first puts into an empty one.
    fn count(
        &mut self,
        plan: &Plan,
        steps: &[Step],
        i: usize,
        dir: &Path,
        loaded: u64,
    ) -> Result<(), CountTrouble> {
        let system = &self.stage.systems[i];
        let Some(count) = self.stage.count else { return Ok(()) };
        let of_one_thread = steps.iter().filter(|step| {
            step.threads == 1 && !step.workload.inserts() && lacks(system, plan, step).is_none()
        });
        let steps: Vec<Step> = of_one_thread.copied().collect();
        if steps.is_empty() {
            return Ok(());
        }
        self.doing(plan, "instructions", system, None);
        let mut counting = count(system)
            .map_err(|error| Trouble::Failed(format!("{system}: no worker under valgrind: {error}")))?;
        let setup = plan.setup(dir.to_owned(), system.overrides());
        let mut data = plan.data.clone();
        if loaded == 0 {
            data.keys = plan.loaded.min(COUNTED_PUTS);
            data.asked = data.keys;
        }
        let (puts, open) = (data.keys, Request::Open { setup, data, loaded });
        let options = match counting.link.ask(&open)? {
            Answer::Opened { options, .. } => options,
            Answer::Refused { why } => return Err(Trouble::Failed(format!("{system}: {why}")).into()),
            other => return Err(self.strange(i, &other).into()),
        };
        if loaded > 0 {
            // Filters may be made after the opening, which takes its time here.
            counting.link.ask(&Request::Settle)?;
            // Minutes under valgrind; a small cache is filled by the warm-up of each step.
            if plan.filled && plan.cache_holds_all() {
                counting.link.ask(&Request::ReadAll)?;
            }
        }
        for step in steps {
            let request = if step.workload.is_fill() {
                let order = order_of(step.workload);
                let (batch, inline) = (plan.batch, plan.inline);
                Request::Fill { order, loaded: puts, threads: 1, batch, inline, rest: false }
            } else {
                // The warm-up is that of all operations, so that what is done once for a block is not counted more often than it is timed.
                let ops = (step.ops / COUNTED_SHARE).clamp(COUNTED_OPS.0, COUNTED_OPS.1);
                request_of(&Plan { seconds: None, ..plan.clone() }, &step, plan.rounds, ops)
            };
            let (measured, _) = self.measured(i, &mut counting.link, &request)?;
            let instructions =
                counting.of_last_request().map_err(|error| Trouble::Failed(format!("{system}: {error}")))?;
            let figures = Figures {
                ops: measured.ops,
                instructions_per_op: instructions as f64 / measured.ops.max(1) as f64,
                inside: measured.inside,
                ..Figures::default()
            };
            let row = self.row(plan, &step, i, plan.rounds, options.clone(), figures);
            self.stage.audience.row(&row).map_err(CountTrouble::Run)?;
        }
        Ok(self.quit(i, counting.link)?)
    }

    /// Reports instructions that could not be counted, which is no reason to exclude a system.
    fn uncounted(&mut self, done: Result<(), CountTrouble>) -> Result<(), Failure> {
        match done {
            Ok(()) => Ok(()),
            Err(CountTrouble::Run(failure)) => Err(failure),
            Err(CountTrouble::Worker(Trouble::WrongAnswer(text))) => Err(Failure::WrongAnswer(text)),
            Err(CountTrouble::Worker(Trouble::Failed(text))) => {
                self.stage.audience.note(&format!("instructions not counted: {text}"));
                Ok(())
            }
        }
    }

    fn run_once(
        &mut self,
        plan: &Plan,
        step: &Step,
        i: usize,
        side: &mut Side,
        round: u32,
    ) -> Result<Row, Trouble> {
        if plan.cold {
            for request in [Request::Close, Request::Evict] {
                side.link.ask(&request)?;
            }
            self.open(plan, i, side)?;
        } else if !plan.direct_io && plan.memory_bytes.is_none() {
            side.link.ask(&Request::Warm)?;
        }
        let request = request_of(plan, step, round, step.ops);
        let (mut figures, loaded) = self.measured(i, &mut side.link, &request)?;
        side.loaded = loaded;
        if plan.cold {
            figures.open_ns = side.open_ns;
        }
        Ok(self.row(plan, step, i, round, side.options.clone(), figures))
    }

    /// Loads the system's database unless one can be reused, and opens it in a new worker.
    fn prepare(&mut self, plan: &Plan, i: usize) -> Result<Result<Standing, Trouble>, Failure> {
        let loading = plan.shared_loading();
        let usable = |database: &&Database| database.system == i && database.loading == loading;
        let found = self.stock.iter().find(usable).filter(|_| loading.is_some());
        let (dir, load) = match found {
            Some(database) => (database.dir.clone(), false),
            None => (self.new_dir(i, loading)?, true),
        };
        if load {
            self.doing(plan, "load", &self.stage.systems[i].clone(), None);
        }
        let done = self.load_and_open(plan, i, &dir, load);
        if load && !matches!(done, Ok(Standing::Ready(_))) {
            // Its contents are unknown now.
            for database in self.stock.iter_mut().filter(|database| database.dir == dir) {
                database.loading = None;
            }
        }
        Ok(done)
    }

    fn load_and_open(&mut self, plan: &Plan, i: usize, dir: &Path, load: bool) -> Result<Standing, Trouble> {
        let overrides = self.stage.systems[i].overrides().to_vec();
        let setup = plan.setup(dir.to_owned(), &overrides);
        // A load has no limit: it leaves the same database, sooner.
        let mut link = self.spawn(i, plan.memory_bytes.filter(|_| !load))?;
        match link.ask(&Request::Check { setup })? {
            Answer::Done => {}
            Answer::Refused { why } => return Ok(Standing::Refused(why)),
            other => return Err(self.strange(i, &other)),
        }
        if load {
            let setup = plan.setup_of_load(dir.to_owned(), &overrides);
            match link.ask(&Request::Open { setup, data: plan.data.clone(), loaded: 0 })? {
                Answer::Opened { .. } => {}
                Answer::Refused { why } => return Ok(Standing::Refused(why)),
                other => return Err(self.strange(i, &other)),
            }
            let (order, loaded) = (Order::Random, plan.loaded);
            let fill = Request::Fill { order, loaded, threads: 1, batch: 1, inline: false, rest: false };
            self.measured(i, &mut link, &fill)?;
            if plan.overwrites > 0 {
                let warm_with = Workload::GetExisting.name().to_owned();
                let (workload, ops) = (Workload::Overwrite.name().to_owned(), plan.overwrites);
                let run = Request::Run {
                    workload,
                    threads: 1,
                    ops,
                    seconds: None,
                    warmup: 0,
                    warm_with,
                    hot: None,
                    seed: plan.seed,
                };
                self.measured(i, &mut link, &run)?;
            }
            if plan.compact {
                link.ask(&Request::Compact)?;
            }
            self.quit(i, link)?;
            link = self.spawn(i, plan.memory_bytes)?;
        }
        if plan.memory_bytes.is_some() {
            // What is in the page cache already is not counted against the limit.
            directory::evict(dir).map_err(|error| {
                Trouble::Failed(format!("{}: not evicted: {error}", self.stage.systems[i]))
            })?;
        }
        let mut side =
            Side { link, dir: dir.to_owned(), options: BTreeMap::new(), open_ns: 0, loaded: plan.loaded };
        self.open(plan, i, &mut side)?;
        // Opening may have caused work: log replay, a flush.
        side.link.ask(&Request::Settle)?;
        if plan.filled {
            side.link.ask(&Request::ReadAll)?;
        }
        if let Some(&first) = plan.steps.first().filter(|step| plan.heated > 0 && !step.workload.writes()) {
            let alone = Step { threads: 1, warm_with: None, ..first };
            self.measured(i, &mut side.link, &request_of(plan, &alone, plan.rounds, plan.heated))?;
        }
        Ok(Standing::Ready(Box::new(side)))
    }

    fn open(&self, plan: &Plan, i: usize, side: &mut Side) -> Result<(), Trouble> {
        let setup = plan.setup(side.dir.clone(), self.stage.systems[i].overrides());
        match side.link.ask(&Request::Open { setup, data: plan.data.clone(), loaded: side.loaded })? {
            Answer::Opened { options, ns } => {
                side.options = options;
                side.open_ns = ns;
                Ok(())
            }
            other => Err(self.strange(i, &other)),
        }
    }

    fn measured(&mut self, i: usize, link: &mut Link, request: &Request) -> Result<(Figures, u64), Trouble> {
        match link.ask(request)? {
            Answer::Measured { figures, loaded, notes } => {
                for note in notes {
                    self.stage.audience.note(&format!("{}: {note}", self.stage.systems[i]));
                }
                Ok((*figures, loaded))
            }
            other => Err(self.strange(i, &other)),
        }
    }

    /// Starts a worker, with a limit for all its memory if one is given.
    fn spawn(&self, i: usize, memory_bytes: Option<u64>) -> Result<Link, Trouble> {
        let system = &self.stage.systems[i];
        let start = || {
            let mut link = (self.stage.spawn)(system)?;
            memory_bytes.map_or(Ok(()), |bytes| link.confine(bytes)).map(|()| link)
        };
        start().map_err(|error| Trouble::Failed(format!("{system}: no worker: {error}")))
    }

    fn quit(&mut self, i: usize, link: Link) -> Result<(), Trouble> {
        if let Some(said) = link.quit()? {
            self.stage.audience.note(&format!("{} said:\n{said}", self.stage.systems[i]));
        }
        Ok(())
    }

    fn strange(&self, i: usize, answer: &Answer) -> Trouble {
        Trouble::Failed(format!(
            "{}: its worker sent an unexpected answer: {answer:?}",
            self.stage.systems[i]
        ))
    }

    fn doing(&mut self, plan: &Plan, what: &str, system: &System, round: Option<u32>) {
        let round = round.map_or(String::new(), |round| format!(", round {}", round + 1));
        self.stage.audience.doing(&format!("{} {what} {system}{round}", plan.suite));
    }

    fn row(
        &self,
        plan: &Plan,
        step: &Step,
        i: usize,
        round: u32,
        options: BTreeMap<String, String>,
        figures: Figures,
    ) -> Row {
        let system = &self.stage.systems[i];
        Row {
            conditions: plan.conditions(step),
            system: system.name().to_owned(),
            version: version_of(system),
            options,
            round,
            refused: None,
            durability: durability_of(system, plan),
            figures,
        }
    }

    /// Writes rows that state why there are no figures.
    fn refuse(
        &mut self,
        plan: &Plan,
        steps: &[Step],
        i: usize,
        round: u32,
        why: &str,
    ) -> Result<(), Failure> {
        for step in steps {
            let empty = self.row(plan, step, i, round, BTreeMap::new(), Figures::default());
            self.stage.audience.row(&Row { refused: Some(why.to_owned()), ..empty })?;
        }
        Ok(())
    }

    /// Excludes a failed system. A wrong answer ends the run.
    fn stop(
        &mut self,
        plan: &Plan,
        steps: &[Step],
        i: usize,
        round: u32,
        trouble: Trouble,
    ) -> Result<(), Failure> {
        match trouble {
            Trouble::WrongAnswer(text) => Err(Failure::WrongAnswer(text)),
            Trouble::Failed(text) => {
                let text = format!("{}, {text}", plan.suite);
                self.stage.audience.note(&text);
                self.refuse(plan, steps, i, round, &format!("{STOPPED}{text}"))?;
                self.troubles.push(text);
                Ok(())
            }
        }
    }

    fn new_dir(&mut self, system: usize, loading: Option<Loading>) -> Result<PathBuf, Failure> {
        self.made += 1;
        let dir = self.stage.dir.join(format!("{}-{}", self.made, system));
        std::fs::create_dir(&dir).map_err(|error| Failure::file("make", &dir, &error))?;
        self.stock.push(Database { system, loading, dir: dir.clone() });
        Ok(dir)
    }

    /// Removes the databases that no later plan can use.
    fn clear(&mut self, to_come: &[Plan]) -> Result<(), Failure> {
        let wanted = |database: &Database| {
            database.loading.is_some() && to_come.iter().any(|plan| plan.shared_loading() == database.loading)
        };
        let unwanted: Vec<PathBuf> = self
            .stock
            .iter()
            .filter(|database| !wanted(database))
            .map(|database| database.dir.clone())
            .collect();
        unwanted.iter().try_for_each(|dir| self.discard(dir))
    }

    fn discard(&mut self, dir: &Path) -> Result<(), Failure> {
        self.stock.retain(|database| database.dir != dir);
        std::fs::remove_dir_all(dir).map_err(|error| Failure::file("remove", dir, &error))
    }
}

/// The reason why instructions were not counted.
enum CountTrouble {
    /// The worker, or callgrind.
    Worker(Trouble),
    /// The run ends with it.
    Run(Failure),
}

impl From<Trouble> for CountTrouble {
    fn from(trouble: Trouble) -> CountTrouble {
        CountTrouble::Worker(trouble)
    }
}

fn order_of(fill: Workload) -> Order {
    if fill == Workload::FillSeq { Order::Sequential } else { Order::Random }
}

/// Returns the request for `ops` operations of a step other than a fill.
fn request_of(plan: &Plan, step: &Step, round: u32, ops: u64) -> Request {
    Request::Run {
        workload: step.workload.name().to_owned(),
        threads: step.threads,
        ops,
        seconds: plan.seconds.filter(|_| step.workload.writes()),
        warmup: if step.warm_with.is_some() { step.ops / plan.warmup_share } else { 0 },
        warm_with: step.warm_with.unwrap_or(Workload::GetExisting).name().to_owned(),
        hot: step.hot,
        seed: plan.seed_of(round),
    }
}

/// Returns the numbers below `n`, beginning one later each round.
fn rotated(n: usize, round: u32) -> impl Iterator<Item = usize> {
    (0..n).map(move |i| (i + round as usize) % n)
}

#[cfg(test)]
mod tests;
