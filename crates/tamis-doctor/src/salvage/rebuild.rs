//! Rebuilding the tree from the tables found.

use std::collections::BTreeMap;
use std::sync::Arc;

use tamis::repair::{DEFAULT_NAME, keyspace_options};
use tamis::{OpenError, StorageError};
use tamis_base::collections::{HashMap, HashSet};
use tamis_base::ids::{DEFAULT_KEYSPACE, KeyspaceId, LogId, TableId};
use tamis_base::key::SeqNo;
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::table_path;
use tamis_files::tree::found::{Base, check_state};
use tamis_files::tree::state::ManifestState;

use super::lineage::{Facts, decide};
use super::survey::{LogScan, Tables, examine};
use super::tree::place;
use super::{Plan, SalvageReport, TableFate, Work};

/// No database has this many keyspaces.
const MOST_KEYSPACES: KeyspaceId = KeyspaceId::MAX / 4;

/// Where the name of a keyspace comes from.
const FROM_MANIFEST: &str = "what can be read of the manifest";
const FROM_TABLES: &str = "its tables; its options are those of the default keyspace";
const FROM_LOGS: &str = "made up; its options are those of the default keyspace";
const FROM_OPTIONS: &str = "the options of this opening";

/// The known keyspaces.
struct Keyspaces {
    tree: ManifestState,
    /// Whether anything could be read from a manifest.
    read: bool,
    edit: VersionEdit,
    /// The new keyspaces, and where their names come from.
    new: BTreeMap<KeyspaceId, (String, &'static str)>,
}

impl Keyspaces {
    /// Reports whether the keyspace exists now, adding it if needed; `false` if it was dropped.
    fn take(&mut self, id: KeyspaceId, name: &str, source: &'static str, options: &str) -> bool {
        if self.tree.keyspaces.contains_key(&id) || self.new.contains_key(&id) {
            return true;
        }
        if self.read && id < self.tree.next_keyspace || id > MOST_KEYSPACES {
            return false;
        }
        let used =
            |name: &str| self.tree.named(name).is_some() || self.new.values().any(|(other, _)| other == name);
        let mut name = if name.is_empty() { format!("salvaged-{id}") } else { name.to_owned() };
        while used(&name) {
            name = format!("{name}-{id}");
        }
        self.edit.create_keyspaces.push((id, name.clone(), options.to_owned()));
        self.new.insert(id, (name, source));
        true
    }

    fn name(&self, id: KeyspaceId) -> String {
        let known = self.tree.keyspaces.get(&id).map(|state| (*state.name).to_owned());
        known.or_else(|| self.new.get(&id).map(|(name, _)| name.clone())).unwrap_or_default()
    }
}

impl Work<'_> {
    pub(super) fn rebuilt(mut self, base: &Base) -> Result<Plan, OpenError> {
        let own_options = self.options.keyspace.to_text();
        let read = base.manifest.is_some();
        let tree = match &base.manifest {
            Some(loaded) => loaded.state.clone(),
            None => ManifestState::new(DEFAULT_NAME, &own_options),
        };
        let number = base.manifest.as_ref().map_or(0, |loaded| loaded.number);
        let mut keyspaces = Keyspaces { tree, read, edit: VersionEdit::default(), new: BTreeMap::new() };

        // The keyspace that each table belongs to.
        let mut of_keyspace: BTreeMap<KeyspaceId, Tables> = BTreeMap::new();
        for (&id, d) in &self.usable {
            let own = d.origin.keyspace.unwrap_or(DEFAULT_KEYSPACE);
            let keyspace = self.named.get(&id).map_or(own, |(keyspace, _)| *keyspace);
            if keyspaces.take(keyspace, &d.origin.keyspace_name, FROM_TABLES, &own_options) {
                of_keyspace.entry(keyspace).or_default().insert(id, Arc::new(d.clone()));
            }
        }
        let mut fates: BTreeMap<TableId, (KeyspaceId, TableFate, String)> = BTreeMap::new();
        let mut covered: HashMap<KeyspaceId, SeqNo> = HashMap::default();
        let mut next_run = keyspaces.tree.next_run;
        let mut made_from: HashSet<TableId> = HashSet::default();
        let mut added = VersionEdit::default();
        for (&keyspace, tables) in &of_keyspace {
            let decided = {
                let all_usable =
                    self.named.iter().all(|(id, (of, _))| *of != keyspace || self.usable.contains_key(id));
                let mut examined: HashMap<TableId, bool> = HashMap::default();
                let mut sound = |id| match examined.get(&id) {
                    Some(sound) => Ok(*sound),
                    None => {
                        let sound = examine(self.fs, self.dir, id)?.is_none();
                        examined.insert(id, sound);
                        Ok(sound)
                    }
                };
                decide::<StorageError>(Facts {
                    tables,
                    there: &|id| self.files.tables.binary_search(&id).is_ok(),
                    named: &|id| all_usable && self.named.contains_key(&id),
                    sound: &mut sound,
                })?
            };
            self.report.losses.extend(decided.doubts);
            let mut kept = Vec::new();
            for (&id, d) in tables {
                match decided.out.get(&id) {
                    Some(why) => {
                        fates.insert(id, (keyspace, TableFate::Superseded, why.clone()));
                    }
                    None => {
                        fates.insert(id, (keyspace, TableFate::Kept, String::new()));
                        let up_to = covered.entry(keyspace).or_default();
                        *up_to = (*up_to).max(d.origin.flushed);
                        let merged = d.origin.merged.iter();
                        made_from.extend(merged.flat_map(|m| m.inputs.iter().chain(&m.before)));
                        kept.push(d.meta.clone());
                    }
                }
            }
            let options = match keyspaces.tree.keyspaces.get(&keyspace) {
                Some(state) if keyspace != DEFAULT_KEYSPACE => keyspace_options(&state.options)?,
                _ => self.options.keyspace.clone(),
            };
            self.report.losses.extend(place(keyspace, &options, kept, &mut next_run, &mut added));
        }
        self.note_fates(&keyspaces, &fates, &made_from);

        let floor = keyspaces.tree.log_floor();
        let (scans, unreadable) = self.scan_logs(floor, &covered)?;
        let needed = self.needed_logs(&scans, &keyspaces.tree);
        for scan in scans.iter().filter(|scan| !scan.unusable && needed.contains(&scan.id)) {
            for (&id, &first) in &scan.keyspaces {
                if first > covered.get(&id).copied().unwrap_or(0)
                    && !keyspaces.take(id, "", FROM_LOGS, &own_options)
                {
                    self.report
                        .notes
                        .push(format!("writes to keyspace {id}, which was dropped, are left out"));
                }
            }
        }
        let needed_scans: Vec<LogScan> = scans.iter().filter(|s| needed.contains(&s.id)).cloned().collect();
        self.note_logs(&needed_scans);

        let Keyspaces { mut tree, mut edit, new, .. } = keyspaces;
        let removed = tree.keyspaces.iter().flat_map(|(&id, ks)| ks.tables().map(move |t| (id, t.id)));
        let gone = VersionEdit { removed: removed.collect(), ..VersionEdit::default() };
        edit.added = added.added;
        edit.next_run = Some(next_run);
        let numbers = [&self.files.tables, &self.files.logs, &self.files.manifests, &self.files.blobs];
        let after_files = numbers.into_iter().flatten().max().map(|largest| largest + 1);
        edit.next_file = after_files.max(self.after_blobs());
        edit.last_seq = self.usable.values().map(|d| d.meta.max_seq.max(d.origin.flushed)).max();
        edit.floor = needed.first().copied().filter(|&first| first > floor);
        let ids: Vec<KeyspaceId> = tree.keyspaces.keys().chain(new.keys()).copied().collect();
        let misfit = |what: String| StorageError::corrupt(self.dir, None, what);
        tree.apply(&gone).map_err(misfit)?;
        tree.apply(&edit).map_err(misfit)?;
        check_state(&tree).map_err(|what| misfit(what.to_owned()))?;
        for id in ids {
            let source = match new.get(&id) {
                Some((_, source)) => source,
                None if read => FROM_MANIFEST,
                None => FROM_OPTIONS,
            };
            let name = tree.keyspaces[&id].name.clone();
            self.note_keyspace(&tree, id, &name, source);
            if new.contains_key(&id) {
                self.report.notes.push(format!("the options of keyspace `{name}` are not known"));
            }
        }
        Ok(self.finish(Plan {
            tree,
            number: number.max(1),
            end: None,
            covered,
            unreadable,
            report: SalvageReport::default(),
            second_names: Vec::new(),
        }))
    }

    /// Records what happens to each table, and which of that is a loss.
    fn note_fates(
        &mut self,
        keyspaces: &Keyspaces,
        fates: &BTreeMap<TableId, (KeyspaceId, TableFate, String)>,
        made_from: &HashSet<TableId>,
    ) {
        let mut ids: Vec<TableId> = self.files.tables.clone();
        ids.extend(self.named.keys().filter(|id| self.files.tables.binary_search(id).is_err()));
        ids.sort_unstable();
        for id in ids {
            if let Some((keyspace, fate, why)) = fates.get(&id) {
                self.note_table(id, keyspaces.name(*keyspace), *fate, why.clone());
                continue;
            }
            let path = table_path(self.dir, id);
            let named = self.named.get(&id).map(|(keyspace, meta)| (*keyspace, meta.clone()));
            let keyspace = named.as_ref().map(|(id, _)| keyspaces.name(*id)).unwrap_or_default();
            if self.usable.contains_key(&id) {
                self.note_table(id, keyspace, TableFate::SetAside, "its keyspace was dropped".to_owned());
                continue;
            }
            let superseded = made_from.contains(&id)
                || named.as_ref().is_some_and(|(keyspace, meta)| self.is_merged(*keyspace, meta, fates));
            match self.unusable.get(&id).cloned() {
                Some((why, _)) if superseded => {
                    let why = format!("{why}; its contents are in tables that were made from it");
                    self.note_table(id, keyspace, TableFate::Superseded, why);
                }
                Some((why, entries)) => {
                    let entries =
                        if entries > 0 { format!(" with its {entries} entries") } else { String::new() };
                    self.report.losses.push(format!("{} is left out{entries}: {why}", path.display()));
                    self.note_table(id, keyspace, TableFate::SetAside, why);
                }
                None if superseded => {}
                None => {
                    let entries = named.as_ref().map_or(0, |(_, meta)| meta.entries);
                    let path = path.display();
                    self.report.losses.push(format!(
                        "{path} with its {entries} entries is missing, and no table was made from it"
                    ));
                    self.note_table(id, keyspace, TableFate::Missing, "the manifest names it".to_owned());
                }
            }
        }
    }

    /// Reports whether a table named by the manifest went into one that is kept, through merges
    /// that left no trace.
    fn is_merged(
        &self,
        keyspace: KeyspaceId,
        meta: &tamis_base::meta::TableMeta,
        fates: &BTreeMap<TableId, (KeyspaceId, TableFate, String)>,
    ) -> bool {
        fates.iter().any(|(id, (of, fate, _))| {
            let later = |d: &super::Described| {
                d.origin.merged.as_ref().is_some_and(|merged| merged.mark > meta.id)
                    && d.stretch.as_ref().is_some_and(|stretch| super::lineage::epochs_meet(stretch, meta))
            };
            *of == keyspace && *fate == TableFate::Kept && self.usable.get(id).is_some_and(later)
        })
    }

    /// Returns the logs that hold writes which are in no table, and the logs after them. Includes
    /// at least the last readable log.
    fn needed_logs(&mut self, scans: &[LogScan], tree: &ManifestState) -> Vec<LogId> {
        let readable: Vec<&LogScan> = scans.iter().filter(|scan| !scan.unusable).collect();
        let first = readable.iter().position(|scan| scan.new > 0 || !scan.problems.is_empty());
        let first = first.unwrap_or(readable.len().saturating_sub(1));
        let needed = readable.get(first..).unwrap_or_default();
        let known = self.usable.values().map(|d| d.meta.max_seq.max(d.origin.flushed)).max().unwrap_or(0);
        let known = known.max(tree.last_seq);
        match needed.iter().find(|scan| scan.first_seq > 0) {
            Some(scan) if scan.first_seq > known + 1 => {
                let (from, to) = (known + 1, scan.first_seq - 1);
                self.report.losses.push(format!("the writes {from} to {to} are in no table and in no log"));
            }
            _ => {}
        }
        if self.files.logs.is_empty() {
            let what = "there is no log: writes that were in no table are lost, if there were any";
            self.report.losses.push(what.to_owned());
        }
        needed.iter().map(|scan| scan.id).collect()
    }
}
