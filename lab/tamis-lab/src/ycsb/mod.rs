//! YCSB's six mixes over every selector of the engine, by threads: what Figure 13 of GRF (Wang, Guo, Yang, Zhang, SIGMOD 2024)
//! and Figure 13 of ElasticBF (Li, Tian, Guo, Li, Xu, ATC 2019) show for a few.
//!
//! The mixes are those of Cooper, Silberstein, Tam, Ramakrishnan, Sears, "Benchmarking Cloud Serving Systems with YCSB" (SoCC
//! 2010), as [`Workload`](tamis_bench::Workload) has them; all keys asked for exist.
//!
//! * Sides are selectors with the same bits a key, and two with the four bits of ElasticBF's paper ([`side`]).
//! * All sides have one tree: lazy leveling by counted flushes, loaded until just before the merge into the last level
//!   ([`load`](crate::filters::load)), less what the mixes write. It is loaded once a side and copied by hard links for every
//!   step ([`database`](crate::elastic::database)), so each mix with each number of threads begins alike and a step that was
//!   interrupted leaves nothing behind.
//! * A step is one mix with one number of threads, all sides in turns in every round (`run`). Throughput is by the clock on the
//!   wall, the median of rounds; latencies are of the same round.
//! * Whether a side is ahead of another is said only where their rounds do not overlap (`rows`, `view`).
//!
//! One thread makes databases; mixes have the threads of their step. Disk: sides times the data, and what the mixes write; a
//! block cache for each side.

mod plan;
mod rows;
mod run;
pub mod side;
mod view;

#[cfg(test)]
mod tests;

pub use rows::MixRow;
pub use side::YcsbSide;
use tamis_bench::BenchError;

use crate::figures::{About, Custom, Figure, Needs, Paper, Plan, Row, Scale, View};

const ABOUT: About = About {
    name: plan::NAME,
    paper: Paper::Ours,
    place: "",
    title: "YCSB A to F over all selectors, by threads: throughput and latency",
    claim: "GRF (its Figure 13, A to E) was on the Pareto front of throughput and latency in every mix with every number of \
            threads. ElasticBF (its Figure 13) gained 1.99 to 2.11 times in C, 53 to 72 % in B, 48 to 93 % in D, 7 to 37 % in \
            A, 8 to 47 % in F and nothing in E over fixed filters of 4 bits a key.",
    differs: "One tree for all, lazy leveling; ElasticBF's paper has leveling without a block cache, and half of its gets ask \
              for absent keys. Threads 1 to 8 in place of 4 to 64.",
};

/// The figures of this family.
pub fn figures() -> Vec<Box<dyn Figure>> {
    vec![Box::new(Ycsb)]
}

struct Ycsb;

impl Figure for Ycsb {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn needs(&self, scale: Scale) -> Needs {
        const MIB: u64 = 1 << 20;
        match scale {
            Scale::Small => Needs { seconds: 20, disk_bytes: 60 * MIB, memory_bytes: 60 * MIB },
            Scale::Default => Needs { seconds: 240, disk_bytes: 3072 * MIB, memory_bytes: 512 * MIB },
            Scale::Paper => Needs { seconds: 110_000, disk_bytes: 260_000 * MIB, memory_bytes: 24_000 * MIB },
        }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(plan::Job::new(scale, custom)?))
    }

    fn view(&self, rows: &[Row]) -> View {
        view::view(rows)
    }
}
