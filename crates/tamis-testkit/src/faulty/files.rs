//! The machine's [`FileSystem`] implementation: each method is one operation.

use std::io;
use std::path::Path;
use std::sync::{Arc, MutexGuard};

use tamis_env::io::{Access, DirLock, FileSystem, ReadFile, Usage, WriteFile, slice_at};

use super::model::{Change, Dir, File, Node, lock};
use super::{FaultyFs, Machine, OpClass, parts};

impl FaultyFs {
    /// Locks the machine for one operation, unless it is to fail.
    fn operate(&self, class: OpClass) -> io::Result<MutexGuard<'_, Machine>> {
        let mut machine = self.machine();
        machine.step(class)?;
        Ok(machine)
    }
}

impl Machine {
    /// Moves a name, replacing a file (or an empty directory, by a directory) of the new name.
    fn rename(&mut self, from: &[String], to: &[String]) -> io::Result<Node> {
        let node = self.node(from)?;
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        if from == to {
            return Ok(node);
        }
        if to.starts_with(from) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let replaced = lock(&to_dir).names.get(to_name).cloned();
        match (&node, &replaced) {
            (Node::File(_), Some(Node::Dir(_))) => return Err(io::ErrorKind::IsADirectory.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(io::ErrorKind::NotADirectory.into()),
            (Node::Dir(_), Some(Node::Dir(dir))) if !lock(dir).names.is_empty() => {
                return Err(io::ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        if let Some(Node::File(file)) = &replaced {
            self.unlinked(file);
        }
        if Arc::ptr_eq(&from_dir, &to_dir) {
            lock(&from_dir).change(Change::Rename(from_name.clone(), to_name.clone()));
        } else {
            lock(&to_dir).change(Change::Set(to_name.clone(), node.clone()));
            lock(&from_dir).change(Change::Remove(from_name.clone()));
        }
        Ok(node)
    }

    /// Creates an empty file under a name. An old one of that name is removed first.
    fn create(&mut self, parts: &[String]) -> io::Result<Arc<File>> {
        let (dir, name) = self.parent(parts)?;
        let replaced = lock(&dir).names.get(name).cloned();
        match replaced {
            Some(Node::Dir(_)) => return Err(io::ErrorKind::IsADirectory.into()),
            Some(Node::File(old)) => {
                self.unlinked(&old);
                lock(&dir).change(Change::Remove(name.clone()));
            }
            None => {}
        }
        let file = Arc::new(File::default());
        self.linked(&file);
        lock(&dir).change(Change::Set(name.clone(), Node::File(file.clone())));
        Ok(file)
    }

    /// Removes all names of a directory, deepest first.
    fn empty(&mut self, dir: &Dir) {
        let names = lock(dir).names.clone();
        for (name, node) in names {
            match node {
                Node::File(file) => self.unlinked(&file),
                Node::Dir(below) => self.empty(&below),
            }
            lock(dir).change(Change::Remove(name));
        }
    }
}

#[derive(Debug)]
struct Writer {
    fs: FaultyFs,
    file: Arc<File>,
    written: usize,
}

impl WriteFile for Writer {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut machine = self.fs.machine();
        machine.alive()?;
        let mut failed = machine.step(OpClass::Write).err();
        let mut fits = bytes.len();
        if failed.is_some() {
            fits = if machine.plan.partial_append { machine.rng.up_to(fits) } else { 0 };
        }
        let mut file = lock(&self.file);
        if let Some(limit) = machine.growth_limit(&file) {
            let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(self.written);
            if room < fits {
                fits = room;
                failed = failed.or_else(|| Some(io::ErrorKind::StorageFull.into()));
            }
        }
        machine.resized(&mut file, |file| file.write(self.written, &bytes[..fits]));
        match failed {
            Some(error) => Err(error),
            None => {
                self.written += bytes.len();
                Ok(())
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut machine = self.fs.machine();
        machine.alive()?;
        let result = machine.step(OpClass::Sync);
        let mut file = lock(&self.file);
        if result.is_ok() {
            file.sync()
        } else {
            file.fail_sync()
        }
        result
    }

    fn preallocate(&mut self, bytes: u64) -> io::Result<()> {
        let mut machine = self.fs.operate(OpClass::Write)?;
        let mut file = lock(&self.file);
        if machine.growth_limit(&file).is_some_and(|limit| limit < bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::StorageFull)?;
        if bytes > file.volatile.len() {
            machine.resized(&mut file, |file| file.set_len(bytes));
        }
        Ok(())
    }

    fn truncate_to_written(&mut self) -> io::Result<()> {
        let mut machine = self.fs.operate(OpClass::Write)?;
        let mut file = lock(&self.file);
        machine.resized(&mut file, |file| file.set_len(self.written));
        Ok(())
    }
}

#[derive(Debug)]
struct Reader {
    fs: FaultyFs,
    file: Arc<File>,
}

impl ReadFile for Reader {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let _machine = self.fs.operate(OpClass::Read)?;
        buf.copy_from_slice(slice_at(&lock(&self.file).volatile, offset, buf.len())?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let _machine = self.fs.operate(OpClass::Read)?;
        Ok(lock(&self.file).volatile.len() as u64)
    }
}

#[derive(Debug)]
struct Lock {
    fs: FaultyFs,
    path: Vec<String>,
}

impl DirLock for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        self.fs.machine().locked.remove(&self.path);
    }
}

impl FileSystem for FaultyFs {
    /// May fail like any other operation. Directories keep their names here, so paths still do.
    fn hold(&self, dir: &Path) -> io::Result<Option<Arc<dyn FileSystem>>> {
        self.operate(OpClass::Read)?.dir(&parts(dir)?)?;
        Ok(None)
    }

    fn create(&self, path: &Path, _usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        let file = self.operate(OpClass::Name)?.create(&parts(path)?)?;
        Ok(Box::new(Writer { fs: self.clone(), file, written: 0 }))
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut machine = self.operate(OpClass::Name)?;
        let (old, new) = (parts(old)?, parts(new)?);
        let file = machine.file(&old)?;
        machine.rename(&old, &new)?;
        Ok(Box::new(Writer { fs: self.clone(), file, written: 0 }))
    }

    fn open(&self, path: &Path, _access: Access) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.operate(OpClass::Read)?.file(&parts(path)?)?;
        Ok(Arc::new(Reader { fs: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate(OpClass::Name)?.rename(&parts(from)?, &parts(to)?)?;
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.operate(OpClass::Name)?;
        let parts = parts(path)?;
        let file = machine.file(&parts)?;
        let (dir, name) = machine.parent(&parts)?;
        machine.unlinked(&file);
        lock(&dir).change(Change::Remove(name.clone()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.operate(OpClass::Name)?;
        let parts = parts(path)?;
        let dir = machine.dir(&parts)?;
        let (above, name) = machine.parent(&parts)?;
        machine.empty(&dir);
        lock(&above).change(Change::Remove(name.clone()));
        Ok(())
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut machine = self.operate(OpClass::Name)?;
        let to = parts(to)?;
        let file = machine.file(&parts(from)?)?;
        if machine.node(&to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (dir, name) = machine.parent(&to)?;
        machine.linked(&file);
        lock(&dir).change(Change::Set(name.clone(), Node::File(file)));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let machine = self.operate(OpClass::Name)?;
        let mut dir = machine.root.clone();
        for name in parts(path)? {
            let there = lock(&dir).names.get(&name).cloned();
            dir = match there {
                Some(Node::Dir(below)) => below,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    let below = Arc::new(Dir::default());
                    lock(&dir).change(Change::Set(name, Node::Dir(below.clone())));
                    below
                }
            };
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let machine = self.operate(OpClass::Read)?;
        let dir = machine.dir(&parts(dir)?)?;
        let names = lock(&dir).names.keys().cloned().collect();
        Ok(names)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.machine();
        machine.alive()?;
        let file = machine.file(&parts(path)?)?;
        let result = machine.step(OpClass::Sync);
        let mut file = lock(&file);
        if result.is_ok() {
            file.sync()
        } else {
            file.fail_sync()
        }
        result
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let machine = self.operate(OpClass::Sync)?;
        let dir = machine.dir(&parts(dir)?)?;
        lock(&dir).sync();
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.operate(OpClass::Read)?.node(&parts(path)?).is_ok())
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        let machine = self.operate(OpClass::Read)?;
        let file = machine.file(&parts(path)?)?;
        let len = lock(&file).volatile.len();
        Ok(len as u64)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        let mut machine = self.operate(OpClass::Name)?;
        let path = parts(path)?;
        match machine.node(&path) {
            Ok(Node::File(_)) => {}
            Ok(Node::Dir(_)) => return Err(io::ErrorKind::IsADirectory.into()),
            Err(_) => drop(machine.create(&path)?),
        }
        if !machine.locked.insert(path.clone()) {
            return Ok(None);
        }
        Ok(Some(Box::new(Lock { fs: self.clone(), path })))
    }

    fn is_locked_here(&self, path: &Path) -> io::Result<bool> {
        Ok(self.machine().locked.contains(&parts(path)?))
    }

    /// Returns the space left below the capacity.
    fn available_space(&self, _path: &Path) -> io::Result<Option<u64>> {
        let machine = self.machine();
        machine.alive()?;
        Ok(machine.capacity.map(|capacity| capacity.saturating_sub(machine.used)))
    }
}
