//! The scripts in `testdata` about compaction: trees drawn as text, and the plans that the policies
//! make for them.
//!
//! A tree is drawn under a ruler of keys, one run in each line, newest first:
//!
//! ```text
//! keys        abcdefghijklmnop
//! L0          [9----]
//! L1          [7--][8--x.--]
//! ```
//!
//! A table holds an entry of 10 bytes for each column from `[` to `]`; `|` is a table of one entry.
//! `x` is a delete, `.` a key that the table does not have. Numbers are those of tables. `L0@1050`
//! was flushed at that time. The trees are those of the simulator, which merges their entries and
//! checks every step.

use std::fmt::Write;
use std::time::Duration;

use tamis_base::epochs::EpochMap;
use tamis_base::key::{KeyBytes, KeyEnd};
use tamis_base::meta::TableMeta;
use tamis_testkit::script::{self, Case};

use super::*;
use crate::compaction::plan::{OutputRun, PlanInput, Reason, Work};
use crate::compaction::settings::{Granularity, Picker};
use crate::compaction::simulator::{Entries, Sim};

/// The policy that the options name.
#[derive(Debug)]
pub(super) struct Named(pub(super) Box<dyn CompactionPolicy>);

impl CompactionPolicy for Named {
    fn plan(&self, shape: &Shape) -> Option<Plan> {
        self.0.plan(shape)
    }

    fn needs(&self, shape: &Shape) -> Option<u64> {
        self.0.needs(shape)
    }

    fn write_pressure(&self, shape: &Shape) -> Pressure {
        self.0.write_pressure(shape)
    }

    fn debt(&self, shape: &Shape) -> u64 {
        self.0.debt(shape)
    }

    fn level_targets(&self, shape: &Shape) -> Vec<u64> {
        self.0.level_targets(shape)
    }

    fn promise(&self, shape: &Shape) -> Promise {
        self.0.promise(shape)
    }

    fn manual(&self, shape: &Shape, range: Option<&KeyRange>) -> Option<Plan> {
        self.0.manual(shape, range)
    }

    fn deepen(&self, shape: &Shape, spot: &Spot<'_>, reason: Reason) -> Option<Plan> {
        self.0.deepen(shape, spot, reason)
    }

    fn ends_round(&self, shape: &Shape, plan: &Plan) -> bool {
        self.0.ends_round(shape, plan)
    }

    fn drops_data(&self) -> bool {
        self.0.drops_data()
    }

    fn name(&self) -> String {
        self.0.name()
    }
}

struct World {
    sim: Sim<Named>,
    settings: Settings,
    /// The keys, and the column of the first one.
    ruler: (String, usize),
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Level0Runs => "level 0 has enough runs",
        Reason::LevelSize => "the level is larger than its target",
        Reason::RunCount => "the level has enough runs",
        Reason::FlushCount => "its turn by the number of flushes",
        Reason::Joining => "this level should be one run",
        Reason::SmallTables => "the run has many small tables",
        Reason::Partition => "a group between two borders",
        Reason::Guard => "enough tables between two guards",
        Reason::Window => "its time window",
        Reason::Expired => "all of it has expired",
        Reason::Covered => "range deletes hide all of it",
        Reason::Retention => "more bytes than are retained",
        Reason::Released => "snapshots are gone",
        Reason::BlobGarbage => "blob files are garbage",
        Reason::Deletes => "much of it is deletes",
        Reason::DeleteAge => "its deletes are old",
        Reason::Reads => "reads pay for the runs",
        Reason::Manual => "on request",
    }
}

/// Changes one of the settings, under the name of the option that it comes from.
fn set(mut settings: Settings, name: &str, value: &str) -> Settings {
    let count = || number(value) as usize;
    match name {
        "memtable_bytes" => settings.memtable_bytes = number(value),
        "table_bytes" => settings.table_bytes = number(value),
        "retain_bytes" if value == "unlimited" => settings.retain_bytes = u64::MAX,
        "retain_bytes" => settings.retain_bytes = number(value),
        "size_ratio" => settings.size_ratio = number(value).into(),
        "levels" => settings.levels = count(),
        "level0_runs" => settings.level0_runs = count(),
        "slowdown_runs" => settings.slowdown_runs = count(),
        "stop_runs" => settings.stop_runs = count(),
        "time_window" => {
            let seconds = value.strip_suffix(" s").expect("seconds");
            settings.time_window = Some(Duration::from_secs(number(seconds)));
        }
        "compaction" => {
            use Form::{Fifo, Fragmented, LazyLeveling, Leveling, Tiering, TimeWindow};
            let mut forms = [Leveling, Tiering, LazyLeveling, Fragmented, Fifo, TimeWindow].into_iter();
            return settings.of_form(forms.find(|form| form.to_string() == value).expect("a form"));
        }
        "merge" => {
            settings.granularity = match value {
                "full" => Granularity::Full,
                "partial" => Granularity::Partial,
                _ => panic!("no granularity: {value}"),
            };
        }
        "picker" => {
            settings.picker = match value {
                "least-overlap" => Picker::LeastOverlap,
                "round-robin" => Picker::RoundRobin,
                "most-tombstones" => Picker::MostTombstones,
                "oldest" => Picker::Oldest,
                _ => panic!("no picker: {value}"),
            };
        }
        _ => panic!("no setting: {name}"),
    }
    settings
}

fn index(key: &[u8]) -> usize {
    u16::from_be_bytes(key.try_into().expect("a key of two bytes")).into()
}

impl World {
    fn new() -> World {
        let settings = Settings::default();
        let sim = Sim::new(Named(policy_for(&settings)), settings.levels, 1);
        World { sim, settings, ruler: (String::new(), 0) }
    }

    fn key(&self, letter: &str) -> KeyBytes {
        let at = self.ruler.0.find(letter).unwrap_or_else(|| panic!("no key {letter}"));
        (at as u16).to_be_bytes()[..].into()
    }

    /// Adds the drawn runs above those that are there.
    fn add(&mut self, lines: &[&str]) {
        let keys = lines[0].strip_prefix("keys ").expect("a ruler").trim();
        self.ruler = (keys.into(), lines[0].len() - keys.len());
        let mut ids = vec![self.sim.next_id];
        for line in lines[1..].iter().rev() {
            let (label, drawing) = line.split_at(self.ruler.1);
            assert!(drawing.len() <= keys.len(), "beyond the ruler: {line}");
            let (level, written) = label.split_once('@').unwrap_or((label, "0"));
            let level = number(level.trim().strip_prefix('L').expect("a level")) as usize;
            let written = number(written.trim());
            self.sim.seq += 1;
            let seq = self.sim.seq;
            self.sim.next_id = *ids.iter().max().expect("an id");
            let run = self.sim.id();
            ids.push(run);
            let mut tables = Vec::new();
            let (mut entries, mut id) = (Entries::new(), String::new());
            for (key, mark) in (0..).zip(drawing.chars()) {
                match mark {
                    ' ' => assert!(entries.is_empty(), "a hole in a table: {line}"),
                    '.' => {}
                    _ => entries.push((key, (seq, mark == 'x'))),
                }
                id.extend(mark.is_ascii_digit().then_some(mark));
                if matches!(mark, ']' | '|') {
                    self.sim.expected.extend(entries.iter().copied());
                    if !id.is_empty() {
                        self.sim.next_id = number(&id) - 1;
                    } else {
                        self.sim.next_id = *ids.iter().max().expect("an id");
                    }
                    let entries = std::mem::take(&mut entries);
                    let table = self.sim.table(entries, (written, written), |smallest, _| {
                        EpochMap::flush(smallest.clone(), seq)
                    });
                    ids.push(table.id);
                    tables.push(table);
                    id.clear();
                }
            }
            assert!(entries.is_empty(), "a table without an end: {line}");
            self.sim.levels[level].insert(0, (run, tables));
        }
        self.sim.next_id = ids.into_iter().max().expect("an id");
    }

    /// Sets what a policy is told besides the tree.
    fn set(&mut self, args: &[&str]) {
        for arg in args {
            let (name, value) = arg.split_once('=').expect("NAME=VALUE");
            match name {
                "now" => self.sim.now = number(value),
                "expired" => self.sim.expired = number(value),
                "room" => self.sim.room = Some(number(value)),
                // The flushes that tables are from, instead of one for each run.
                "flushes" => {
                    for (table, flush) in
                        value.split(',').map(|pair| pair.split_once(':').expect("TABLE:FLUSH"))
                    {
                        let mut tables = self.sim.levels.iter_mut().flatten().flat_map(|(_, tables)| tables);
                        let table = tables.find(|t| t.id == number(table)).expect("a table");
                        let epochs = EpochMap::flush(table.smallest.clone(), number(flush));
                        *table = TableMeta { epochs, ..(**table).clone() }.into();
                    }
                }
                _ => panic!("nothing is named {name}"),
            }
        }
    }

    /// Draws a table over the characters of a line.
    fn draw(&self, table: &TableMeta, line: &mut [char]) {
        let entries = &self.sim.content[&table.id];
        let (first, last) = (usize::from(entries[0].0), usize::from(entries[entries.len() - 1].0));
        line[first..=last].fill('.');
        for &(key, (_, is_delete)) in entries {
            line[usize::from(key)] = if is_delete { 'x' } else { '-' };
        }
        (line[first], line[last]) = if first == last { ('|', '|') } else { ('[', ']') };
        let id = table.id.to_string();
        let fits = (first + 1..last)
            .find(|at| at + id.len() <= last && line[*at..at + id.len()].iter().all(|c| *c == '-'));
        if let Some(at) = fits {
            line[at..at + id.len()].iter_mut().zip(id.chars()).for_each(|(cell, digit)| *cell = digit);
        }
    }

    fn tree(&self) -> String {
        let mut text = format!("{:width$}{}\n", "keys", self.ruler.0, width = self.ruler.1);
        for (level, runs) in self.sim.levels.iter().enumerate() {
            for (_, tables) in runs {
                let mut line = vec![' '; self.ruler.0.len()];
                tables.iter().for_each(|table| self.draw(table, &mut line));
                let written = tables.iter().map(|table| table.extra.written.1).max().unwrap_or(0);
                let label = if written > 0 { format!("L{level}@{written}") } else { format!("L{level}") };
                writeln!(text, "{label:width$}{}", line.iter().collect::<String>(), width = self.ruler.1)
                    .expect("text");
            }
        }
        if self.sim.levels.iter().all(Vec::is_empty) { "an empty tree\n".into() } else { text }
    }

    /// The targets of the levels in bytes, the work due, and what writers feel.
    fn status(&self) -> String {
        let shape = self.sim.shape();
        let targets = self.sim.policy.level_targets(&shape);
        let targets = targets.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
        let targets: Vec<String> = targets.map(|(level, bytes)| format!("L{level} {bytes}")).collect();
        let targets = if targets.is_empty() { "none".into() } else { targets.join(", ") };
        let writers = match self.sim.policy.write_pressure(&shape) {
            Pressure::None => "free",
            Pressure::Slowdown(_) => "slowed down",
            Pressure::Stop => "stopped",
        };
        format!("targets: {targets}; bytes to merge: {}; writers: {writers}\n", self.sim.policy.debt(&shape))
    }

    fn describe(&self, shape: &Shape, plan: &Plan) -> String {
        let mut inputs = String::new();
        for (i, PlanInput { level, tables, .. }) in plan.inputs.iter().enumerate() {
            tables.iter().for_each(|id| write!(inputs, "{id} ").expect("text"));
            match plan.inputs.get(i + 1) {
                Some(next) if next.level == *level => {}
                Some(_) => write!(inputs, "of L{level}, ").expect("text"),
                None => write!(inputs, "of L{level}").expect("text"),
            }
        }
        let work = match plan.work {
            Work::Merge => "merge",
            Work::Move => "move",
            Work::Drop => return format!("drop {inputs}: {}", why(plan.reason)),
        };
        let named: HashSet<_> = plan.tables().collect();
        let mut place = format!("L{}", plan.output_level);
        let runs = shape.runs(plan.output_level);
        match plan.output {
            OutputRun::New if !runs.is_empty() => place += " as a new run",
            OutputRun::Into(id) if runs.len() > 1 => {
                let run = runs.iter().find(|run| run.id == id).expect("a run");
                let first = run.tables.first().expect("a table").id();
                place += &format!(" where {first} {}", if named.contains(&first) { "was" } else { "is" });
            }
            _ => {}
        }
        let letter = |key: &KeyBytes| &self.ruler.0[index(key)..index(key) + 1];
        if !plan.borders.is_empty() {
            place +=
                &format!(", cut before {}", plan.borders.iter().map(letter).collect::<Vec<_>>().join(" "));
        }
        if !plan.edges.is_empty() && plan.work == Work::Merge {
            let edges = plan.edges.iter().map(letter).collect::<Vec<_>>().join(" ");
            place += &format!(", half-full tables cut before {edges}");
        }
        let all = || shape.levels.iter().flat_map(|level| level.tables());
        if plan.work == Work::Merge && all().any(|table| named.contains(&table.id()) && table.holds_deletes())
        {
            place += if plan.bottommost { ", where deletes vanish" } else { ", where deletes stay" };
        }
        format!("{work} {inputs} into {place}: {}", why(plan.reason))
    }

    /// Begins the plan that `next` returns for the tree; `None` if there is none.
    fn begin(&mut self, next: impl Fn(&Named, &Shape) -> Option<Plan>) -> Option<String> {
        let shape = self.sim.shape();
        let plan = next(&self.sim.policy, &shape)?;
        let text = self.describe(&shape, &plan);
        self.sim.begin(&shape, plan);
        Some(text + "\n")
    }

    /// Carries out plans, one at a time, until there are no more.
    fn all(&mut self, next: impl Fn(&Named, &Shape) -> Option<Plan>) -> String {
        let mut text = String::new();
        while let Some(begun) = self.begin(&next) {
            text += &begun;
            self.sim.finish(0);
            assert!(text.len() < 100_000, "plans without progress: {text}");
        }
        self.sim.check_reads();
        text
    }

    fn execute(&mut self, case: &Case<'_>) -> String {
        match (case.command, &case.args[..]) {
            ("options", []) => {
                for line in &case.input {
                    let (name, value) = line.split_once('=').expect("NAME = VALUE");
                    self.settings = set(self.settings.clone(), name.trim(), value.trim());
                }
                self.sim.policy = Named(policy_for(&self.settings));
                self.sim.policy.name()
            }
            ("tree", args) => {
                self.sim = Sim::new(Named(policy_for(&self.settings)), self.settings.levels, 1);
                self.add(&case.input);
                self.set(args);
                self.status()
            }
            ("flush", args) => {
                self.add(&case.input);
                self.set(args);
                self.status()
            }
            ("set", args) => {
                self.set(args);
                self.status()
            }
            ("plan", count) => {
                let count = count.first().map_or(1, |count| number(count));
                let mut text = String::new();
                for _ in 0..count {
                    let Some(begun) = self.begin(|policy, shape| policy.plan(shape)) else {
                        let needs = self.sim.policy.needs(&self.sim.shape());
                        return text
                            + &needs.map_or("nothing".into(), |bytes| {
                                format!("nothing: it needs room for {bytes} bytes")
                            });
                    };
                    text += &begun;
                }
                text
            }
            ("finish", []) => {
                while !self.sim.jobs.is_empty() {
                    self.sim.finish(0);
                }
                self.sim.check_reads();
                self.tree()
            }
            ("settle", []) => self.all(|policy, shape| policy.plan(shape)) + &self.tree(),
            ("manual", range) => {
                let range = range.first().map(|range| {
                    let (start, end) = range.split_once("..").expect("a range");
                    KeyRange { smallest: self.key(start), largest: KeyEnd::Excluded(self.key(end)) }
                });
                self.all(|policy, shape| policy.manual(shape, range.as_ref())) + &self.tree()
            }
            ("flushes", counts) => {
                let mut text = String::new();
                for count in counts {
                    while self.sim.seq < number(count) {
                        let keys: Vec<u16> =
                            (0..8).map(|_| self.sim.random(self.ruler.0.len()) as u16).collect();
                        self.sim.flush(keys, 0);
                        self.all(|policy, shape| policy.plan(shape));
                    }
                    let runs: Vec<String> =
                        self.sim.levels.iter().map(|runs| runs.len().to_string()).collect();
                    writeln!(text, "after {count:3} flushes: {}", runs.join(" ")).expect("text");
                }
                text
            }
            _ => panic!("no such command"),
        }
    }
}

fn run(name: &str) {
    let mut world = World::new();
    let path = format!("{}/testdata/compaction-{name}.txt", env!("CARGO_MANIFEST_DIR"));
    script::run(path, |case| world.execute(case));
}

#[test]
fn leveling_script() {
    run("leveling");
}

#[test]
fn tiering_script() {
    run("tiering");
}

#[test]
fn pickers_script() {
    run("pickers");
}

#[test]
fn time_script() {
    run("time");
}

#[test]
fn fragments_script() {
    run("fragments");
}

#[test]
fn room_script() {
    run("room");
}
