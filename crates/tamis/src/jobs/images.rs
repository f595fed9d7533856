//! Filter files of an open database: lists them, saves images of global filters, and finds these
//! again.
//!
//! An [image](tamis_files::images) holds every key of its range that is in a table with epochs
//! below its `until`. Filter files are an optimization: without them a filter is built from the
//! tables. So nothing here fails a user's operation or suspends writes. An unusable file or image
//! is left out with one warning. A failed save causes a warning and is retried with backoff.
//!
//! # Invariants
//!
//! * A filter file and its name are durable before an edit names it. The file is removed only after
//!   the edit that drops it, and only when nothing holds it any more.
//! * No epoch below an image's `until` is assigned after the image: the edit that names a file
//!   raises the keyspace's next epoch to the `until`s of its images. The thread that takes an image
//!   vouches for the epochs assigned before.
//! * After a save, a keyspace's files take at most half as many bytes again as the images that
//!   count, or [`FREE_BYTES`](reclaim::FREE_BYTES).
//!
//! # Threads and locks
//!
//! The [upkeep of filters](crate::jobs::filters) saves and loads. One thread at a time saves, in
//! any keyspace, holding the mutex `saving`. This mutex comes before every other lock of the
//! database except the lock of a late beginning. `known`, a leaf, guards the list of opened files.
//! [`FilterFiles::release`](crate::catalogue::filter_files::FilterFiles::release) and adding an
//! opened file both happen under `state`, where the tree says which files exist.

use std::sync::Arc;
use std::time::Duration;

use reclaim::{Stored, plan};
use tamis_base::collections::HashSet;
use tamis_base::ids::{FilterFileId, KeyspaceId};
use tamis_files::images::{Image, ImageFile, ImageKind, ImageWriter, newest};
use tamis_files::tree::edit::VersionEdit;
use tamis_files::tree::files::filter_path;

use crate::catalogue::filter_files::{KnownFile, LiveImage, NewImage, NotSaved, OpenImages, StoredImage};
use crate::catalogue::keyspace::KeyspaceInner;
use crate::error::StorageError;
use crate::gate::backoff::Backoff;
use crate::io::FileSystem;
use crate::select::{Moment, Span};
use crate::session::Session;

mod reclaim;
#[cfg(test)]
mod tests;

/// The backoff after a failed save: initial and maximum.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Beyond the bytes of a save, this much must be free on the device.
const LEAVE_FREE: u64 = 64 << 10;

impl Session {
    /// Returns the open filter files of a keyspace, and the numbers of the unusable files.
    fn open_images(&self, keyspace: KeyspaceId) -> (Vec<Arc<OpenImages>>, Vec<FilterFileId>) {
        loop {
            let named = self.named_filter_files(keyspace);
            let known: Option<Vec<KnownFile>> = named.iter().map(|id| self.examine(keyspace, *id)).collect();
            // One was removed meanwhile, and others may have replaced it.
            let Some(known) = known else { continue };
            let (mut open, mut unusable) = (Vec::new(), Vec::new());
            for (id, known) in named.into_iter().zip(known) {
                match known {
                    KnownFile::Open(file) => open.push(file),
                    KnownFile::Unusable => unusable.push(id),
                }
            }
            return (open, unusable);
        }
    }

    /// Opens a filter file unless that was done before. `None`: the tree no longer names it.
    fn examine(&self, keyspace: KeyspaceId, id: FilterFileId) -> Option<KnownFile> {
        let files = &*self.files.filter_files;
        if let Some(known) = files.known.lock().get(&id) {
            return Some(known.clone());
        }
        let opened = files.open(&*files.fs, keyspace, id);
        let state = self.state();
        let stored = state.catalogue.tree().keyspaces.get(&keyspace)?;
        if !stored.filter_files.contains_key(&id) {
            return None;
        }
        let (known, why) = match opened {
            Ok(file) => (KnownFile::Open(OpenImages::new(file, &self.files.garbage)), None),
            Err(why) => (KnownFile::Unusable, Some(why)),
        };
        files.known.lock().insert(id, known.clone());
        drop(state);
        why.inspect(|why| self.warn_of_filter_file(why));
        Some(known)
    }

    fn warn_of_filter_file(&self, why: &StorageError) {
        match why {
            // A writer elsewhere has replaced it since.
            StorageError::Io(e)
                if self.files.filter_files.read_only && e.kind() == std::io::ErrorKind::NotFound =>
            {
                log::debug!("{}: {why}", self.dir.display());
            }
            why => self.warn(format!("a global filter is built from the tables: {why}")),
        }
    }

    /// Returns the newest usable image of every key range of a keyspace that has any, in key order.
    /// Reads indexes only, each once.
    pub(crate) fn live_images(&self, keyspace: KeyspaceId, kind: ImageKind) -> Vec<LiveImage> {
        let (files, _) = self.open_images(keyspace);
        let limit = {
            let state = self.state();
            state.catalogue.tree().keyspaces.get(&keyspace).map_or(0, |stored| stored.next_epoch)
        };
        let (mut images, mut places) = (Vec::new(), Vec::new());
        for stored in files.iter().flat_map(OpenImages::usable) {
            let image = stored.described();
            if image.until > limit {
                let until = image.until;
                let what =
                    format!("an image claims epochs up to {until}, but none from {limit} on was assigned");
                let why = StorageError::corrupt(stored.file.file.path(), None, what);
                self.files.filter_files.note_unusable(&stored, &why);
                continue;
            }
            images.push(image.clone());
            places.push(stored);
        }
        let live = newest(&images, kind).into_iter().map(|newest| LiveImage {
            span: Span { start: newest.start, end: newest.end },
            until: newest.image.until,
            stored: places[newest.at].clone(),
        });
        live.collect()
    }

    /// Reports whether a save of images would be attempted now.
    #[cfg(test)]
    pub(crate) fn may_save_images(&self, keyspace: KeyspaceId) -> bool {
        let waits = |saving: &tamis_base::collections::HashMap<KeyspaceId, Backoff>| {
            saving.get(&keyspace).is_some_and(|backoff| !backoff.is_over())
        };
        self.may_write_images() && !waits(&self.files.filter_files.saving.lock())
    }

    /// Reads all filter files of a keyspace through `fs`, reports the bytes read to `go_on` file by
    /// file and image by image, and stops when it returns `false`. Returns the number of files
    /// read, and what is wrong with others.
    pub(crate) fn check_filter_files(
        &self,
        fs: &dyn FileSystem,
        keyspace: KeyspaceId,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> (usize, Vec<StorageError>) {
        let (mut count, mut wrong) = (0, Vec::new());
        for id in self.named_filter_files(keyspace) {
            match self.files.filter_files.check(fs, keyspace, id, go_on) {
                Ok(true) => count += 1,
                Ok(false) => break,
                // Dropped meanwhile, here or by a writer elsewhere.
                Err(StorageError::Io(e))
                    if e.kind() == std::io::ErrorKind::NotFound
                        && (self.gate.is_read_only() || !self.named_filter_files(keyspace).contains(&id)) => {
                }
                Err(why) => wrong.push(why),
            }
        }
        (count, wrong)
    }

    /// Returns the filter files of a keyspace in the durable tree.
    pub(crate) fn named_filter_files(&self, keyspace: KeyspaceId) -> Vec<FilterFileId> {
        let state = self.state();
        let stored = state.catalogue.tree().keyspaces.get(&keyspace);
        stored.into_iter().flat_map(|stored| stored.filter_files.keys().copied()).collect()
    }

    pub(crate) fn may_write_images(&self) -> bool {
        !self.gate.is_read_only()
            && !self.gate.is_waiting()
            && !self.space.reserve.is_full()
            && self.gate.check_health().is_ok()
    }

    /// Writes images to one new filter file and publishes it with one edit. The edit also drops
    /// files no longer needed: those without an image that counts and, if too little of all files
    /// counts, the worst others. What counts of these is copied. At closing nothing is copied, as
    /// that takes time, and such files stay. Do not call with any lock held.
    ///
    /// Cost: a write of the images and the copies, two syncs, and an edit. A save without images
    /// only tidies up.
    pub(crate) fn save_images(
        &self,
        keyspace: &KeyspaceInner,
        images: &[NewImage],
        moment: Moment,
    ) -> Result<(), NotSaved> {
        let mut saving = self.files.filter_files.saving.lock();
        let before = saving.remove(&keyspace.id);
        if !self.may_write_images() || before.as_ref().is_some_and(|before| !before.is_over()) {
            saving.extend(before.map(|before| (keyspace.id, before)));
            return Err(NotSaved::Later);
        }
        self.write_images(keyspace, images, moment).map_err(|error| {
            if before.is_none() {
                let name = keyspace.name();
                self.warn(format!(
                    "keyspace `{name}`: its global filter was not saved, which costs time at the next opening; \
                     this will be retried: {error}"
                ));
            }
            saving.insert(keyspace.id, Backoff::after(before, RETRY, &error));
            NotSaved::Failed(error)
        })
    }

    fn write_images(
        &self,
        keyspace: &KeyspaceInner,
        images: &[NewImage],
        moment: Moment,
    ) -> Result<(), StorageError> {
        let (open, unusable) = self.open_images(keyspace.id);
        let usable = |open: &Arc<OpenImages>| -> Vec<(usize, Image)> {
            open.usable().map(|stored| (stored.at, stored.described().clone())).collect()
        };
        let stored: Vec<Stored> =
            open.iter().map(|open| Stored { bytes: open.file.bytes(), images: usable(open) }).collect();
        let mut plan = plan(&stored, images);
        if moment == Moment::Closing {
            let copied: HashSet<usize> = plan.copied.drain(..).map(|(file, _)| file).collect();
            plan.dropped.retain(|file| !copied.contains(file));
        }
        let dropped = plan.dropped.iter().map(|&file| open[file].file.number()).chain(unusable);
        let mut edit = VersionEdit {
            removed_filters: dropped.map(|file| (keyspace.id, file)).collect(),
            ..VersionEdit::default()
        };
        let mut written = None;
        if !images.is_empty() || !plan.copied.is_empty() {
            let copy = |&(file, at): &(usize, usize)| StoredImage { file: open[file].clone(), at };
            let copies: Vec<StoredImage> = plan.copied.iter().map(copy).collect();
            let file = self.write_filter_file(keyspace.id, images, &copies)?;
            let until = file.images().iter().map(|image| image.until).max();
            edit.next_epochs.extend(until.map(|until| (keyspace.id, until)));
            edit.added_filters.push((keyspace.id, file.number(), file.bytes()));
            written = Some(file);
        }
        if edit == VersionEdit::default() {
            return Ok(());
        }
        let mut state = self.state();
        if keyspace.is_dropped() {
            self.files.filter_files.release(written.map(|file| file.number()));
            return Ok(());
        }
        self.commit_without_tables(&mut state, edit)?;
        if let Some(file) = written {
            let number = file.number();
            let file = OpenImages::new(file, &self.files.garbage);
            self.files.filter_files.known.lock().insert(number, KnownFile::Open(file));
        }
        Ok(())
    }

    /// Writes a filter file and makes it and its name durable. An error leaves no file behind.
    fn write_filter_file(
        &self,
        keyspace: KeyspaceId,
        images: &[NewImage],
        copies: &[StoredImage],
    ) -> Result<ImageFile, StorageError> {
        let copied = copies.iter().map(|copy| copy.described().bytes);
        let bytes: u64 = images.iter().map(|image| image.bytes.len() as u64).chain(copied).sum();
        let free = self.fs.available_space(&self.dir).unwrap_or_default();
        if free.is_some_and(|free| free < bytes.saturating_add(LEAVE_FREE)) {
            let full = std::io::ErrorKind::StorageFull.into();
            return Err(StorageError::io("write a filter file in", &self.dir, full));
        }
        let number = self.files.numbers.take();
        let path = filter_path(&self.dir, number);
        let write = || {
            let mut writer = ImageWriter::create(&*self.fs, &path, number, keyspace)?;
            for image in images {
                let range = (image.span.start.clone(), image.span.end.clone());
                writer.add(image.kind, range, image.until, &image.bytes)?;
            }
            for copy in copies {
                // An unreadable image is lost with its file.
                if let Ok(bytes) = self.files.filter_files.read(copy) {
                    writer.copy(copy.described(), &bytes)?;
                }
            }
            let file = writer.finish()?;
            self.fs.sync_dir(&self.dir).map_err(|e| StorageError::io("sync", &self.dir, e))?;
            Ok(file)
        };
        write().inspect_err(|_| {
            self.files.garbage.push(path.clone());
            self.files.garbage.remove_all(&*self.fs);
        })
    }
}
