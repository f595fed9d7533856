//! The figures.

use super::HashFigure;
use super::design::{Across, Design, USUAL};
use super::verdicts;
use crate::figures::{About, Paper};

/// Differences from the paper in all figures.
const DIFFERS: &str = "Digests are XXH3-64, which takes a fraction of the paper's MurmurHash64, so their part of a get is smaller. \
    Without sharing, our engine queries one filter after the other on its general path; with it, several at once: gains are given \
    in total and as the digests' part, which is the paper's gain. Devices are emulated unless marked as measured.";

/// The paper's five devices, the slowest first.
const DEVICES: &[&str] = &["ssd", "pcie-ssd", "spdk", "nvm", "memory"];

const ALPHAS: &[u64] = &[0, 20, 40, 60, 80, 100];

const fn about(name: &'static str, place: &'static str, title: &'static str, claim: &'static str) -> About {
    About { name, paper: Paper::HashSharing, place, title, claim, differs: DIFFERS }
}

pub(super) static FIGURES: [HashFigure; 10] = [
    HashFigure {
        about: about(
            "hash-fig1",
            "Figure 1",
            "Where a get's time goes, by share of empty queries and device; leveling",
            "On a fast PCIe SSD about 15 % of the time is hashing if no query is empty, and more than 75 % if all are; on \
             emulated NVM almost all of it.",
        ),
        design: Design { absents: ALPHAS, devices: DEVICES, ..USUAL },
        seconds: [6, 40, 14_000],
        judge: verdicts::figure_1,
    },
    HashFigure {
        about: about(
            "hash-fig2",
            "Figure 2",
            "Where a get's time goes, by share of empty queries and device; tiering with ten runs a level",
            "Hashing takes a larger share than with leveling.",
        ),
        design: Design {
            tiering: true,
            leveling_on: Some("pcie-ssd"),
            absents: ALPHAS,
            devices: DEVICES,
            ..USUAL
        },
        seconds: [8, 50, 16_000],
        judge: verdicts::figure_2,
    },
    HashFigure {
        about: about(
            "hash-fig8a",
            "Figure 8a",
            "Empty gets by size of keys, 8 B to 1 KB in entries of 2 KB",
            "The gain rises with the size of keys, up to 23 %; for keys of 1 KB the hashing falls to less than half.",
        ),
        design: Design {
            across: Across::KeyBytes,
            entry_bytes: 2048,
            key_bytes: &[8, 32, 128, 256, 512, 1024],
            ..USUAL
        },
        seconds: [5, 12, 3_600],
        judge: verdicts::figure_8a,
    },
    HashFigure {
        about: about(
            "hash-fig8b",
            "Figure 8b",
            "Empty gets by number of levels, 8 to 14 of size ratio 2",
            "Without sharing hashing grows with the levels, with it it does not; the gain rises a little.",
        ),
        design: Design {
            across: Across::Levels,
            size_ratio: 2,
            levels: &[8, 9, 10, 11, 12, 13, 14],
            ..USUAL
        },
        seconds: [5, 12, 3_600],
        judge: verdicts::figure_8b,
    },
    HashFigure {
        about: about(
            "hash-fig9",
            "Figure 9",
            "Empty gets of small keys, 8 to 128 bytes in entries of 512",
            "The gain vanishes as keys become small.",
        ),
        design: Design {
            across: Across::KeyBytes,
            entry_bytes: 512,
            key_bytes: &[8, 16, 32, 64, 128],
            ..USUAL
        },
        seconds: [5, 12, 3_600],
        judge: verdicts::figure_9,
    },
    HashFigure {
        about: about(
            "hash-fig10",
            "Figure 10",
            "Empty gets by size of keys, queried with Zipf's law and uniformly",
            "The gain rises steeply, to more than 60 % for keys of 1 KB.",
        ),
        design: Design {
            across: Across::KeyBytes,
            entry_bytes: 2048,
            key_bytes: &[8, 32, 128, 256, 512, 1024],
            skews: &[0.0, 0.99],
            ..USUAL
        },
        seconds: [5, 15, 4_000],
        judge: verdicts::figure_10,
    },
    HashFigure {
        about: about(
            "hash-fig11",
            "Figure 11",
            "Empty gets by device; with keys of 512 bytes, and with keys long enough that a digest costs as much as the paper's",
            "The gain rises from 10 % on an SSD to more than 40 % on a RAM disk that stands in for NVM.",
        ),
        design: Design {
            across: Across::Device,
            key_bytes: &[512, LONG_KEY_BYTES],
            devices: &["ssd", "pcie-ssd", "nvm", "memory", "disk", "page-cache", "ram-disk"],
            ..USUAL
        },
        seconds: [6, 25, 4_000],
        judge: verdicts::figure_11,
    },
    HashFigure {
        about: about(
            "hash-fig12",
            "Figure 12",
            "Empty gets by filter bits per key, 8 to 14, and device",
            "The gain rises with the bits; at 10 it is more than 10 % on a PCIe SSD and more than 40 % on emulated NVM.",
        ),
        design: Design {
            across: Across::Bits,
            bits: &[8.0, 10.0, 12.0, 14.0],
            devices: &["ssd", "pcie-ssd", "nvm"],
            ..USUAL
        },
        seconds: [5, 12, 4_000],
        judge: verdicts::figure_12,
    },
    HashFigure {
        about: about(
            "hash-fig13",
            "Figure 13",
            "Gets by share of empty queries on an SSD",
            "The gain rises from nothing to 17 %.",
        ),
        design: Design { absents: ALPHAS, devices: &["ssd"], ..USUAL },
        seconds: [5, 12, 4_000],
        judge: verdicts::figure_13,
    },
    HashFigure {
        about: about(
            "hash-fig14",
            "Figure 14",
            "Gets by share of empty queries on a RAM disk and on emulated NVM",
            "The gain rises from 10 % to more than 40 %.",
        ),
        design: Design { absents: ALPHAS, devices: &["nvm", "ram-disk"], ..USUAL },
        seconds: [5, 20, 1_000],
        judge: verdicts::figure_14,
    },
];

/// Size of a key whose XXH3 digest takes about as long as the paper's MurmurHash64 of 512 bytes: 118 ns.
const LONG_KEY_BYTES: usize = 3840;
