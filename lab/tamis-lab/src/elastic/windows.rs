//! Gets in windows: from a cold start on, or with hot keys that move half-way.
//!
//! The states before the shift and at the end are means of five windows. They may differ, since the false positives of
//! the hottest keys are chance. Recovery has covered nine tenths of the way from the first window after the shift to
//! the end state when a window has at most a tenth of the difference left; the reported number of gets extends to the
//! end of the first such window, so its resolution is one window.

use tamis::Db;
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;

use crate::elastic::catalogue::Kind;
use crate::elastic::device::paid;
use crate::elastic::memory::{bits_per_key, equalize};
use crate::elastic::plan::{Job, Opened};
use crate::elastic::points::Point;
use crate::elastic::rounds::{Reading, read};
use crate::elastic::rows::{Rows, ShiftRow, WindowRow};

/// Number of windows before the shift, and after.
pub(super) const WINDOWS: u64 = 20;

/// Number of windows from a cold start.
const COLD_WINDOWS: u64 = 30;

/// Returns the number of windows of an experiment.
pub(super) fn count(kind: Kind) -> u64 {
    if kind == Kind::Shift { 2 * WINDOWS } else { COLD_WINDOWS }
}

/// Number of windows whose mean is a steady state.
const STEADY: usize = 5;

/// Factor by which a window may differ from a steady state through noise.
const NOISE: f64 = 1.1;

/// Measures one point.
pub(super) fn run(job: &Job, point: &Point, progress: &dyn Progress) -> Result<Rows, BenchError> {
    let mut rows = Rows::default();
    let patterns = [job.pattern(point, false)?, job.pattern(point, true)?];
    let mut stands = Vec::new();
    for side in &job.sides {
        let Opened { copy, fs, load, .. } = job.open(side, &point.variant, progress)?;
        rows.add_load(load);
        stands.push((side, copy, fs, Vec::new()));
    }
    let sides = stands.iter().map(|(side, copy, ..)| (*side, copy.db()));
    let filter_bytes = job.equalize_all(&point.variant, sides)?;
    let fill = job.data(&point.variant).fill();
    let ops = job.ops(&point.variant);
    let shifts = job.experiment.kind == Kind::Shift;
    for window in 0..count(job.experiment.kind) {
        let moved = shifts && window >= WINDOWS;
        for (side, copy, fs, windows) in &mut stands {
            let pattern = &patterns[usize::from(moved)];
            let reading = paid(fs.as_ref(), copy.db(), || {
                read(job, point, pattern, copy.db(), &fill, (ops, window), progress)
            })?;
            equalize(copy.db(), filter_bytes)?;
            let row = row(job, point, side.name(), (window + 1) * ops, &reading, copy.db());
            windows.push(WindowRow { moved, ..row });
        }
    }
    for (side, copy, _, windows) in stands {
        if shifts {
            rows.shifts.push(shift_row(job, point, side.name(), &windows));
        }
        rows.windows.extend(windows);
        copy.close()?;
    }
    Ok(rows)
}

/// Returns the row of a window that ends after this many gets.
pub(super) fn row(job: &Job, point: &Point, side: &str, gets: u64, reading: &Reading, db: &Db) -> WindowRow {
    WindowRow {
        kind: "window".into(),
        experiment: job.experiment.name.into(),
        side: side.into(),
        point: point.label.clone(),
        skew: point.spec.skew,
        locality: point.spec.locality,
        gets,
        moved: false,
        in_vain_per_get: reading.in_vain.unwrap_or(0.0),
        blocks_per_get: reading.measurement.block_reads_per_op,
        load_reads_per_get: reading.load_reads,
        ns_per_get: reading.measurement.ns_per_op,
        memory_bits_per_key: bits_per_key(&db.stats()),
    }
}

fn shift_row(job: &Job, point: &Point, side: &str, windows: &[WindowRow]) -> ShiftRow {
    let rates: Vec<f64> = windows.iter().map(|window| window.in_vain_per_get).collect();
    let (before, after) = rates.split_at(WINDOWS as usize);
    ShiftRow {
        kind: "shift".into(),
        experiment: job.experiment.name.into(),
        side: side.into(),
        point: point.label.clone(),
        skew: point.spec.skew,
        locality: point.spec.locality,
        before: steady(before),
        first: after[0],
        end: steady(after),
        gets_to_recover: windows_to_recover(after).map(|windows| windows as u64 * job.ops(&point.variant)),
    }
}

/// Returns the mean of the last windows.
pub(super) fn steady(rates: &[f64]) -> f64 {
    let last = &rates[rates.len().saturating_sub(STEADY)..];
    last.iter().sum::<f64>() / last.len().max(1) as f64
}

/// Returns the number of windows until nine tenths of the way to the end state are covered; `None` if the first window
/// is no worse than the end within noise, so that there is nothing to recover from.
fn windows_to_recover(after: &[f64]) -> Option<usize> {
    let (first, end) = (*after.first()?, steady(after));
    let left = end + (first - end) / 10.0;
    (first > end * NOISE)
        .then(|| after.iter().position(|&rate| rate <= left).map_or(after.len(), |at| at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_nine_tenths_of_the_way_to_the_end_state() {
        assert_eq!(windows_to_recover(&[1.0, 0.6, 0.27, 0.2, 0.2, 0.2, 0.2, 0.2]), Some(3));
        assert_eq!(windows_to_recover(&[1.0, 0.6, 0.29, 0.2, 0.2, 0.2, 0.2, 0.2]), Some(4));
        // Fixed filters have nothing to recover from.
        assert_eq!(windows_to_recover(&[0.5, 0.5, 0.5, 0.5]), None);
        assert_eq!(windows_to_recover(&[0.52, 0.5, 0.5, 0.5, 0.5, 0.5]), None);
        assert_eq!(windows_to_recover(&[]), None);
    }
}
