//! A recorded device with a file system: recording, and mounting rebuilt disks.

use std::path::Path;

use super::super::Bench;
use super::super::cuts::IMAGE_BYTES;
use super::{Lie, SUITE};
use crate::disks::{Entry, Image, Survival};
use crate::machine::{Device, Flushes, Kind, Mounted, Recorder, Shutdown, check_file_system, make_image};
use crate::report::{Failure, Report};

/// A device, and what is needed to mount it.
pub(super) struct Rig<'a> {
    pub(super) bench: &'a Bench<'a>,
    pub(super) kind: Kind,
    /// Unmounted before the device is removed, which the order of the fields ensures.
    mounted: Mounted,
    pub(super) device: Device,
    /// A disk with an empty file system.
    pub(super) blank: Image,
}

/// A cut, and how the writes in the device's cache survived it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The number of entries of the log before it.
    pub(super) position: usize,
    pub(super) survival: Survival,
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cut at entry {}, cached writes that survive: {}", self.position, self.survival)
    }
}

impl<'a> Rig<'a> {
    pub(super) fn make(bench: &'a Bench<'a>, kind: Kind) -> Result<Rig<'a>, String> {
        let dir = bench.fresh_dir(&format!("rig-{}", kind.name()))?;
        let image = dir.join("blank.image");
        make_image(kind, &image, IMAGE_BYTES)?;
        let blank = Image::load(&image).map_err(|error| format!("{}: {error}", image.display()))?;
        let _ = std::fs::remove_file(&image);
        let device = Device::new(&dir, IMAGE_BYTES)?;
        let mounted = Mounted::on(&device.path().to_string_lossy(), kind, &dir)?;
        Ok(Rig { bench, kind, mounted, device, blank })
    }

    pub(super) fn point(&self) -> &Path {
        self.mounted.point()
    }

    pub(super) fn count(&self, what: &str, count: u64) {
        self.bench.report.count(SUITE, format!("{}: {what}", self.kind.name()), count);
    }

    /// Mounts a disk and returns the log of what was sent to the device while `work` was done.
    pub(super) fn record(
        &mut self,
        disk: Image,
        flushes: Flushes,
        work: impl FnOnce(&Recorder) -> Result<(), String>,
    ) -> Result<Vec<Entry>, String> {
        self.device.insert(disk)?;
        self.device.record(flushes);
        self.mounted.mount()?;
        let done = work(&self.device.recorder());
        let entries = self.device.stop();
        // Saves the time for writing what nobody will read.
        self.mounted.shut_down(Shutdown::Nothing)?;
        self.mounted.unmount()?;
        done.map(|()| entries)
    }

    /// Mounts a disk as a cut left it, and examines it. Returns `None` if it cannot be mounted,
    /// which is reported unless the device lied.
    pub(super) fn examine<T>(
        &mut self,
        disk: &Image,
        cut: Cut,
        lie: Lie,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.device.insert(disk.clone())?;
        if let Err(why) = self.mounted.mount() {
            if lie == Lie::None {
                let what = format!("the file system cannot be mounted: {why}");
                self.damaged(&what, &cut.to_string(), disk, cut);
            }
            return Ok(None);
        }
        let done = work();
        self.mounted.unmount()?;
        done.map(Some)
    }

    /// Returns what is wrong with the file system of the last disk, which is unmounted.
    pub(super) fn damage(&self) -> Option<String> {
        check_file_system(self.kind, &self.device.path()).err()
    }

    /// Records a failure with its disk.
    pub(super) fn fail(&self, what: &str, how: &str, disk: Option<&Image>, evidence: &[&Path]) {
        self.keep(what, how, disk, evidence, Report::fail);
    }

    /// Records damage to a file system. It is no failure if the cut may damage a file system.
    pub(super) fn damaged(&self, what: &str, how: &str, disk: &Image, cut: Cut) {
        self.count("file systems that were damaged, or could not be mounted", 1);
        let keep = if cut.survival.tears_blocks() { Report::remark } else { Report::fail };
        let what = match cut.survival.tears_blocks() {
            true => format!("after torn blocks, {what}"),
            false => what.to_owned(),
        };
        self.keep(&what, how, Some(disk), &[], keep);
    }

    fn keep(
        &self,
        what: &str,
        how: &str,
        disk: Option<&Image>,
        evidence: &[&Path],
        keep: impl Fn(&Report, Failure, &[&Path]),
    ) {
        let image = self.bench.work.join("disk.image");
        let mut evidence = evidence.to_vec();
        if let Some(disk) = disk {
            match disk.save(&image) {
                Ok(()) => evidence.push(&image),
                Err(error) => eprintln!("the disk could not be kept: {error}"),
            }
        }
        let what = format!("{}: {what}", self.kind.name());
        let how = format!("--seed {} {SUITE}; {how}", self.bench.amount.seed);
        keep(self.bench.report, Failure { suite: SUITE, what, how }, &evidence);
        let _ = std::fs::remove_file(&image);
    }
}
