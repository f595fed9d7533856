//! A worker: the process in which one engine runs, so that memory, processor time and bytes are attributable to it.
//!
//! It knows nothing about suites and rounds. It opens, fills and runs on request, one request after the other, and
//! checks every answer of the engine. After a failed request it is ready for the next one; an open database stays open.

use std::io::{self, BufRead, Write};
use std::time::Instant;

use tamis_bench::run::{Fill, RunSpec, Timing, run};
use tamis_bench::{BenchError, KeySet, NoProgress, Workload};

use crate::counted::Counted;
use crate::directory::{self, Directory};
use crate::engines::{Engine, Setup};
use crate::process::{self, Usage};
use crate::protocol::{Answer, Data, FailureKind, Order, Request};
use crate::record::Figures;

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
            Request::Fill { order, loaded } => self.opened()?.fill(order, loaded),
            Request::Run { workload, threads, ops, warmup, warm_with, seed } => {
                let plan = Plan { workload: named(&workload)?, threads, ops, seed };
                self.opened()?.run(plan, warmup, named(&warm_with)?)
            }
            Request::Settle => {
                self.opened()?.engine.settle()?;
                Ok(Answer::Done)
            }
            Request::Warm => {
                directory::warm(&self.opened()?.setup.dir)?;
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
        let keys = KeySet::uniform(data.keys, width, data.seed).map_err(BenchError::from)?;
        let mut fill = Fill::random(&keys, data.seed);
        if loaded > fill.loaded {
            return Err(Failed::request(format!("{loaded} of {} keys cannot be present", fill.loaded)));
        }
        fill.loaded = loaded;
        let (engine, options) = E::open(&setup)?;
        self.place = Place::Open(Box::new(Open { engine, setup, data, keys, fill }));
        Ok(Answer::Opened { options })
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
struct Plan {
    workload: Workload,
    threads: usize,
    ops: u64,
    seed: u64,
}

impl<E: Engine> Open<E> {
    fn fill(&mut self, order: Order, loaded: u64) -> Result<Answer, Failed> {
        let all = self.data.keys;
        if self.fill.loaded > 0 {
            return Err(Failed::request("the database contains keys; only an empty one can be filled"));
        }
        if loaded == 0 || loaded > all || (order == Order::Sequential && loaded < all) {
            return Err(Failed::request(format!("{loaded} of {all} keys cannot be put in this order")));
        }
        self.fill.loaded = loaded;
        let workload = match order {
            Order::Random => Workload::FillRandom,
            Order::Sequential => Workload::FillSeq,
        };
        // A fill's order depends on its seed, which later runs must use as well.
        let measured = self.measure(Plan { workload, threads: 1, ops: loaded, seed: self.data.seed }, loaded);
        if measured.is_err() {
            self.fill.loaded = 0;
        }
        measured
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
            run(&self.engine, &self.spec(&Plan { workload: warm_with, ops: warmup, seed, ..plan }))?;
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

    fn spec(&self, plan: &Plan) -> RunSpec<'_> {
        RunSpec {
            workload: plan.workload,
            keys: &self.keys,
            value_bytes: self.data.values,
            threads: plan.threads,
            ops: plan.ops,
            seed: plan.seed,
            fill: self.fill.clone(),
            pattern: None,
            progress: &NoProgress,
        }
    }

    /// Executes a plan; `loaded` keys are present afterwards.
    fn measure(&self, plan: Plan, loaded: u64) -> Result<Answer, Failed> {
        let size_before = Directory::of(&self.setup.dir)?;
        let before = Usage::now()?;
        let mapped_before = self.engine.mapped_bytes();
        let mut store = Counted::new(&self.engine);
        let timing = run(&store, &self.spec(&plan))?;
        let settle_begun = Instant::now();
        let mut settle_ns = 0;
        if plan.workload.writes() {
            self.engine.settle()?;
            settle_ns = u64::try_from(settle_begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        let used = Usage::now()?.since(&before);
        let size = Directory::of(&self.setup.dir)?;
        let put_bytes = store.put_bytes();
        let mut figures = figures_of(&timing);
        let ops = timing.ops.max(1) as f64;
        figures.settle_ns = settle_ns;
        figures.cpu_ns_per_op = used.cpu_ns as f64 / ops;
        figures.read_bytes_per_op = used.read_bytes as f64 / ops;
        figures.device_read_bytes_per_op = used.device_read_bytes as f64 / ops;
        let mut notes = Vec::new();
        if put_bytes > 0 {
            let known = used.written_bytes + (self.engine.mapped_bytes() - mapped_before);
            let written = written_bytes(size_before, size, known, &mut notes);
            figures.write_amplification = written as f64 / put_bytes as f64;
        }
        let key_and_value_bytes = loaded as f64 * self.data.entry_bytes();
        figures.space_amplification = size.allocated_bytes as f64 / key_and_value_bytes;
        figures.resident_bytes = process::resident_anonymous_bytes()?;
        figures.inside = self.engine.inside()?;
        Ok(Answer::Measured { figures: Box::new(figures), loaded, notes })
    }
}

fn figures_of(timing: &Timing) -> Figures {
    Figures {
        ops: timing.ops,
        ns_per_op: timing.ns_per_op(),
        ops_per_second: timing.ops_per_second,
        p50_ns: timing.latency.quantile(0.5),
        p99_ns: timing.latency.quantile(0.99),
        p999_ns: timing.latency.quantile(0.999),
        ..Figures::default()
    }
}

/// Returns the bytes written by write calls and, as far as the engine counts them, through mappings; or the growth of the
/// directory if it cannot be explained by these. Tolerates a tenth and one page per file, since sizes are rounded up to pages.
fn written_bytes(before: Directory, after: Directory, by_calls: u64, notes: &mut Vec<String>) -> u64 {
    let grown = after.held_bytes.saturating_sub(before.held_bytes);
    if grown <= by_calls + by_calls / 10 + after.files * PAGE {
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
