//! What a salvage found, decided and did, for people.

/// What [`Db::salvage`](crate::Db::salvage) found and did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether the tree had to be made anew from the tables that are there, since the manifest does not tell it (any more).
    pub rebuilt: bool,
    /// What is wrong with `CURRENT` and the manifest, in words; empty if nothing is.
    pub manifest: Vec<String>,
    /// Every table in the directory or named by the manifest, by number.
    pub tables: Vec<SalvagedTable>,
    /// Every log in the directory, by number.
    pub logs: Vec<SalvagedLog>,
    /// The keyspaces, by number.
    pub keyspaces: Vec<SalvagedKeyspace>,
    /// Names of other files that are set aside: manifests, a damaged `CURRENT`.
    pub others: Vec<String>,
    /// Entries in all tables that could be opened.
    pub entries_found: u64,
    /// Entries in those that are part of the database now. What was superseded is missing here, and no loss.
    pub entries_kept: u64,
    /// Writes in logs that no table has yet.
    pub writes_replayed: u64,
    /// What is lost, or may be: a sentence each. Empty if nothing was lost.
    pub losses: Vec<String>,
    /// What is worth knowing and no loss.
    pub notes: Vec<String>,
}

impl SalvageReport {
    /// Whether anything is wrong that a salvage mends.
    pub fn is_needed(&self) -> bool {
        self.rebuilt || !self.manifest.is_empty() || !self.losses.is_empty()
    }
}

/// What becomes of a table in a salvage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableFate {
    /// It is part of the database.
    Kept,
    /// All that it says is in other tables that are kept. It is set aside.
    Superseded,
    /// It cannot be used, and is set aside.
    SetAside,
    /// The manifest names it, and there is no such file.
    Missing,
}

impl TableFate {
    /// The fate in a word or two.
    pub fn name(self) -> &'static str {
        match self {
            TableFate::Kept => "kept",
            TableFate::Superseded => "superseded",
            TableFate::SetAside => "set aside",
            TableFate::Missing => "missing",
        }
    }
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedTable {
    /// The file's name.
    pub file: String,
    /// The keyspace that it belongs to; empty if that is not known.
    pub keyspace: String,
    /// Entries in it, as far as that is known.
    pub entries: u64,
    /// What becomes of it.
    pub fate: TableFate,
    /// Why; empty for a table that is kept because the manifest says so.
    pub why: String,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedLog {
    /// The file's name.
    pub file: String,
    /// Writes that could be read.
    pub writes: u64,
    /// Those that no table has yet: they are part of the database now.
    pub replayed: u64,
    /// What is damaged in it, in words.
    pub problems: Vec<String>,
}

/// One keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvagedKeyspace {
    /// Its name.
    pub name: String,
    /// Where name and options come from, in words.
    pub source: String,
    /// Tables that it has now.
    pub tables: usize,
    /// Entries in them.
    pub entries: u64,
}
