//! What a directory holds of a database, and which manifest to believe.

use std::path::Path;

use tamis_base::ids::{BlobFileId, DEFAULT_KEYSPACE, FilterFileId, KeyspaceId, LogId, TableId};
use tamis_base::key::{MAX_SEQNO, SeqNo};
use tamis_env::io::FileSystem;

use super::edit::NUMBER_LIMIT;
use super::files::{FileKind, current_path, manifest_name, parse};
use super::manifest::{LoadedManifest, Manifest, is_damage, read_current};
use super::state::ManifestState;
use crate::error::{FileError, StorageError};

/// The files of a database by kind and number, ascending.
#[derive(Debug, Default)]
pub struct Files {
    /// Tables.
    pub tables: Vec<TableId>,
    /// Logs.
    pub logs: Vec<LogId>,
    /// Manifests.
    pub manifests: Vec<u64>,
    /// Filter files.
    pub filters: Vec<FilterFileId>,
    /// Blob files.
    pub blobs: Vec<BlobFileId>,
}

impl Files {
    /// Lists those in `dir`.
    ///
    /// # Errors
    ///
    /// Failed system calls.
    pub fn list(fs: &dyn FileSystem, dir: &Path) -> Result<Files, StorageError> {
        let mut files = Files::default();
        for name in fs.list(dir).map_err(|e| StorageError::io("list", dir, e))? {
            match parse(&name) {
                Some(FileKind::Table(id)) => files.tables.push(id),
                Some(FileKind::Log(id)) => files.logs.push(id),
                Some(FileKind::Manifest(number)) => files.manifests.push(number),
                Some(FileKind::Filter(id)) => files.filters.push(id),
                Some(FileKind::Blob(id)) => files.blobs.push(id),
                _ => {}
            }
        }
        files.tables.sort_unstable();
        files.logs.sort_unstable();
        files.manifests.sort_unstable();
        files.filters.sort_unstable();
        files.blobs.sort_unstable();
        Ok(files)
    }

    /// Reports whether there is any file that could hold a database's data.
    pub fn any(&self) -> bool {
        !(self.tables.is_empty() && self.logs.is_empty() && self.manifests.is_empty())
    }
}

/// The manifest to believe, as far as it goes.
#[derive(Debug, Default)]
pub struct Base {
    /// `None` if no manifest can be read at all.
    pub manifest: Option<LoadedManifest>,
    /// What is wrong with it, so that the tree must be rebuilt.
    pub wrong: Vec<String>,
    /// What is wrong with `CURRENT`, if it is there.
    pub current: Option<String>,
}

/// Finds the manifest in force, or the one that most likely was.
///
/// # Errors
///
/// Failed reads.
pub fn find_base(fs: &dyn FileSystem, dir: &Path, files: &Files) -> Result<Base, FileError> {
    let mut base = Base::default();
    let path = current_path(dir);
    let named = match read_current(fs, dir) {
        Ok(Some(number)) if files.manifests.contains(&number) => Some(number),
        Ok(Some(number)) => {
            let name = manifest_name(number);
            base.current = Some(format!("{} names {name}, which does not exist", path.display()));
            None
        }
        Ok(None) => {
            base.current = Some(format!("{} is missing", path.display()));
            None
        }
        Err(error) if is_damage(&error) => {
            base.current = Some(format!("{} is damaged: it does not name a manifest", path.display()));
            None
        }
        Err(error) => return Err(error.into()),
    };
    let others = files.manifests.iter().rev().copied().filter(|number| Some(*number) != named);
    for number in named.into_iter().chain(others) {
        let (loaded, damage) = Manifest::read_what_is_there(fs, dir, number)?;
        let name = dir.join(manifest_name(number));
        let damage = damage.map(|error| match error {
            StorageError::Corrupt(damage) => {
                let at = damage.offset.map(|at| format!(" at offset {at}")).unwrap_or_default();
                format!("{} is damaged{at}: {}", name.display(), damage.what)
            }
            error => error.to_string(),
        });
        let usable = match (&damage, check_state(&loaded.state)) {
            (None, Err(what)) => Err(format!("{} is damaged: {what}", name.display())),
            (Some(damage), Err(_)) => Err(damage.clone()),
            (_, Ok(())) => Ok(()),
        };
        match usable {
            Ok(()) => {
                if named.is_some_and(|named| named != number) {
                    base.wrong.push(format!("only {} can be read, and it is older", name.display()));
                }
                base.wrong.extend(damage);
                base.manifest = Some(loaded);
                return Ok(base);
            }
            Err(why) => base.wrong.push(why),
        }
    }
    if base.wrong.is_empty() {
        base.wrong.push("there is no manifest".to_owned());
    }
    Ok(base)
}

/// Checks what every database must satisfy besides what its edits are checked for: it has the
/// default keyspace, and numbers left to assign. Numbers start at 1 and are used one by one, so in
/// a sound database none comes near half of its range; one at the end would make the database write
/// what it refuses to read.
///
/// # Errors
///
/// What is wrong, in words.
pub fn check_state(tree: &ManifestState) -> Result<(), &'static str> {
    if !tree.keyspaces.contains_key(&DEFAULT_KEYSPACE) {
        return Err("it lacks the default keyspace");
    }
    let numbers = [tree.next_file, tree.next_run];
    let epochs = tree.keyspaces.values().map(|keyspace| keyspace.next_epoch);
    let keyspaces_left = tree.next_keyspace <= KeyspaceId::MAX / 2;
    if numbers.into_iter().chain(epochs).any(|number| number > NUMBER_LIMIT / 2) || !keyspaces_left {
        return Err("a counter has a value that no database reaches");
    }
    if tree.keyspaces.values().any(|keyspace| tree.floor_of(keyspace) > tree.next_file) {
        // The logs of this session would be below the floor, and the next session would ignore
        // them.
        return Err("a keyspace has its writes in logs that were never created");
    }
    let ages = tree.keyspaces.values().filter_map(|keyspace| keyspace.ages);
    if ages.map(|ages| ages.since.max(ages.expired)).any(|seq| seq > tree.last_seq) {
        // Writes of this session would expire before they are made.
        return Err("it knows the age of writes that were never made");
    }
    check_last_seq(tree.last_seq)
}

/// Checks the number of the last write.
///
/// # Errors
///
/// What is wrong, in words.
pub fn check_last_seq(last_seq: SeqNo) -> Result<(), &'static str> {
    match last_seq <= MAX_SEQNO / 2 {
        true => Ok(()),
        false => Err("it holds a sequence number that no database reaches"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wal::double::ToyFs;

    /// A directory without any is taken for a new database, which would overwrite what is left of an
    /// old one.
    #[test]
    fn one_file_of_any_kind_that_holds_data_is_enough_for_a_database() {
        let any = |names: &[&str]| {
            let fs = ToyFs::default();
            names.iter().for_each(|name| fs.set(Path::new("db").join(name), Vec::new()));
            Files::list(&fs, Path::new("db")).unwrap().any()
        };
        assert!(any(&["000012.tam"]), "a table");
        assert!(any(&["000012.log"]), "a log");
        assert!(any(&["MANIFEST-000012"]), "a manifest");
        assert!(any(&["000012.tam", "000013.log", "MANIFEST-000014"]));
        assert!(!any(&[]));
        assert!(!any(&["000012.flt", "OPTIONS", "000012.log.old"]), "nothing that holds data");
    }
}
