//! Descriptions and costs of figures.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The origin of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Paper {
    /// Zhu, Mun, Raman, Athanassoulis: "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage Devices",
    /// DaMoN 2021.
    HashSharing,
    /// Li, Tian, Guo, Li, Xu: "ElasticBF: Elastic Bloom Filter with Hotness Awareness for Boosting Read Performance in
    /// Large Key-Value Stores", USENIX ATC 2019.
    ElasticBf,
    /// Wang, Guo, Yang, Zhang: "GRF: A Global Range Filter for LSM-Trees with Shape Encoding", SIGMOD 2024.
    Grf,
    /// None.
    Ours,
}

impl Paper {
    /// All origins, in the order of lists and reports.
    pub const ALL: [Paper; 4] = [Paper::HashSharing, Paper::ElasticBf, Paper::Grf, Paper::Ours];

    /// Returns a short name for headings.
    pub fn name(self) -> &'static str {
        match self {
            Paper::HashSharing => "Hash sharing",
            Paper::ElasticBf => "ElasticBF",
            Paper::Grf => "GRF",
            Paper::Ours => "Beyond the papers",
        }
    }

    /// Returns its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Paper::HashSharing => "hash-sharing",
            Paper::ElasticBf => "elastic",
            Paper::Grf => "grf",
            Paper::Ours => "ours",
        }
    }

    /// Returns title and venue; empty for none.
    pub fn source(self) -> &'static str {
        match self {
            Paper::HashSharing => {
                "Zhu, Mun, Raman, Athanassoulis: Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage \
                 Devices, DaMoN 2021"
            }
            Paper::ElasticBf => {
                "Li, Tian, Guo, Li, Xu: ElasticBF: Elastic Bloom Filter with Hotness Awareness for Boosting Read \
                 Performance in Large Key-Value Stores, USENIX ATC 2019"
            }
            Paper::Grf => {
                "Wang, Guo, Yang, Zhang: GRF: A Global Range Filter for LSM-Trees with Shape Encoding, SIGMOD 2024"
            }
            Paper::Ours => "",
        }
    }
}

/// A word that names no paper.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no paper is called `{0}`; known are hash-sharing, elastic and grf, and ours for none")]
pub struct UnknownPaper(pub String);

impl FromStr for Paper {
    type Err = UnknownPaper;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Paper::ALL.into_iter().find(|paper| paper.word() == word).ok_or_else(|| UnknownPaper(word.to_owned()))
    }
}

/// The description of a figure. Texts are plain sentences; none names a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The name on the command line: `hash-fig8a`, `elastic-fig10`, `grf-fig13`.
    pub name: &'static str,
    /// The origin.
    pub paper: Paper,
    /// Its place in the paper: `Figure 8a`, `Table 1`, `section 4`; empty for our own figures.
    pub place: &'static str,
    /// The measured quantity, in one line.
    pub title: &'static str,
    /// What the paper showed.
    pub claim: &'static str,
    /// Differences from the paper at any scale; empty if there are none.
    pub differs: &'static str,
}

/// The size of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Takes seconds, and only shows that the experiment works.
    Small,
    /// Takes minutes on a laptop.
    #[default]
    Default,
    /// The paper's own sizes, as far as the disk permits.
    Paper,
}

impl Scale {
    /// All scales.
    pub const ALL: [Scale; 3] = [Scale::Small, Scale::Default, Scale::Paper];

    /// Returns the name on the command line and of the directory.
    pub fn name(self) -> &'static str {
        match self {
            Scale::Small => "small",
            Scale::Default => "default",
            Scale::Paper => "paper",
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that belongs to no scale.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no scale is called `{0}`; known are small, default and paper")]
pub struct UnknownScale(pub String);

impl FromStr for Scale {
    type Err = UnknownScale;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Scale::ALL.into_iter().find(|scale| scale.name() == name).ok_or_else(|| UnknownScale(name.to_owned()))
    }
}

/// The costs of a figure, measured on two cores and a disk of a few thousand reads per second; for planning only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Time in seconds.
    pub seconds: u64,
    /// Maximum number of bytes on disk.
    pub disk_bytes: u64,
    /// Maximum number of bytes in memory, excluding the page cache.
    pub memory_bytes: u64,
}
