//! Unmeasured gets before the first round: a given number, or as many as it takes until the placement of filters has
//! settled.
//!
//! Filters that follow the reads are moved while they are read. So gets run in windows, each on all sides in turn, until
//! the wasted reads of every side that follows them have stopped improving: the last two windows together waste no less
//! than the two before, within [`IMPROVEMENT`]. Fixed sides get the same windows, so that block caches are as warm. After
//! each window the budgets are [corrected](crate::elastic::memory).

use tamis_bench::BenchError;
use tamis_bench::pattern::Pattern;
use tamis_bench::progress::Progress;
use tamis_bench::report::grouped;
use tamis_bench::workload::Workload;

use crate::elastic::catalogue::Kind;
use crate::elastic::memory::equalize;
use crate::elastic::plan::Job;
use crate::elastic::points::Point;
use crate::elastic::rounds::{REPLAYED, Stand, read};

/// Maximum number of windows.
pub(super) const MOST_WINDOWS: u64 = 12;

/// Number of windows compared with as many before.
const COMPARED: usize = 2;

/// A relative improvement below this is none.
const IMPROVEMENT: f64 = 0.02;

/// The first window's number in the sequence of seeds; rounds have lower ones.
const FIRST_PART: u64 = 500;

/// The amount of unmeasured gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Warmup {
    /// This number.
    Gets(u64),
    /// Until the placement has settled, in windows of this number.
    Settled(u64),
}

impl Warmup {
    /// Describes it in words: `200 unmeasured gets`.
    pub(super) fn describe(self) -> String {
        match self {
            Warmup::Gets(gets) => format!("{} unmeasured gets", grouped(gets)),
            Warmup::Settled(window) => format!(
                "unmeasured gets in windows of {} until the placement of filters has settled, {} at most",
                grouped(window),
                grouped(window * MOST_WINDOWS)
            ),
        }
    }

    /// Returns the expected number of gets, for planning.
    pub(super) fn expected(self) -> u64 {
        match self {
            Warmup::Gets(gets) => gets,
            Warmup::Settled(window) => window * MOST_WINDOWS / 2,
        }
    }
}

/// The unmeasured gets of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Warmed {
    /// Gets of each side.
    pub(super) gets: u64,
    /// Whether the placement had settled; `None` where a number was given or no side follows the reads.
    pub(super) settled: Option<bool>,
}

/// Warms all sides.
pub(super) fn warm_up(
    job: &Job,
    point: &Point,
    pattern: &Pattern,
    (stands, filter_bytes): (&[Stand], u64),
    progress: &dyn Progress,
) -> Result<Warmed, BenchError> {
    let warm = Point { workload: Workload::GetZipf, ..point.clone() };
    // A replay warms with the gets that it replays.
    let replayed = job.experiment.kind == Kind::Replay;
    let run = |stand: &Stand, gets: u64, part: u64| -> Result<f64, BenchError> {
        let part = if replayed { REPLAYED } else { part };
        let reading = read(job, &warm, pattern, stand.copy.db(), &stand.fill, (gets, part), progress)?;
        if stand.fs.is_some() {
            // On a real device, units requested by the gets would have had time to load.
            stand.copy.db().settle_filters()?;
        }
        equalize(stand.copy.db(), filter_bytes)?;
        Ok(reading.in_vain.unwrap_or(0.0))
    };
    let window = match job.warmup {
        Warmup::Gets(0) => return Ok(Warmed { gets: 0, settled: None }),
        Warmup::Gets(gets) => {
            stands.iter().try_for_each(|stand| run(stand, gets, 0).map(drop))?;
            return Ok(Warmed { gets, settled: None });
        }
        Warmup::Settled(window) => window,
    };
    let mut by_side: Vec<Vec<f64>> = vec![Vec::new(); stands.len()];
    for done in 1..=MOST_WINDOWS {
        for (stand, windows) in stands.iter().zip(&mut by_side) {
            windows.push(run(stand, window, FIRST_PART + done)?);
        }
        let mut moving =
            stands.iter().zip(&by_side).filter(|(stand, _)| stand.side.follows_reads()).peekable();
        if moving.peek().is_none() {
            return Ok(Warmed { gets: done * window, settled: None });
        }
        if moving.all(|(_, windows)| has_settled(windows)) {
            return Ok(Warmed { gets: done * window, settled: Some(true) });
        }
    }
    Ok(Warmed { gets: MOST_WINDOWS * window, settled: Some(false) })
}

/// Reports whether the wasted reads of the windows so far have stopped improving.
fn has_settled(windows: &[f64]) -> bool {
    let Some(from) = windows.len().checked_sub(2 * COMPARED) else { return false };
    let (before, last) = windows[from..].split_at(COMPARED);
    last.iter().sum::<f64>() >= before.iter().sum::<f64>() * (1.0 - IMPROVEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_has_settled_when_two_windows_are_no_better_than_the_two_before() {
        assert!(!has_settled(&[]) && !has_settled(&[0.5, 0.5, 0.5]), "too few to tell");
        assert!(!has_settled(&[0.5, 0.4, 0.3, 0.25]));
        assert!(!has_settled(&[0.3, 0.3, 0.3, 0.28]), "3 % less");
        assert!(has_settled(&[0.3, 0.3, 0.3, 0.29]), "less than 2 % less");
        assert!(has_settled(&[0.9, 0.2, 0.2, 0.2, 0.2]), "only the last four count");
        assert!(has_settled(&[0.0; 4]));
    }

    #[test]
    fn a_plan_tells_its_unmeasured_gets() {
        assert_eq!(Warmup::Gets(1200).describe(), "1,200 unmeasured gets");
        assert!(Warmup::Settled(50_000).describe().ends_with("600,000 at most"));
        assert_eq!((Warmup::Gets(7).expected(), Warmup::Settled(10).expected()), (7, 60));
    }
}
