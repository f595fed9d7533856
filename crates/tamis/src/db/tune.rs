//! Options that choose themselves: [`Options::auto`].
//!
//! With a budget in `auto_memory_bytes` the cost model ([`advise`](crate::advise)) decides on filter, bits, their allocation and
//! compaction policy of every keyspace, for the workload that is declared (`workload`) or was seen:
//!
//! * **At opening** what was chosen before is taken up from the stored options, and looked at again if a workload is known.
//! * **At round borders**: when a compaction has brought data to rest in the last level. Memory and shape were settled for the
//!   data before it, and what is rewritten next gets the new filter for nothing.
//!
//! # Hysteresis
//!
//! A change must save more than [`MARGIN`] of an operation's time by prediction, and two borders in a row must ask for one; at
//! opening it must save that much. After it the new configuration is the present one, so going back needs the same margin the
//! other way. What is seen is blended with what was seen before.
//!
//! # What takes effect when
//!
//! Everything that is chosen takes effect at once, for new tables and the next compaction. A change to or from one filter for the
//! whole tree is only made at opening: at borders such filters are no candidates for a tree without one, nor others for a tree
//! with one. How many bits such a filter has is settled at opening, too: a change of that is stored, and waits.
//!
//! # Where it is kept
//!
//! In the stored options of the keyspace, the workload seen last among them, as text of which every name and value is checked
//! when it is read. The rest of the options are those of whoever opens.
//!
//! # Who may do what
//!
//! [`Tuning`] is behind the `state` lock, among the [jobs](super::inner::Jobs). Compaction threads decide with no lock held, one
//! at a time for a keyspace. Measuring the machine takes a tenth of a second once for an open database, with entries like those
//! of the keyspace that needs it first.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::advise::{
    Calibration, Change, Data, Effort, Selector, Setup, Workload, advise_among, data_of_tables, decide,
    operations_of, selector_in, workload_of, zipf_exponent,
};
use crate::db::inner::{DbInner, KeyspaceInner, State};
use crate::ids::{DEFAULT_KEYSPACE, KeyspaceId};
use crate::options::{CompactionChoice, KeyspaceOptions, Options, ReadMode};
use crate::table::ReadCost;
use crate::tree::meta::TableMeta;
use crate::tree::state::ManifestState;

/// The part of an operation's time that a change must save.
const MARGIN: f64 = 0.15;

/// Fewer operations since the last look are no workload.
const FEWEST_OPERATIONS: u64 = 10_000;

/// Below this there is nothing to tune: everything fits into the caches of a processor.
const FEWEST_ENTRIES: u64 = 10_000;

/// Decisions that statistics remember.
const REMEMBERED: usize = 32;

/// The options that are chosen: first those of filters, then those of the shape.
const CHOSEN: [&str; 6] =
    ["filter", "filter_allocation", "bits_per_key", "compaction", "merge", "size_ratio"];

/// How many of them are about filters.
const FILTER_OPTIONS: usize = 3;

/// One change that the cost model asked for.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TuningDecision {
    /// The keyspace's name.
    pub keyspace: String,
    /// The workload that it was made for, as text.
    pub workload: String,
    /// Names and values of the options that change, as text.
    pub changes: Vec<(String, String)>,
    /// The part of an operation's time that is saved by prediction.
    pub gain: f64,
    /// Why, in words.
    pub reason: String,
}

/// One keyspace's account.
#[derive(Debug, Default)]
pub(crate) struct Tuning {
    /// Counters at the last look.
    reads: ReadCost,
    writes: u64,
    /// Entries flushed since opening.
    pub(crate) flushed: u64,
    /// Whether the last look asked for a change that was not made.
    asked: bool,
    /// What was seen last, in this session or an earlier one.
    pub(crate) seen: Option<Workload>,
    /// Somebody is deciding.
    deciding: bool,
}

impl Tuning {
    /// Of a keyspace whose workload was seen before.
    pub(crate) fn having_seen(workload: Workload) -> Tuning {
        Tuning { seen: Some(workload), ..Tuning::default() }
    }

    /// The workload to decide for: what was declared, or what was asked and written since the last look, if that is enough to
    /// go by and nobody else is deciding.
    fn look(&mut self, keyspace: &KeyspaceInner) -> Option<Workload> {
        if self.deciding {
            return None;
        }
        let reads = keyspace.reads.read();
        let (new, writes) = (reads - self.reads, self.flushed - self.writes);
        if operations_of(new, writes) < FEWEST_OPERATIONS {
            return None;
        }
        (self.reads, self.writes) = (reads, self.flushed);
        let entries: u64 = keyspace.view.load().version.tables.iter().map(|table| table.meta.entries).sum();
        let skew = keyspace.reads.collisions().map(|rate| zipf_exponent(rate, entries as f64));
        let seen = workload_of(new, writes, skew).0.in_percent();
        if keyspace.declared.is_none() && seen.is_sound() {
            // Half of it is what was seen before, so that a session of loading alone makes no database of writes.
            self.seen = Some(self.seen.map_or(seen, |before| before.blended(&seen).in_percent()));
        }
        keyspace.declared.or(self.seen)
    }

    /// The options to store for options that hold now.
    pub(crate) fn stored(&self, now: &KeyspaceOptions) -> KeyspaceOptions {
        KeyspaceOptions { workload: self.seen.or(now.workload), ..now.clone() }
    }
}

/// Decisions since opening, the last ones.
#[derive(Debug, Default)]
pub(crate) struct Decisions(VecDeque<TuningDecision>);

impl Decisions {
    fn add(&mut self, decision: TuningDecision) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(decision);
    }

    pub(crate) fn all(&self) -> Vec<TuningDecision> {
        self.0.iter().cloned().collect()
    }
}

impl From<Vec<TuningDecision>> for Decisions {
    fn from(made: Vec<TuningDecision>) -> Decisions {
        let mut decisions = Decisions::default();
        made.into_iter().for_each(|decision| decisions.add(decision));
        decisions
    }
}

/// What opening begins with.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    pub(crate) decisions: Vec<TuningDecision>,
    /// The workloads that were seen before, as far as none is declared.
    pub(crate) seen: Vec<(KeyspaceId, Workload)>,
}

/// Takes up what was chosen before, and looks at it again. For every keyspace, before any is opened: the options of the default
/// one are changed in `options`, those of others in `tree`, in memory.
pub(crate) fn at_opening(
    dir: &Path,
    options: &mut Options,
    tree: &mut ManifestState,
    measured: &Measured,
    read_only: bool,
) -> Begun {
    let mut begun = Begun::default();
    let declared = options.keyspace.workload;
    for (&id, stored) in &tree.keyspaces {
        let before = KeyspaceOptions::from_text(&stored.options).ok().and_then(|options| options.workload);
        let is_declared = id == DEFAULT_KEYSPACE && declared.is_some();
        begun.seen.extend(before.filter(|_| !is_declared).map(|workload| (id, workload)));
    }
    if options.auto_memory_bytes == 0 {
        return begun;
    }
    let all: u64 = tree.keyspaces.values().flat_map(|keyspace| keyspace.tables()).map(|t| t.entries).sum();
    for (&id, stored) in &mut tree.keyspaces {
        // What cannot be read is an error of whoever opens the keyspace.
        let Ok(before) = KeyspaceOptions::from_text(&stored.options) else { continue };
        let mut keyspace = if id == DEFAULT_KEYSPACE { options.keyspace.clone() } else { before.clone() };
        let declared = keyspace.workload.filter(|_| id == DEFAULT_KEYSPACE);
        let has_tables = stored.tables().next().is_some();
        if has_tables {
            let names = taken_up(&before, &keyspace);
            copy(&before, &mut keyspace, names);
        }
        let entries: u64 = stored.tables().map(|table| table.entries).sum();
        // Who only reads changes nothing, and measures nothing where the data is.
        let decides = !read_only && entries >= FEWEST_ENTRIES;
        if let Some(workload) = declared.or(before.workload).filter(|_| decides) {
            let budget = share(filter_memory(options), entries, all);
            let metas: Vec<&TableMeta> = stored.tables().collect();
            let mut current = options.clone();
            current.keyspace = keyspace.clone();
            if let Some((change, changes)) = ask(measured, dir, &current, &metas, &workload, budget, true)
                && copy(&change.options.keyspace, &mut keyspace, &CHOSEN)
            {
                begun.decisions.push(decision(&stored.name, &workload, changes, &change));
            }
        }
        if id == DEFAULT_KEYSPACE {
            options.keyspace = keyspace;
        } else {
            stored.options = keyspace.to_text();
        }
    }
    begun
}

/// What the model would change for one keyspace, whose options are in `current`, and the options that differ.
fn ask(
    measured: &Measured,
    dir: &Path,
    current: &Options,
    tables: &[&TableMeta],
    workload: &Workload,
    budget: u64,
    opening: bool,
) -> Option<(Change, Vec<(String, String)>)> {
    let data = data_of_tables(tables, current);
    let calibration = measured.get(dir, &data, current)?;
    // A filter for the whole tree comes, goes and changes its kind at opening only.
    let present = selector_in(&current.keyspace);
    let may = |selector: Selector| match opening {
        true => true,
        false => selector == present || !(selector.is_global() || present.is_global()),
    };
    let advice = advise_among(calibration, &data, workload, budget, current, may);
    let change = decide(&advice, current, MARGIN)?;
    let changes = difference(&current.keyspace, &change.options.keyspace);
    // The rest of what was advised is about memory of the whole database, which is divided at opening.
    (!changes.is_empty()).then_some((change, changes))
}

/// What operations cost on this machine and this device, measured at first need. Any thread may ask; one measures, others
/// wait for it.
#[derive(Debug, Default)]
pub(crate) struct Measured(OnceLock<Option<Calibration>>);

impl Measured {
    /// `None` if it could not be measured: then nothing is changed.
    fn get(&self, dir: &Path, data: &Data, options: &Options) -> Option<&Calibration> {
        let measure = || {
            let mut setup =
                Setup::new(data.key_bytes as usize, data.value_bytes as usize).effort(Effort::Quick);
            setup.directory = Some(dir.to_owned());
            setup.options = options.clone();
            Calibration::measure(&setup).inspect_err(|error| log::warn!("nothing is tuned: {error}")).ok()
        };
        self.0.get_or_init(measure).as_ref()
    }
}

/// What of the memory is for filters: the block cache keeps what it was given at opening. Where blocks go through it the model
/// divides all of it.
fn filter_memory(options: &Options) -> u64 {
    let mapped = options.read_mode == ReadMode::Mapped;
    options.auto_memory_bytes.saturating_sub(if mapped { options.cache_bytes } else { 0 }).max(1)
}

/// A keyspace's part of the budget.
fn share(budget: u64, entries: u64, all: u64) -> u64 {
    (u128::from(budget) * u128::from(entries) / u128::from(all.max(1))) as u64
}

/// Sets the named options of `to` as they are in `from`.
/// `false` if they do not fit what else `to` says: then nothing is set.
fn copy(from: &KeyspaceOptions, to: &mut KeyspaceOptions, names: &[&str]) -> bool {
    let mut changed = to.clone();
    for name in names {
        let value = from.get(name).expect("an option of every keyspace");
        changed.set(name, &value).expect("a value that was accepted before");
    }
    // Options of one opener and choices made under another's may not fit together: then the opener's hold.
    let fits = changed.check().is_ok();
    if fits {
        *to = changed;
    }
    fits
}

/// What of a keyspace's stored options is taken up: all that was chosen, but no policy that drops data, on either side, since
/// none was ever chosen.
fn taken_up(stored: &KeyspaceOptions, opener: &KeyspaceOptions) -> &'static [&'static str] {
    let drops = |options: &KeyspaceOptions| {
        matches!(options.compaction, CompactionChoice::Fifo | CompactionChoice::TimeWindow)
    };
    if drops(stored) || drops(opener) { &CHOSEN[..FILTER_OPTIONS] } else { &CHOSEN }
}

/// Names and values of the chosen options that differ.
fn difference(from: &KeyspaceOptions, to: &KeyspaceOptions) -> Vec<(String, String)> {
    let value = |of: &KeyspaceOptions, name: &str| of.get(name).expect("an option of every keyspace");
    let changed = CHOSEN.iter().filter(|name| value(from, name) != value(to, name));
    changed.map(|name| ((*name).to_owned(), value(to, name))).collect()
}

impl DbInner {
    /// Whether `output_level` is where the data of a keyspace comes to rest.
    pub(crate) fn is_round_border(&self, keyspace: &KeyspaceInner, output_level: usize) -> bool {
        let last = keyspace.view.load().version.runs.last().map_or(0, |run| run.level);
        self.options.auto_memory_bytes > 0 && output_level >= last
    }

    /// Looks at a keyspace's choices again, at a round border. Whatever fails is a warning, a panic too: nothing depends on it.
    pub(crate) fn reconsider(&self, keyspace: &KeyspaceInner) {
        let Some((workload, shared)) = self.begin_look(keyspace) else { return };
        let think = AssertUnwindSafe(|| {
            let version = keyspace.view.load().version.clone();
            let metas: Vec<&TableMeta> = version.tables.iter().map(|table| &*table.meta).collect();
            let mut current = self.options.clone();
            current.keyspace = keyspace.shaping.load().options.clone();
            let entries: u64 = metas.iter().map(|meta| meta.entries).sum();
            let budget = share(filter_memory(&self.options), entries, shared.max(entries));
            let ask = || ask(&self.measured, &self.dir, &current, &metas, &workload, budget, false);
            (entries >= FEWEST_ENTRIES).then(ask).flatten()
        });
        let asked = catch_unwind(think).unwrap_or_else(|_| {
            self.warn(format!("keyspace `{}`: its options could not be looked at again", keyspace.name));
            None
        });
        let mut state = self.state();
        let tuning = &mut state.jobs.entry(keyspace.id).or_default().tuning;
        tuning.deciding = false;
        // Once is chance. Which change it is may differ: of many that are nearly alike one is first now and another then.
        let twice = std::mem::replace(&mut tuning.asked, asked.is_some());
        let Some((change, changes)) = asked.filter(|_| twice) else { return };
        tuning.asked = false;
        drop(state);
        self.retune(keyspace, &workload, &change, changes);
    }

    /// What was asked and written since the last look, if that is enough to go by, and the entries of all keyspaces. Only one
    /// thread looks at a keyspace at a time.
    fn begin_look(&self, keyspace: &KeyspaceInner) -> Option<(Workload, u64)> {
        let mut state = self.state();
        let jobs = state.jobs.entry(keyspace.id).or_default();
        // What waits for the end of a round was decided for the next one.
        if jobs.next_shaping.is_some() {
            return None;
        }
        let workload = jobs.tuning.look(keyspace)?;
        jobs.tuning.deciding = true;
        let entries = state.keyspaces.values().map(|keyspace| {
            let version = keyspace.view.load().version.clone();
            version.tables.iter().map(|table| table.meta.entries).sum::<u64>()
        });
        Some((workload, entries.sum()))
    }

    /// Before the manifest is closed: the stored options of keyspaces whose workload is known better than what is stored says.
    pub(crate) fn seen_workloads(&self, state: &mut State) -> Vec<(KeyspaceId, String)> {
        if self.options.auto_memory_bytes == 0 {
            return Vec::new();
        }
        let keyspaces: Vec<Arc<KeyspaceInner>> = state.keyspaces.values().cloned().collect();
        let stored = keyspaces.iter().filter_map(|keyspace| {
            let jobs = state.jobs.entry(keyspace.id).or_default();
            let (waiting, tuning) = (jobs.next_shaping.clone(), &mut jobs.tuning);
            tuning.look(keyspace);
            tuning.seen?;
            // Options that wait for the end of a round are stored already.
            let shaping = waiting.unwrap_or_else(|| keyspace.shaping.load_full());
            let text = tuning.stored(&shaping.options).to_text();
            (state.tree.keyspaces.get(&keyspace.id)?.options != text).then_some((keyspace.id, text))
        });
        stored.collect()
    }

    /// Puts a decision into effect.
    fn retune(
        &self,
        keyspace: &KeyspaceInner,
        workload: &Workload,
        change: &Change,
        changes: Vec<(String, String)>,
    ) {
        let set: Vec<(&str, &str)> = changes.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        if let Err(error) = self.set_options(keyspace, &set) {
            log::warn!("keyspace {}: a change of options was refused: {error}", keyspace.name);
            return;
        }
        let decision = decision(&keyspace.name, workload, changes, change);
        log::info!("keyspace {}: {}", decision.keyspace, decision.reason);
        self.decisions.lock().add(decision);
    }
}

fn decision(
    keyspace: &str,
    workload: &Workload,
    changes: Vec<(String, String)>,
    change: &Change,
) -> TuningDecision {
    TuningDecision {
        keyspace: keyspace.to_owned(),
        workload: workload.in_percent().to_string(),
        changes,
        gain: change.gain,
        reason: change.reason.clone(),
    }
}
