//! What is asked of a database, by name.

use std::fmt;
use std::str::FromStr;

/// A named mix of operations. Names are those of `tamis bench --workload`; their meaning never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Puts every key once, in random order.
    FillRandom,
    /// Puts every key once, ascending.
    FillSeq,
    /// Puts new values under random existing keys.
    Overwrite,
    /// Gets random absent keys.
    GetEmpty,
    /// Gets random existing keys.
    GetExisting,
    /// Gets, half existing and half absent.
    GetMixed,
    /// Gets existing keys, Zipf-distributed (0.99) and scrambled over the key space.
    GetZipf,
    /// `multi_get` of 32 keys, half existing and half absent; one operation is one key.
    MultiGet,
    /// The first entry of a narrow range that holds no key.
    RangeEmpty,
    /// A new iterator on a random existing key, and its first entry.
    Seek,
    /// A seek and the 50 entries behind it.
    SeekNext50,
    /// Half gets of existing keys, half overwrites.
    ReadWrite,
}

/// Keys in one `multi_get`.
pub const MULTI_GET_KEYS: usize = 32;

/// Entries read behind the first one of [`Workload::SeekNext50`].
pub const NEXT_ENTRIES: usize = 50;

/// The exponent of [`Workload::GetZipf`].
pub const ZIPF_EXPONENT: f64 = 0.99;

impl Workload {
    /// All of them, fills first.
    pub const ALL: [Workload; 12] = [
        Workload::FillRandom,
        Workload::FillSeq,
        Workload::Overwrite,
        Workload::GetEmpty,
        Workload::GetExisting,
        Workload::GetMixed,
        Workload::GetZipf,
        Workload::MultiGet,
        Workload::RangeEmpty,
        Workload::Seek,
        Workload::SeekNext50,
        Workload::ReadWrite,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Workload::FillRandom => "fill-random",
            Workload::FillSeq => "fill-seq",
            Workload::Overwrite => "overwrite",
            Workload::GetEmpty => "get-empty",
            Workload::GetExisting => "get-existing",
            Workload::GetMixed => "get-mixed",
            Workload::GetZipf => "get-zipf",
            Workload::MultiGet => "multi-get",
            Workload::RangeEmpty => "range-empty",
            Workload::Seek => "seek",
            Workload::SeekNext50 => "seek-next50",
            Workload::ReadWrite => "read-write",
        }
    }

    /// Whether it loads the key set.
    pub fn is_fill(self) -> bool {
        matches!(self, Workload::FillRandom | Workload::FillSeq)
    }

    /// Whether it changes the database.
    pub fn writes(self) -> bool {
        self.is_fill() || matches!(self, Workload::Overwrite | Workload::ReadWrite)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no workload has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no workload is called `{name}`; there are {known}", name = .0, known = Workload::ALL.map(Workload::name).join(", "))]
pub struct UnknownWorkload(pub String);

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Workload::ALL.into_iter().find(|w| w.name() == name);
        known.ok_or_else(|| UnknownWorkload(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_others_are_refused() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        let refused = "get-nothing".parse::<Workload>().unwrap_err().to_string();
        assert!(refused.contains("`get-nothing`") && refused.contains("seek-next50"), "{refused}");
    }
}
