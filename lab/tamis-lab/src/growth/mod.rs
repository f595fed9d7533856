//! How costs grow: a get of an absent key, a get of an existing key, a seek and a put, over the number of keys
//! (`growth-keys`) and over the number of runs (`growth-runs`).
//!
//! * `growth-keys` takes the engine's defaults: leveling, 10 bits per key. Its numbers of keys are half a decade apart.
//!   What would make its points incomparable is fixed (`plan`): each ends at the same moment of the tree's cycle, with
//!   as many runs in level 0 as it may have at rest, and reads do not start compactions. Values have the same size
//!   everywhere, small enough for the largest point.
//! * `growth-runs` holds compaction back: a fixed number of keys in equal runs, with one filter for each run and with
//!   one for all, of the same memory.
//!
//! A step is one point. Its databases are loaded, read once from end to end (`load`), and then read in rounds that
//! alternate operations and sides (`measure`, `pieces`). Puts of existing keys come last, since they change the tree. Rows have
//! time, counters, tree, memory and the sizes of the processor's caches together (`rows`, `host`), so that `view` can
//! say where filters, indexes and tables outgrow each cache. `verdicts` judges claims of our own.
//!
//! What a database costs as a whole, by keyspaces and by keys, has its own small module (`whole`).
//!
//! One thread loads and measures; flushes and compactions are waited for and timed separately.

mod host;
mod load;
mod measure;
mod pieces;
mod plan;
mod rows;
mod verdicts;
mod view;
mod whole;

#[cfg(test)]
mod tests;

use tamis_bench::BenchError;

use crate::figures::{About, Custom, Figure, Needs, Paper, Plan, Row, Scale, View};

/// Returns the figures of this family.
pub fn figures() -> Vec<Box<dyn Figure>> {
    vec![
        Box::new(Growth { about: KEYS, over: Over::Keys }),
        Box::new(Growth { about: RUNS, over: Over::Runs }),
        Box::new(whole::KEYSPACES),
        Box::new(whole::OPENINGS),
    ]
}

/// The varied quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Keys,
    Runs,
}

const KEYS: About = About {
    name: "growth-keys",
    paper: Paper::Ours,
    place: "",
    title: "The cost of gets, seeks and puts by the number of keys",
    claim: "Ten times the keys add at most one run, and so at most one filter to a get of an absent key, and at most double \
            the time of a get, a seek or a put.",
    differs: "",
};

const RUNS: About = About {
    name: "growth-runs",
    paper: Paper::Ours,
    place: "",
    title: "The cost of gets and seeks by the number of runs",
    claim: "A get of an absent key asks at most one filter for each run, and N runs cost it less than N times as much as one. \
            A filter for the whole tree of the same memory is asked once, however many runs there are, and is the faster one \
            over many.",
    differs: "",
};

struct Growth {
    about: About,
    over: Over,
}

impl Figure for Growth {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        const MIB: u64 = 1 << 20;
        let [seconds, disk, memory] = match (self.over, scale) {
            (Over::Keys, Scale::Small) => [4, 20, 40],
            (Over::Keys, Scale::Default) => [150, 1200, 400],
            (Over::Keys, Scale::Paper) => [1800, 12_000, 1200],
            (Over::Runs, Scale::Small) => [4, 20, 60],
            (Over::Runs, Scale::Default) => [150, 160, 500],
            (Over::Runs, Scale::Paper) => [1500, 1600, 5000],
        };
        Needs { seconds, disk_bytes: disk * MIB, memory_bytes: memory * MIB }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        Ok(Box::new(plan::Job::new(self.about.name, self.over, scale, custom)?))
    }

    fn view(&self, rows: &[Row]) -> View {
        let (ops, loads) = (rows::ops(rows), rows::loads(rows));
        match self.over {
            Over::Keys => view::keys(&ops, &loads),
            Over::Runs => view::runs(&ops, &loads),
        }
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial(self.over)
    }
}
