//! The lengths of values: fixed or mixed.
//!
//! The length of a key's value is a function of the key's [`tag`](super::tag_of), the same for
//! every put. So a check of an answer knows the length without any record of the put.
//!
//! Mixed lengths follow the generalized Pareto distribution that Cao, Dong, Vemuri and Du fitted to
//! the values of ZippyDB ("Characterizing, Modeling, and Benchmarking RocksDB Key-Value Workloads
//! at Facebook", FAST 2020), with the parameters, the shortest and the longest value of db_bench's
//! `mixgraph`: half of the values have at most 20 bytes, one in a hundred more than 227. There are
//! two differences. db_bench draws a new length at each put. And it takes a length above the
//! longest modulo the longest, while here it is clamped: this affects one value in 11,000.

use std::fmt;
use std::str::FromStr;

use crate::pareto::{Pareto, share_of};
use crate::random::mix64;

/// ZippyDB's values.
const MIXED: Pareto = Pareto { shape: 0.2615, scale: 25.45 };

/// Makes lengths independent of the bytes of values, which are streams of the tag as well.
const SALT: u64 = 0x6C65_6E67_7468;

/// The lengths of the values of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueSizes {
    /// This many bytes each.
    Fixed(usize),
    /// [`SHORTEST`](ValueSizes::SHORTEST) to [`LONGEST`](ValueSizes::LONGEST) bytes, mostly short.
    Pareto,
}

impl ValueSizes {
    /// Bytes of the shortest value of mixed sizes.
    pub const SHORTEST: usize = 10;

    /// Bytes of the longest value of mixed sizes.
    pub const LONGEST: usize = 1024;

    /// Returns the length in bytes of the value of the key with this tag. A mixed length costs tens
    /// of nanoseconds: not for timed parts.
    pub fn of(self, tag: u64) -> usize {
        match self {
            ValueSizes::Fixed(bytes) => bytes,
            ValueSizes::Pareto => {
                let drawn = MIXED.whole(share_of(mix64(tag ^ SALT)));
                (drawn as usize).clamp(ValueSizes::SHORTEST, ValueSizes::LONGEST)
            }
        }
    }

    /// Reports whether a value may have this length.
    #[inline]
    pub fn allows(self, bytes: usize) -> bool {
        match self {
            ValueSizes::Fixed(all) => bytes == all,
            ValueSizes::Pareto => (ValueSizes::SHORTEST..=ValueSizes::LONGEST).contains(&bytes),
        }
    }

    /// Returns the mean length in bytes over all tags. For mixed lengths this is a sum of a
    /// thousand terms.
    pub fn mean(self) -> f64 {
        match self {
            ValueSizes::Fixed(bytes) => bytes as f64,
            // The mean of whole numbers is the sum of the shares of those at least 1, 2, 3 and so
            // on.
            ValueSizes::Pareto => {
                let beyond = ValueSizes::SHORTEST..ValueSizes::LONGEST;
                ValueSizes::SHORTEST as f64 + beyond.map(|bytes| MIXED.above(bytes as f64)).sum::<f64>()
            }
        }
    }

    /// Describes the lengths for people.
    pub fn describe(self) -> String {
        match self {
            ValueSizes::Fixed(bytes) => format!("{bytes} bytes"),
            ValueSizes::Pareto => {
                let (shortest, longest) = (ValueSizes::SHORTEST, ValueSizes::LONGEST);
                format!("{shortest} to {longest} bytes, {:.0} on average", self.mean())
            }
        }
    }
}

impl From<usize> for ValueSizes {
    fn from(bytes: usize) -> Self {
        ValueSizes::Fixed(bytes)
    }
}

/// Formats as on the command line; parses back.
impl fmt::Display for ValueSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSizes::Fixed(bytes) => write!(f, "{bytes}"),
            ValueSizes::Pareto => f.write_str("mixed"),
        }
    }
}

/// A text that does not name value sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of bytes or `mixed`, not `{0}`")]
pub struct UnknownSizes(pub String);

impl FromStr for ValueSizes {
    type Err = UnknownSizes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "mixed" => Ok(ValueSizes::Pareto),
            number => number.parse().map(ValueSizes::Fixed).map_err(|_| UnknownSizes(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::tag_of;

    const KEYS: u64 = 200_000;

    fn mixed() -> Vec<usize> {
        (0..KEYS).map(|i| ValueSizes::Pareto.of(tag_of(&i.to_be_bytes()))).collect()
    }

    /// From the survival function as the paper has it, not from the code that draws.
    #[test]
    fn mixed_lengths_have_the_quantiles_of_the_formula() {
        let lengths = mixed();
        for bytes in [10usize, 20, 34, 50, 100, 227, 500, 1000] {
            let share = (1.0 + 0.2615 * bytes as f64 / 25.45).powf(-1.0 / 0.2615);
            let expected = share * KEYS as f64;
            let got = lengths.iter().filter(|&&length| length > bytes).count() as f64;
            // Five standard deviations of a Poisson count.
            assert!((got - expected).abs() < 5.0 * expected.sqrt() + 1.0, "{bytes}: {got} of {expected}");
        }
        let mut sorted = lengths.clone();
        sorted.sort_unstable();
        let quantile = |percent: usize| sorted[sorted.len() * percent / 100];
        assert_eq!((quantile(50), sorted[0]), (20, ValueSizes::SHORTEST));
        assert!((220..=234).contains(&quantile(99)), "{}", quantile(99));
        assert_eq!(lengths.iter().max(), Some(&ValueSizes::LONGEST), "17 of 200,000 are cut");
        assert!(lengths.iter().all(|&length| ValueSizes::Pareto.allows(length)));
    }

    #[test]
    fn the_mean_matches_the_lengths() {
        let total: usize = mixed().iter().sum();
        let (mean, got) = (ValueSizes::Pareto.mean(), total as f64 / KEYS as f64);
        // The standard deviation of a length is about 50.
        assert!((mean - got).abs() < 5.0 * 50.0 / (KEYS as f64).sqrt(), "{mean} {got}");
        assert!((34.0..40.0).contains(&mean), "{mean}");
        assert_eq!(ValueSizes::from(256).mean(), 256.0);
    }

    #[test]
    fn a_fixed_length_holds_for_every_key() {
        let sizes = ValueSizes::from(100);
        assert!((0..100).all(|tag| sizes.of(tag) == 100));
        assert!(sizes.allows(100) && !sizes.allows(99) && !ValueSizes::Pareto.allows(9));
    }

    #[test]
    fn names_parse_back_and_others_are_rejected() {
        for sizes in [ValueSizes::from(0), ValueSizes::from(256), ValueSizes::Pareto] {
            assert_eq!(sizes.to_string().parse(), Ok(sizes));
        }
        for wrong in ["", "-1", "1.5", "Mixed", "64KiB"] {
            let refused = wrong.parse::<ValueSizes>().unwrap_err().to_string();
            assert!(refused.contains("`mixed`"), "{refused}");
        }
    }
}
