//! `hash-table1`: the time to read 4 KiB from a device, compared with the time to hash a key of 1 KB.
//!
//! Devices that are not available are emulated with the paper's latency ([`EmulatedFs`]); their rows show how accurate
//! that is. Available ones are measured: reads of random pages of a file through the page cache, bypassing it, and in a
//! RAM disk, and copies of random pages of memory.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tamis::io::{Access, DirectFs, DiskFs, FileSystem, MemFs, Overlap, ReadFile, Usage};
use tamis_bench::BenchError;
use tamis_bench::progress::Progress;
use tamis_bench::random::Random;
use tamis_bench::report;
use tamis_testkit::{Device, EmulatedFs};
use tempfile::TempDir;

use super::functions::Function;
use super::rates::random_bytes;
use super::rows::{self, time};
use super::timing::{Side, Spread, agreeing_pairs, interleaved, paced};
use crate::figures::{
    About, Axis, Bar, Custom, Figure, Kind, Needs, Panel, Plan, Row, Scale, Sheet, Verdict, View,
};

const KEY_BYTES: usize = 1024;
const PAGE: usize = 4096;
/// Intended duration of a round of reads, less than a time slice; on a slow device a round is eight reads.
const ROUND_NS: u64 = 500_000;
const FEWEST_READS: u64 = 8;

/// Devices that are measured, by name.
const PAGE_CACHE: &str = "page-cache";
const DISK: &str = "disk";
const RAM_DISK: &str = "ram-disk";
/// Copies in memory, without a file.
const COPY: &str = "copy";
/// Where Linux mounts a file system in memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// Table 1.
pub(super) struct Costs {
    pub(super) about: About,
}

/// Time to hash a key of 1 KB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HashRow {
    function: String,
    ns_per_op: f64,
    min_ns: f64,
    max_ns: f64,
    paper_ns: Option<f64>,
}

/// Time to read 4 KiB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct AccessRow {
    device: String,
    emulated: bool,
    ns_per_op: f64,
    min_ns: f64,
    max_ns: f64,
    /// The paper's time for such a device.
    paper_ns: Option<f64>,
    reads: u64,
}

/// A device that could not be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MissingRow {
    device: String,
    why: String,
}

const HASH: &str = "hash";
const ACCESS: &str = "access";
const MISSING: &str = "missing";

/// One of the devices that can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Emulated(Device),
    PageCache,
    Disk,
    RamDisk,
}

impl Medium {
    fn all() -> Vec<Medium> {
        let measured = [Medium::PageCache, Medium::Disk, Medium::RamDisk];
        Device::EMULATED.into_iter().map(Medium::Emulated).chain(measured).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Medium::Emulated(device) => device.name,
            Medium::PageCache => PAGE_CACHE,
            Medium::Disk => DISK,
            Medium::RamDisk => RAM_DISK,
        }
    }

    fn named(name: &str) -> Result<Medium, BenchError> {
        Medium::all().into_iter().find(|medium| medium.name() == name).ok_or_else(|| {
            let known: Vec<&str> = Medium::all().into_iter().map(Medium::name).collect();
            BenchError::Request(format!("no device is called `{name}`; known are {}", known.join(", ")))
        })
    }
}

impl Figure for Costs {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, scale: Scale) -> Needs {
        let file = FILE_BYTES[scale as usize];
        let seconds = [1, 10, 40][scale as usize];
        Needs { seconds, disk_bytes: 2 * file, memory_bytes: (2 * file).max(MEMORY_BYTES[scale as usize]) }
    }

    fn plan<'f>(&'f self, scale: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(self.about.name, &["--device", "--ops", "--repeat", "--db"])?;
        let media = match &custom.devices[..] {
            [] => Medium::all(),
            names => {
                let mut media = Vec::new();
                for name in names {
                    let medium = Medium::named(name)?;
                    if !media.contains(&medium) {
                        media.push(medium);
                    }
                }
                media
            }
        };
        Ok(Box::new(CostsPlan {
            scale,
            media,
            rounds: custom.repeats.unwrap_or([2, 51, 201][scale as usize]).max(1),
            ops: custom.ops.unwrap_or([500, 20_000, 50_000][scale as usize]).clamp(16, 1 << 32),
            dir: custom.dir.clone(),
            seed: custom.seed,
        }))
    }

    fn view(&self, rows: &[Row]) -> View {
        let (hashes, accesses) = (rows::of_kind(rows, HASH), rows::of_kind(rows, ACCESS));
        view(&hashes, &accesses, &rows::of_kind(rows, MISSING))
    }

    #[cfg(test)]
    fn trial(&self) -> crate::figures::trial::Trial {
        tests::trial()
    }
}

/// By scale: the size of a file, and of the memory that pages are copied from.
const FILE_BYTES: [u64; 3] = [4 << 20, 256 << 20, 1 << 30];
const MEMORY_BYTES: [u64; 3] = [16 << 20, 256 << 20, 1 << 30];

struct CostsPlan {
    scale: Scale,
    media: Vec<Medium>,
    rounds: u32,
    ops: u64,
    dir: Option<PathBuf>,
    seed: u64,
}

impl Plan for CostsPlan {
    fn setting(&self) -> String {
        format!(
            "Keys of 1 KB hashed and pages of 4 KiB read at random, {} rounds; files of {}.",
            self.rounds,
            report::bytes(FILE_BYTES[self.scale as usize])
        )
    }

    fn scaled(&self) -> Vec<String> {
        match self.scale {
            Scale::Small => vec!["files and memory fit caches of the processor".into()],
            _ => Vec::new(),
        }
    }

    fn steps(&self) -> Vec<String> {
        ["hashing".to_owned()]
            .into_iter()
            .chain(self.media.iter().map(|medium| medium.name().to_owned()))
            .collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let Some(at) = step.checked_sub(1) else { return Ok(self.hashing(progress)) };
        let Some(&medium) = self.media.get(at) else { return Ok(Vec::new()) };
        progress.begin(medium.name(), u64::from(self.rounds) + 1, "rounds");
        let rows = match medium {
            Medium::Emulated(device) => {
                self.emulated(device, progress).map_err(io("read", Path::new(device.name)))?
            }
            Medium::PageCache => self.file(medium, &|| self.directory(None), progress)?,
            Medium::Disk => self.file(medium, &|| self.directory(None), progress)?,
            Medium::RamDisk => match Path::new(SHARED_MEMORY) {
                shared if shared.is_dir() => self.file(medium, &|| self.directory(Some(shared)), progress)?,
                _ => vec![missing(medium, &format!("there is no {SHARED_MEMORY}"))],
            },
        };
        progress.end();
        Ok(rows)
    }
}

fn missing(medium: Medium, why: &str) -> Row {
    rows::row(MISSING, &MissingRow { device: medium.name().into(), why: why.into() })
}

fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> BenchError {
    let path = path.to_owned();
    move |source| BenchError::Io { operation, path, source }
}

impl CostsPlan {
    fn hashing(&self, progress: &dyn Progress) -> Vec<Row> {
        let mut random = Random::part(self.seed, 0);
        let keys = random_bytes(16 * KEY_BYTES, &mut random);
        let pages = (MEMORY_BYTES[self.scale as usize] as usize / PAGE).next_power_of_two();
        // Written to, since otherwise all pages would be one.
        let memory: Vec<u8> = (0..pages * PAGE).map(|at| (at >> 12) as u8).collect();
        let mut page = vec![0u8; PAGE];
        let count = self.ops as usize;
        let mut sides: Vec<Side<'_>> = Vec::new();
        for function in Function::ALL {
            let keys = &keys;
            let hash = move |at| black_box(function.hash(&keys[at * KEY_BYTES..][..KEY_BYTES])) & 1 == 1;
            sides.push(paced(count, 15, hash));
        }
        sides.push(paced(count, 0, |_| {
            let from = random.below(pages as u64) as usize * PAGE;
            page.copy_from_slice(&memory[from..from + PAGE]);
            black_box(&page)[0] == 1
        }));
        progress.begin("hashing", sides.len() as u64 * (u64::from(self.rounds) + 1), "turns");
        let mut spreads = interleaved(self.rounds, &mut sides, || progress.advance(1));
        drop(sides);
        progress.end();
        let copy = spreads.pop().unwrap_or(Spread::of(Vec::new()));
        let hashes = Function::ALL.into_iter().zip(spreads).map(|(function, spread)| {
            let found = HashRow {
                function: function.name().into(),
                ns_per_op: spread.median,
                min_ns: spread.min,
                max_ns: spread.max,
                paper_ns: function.paper_ns(),
            };
            rows::row(HASH, &found)
        });
        hashes
            .chain([access(COPY, false, copy, Some(tamis_model::devices::MEMORY.access_ns), self.ops)])
            .collect()
    }

    fn emulated(&self, device: Device, progress: &dyn Progress) -> std::io::Result<Vec<Row>> {
        let memory = MemFs::new();
        let path = Path::new("/file");
        let mut bytes = FileBytes::new(self.seed, FILE_BYTES[0]);
        bytes.write(&memory, path)?;
        let emulated = EmulatedFs::new(Arc::new(memory), device);
        let file = emulated.open(path, Access::Random)?;
        let reads = (ROUND_NS / device.read_ns.max(1)).clamp(FEWEST_READS, self.ops.max(FEWEST_READS));
        let reads = if self.scale == Scale::Small { reads.min(64) } else { reads };
        let spread = self.reads(file.as_ref(), FILE_BYTES[0], reads, progress)?;
        Ok(vec![access(device.name, true, spread, Some(device.read_ns as f64), reads)])
    }

    /// Creates a temporary directory, in the given one or in the default place.
    fn directory(&self, parent: Option<&Path>) -> Result<TempDir, BenchError> {
        let parent = match parent.or(self.dir.as_deref()) {
            Some(dir) => dir.to_owned(),
            None => std::env::temp_dir(),
        };
        fs::create_dir_all(&parent).map_err(io("make", &parent))?;
        tempfile::Builder::new()
            .prefix("tamis-bench-")
            .tempdir_in(&parent)
            .map_err(io("make a directory in", &parent))
    }

    fn file(
        &self,
        medium: Medium,
        directory: &dyn Fn() -> Result<TempDir, BenchError>,
        progress: &dyn Progress,
    ) -> Result<Vec<Row>, BenchError> {
        let dir = match directory() {
            Ok(dir) => dir,
            Err(error) if medium == Medium::RamDisk => return Ok(vec![missing(medium, &error.to_string())]),
            Err(error) => return Err(error),
        };
        let path = dir.path().join("file");
        let len = FILE_BYTES[self.scale as usize];
        let buffered = DiskFs::new();
        FileBytes::new(self.seed, len).write(&buffered, &path).map_err(io("write", &path))?;
        let (file, reads): (Arc<dyn ReadFile>, u64) = if medium == Medium::Disk {
            let file = DirectFs::new().open(&path, Access::Random).map_err(io("open", &path))?;
            if !is_direct(file.as_ref()) {
                return Ok(vec![missing(medium, "the file system does not support direct I/O")]);
            }
            (file, FEWEST_READS)
        } else {
            let file = buffered.open(&path, Access::Random).map_err(io("open", &path))?;
            let mut piece = vec![0; 1 << 20];
            for at in (0..len).step_by(piece.len()) {
                file.read_exact_at(&mut piece, at).map_err(io("read", &path))?;
            }
            // About half a microsecond each.
            (file, self.ops.min(ROUND_NS / 500))
        };
        let spread = self.reads(file.as_ref(), len, reads, progress).map_err(io("read", &path))?;
        Ok(vec![access(medium.name(), false, spread, None, reads)])
    }

    /// Times rounds of reads of random pages, one after the other.
    fn reads(
        &self,
        file: &dyn ReadFile,
        len: u64,
        reads: u64,
        progress: &dyn Progress,
    ) -> std::io::Result<Spread> {
        let mut random = Random::part(self.seed, 1);
        let mut page = vec![0u8; PAGE];
        let mut times = Vec::new();
        for round in 0..=self.rounds {
            let places: Vec<u64> =
                (0..reads).map(|_| random.below(len / PAGE as u64) * PAGE as u64).collect();
            let start = Instant::now();
            for &place in &places {
                file.read_exact_at(&mut page, place)?;
            }
            let ns = start.elapsed().as_nanos() as f64 / reads as f64;
            // The first round warms up.
            if round > 0 {
                times.push(ns);
            }
            progress.advance(1);
        }
        Ok(Spread::of(times))
    }
}

fn access(device: &str, emulated: bool, spread: Spread, paper_ns: Option<f64>, reads: u64) -> Row {
    let found = AccessRow {
        device: device.into(),
        emulated,
        ns_per_op: spread.median,
        min_ns: spread.min,
        max_ns: spread.max,
        paper_ns,
        reads,
    };
    rows::row(ACCESS, &found)
}

/// Reports whether reads of the file bypass the page cache, and so must be aligned.
fn is_direct(file: &dyn ReadFile) -> bool {
    match file.overlap() {
        #[cfg(unix)]
        Overlap::Descriptor { align, .. } => align > 1,
        _ => false,
    }
}

/// Generates the contents of a file: incompressible bytes.
struct FileBytes {
    random: Random,
    left: u64,
}

impl FileBytes {
    fn new(seed: u64, len: u64) -> FileBytes {
        FileBytes { random: Random::part(seed, 2), left: len }
    }

    fn write(&mut self, fs: &dyn FileSystem, path: &Path) -> std::io::Result<()> {
        let mut file = fs.create(path, Usage::Table)?;
        while self.left > 0 {
            let piece = random_bytes(self.left.min(1 << 20) as usize, &mut self.random);
            file.append(&piece)?;
            self.left -= piece.len() as u64;
        }
        file.sync()
    }
}

fn view(hashes: &[HashRow], accesses: &[AccessRow], missing: &[MissingRow]) -> View {
    let hash = |function: Function| hashes.iter().find(|row| row.function == function.name());
    let copy = accesses.iter().find(|row| row.device == COPY && !row.emulated);
    let unit = copy.map(|row| row.ns_per_op);
    let times = |ns: f64| unit.map_or("–".into(), |unit| format!("{:.2}", ns / unit));
    let paper_times = |ns: Option<f64>| {
        ns.map_or("–".to_owned(), |ns| format!("{:.2}", tamis_model::devices::normalized(ns)))
    };
    let columns = ["<what", "<how", "paper", "here", "paper / memory", "here / memory"];
    let mut sheet = Sheet::new("4 KiB by device, and a key of 1 KB by hash function", &columns);
    let mut groups = Vec::new();
    let mut add =
        |sheet: &mut Sheet, name: &str, how: &str, paper: Option<f64>, ns: f64, low: f64, high: f64| {
            let text = paper.map_or("–".to_owned(), time);
            let cells = [name.to_owned(), how.to_owned(), text, time(ns), paper_times(paper), times(ns)];
            sheet.row(cells);
            let bar = |name: &str, ns: f64, spread| Bar { name: name.to_owned(), parts: vec![ns], spread };
            let bars = paper.map(|ns| bar("paper", ns, None)).into_iter().chain([bar(
                "here",
                ns,
                Some((low, high)),
            )]);
            // A linear axis cannot show disks.
            if ns <= 20_000.0 {
                groups.push((name.to_owned(), bars.collect::<Vec<_>>()));
            }
        };
    for row in accesses {
        let (name, how) = match (row.device.as_str(), row.emulated) {
            (COPY, false) => ("memory, copied", "measured"),
            (name, true) => (name, "emulated"),
            (name, false) => (name, "measured"),
        };
        add(&mut sheet, name, how, row.paper_ns, row.ns_per_op, row.min_ns, row.max_ns);
    }
    for row in hashes {
        add(&mut sheet, &row.function, "hash", row.paper_ns, row.ns_per_op, row.min_ns, row.max_ns);
    }
    for row in missing {
        let dash = || "–".to_owned();
        sheet.row([row.device.clone(), format!("missing: {}", row.why), dash(), dash(), dash(), dash()]);
    }
    let panels = (!groups.is_empty()).then(|| Panel {
        title: "below 20 µs".into(),
        x: Axis::new("device or hash function", ""),
        y: Axis::new("4 KiB, or a hash of 1 KB", "ns"),
        kind: Kind::Bars { parts: vec!["time".into()], groups },
    });

    let mut order = Verdict::open("The functions by cost", "CITY < MM64 < CRC < XX < MD5 < SHA-256");
    let known: Vec<(Function, f64, f64)> =
        Function::SEVEN.into_iter().filter_map(|f| Some((f, f.paper_ns()?, hash(f)?.ns_per_op))).collect();
    if known.len() > 1 {
        let pairs: Vec<(f64, f64)> = known.iter().map(|&(_, paper, here)| (paper, here)).collect();
        let (agreeing, all) = agreeing_pairs(&pairs);
        let mut by_time = known.clone();
        by_time.sort_by(|a, b| a.2.total_cmp(&b.2));
        let names: Vec<&str> = by_time.iter().map(|(function, ..)| function.name()).collect();
        let text = format!("{}: {agreeing} of {all} pairs in the same order", names.join(" < "));
        // A majority of pairs in the same order is the same direction; all of them is the same order.
        order = order.with(text, Some(2 * agreeing > all), Some(agreeing == all), None).noting(
            "CRC-32C and SHA-256 use instructions of the processor where it has them; the paper's XXHash is slower than any \
             current one.",
        );
    }
    let nvm = accesses.iter().find(|row| row.emulated && row.device == Device::NVM.name);
    let mut as_nvm = Verdict::open("Hashing 1 KB costs about as much as a page of NVM", "0.94× (MM64)");
    let mut as_memory = Verdict::open("Hashing 1 KB costs more than a page of memory", "1.47× (MM64)");
    if let Some(mm64) = hash(Function::Mm64) {
        let paper = Function::Mm64.paper_ns().unwrap_or(f64::NAN);
        let ours = hash(Function::Xxh3);
        let text = |unit: f64| {
            let ours = ours.map_or(String::new(), |row| format!(", {:.2}× (XXH3)", row.ns_per_op / unit));
            format!("{:.2}× (MM64){ours}", mm64.ns_per_op / unit)
        };
        if let Some(nvm) = nvm {
            let cost = mm64.ns_per_op / nvm.ns_per_op;
            let ratio = cost / (paper / tamis_model::devices::NVM.access_ns);
            // Another order of magnitude, in either direction, is not about as much.
            let comparable = (1.0 / 3.0..=3.0).contains(&cost);
            as_nvm = as_nvm.with(text(nvm.ns_per_op), Some(comparable), None, Some(ratio));
        }
        if let Some(memory) = unit {
            let cost = mm64.ns_per_op / memory;
            let ratio = cost / (paper / tamis_model::devices::MEMORY.access_ns);
            as_memory = as_memory.with(text(memory), Some(cost > 1.0), None, Some(ratio));
        }
    }
    View {
        panels: panels.into_iter().collect(),
        sheets: vec![sheet],
        verdicts: vec![order, as_nvm, as_memory],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Finding;
    use crate::figures::trial::Trial;

    fn hash(function: Function, ns: f64) -> HashRow {
        let paper_ns = function.paper_ns();
        HashRow { function: function.name().into(), ns_per_op: ns, min_ns: ns, max_ns: ns, paper_ns }
    }

    fn access(device: &str, emulated: bool, ns: f64) -> AccessRow {
        let device = device.into();
        AccessRow { device, emulated, ns_per_op: ns, min_ns: ns, max_ns: ns, paper_ns: None, reads: 1 }
    }

    /// Returns rows of the paper's times of hashes.
    fn paper() -> Vec<HashRow> {
        Function::SEVEN.into_iter().filter_map(|f| Some(hash(f, f.paper_ns()?))).collect()
    }

    /// Turned round, the slowest function is the fastest, and pages take longer than any of them.
    pub(super) fn trial() -> Trial {
        let rows = |turned: bool| {
            let devices = [access("nvm", true, 260.0), access(COPY, false, 170.0)];
            let (hashes, times) = if turned { (reversed(), 1e4) } else { (paper(), 1.0) };
            let devices = devices.map(|row| AccessRow { ns_per_op: row.ns_per_op * times, ..row });
            let hashes = hashes.iter().map(|row| rows::row(HASH, row));
            hashes.chain(devices.iter().map(|row| rows::row(ACCESS, row))).collect()
        };
        Trial { good: rows(false), bad: vec![rows(true)] }
    }

    fn reversed() -> Vec<HashRow> {
        paper().into_iter().map(|row| HashRow { ns_per_op: 1e5 / row.ns_per_op, ..row }).collect()
    }

    #[test]
    fn verdicts_follow_from_times() {
        let devices = [access("nvm", true, 260.0), access(COPY, false, 170.0)];
        let paper = paper();
        let findings = |hashes: &[HashRow], devices: &[AccessRow]| {
            view(hashes, devices, &[]).verdicts.iter().map(|verdict| verdict.finding).collect::<Vec<_>>()
        };
        assert_eq!(findings(&paper, &devices), [Finding::Holds; 3]);
        assert_eq!(findings(&reversed(), &devices)[0], Finding::Fails);
        let slow = [access("nvm", true, 1e5), access(COPY, false, 1e5)];
        assert_eq!(findings(&paper, &slow)[1..], [Finding::Fails; 2]);
        // An emulated memory does not count as a measured one.
        assert_eq!(findings(&paper, &[access("memory", true, 160.0)])[1..], [Finding::Open; 2]);
    }

    #[test]
    fn missing_devices_are_listed() {
        let gone = MissingRow { device: RAM_DISK.into(), why: "there is none".into() };
        let view = view(&[], &[], &[gone]);
        assert!(view.sheets[0].to_text().contains("missing: there is none"), "{}", view.sheets[0].to_text());
    }
}
