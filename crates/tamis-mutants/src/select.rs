//! Which mutants are meant.

use clap::Args;

use crate::rooms;
use crate::site::Mutant;

/// A choice of mutants.
#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Only these groups of rooms, in this order.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(rooms::GROUPS))]
    pub rooms: Vec<String>,
    /// Only mutants whose file has this in its path.
    #[arg(long)]
    pub file: Option<String>,
    /// Only these operators.
    #[arg(long, value_delimiter = ',')]
    pub operators: Vec<String>,
    /// At most this many mutants of each group, drawn at random.
    #[arg(long)]
    pub sample: Option<usize>,
    /// The seed of the draw and of the order.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

impl Selection {
    /// Returns the mutants of the selection: group after group, each in random order, so that a run
    /// that is cut off has seen a fair part of its group.
    pub fn choose<'a>(&self, mutants: &'a [Mutant]) -> Vec<&'a Mutant> {
        let groups: Vec<&str> = match self.rooms.as_slice() {
            [] => rooms::GROUPS.to_vec(),
            some => some.iter().map(String::as_str).collect(),
        };
        let mut chosen = Vec::new();
        for group in groups {
            let mut of: Vec<&Mutant> = mutants
                .iter()
                .filter(|one| one.group == group)
                .filter(|one| self.file.as_ref().is_none_or(|file| one.file.contains(file)))
                .filter(|one| self.operators.is_empty() || self.operators.contains(&one.operator))
                .collect();
            // By their names, so that a change elsewhere leaves the order as it is.
            of.sort_by_key(|one| mix(&one.id, self.seed));
            of.truncate(self.sample.unwrap_or(usize::MAX));
            chosen.extend(of);
        }
        chosen
    }
}

fn mix(id: &str, seed: u64) -> u64 {
    let id = u64::from_str_radix(id, 16).unwrap_or(0);
    fastrand::Rng::with_seed(id ^ seed.rotate_left(32)).u64(..)
}
