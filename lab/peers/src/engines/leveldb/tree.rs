//! LevelDB's tree, parsed from its property `leveldb.sstables`, and whether a compaction of it is due.
//!
//! Source: LevelDB's `doc/impl.md` and the property itself: a line `--- level 1 ---` for every level, followed by a
//! line ` 17:2048['first' @ 3 : 1 .. 'last' @ 9 : 1]` for each table, with its number and its size in bytes. Keys are
//! escaped, so each table has one line.

/// Number of tables in level 0 from which a compaction is due.
const LEVEL0_TABLES: u64 = 4;

/// Size of level 1 in bytes from which a compaction is due; ten times as large with each level below.
const LEVEL1_BYTES: u64 = 10 << 20;

/// The number of tables of each level, and their size in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree {
    levels: Vec<(u64, u64)>,
}

impl Tree {
    /// Parses the property; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Tree> {
        let mut levels = Vec::new();
        for line in text.lines() {
            if let Some(level) = line.strip_prefix("--- level ") {
                let number: usize = level.strip_suffix(" ---")?.parse().ok()?;
                if number != levels.len() {
                    return None;
                }
                levels.push((0, 0));
            } else {
                let (number, rest) = line.trim_start().split_once(':')?;
                let (bytes, _) = rest.split_once('[')?;
                let (_, bytes): (u64, u64) = (number.parse().ok()?, bytes.parse().ok()?);
                let (tables, sum) = levels.last_mut()?;
                *tables += 1;
                *sum += bytes;
            }
        }
        (!levels.is_empty()).then_some(Tree { levels })
    }

    /// Counts sorted runs: the tables of level 0, and the other levels that are not empty.
    pub(super) fn runs(&self) -> u64 {
        let deeper = self.levels.iter().skip(1).filter(|(tables, _)| *tables > 0).count();
        self.levels.first().map_or(0, |(tables, _)| *tables) + deeper as u64
    }

    /// Reports whether a level is full enough for LevelDB to compact it. During a compaction its tables are still
    /// present.
    pub(super) fn is_compaction_due(&self) -> bool {
        let last = self.levels.len() - 1;
        let mut most = LEVEL1_BYTES;
        self.levels.iter().enumerate().take(last).any(|(level, (tables, bytes))| match level {
            0 => *tables >= LEVEL0_TABLES,
            _ => {
                let full = *bytes >= most;
                most *= 10;
                full
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(levels: &[&[u64]]) -> String {
        let mut text = String::new();
        for (level, tables) in levels.iter().enumerate() {
            text.push_str(&format!("--- level {level} ---\n"));
            for (i, bytes) in tables.iter().enumerate() {
                text.push_str(&format!(" {}:{bytes}['a[:\\x0a' @ 1 : 1 .. 'b' @ 2 : 1]\n", 10 * level + i));
            }
        }
        text
    }

    #[test]
    fn runs_are_tables_of_level_0_and_other_levels_that_are_not_empty() {
        let tree = Tree::parse(&tree(&[&[5, 6], &[], &[7, 8, 9], &[1], &[], &[], &[]])).unwrap();
        assert_eq!(tree.runs(), 4);
        assert_eq!(tree.levels[2], (3, 24));
        assert!(!tree.is_compaction_due());
    }

    #[test]
    fn levels_are_due_when_they_are_full() {
        let mib = 1 << 20;
        for (levels, due) in [
            ([&[1, 1, 1][..], &[10 * mib - 1], &[], &[], &[], &[], &[]], false),
            ([&[1, 1, 1, 1], &[], &[], &[], &[], &[], &[]], true),
            ([&[], &[6 * mib, 4 * mib], &[], &[], &[], &[], &[]], true),
            ([&[], &[], &[100 * mib - 1], &[], &[], &[], &[]], false),
            ([&[], &[], &[100 * mib], &[], &[], &[], &[]], true),
            ([&[], &[], &[], &[], &[], &[], &[1 << 50]], false),
        ] {
            assert_eq!(Tree::parse(&tree(&levels)).unwrap().is_compaction_due(), due, "{levels:?}");
        }
    }

    #[test]
    fn malformed_text_is_no_tree() {
        for text in ["", "hello", " 1:2['a' .. 'b']", "--- level 1 ---", "--- level 0 ---\n 1:x['a' .. 'b']"]
        {
            assert_eq!(Tree::parse(text), None, "{text}");
        }
    }
}
