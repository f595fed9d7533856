//! Options that tune themselves by the cost model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tamis::Options;
use tamis::options::{Proposal, Tuner, TuningCase};

use crate::apply::is_auto;
use crate::observe::data;
use crate::{Calibration, Data, Effort, Selector, Setup, advise_among, decide, selector_in};

/// Returns self-tuning options for `memory_bytes` of filters and caches: an eighth each for block
/// cache and record cache, at most 512 MiB, the rest for filters. Filters and compaction policy follow the cost model
/// for the workload declared in `keyspace.workload` or, by default, the observed one. They are
/// chosen at opening and whenever a compaction leaves the tree idle, with hysteresis.
/// [`Stats::tuning`](tamis::stats::Stats::tuning) lists the decisions.
///
/// A new database starts with the defaults. Everything else may be set as usual; the options named
/// at [`auto_memory_bytes`](Options::auto_memory_bytes) are only the starting point of the first
/// decision.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let mut options = tamis_advisor::auto(256 << 20);
/// options.set("keyspace.workload", "empty-get 50, get 30, put 20")?; // leave it out to have it observed
/// let db = options.open(dir.path())?;
/// assert!(db.stats().tuning.is_empty(), "nothing to decide on yet");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn auto(memory_bytes: u64) -> Options {
    let cache_bytes = (memory_bytes / 8).min(512 << 20);
    Options {
        auto_memory_bytes: memory_bytes.max(1),
        tuner: Some(Arc::new(Advisor::default())),
        cache_bytes,
        record_cache_bytes: cache_bytes,
        filter_budget_bytes: memory_bytes - 2 * cache_bytes,
        ..Options::default()
    }
}

/// The cost model as a [`Tuner`]. Measures the machine when it is first asked about a directory,
/// which takes a tenth of a second, with entries like those of the keyspace in question. Any thread
/// may ask; one measures, others wait for it.
#[derive(Debug, Default)]
pub struct Advisor {
    /// By directory; `None` if measuring failed: then nothing is changed.
    measured: Mutex<HashMap<PathBuf, Option<Arc<Calibration>>>>,
}

impl Advisor {
    fn calibration(&self, dir: &Path, data: &Data, options: &Options) -> Option<Arc<Calibration>> {
        let measure = || {
            let setup = Setup::new(data.key_bytes as usize, data.value_bytes as usize);
            let setup = setup.effort(Effort::Quick).database(dir, options);
            let measured = Calibration::measure(&setup);
            measured.inspect_err(|error| log::warn!("nothing is tuned: {error}")).ok().map(Arc::new)
        };
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.entry(dir.to_owned()).or_insert_with(measure).clone()
    }
}

impl Tuner for Advisor {
    fn propose(&self, case: &TuningCase<'_>) -> Option<Proposal> {
        let data = data(case.entries, case.key_bytes, case.entry_bytes, case.options);
        let calibration = self.calibration(case.dir, &data, case.options)?;
        let present = selector_in(&case.options.keyspace);
        let chooses_itself = is_auto(case.options);
        let may = |selector: Selector| match chooses_itself {
            _ if case.opening => true,
            true => matches!(selector, Selector::BlockedBloom | Selector::Grf),
            false => selector == present || !(selector.is_global() || present.is_global()),
        };
        let advice = advise_among(&calibration, &data, case.workload, case.budget_bytes, case.options, may);
        // The rest of the advice concerns the memory of the whole database, which is divided at
        // opening.
        let change = decide(&advice, case.options, case.margin)?;
        if !case.opening && chooses_itself != is_auto(&change.options) {
            return None;
        }
        Some(Proposal { options: change.options.keyspace, gain: change.gain, reason: change.reason })
    }
}
