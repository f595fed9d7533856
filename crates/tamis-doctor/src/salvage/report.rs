//! The report of what a salvage found, decided and did.

/// What a [salvage](crate::salvage()) found and did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SalvageReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Whether the tree had to be rebuilt from the tables found, because the manifest does not
    /// describe it (any more).
    pub rebuilt: bool,
    /// What is wrong with `CURRENT` and the manifest, in words; empty if nothing is.
    pub manifest: Vec<String>,
    /// Every table in the directory or named by the manifest, by number.
    pub tables: Vec<SalvagedTable>,
    /// Every log in the directory, by number.
    pub logs: Vec<SalvagedLog>,
    /// The keyspaces, by number.
    pub keyspaces: Vec<SalvagedKeyspace>,
    /// Names of other files that are set aside, or copied before they are replaced: manifests,
    /// filter files, blob files, `CURRENT`, `OPTIONS`.
    pub others: Vec<String>,
    /// What was done: the files that got a second name, each with that name, by name. Empty if
    /// nothing was changed.
    pub moved: Vec<(String, String)>,
    /// Entries in all tables that could be opened.
    pub entries_found: u64,
    /// Entries in the tables that are now part of the database. The difference is superseded data,
    /// not a loss.
    pub entries_kept: u64,
    /// Writes in logs that are not in any table yet.
    pub writes_replayed: u64,
    /// What is lost, or may be, one sentence each. Empty: nothing was lost.
    pub losses: Vec<String>,
    /// Other notable findings, none of them a loss.
    pub notes: Vec<String>,
    /// What the opening that put the restored state in force warned of; empty if nothing was
    /// changed.
    pub warnings: Vec<String>,
}

impl SalvageReport {
    /// Reports whether anything is wrong that a salvage would repair.
    pub fn is_needed(&self) -> bool {
        self.rebuilt || !self.manifest.is_empty() || !self.losses.is_empty()
    }
}

/// What happens to a table in a salvage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TableFate {
    /// It is part of the database.
    Kept,
    /// All of its contents are in other tables that are kept. It is set aside.
    Superseded,
    /// It is unusable, and is set aside.
    SetAside,
    /// The manifest names it, but there is no such file.
    Missing,
}

impl TableFate {
    /// Returns the fate in one or two words.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SalvagedTable {
    /// The file's name.
    pub file: String,
    /// The keyspace that it belongs to; empty if unknown.
    pub keyspace: String,
    /// Its number of entries, as far as known.
    pub entries: u64,
    /// What happens to it.
    pub fate: TableFate,
    /// Why; empty for a table that is kept because the manifest says so.
    pub why: String,
}

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SalvagedLog {
    /// The file's name.
    pub file: String,
    /// The number of writes that could be read.
    pub writes: u64,
    /// The number of those that are in no table yet: they are part of the database now.
    pub replayed: u64,
    /// What is damaged in it, in words.
    pub problems: Vec<String>,
}

/// One keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SalvagedKeyspace {
    /// Its name.
    pub name: String,
    /// Where its name and options come from, in words.
    pub source: String,
    /// The number of its tables now.
    pub tables: usize,
    /// The number of entries in them.
    pub entries: u64,
}
