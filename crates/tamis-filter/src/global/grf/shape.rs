//! Shape Encoding as in the paper (section 4.2): where a key of a tree with a deterministic
//! schedule is.
//!
//! A tree's *shape* is its number of runs per level, level 0 first. A key's code is the shape of
//! the tree when the key was flushed; a version's code is its own shape. Under tiering, a full
//! level `i` becomes one run of level `i + 1`, so the shape after some flushes is their number in a
//! mixed radix, and a key's code is the number of flushes before its own. The highest digit in
//! which a key's and a version's code differ is the key's level, and the key's digit there is its
//! run: the paper's longest common suffix.
//!
//! [`Partition`](super::Partition) stores intervals of flushes instead, which are correct for any
//! schedule. For the schedules of the paper both agree, which a test checks.

/// The schedule of the levels above the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Runs of level `i` that make one of level `i + 1`, level 0 first, without the last level. All
    /// nonzero.
    pub radices: Vec<u32>,
}

impl Shape {
    /// Returns the code of a key that was flushed after `flush` other flushes (since the last
    /// compaction of the last level): one digit per level, level 0 first. The highest digit takes
    /// the whole remainder.
    ///
    /// # Panics
    /// If a radix is 0.
    pub fn kse(&self, flush: u64) -> Vec<u64> {
        let mut left = flush;
        let top = self.radices.len().saturating_sub(1);
        let digits = self.radices.iter().enumerate().map(|(level, &radix)| {
            let digit = if level == top { left } else { left % u64::from(radix) };
            left /= u64::from(radix);
            digit
        });
        digits.collect()
    }

    /// Returns the code of the version after `flushes` flushes: its runs per level.
    ///
    /// # Panics
    /// If a radix is 0.
    pub fn vse(&self, flushes: u64) -> Vec<u64> {
        self.kse(flushes)
    }

    /// Returns the level and run of a key in a version, from their codes; `None` if the key is
    /// newer than the version. The low digits that garbage collection has dropped may be missing
    /// from the key: [`Shape::kept`] are enough.
    pub fn locate(kse: &[u64], vse: &[u64]) -> Option<(usize, u64)> {
        let dropped = vse.len().saturating_sub(kse.len());
        let (at, (&key, &version)) = kse
            .iter()
            .zip(vse.get(dropped..)?)
            .enumerate()
            .rev()
            .find(|(_, (key, version))| key != version)?;
        (key < version).then_some((dropped + at, key))
    }

    /// Returns how many of a key's highest digits are needed while `oldest` is the oldest live
    /// version: those that the two have in common, and one more. For a key newer than `oldest`,
    /// all.
    pub fn kept(kse: &[u64], oldest: &[u64]) -> usize {
        if Shape::locate(kse, oldest).is_none() {
            return kse.len();
        }
        let common =
            kse.iter().rev().zip(oldest.iter().rev()).take_while(|(key, version)| key == version).count();
        (common + 1).min(kse.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_in_the_paper() {
        let shape = Shape { radices: vec![4, 4, 4] };
        assert_eq!(shape.kse(25), [1, 2, 1]);
        assert_eq!(shape.vse(31), [3, 3, 1]);
        // Figure 8, followed by the digit of the last level: run 2 of level 1.
        let (kse, vse) = ([1, 2, 1, 1], [3, 3, 1, 1]);
        assert_eq!(Shape::locate(&kse, &vse), Some((1, 2)));
        // The common suffix has two digits, so three are kept, and they give the same answer.
        assert_eq!(Shape::kept(&kse, &vse), 3);
        assert_eq!(Shape::locate(&kse[1..], &vse), Some((1, 2)));
        assert_eq!(Shape::kept(&vse, &kse), 4, "newer than the version");
        assert_eq!(Shape::locate(&vse, &kse), None, "newer than the version");
        assert_eq!(Shape::locate(&kse, &kse), None, "flushed next");
    }

    /// Returns the runs of a tree under tiering, level by level, oldest first: which flushes each
    /// holds.
    fn tree(radices: &[u32], flushes: u64) -> Vec<Vec<Vec<u64>>> {
        let mut levels = vec![Vec::<Vec<u64>>::new(); radices.len()];
        for flush in 0..flushes {
            levels[0].push(vec![flush]);
            for level in 0..radices.len() - 1 {
                if levels[level].len() == radices[level] as usize {
                    let run = levels[level].drain(..).flatten().collect();
                    levels[level + 1].push(run);
                }
            }
        }
        levels
    }

    #[test]
    fn codes_say_where_keys_are() {
        for radices in [vec![3, 3, 3], vec![2, 5, 3], vec![10, 10], vec![4]] {
            let shape = Shape { radices };
            let all: u64 = shape.radices.iter().map(|&radix| u64::from(radix)).product();
            for flushes in 0..all {
                let levels = tree(&shape.radices, flushes);
                let vse = shape.vse(flushes);
                assert_eq!(vse, levels.iter().map(|runs| runs.len() as u64).collect::<Vec<_>>());
                for flush in 0..flushes {
                    let kse = shape.kse(flush);
                    let (level, run) = Shape::locate(&kse, &vse).expect("older than the version");
                    assert!(levels[level][run as usize].contains(&flush), "flush {flush} of {flushes}");
                    let kept = &kse[kse.len() - Shape::kept(&kse, &vse)..];
                    assert_eq!(Shape::locate(kept, &vse), Some((level, run)));
                }
            }
        }
    }
}
