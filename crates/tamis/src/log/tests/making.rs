//! What the log states while another thread makes the next one.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::io::{DirLock, ReadFile};

/// One to say that a file is about to be made, and one to wait for.
type Channels = (Sender<()>, Receiver<()>);

/// A file system whose next creation or reuse of a file, once there are channels, says that it
/// begins and waits.
#[derive(Debug)]
struct Waiting {
    machine: FaultyFs,
    channels: Arc<Mutex<Option<Channels>>>,
}

impl Waiting {
    fn wait(&self) {
        let channels = self.channels.lock().take();
        if let Some((begins, may_go_on)) = channels {
            begins.send(()).unwrap();
            may_go_on.recv().unwrap();
        }
    }
}

impl FileSystem for Waiting {
    fn create(&self, path: &Path, usage: Usage) -> io::Result<Box<dyn WriteFile>> {
        self.wait();
        self.machine.create(path, usage)
    }

    fn reuse(&self, old: &Path, new: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.wait();
        self.machine.reuse(old, new)
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn ReadFile>> {
        self.machine.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.machine.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.machine.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.machine.remove_dir_all(path)
    }

    fn link_or_copy(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.machine.link_or_copy(from, to)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.machine.create_dir_all(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.machine.list(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.machine.sync_dir(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.machine.exists(path)
    }

    fn file_len(&self, path: &Path) -> io::Result<u64> {
        self.machine.file_len(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DirLock>>> {
        self.machine.lock(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.machine.available_space(path)
    }
}

/// Such a file takes space all the while, and the thread that makes the log may take a tenth of a
/// second.
#[test]
fn a_file_that_is_being_reused_counts() {
    let machine = FaultyFs::new(1);
    let channels = Arc::new(Mutex::default());
    let fs = Waiting { machine: machine.clone(), channels: channels.clone() };
    let rig = Rig::on(machine, Arc::new(fs), &options()).begin();
    for reuses in [false, true] {
        let ((begins, begun), (go_on, may_go_on)) = (channel(), channel());
        *channels.lock() = Some((begins, may_go_on));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rig.log.prepare(true);
                // Without a sender, nobody waits for it any more.
                channels.lock().take();
            });
            begun.recv().unwrap();
            let taken: u64 = rig.fs.files().iter().map(|file| file.1).sum();
            let stated = rig.log.allocated(&rig.monitor.lock().logs);
            // Neither is it given back meanwhile.
            let given_back = rig.log.give_back();
            go_on.send(()).unwrap();
            assert_eq!((stated, given_back), (taken, false), "{reuses}");
        });
        rig.check();
        rig.append(10);
        rig.sync();
        let id = rig.roll();
        rig.sync();
        rig.release(id + 1);
        assert_eq!(rig.monitor.lock().logs.recyclable.len(), 1);
    }
}
