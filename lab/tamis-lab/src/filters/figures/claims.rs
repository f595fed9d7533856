//! The paper's claims on each figure, and verdicts on them.
//!
//! Times and rates depend on the machine; counters (false positives, runs searched, blocks) do not, and have verdicts
//! of their own. Sides that keep no filter in memory are ignored; those whose memory differs from the first one's
//! are named in the note.

use super::facts::{At, Facts, HUFFMAN, OURS, is_grf, is_local, rate, sought, time};
use crate::figures::Verdict;
use crate::figures::compare::{
    self, Alike, Better, Claim, Gain, Measured, Place, Unit, first_at_all, median, more, place,
};
use crate::figures::compose::distinct;
use crate::filters::{LoadRow, ReadRow};

/// Returns the verdicts of a figure, in the order of the paper's text.
pub(super) fn all(facts: &Facts<'_>) -> Vec<Verdict> {
    let mut verdicts = match facts.experiment.name {
        "grf-fig10" => absent_keys(facts),
        "grf-fig11" => ranges(facts),
        "grf-fig12" => direct(facts),
        "grf-fig13" => mixes(facts),
        "grf-fig14" => updates(facts),
        "grf-fig15" => in_flight(facts),
        "grf-fig16" => leveling(facts),
        "grf-fig17" => skewed(facts),
        "grf-fig18" => shifted(facts),
        "filters-numbers" => every_filter(facts, true),
        "filters-strings" => every_filter(facts, false),
        _ => Vec::new(),
    };
    let other_memory = |row: &&LoadRow| row.without_filter || facts.spends_otherwise(row);
    let unequal = distinct(facts.loads.iter().filter(other_memory).map(|row| row.filter.as_str()));
    compare::note_unequal_memory(&mut verdicts, &unequal);
    verdicts
}

/// Extracts a figure from a row.
type Of = fn(&ReadRow) -> Measured;

fn let_through(row: &ReadRow) -> Measured {
    Measured::exact(row.measurement.false_positives_per_op)
}

fn blocks(row: &ReadRow) -> Measured {
    Measured::exact(row.measurement.block_reads_per_op)
}

/// Reports whether a side is not one of GRF's; true for `none`.
fn is_other(side: &str) -> bool {
    !is_grf(side)
}

impl Facts<'_> {
    /// Pairs a side's rows with the fair rows of the others that satisfy `is_base`, at every place of a workload that
    /// has both.
    fn held<'f>(
        &'f self,
        ours: &str,
        workload: &'f str,
        is_base: impl Fn(&str) -> bool,
    ) -> Vec<(&'f ReadRow, Vec<&'f ReadRow>)> {
        let fair = |row: &&ReadRow| !self.is_bare(row);
        let at = |at: At<'f>| {
            let rows = move || self.rows_at(at).filter(fair);
            let ours = rows().find(|row| row.side == ours)?;
            let others: Vec<_> = rows().filter(|row| is_base(&row.side)).collect();
            (!others.is_empty()).then_some((ours, others))
        };
        self.places(workload).into_iter().filter_map(at).collect()
    }

    /// Ranks GRF among all others in some workloads.
    fn standing(&self, workloads: &[&str], of: Of, better: Better) -> Vec<Place> {
        self.standing_of(OURS, workloads, is_other, of, better)
    }

    /// Ranks a side among the others that satisfy `is_base`.
    fn standing_of(
        &self,
        ours: &str,
        workloads: &[&str],
        is_base: fn(&str) -> bool,
        of: Of,
        better: Better,
    ) -> Vec<Place> {
        self.over(ours, workloads, is_base, |ours, others| {
            place(of(ours), others.into_iter().map(of), better)
        })
    }

    /// Returns GRF's gains over each of the others that satisfy `is_base` in some workloads.
    fn gains(&self, workloads: &[&str], is_base: fn(&str) -> bool, of: Of, better: Better) -> Vec<Gain> {
        self.gains_of(OURS, workloads, is_base, of, better)
    }

    fn gains_of(
        &self,
        ours: &str,
        workloads: &[&str],
        is_base: fn(&str) -> bool,
        of: Of,
        better: Better,
    ) -> Vec<Gain> {
        self.over(ours, workloads, is_base, |ours, others| {
            others.into_iter().filter_map(|other| Gain::of(of(ours), of(other), better)).collect::<Vec<_>>()
        })
    }

    /// Returns what `make` makes of a side's rows and those of the others that satisfy `is_base`, in some workloads.
    fn over<T, I: IntoIterator<Item = T>>(
        &self,
        ours: &str,
        workloads: &[&str],
        is_base: fn(&str) -> bool,
        make: impl Fn(&ReadRow, Vec<&ReadRow>) -> I,
    ) -> Vec<T> {
        let held = workloads.iter().flat_map(|workload| self.held(ours, workload, is_base));
        held.flat_map(|(ours, others)| make(ours, others)).collect()
    }

    /// Returns the loading time per key at each point: GRF's, and that of the others that satisfy `is_base`.
    fn loading(&self, is_base: impl Fn(&str) -> bool) -> Vec<(Measured, Vec<Measured>)> {
        let loading = |row: &LoadRow| Measured::exact(row.load_ns_per_key);
        let rows = || self.loads.iter().filter(|row| !row.without_filter && row.load_ns_per_key > 0.0);
        let at = |ours: &LoadRow| {
            let here = |row: &&LoadRow| row.key_set == ours.key_set && row.point == ours.point;
            let others = rows().filter(here).filter(|row| is_base(&row.filter));
            (loading(ours), others.map(loading).collect::<Vec<_>>())
        };
        let held = rows().filter(|row| row.filter == OURS).map(at);
        held.filter(|(_, others)| !others.is_empty()).collect()
    }
}

const LOADED_ONCE: &str = "Every database is loaded once, so loading times have no spread.";

/// The time of asking the filters alone; 0 where it was not measured.
fn asked(row: &ReadRow) -> Measured {
    Measured::exact(row.filter_ns.unwrap_or(0.0))
}

/// Judges the claim that the filters' own time hardly counts on a disk: their part of the time, over all sides that have one.
fn hardly_counts(facts: &Facts<'_>) -> Verdict {
    let open =
        Verdict::open("Asking filters contributes little to the time of empty queries and seeks.", "little");
    let share =
        |row: &ReadRow| row.filter_ns.map(|_| facts.shade(row).unwrap_or(0.0) / row.measurement.ns_per_op);
    let fair = facts.reads.iter().filter(|row| !facts.is_bare(row));
    let shares: Vec<f64> = fair.filter_map(share).collect();
    let Some(middle) = median(shares.iter().copied()) else { return open };
    let most = shares.iter().copied().fold(0.0, f64::max);
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let ours = format!("{} at the median, at most {}", percent(middle), percent(most));
    // A tenth is little, a quarter is not.
    open.with_size(ours, Some(middle < 0.25), None, Some(middle < 0.1 && most < 0.25))
}

fn absent_keys(facts: &Facts<'_>) -> Vec<Verdict> {
    vec![
        first_at_all(
            "GRF answers for absent keys fastest at every number of bits; only Chucky comes close.",
            &facts.standing(&["get-empty"], time, Better::Less),
        ),
        Claim::about("About ten times as fast as filters of single tables.", Unit::Times, 10.0)
            .judge(&facts.gains(&["get-empty"], is_local, time, Better::Less), None),
        more(
            "Querying GRF takes less time than querying the filters of all tables.",
            &facts.gains(&["get-empty"], is_local, asked, Better::Less),
        ),
        fewest(facts, OURS, "get-empty"),
        fewest(facts, "chucky", "get-empty"),
    ]
}

/// Judges a claim that a global filter has fewer false positives for keys, or ranges, than filters of tables.
fn fewest(facts: &Facts<'_>, side: &str, workload: &str) -> Verdict {
    let name = if side == OURS { "GRF" } else { "Chucky" };
    let what = if workload == "get-empty" { "absent keys" } else { "empty ranges" };
    more(
        format!("{name} passes fewer {what} than filters of single tables (a counter)."),
        &facts.gains_of(side, &[workload], is_local, let_through, Better::Less),
    )
}

fn ranges(facts: &Facts<'_>) -> Vec<Verdict> {
    let is_scanned: fn(&str) -> bool = |side| ["remix", "snarf", "surf-real"].contains(&side);
    // REncoder divided by those that the paper found equal; as it is slower itself, this is their gain.
    let alike_ones: fn(&str) -> bool = |side| ["grf", "remix", "snarf", "surf-real"].contains(&side);
    let slower = facts.gains_of("rencoder", &["seek-next50"], alike_ones, time, Better::More);
    vec![
        first_at_all(
            "GRF answers for short empty ranges fastest at every number of bits.",
            &facts.standing(&["range-absent"], time, Better::Less),
        ),
        Claim::about(
            "Empty ranges about ten times as fast as with filters of single tables.",
            Unit::Times,
            10.0,
        )
        .judge(&facts.gains(&["range-absent"], is_range_filter, time, Better::Less), None),
        fewest(facts, OURS, "range-absent"),
        Claim::about("A seek takes less time than REMIX's and SNARF's.", Unit::Times, 2.0).judge(
            &facts.gains(&["seek"], |side| ["remix", "snarf"].contains(&side), time, Better::Less),
            None,
        ),
        more(
            "Within a seek, querying SNARF takes more time than querying GRF.",
            &facts.gains(&["seek"], |side| side == "snarf", asked, Better::Less),
        ),
        Alike::ABOUT.judge(
            "Scans of 50 are about equal with GRF, REMIX, SNARF and SuRF.",
            "equal",
            &facts.gains(&["seek-next50"], is_scanned, time, Better::Less),
        ),
        more("REncoder makes scans slower.", &slower),
    ]
}

fn is_range_filter(side: &str) -> bool {
    ["surf-real", "surf", "snarf", "rencoder", "rosetta", "grafite"].contains(&side)
}

fn direct(facts: &Facts<'_>) -> Vec<Verdict> {
    let vain: [&str; 2] = ["get-empty", "range-absent"];
    let fell_back: fn(&str) -> bool = |side| ["remix", "surf-real"].contains(&side);
    vec![
        first_at_all(
            "GRF stays clearly ahead for empty queries.",
            &facts.standing(&vain, time, Better::Less),
        ),
        first_at_all(
            "Empty queries read the fewest blocks with GRF (a counter).",
            &facts.standing(&vain, blocks, Better::Less),
        ),
        Claim::about("Seeks take about the time of SNARF's, slightly less.", Unit::Times, 1.05)
            .judge(&facts.gains(&["seek"], |side| side == "snarf", time, Better::Less), None),
        hardly_counts(facts),
        more(
            "REMIX and SuRF have more wasted searches for empty ranges than SNARF does (a counter).",
            &facts.gains_of("snarf", &["range-absent"], fell_back, sought, Better::Less),
        ),
    ]
}

fn mixes(facts: &Facts<'_>) -> Vec<Verdict> {
    let papers: Vec<&str> = facts.workloads().into_iter().filter(|&name| name != "ycsb-f").collect();
    let mut verdicts = vec![first_at_all(
        "GRF has the highest throughput in every mix and with every number of threads.",
        &facts.standing(&papers, rate, Better::More),
    )];
    // A curve is on the front if no point of another side has more throughput at less time.
    let on_front = |facts: &Facts<'_>, workload: &str| {
        let ours: Vec<&ReadRow> = facts.rows_of(workload).filter(|row| row.side == OURS).collect();
        let others: Vec<&ReadRow> = facts.rows_of(workload).filter(|row| is_other(&row.side)).collect();
        let beats = |other: &ReadRow, ours: &ReadRow| {
            rate(other).value > rate(ours).value && time(other).value < time(ours).value
        };
        let beaten = |ours: &&ReadRow| {
            let by: Vec<_> = others.iter().filter(|other| beats(other, ours)).collect();
            let clear =
                |other: &&&&ReadRow| rate(other).differs(rate(ours)) && time(other).differs(time(ours));
            match (by.is_empty(), by.iter().any(|other| clear(&other))) {
                (true, _) => Place::First,
                (_, true) => Place::Behind,
                _ => Place::Tied,
            }
        };
        if others.is_empty() { Vec::new() } else { ours.iter().map(beaten).collect() }
    };
    let mut places: Vec<Place> = Vec::new();
    for (_, facts) in facts.by_key_set() {
        papers.iter().for_each(|workload| places.extend(on_front(&facts, workload)));
    }
    let mut front =
        first_at_all("GRF's curves are Pareto optimal: no other has more throughput at less time.", &places);
    front.paper = "no point behind".into();
    verdicts.push(front);
    verdicts
}

fn updates(facts: &Facts<'_>) -> Vec<Verdict> {
    let mut more_written: Vec<Gain> = Vec::new();
    for (_, facts) in facts.by_key_set() {
        let of = |keep: &dyn Fn(&str) -> bool| {
            let rows = facts.loads.iter().filter(|row| row.write_amplification > 0.0 && keep(&row.filter));
            rows.map(|row| Measured::exact(row.write_amplification)).collect::<Vec<_>>()
        };
        let (ours, others) = (of(&|side| side == OURS), of(&is_local));
        for ours in ours {
            more_written.extend(others.iter().filter_map(|&other| Gain::of(ours, other, Better::More)));
        }
    }
    vec![
        first_at_all(
            "GRF has the highest throughput in YCSB A under leveling.",
            &facts.standing(&["ycsb-a"], rate, Better::More),
        ),
        more(
            "... although merges at fixed numbers of flushes write more than merges by size (a counter).",
            &more_written,
        ),
    ]
}

fn in_flight(facts: &Facts<'_>) -> Vec<Verdict> {
    let (mut ahead, mut gained) = (Vec::new(), Vec::new());
    for (_, facts) in facts.by_key_set() {
        let threads = facts.threads();
        let (Some(&one), Some(&many)) = (threads.iter().min(), threads.iter().max()) else { continue };
        let rate_with = |workload: &str, side: &str, threads: usize| {
            let is_row = |row: &&ReadRow| row.side == side && row.measurement.threads == threads;
            let row = facts.rows_of(workload).find(is_row)?;
            (!facts.is_bare(row)).then(|| rate(row))
        };
        for workload in facts.workloads() {
            let ours = |threads| rate_with(workload, OURS, threads);
            let Some(most) = ours(many) else { continue };
            let sides = distinct(facts.rows_of(workload).map(|row| row.side.as_str()));
            for side in sides.into_iter().filter(|side| is_local(side)) {
                let Some(other) = rate_with(workload, side, many) else { continue };
                ahead.extend(Gain::of(most, other, Better::More));
                let firsts = ours(one).zip(rate_with(workload, side, one)).filter(|_| one < many);
                gained
                    .extend(firsts.and_then(|(first, theirs)| {
                        Gain::of(most.by(first), other.by(theirs), Better::More)
                    }));
            }
        }
    }
    in_flight_of(&ahead, &gained)
}

fn in_flight_of(ahead: &[Gain], gained: &[Gain]) -> Vec<Verdict> {
    vec![
        Claim::range(
            "With many reads in flight GRF has several times the throughput of local filters.",
            Unit::Times,
            4.0,
            6.0,
        )
        .judge(ahead, None),
        more("Many reads in flight gain more with GRF than with local filters.", gained),
    ]
}

fn leveling(facts: &Facts<'_>) -> Vec<Verdict> {
    let workloads = facts.workloads();
    let but_scans: Vec<&str> = workloads.iter().copied().filter(|name| !name.contains("next")).collect();
    let as_fast: Vec<Gain> = facts
        .loading(is_local)
        .into_iter()
        .flat_map(|(ours, others)| {
            others.into_iter().filter_map(move |other| Gain::of(ours, other, Better::Less))
        })
        .collect();
    let huffman: Vec<Gain> = facts
        .loading(|side| side == HUFFMAN)
        .into_iter()
        .flat_map(|(ours, others)| {
            others.into_iter().filter_map(move |other| Gain::of(ours, other, Better::Less))
        })
        .collect();
    let mut lazy: Vec<Place> = Vec::new();
    for (_, facts) in facts.by_key_set() {
        let levels = distinct(facts.reads.iter().filter_map(|row| row.leveling_levels));
        let (fewest, most) = (levels.iter().min().copied(), levels.iter().max().copied());
        let lazier = |workload: &&str| {
            let rows = || facts.rows_of(workload).filter(|row| !facts.is_bare(row));
            let ours = rows().find(|row| row.side == OURS && row.leveling_levels == fewest)?;
            let others = rows().filter(|row| is_other(&row.side) && row.leveling_levels == most);
            place(time(ours), others.map(time), Better::Less)
        };
        if fewest < most {
            lazy.extend(but_scans.iter().filter_map(lazier));
        }
    }
    vec![
        first_at_all(
            "GRF reads fastest under every policy.",
            &facts.standing(&workloads, time, Better::Less),
        ),
        Alike::ABOUT.judge("GRF is written as fast as local filters.", "equal", &as_fast).noting(LOADED_ONCE),
        more(
            "The Huffman-coded variant is much slower to write, as merges change its run numbers.",
            &huffman,
        )
        .noting(LOADED_ONCE),
        first_at_all("GRF with one leveling level beats the others with three, except for scans.", &lazy),
    ]
}

fn skewed(facts: &Facts<'_>) -> Vec<Verdict> {
    let is_remix: fn(&str) -> bool = |side| side == "remix";
    // The time without a filter divided by that of a local one.
    let local = facts.gains_of("none", &["get-zipf"], is_local, time, Better::More);
    vec![
        Claim::range(
            "Skewed gets are two to ten times as fast as with local filters.",
            Unit::Times,
            2.0,
            10.0,
        )
        .judge(&facts.gains(&["get-zipf"], is_local, time, Better::Less), None),
        Alike::ABOUT.judge(
            "Local filters hardly help: they only save the search of a block in memory.",
            "equal to no filter",
            &local,
        ),
        Claim::about("Skewed seeks take less time than REMIX's.", Unit::Times, 2.0)
            .judge(&facts.gains(&["seek-zipf"], is_remix, time, Better::Less), None),
        first_at_all(
            "GRF is the fastest for skewed gets and seeks.",
            &facts.standing(&["get-zipf", "seek-zipf"], time, Better::Less),
        ),
    ]
}

fn shifted(facts: &Facts<'_>) -> Vec<Verdict> {
    let loading = facts.loading(is_other);
    let places: Vec<Place> = loading
        .iter()
        .filter_map(|(ours, others)| place(*ours, others.iter().copied(), Better::More))
        .collect();
    let mut slowest = first_at_all("GRF is the slowest to write, about 1 µs a key.", &places);
    slowest.paper = "slowest".into();
    if let Some((ours, _)) = loading.first() {
        slowest.ours = match places.first() {
            Some(Place::First) => format!("slowest, {:.2} µs", ours.value / 1000.0),
            _ => format!("not the slowest, {:.2} µs", ours.value / 1000.0),
        };
    }
    vec![
        slowest.noting(LOADED_ONCE),
        first_at_all(
            "GRF is still the fastest for all reads.",
            &facts.standing(&facts.workloads(), time, Better::Less),
        ),
    ]
}

/// The engine's default.
const DEFAULT: &str = "blocked-bloom";

/// Judges our own expectations of the filters of the engine and of others.
fn every_filter(facts: &Facts<'_>, has_ranges: bool) -> Vec<Verdict> {
    // Monkey is the default with its memory divided in another way.
    let is_other_table_filter: fn(&str) -> bool =
        |side| is_local(side) && ![DEFAULT, "monkey"].contains(&side);
    let mut verdicts = vec![
        hashed_once(facts),
        more(
            "A get of an absent key searches fewer runs with a filter than without (a counter).",
            &searched(facts),
        ),
        first_at_all(
            "Of filters of single tables of the same bits on each level the default answers for absent keys fastest.",
            &facts.standing_of(DEFAULT, &["get-empty"], is_other_table_filter, time, Better::Less),
        ),
    ];
    if has_ranges {
        verdicts.push(first_at_all(
            "GRF answers for empty ranges and seeks fastest, its Huffman-coded variant aside.",
            &facts.standing(&["range-absent", "range-empty", "seek"], time, Better::Less),
        ));
    }
    verdicts
}

/// Returns by how much each filter reduces the runs that gets of absent keys search.
fn searched(facts: &Facts<'_>) -> Vec<Gain> {
    let sides = distinct(facts.rows_of("get-empty").map(|row| row.side.as_str()));
    let filters = sides.into_iter().filter(|side| *side != "none");
    filters
        .flat_map(|side| facts.gains_of(side, &["get-empty"], |base| base == "none", sought, Better::Less))
        .collect()
}

/// Judges that a get computes one digest.
fn hashed_once(facts: &Facts<'_>) -> Verdict {
    let open = Verdict::open("A get hashes its key once, whichever filter answers (a counter).", "1");
    let gets = ["get-empty", "get-existing"].into_iter().flat_map(|workload| facts.rows_of(workload));
    let digests: Vec<f64> = gets.map(|row| row.measurement.digests_per_op).collect();
    let (Some(least), Some(most)) =
        (digests.iter().copied().reduce(f64::min), digests.iter().copied().reduce(f64::max))
    else {
        return open;
    };
    open.with(format!("{least:.3} to {most:.3}"), Some(least == 1.0 && most == 1.0), None, None)
}
