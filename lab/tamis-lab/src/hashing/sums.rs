//! Conversion of rounds into rows: medians of pieces, and the resulting gains.

use super::model::{Asked, Times, predicted_gain};
use super::rows::{EACH, GainRow, GetRow, SHARED, Setting, to_row};
use crate::figures::Row;
use crate::figures::compare::median;
use tamis_model::lookup::{Policy, Tree, Workload};

/// Nanoseconds of each piece of a sequence, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub(super) gets: Vec<u64>,
    pub(super) hashing: Vec<u64>,
    pub(super) probing: Vec<u64>,
    pub(super) data: Vec<u64>,
}

/// Times and counts of one side in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) ns: Pieces,
    pub(super) digests: u64,
    pub(super) filters: u64,
    pub(super) false_positives: u64,
    pub(super) blocks: u64,
    pub(super) reads: u64,
    pub(super) late: u64,
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Returns the total of all pieces, each with its median round: an interruption makes one piece of one round long, and
/// is dropped.
fn sum_of_medians<'r>(rounds: impl Iterator<Item = &'r Vec<u64>> + Clone) -> f64 {
    let pieces = rounds.clone().map(Vec::len).min().unwrap_or(0);
    let of_piece = |piece: usize| median(rounds.clone().map(|round| round[piece] as f64)).unwrap_or(0.0);
    (0..pieces).map(of_piece).sum()
}

/// Returns `figure` of all rounds, and its minimum and maximum with any one of them left out. (Extremes of whole rounds
/// would show how busy the machine was.)
fn with_spread<R>(rounds: &[R], figure: impl Fn(&[&R]) -> f64) -> (f64, f64, f64) {
    let of_all = figure(&rounds.iter().collect::<Vec<_>>());
    let (mut least, mut most) = (of_all, of_all);
    for out in (0..rounds.len()).filter(|_| rounds.len() > 1) {
        let others: Vec<&R> =
            rounds.iter().enumerate().filter(|(at, _)| *at != out).map(|(_, round)| round).collect();
        let value = figure(&others);
        (least, most) = (least.min(value), most.max(value));
    }
    (of_all, least, most)
}

/// Returns the rows of a point: each side with its filter bits per key, and the gain.
pub(super) fn rows_of(setting: &Setting, memory: [f64; 2], rounds: &[[Round; 2]]) -> Vec<Row> {
    let sides = [EACH, SHARED];
    let gets: Vec<GetRow> = (0..2)
        .map(|at| {
            let of_side: Vec<&Round> = rounds.iter().map(|round| &round[at]).collect();
            GetRow { filter_bits_per_key: memory[at], ..get_row(setting, sides[at], &of_side) }
        })
        .collect();
    let (gain_percent, min_percent, max_percent) = with_spread(rounds, |rounds| {
        let whole = |at: usize| sum_of_medians(rounds.iter().map(|round| &round[at].ns.gets));
        100.0 * ratio(whole(0) - whole(1), whole(0))
    });
    let (digests_percent, digests_min_percent, digests_max_percent) = with_spread(rounds, |rounds| {
        let hashing = |at: usize| sum_of_medians(rounds.iter().map(|round| &round[at].ns.hashing));
        100.0 * ratio(hashing(0) - hashing(1), sum_of_medians(rounds.iter().map(|round| &round[0].ns.gets)))
    });
    let each = &gets[0];
    let absent = setting.absent_percent / 100.0;
    // Filters queried for keys that their runs do not contain.
    let denying = each.filters_per_op - (1.0 - absent);
    let asked = Asked {
        tree: Tree { levels: setting.levels as u32, size_ratio: setting.size_ratio as u32 },
        policy: if setting.shape == "tiering" { Policy::Tiering } else { Policy::Leveling },
        workload: Workload { empty: absent, false_positive: ratio(each.false_positives_per_op, denying) },
    };
    let times = Times { digest: each.digest_ns, probe: each.filter_ns, read: each.read_ns, rest: 0.0 };
    let gain = GainRow {
        kind: "gain".into(),
        setting: setting.clone(),
        gain_percent,
        min_percent,
        max_percent,
        digests_percent,
        digests_min_percent,
        digests_max_percent,
        model_percent: predicted_gain(asked, times),
        model_with_rest_percent: predicted_gain(asked, Times { rest: each.rest_ns, ..times }),
    };
    gets.iter().map(to_row).chain([to_row(&gain)]).collect()
}

fn get_row(setting: &Setting, side: &str, rounds: &[&Round]) -> GetRow {
    let ops = setting.ops as f64;
    let per_get =
        |part: fn(&Round) -> &Vec<u64>| sum_of_medians(rounds.iter().map(|round| part(round))) / ops;
    let sum = |count: fn(&Round) -> u64| rounds.iter().map(|round| count(round)).sum::<u64>() as f64;
    let gets = ops * rounds.len() as f64;
    let (ns_per_op, min_ns, max_ns) =
        with_spread(rounds, |rounds| sum_of_medians(rounds.iter().map(|round| &round.ns.gets)) / ops);
    let (hash_ns, probe_ns) = (per_get(|round| &round.ns.hashing), per_get(|round| &round.ns.probing));
    let data_ns = per_get(|round| &round.ns.data);
    let left = ns_per_op - hash_ns - probe_ns - data_ns;
    let per_op = |count: fn(&Round) -> u64| ratio(sum(count), gets);
    let (digests_per_op, filters_per_op) = (per_op(|round| round.digests), per_op(|round| round.filters));
    let reads_per_op = per_op(|round| round.reads);
    GetRow {
        kind: "get".into(),
        setting: setting.clone(),
        side: side.into(),
        filter_bits_per_key: 0.0,
        ns_per_op,
        min_ns,
        max_ns,
        hash_ns,
        probe_ns,
        data_ns,
        rest_ns: left.max(0.0),
        parts_exceed: left < 0.0,
        digests_per_op,
        filters_per_op,
        false_positives_per_op: per_op(|round| round.false_positives),
        blocks_per_op: per_op(|round| round.blocks),
        reads_per_op,
        digest_ns: ratio(hash_ns, digests_per_op),
        filter_ns: ratio(probe_ns, filters_per_op),
        read_ns: ratio(data_ns, reads_per_op),
        late_reads: sum(|round| round.late) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interruption_of_one_piece_of_one_round_does_not_count() {
        let rounds = [vec![10, 20, 900], vec![800, 22, 30], vec![12, 21, 32]];
        assert_eq!(sum_of_medians(rounds.iter()), (12 + 21 + 32) as f64);
        assert_eq!(sum_of_medians([].iter()), 0.0);
        let sums = with_spread(&rounds, |rounds| sum_of_medians(rounds.iter().copied()));
        // Without the third round, the pieces are half-way between those of the first two.
        assert_eq!(sums, (65.0, 65.0, 405.0 + 21.0 + 465.0));
        assert_eq!(with_spread(&[7], |rounds| *rounds[0] as f64), (7.0, 7.0, 7.0));
    }
}
