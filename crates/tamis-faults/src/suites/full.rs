//! File systems that are filled and then freed, from outside or by deletes, and one that is
//! read-only.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tamis::io::{DiskFs, FileSystem, Usage};

use super::cuts::IMAGE_BYTES;
use super::sessions::{Account, Ground};
use super::{Bench, remove};
use crate::machine::{Kind, Mounted, Worker};
use crate::promises::{OPENS_WHILE_FULL, SMALL_FLUSHES_FIT, WRITES_RESUME_WITH_SPACE};
use crate::report::{Failure, stopped};
use crate::wire::Message;
use crate::worker::{BALLAST, MOST_FLUSHED_WRITES};

const SUITE: &str = "full";
const DELETES: &str = "deletes";
/// Filling takes seconds, and so does the recovery afterwards.
const PATIENCE: Duration = Duration::from_secs(180);
/// The space left to be filled.
const SPACE_BYTES: u64 = 16 << 20;
/// The same where memtables and logs have their default sizes.
const DEFAULT_SPACE_BYTES: u64 = 250 << 20;

/// A way to fill a file system.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    reopen: bool,
    flush_every: Option<u64>,
    space: u64,
}

const CASES: [Case; 3] = [
    Case { name: "filled", reopen: false, flush_every: None, space: SPACE_BYTES },
    Case { name: "filled and reopened", reopen: true, flush_every: None, space: SPACE_BYTES },
    Case { name: "defaults, flushed", reopen: false, flush_every: Some(10), space: DEFAULT_SPACE_BYTES },
];

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    for kind in [Kind::Tmpfs, Kind::Ext4, Kind::Xfs] {
        let Some(mounted) = bench.mount(kind, IMAGE_BYTES)? else { continue };
        for (turn, case) in CASES.iter().enumerate() {
            if stopped() {
                return Ok(());
            }
            fill(bench, kind, &mounted, turn as u64, case)?;
        }
        refuse(bench, kind, &mounted)?;
        read_only(bench, kind, &mounted)?;
    }
    Ok(())
}

/// A reservation that is refused takes no space, and keeps the space that was reserved before. ext4
/// may keep a block for its list of extents.
fn refuse(bench: &Bench<'_>, kind: Kind, mounted: &Mounted) -> Result<(), String> {
    let [air, path] = ["balloon", "log"].map(|name| mounted.point().join(name));
    balloon(&air, mounted.point(), 8 << 20)?;
    let taken = || std::fs::metadata(&path).map(|found| (found.len(), found.blocks()));
    let reserve = || {
        let mut file = DiskFs::new().create(&path, Usage::Log)?;
        file.preallocate(1 << 20)?;
        let before = taken()?;
        let refused = file.preallocate(1 << 30).is_err();
        Ok((refused, before, taken()?))
    };
    let (refused, before, after) =
        reserve().map_err(|error: std::io::Error| format!("reserving: {error}"))?;
    bench.report.count(SUITE, format!("{}: reservations refused", kind.name()), refused.into());
    if !refused || before.0 != after.0 || before.1.abs_diff(after.1) > 64 {
        let what =
            format!("{}: a refused reservation (bytes, blocks): {before:?} became {after:?}", kind.name());
        let how = "reserves 1 GiB for a file of 1 MiB, with 8 MiB free".to_owned();
        bench.report.fail(Failure { suite: SUITE, what, how }, &[]);
    }
    [air, path].iter().try_for_each(std::fs::remove_file).map_err(|error| format!("removing: {error}"))
}

/// The sizes of small file systems. The first is smaller than a memtable of the default size.
const SMALL: [u64; 3] = [40 << 20, 24 << 20, 96 << 20];

/// Fills small file systems. A range delete must be accepted and end in free space, whatever the
/// options, with no space given back from outside.
pub(super) fn deletes(bench: &Bench<'_>) -> Result<(), String> {
    for kind in [Kind::Tmpfs, Kind::Ext4] {
        for turn in 0..bench.amount.disks {
            let bytes = SMALL[turn as usize % SMALL.len()];
            let Some(mounted) = bench.mount(kind, bytes)? else { break };
            if stopped() {
                return Ok(());
            }
            let home = mounted.point().join("home");
            std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
            let logs = bench.fresh_dir("full-logs")?;
            let ground = Ground { home: home.clone(), seed: bench.amount.seed, turn };
            let mut more = vec!["--frees".to_owned()];
            more.extend((turn % 3 == 0).then(|| "--defaults".to_owned()));
            let mut setup = ground.setup("fill", &more);
            setup.logs = logs.clone();
            let (ended, messages) =
                crate::machine::collect(&setup, PATIENCE).map_err(|error| format!("a worker: {error}"))?;
            let account = ground.account(ended, &messages);
            let mut wrong = account.all_wrong();
            wrong.extend(ground.judge(&account)?);
            for (what, count) in &account.counts {
                bench.report.count(DELETES, format!("{}: {what}", kind.name()), *count);
            }
            for what in wrong {
                let what = format!("{} of {} MiB, turn {turn}: {what}", kind.name(), bytes >> 20);
                bench.report.fail(Failure { suite: DELETES, what, how: setup.command() }, &[&home, &logs]);
            }
        }
    }
    Ok(())
}

fn free(point: &Path) -> Result<u64, String> {
    let stat = rustix::fs::statvfs(point).map_err(|error| format!("statvfs: {error}"))?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Takes space away, all but `left` bytes.
fn balloon(path: &Path, point: &Path, left: u64) -> Result<(), String> {
    let size = free(point)?.saturating_sub(left);
    let file = std::fs::File::create(path).map_err(|error| format!("balloon: {error}"))?;
    if size > 0 {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size)
            .map_err(|error| format!("balloon: {error}"))?;
    }
    Ok(())
}

fn fill(bench: &Bench<'_>, kind: Kind, mounted: &Mounted, turn: u64, case: &Case) -> Result<(), String> {
    let home = mounted.point().join("home");
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    // On another file system, since logs must not fill this one.
    let logs = bench.fresh_dir("full-logs")?;
    let ground = Ground { home: home.clone(), seed: bench.amount.seed, turn };
    let mut more: Vec<String> = Vec::new();
    more.extend(case.reopen.then(|| "--reopen".to_owned()));
    more.extend(case.flush_every.iter().flat_map(|every| ["--flush-every".to_owned(), every.to_string()]));
    let mut setup = ground.setup("fill", &more);
    setup.logs = logs.clone();
    let air = mounted.point().join("balloon");
    // A small part of it is returned when the file system is full: deletes must not need more than
    // that.
    balloon(&air, mounted.point(), case.space)?;
    let space = free(mounted.point())?;
    let messages = Arc::new(Mutex::new(Vec::new()));
    let heard = messages.clone();
    let mut worker =
        Worker::start(&setup, move |message| heard.lock().unwrap_or_else(|e| e.into_inner()).push(message))
            .map_err(|error| format!("a worker: {error}"))?;
    let lock = || messages.lock().unwrap_or_else(|e| e.into_inner());
    let began = Instant::now();
    let full = Message::Phase("full".into());
    while !lock().contains(&full) && !worker.has_ended() && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(&air).map_err(|error| format!("balloon: {error}"))?;
    worker.say("space is back");
    let ended = worker.wait(PATIENCE);
    if stopped() {
        return Ok(());
    }
    let account = ground.account(ended, &lock());
    let mut wrong = account.all_wrong();
    wrong.extend(ground.judge(&account)?);
    wrong.extend(tally(bench, kind, case, space, &account));
    for what in wrong {
        let what = format!("{} {}: {what}", kind.name(), case.name);
        bench.report.fail(Failure { suite: SUITE, what, how: setup.command() }, &[&home, &logs]);
    }
    remove(&home);
    Ok(())
}

/// Counts the results and returns the broken promises.
fn tally(bench: &Bench<'_>, kind: Kind, case: &Case, space: u64, account: &Account) -> Vec<String> {
    let name = format!("{} {}", kind.name(), case.name);
    let written = account.counted("writes until full");
    let used = written * BALLAST as u64 * 100 / space.max(1);
    bench.report.count(SUITE, format!("{name}: writes until full"), written);
    bench.report.count(SUITE, format!("{name}: hundredths of the space in these writes"), used);
    for (what, count) in &account.counts {
        if what != "writes until full" {
            bench.report.count(SUITE, format!("{name}: {what}"), *count);
        }
    }
    bench.report.count(SUITE, "acknowledged writes found again", account.journal.held() as u64);
    let mut broken = Vec::new();
    if !case.reopen
        && case.flush_every.is_none()
        && WRITES_RESUME_WITH_SPACE
        && account.counted("writes resumed") == 0
    {
        broken.push("writes did not resume with the same handle".to_owned());
    }
    // It was only reopened if a write failed instead of waiting for space.
    if case.reopen && OPENS_WHILE_FULL && account.counted("not opened while full") > 0 {
        broken.push(format!("it could not be opened while full: {:?}", account.failed.last()));
    }
    if case.flush_every.is_some() && SMALL_FLUSHES_FIT && written < MOST_FLUSHED_WRITES {
        broken.push(format!("{written} writes filled {space} bytes"));
    }
    broken
}

/// Tests a file system that is remounted read-only: it can be read, and opening for writing is an
/// error.
fn read_only(bench: &Bench<'_>, kind: Kind, mounted: &Mounted) -> Result<(), String> {
    let home = mounted.point().join("home");
    std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let logs = bench.fresh_dir("full-logs")?;
    for turn in 0..4 {
        let ground = Ground { home: home.clone(), seed: bench.amount.seed, turn };
        let _ = std::fs::remove_dir_all(home.join("db"));
        let run = |job: &str, more: &[String]| -> Result<Account, String> {
            let mut setup = ground.setup(job, more);
            setup.logs = logs.clone();
            let (ended, messages) =
                crate::machine::collect(&setup, PATIENCE).map_err(|error| format!("a worker: {error}"))?;
            Ok(ground.account(ended, &messages))
        };
        // Closed in order, or killed, which leaves logs to be replayed.
        let more: Vec<String> = match turn % 2 {
            0 => vec![],
            _ => vec!["--kill".to_owned(), "tail:3".to_owned()],
        };
        let left = run("session", &more)?;
        mounted.set_read_only(true)?;
        let found = run("read-only", &[])?;
        mounted.set_read_only(false)?;
        let mut wrong = found.all_wrong();
        wrong.extend(ground.judge_found(&left, &found));
        bench.report.count(SUITE, format!("{}: read-only openings judged", kind.name()), 1);
        bench.report.count(
            SUITE,
            format!("{}: openings for writing refused", kind.name()),
            found.failed.len() as u64,
        );
        for what in wrong {
            let what = format!("{} read-only: {what}", kind.name());
            let how = ground.setup("read-only", &[]).command();
            bench.report.fail(Failure { suite: SUITE, what, how }, &[&home, &logs]);
        }
    }
    remove(&home);
    Ok(())
}
