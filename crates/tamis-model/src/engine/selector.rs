//! The available filters, and their false-positive rates.
//!
//! Rates of point filters are the textbook's, as `tamis-filter` documents and tests them. Those of
//! range filters and of global filters are closed forms fitted to what this implementation achieves
//! (`lab/reports/filter-tables.md`, `docs/global-filters.md`); each function says which. Bits are of
//! memory per entry, rates are shares from 0 to 1. Pure functions; a rate of a blocked filter costs
//! about `512/b` steps, everything else a few operations.

use super::counts::blocked_rate_of;

/// The mechanism that tells a reader which runs may hold a key: the values of `keyspace.filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Selector {
    /// No filter: every run that covers the key is searched.
    None,
    /// A standard Bloom filter per table.
    Bloom,
    /// A Bloom filter within cache lines: the default.
    BlockedBloom,
    /// A ribbon filter.
    Ribbon,
    /// A binary fuse filter.
    Fuse,
    /// An XOR filter.
    Xor,
    /// A cuckoo filter.
    Cuckoo,
    /// Bloom filters in units, of which the most useful are in memory.
    Elastic,
    /// A trie.
    SurfBase,
    /// A trie with bits of the key's hash.
    SurfHash,
    /// A trie with further bits of the key.
    SurfReal,
    /// A trie with both.
    SurfMixed,
    /// A learned range filter.
    Snarf,
    /// Bloom filters over prefixes.
    Rosetta,
    /// Bitmaps over prefixes.
    REncoder,
    /// A locality-preserving hash.
    Grafite,
    /// One learned filter for the tree, with codes of epochs.
    Grf,
    /// The same with Huffman codes of runs.
    GrfHuffman,
    /// One cuckoo filter for the tree.
    Chucky,
    /// For every 32 keys, the set of runs that have some of them.
    Remix,
}

#[cfg(feature = "serde")]
impl serde::Serialize for Selector {
    /// As [`word`](Selector::word).
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Selector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
        let word = String::deserialize(deserializer)?;
        Selector::from_word(&word)
            .ok_or_else(|| serde::de::Error::custom(format_args!("no filter is called `{word}`")))
    }
}

use Selector::*;

impl Selector {
    /// All selectors.
    pub const ALL: [Selector; 20] = [
        None,
        Bloom,
        BlockedBloom,
        Ribbon,
        Fuse,
        Xor,
        Cuckoo,
        Elastic,
        SurfBase,
        SurfHash,
        SurfReal,
        SurfMixed,
        Snarf,
        Rosetta,
        REncoder,
        Grafite,
        Grf,
        GrfHuffman,
        Chucky,
        Remix,
    ];

    /// Returns the value that `keyspace.filter` takes.
    pub fn word(self) -> &'static str {
        match self {
            None => "none",
            Bloom => "bloom-rotation",
            BlockedBloom => "blocked-bloom",
            Ribbon => "ribbon",
            Fuse => "fuse",
            Xor => "xor",
            Cuckoo => "cuckoo",
            Elastic => "elastic-rotation",
            SurfBase => "surf-base",
            SurfHash => "surf-hash",
            SurfReal => "surf-real",
            SurfMixed => "surf-mixed",
            Snarf => "snarf",
            Rosetta => "rosetta",
            REncoder => "rencoder",
            Grafite => "grafite",
            Grf => "grf",
            GrfHuffman => "grf-huffman",
            Chucky => "chucky",
            Remix => "remix",
        }
    }

    /// Returns the selector with this name.
    pub fn from_word(word: &str) -> Option<Selector> {
        Self::ALL.into_iter().find(|selector| selector.word() == word)
    }

    /// Returns whether it is one filter for the whole tree, probed once for all runs.
    pub fn is_global(self) -> bool {
        matches!(self, Grf | GrfHuffman | Chucky | Remix)
    }

    /// Returns whether iterators probe it for ranges with an end.
    pub fn answers_ranges(self) -> bool {
        self.keeps_order() || matches!(self, Rosetta | REncoder | Grafite)
    }

    /// Returns whether it tells iterators where the next key of a run is, so that runs are opened
    /// only when an iterator reaches them.
    pub fn keeps_order(self) -> bool {
        matches!(self, SurfBase | SurfHash | SurfReal | SurfMixed | Snarf | Grf | GrfHuffman | Remix)
    }

    /// Returns whether `bits_per_key` determines its size.
    pub fn is_sized(self) -> bool {
        !matches!(self, None | Remix | SurfBase | Elastic)
    }

    /// Returns the cache misses that a probe of one filter waits for where filters do not fit into
    /// the processor's cache, for an absent key or an empty short range. Derived from the times of
    /// uncached filters, relative to those of a blocked Bloom filter (`lab/reports/filter-tables.md`).
    /// Lines whose positions follow from the digest alone are fetched in parallel, so there are
    /// fewer misses than lines. The values for whole-tree filters, which that table does not cover,
    /// and for elastic ones are estimates.
    pub fn misses(self, range: bool) -> f64 {
        match self {
            None => 0.0,
            BlockedBloom => 1.0,
            Xor => 1.0,
            Cuckoo => 1.5,
            Fuse | Ribbon => 1.9,
            Bloom | Elastic => 2.0,
            Rosetta if range => 12.0,
            REncoder if range => 5.0,
            Rosetta | REncoder => 1.3,
            Chucky | Remix => 3.0,
            Grafite | Grf | GrfHuffman => 4.0,
            Snarf => 4.5,
            SurfBase | SurfHash | SurfReal | SurfMixed => 5.0,
        }
    }
}

/// Keys per segment of a REMIX: 32 when it is built, up to twice as many before it is rebuilt.
pub(crate) const REMIX_SEGMENT: f64 = 48.0;

/// Structure of the keys, as order-preserving filters see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Keys {
    /// Integers, or keys distinguished by the eight bytes after their common prefix.
    #[default]
    Integers,
    /// Longer keys whose neighbours have much in common: words, names, paths.
    Strings,
}

/// False-positive rates of the filters of one table (or of all of one kind).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// For an absent key.
    pub(crate) point: f64,
    /// For an empty range.
    pub(crate) range: f64,
}

/// `(1 − e^(−k/b))^k` with the best integer number of probes.
pub fn bloom_rate(bits: f64) -> f64 {
    if bits <= 0.0 {
        return 1.0;
    }
    let k = (bits * std::f64::consts::LN_2).round().clamp(1.0, 30.0);
    (-(-k / bits).exp_m1()).powf(k)
}

/// Returns the rate of a Bloom filter within lines of 512 bits: the standard rate of one line,
/// averaged over the Poisson number of its keys (Putze, Sanders, Singler, WEA 2007), with the best
/// number of probes.
pub fn blocked_rate(bits: f64) -> f64 {
    if bits <= 0.0 {
        return 1.0;
    }
    let load = 512.0 / bits;
    if load > 4096.0 {
        return 1.0;
    }
    let most = (bits * std::f64::consts::LN_2).round().clamp(1.0, 16.0) as i32;
    let rate = |k: i32| {
        let (mut sum, mut ln_p, mut j) = (0.0, -load, 0.0);
        let last = load + 12.0 * load.sqrt() + 30.0;
        while j <= last {
            let fill: f64 = -(-j * f64::from(k) / 512.0).exp_m1();
            sum += ln_p.exp() * fill.powi(k);
            j += 1.0;
            ln_p += (load / j).ln();
        }
        sum
    };
    (1..=most).map(rate).fold(1.0, f64::min)
}

/// Returns the bits that a SuRF trie takes by itself: 11 for uniform integers, about 22 for strings
/// (16 to 43 were observed).
fn trie_bits(keys: Keys) -> f64 {
    match keys {
        Keys::Integers => 11.0,
        Keys::Strings => 22.0,
    }
}

impl Selector {
    /// Returns the memory bits per entry when `bits` are requested: fingerprints, tries and
    /// segments only come in certain sizes.
    pub fn spent_bits(self, bits: f64, keys: Keys) -> f64 {
        match self {
            None => 0.0,
            Fuse => (bits / 1.13).floor().max(1.0) * 1.13,
            Xor => (bits / 1.23).floor().max(1.0) * 1.23,
            SurfBase => trie_bits(keys),
            SurfHash | SurfReal | SurfMixed => bits.max(trie_bits(keys) + 1.0),
            // Fingerprints of five bits, plus codes and spare room.
            Chucky => bits.max(12.0),
            // Four bits per key when built, fewer as it grows.
            Remix => 4.0,
            _ => bits,
        }
    }

    /// Returns the rates of one filter with `bits` per key. `near` is the share of probes right
    /// after existing keys, `width` the width of a range in consecutive integers. For global
    /// selectors: runs *named*, of all runs together, by way of [`named_runs`](Self::named_runs).
    pub(super) fn rates(self, bits: f64, keys: Keys, near: f64, width: f64) -> Rates {
        let anywhere = self.rates_of(bits, keys, false, width);
        let behind = self.rates_of(bits, keys, true, width);
        let mix = |a: f64, b: f64| ((1.0 - near) * a + near * b).clamp(0.0, 1.0);
        Rates { point: mix(anywhere.point, behind.point), range: mix(anywhere.range, behind.range) }
    }

    fn rates_of(self, bits: f64, keys: Keys, near: bool, width: f64) -> Rates {
        let strings = keys == Keys::Strings;
        let points = |point: f64| Rates { point: point.min(1.0), range: 1.0 };
        let trie = |hash: f64, real: f64| {
            // A trie alone: held-out strings reach a neighbour's path in four cases of ten.
            let base = match (strings, near) {
                (_, true) => 1.0,
                (true, false) => 0.4,
                (false, false) => 0.065,
            };
            // Further bits of the key do not exclude a key right after it, and rarely a string's
            // neighbours.
            let real = if near {
                1.0
            } else if strings {
                (-0.3 * real).exp2().max(0.8)
            } else {
                (-real).exp2()
            };
            Rates { point: base * (-hash).exp2() * real, range: base * real }
        };
        let suffix = self.spent_bits(bits, keys) - trie_bits(keys);
        match self {
            None => points(1.0),
            Bloom => points(bloom_rate(bits)),
            BlockedBloom | Elastic => points(blocked_rate_of(bits)),
            Ribbon => points((-bits / 1.052).exp2()),
            Fuse => points((-(bits / 1.13).floor().max(1.0)).exp2()),
            Xor => points((-(bits / 1.23).floor().max(1.0)).exp2()),
            Cuckoo => {
                let fingerprint = (bits * 0.95).floor().max(1.0);
                points(8.0 * (fingerprint / bits).min(0.95) * (-fingerprint).exp2())
            }
            SurfBase => trie(0.0, 0.0),
            SurfHash => trie(suffix, 0.0),
            SurfReal => trie(0.0, suffix),
            SurfMixed => trie((suffix / 2.0).ceil(), (suffix / 2.0).floor()),
            // The eight bytes after the common prefix hardly distinguish strings.
            Snarf if strings => {
                Rates { point: if near { 0.8 } else { 0.6 }, range: if near { 0.8 } else { 0.6 } }
            }
            Rosetta | REncoder | Grafite if strings => {
                Rates { point: if near { 0.6 } else { 0.3 }, range: 0.7 }
            }
            Snarf => {
                let rate = if near { 1.0 } else { (-(bits - 2.3)).exp2().min(1.0) };
                Rates { point: rate, range: rate }
            }
            // The sum of the levels below the width of the range; measured 0.12 % and 7.3 % at 14
            // bits and 64 neighbours.
            Rosetta | REncoder => Rates {
                point: (0.0012 * (-0.69 * (bits - 14.0)).exp2()).min(1.0),
                range: (0.073 * (width / 64.0).max(1.0 / 64.0) * (-0.69 * (bits - 14.0)).exp2()).min(1.0),
            },
            Grafite => {
                let cell = (-(bits - 2.0)).exp2();
                Rates { point: cell.min(1.0), range: (width.max(1.0) * cell).min(1.0) }
            }
            Grf | GrfHuffman | Chucky | Remix => points(1.0),
        }
    }

    /// Returns the runs that one probe of a global filter names besides those that hold something,
    /// for an absent key and for an empty range. `shares` are the runs' fractions of all entries,
    /// newest first. Closed forms for filters as the engine builds them: Grf spends the bits
    /// requested in every state of the tree, the others have room for future entries, so that for
    /// the same total each entry has fewer bits than in a full filter.
    pub(crate) fn named_runs(self, bits: f64, keys: Keys, near: f64, shares: &[f64]) -> Rates {
        let runs = shares.len() as f64;
        // A segment of this many keys names every run that has one of them.
        let segment =
            |keys: f64| shares.iter().map(|share| 1.0 - (1.0 - share).max(0.0).powf(keys)).sum::<f64>();
        let entropy = crate::grf::entropy_bits(shares);
        let rates = match self {
            Grf => {
                // More than an even map and codes of the length of the entropy would allow: maps
                // that keep the order of keys are uneven, and codes longer. With 8 to 14 bits, 1.2
                // to 1.6 times were observed in the engine with one run, 2.0 to 2.3 with eight of
                // equal size, 1.4 to 2.4 with a tenth of the entries in ten smaller runs.
                let uneven = if shares.len() > 1 { 2.1 } else { 1.5 };
                let rate = uneven * crate::grf::global_rate(bits, shares);
                match keys {
                    Keys::Integers => {
                        Rates { point: rate * (1.0 - near) + near, range: rate * (1.0 - near) + near }
                    }
                    Keys::Strings => Rates { point: rate, range: segment(128.0) },
                }
            }
            GrfHuffman => {
                // At 10 bits, 1.9 % were observed in one run and 16 % in eight of similar size, at
                // 14 bits 0.14 and 1.2 %.
                let rate = (-(bits - entropy - 4.4)).exp2();
                match keys {
                    Keys::Integers => {
                        Rates { point: rate * (1.0 - near) + near, range: rate * (1.0 - near) + near }
                    }
                    Keys::Strings => Rates { point: rate, range: segment(128.0) },
                }
            }
            Chucky => {
                // Fingerprints have at least five bits, eight of them are compared, and widths are
                // whole bits: up to eleven bits, 0.18 to 0.22 are named. One run: 0.095 at 12 bits,
                // 0.006 at 13, 0.003 at 14 and at 16; eight of similar size: 0.055 at 13, 0.028 at
                // 14, 0.007 at 16.
                let codes = 1.3 * (entropy - 0.8).max(0.0);
                let seen = [(11.0, 2.35), (12.0, 3.4), (13.0, 7.2), (14.0, 8.2), (16.0, 8.2), (20.0, 11.5)];
                let of_one = seen.windows(2).rev().find(|pair| bits >= pair[0].0).map_or(2.35, |pair| {
                    let ((a, low), (b, high)) = (pair[0], pair[1]);
                    low + (high - low) * ((bits - a) / (b - a)).min(1.0)
                });
                let exponent = of_one.min(bits - 6.0 - codes).max(2.2);
                Rates { point: (-exponent).exp2(), range: runs }
            }
            Remix => Rates { point: segment(REMIX_SEGMENT), range: segment(REMIX_SEGMENT) },
            _ => Rates { point: runs, range: runs },
        };
        Rates { point: rates.point.clamp(0.0, runs), range: rates.range.clamp(0.0, runs) }
    }
}
