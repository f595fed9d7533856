//! The hash-sharing paper's results on hash functions and single filters, measured again.
//!
//! Z. Zhu, J. H. Mun, A. Raman, M. Athanassoulis: "Reducing Bloom Filter CPU Overhead in LSM-Trees on Modern Storage
//! Devices" (DaMoN 2021): Tables 1 to 3 and Figures 3 to 6, all that needs no tree.
//!
//! | figure | module | what |
//! | --- | --- | --- |
//! | `hash-table2`, `hash-fig3`, `hash-table3` | `rates`, `rates_view` | false positives |
//! | `hash-fig4`, `hash-fig5` | `lookups` | time of lookups in one filter |
//! | `hash-table1` | `costs` | pages by device, hashes by function |
//! | `hash-fig6` | `gain` | the model over devices |
//!
//! `functions` has the paper's seven hash functions and ours, `reference` the filters that tamis does not have: with
//! *k* functions, and in units. Everything else queries the filters of tamis as an engine does. Timed sides are
//! interleaved (`timing`).
//!
//! Where the paper does not specify a function exactly: XX is XXH64, CRC is CRC-32C, MM is MurmurHash3 of 32 bits, MM64
//! is MurmurHash64A. Rotation is by half a word, after the digest is remixed; the paper's `h << 17 | h >> 15` does not
//! rotate words of 64 bits.
//!
//! Uses one thread, and memory for the keys of one step.

mod costs;
mod functions;
mod gain;
mod lookups;
mod rates;
mod rates_view;
mod reference;
pub(crate) mod rows;
pub(crate) mod timing;

use crate::figures::{About, Figure, Paper};
use costs::Costs;
use functions::Function;
use gain::Gain;
use lookups::Lookups;
use rates::{Rates, What};

/// The functions of the left side of Table 3, with the paper's rates.
const UNIT_FUNCTIONS: [(Function, f64); 4] = [
    (Function::Mm64, 0.008_29),
    (Function::Xx, 0.008_97),
    (Function::Crc, 0.008_41),
    (Function::City, 0.008_34),
];

/// The functions of its right side, each doubled with MM64, with the paper's rates.
const DOUBLE_FUNCTIONS: [(Function, f64); 3] =
    [(Function::Xx, 0.007_61), (Function::Crc, 0.008_08), (Function::City, 0.008_42)];

/// A difference from the paper in all figures of filters.
const ROTATION: &str = "Rotation is by half a word after a remix; XXH3, the digest of tamis, is compared with the paper's \
                        functions.";

fn about(
    name: &'static str,
    place: &'static str,
    title: &'static str,
    claim: &'static str,
    differs: &'static str,
) -> About {
    About { name, paper: Paper::HashSharing, place, title, claim, differs }
}

/// Returns the figures of the paper that need no tree, in its order.
pub fn figures() -> Vec<Box<dyn Figure>> {
    vec![
        Box::new(Costs {
            about: about(
                "hash-table1",
                "Table 1",
                "A page of 4 KiB by device, and a key of 1 KB by hash function",
                "Hashing 1 KB takes 176 ns (CITY) to 5.17 µs (SHA-256), a page 4.6 ms (hard disk), 113 µs (SSD), 10 µs (PCIe SSD), \
                 250 ns (NVM) or 160 ns (memory): hashing costs what an access to NVM costs.",
                "Devices are emulated with the paper's latencies; the disk, page cache and RAM disk of this \
                 machine are measured as well. A virtual disk may have a cache of its own.",
            ),
        }),
        Box::new(Rates {
            about: about(
                "hash-table2",
                "Table 2",
                "False positives of one digest and rotation compared with seven functions, 10 bits per key",
                "0.794 to 0.921 % with one function and rotation, 0.899 % with all seven; theory 0.819 %.",
                ROTATION,
            ),
            what: What::Table2,
        }),
        Box::new(Rates {
            about: about(
                "hash-fig3",
                "Figure 3",
                "False positives of one digest and rotation over bits per key",
                "With 1 to 13 bits per key one function and rotation is close to theory.",
                "Up to 20 bits per key. Beyond 10 bits there are more probes than functions; XXH3 under different seeds continues. \
                 Rotation is by half a word after a remix.",
            ),
            what: What::Figure3,
        }),
        Box::new(Lookups {
            about: about(
                "hash-fig4",
                "Figure 4",
                "Lookup of an absent key in one filter over the size of the key",
                "One function and rotation costs far less than seven functions, and MM64 far less than MD5; the cost grows with \
                 the key.",
                "Seven hashes are measured twice: all computed first, and each computed at its probe.",
            ),
            units: false,
        }),
        Box::new(Lookups {
            about: about(
                "hash-fig5",
                "Figure 5",
                "Lookup of an absent key in seven units over the size of the key",
                "Rotation is up to three times faster than double hashing, most with long keys.",
                ROTATION,
            ),
            units: true,
        }),
        Box::new(Rates {
            about: about(
                "hash-table3",
                "Table 3",
                "False positives of seven units of one probe each, rotation compared with double hashing",
                "0.829 to 0.897 % with rotation, 0.761 to 0.842 % with double hashing, like a standard filter.",
                ROTATION,
            ),
            what: What::Table3,
        }),
        Box::new(Gain {
            about: about(
                "hash-fig6",
                "Figure 6",
                "What hash sharing gains by the model and by counts of replayed gets, over devices",
                "Negligible on a hard disk, small on an SSD, more than 40 % on the fastest devices; more with tiering.",
                "T_P is not published: with none, with one access to memory, and with a probe measured here. The paper shows \
                 the model only; the replay counts digests, filters and blocks of gets in a tree.",
            ),
        }),
    ]
}

#[cfg(test)]
mod tests;
