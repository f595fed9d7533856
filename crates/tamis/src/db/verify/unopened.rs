//! Verification of a database that damage may keep from being opened.
//!
//! It is opened read-only. If that fails because of damage, it is opened read-only again as a
//! salvage would leave it, which changes nothing: tables are then checked as in any verification,
//! and what the salvage leaves out is damaged for the reasons that it gives. Logs are read one by
//! one, since what follows a damaged record may be sound.

use std::path::Path;

use tamis_files::error::is_lasting;
use tamis_files::images::ImageFile;
use tamis_files::tree::files::{FileKind, current_path, name_of, parse};

use crate::db::beside;
use crate::db::open::{file_system, holds_data};
use crate::db::salvage::{SalvageReport, TableFate};
use crate::db::verify::{VerifiedKind, VerifyReport, in_words};
use crate::error::{Error, OpenError, StorageError};
use crate::io::FileSystem;
use crate::options::{OnDamage, Options};

/// See [`Db::verify_at`](crate::Db::verify_at).
pub(crate) fn verify_at(dir: &Path, options: Options) -> Result<VerifyReport, Error> {
    // A damaged table must not keep the others from being checked.
    let options = Options { on_damage: OnDamage::Quarantine, salvage: false, ..options };
    let why = match beside::open(dir, &options) {
        Ok(db) => return db.verify(),
        Err(OpenError::Storage(why)) if is_lasting(&why) => why,
        Err(OpenError::NotFound { .. }) if holds_data(&*file_system(&options), dir)? => {
            StorageError::corrupt(&current_path(dir), None, "it is missing although there is data")
        }
        Err(other) => return Err(other.into()),
    };
    let mut report = VerifyReport { unopenable: Some(in_words(&why)), ..VerifyReport::default() };
    let options = Options { salvage: true, ..options };
    match beside::open(dir, &options) {
        Ok(db) => {
            let found = db.salvaged.lock().take().unwrap_or_default();
            report.add_manifest(&why, &found);
            db.check_trees(&mut report)?;
            report.add_left_out(&found);
            check_filter_files(&*db.fs, dir, &mut report)?;
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

impl VerifyReport {
    fn add_manifest(&mut self, why: &StorageError, found: &SalvageReport) {
        self.problems.extend(found.manifest.iter().cloned());
        let file = match parse(&name_of(why.path())) {
            Some(FileKind::Current | FileKind::Manifest(_)) => name_of(why.path()),
            _ => "CURRENT".to_owned(),
        };
        self.note(file, VerifiedKind::Manifest, "", 0, found.manifest.clone());
    }

    /// Adds the logs, and the tables that a salvage leaves out because they are damaged or missing.
    fn add_left_out(&mut self, found: &SalvageReport) {
        let lost = |fate| matches!(fate, TableFate::SetAside | TableFate::Missing);
        for table in found.tables.iter().filter(|table| lost(table.fate)) {
            let problem = format!("{}: {}", table.file, table.why);
            self.problems.push(problem.clone());
            self.note(table.file.clone(), VerifiedKind::Table, &table.keyspace, table.entries, vec![problem]);
        }
        for log in found.logs.iter().filter(|log| log.writes > 0 || !log.problems.is_empty()) {
            self.log_writes += log.writes;
            self.problems.extend(log.problems.iter().cloned());
            self.note(log.file.clone(), VerifiedKind::Log, "", log.writes, log.problems.clone());
        }
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
