//! Which sectors of the writes in a device's cache survive a power cut.

use super::SECTOR;

/// The sectors of a file system's block.
const BLOCK: usize = 8;

/// A way in which cached writes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Survival {
    /// All of them.
    All,
    /// None.
    Nothing,
    /// Each with this chance in percent, as a whole.
    Some(u8),
    /// All but one.
    AllButOne,
    /// Only one.
    One,
    /// Each as a whole, not at all, or in part: whole parts of so many sectors survive.
    Torn { atom: usize },
}

impl Survival {
    /// Draws a way.
    pub(crate) fn draw(rng: &mut fastrand::Rng) -> Survival {
        match rng.u32(..10) {
            0 => Survival::All,
            1 => Survival::Nothing,
            2..4 => Survival::Some([10, 50, 90][rng.usize(..3)]),
            4 => Survival::AllButOne,
            5 => Survival::One,
            _ => Survival::Torn { atom: [1, BLOCK][rng.usize(..2)] },
        }
    }

    /// Reports whether blocks of a file system may survive in part. ext4 and XFS do not promise to
    /// survive this: their own metadata has checksums, but a torn block of it cannot be repaired.
    pub(crate) fn tears_blocks(self) -> bool {
        matches!(self, Survival::Torn { atom } if atom < BLOCK)
    }

    /// Returns for each sector of each write whether it survives. The writes are given by their
    /// number of sectors.
    pub(super) fn choose(self, writes: &[usize], rng: &mut fastrand::Rng) -> Vec<Vec<bool>> {
        let special = if writes.is_empty() { 0 } else { rng.usize(..writes.len()) };
        let choose = |(number, sectors): (usize, &usize)| match self {
            Survival::All => vec![true; *sectors],
            Survival::Nothing => vec![false; *sectors],
            Survival::Some(percent) => vec![rng.u8(..100) < percent; *sectors],
            Survival::AllButOne => vec![number != special; *sectors],
            Survival::One => vec![number == special; *sectors],
            Survival::Torn { atom } => match rng.u32(..4) {
                0 if number != special => vec![true; *sectors],
                1 if number != special => vec![false; *sectors],
                _ => {
                    let atoms = tear(sectors.div_ceil(atom), rng);
                    (0..*sectors).map(|sector| atoms[sector / atom]).collect()
                }
            },
        };
        writes.iter().enumerate().map(choose).collect()
    }
}

impl std::fmt::Display for Survival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Survival::All => write!(f, "all"),
            Survival::Nothing => write!(f, "nothing"),
            Survival::Some(percent) => write!(f, "{percent} of 100"),
            Survival::AllButOne => write!(f, "all but one"),
            Survival::One => write!(f, "only one"),
            Survival::Torn { atom } => write!(f, "torn, {} bytes at a time", atom * SECTOR),
        }
    }
}

/// Returns which parts survive of a write that was under way.
fn tear(parts: usize, rng: &mut fastrand::Rng) -> Vec<bool> {
    let at = rng.usize(..parts.max(1));
    let way = rng.u32(..4);
    let survives = |part: usize| match way {
        0 => part < at,
        1 => part >= at,
        2 => part != at,
        _ => rng.bool(),
    };
    (0..parts).map(survives).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const WRITES: [usize; 4] = [1, 8, 2, 300];

    fn whole(kept: &[bool]) -> Option<bool> {
        let first = kept[0];
        kept.iter().all(|kept| *kept == first).then_some(first)
    }

    #[test]
    fn every_way_is_drawn_and_chooses_for_each_sector() {
        let mut rng = fastrand::Rng::with_seed(1);
        let drawn: BTreeSet<Survival> = (0..500).map(|_| Survival::draw(&mut rng)).collect();
        assert_eq!(drawn.len(), 9);
        for survival in drawn {
            let kept = survival.choose(&WRITES, &mut rng);
            assert_eq!(kept.iter().map(Vec::len).collect::<Vec<_>>(), WRITES, "{survival}");
            assert!(survival.choose(&[], &mut rng).is_empty());
        }
    }

    #[test]
    fn only_torn_writes_survive_in_part() {
        let mut rng = fastrand::Rng::with_seed(1);
        for survival in [Survival::All, Survival::Nothing, Survival::Some(50)] {
            let kept = survival.choose(&WRITES, &mut rng);
            assert!(kept.iter().all(|kept| whole(kept).is_some()), "{survival}");
        }
        let survivors = |survival: Survival, rng: &mut fastrand::Rng| {
            survival.choose(&WRITES, rng).iter().filter(|kept| whole(kept) == Some(true)).count()
        };
        assert_eq!(survivors(Survival::AllButOne, &mut rng), 3);
        assert_eq!(survivors(Survival::One, &mut rng), 1);
        let mut torn = BTreeSet::new();
        for _ in 0..200 {
            torn.extend(Survival::Torn { atom: 1 }.choose(&WRITES, &mut rng).iter().map(|kept| whole(kept)));
        }
        assert_eq!(torn.len(), 3);
    }

    #[test]
    fn writes_are_torn_in_every_way() {
        let mut rng = fastrand::Rng::with_seed(1);
        let torn: BTreeSet<Vec<bool>> = (0..1000).map(|_| tear(4, &mut rng)).collect();
        assert_eq!(torn.len(), 16);
        let blocks: BTreeSet<Vec<bool>> =
            (0..1000).flat_map(|_| Survival::Torn { atom: BLOCK }.choose(&[20], &mut rng)).collect();
        assert_eq!(blocks.len(), 8);
        assert!(blocks.iter().all(|kept| kept.chunks(BLOCK).all(|block| whole(block).is_some())));
    }
}
