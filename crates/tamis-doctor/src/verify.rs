//! Verification of a database that damage may keep from being opened.
//!
//! It is opened read-only. If that fails because of damage, it is opened read-only again as a
//! salvage would leave it, which changes nothing: tables are then checked as in any verification,
//! and what the salvage leaves out is damaged for the reasons that it gives. Logs are read one by
//! one, since what follows a damaged record may be sound.

use std::path::Path;

use tamis::maintenance::{VerifiedKind, VerifyReport};
use tamis::options::OnDamage;
use tamis::repair::{check_trees, file_system, in_words, open_to_check};
use tamis::{Error, OpenError, Options, StorageError};
use tamis_env::io::FileSystem;
use tamis_files::error::is_lasting;
use tamis_files::images::ImageFile;
use tamis_files::tree::files::{FileKind, current_path, name_of, parse};
use tamis_files::tree::found::Files;

use crate::salvage::{self, SalvageReport, TableFate};

/// Checks the database in `path` like [`Db::verify`](tamis::Db::verify), without its lock and
/// without changing anything. If damage keeps it from being opened, the report says so in
/// [`VerifyReport::unopenable`], and everything that can be read is checked all the same. Costs an
/// opening (two, if it fails) and a read of every file.
///
/// # Errors
///
/// Those of [`Options::open_read_only`], except that damage is no error: it is in the report.
pub fn verify(path: impl AsRef<Path>, options: Options) -> Result<VerifyReport, Error> {
    let dir = path.as_ref();
    // A damaged table must not keep the others from being checked.
    let options = Options { on_damage: OnDamage::Quarantine, ..options };
    let why = match open_to_check(dir, &options, None) {
        Ok(db) => return db.verify(),
        Err(OpenError::Storage(why)) if is_lasting(&why) => why,
        Err(OpenError::NotFound { .. }) if holds_data(&*file_system(&options), dir)? => {
            StorageError::corrupt(&current_path(dir), None, "it is missing although there is data")
        }
        Err(other) => return Err(other.into()),
    };
    let mut report = VerifyReport::default();
    report.unopenable = Some(in_words(&why));
    match salvage::open_to_check(dir, &options) {
        Ok((db, found)) => {
            add_manifest(&mut report, &why, &found);
            check_trees(&db, &mut report)?;
            add_left_out(&mut report, &found);
            check_filter_files(&*file_system(&options), dir, &mut report)?;
        }
        Err(OpenError::Storage(more)) if is_lasting(&more) => {
            report.problems.push(in_words(&more));
            check_filter_files(&*file_system(&options), dir, &mut report)?;
        }
        Err(other) => return Err(other.into()),
    }
    // The reason is usually among what was found.
    let why = in_words(&why);
    if !report.problems.contains(&why) {
        report.problems.insert(0, why);
    }
    Ok(report)
}

/// Reports whether there are files, other than `CURRENT`, that only a database has.
fn holds_data(fs: &dyn FileSystem, dir: &Path) -> Result<bool, StorageError> {
    match fs.exists(dir).map_err(|e| StorageError::io("look for", dir, e))? {
        true => Ok(Files::list(fs, dir)?.any()),
        false => Ok(false),
    }
}

fn add_manifest(report: &mut VerifyReport, why: &StorageError, found: &SalvageReport) {
    report.problems.extend(found.manifest.iter().cloned());
    let file = match parse(&name_of(why.path())) {
        Some(FileKind::Current | FileKind::Manifest(_)) => name_of(why.path()),
        _ => "CURRENT".to_owned(),
    };
    report.note(file, VerifiedKind::Manifest, "", 0, found.manifest.clone());
}

/// Adds the logs, and the tables that a salvage leaves out because they are damaged or missing.
fn add_left_out(report: &mut VerifyReport, found: &SalvageReport) {
    let lost = |fate| matches!(fate, TableFate::SetAside | TableFate::Missing);
    for table in found.tables.iter().filter(|table| lost(table.fate)) {
        let problem = format!("{}: {}", table.file, table.why);
        report.problems.push(problem.clone());
        report.note(table.file.clone(), VerifiedKind::Table, &table.keyspace, table.entries, vec![problem]);
    }
    for log in found.logs.iter().filter(|log| log.writes > 0 || !log.problems.is_empty()) {
        report.log_writes += log.writes;
        report.problems.extend(log.problems.iter().cloned());
        report.note(log.file.clone(), VerifiedKind::Log, "", log.writes, log.problems.clone());
    }
}

/// Reads all filter files in the directory: a salvage uses none of them.
fn check_filter_files(
    fs: &dyn FileSystem,
    dir: &Path,
    report: &mut VerifyReport,
) -> Result<(), StorageError> {
    let names = fs.list(dir).map_err(|e| StorageError::io("list", dir, e))?;
    for name in names.iter().filter(|name| matches!(parse(name), Some(FileKind::Filter(_)))) {
        let path = dir.join(name);
        let mut problems = Vec::new();
        match ImageFile::open(fs, &path) {
            Ok(file) => {
                report.bytes += file.bytes();
                let read = file.images().iter().map(|image| file.read(fs, image));
                problems.extend(read.filter_map(|read| read.err()).map(|why| why.to_string()));
            }
            Err(why) => problems.push(why.to_string()),
        }
        report.filter_files += 1;
        report.problems.extend(problems.iter().cloned());
        report.note(name.clone(), VerifiedKind::Filter, "", 0, problems);
    }
    Ok(())
}
