//! Self-tuning options: when the [`Tuner`](crate::options::Tuner) is asked, and what becomes of its
//! answers.
//!
//! With a budget in `auto_memory_bytes`, the tuner chooses filter, bits per key, their allocation
//! and the compaction policy of every keyspace, for its declared (`workload`) or observed workload:
//!
//! * **At opening**, earlier choices are read from the stored options, and reconsidered if a
//!   workload is known.
//! * **At round borders**, when a compaction has moved data to its final place in the last level.
//!   Memory and shape were chosen for earlier data, and data rewritten next gets the new filter at
//!   no extra cost.
//!
//! # Hysteresis
//!
//! A change must be predicted to save more than [`MARGIN`] of an operation's time, and two borders
//! in a row must ask for one; at opening the saving alone suffices. Afterwards the new
//! configuration is the baseline, so going back needs the same margin in the other direction. Each
//! observation is blended with earlier ones.
//!
//! # What takes effect when
//!
//! All choices take effect at once, for new tables and the next compaction, except that a change to
//! or from a global filter is made only at opening: at borders such filters are no candidates for a
//! tree without one, nor others for a tree with one. The bits of a global filter are fixed at
//! opening, too: a change is stored, and waits.
//!
//! # Where it is kept
//!
//! In the stored options of the keyspace, which include the last observed workload, as text; every
//! name and value is checked when it is read. All other options are those passed to the opening.
//!
//! # Locking
//!
//! [`Tuning`](crate::catalogue::tuning::Tuning) is behind the `state` lock, in
//! [`Reshaping`](crate::catalogue::reshaping::Reshaping). Compaction threads decide with no lock
//! held, one at a time per keyspace.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use tamis_base::ids::{DEFAULT_KEYSPACE, KeyspaceId};
use tamis_base::meta::TableMeta;
use tamis_files::tree::state::ManifestState;
use tamis_model::engine::Workload;

use crate::catalogue::keyspace::KeyspaceInner;
use crate::catalogue::state::State;
use crate::catalogue::stored_options::StoredOptions;
use crate::catalogue::tuning::TuningDecision;
use crate::options::{CompactionChoice, KeyspaceOptions, Options, Proposal, ReadMode, TuningCase};
use crate::session::Session;

/// The fraction of an operation's time that a change must save.
const MARGIN: f64 = 0.15;

/// Below this there is nothing to tune: everything fits into processor caches.
const FEWEST_ENTRIES: u64 = 10_000;

/// The options that are chosen: first those of filters, then those of the shape.
const CHOSEN: [&str; 6] =
    ["filter", "filter_allocation", "bits_per_key", "compaction", "merge", "size_ratio"];

/// The number of filter options among them.
const FILTER_OPTIONS: usize = 3;

/// The tuning state that opening starts from.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    pub(crate) decisions: Vec<TuningDecision>,
    /// The workloads seen before, of keyspaces without a declared one.
    pub(crate) seen: Vec<(KeyspaceId, Workload)>,
}

/// Restores and reconsiders earlier choices. Called for every keyspace before any is opened: the
/// options of the default keyspace are changed in `options`, those of others in `tree`, in memory.
pub(crate) fn at_opening(
    dir: &Path,
    options: &mut Options,
    tree: &mut ManifestState,
    read_only: bool,
) -> Begun {
    let mut begun = Begun::default();
    let declared = options.keyspace.workload;
    let mut parsed = StoredOptions::default();
    for (&id, stored) in tree.keyspaces.iter() {
        let before = parsed.get(&stored.options).ok().and_then(|options| options.workload);
        let is_declared = id == DEFAULT_KEYSPACE && declared.is_some();
        begun.seen.extend(before.filter(|_| !is_declared).map(|workload| (id, workload)));
    }
    if options.auto_memory_bytes == 0 {
        return begun;
    }
    let all: u64 = tree.keyspaces.values().flat_map(|keyspace| keyspace.tables()).map(|t| t.entries).sum();
    let ids: Vec<KeyspaceId> = tree.keyspaces.keys().copied().collect();
    for id in ids {
        let Some(stored) = tree.keyspaces.get_mut(&id) else { continue };
        // Unreadable options are reported when the keyspace is opened.
        let Ok(before) = parsed.get(&stored.options).cloned() else { continue };
        let mut keyspace = if id == DEFAULT_KEYSPACE { options.keyspace.clone() } else { before.clone() };
        let declared = keyspace.workload.filter(|_| id == DEFAULT_KEYSPACE);
        let has_tables = stored.tables().next().is_some();
        if has_tables {
            let names = taken_up(&before, &keyspace);
            copy(&before, &mut keyspace, names);
        }
        let entries: u64 = stored.tables().map(|table| table.entries).sum();
        // A reader changes nothing, and measures nothing on the data's device.
        let decides = !read_only && entries >= FEWEST_ENTRIES;
        if let Some(workload) = declared.or(before.workload).filter(|_| decides) {
            let budget = share(filter_memory(options), entries, all);
            let metas: Vec<&TableMeta> = stored.tables().collect();
            let mut current = options.clone();
            current.keyspace = keyspace.clone();
            if let Some((change, changes)) = ask(dir, &current, &metas, &workload, budget, true)
                && copy(&change.options, &mut keyspace, &CHOSEN)
            {
                begun.decisions.push(decision(&stored.name, &workload, changes, &change));
            }
        }
        if id == DEFAULT_KEYSPACE {
            options.keyspace = keyspace;
        } else {
            Arc::make_mut(stored).options = keyspace.to_text().into();
        }
    }
    begun
}

/// Asks the tuner about one keyspace with the options in `current`. Returns its proposal and the
/// options that differ.
fn ask(
    dir: &Path,
    current: &Options,
    tables: &[&TableMeta],
    workload: &Workload,
    budget_bytes: u64,
    opening: bool,
) -> Option<(Proposal, Vec<(String, String)>)> {
    let entries: u64 = tables.iter().map(|table| table.entries).sum();
    let key_bytes = tables.iter().map(|table| table.smallest.len()).sum::<usize>() as f64;
    let case = TuningCase {
        dir,
        options: current,
        entries,
        key_bytes: key_bytes / tables.len().max(1) as f64,
        entry_bytes: tables.iter().map(|table| table.raw_bytes).sum::<u64>() as f64 / entries.max(1) as f64,
        workload,
        budget_bytes,
        opening,
        margin: MARGIN,
    };
    let proposal = current.tuner.as_ref()?.propose(&case)?;
    let changes = difference(&current.keyspace, &proposal.options);
    (!changes.is_empty()).then_some((proposal, changes))
}

/// Returns the part of the memory that is for filters: the caches keep the sizes that they got at
/// opening. If blocks are read through the block cache, the model divides its memory, too.
fn filter_memory(options: &Options) -> u64 {
    let cache_bytes = if options.read_mode == ReadMode::Mapped { options.cache_bytes } else { 0 };
    options.auto_memory_bytes.saturating_sub(cache_bytes).saturating_sub(options.record_cache_bytes).max(1)
}

/// Returns a keyspace's share of the budget.
fn share(budget: u64, entries: u64, all: u64) -> u64 {
    (u128::from(budget) * u128::from(entries) / u128::from(all.max(1))) as u64
}

/// Copies the named options from `from` to `to`. Returns `false`, copying nothing, if they do not
/// fit the other options of `to`.
fn copy(from: &KeyspaceOptions, to: &mut KeyspaceOptions, names: &[&str]) -> bool {
    let mut changed = to.clone();
    for name in names {
        let value = from.get(name).expect("an option of every keyspace");
        changed.set(name, &value).expect("a value that was accepted before");
    }
    // Options passed to this opening may conflict with choices made under another's: then the
    // passed ones hold.
    let fits = changed.check().is_ok();
    if fits {
        *to = changed;
    }
    fits
}

/// Returns the stored options of a keyspace that are restored: all choices, but no policy that
/// drops data, on either side, since none is ever chosen.
fn taken_up(stored: &KeyspaceOptions, opener: &KeyspaceOptions) -> &'static [&'static str] {
    let drops = |options: &KeyspaceOptions| {
        matches!(options.compaction, CompactionChoice::Fifo | CompactionChoice::TimeWindow)
    };
    if drops(stored) || drops(opener) { &CHOSEN[..FILTER_OPTIONS] } else { &CHOSEN }
}

/// Returns the names and values of the chosen options that differ.
fn difference(from: &KeyspaceOptions, to: &KeyspaceOptions) -> Vec<(String, String)> {
    let value = |of: &KeyspaceOptions, name: &str| of.get(name).expect("an option of every keyspace");
    let changed = CHOSEN.iter().filter(|name| value(from, name) != value(to, name));
    changed.map(|name| ((*name).to_owned(), value(to, name))).collect()
}

impl Session {
    /// Reports whether `output_level` is the final place of a keyspace's data.
    pub(crate) fn is_round_border(&self, keyspace: &KeyspaceInner, output_level: usize) -> bool {
        let last = keyspace.view.load().version.runs.last().map_or(0, |run| run.level);
        self.options.auto_memory_bytes > 0 && output_level >= last
    }

    /// Reconsiders a keyspace's choices, at a round border. Any failure, even a panic, is only a
    /// warning: nothing depends on it.
    pub(crate) fn reconsider(&self, keyspace: &KeyspaceInner) {
        let Some((workload, shared)) = self.begin_look(keyspace) else { return };
        let think = AssertUnwindSafe(|| {
            let version = keyspace.view.load().version.clone();
            let metas: Vec<&TableMeta> = version.tables.iter().map(|table| &*table.meta).collect();
            let mut current = self.options.clone();
            current.keyspace = keyspace.shaping.load().options.clone();
            let entries: u64 = metas.iter().map(|meta| meta.entries).sum();
            let budget = share(filter_memory(&self.options), entries, shared.max(entries));
            let ask = || ask(&self.dir, &current, &metas, &workload, budget, false);
            (entries >= FEWEST_ENTRIES).then(ask).flatten()
        });
        let asked = catch_unwind(think).unwrap_or_else(|_| {
            self.warn(format!("keyspace `{}`: its options could not be reconsidered", keyspace.name()));
            None
        });
        let mut state = self.state();
        let tuning = state.reshaping.tuning(keyspace.id);
        tuning.deciding = false;
        // A single request may be chance. The change itself may differ: among many near-equal
        // candidates the first varies.
        let twice = std::mem::replace(&mut tuning.asked, asked.is_some());
        let Some((change, changes)) = asked.filter(|_| twice) else { return };
        tuning.asked = false;
        drop(state);
        self.retune(keyspace, &workload, &change, changes);
    }

    /// Returns the workload since the last check, if there are enough operations, and the entries
    /// of all keyspaces. Only one thread checks a keyspace at a time.
    fn begin_look(&self, keyspace: &KeyspaceInner) -> Option<(Workload, u64)> {
        let mut state = self.state();
        // Options waiting for the end of a round were decided for the next one.
        if state.reshaping.waiting(keyspace.id).is_some() {
            return None;
        }
        let tuning = state.reshaping.tuning(keyspace.id);
        let workload = tuning.look(keyspace)?;
        tuning.deciding = true;
        let entries = state.catalogue.keyspaces().values().map(|keyspace| {
            let version = keyspace.view.load().version.clone();
            version.tables.iter().map(|table| table.meta.entries).sum::<u64>()
        });
        Some((workload, entries.sum()))
    }

    /// Returns, before the manifest is closed, the options to store for keyspaces whose workload is
    /// known better than is stored.
    pub(crate) fn seen_workloads(&self, state: &mut State) -> Vec<(KeyspaceId, String)> {
        if self.options.auto_memory_bytes == 0 {
            return Vec::new();
        }
        let keyspaces: Vec<Arc<KeyspaceInner>> = state.catalogue.keyspaces().values().cloned().collect();
        let stored = keyspaces.iter().filter_map(|keyspace| {
            let waiting = state.reshaping.waiting(keyspace.id).cloned();
            let tuning = state.reshaping.tuning(keyspace.id);
            tuning.look(keyspace);
            tuning.seen?;
            // Options waiting for the end of a round are stored already.
            let shaping = waiting.unwrap_or_else(|| keyspace.shaping.load_full());
            let text = tuning.stored(&shaping.options).to_text();
            (state.catalogue.tree().keyspaces.get(&keyspace.id)?.options[..] != text[..])
                .then_some((keyspace.id, text))
        });
        stored.collect()
    }

    /// Puts a decision into effect.
    fn retune(
        &self,
        keyspace: &KeyspaceInner,
        workload: &Workload,
        change: &Proposal,
        changes: Vec<(String, String)>,
    ) {
        let set: Vec<(&str, &str)> = changes.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        if let Err(error) = self.set_options(keyspace, &set) {
            log::warn!("keyspace {}: a change of options was refused: {error}", keyspace.name());
            return;
        }
        let decision = decision(keyspace.name(), workload, changes, change);
        log::info!("keyspace {}: {}", decision.keyspace, decision.reason);
        self.observed.decisions.lock().add(decision);
    }
}

fn decision(
    keyspace: &str,
    workload: &Workload,
    changes: Vec<(String, String)>,
    change: &Proposal,
) -> TuningDecision {
    TuningDecision {
        keyspace: keyspace.to_owned(),
        workload: workload.in_percent().to_string(),
        changes,
        gain: change.gain,
        reason: change.reason.clone(),
    }
}
