//! The machine that measured, described as far as a reader needs it to judge figures, and the time. The description
//! contains no host name, user name or path. Everything that the laboratory measures carries it.
//!
//! All values are read from `/proc` and `/sys`. Missing ones are unknown, never an error.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tamis_bench::report::bytes;

/// The commit that the program and the engine in it were built from: twelve digits, ` with changes` if there were some, or `unknown`.
pub const COMMIT: &str = env!("TAMIS_COMMIT");

/// Where figures were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model; `unknown` where the system does not report it.
    pub cpu: String,
    /// Number of threads that the program may run at once.
    pub cores: usize,
    /// Memory available to the program, in bytes; 0 where the system does not report it.
    pub memory_bytes: u64,
    /// Data caches of the first processor by level, with sizes as the system writes them: `L1 48K`. Empty where not
    /// reported.
    #[serde(default)]
    pub caches: Vec<String>,
    /// Operating system, the first two numbers of its release, and instruction set: `Linux 6.1 x86_64`.
    #[serde(alias = "kernel")]
    pub system: String,
    /// The disk of the databases: model, kind and file system, as far as known: `SAMSUNG MZVL2512, solid state, ext4`;
    /// `memory (tmpfs)`; `unknown`. Empty where no disk was involved.
    #[serde(default)]
    pub disk: String,
}

impl Machine {
    /// Returns this machine, with the disk below `place`, which need not exist yet. Reads a few small system files.
    pub fn read(place: Option<&Path>) -> Machine {
        let kind = text("/proc/sys/kernel/ostype");
        let system = match release(&text("/proc/sys/kernel/osrelease")) {
            Some(release) if !kind.is_empty() => format!("{kind} {release}"),
            _ => std::env::consts::OS.to_owned(),
        };
        Machine {
            cpu: model_name(&text("/proc/cpuinfo")).unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(),
            memory_bytes: tamis::io::memory_bytes(),
            system: format!("{system} {}", std::env::consts::ARCH),
            disk: place.map_or_else(String::new, disk),
        }
    }

    /// Returns a one-line description: `AMD EPYC 7B13, 2 cores, L1 32K, L2 512K, L3 32M, 23.5 GiB, Linux 6.1 x86_64; disk: solid state,
    /// ext4`.
    pub fn describe(&self) -> String {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let memory =
            if self.memory_bytes == 0 { "memory unknown".to_owned() } else { bytes(self.memory_bytes) };
        let caches: String = self.caches.iter().map(|cache| format!(", {cache}")).collect();
        let disk = if self.disk.is_empty() { String::new() } else { format!("; disk: {}", self.disk) };
        format!("{}, {cores}{caches}, {memory}, {}{disk}", self.cpu, self.system)
    }

    /// Returns the size of the largest cache in bytes; 32 MiB if unknown.
    pub fn largest_cache(&self) -> usize {
        self.caches.iter().filter_map(|cache| size(cache.split_once(' ')?.1)).max().unwrap_or(32 << 20)
    }

    /// Reports whether figures of both machines are comparable. Memory is ignored: the amount that the kernel reserves
    /// differs slightly from boot to boot. Virtual machines may call different processors by one name, but not their caches.
    pub fn is_same(&self, other: &Machine) -> bool {
        let caches = self.caches == other.caches || self.caches.is_empty() || other.caches.is_empty();
        caches
            && (&self.cpu, self.cores, &self.system, &self.disk)
                == (&other.cpu, other.cores, &other.system, &other.disk)
    }
}

/// Returns the trimmed contents of a file; empty if it cannot be read.
fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns the first two numbers of a kernel's release. What follows them names a build, or who made it.
fn release(text: &str) -> Option<String> {
    let digits = |part: &&str| part.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    let mut parts = text.split(['.', '-', '+', '_', ' ']).take_while(digits);
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) => Some(format!("{major}.{minor}")),
        (major, _) => major.map(str::to_owned),
    }
}

/// Returns the caches of the first processor as `L1 48K`.
fn caches() -> Vec<String> {
    let read = |index: usize, what: &str| {
        let text = text(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}"));
        (!text.is_empty()).then_some(text)
    };
    (0..8)
        .filter(|&index| read(index, "type").is_some_and(|kind| kind != "Instruction"))
        .filter_map(|index| Some(format!("L{} {}", read(index, "level")?, read(index, "size")?)))
        .collect()
}

/// Parses a size as the system writes it: `48K`.
fn size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    Some(digits.parse::<usize>().ok()? << shift)
}

fn model_name(cpuinfo: &str) -> Option<String> {
    let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    fields.find_map(|(name, model)| (name.trim() == "model name").then(|| model.trim().to_owned()))
}

/// Returns the directory of an existing or future path: its nearest existing ancestor.
pub fn nearest(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find(|dir| dir.exists()).map(Path::to_path_buf)
}

#[cfg(not(target_os = "linux"))]
fn disk(_: &Path) -> String {
    "unknown".to_owned()
}

#[cfg(target_os = "linux")]
fn disk(place: &Path) -> String {
    use std::os::linux::fs::MetadataExt;
    let Some(device) = nearest(place).and_then(|dir| fs::metadata(dir).ok()).map(|found| found.st_dev())
    else {
        return "unknown".to_owned();
    };
    // The C library's encoding of device numbers splits each into two parts.
    let major = (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    let number = format!("{major}:{minor}");
    let block = fs::canonicalize(Path::new("/sys/dev/block").join(&number)).ok();
    // A partition has no queue of its own; its disk, one level up, has one.
    let of_disk = |what: &str| {
        let block = block.as_deref()?;
        let found = [block.join(what), block.parent()?.join(what)].map(text);
        found.into_iter().find(|text| !text.is_empty())
    };
    // The rotational flag of a virtual disk is unreliable: many hypervisors set it for disks that never rotate.
    let of_host = block
        .as_deref()
        .is_some_and(|block| block.iter().any(|part| part.to_string_lossy().starts_with("virtio")));
    let rotational = if of_host { Some("virtual".to_owned()) } else { of_disk("queue/rotational") };
    describe_disk(
        of_disk("device/model").as_deref(),
        rotational.as_deref(),
        file_system(&text("/proc/self/mountinfo"), &number),
    )
}

/// Returns the type of a device's file system, from the contents of `/proc/self/mountinfo`.
#[cfg(any(target_os = "linux", test))]
fn file_system<'t>(mounts: &'t str, device: &str) -> Option<&'t str> {
    // 36 35 98:0 /root /mount options optional… - ext4 source options
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    line.split_once(" - ")?.1.split(' ').next()
}

#[cfg(any(target_os = "linux", test))]
fn describe_disk(model: Option<&str>, rotational: Option<&str>, file_system: Option<&str>) -> String {
    if let Some(memory @ ("tmpfs" | "ramfs")) = file_system {
        return format!("memory ({memory})");
    }
    let kind = match rotational {
        Some("0") => Some("solid state"),
        Some("1") => Some("rotating"),
        Some("virtual") => Some("virtual disk"),
        _ => None,
    };
    let known: Vec<&str> = [model, kind, file_system].into_iter().flatten().collect();
    if known.is_empty() { "unknown".to_owned() } else { known.join(", ") }
}

/// Returns the current time in UTC: `2026-11-22T14:55:07Z`.
pub fn now() -> String {
    moment(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Formats seconds since 1970 in the Gregorian calendar.
fn moment(seconds: u64) -> String {
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let mut year = 1970;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = |year| 365 + u64::from(leap(year));
    // 400 years have the same number of days wherever they begin.
    year += day / 146_097 * 400;
    day %= 146_097;
    while day >= length(year) {
        day -= length(year);
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_the_calendar() {
        let moments = [
            (0, "1970-01-01T00:00:00Z"),
            (86_399, "1970-01-01T23:59:59Z"),
            (951_825_600, "2000-02-29T12:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (13_574_563_200, "2400-02-29T00:00:00Z"),
        ];
        for (seconds, text) in moments {
            assert_eq!(moment(seconds), text);
        }
    }

    #[test]
    fn days_follow_the_calendar() {
        let days = [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_603_200, "2024-12-31"),
            (1_795_219_200, "2026-11-21"),
            (4_107_542_400, "2100-03-01"),
            (253_402_300_799, "9999-12-31"),
        ];
        for (seconds, text) in days {
            assert_eq!(moment(seconds).split_once('T').unwrap().0, text);
        }
    }

    /// A release named the provider of the machine.
    #[test]
    fn of_a_release_two_numbers_are_kept() {
        let kept = |text| release(text);
        assert_eq!(kept("6.18.44-somebody-v657").as_deref(), Some("6.18"));
        assert_eq!(kept("6.1-cloud").as_deref(), Some("6.1"));
        assert_eq!(kept("7").as_deref(), Some("7"));
        assert_eq!(kept("somebody-6.1").as_deref(), None);
        assert_eq!(kept("").as_deref(), None);
    }

    #[test]
    fn cache_sizes_are_read() {
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size("7"), Some(7));
        assert_eq!(size("K"), None);
        let caches = |caches: &[&str]| Machine {
            caches: caches.iter().map(|cache| (*cache).to_owned()).collect(),
            ..Machine::read(None)
        };
        assert_eq!(caches(&["L1 48K", "L2 1M", "L3 what"]).largest_cache(), 1 << 20);
        assert_eq!(caches(&[]).largest_cache(), 32 << 20);
    }

    #[test]
    fn machines_are_parsed_and_missing_values_omitted() {
        let machine = Machine::read(None);
        assert!(machine.cores > 0 && !machine.cpu.is_empty() && !machine.describe().contains("disk"));
        // The format of earlier versions of `tamis-peers`.
        let old = r#"{"cpu": "Some CPU @ 2: x", "cores": 2, "memory_bytes": 2097152, "kernel": "6.1.0"}"#;
        let old: Machine = serde_json::from_str(old).unwrap();
        assert_eq!(old.describe(), "Some CPU @ 2: x, 2 cores, 2.0 MiB, 6.1.0");
        // Two processors of one name.
        let with =
            |cache: &str| Machine { caches: vec![cache.to_owned(), "L2 1M".to_owned()], ..old.clone() };
        assert_eq!(with("L1 48K").describe(), "Some CPU @ 2: x, 2 cores, L1 48K, L2 1M, 2.0 MiB, 6.1.0");
        assert!(!with("L1 48K").is_same(&with("L1 32K")) && with("L1 48K").is_same(&with("L1 48K")));
        assert!(old.is_same(&with("L1 48K")) && with("L1 48K").is_same(&old), "caches that are not known");
        let bare = Machine { memory_bytes: 0, cores: 1, ..old };
        assert_eq!(bare.describe(), "Some CPU @ 2: x, 1 core, memory unknown, 6.1.0");
    }

    #[test]
    fn missing_system_values_are_unknown() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2: x\n\nprocessor\t: 1\nmodel name\t: Other\n";
        assert_eq!(model_name(cpuinfo).unwrap(), "Some CPU @ 2: x");
        assert_eq!(model_name("model : 3"), None);
        assert_eq!(describe_disk(Some("M 5"), Some("0"), Some("ext4")), "M 5, solid state, ext4");
        assert_eq!(describe_disk(None, Some("1"), None), "rotating");
        assert_eq!(describe_disk(None, Some("virtual"), Some("xfs")), "virtual disk, xfs");
        assert_eq!(describe_disk(None, Some("0"), Some("tmpfs")), "memory (tmpfs)");
        assert_eq!(describe_disk(None, Some("?"), None), "unknown");

        let mounts = "22 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw\n23 22 0:21 / /dev/shm rw - tmpfs shm rw\nbad";
        assert_eq!(file_system(mounts, "254:0"), Some("ext4"));
        assert_eq!(file_system(mounts, "0:21"), Some("tmpfs"));
        assert_eq!(file_system(mounts, "1:1"), None);
    }

    #[test]
    fn the_description_of_this_machine_contains_no_paths() {
        let machine = Machine::read(Some(&std::env::temp_dir().join("not there yet")));
        assert!(machine.cores > 0 && !machine.system.is_empty(), "{machine:?}");
        assert!(!machine.disk.contains('/'), "{machine:?}");
        assert!(machine.is_same(&Machine { memory_bytes: 7, ..machine.clone() }));
        assert!(!machine.is_same(&Machine { disk: "another".into(), ..machine.clone() }));
        let alone = Machine { cores: 1, memory_bytes: 0, ..machine };
        let text = alone.describe();
        assert!(text.contains(", 1 core, ") && text.contains(", memory unknown, "), "{text}");
    }
}
