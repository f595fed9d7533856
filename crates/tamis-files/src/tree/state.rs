//! The state that a manifest's edits add up to, as plain data.
//!
//! Invariants, kept by [`ManifestState::apply`]:
//!
//! * table ids and keyspace names are unique across the database;
//! * the tables of a run are ordered by key and disjoint;
//! * no run is empty;
//! * each counter exceeds every number of its kind in the state.
//!
//! A manifest is untrusted until it is applied. No part of an edit may take time proportional to
//! the state, or a manifest of a few megabytes could make opening take hours.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use tamis_base::collections::SharedMap;
use tamis_base::epochs::Epoch;
use tamis_base::ids::{DEFAULT_KEYSPACE, FilterFileId, KeyspaceId, LogId, RunId, TableId};
use tamis_base::key::{KeyBytes, SeqNo};
use tamis_base::meta::TableMeta;

use crate::tree::edit::{Ages, MAX_LEVEL, NUMBER_LIMIT, VersionEdit};
use crate::tree::times::SeqTimes;

/// One keyspace as the manifest records it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyspaceState {
    /// The keyspace's name.
    pub name: Arc<str>,
    /// Its options text, which many keyspaces share.
    pub options: Arc<str>,
    /// Logs with smaller ids hold no write of the keyspace that its tables lack; see
    /// [`ManifestState::floor_of`].
    pub log_floor: LogId,
    /// The first epoch not assigned to a flush of the keyspace.
    pub next_epoch: Epoch,
    /// The tables by level and run.
    pub runs: BTreeMap<(u32, RunId), RunTables>,
    /// What is known about the age of its entries, if it ever had a time to live.
    pub ages: Option<Ages>,
    /// The filter files that hold images of its global filter, and their sizes in bytes.
    pub filter_files: BTreeMap<FilterFileId, u64>,
}

impl KeyspaceState {
    /// All tables, by level, run and key.
    pub fn tables(&self) -> impl Iterator<Item = &TableMeta> {
        self.runs.values().flatten().map(|table| &**table)
    }
}

/// The tables of one run, ordered by key. Their key ranges are disjoint, so a smallest key
/// identifies a table. Tables are shared, which makes copying the state cheap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunTables(BTreeMap<KeyBytes, Arc<TableMeta>>);

impl RunTables {
    /// The tables in key order.
    pub fn iter(&self) -> btree_map::Values<'_, KeyBytes, Arc<TableMeta>> {
        self.0.values()
    }

    /// Adds a table, or returns the id of one that it overlaps.
    fn insert(&mut self, table: &TableMeta) -> Result<(), TableId> {
        let smallest = &table.smallest;
        let before = self.0.range(..=smallest.clone()).next_back();
        let after = self.0.range(smallest.clone()..).next();
        let mut neighbours = before.into_iter().chain(after).map(|(_, other)| other);
        if let Some(other) = neighbours.find(|other| other.overlaps(table)) {
            return Err(other.id);
        }
        self.0.insert(smallest.clone(), Arc::new(table.clone()));
        Ok(())
    }
}

impl<'a> IntoIterator for &'a RunTables {
    type Item = &'a Arc<TableMeta>;
    type IntoIter = btree_map::Values<'a, KeyBytes, Arc<TableMeta>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
impl FromIterator<Arc<TableMeta>> for RunTables {
    fn from_iter<I: IntoIterator<Item = Arc<TableMeta>>>(tables: I) -> Self {
        RunTables(tables.into_iter().map(|table| (table.smallest.clone(), table)).collect())
    }
}

/// The shape of a database. Read the fields freely; change them only through
/// [`apply`](Self::apply). A copy shares everything until it changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManifestState {
    /// The first unused file number.
    pub next_file: u64,
    /// An upper bound on the sequence numbers in tables.
    pub last_seq: SeqNo,
    /// The first unused run number.
    pub next_run: RunId,
    /// The first unused keyspace number.
    pub next_keyspace: KeyspaceId,
    /// No keyspace needs logs with smaller ids; 0 if the manifest has only per-keyspace floors.
    floor: LogId,
    /// The keyspaces by number.
    pub keyspaces: SharedMap<KeyspaceId, Arc<KeyspaceState>>,
    /// Times of writes.
    pub times: SeqTimes,
    /// The last saved hotness of tables with elastic filters, encoded.
    hotness: SharedMap<TableId, Arc<[u8]>>,
    /// The location of each table: keyspace, level, run and smallest key.
    places: SharedMap<TableId, (KeyspaceId, u32, RunId, KeyBytes)>,
    /// The keyspaces by name.
    names: SharedMap<Arc<str>, KeyspaceId>,
}

impl ManifestState {
    /// Creates a new database's state: the default keyspace, no tables.
    pub fn new(default_name: &str, default_options: &str) -> ManifestState {
        let keyspace = KeyspaceState {
            name: default_name.into(),
            options: default_options.into(),
            next_epoch: 1,
            ..Default::default()
        };
        ManifestState {
            next_file: 1,
            next_run: 1,
            next_keyspace: DEFAULT_KEYSPACE + 1,
            keyspaces: std::iter::once((DEFAULT_KEYSPACE, Arc::new(keyspace))).collect(),
            names: std::iter::once((default_name.into(), DEFAULT_KEYSPACE)).collect(),
            ..Default::default()
        }
    }

    /// The number of tables.
    #[cfg(test)]
    pub(crate) fn table_count(&self) -> usize {
        self.places.len()
    }

    /// Returns the last saved hotness of a table.
    pub fn hotness(&self, table: TableId) -> Option<&[u8]> {
        self.hotness.get(&table).map(|bytes| &bytes[..])
    }

    /// Returns the keyspaces by name.
    pub fn names(&self) -> &SharedMap<Arc<str>, KeyspaceId> {
        &self.names
    }

    /// Returns the keyspace with this name.
    pub fn named(&self, name: &str) -> Option<KeyspaceId> {
        self.names.get(name).copied()
    }

    /// The smallest log floor: no keyspace needs logs with smaller ids.
    pub fn log_floor(&self) -> LogId {
        match self.floor {
            0 => self.keyspaces.values().map(|keyspace| keyspace.log_floor).min().unwrap_or(0),
            floor => floor,
        }
    }

    /// The log floor of a keyspace: logs with smaller ids hold no write of it that its tables lack.
    pub fn floor_of(&self, keyspace: &KeyspaceState) -> LogId {
        keyspace.log_floor.max(self.floor)
    }

    /// Forgets the writes after `until`. If tables or recorded ages already reach beyond `until`,
    /// returns the smallest bound that they allow as an error.
    pub fn cut_at(&mut self, until: SeqNo) -> Result<(), SeqNo> {
        let newest = |keyspace: &Arc<KeyspaceState>| {
            let tables = keyspace.tables().map(|table| table.max_seq);
            tables.chain(keyspace.ages.map(|ages| ages.since.max(ages.expired))).max().unwrap_or(0)
        };
        let oldest = self.keyspaces.values().map(newest).max().unwrap_or(0);
        if oldest > until {
            return Err(oldest);
        }
        self.last_seq = self.last_seq.min(until);
        self.times.cut_at(until);
        Ok(())
    }

    /// Takes the keyspace's next epoch, which is never assigned again; `None` if there is no such
    /// keyspace. The caller must record its use in an edit.
    pub fn take_epoch(&mut self, keyspace: KeyspaceId) -> Option<Epoch> {
        let next = &mut Arc::make_mut(self.keyspaces.get_mut(&keyspace)?).next_epoch;
        *next += 1;
        Some(*next - 1)
    }

    /// Applies an edit, part by part in the order given at [`VersionEdit`].
    ///
    /// Returns an error message if the edit does not apply: an unknown keyspace or table, an id in
    /// use, or overlapping tables in a run. The state is then partly changed and must be discarded.
    ///
    /// Cost: for each table added or removed, one map lookup and a search among the tables of its
    /// run.
    pub fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        for (id, name, options) in &edit.create_keyspaces {
            self.create_keyspace(*id, name, options)?;
        }
        for (id, name) in &edit.rename_keyspaces {
            self.rename_keyspace(*id, name)?;
        }
        for (id, options) in &edit.set_options {
            let options = self.shared_options(options);
            self.keyspace(*id)?.options = options;
        }
        for (id, floor) in &edit.log_floor {
            let keyspace = self.keyspace(*id)?;
            keyspace.log_floor = keyspace.log_floor.max(*floor);
        }
        raise(&mut self.floor, edit.floor);
        for (id, epoch) in &edit.next_epochs {
            raise(&mut self.keyspace(*id)?.next_epoch, Some(*epoch));
        }
        if edit.next_epoch.is_some() {
            for keyspace in self.keyspaces.values_mut() {
                raise(&mut Arc::make_mut(keyspace).next_epoch, edit.next_epoch);
            }
        }
        for (keyspace, table) in &edit.removed {
            self.remove_table(*keyspace, *table)?;
        }
        for (keyspace, level, run, table) in &edit.added {
            self.add_table(*keyspace, *level, *run, table)?;
        }
        for (_, table) in edit.removed.iter().filter(|(_, table)| !self.places.contains_key(table)) {
            self.hotness.remove(table);
        }
        for (table, hotness) in &edit.hotness {
            // Hotness is advisory: an unknown table is ignored, not an error.
            if self.places.contains_key(table) {
                self.hotness.insert(*table, hotness[..].into());
            }
        }
        for (id, ages) in &edit.ages {
            let known = self.keyspace(*id)?.ages.get_or_insert_default();
            raise(&mut known.since, Some(ages.since));
            raise(&mut known.expired, Some(ages.expired));
        }
        // Filter files are advisory: an unknown keyspace or file is ignored.
        for (id, file) in &edit.removed_filters {
            if let Some(keyspace) = self.keyspaces.get_mut(id) {
                Arc::make_mut(keyspace).filter_files.remove(file);
            }
        }
        for (id, file, bytes) in &edit.added_filters {
            if let Some(keyspace) = self.keyspaces.get_mut(id) {
                Arc::make_mut(keyspace).filter_files.insert(*file, *bytes);
                raise(&mut self.next_file, Some(file + 1));
            }
        }
        for id in &edit.drop_keyspaces {
            self.drop_keyspace(*id)?;
        }
        self.times.note_all(&edit.times);
        raise(&mut self.next_file, edit.next_file);
        raise(&mut self.last_seq, edit.last_seq);
        raise(&mut self.next_run, edit.next_run);
        raise(&mut self.next_keyspace, edit.next_keyspace);
        Ok(())
    }

    /// Returns the single edit that builds this state from an empty one.
    pub fn snapshot(&self) -> VersionEdit {
        let mut edit = VersionEdit {
            next_file: Some(self.next_file),
            last_seq: Some(self.last_seq),
            next_run: Some(self.next_run),
            next_keyspace: Some(self.next_keyspace),
            times: self.times.samples().to_vec(),
            floor: Some(self.floor).filter(|&floor| floor > 0),
            hotness: self.hotness.iter().map(|(id, hotness)| (*id, hotness.to_vec())).collect(),
            ..Default::default()
        };
        for (&id, keyspace) in self.keyspaces.iter() {
            edit.create_keyspaces.push((id, (*keyspace.name).into(), (*keyspace.options).into()));
            edit.log_floor.push((id, keyspace.log_floor));
            edit.next_epochs.push((id, keyspace.next_epoch));
            edit.ages.extend(keyspace.ages.map(|ages| (id, ages)));
            edit.added_filters.extend(keyspace.filter_files.iter().map(|(&file, &bytes)| (id, file, bytes)));
            for (&(level, run), tables) in &keyspace.runs {
                edit.added.extend(tables.iter().map(|table| (id, level, run, (**table).clone())));
            }
        }
        edit
    }

    fn keyspace(&mut self, id: KeyspaceId) -> Result<&mut KeyspaceState, String> {
        let keyspace = self.keyspaces.get_mut(&id).ok_or_else(|| format!("there is no keyspace {id}"))?;
        Ok(Arc::make_mut(keyspace))
    }

    /// Returns the options text, shared with the newest keyspace if it has the same one.
    fn shared_options(&self, options: &str) -> Arc<str> {
        let newest = self.keyspaces.values().next_back();
        newest
            .filter(|newest| *newest.options == *options)
            .map_or_else(|| options.into(), |newest| newest.options.clone())
    }

    fn create_keyspace(&mut self, id: KeyspaceId, name: &str, options: &str) -> Result<(), String> {
        let (name, options) = (Arc::<str>::from(name), self.shared_options(options));
        if self.names.insert(name.clone(), id).is_some() {
            return Err(format!("there is already a keyspace named `{name}`"));
        }
        let next = id.checked_add(1).ok_or_else(|| format!("keyspace number out of range: {id}"))?;
        let keyspace = KeyspaceState { name, options, next_epoch: 1, ..Default::default() };
        if self.keyspaces.insert(id, Arc::new(keyspace)).is_some() {
            return Err(format!("there is already a keyspace with number {id}"));
        }
        raise(&mut self.next_keyspace, Some(next));
        Ok(())
    }

    fn rename_keyspace(&mut self, id: KeyspaceId, name: &str) -> Result<(), String> {
        if id == DEFAULT_KEYSPACE {
            return Err("the default keyspace cannot be renamed".into());
        }
        let former = std::mem::replace(&mut self.keyspace(id)?.name, name.into());
        self.names.remove(&former);
        if self.names.insert(name.into(), id).is_some() {
            return Err(format!("there is already a keyspace named `{name}`"));
        }
        Ok(())
    }

    fn drop_keyspace(&mut self, id: KeyspaceId) -> Result<(), String> {
        if id == DEFAULT_KEYSPACE {
            return Err("the default keyspace cannot be dropped".into());
        }
        let keyspace = self.keyspaces.remove(&id).ok_or_else(|| format!("there is no keyspace {id}"))?;
        self.names.remove(&keyspace.name);
        for table in keyspace.tables() {
            self.places.remove(&table.id);
            self.hotness.remove(&table.id);
        }
        Ok(())
    }

    fn remove_table(&mut self, keyspace: KeyspaceId, id: TableId) -> Result<(), String> {
        let missing = || format!("keyspace {keyspace} has no table {id} to remove");
        let (owner, level, run, smallest) = self.places.remove(&id).ok_or_else(missing)?;
        if owner != keyspace {
            return Err(missing());
        }
        let runs = &mut self.keyspace(keyspace)?.runs;
        let tables = runs.get_mut(&(level, run)).ok_or_else(missing)?;
        tables.0.remove(&smallest).ok_or_else(missing)?;
        if tables.0.is_empty() {
            runs.remove(&(level, run));
        }
        Ok(())
    }

    fn add_table(
        &mut self,
        keyspace: KeyspaceId,
        level: u32,
        run: RunId,
        table: &TableMeta,
    ) -> Result<(), String> {
        let id = table.id;
        if level > MAX_LEVEL || run >= NUMBER_LIMIT || id >= NUMBER_LIMIT {
            return Err(format!("table {id} in run {run} of level {level}: a number is too large"));
        }
        if table.extra.blobs.last().is_some_and(|(file, _)| *file >= NUMBER_LIMIT) {
            return Err(format!("table {id} refers to a blob file whose number is too large"));
        }
        if !table.largest.reaches(&table.smallest) {
            return Err(format!("table {id} ends before it starts"));
        }
        let keyspace_state = self.keyspace(keyspace)?;
        let highest = table.epochs.segments().iter().map(|segment| segment.hi).max();
        raise(&mut keyspace_state.next_epoch, highest);
        let tables = keyspace_state.runs.entry((level, run)).or_default();
        if let Err(other) = tables.insert(table) {
            return Err(format!("tables {other} and {id} of run {run} overlap"));
        }
        if self.places.insert(id, (keyspace, level, run, table.smallest.clone())).is_some() {
            return Err(format!("table {id} already exists"));
        }
        raise(&mut self.next_file, Some(id + 1));
        // A blob file may be missing; a new file with its number would be mistaken for it.
        raise(&mut self.next_file, table.extra.blobs.last().map(|(file, _)| file + 1));
        raise(&mut self.next_run, Some(run + 1));
        raise(&mut self.last_seq, Some(table.max_seq));
        Ok(())
    }
}

/// Raises a counter. It never decreases: edits may be logged in a different order than their
/// counters were read.
fn raise<T: Ord + Copy>(counter: &mut T, to: Option<T>) {
    *counter = (*counter).max(to.unwrap_or(*counter));
}

#[cfg(test)]
mod tests;
