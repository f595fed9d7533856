//! The disk's files. Tables can be mapped, and can take in several reads before they complete one.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tamis::io::{
    Access, DirLock, FileSystem, MappedPages, Mapping, Overlap, ReadFile, Submit, Ticket, Touch, Usage,
    WriteFile,
};
use tamis::simulation::Scheduler;

use super::{Disk, LOOK, NAME, READ, SYNC, WRITE};

#[derive(Debug)]
struct Writing {
    disk: Disk,
    path: PathBuf,
    file: Box<dyn WriteFile>,
}

impl WriteFile for Writing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.timed(("append", WRITE), &self.path, || self.file.append(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.timed(("sync", SYNC), &self.path, || self.file.sync())
    }

    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.timed(("preallocate", WRITE), &self.path, || self.file.preallocate(bytes))
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        self.disk.timed(("truncate_to_written", WRITE), &self.path, || self.file.truncate_to_written())
    }
}

#[derive(Debug)]
struct Reading {
    disk: Disk,
    path: PathBuf,
    file: Arc<dyn ReadFile>,
}

impl ReadFile for Reading {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.timed(("read", READ), &self.path, || self.file.read_exact_at(buf, offset))
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.timed(("length", LOOK), &self.path, || self.file.len())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        self.disk.timed(("map", NAME), &self.path, || {
            let len = usize::try_from(self.file.len()?).map_err(io::Error::other)?;
            let mut bytes = vec![0; len];
            self.file.read_exact_at(&mut bytes, 0)?;
            Ok(Some(Mapping::of_pages(Arc::new(Pages { disk: self.disk.clone(), bytes }))))
        })
    }

    fn overlap(&self) -> Overlap<'_> {
        if self.disk.shared.overlaps { Overlap::Submitted(self) } else { Overlap::Never }
    }
}

impl Submit for Reading {
    fn submit(&self, _len: usize) -> Ticket {
        let begin = self.disk.machine.clock().as_micros() as u64;
        let spread = 1 + self.disk.machine.draw(4);
        Ticket { begin, end: Some(begin + READ * spread * self.disk.shared.factor.load(Relaxed)) }
    }

    fn complete(&self, ticket: Ticket, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = Duration::from_micros(ticket.end.unwrap_or(ticket.begin));
        self.disk.machine.sleep(end.saturating_sub(self.disk.machine.clock()));
        self.disk.timed(("complete", 0), &self.path, || self.file.read_exact_at(buf, offset))
    }
}

/// A mapped file, some of whose pages have to be read when they are touched.
struct Pages {
    disk: Disk,
    bytes: Vec<u8>,
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl MappedPages for Pages {
    fn will_need(&self, _part: Range<usize>, touch: Touch) {
        let machine = &self.disk.machine;
        if touch != Touch::Later && machine.draw(4) == 0 {
            machine.sleep(Duration::from_micros(READ * self.disk.shared.factor.load(Relaxed)));
        }
    }

    fn are_scarce(&self) -> bool {
        self.disk.shared.overlaps
    }
}

impl FileSystem for Disk {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        let file = self.timed(("create", NAME), path, || self.files.create(path, usage))?;
        Ok(Box::new(Writing { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.timed(("reuse", NAME), new, || self.files.reuse(old, new))?;
        Ok(Box::new(Writing { disk: self.clone(), path: new.to_owned(), file }))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.timed(("open", NAME), path, || self.files.open(path, access))?;
        Ok(Arc::new(Reading { disk: self.clone(), path: path.to_owned(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.timed(("rename", NAME), to, || self.files.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.timed(("remove", NAME), path, || self.files.remove(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.timed(("remove dir all", NAME), path, || self.files.remove_dir_all(path))
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.timed(("link or copy", NAME), to, || self.files.link_or_copy(from, to))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.timed(("create dir all", NAME), path, || self.files.create_dir_all(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.timed(("list", NAME), dir, || self.files.list(dir))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.timed(("sync file", SYNC), path, || self.files.sync_file(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.timed(("sync dir", SYNC), dir, || self.files.sync_dir(dir))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.timed(("exists", LOOK), path, || self.files.exists(path))
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.timed(("file len", LOOK), path, || self.files.file_len(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.timed(("lock", NAME), path, || self.files.lock(path))
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.calm_if_over(self.shared.operations.load(Relaxed));
        self.files.available_space(path)
    }
}
