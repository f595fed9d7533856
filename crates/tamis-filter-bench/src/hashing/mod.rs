//! `filter-bench hashing`: what the hash-sharing paper says of hash functions and single filters, measured again.
//!
//! Z. Zhu, J. H. Mun, A. Raman, M. Athanassoulis: "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage
//! Devices" (DAMON 2021), Tables 1 to 3 and Figures 3 to 5. Its further figures are of whole trees.

mod functions;
mod rates;
mod reference;
mod times;
mod verdicts;

use std::error::Error;

use clap::Args;
use serde_json::json;

use crate::args::{Common, at_least};
use crate::plots::Plot;
use crate::progress::Progress;
use crate::report::{self, Report, Table};
use crate::stats::Spread;

use functions::Function;
use rates::{BITS, DOUBLE_FUNCTIONS, Mean, Rates, UNIT_FUNCTIONS};
use times::{SIZES, Times};

/// Options of `hashing`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Sets of keys that rates are the means of
    #[arg(long, default_value_t = 10, value_parser = at_least::<2>)]
    pub repeats: usize,
    /// Queries for absent keys, of each set
    #[arg(long, default_value_t = 100_000)]
    pub queries: usize,
    /// Largest number of bits per key; the paper goes to 13
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(10..=40))]
    pub most_bits: u32,
    /// Lookups of the smallest keys in a round
    #[arg(long, default_value_t = 500_000)]
    pub probes: usize,
    #[command(flatten)]
    pub common: Common,
}

/// Runs the command.
pub fn run(options: &Options, progress: &Progress) -> Result<Report, Box<dyn Error>> {
    let Common { rounds, seed, .. } = options.common;
    let rates = rates::measure(options.repeats, options.queries, options.most_bits, seed, progress)?;
    let times = times::measure(rounds, options.probes, seed, progress)?;
    let mut report = Report::new("Hash sharing: the paper's figures on hash functions and single filters");
    report.text(
        "Paper: Zhu, Mun, Raman, Athanassoulis, DAMON 2021. Its machine: Xeon Gold 6230, 2.1 GHz. Rotation is here the \
         standard Bloom filter of tamis: the digest is remixed, and rotated by half a word. XX is XXH64, CRC is CRC-32C, \
         MM is MurmurHash3 of 32 bits, MM64 is MurmurHash64A.",
    );
    table_1(&mut report, &times, rounds);
    table_2(&mut report, &rates, options);
    figure_3(&mut report, &rates);
    table_3(&mut report, &rates);
    figures_4_and_5(&mut report, &times, rounds);

    let verdicts = verdicts::all(&rates, &times);
    report.heading("Verdicts");
    let mut table = Table::new(5, ["figure", "claim", "paper", "here", "verdict"]);
    for verdict in &verdicts {
        table.row([verdict.figure, verdict.claim, verdict.paper, &verdict.here, verdict.verdict.text()]);
    }
    report.table(table);
    report.text(
        "CRC-32C and SHA-256 use instructions of the processor where it has them, which moves their places in the order; \
         the paper's XXHash is slower than any of today.",
    );
    report.data = json!({ "rates": rates, "times": times, "verdicts": verdicts });
    Ok(report)
}

fn time(spread: &Spread) -> String {
    format!("{} ±{:.0}%", report::ns(spread.median), spread.percent() / 2.0)
}

fn mean(mean: &Mean) -> String {
    format!("{} ±{:.3}", report::rate(mean.rate), mean.error * 100.0)
}

fn table_1(report: &mut Report, times: &Times, rounds: usize) {
    report.heading("Table 1: hashing a key of 1 KB");
    report.text(format!("ns, median of {rounds} rounds. Normalised: as multiples of MM64."));
    let mut table = Table::new(1, ["function", "paper", "here", "paper, normalised", "here, normalised"]);
    let base = times.hash[Function::Mm64 as usize].median;
    let base_paper = Function::Mm64.paper_ns().unwrap_or(f64::NAN);
    let mut row = |name: &str, paper: Option<f64>, here: &Spread| {
        table.row([
            name.to_owned(),
            paper.map_or("–".to_owned(), report::ns),
            time(here),
            paper.map_or("–".to_owned(), |ns| format!("{:.2}", ns / base_paper)),
            format!("{:.2}", here.median / base),
        ]);
    };
    for function in Function::ALL {
        row(function.name(), function.paper_ns(), &times.hash[function as usize]);
    }
    row("(copy of 4 KB from memory)", Some(160.0), &times.memory);
    report.table(table);
}

fn table_2(report: &mut Report, rates: &Rates, options: &Options) {
    report.heading("Table 2: false positives of one digest and rotation, 10 bits per key");
    report.text(format!(
        "10,000 keys of 512 bytes, {} queries for absent keys; means of {} sets of keys with the standard error of the \
         mean in percentage points. Theory: 0.819 %.",
        options.queries, options.repeats
    ));
    let mut table = Table::new(1, ["hashes", "paper", "here"]);
    let Some(row) = rates.bits.get(BITS as usize - 1) else { return };
    for function in Function::ALL {
        let paper = function.paper_rate().map_or("–".to_owned(), report::rate);
        table.row([format!("{} + rotation", function.name()), paper, mean(&row.rotation[function as usize])]);
    }
    if let Some(seven) = &row.seven {
        table.row(["all seven".to_owned(), report::rate(verdicts::PAPER_ALL), mean(seven)]);
    }
    table.row(["XXH3 under seven seeds".to_owned(), "–".to_owned(), mean(&row.seeds)]);
    report.table(table);
}

fn figure_3(report: &mut Report, rates: &Rates) {
    report.heading("Figure 3: false positives over bits per key");
    report.text(
        "The paper shows 1 to 13 bits, as curves: one digest and rotation lies close to theory everywhere.",
    );
    let names = Function::ALL.map(|f| f.name().to_owned());
    let columns = ["bits", "k", "theory"].map(str::to_owned).into_iter().chain(names);
    let mut table = Table::new(0, columns.chain(["k functions", "k seeds"].map(str::to_owned)));
    for row in &rates.bits {
        let cells = [row.bits.to_string(), row.probes.to_string(), report::rate(row.theory)];
        let rotation = row.rotation.iter().map(|mean| report::rate(mean.rate));
        let seven = row.seven.map_or("–".to_owned(), |mean| report::rate(mean.rate));
        table.row(cells.into_iter().chain(rotation).chain([seven, report::rate(row.seeds.rate)]));
    }
    report.table(table);
    let line = |name: &str, rate: &dyn Fn(&rates::AtBits) -> Option<f64>| {
        let points = rates.bits.iter().filter_map(|row| Some((f64::from(row.bits), rate(row)?)));
        (name.to_owned(), points.collect())
    };
    let mut series = vec![line("theory", &|row| Some(row.theory))];
    series.extend([Function::Mm64, Function::Md5, Function::Crc, Function::Xxh3].map(|function| {
        line(&format!("{} + rotation", function.name()), &|row| Some(row.rotation[function as usize].rate))
    }));
    series.push(line("k functions", &|row| row.seven.map(|mean| mean.rate)));
    series.push(line("k seeds", &|row| Some(row.seeds.rate)));
    report.plots.push(Plot {
        name: "hashing-figure-3".to_owned(),
        title: "Figure 3: one digest and rotation, beside k hashes and theory".to_owned(),
        x: "bits per key".to_owned(),
        y: "false-positive rate".to_owned(),
        log_x: false,
        log: true,
        series,
    });
}

fn table_3(report: &mut Report, rates: &Rates) {
    report.heading("Table 3: seven units of one probe each, 10 bits per key in all");
    let mut table = Table::new(1, ["hashes", "paper", "here"]);
    for ((name, here), (_, paper)) in rates.units_rotation.iter().zip(UNIT_FUNCTIONS) {
        table.row([format!("{name} + rotation"), report::rate(paper), mean(here)]);
    }
    for ((name, here), (_, paper)) in rates.units_double.iter().zip(DOUBLE_FUNCTIONS) {
        table.row([name.clone(), report::rate(paper), mean(here)]);
    }
    report.table(table);
}

fn figures_4_and_5(report: &mut Report, times: &Times, rounds: usize) {
    let figures = [
        ("Figure 4", "hashing-figure-4", "one filter, seven probes", &times.single),
        ("Figure 5", "hashing-figure-5", "seven units, one probe each", &times.units),
    ];
    for (figure, name, what, series) in figures {
        report.heading(format!("{figure}: lookup of an absent key over its size, {what}"));
        report
            .text(format!("ns, hashing included, median of {rounds} rounds; the filter lies in the cache."));
        let sizes = SIZES.iter().map(|size| format!("{size} B"));
        let mut table = Table::new(1, ["hashes".to_owned()].into_iter().chain(sizes));
        for (name, spreads) in series {
            table.row([name.clone()].into_iter().chain(spreads.iter().map(time)));
        }
        report.table(table);
        let line = |(name, spreads): &(String, Vec<Spread>)| {
            (
                name.clone(),
                SIZES.iter().zip(spreads).map(|(&size, spread)| (size as f64, spread.median)).collect(),
            )
        };
        report.plots.push(Plot {
            name: name.to_owned(),
            title: format!("{figure}: lookup of an absent key, {what}"),
            x: "bytes of a key".to_owned(),
            y: "ns".to_owned(),
            log_x: true,
            log: true,
            series: series.iter().map(line).collect(),
        });
    }
}
