//! The levels of a tree, read from its files, since SurrealKV tells them of closed databases only.
//!
//! Its `inspect` module reads the manifest of a directory and opens the tables that it lists. It
//! also removes what unfinished writes of the manifest have left, which would break one that is
//! going on. So it looks at a directory of its own, with a copy of the manifest, which is replaced
//! as a whole, and links to logs and tables. A compaction may remove a table before it is opened
//! there: then the manifest is a newer one, and is read again.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use ::surrealkv::inspect;

/// When compaction is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Tables of level 0.
    pub(super) tables: usize,
    /// Bytes of level 0, and of level 1.
    pub(super) bytes: u64,
    /// Ratio of the bytes of a level to those of the one above.
    pub(super) ratio: f64,
}

/// Number of tables and bytes of each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Levels(Vec<(usize, u64)>);

/// The manifest, in a database.
const MANIFEST: &str = "manifest/00000000000000000000.manifest";

impl Levels {
    /// Returns those of the database in a directory.
    pub(super) fn of(dir: &Path) -> Result<Levels, String> {
        let beside = tempfile::tempdir().map_err(|error| error.to_string())?;
        link(dir, beside.path()).map_err(|error| error.to_string())?;
        let mut manifest = Vec::new();
        loop {
            let now = fs::read(dir.join(MANIFEST)).map_err(|error| error.to_string())?;
            fs::write(beside.path().join(MANIFEST), &now).map_err(|error| error.to_string())?;
            match inspect::inspect_db(beside.path()) {
                Ok(info) => {
                    let levels = info.levels.iter().map(|level| (level.table_count, level.total_bytes));
                    return Ok(Levels(levels.collect()));
                }
                Err(error) if now == manifest => return Err(error.to_string()),
                Err(_) => manifest = now,
            }
        }
    }

    /// Reports whether its own rules ask for a compaction.
    pub(super) fn is_due(&self, limits: &Limits) -> bool {
        let mut most = limits.bytes as f64;
        self.0.iter().enumerate().any(|(level, &(tables, bytes))| {
            if level > 1 {
                most *= limits.ratio;
            }
            // The last level has none below it.
            level + 1 < self.0.len() && bytes as f64 >= most || level == 0 && tables >= limits.tables
        })
    }

    /// Returns the number of sorted runs.
    pub(super) fn runs(&self) -> u64 {
        let runs =
            |(level, &(tables, _)): (usize, &(usize, u64))| if level == 0 { tables } else { tables.min(1) };
        self.0.iter().enumerate().map(|level| runs(level) as u64).sum()
    }
}

/// Makes a directory in which a copy of the manifest can be read.
fn link(dir: &Path, beside: &Path) -> io::Result<()> {
    fs::create_dir(beside.join("manifest"))?;
    for part in ["sstables", "wal"] {
        symlink(std::path::absolute(dir.join(part))?, beside.join(part))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { tables: 4, bytes: 100, ratio: 10.0 };

    #[test]
    fn every_table_of_level_0_is_a_run_and_every_other_level_that_has_tables() {
        assert_eq!(Levels(vec![(3, 30), (0, 0), (5, 50), (2, 20)]).runs(), 5);
        assert_eq!(Levels(vec![(0, 0), (0, 0)]).runs(), 0);
    }

    #[test]
    fn compaction_is_due_by_tables_of_level_0_and_by_bytes_of_all_but_the_last_level() {
        let due = |levels: &[(usize, u64)]| Levels(levels.to_vec()).is_due(&LIMITS);
        assert!(!due(&[(3, 99), (9, 99), (9, 999), (9, 99_999)]));
        assert!(due(&[(4, 9), (0, 0), (0, 0), (0, 0)]));
        assert!(due(&[(1, 100), (0, 0), (0, 0), (0, 0)]));
        assert!(due(&[(0, 0), (1, 100), (0, 0), (0, 0)]));
        assert!(due(&[(0, 0), (0, 0), (1, 1000), (0, 0)]));
    }
}
