//! Unmeasured gets before the first round: a given number, or as many as it takes until the placement of filters has
//! settled.
//!
//! Filters that follow the reads are moved while they are read. So gets run in windows, each on all sides in turn, until
//! the wasted reads of every side that follows them no longer change: the last two windows together waste as much as the two
//! before, within [`CHANGE`] or what chance explains. Fixed sides get the same windows, so that block caches are as warm. After
//! each window the budgets are [corrected](crate::elastic::memory). The windows are rows of the point, and a panel of the
//! figure.

use tamis_bench::BenchError;
use tamis_bench::pattern::Pattern;
use tamis_bench::progress::Progress;
use tamis_bench::report::grouped;
use tamis_bench::workload::Workload;

use crate::elastic::catalogue::Kind;
use crate::elastic::memory::equalize;
use crate::elastic::plan::Job;
use crate::elastic::points::Point;
use crate::elastic::rounds::{REPLAYED, Reading, Stand, read};
use crate::elastic::rows::{WARMUP, WindowRow};
use crate::elastic::windows::row;

/// Maximum number of windows.
pub(super) const MOST_WINDOWS: u64 = 12;

/// Number of windows compared with as many before.
const COMPARED: usize = 2;

/// A relative change below this is none.
const CHANGE: f64 = 0.02;

/// Standard errors of the counts by which windows differ without a change.
const CHANCE: f64 = 2.0;

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
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Warmed {
    /// Gets of each side.
    pub(super) gets: u64,
    /// Whether the placement had settled; `None` where a number was given or no side follows the reads.
    pub(super) settled: Option<bool>,
    /// The windows of each side; none where a number was given.
    pub(super) windows: Vec<WindowRow>,
}

impl Warmed {
    fn given(gets: u64) -> Warmed {
        Warmed { gets, settled: None, windows: Vec::new() }
    }
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
    let run = |stand: &Stand, gets: u64, part: u64| -> Result<Reading, BenchError> {
        let part = if replayed { REPLAYED } else { part };
        let reading = read(job, &warm, pattern, stand.copy.db(), &stand.fill, (gets, part), progress)?;
        if stand.fs.is_some() {
            // On a real device, units requested by the gets would have had time to load.
            stand.copy.db().wait_for_filters()?;
        }
        equalize(stand.copy.db(), filter_bytes)?;
        Ok(reading)
    };
    let window = match job.warmup {
        Warmup::Gets(0) => return Ok(Warmed::given(0)),
        Warmup::Gets(gets) => {
            stands.iter().try_for_each(|stand| run(stand, gets, 0).map(drop))?;
            return Ok(Warmed::given(gets));
        }
        Warmup::Settled(window) => window,
    };
    let mut by_side: Vec<Vec<f64>> = vec![Vec::new(); stands.len()];
    let mut rows = Vec::new();
    for done in 1..=MOST_WINDOWS {
        for (stand, windows) in stands.iter().zip(&mut by_side) {
            let reading = run(stand, window, FIRST_PART + done)?;
            windows.push(reading.in_vain.unwrap_or(0.0));
            let row = row(job, point, stand.side.name(), done * window, &reading, stand.copy.db());
            rows.push(WindowRow { kind: WARMUP.into(), ..row });
        }
        let follows = |stand: &Stand| stand.side.follows_reads();
        let settled = stands.iter().any(follows).then(|| {
            let mut moving = stands.iter().zip(&by_side).filter(|(stand, _)| follows(stand));
            moving.all(|(_, windows)| has_settled(windows, window))
        });
        if settled != Some(false) || done == MOST_WINDOWS {
            return Ok(Warmed { gets: done * window, settled, windows: rows });
        }
    }
    unreachable!("the last window returns")
}

/// Reports whether the wasted reads per get of the windows so far, each of `gets` gets, no longer change.
fn has_settled(windows: &[f64], gets: u64) -> bool {
    let Some(from) = windows.len().checked_sub(2 * COMPARED) else { return false };
    let (before, last) = windows[from..].split_at(COMPARED);
    let wasted = |windows: &[f64]| windows.iter().sum::<f64>() * gets as f64;
    let (before, last) = (wasted(before), wasted(last));
    (last - before).abs() <= (CHANGE * before).max(CHANCE * (before + last).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_has_settled_when_two_windows_waste_as_much_as_the_two_before() {
        let has_settled = |windows: &[f64]| super::has_settled(windows, 1_000_000);
        assert!(!has_settled(&[]) && !has_settled(&[0.5, 0.5, 0.5]), "too few to tell");
        assert!(!has_settled(&[0.5, 0.4, 0.3, 0.25]));
        assert!(!has_settled(&[0.3, 0.3, 0.3, 0.28]), "3 % less");
        assert!(!has_settled(&[0.3, 0.3, 0.3, 0.32]), "3 % more is a change, too");
        assert!(has_settled(&[0.3, 0.3, 0.3, 0.29]), "less than 2 % less");
        assert!(has_settled(&[0.9, 0.2, 0.2, 0.2, 0.2]), "only the last four count");
        assert!(has_settled(&[0.0; 4]));
        // In a hundred gets thirty wasted reads are no more than twenty-five.
        assert!(super::has_settled(&[0.3, 0.3, 0.3, 0.25], 100));
        assert!(!super::has_settled(&[0.9, 0.9, 0.3, 0.3], 100));
    }

    #[test]
    fn a_plan_tells_its_unmeasured_gets() {
        assert_eq!(Warmup::Gets(1200).describe(), "1,200 unmeasured gets");
        assert!(Warmup::Settled(50_000).describe().ends_with("600,000 at most"));
        assert_eq!((Warmup::Gets(7).expected(), Warmup::Settled(10).expected()), (7, 60));
    }
}
