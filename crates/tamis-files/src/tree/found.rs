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
    use std::sync::Arc;

    use super::*;
    use crate::tree::edit::{Ages, VersionEdit};
    use crate::tree::manifest::set_current;
    use crate::wal::double::ToyFs;

    const DIR: &str = "db";

    /// A file system orders names as text, where a number of seven digits comes before one of six.
    #[test]
    fn files_are_listed_by_number() {
        let fs = ToyFs::default();
        let numbers = [1_000_000, 999_999, 7];
        for number in numbers {
            let names = ["tam", "log", "flt", "blb"].map(|kind| format!("{number:06}.{kind}"));
            names.iter().for_each(|name| fs.set(Path::new(DIR).join(name), Vec::new()));
            fs.set(Path::new(DIR).join(manifest_name(number)), Vec::new());
        }
        let listed = fs.list(Path::new(DIR)).unwrap();
        assert!(
            listed.iter().position(|name| *name == "1000000.tam")
                < listed.iter().position(|name| *name == "999999.tam")
        );
        let files = Files::list(&fs, Path::new(DIR)).unwrap();
        let Files { tables, logs, manifests, filters, blobs } = files;
        for found in [tables, logs, manifests, filters, blobs] {
            assert_eq!(found, [7, 999_999, 1_000_000]);
        }
    }

    fn named(keyspace: &str) -> VersionEdit {
        VersionEdit { create_keyspaces: vec![(1, keyspace.into(), String::new())], ..VersionEdit::default() }
    }

    /// Writes a manifest with two records: a new database, and the creation of a keyspace. Returns
    /// where the second one starts.
    fn write(fs: &ToyFs, number: u64, keyspace: &str) -> u64 {
        let state = ManifestState::new("default", "");
        let mut manifest = Manifest::create(fs, Path::new(DIR), number, &state).unwrap();
        let start = manifest.len();
        manifest.append(&named(keyspace)).unwrap();
        manifest.close().unwrap();
        start
    }

    fn hurt(fs: &ToyFs, number: u64, at: u64) {
        let path = Path::new(DIR).join(manifest_name(number));
        let mut bytes = fs.bytes(&path);
        bytes[at as usize] ^= 1;
        fs.set(&path, bytes);
    }

    /// The names of the keyspaces of the manifest that is believed, its number, what is wrong with
    /// it, and what is wrong with `CURRENT`.
    type Found = (Option<(u64, Vec<String>)>, Vec<String>, Option<String>);

    fn found(fs: &ToyFs) -> Found {
        let files = Files::list(fs, Path::new(DIR)).unwrap();
        let Base { manifest, wrong, current } = find_base(fs, Path::new(DIR), &files).unwrap();
        let names =
            |state: &ManifestState| state.keyspaces.values().map(|stored| stored.name.to_string()).collect();
        let manifest = manifest.map(|loaded| (loaded.number, names(&loaded.state)));
        (manifest, wrong, current)
    }

    fn believed(number: u64, names: &[&str]) -> Option<(u64, Vec<String>)> {
        Some((number, names.iter().map(|&name| name.to_owned()).collect()))
    }

    #[test]
    fn the_manifest_in_force_is_believed_even_if_there_are_later_ones() {
        let fs = ToyFs::default();
        write(&fs, 3, "three");
        write(&fs, 4, "four");
        set_current(&fs, Path::new(DIR), 3).unwrap();
        assert_eq!(found(&fs), (believed(3, &["default", "three"]), vec![], None));
        // Without `CURRENT`, or a useful one, the newest is the most likely.
        let current = current_path(Path::new(DIR));
        fs.set(&current, b"MANIFEST-000009\n".to_vec());
        let (manifest, wrong, what) = found(&fs);
        assert_eq!((manifest, wrong), (believed(4, &["default", "four"]), vec![]));
        assert!(what.unwrap().ends_with("names MANIFEST-000009, which does not exist"));
        fs.set(&current, b"nonsense".to_vec());
        let (manifest, _, what) = found(&fs);
        assert_eq!(manifest, believed(4, &["default", "four"]));
        assert!(what.unwrap().ends_with("is damaged: it does not name a manifest"));
        fs.remove(&current).unwrap();
        let (manifest, _, what) = found(&fs);
        assert_eq!(manifest, believed(4, &["default", "four"]));
        assert!(what.unwrap().ends_with("is missing"));
    }

    /// A tree that lacks edits must be rebuilt: what is wrong with the manifest must be known.
    #[test]
    fn a_manifest_is_believed_up_to_its_damage_which_is_named() {
        let fs = ToyFs::default();
        let start = write(&fs, 3, "three");
        set_current(&fs, Path::new(DIR), 3).unwrap();
        hurt(&fs, 3, start + 8);
        let (manifest, wrong, current) = found(&fs);
        assert_eq!((manifest, current), (believed(3, &["default"]), None));
        let [damage] = &wrong[..] else { panic!("{wrong:?}") };
        let expected = format!("MANIFEST-000003 is damaged at offset {start}: ");
        assert!(damage.contains(&expected), "{damage}");
    }

    #[test]
    fn an_older_manifest_is_believed_if_that_in_force_has_no_record_left() {
        let fs = ToyFs::default();
        write(&fs, 3, "three");
        write(&fs, 4, "four");
        set_current(&fs, Path::new(DIR), 4).unwrap();
        hurt(&fs, 4, 40);
        let (manifest, wrong, current) = found(&fs);
        assert_eq!((manifest, current), (believed(3, &["default", "three"]), None));
        let [damage, older] = &wrong[..] else { panic!("{wrong:?}") };
        assert!(damage.contains("MANIFEST-000004 is damaged at offset"), "{damage}");
        let known = dir_of("MANIFEST-000003");
        assert_eq!(*older, format!("only {known} can be read, and it is older"));
        // Nothing is left.
        hurt(&fs, 3, 40);
        let (manifest, wrong, _) = found(&fs);
        assert_eq!((manifest, wrong.len()), (None, 2), "{wrong:?}");
        fs.remove_dir_all(Path::new(DIR)).unwrap();
        let (manifest, wrong, _) = found(&fs);
        assert_eq!((manifest, wrong), (None, vec!["there is no manifest".to_owned()]));
    }

    fn dir_of(name: &str) -> String {
        Path::new(DIR).join(name).display().to_string()
    }

    #[test]
    fn a_whole_manifest_with_an_impossible_state_is_not_believed() {
        let fs = ToyFs::default();
        let mut state = ManifestState::new("default", "");
        state.next_file = NUMBER_LIMIT;
        Manifest::create(&fs, Path::new(DIR), 3, &state).unwrap().close().unwrap();
        set_current(&fs, Path::new(DIR), 3).unwrap();
        let (manifest, wrong, _) = found(&fs);
        let what = "a counter has a value that no database reaches";
        let known = dir_of("MANIFEST-000003");
        assert_eq!((manifest, wrong), (None, vec![format!("{known} is damaged: {what}")]));
    }

    /// What a database may hold at most, and what is more than that.
    #[test]
    fn counters_may_reach_half_of_their_range() {
        let state = |change: &dyn Fn(&mut ManifestState)| {
            let mut state = ManifestState::new("default", "");
            change(&mut state);
            check_state(&state)
        };
        let epoch = |state: &mut ManifestState, epoch| {
            Arc::make_mut(state.keyspaces.get_mut(&DEFAULT_KEYSPACE).unwrap()).next_epoch = epoch;
        };
        for (more, is_right) in [(0, true), (1, false)] {
            let half = NUMBER_LIMIT / 2 + more;
            assert_eq!(state(&|state| state.next_file = half).is_ok(), is_right);
            assert_eq!(state(&|state| state.next_run = half).is_ok(), is_right);
            assert_eq!(state(&|state| epoch(state, half)).is_ok(), is_right);
            assert_eq!(
                state(&|state| state.next_keyspace = KeyspaceId::MAX / 2 + more as KeyspaceId).is_ok(),
                is_right
            );
            assert_eq!(state(&|state| state.last_seq = MAX_SEQNO / 2 + more).is_ok(), is_right);
            assert_eq!(check_last_seq(MAX_SEQNO / 2 + more).is_ok(), is_right);
            let floor = VersionEdit { log_floor: vec![(0, 100 + more)], ..VersionEdit::default() };
            assert_eq!(
                state(&|state| {
                    state.apply(&floor).unwrap();
                    state.next_file = 100;
                })
                .is_ok(),
                is_right
            );
            let ages = Ages { since: 0, expired: 5 + more };
            let edit = VersionEdit { ages: vec![(0, ages)], last_seq: Some(5), ..VersionEdit::default() };
            assert_eq!(state(&|state| state.apply(&edit).unwrap()).is_ok(), is_right);
        }
        assert!(check_state(&ManifestState::default()).unwrap_err().contains("default keyspace"));
    }

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
