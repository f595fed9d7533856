//! YCSB's six mixes over every filter of the engine, by threads: what Figure 13 of GRF (Wang, Guo, Yang, Zhang, SIGMOD
//! 2024) and Figure 13 of ElasticBF (Li, Tian, Guo, Li, Xu, ATC 2019) show for a few.
//!
//! The mixes are those of Cooper, Silberstein, Tam, Ramakrishnan, Sears, "Benchmarking Cloud Serving Systems with YCSB"
//! (SoCC 2010), as implemented by [`Workload`](tamis_bench::Workload); all queried keys exist.
//!
//! * Sides are filters with the same bits per key, and two with the four bits of ElasticBF's paper ([`side`]).
//! * All sides have the same tree: lazy leveling by counted flushes, loaded until just before the merge into the last
//!   level ([`load`](crate::filters::load)), less the writes of the mixes. It is loaded once per side and copied by
//!   hard links for every step ([`database`](crate::elastic::database)), so all steps begin in the same state and an
//!   interrupted step leaves nothing behind.
//! * A step is one mix with one number of threads, with all sides interleaved in every round (`run`). Throughput refers
//!   to wall-clock time and is the median of rounds; latencies are of the same round.
//! * A side counts as ahead of another only if their rounds do not overlap (`rows`, `view`).
//!
//! One thread builds databases; mixes use the threads of their step. Costs on disk are the number of sides times the
//! data, and the writes of the mixes; in memory, a block cache per side.
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
    title: "YCSB A to F over all filters, by threads: throughput and latency",
    claim: "GRF (its Figure 13, A to E) was on the Pareto front of throughput and latency in every mix with every number of \
            threads. ElasticBF (its Figure 13) gained 1.99 to 2.11 times in C, 53 to 72 % in B, 48 to 93 % in D, 7 to 37 % in \
            A, 8 to 47 % in F and nothing in E over fixed filters of 4 bits per key.",
    differs: "One tree for all, lazy leveling; ElasticBF's paper has leveling without a block cache, and half of its gets are \
              for absent keys. Threads 1 to 8 instead of 4 to 64.",
};

/// Returns the figures of this family.
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

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        view::tests::trial()
    }
}
