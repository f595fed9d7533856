//! A worker: the process in which one engine runs, so that memory, processor time and bytes are attributable to it.
//!
//! It knows nothing about suites and rounds. It opens, fills and runs on request, one request after the other, and
//! checks every answer of the engine. After a failed request it is ready for the next one; an open database stays open.

use std::io::{self, BufRead, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tamis_bench::pattern::{Pattern, PatternSpec};
use tamis_bench::run::{Fill, RunSpec, Timing, run};
use tamis_bench::store::{Session, Store};
use tamis_bench::{BenchError, KeySet, NoProgress, Workload, value};

use crate::counted::{Counted, Puts};
use crate::directory::{self, Directory};
use crate::engines::{Engine, Setup};
use crate::instructions;
use crate::process::{self, Usage};
use crate::protocol::{Answer, Data, FailureKind, Hot, Order, Request};
use crate::record::Figures;

/// The files count as at rest if their size has not changed for this long.
const AT_REST: Duration = Duration::from_secs(3);

/// The longest wait for that.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// Interval at which their size is read.
const POLL: Duration = Duration::from_millis(200);

/// Distance of the seeds of the parts of a run with a limit of time: the seeds of rounds and of warm-ups are in between.
const PART_SEEDS: u64 = 1 << 32;

/// Size of a page in bytes.
const PAGE: u64 = 4096;

/// Serves requests until `quit` or the end of `input`. Errors are those of `input` and `output`.
pub(crate) fn serve<E: Engine>(input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut worker = Worker::<E> { place: Place::Nowhere };
    for line in input.lines() {
        let line = line?;
        let (answer, last) = match serde_json::from_str::<Request>(&line) {
            Ok(request) => {
                let last = request == Request::Quit;
                (worker.answer(request).unwrap_or_else(failed), last)
            }
            Err(error) => (failed(Failed::request(format!("not a request: {error}: {line}"))), false),
        };
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
        if last {
            break;
        }
    }
    Ok(())
}

struct Worker<E> {
    place: Place<E>,
}

/// The database's directory, and whether it is open.
enum Place<E> {
    Nowhere,
    Open(Box<Open<E>>),
    Closed(Setup),
}

struct Open<E> {
    engine: E,
    setup: Setup,
    data: Data,
    keys: KeySet,
    /// The keys that are present.
    fill: Fill,
    /// The latest pattern of hot keys, kept since an order of all keys takes time.
    pattern: Option<(Hot, Pattern)>,
}

/// A failed request.
struct Failed {
    kind: FailureKind,
    text: String,
}

impl Failed {
    fn request(text: impl Into<String>) -> Failed {
        Failed { kind: FailureKind::Request, text: text.into() }
    }
}

impl From<BenchError> for Failed {
    fn from(error: BenchError) -> Failed {
        let kind = match error {
            BenchError::WrongAnswer { .. } => FailureKind::WrongAnswer,
            BenchError::Keys(_) | BenchError::Request(_) => FailureKind::Request,
            _ => FailureKind::System,
        };
        Failed { kind, text: error.to_string() }
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed { kind: FailureKind::System, text: error.to_string() }
    }
}

fn failed(failed: Failed) -> Answer {
    Answer::Failed { kind: failed.kind, text: failed.text }
}

impl<E: Engine> Worker<E> {
    fn answer(&mut self, request: Request) -> Result<Answer, Failed> {
        match request {
            Request::Check { setup } => Ok(match E::refuses(&setup) {
                Some(why) => Answer::Refused { why: why.to_owned() },
                None => Answer::Done,
            }),
            Request::Open { setup, data, loaded } => self.open(setup, data, loaded),
            Request::Fill { order, loaded, threads, batch, inline, rest } => {
                let workload = match order {
                    Order::Random => Workload::FillRandom,
                    Order::Sequential => Workload::FillSeq,
                };
                self.opened()?.fill(Plan {
                    workload,
                    threads,
                    ops: loaded,
                    batch,
                    inline,
                    rest,
                    ..Plan::default()
                })
            }
            Request::Run { workload, threads, ops, seconds, warmup, warm_with, hot, seed } => {
                let limit = seconds.map(Duration::from_secs);
                let plan =
                    Plan { workload: named(&workload)?, threads, ops, limit, hot, seed, ..Plan::default() };
                let open = self.opened()?;
                open.place_hot_keys(hot)?;
                open.run(plan, warmup, named(&warm_with)?)
            }
            Request::Settle => {
                self.opened()?.engine.settle()?;
                Ok(Answer::Done)
            }
            Request::Compact => {
                self.opened()?.engine.compact()?;
                Ok(Answer::Done)
            }
            Request::Warm => {
                directory::warm(&self.opened()?.setup.dir)?;
                Ok(Answer::Done)
            }
            Request::ReadAll => {
                self.opened()?.read_all()?;
                Ok(Answer::Done)
            }
            Request::Evict => match &self.place {
                Place::Closed(setup) => {
                    directory::evict(&setup.dir)?;
                    Ok(Answer::Done)
                }
                _ => Err(Failed::request("only a closed database can be evicted from the page cache")),
            },
            Request::Close => {
                self.opened()?;
                self.close()?;
                Ok(Answer::Done)
            }
            Request::Quit => {
                self.close()?;
                Ok(Answer::Done)
            }
        }
    }

    fn open(&mut self, setup: Setup, data: Data, loaded: u64) -> Result<Answer, Failed> {
        if matches!(self.place, Place::Open(_)) {
            return Err(Failed::request("a database is open; close it first"));
        }
        if let Some(why) = E::refuses(&setup) {
            return Ok(Answer::Refused { why: why.to_owned() });
        }
        let width = usize::try_from(data.key_bytes).unwrap_or(usize::MAX);
        let keys = data.source.keys(data.asked, width, data.seed)?;
        if keys.len() != data.keys {
            return Err(Failed::request(format!(
                "{} has {} keys, not {}",
                data.source,
                keys.len(),
                data.keys
            )));
        }
        let mut fill = Fill::random(&keys, data.seed);
        if loaded > fill.loaded {
            return Err(Failed::request(format!("{loaded} of {} keys cannot be present", fill.loaded)));
        }
        fill.loaded = loaded;
        let begun = Instant::now();
        let (engine, options) = E::open(&setup)?;
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.place = Place::Open(Box::new(Open { engine, setup, data, keys, fill, pattern: None }));
        Ok(Answer::Opened { options, ns })
    }

    fn opened(&mut self) -> Result<&mut Open<E>, Failed> {
        match &mut self.place {
            Place::Open(open) => Ok(open),
            _ => Err(Failed::request("no database is open")),
        }
    }

    fn close(&mut self) -> Result<(), Failed> {
        match std::mem::replace(&mut self.place, Place::Nowhere) {
            Place::Open(open) => {
                self.place = Place::Closed(open.setup);
                Ok(open.engine.close()?)
            }
            other => {
                self.place = other;
                Ok(())
            }
        }
    }
}

fn named(workload: &str) -> Result<Workload, Failed> {
    workload
        .parse()
        .map_err(|unknown: tamis_bench::workload::UnknownWorkload| Failed::request(unknown.to_string()))
}

/// A run.
#[derive(Clone)]
struct Plan {
    workload: Workload,
    threads: usize,
    ops: u64,
    /// Repeated until so much time has passed.
    limit: Option<Duration>,
    /// Number of puts that are written together.
    batch: usize,
    /// Whether a fill makes values right before their puts.
    inline: bool,
    /// Whether to wait for files at rest.
    rest: bool,
    hot: Option<Hot>,
    seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        let workload = Workload::GetExisting;
        Plan {
            workload,
            threads: 1,
            ops: 0,
            limit: None,
            batch: 1,
            inline: false,
            rest: false,
            hot: None,
            seed: 0,
        }
    }
}

impl<E: Engine> Open<E> {
    fn fill(&mut self, plan: Plan) -> Result<Answer, Failed> {
        let (all, loaded) = (self.data.keys, plan.ops);
        if self.fill.loaded > 0 {
            return Err(Failed::request("the database contains keys; only an empty one can be filled"));
        }
        if loaded == 0 || loaded > all || (plan.workload == Workload::FillSeq && loaded < all) {
            return Err(Failed::request(format!("{loaded} of {all} keys cannot be put in this order")));
        }
        if plan.threads == 0 || plan.batch == 0 {
            return Err(Failed::request("there are no threads, or batches without a put"));
        }
        if plan.inline && (plan.threads > 1 || plan.workload == Workload::FillSeq) {
            return Err(Failed::request(
                "values are made while loading in random order and by one thread only",
            ));
        }
        self.fill.loaded = loaded;
        // A fill's order depends on its seed, which later runs must use as well.
        let measured = self.measure(Plan { seed: self.data.seed, ..plan }, loaded);
        if measured.is_err() {
            self.fill.loaded = 0;
        }
        measured
    }

    /// Scans everything, by a single iterator.
    fn read_all(&self) -> Result<(), Failed> {
        let mut found = 0;
        self.engine.session()?.scan(&[0], None, |key, value| {
            found += u64::from(!key.is_empty() && std::hint::black_box(value.last()).is_some());
            ControlFlow::Continue(())
        })?;
        if found != self.fill.loaded {
            let text = format!("a scan of everything found {found} entries of {}", self.fill.loaded);
            return Err(Failed { kind: FailureKind::WrongAnswer, text });
        }
        Ok(())
    }

    fn run(&mut self, plan: Plan, warmup: u64, warm_with: Workload) -> Result<Answer, Failed> {
        if plan.workload.is_fill() || warm_with.writes() {
            return Err(Failed::request("a run must not be a fill, and its warm-up must not write"));
        }
        if self.fill.loaded == 0 || plan.ops == 0 {
            return Err(Failed::request("there are no keys, or no operations"));
        }
        if warmup > 0 {
            let seed = plan.seed.wrapping_sub(1);
            run(&self.engine, &self.spec(&Plan { workload: warm_with, ops: warmup, seed, ..plan.clone() }))?;
        }
        if plan.limit.is_some() && plan.workload.inserts() {
            return Err(Failed::request("a run with a limit of time must not insert keys"));
        }
        let inserts = Fill::inserts(plan.workload, plan.ops);
        if self.fill.loaded + inserts > self.data.keys {
            let left = self.data.keys - self.fill.loaded;
            return Err(Failed::request(format!("{inserts} keys would be inserted, but {left} are left")));
        }
        let loaded = self.fill.loaded + inserts;
        let answer = self.measure(plan, loaded)?;
        self.fill.loaded = loaded;
        Ok(answer)
    }

    /// Makes the pattern of hot keys, unless it is there. Their places are the same for all seeds of runs.
    fn place_hot_keys(&mut self, hot: Option<Hot>) -> Result<(), Failed> {
        let Some(hot) = hot.filter(|hot| self.pattern.as_ref().is_none_or(|(there, _)| there != hot)) else {
            return Ok(());
        };
        let spec =
            PatternSpec { skew: f64::from(hot.skew) / 100.0, absent_percent: 0, locality: hot.locality };
        let pattern = Pattern::new(self.keys.len(), spec, self.data.seed)?;
        let unordered = hot.locality > 1 && !self.keys.is_ordered();
        let pattern = if unordered { pattern.in_order(self.keys.ascending()) } else { pattern };
        self.pattern = Some((hot, pattern));
        Ok(())
    }

    fn spec(&self, plan: &Plan) -> RunSpec<'_> {
        RunSpec {
            workload: plan.workload,
            keys: &self.keys,
            value_bytes: self.data.values,
            threads: plan.threads,
            ops: plan.ops,
            seed: plan.seed,
            fill: self.fill.clone(),
            pattern: plan.hot.and(self.pattern.as_ref()).map(|(_, pattern)| pattern),
            progress: &NoProgress,
        }
    }

    /// Executes a plan; `loaded` keys are present afterwards.
    fn measure(&self, plan: Plan, loaded: u64) -> Result<Answer, Failed> {
        let size_before = Directory::of(&self.setup.dir)?;
        let before = Usage::now()?;
        instructions::mark();
        let executed = self.execute(&plan);
        instructions::mark();
        let (timing, puts) = executed?;
        let unsettled = Directory::of(&self.setup.dir)?;
        let settle_begun = Instant::now();
        let mut settle_ns = 0;
        if plan.workload.writes() {
            self.engine.settle()?;
            settle_ns = u64::try_from(settle_begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        if plan.rest {
            self.wait_until_at_rest()?;
        }
        let used = Usage::now()?.since(&before);
        let size = Directory::of(&self.setup.dir)?;
        let mut figures = figures_of(&timing, &puts);
        let ops = timing.ops.max(1) as f64;
        figures.settle_ns = settle_ns;
        figures.cpu_ns_per_op = used.cpu_ns as f64 / ops;
        figures.read_bytes_per_op = used.read_bytes as f64 / ops;
        figures.device_read_bytes_per_op = used.device_read_bytes as f64 / ops;
        figures.reads_per_op = used.reads as f64 / ops;
        figures.major_faults_per_op = used.major_faults as f64 / ops;
        let mut notes = Vec::new();
        let key_and_value_bytes = loaded as f64 * self.data.entry_bytes();
        if puts.bytes > 0 {
            let written = written_bytes(size_before, size, used.written_bytes, &mut notes);
            figures.write_amplification = written as f64 / puts.bytes as f64;
            figures.space_amplification_before_settling =
                unsettled.allocated_bytes as f64 / key_and_value_bytes;
        }
        figures.space_amplification = size.allocated_bytes as f64 / key_and_value_bytes;
        figures.resident_bytes = process::resident_anonymous_bytes()?;
        figures.inside = self.engine.inside()?;
        Ok(Answer::Measured { figures: Box::new(figures), loaded, notes })
    }

    /// Executes the operations of a plan.
    fn execute(&self, plan: &Plan) -> Result<(Timing, Puts), Failed> {
        let store = Counted::new(&self.engine, plan.batch);
        let begun = Instant::now();
        if plan.inline {
            let timing = self.fill_inline(&store)?;
            return Ok((timing, store.puts()?));
        }
        let mut timing = run(&store, &self.spec(plan))?;
        let mut part = plan.clone();
        while plan.limit.is_some_and(|limit| begun.elapsed() < limit) {
            part.seed = part.seed.wrapping_add(PART_SEEDS);
            let more = run(&store, &self.spec(&part))?;
            // A mean of rates, weighted by their operations' time.
            let (before, after) = (timing.busy_ns as f64, more.busy_ns as f64);
            timing.ops_per_second =
                (timing.ops_per_second * before + more.ops_per_second * after) / (before + after);
            timing.ops += more.ops;
            timing.busy_ns += more.busy_ns;
            timing.wall_ns += more.wall_ns;
            timing.latency.merge(&more.latency);
        }
        Ok((timing, store.puts()?))
    }

    /// Fills like `fill-random`, but by a caller who makes each entry and puts it at once, all of it timed.
    fn fill_inline(&self, store: &Counted<'_, E>) -> Result<Timing, BenchError> {
        let (mut key, mut bytes) = (Vec::new(), Vec::new());
        let mut session = store.session()?;
        let begun = Instant::now();
        for place in 0..self.fill.loaded {
            key.clear();
            bytes.clear();
            self.keys.existing(self.fill.at(place), &mut key);
            let tag = value::tag_of(&key);
            value::fill(tag, 0, self.data.values.of(tag), &mut bytes);
            session.put(&key, &bytes)?;
        }
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (ops, ops_per_second) = (self.fill.loaded, self.fill.loaded as f64 * 1e9 / ns.max(1) as f64);
        Ok(Timing { ops, busy_ns: ns, wall_ns: ns, ops_per_second, ..Timing::default() })
    }

    /// Waits until the size of the files no longer changes: engines give space back some time after they have finished.
    fn wait_until_at_rest(&self) -> Result<(), Failed> {
        let begun = Instant::now();
        let (mut last, mut since) = (Directory::of(&self.setup.dir)?, Instant::now());
        while since.elapsed() < AT_REST && begun.elapsed() < LONGEST_REST {
            std::thread::sleep(POLL);
            let now = Directory::of(&self.setup.dir)?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}

fn figures_of(timing: &Timing, puts: &Puts) -> Figures {
    // A batch is one of its durations and many operations.
    let only_puts = puts.seconds.iter().map(|&puts| u64::from(puts)).sum::<u64>() == timing.ops;
    let latency = if only_puts { &puts.latency } else { &timing.latency };
    Figures {
        ops: timing.ops,
        ns_per_op: timing.ns_per_op(),
        ops_per_second: timing.ops_per_second,
        p50_ns: latency.quantile(0.5),
        p99_ns: latency.quantile(0.99),
        p999_ns: latency.quantile(0.999),
        put_p9999_ns: puts.latency.quantile(0.9999),
        slowest_put_ns: puts.slowest_ns,
        puts_by_second: puts.seconds.clone(),
        wall_ns_per_op: timing.wall_ns as f64 / timing.ops.max(1) as f64,
        ..Figures::default()
    }
}

/// Mapped logs have pages ahead of the writer that are data to the file system before anything is written there: with tamis up to
/// five windows of 512 KiB in the present log and in the next.
const PREPARED: u64 = 5 << 20;

/// Returns the bytes written by write calls and, as far as the engine counts them, through mappings; or the growth of the
/// directory if it cannot be explained by these. Tolerates a tenth, one page per file, since sizes are rounded up to pages, and
/// what lies [`PREPARED`] in logs.
fn written_bytes(before: Directory, after: Directory, by_calls: u64, notes: &mut Vec<String>) -> u64 {
    let grown = after.held_bytes.saturating_sub(before.held_bytes);
    if grown <= by_calls + by_calls / 10 + after.files * PAGE + PREPARED {
        return by_calls;
    }
    notes.push(format!(
        "files grew by {grown} bytes, but write calls wrote {by_calls}: it writes through maps or io_uring, and its write \
         amplification is at least the one shown"
    ));
    grown
}

#[cfg(test)]
pub(crate) mod tests;
