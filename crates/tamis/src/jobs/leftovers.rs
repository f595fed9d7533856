//! Files that an earlier session or a crash left behind: removed, or kept for readers of changes. A
//! repair sets them aside instead.

use std::path::{Path, PathBuf};

use tamis_base::collections::{HashMap, HashSet};
use tamis_files::tree::files::{FileKind, log_path, name_of};
use tamis_files::tree::replay::first_write;

use crate::catalogue::keyspace::CONSUMERS_KEYSPACE;
use crate::error::{OpenError, StorageError};
use crate::session::Session;
use crate::session::repair::free_name;

impl Session {
    /// Removes the files found at opening that the session does not need.
    pub(crate) fn remove_unneeded(&self, files: &[(String, FileKind)]) {
        // Only a repair, which does not call this, can fail.
        let removed = remove_leftovers(self, files, &HashMap::default());
        debug_assert!(removed.is_ok(), "{removed:?}");
    }
}

/// Reports whether there may be readers of changes. After a repair, numbers may have gaps.
pub(crate) fn keeps_changes(db: &Session) -> bool {
    let has_consumers =
        db.keyspaces.directory.load().values().any(|keyspace| keyspace.name() == CONSUMERS_KEYSPACE);
    db.lifecycle.repaired.is_none() && (has_consumers || db.state().logs.keeps_changes())
}

/// Keeps the logs of earlier sessions for readers of changes, if there may be any.
fn retain_logs(db: &Session, files: &[(String, FileKind)]) {
    if !keeps_changes(db) || db.options.recover_to.is_some() {
        return;
    }
    let current = db.state().logs.current();
    let mut found = Vec::new();
    for (_, kind) in files {
        let FileKind::Log(id) = *kind else { continue };
        let path = log_path(&db.dir, id);
        if id >= current || !db.fs.exists(&path).unwrap_or(true) {
            continue;
        }
        match first_write(&*db.fs, &path, id) {
            Ok(Some((first, bytes))) => found.push((id, Some(first), bytes)),
            Ok(None) => {}
            Err(error) => {
                found.push((id, None, db.fs.file_len(&path).unwrap_or(0)));
                db.warn(format!("changes in a log cannot be read in this session: {error}"));
            }
        }
    }
    db.state().logs.retain_found(&found, db.now());
}

/// Removes what a crash or an earlier session left behind: unfinished tables, replayed logs, old
/// manifests. A repair sets such files aside instead; `preserved` files already have another name.
pub(crate) fn remove_leftovers(
    db: &Session,
    files: &[(String, FileKind)],
    preserved: &HashMap<PathBuf, PathBuf>,
) -> Result<(), OpenError> {
    retain_logs(db, files);
    let state = db.state();
    let tables: HashSet<u64> = state
        .catalogue
        .keyspaces()
        .values()
        .flat_map(|ks| ks.view.load().version.tables.clone())
        .map(|t| t.meta.id)
        .collect();
    let filter_files: HashSet<u64> = state
        .catalogue
        .tree()
        .keyspaces
        .values()
        .flat_map(|keyspace| keyspace.filter_files.keys().copied())
        .collect();
    // By the manifest: a table that could not be opened has its files, too.
    let named = state.catalogue.tree().keyspaces.values().flat_map(|keyspace| keyspace.tables());
    let blob_files: HashSet<u64> =
        named.flat_map(|meta| meta.extra.blobs.iter().map(|blob| blob.0)).collect();
    let (mut unnamed, mut second_names) = (Vec::new(), Vec::new());
    for (name, kind) in files {
        let path = db.dir.join(name);
        let keep = match kind {
            FileKind::Table(id) => tables.contains(id),
            FileKind::Log(id) => *id >= state.logs.current() || state.logs.retains(*id),
            FileKind::Manifest(number) => *number == state.catalogue.manifest_number(),
            FileKind::Filter(id) => filter_files.contains(id),
            FileKind::Blob(id) => blob_files.contains(id),
            // What an earlier session published last.
            FileKind::Temporary | FileKind::Stats => false,
            FileKind::Current | FileKind::Lock | FileKind::Options | FileKind::Reserve => true,
        };
        let is_data =
            matches!(kind, FileKind::Table(_) | FileKind::Blob(_) | FileKind::Log(_) | FileKind::Manifest(_));
        match (keep, preserved.get(&path)) {
            // A log of this number may have been created again.
            (true, _) => {}
            (false, Some(second)) => {
                second_names.push((path.clone(), second.clone()));
                db.files.garbage.push(path);
            }
            // A file that a damaged manifest does not name may be all that is left of its data.
            (false, None) if db.lifecycle.repaired.is_some() && is_data => unnamed.push(path),
            (false, None) => db.files.garbage.push(path),
        }
    }
    drop(state);
    for path in unnamed {
        let aside =
            free_name(&*db.fs, &path, ".aside").map_err(|e| StorageError::io("look for", &path, e))?;
        db.fs.rename(&path, &aside).map_err(|e| StorageError::io("set aside", &path, e))?;
        second_names.push((path, aside));
    }
    if let Some(repaired) = &db.lifecycle.repaired {
        let both = preserved.iter().chain(second_names.iter().map(|(path, aside)| (path, aside)));
        repaired.moved.lock().extend(both.map(|(path, aside)| (name_of(path), name_of(aside))));
    }
    // In an intact database, the new manifest and the tables hold everything that the old ones and
    // the logs did.
    let needed = db.lifecycle.repaired.as_ref().is_some_and(|repaired| repaired.needed);
    let is_table = |path: &Path| path.extension().is_some_and(|extension| extension == "tam");
    second_names.retain(|(path, _)| needed || is_table(path));
    for (path, aside) in second_names {
        let (path, aside) = (path.display(), aside.display());
        db.warn(format!("{path} is not part of the salvaged database; it is kept as {aside}"));
    }
    db.files.garbage.remove_all(&*db.fs);
    Ok(())
}
