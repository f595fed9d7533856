//! `tamis verify`: checks every checksum and every invariant.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use tamis::Options;
use tamis::maintenance::{VerifiedFile, VerifiedKind, VerifyReport};
use tamis::operators::Operators;
use tamis::options::OnDamage;
use tamis_bench::report::{bytes, counted};

use crate::args::{DbArgs, refuse_file};
use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// Check every checksum and every invariant of a database
#[derive(Args)]
#[command(
    after_help = "Reads every byte and changes none. If damage keeps the database from being opened, everything that can be read is\n\
                  checked all the same. Exits with 1 if it finds a problem; it then says which files are damaged and which are\n\
                  sound, and what to do.\n\nExample:\n  \
                  tamis verify --db ./tamis-demo"
)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: VerifyArgs, out: &mut Out) -> Result<Outcome, Failure> {
    refuse_file(&args.db.db)?;
    // Without its options, too, since they are in a file that may be damaged itself.
    let (options, lost) = match args.db.to_options_with(Some(OnDamage::Quarantine)) {
        Ok(options) => (options, None),
        Err(damage) => {
            let mut options = Options { operators: Operators::new().with_unknown(), ..Options::default() };
            // Wrong options on the command line stay an error.
            args.db.options.apply(&mut options)?;
            (options, Some(damage.to_string()))
        }
    };
    let mut report = tamis_doctor::verify(&args.db.db, options)?;
    report.problems.extend(lost.iter().map(|what| format!("its options cannot be read: {what}")));
    let advice = advice(&report, lost.is_some(), &args.db.db.display().to_string());
    match args.json {
        true => out.json(&object(&report, &advice))?,
        false => out.page(&page(&report, &advice), 9)?,
    }
    Ok(if report.problems.is_empty() { Outcome::Done } else { Outcome::Negative })
}

/// Returns what to do about the problems.
fn advice(report: &VerifyReport, options_lost: bool, dir: &str) -> Vec<String> {
    let damaged = |kind| report.files.iter().any(|file| file.kind == kind && !file.problems.is_empty());
    let mut advice = Vec::new();
    if report.unopenable.is_some() {
        advice.push(format!(
            "The database cannot be opened as it is. `tamis salvage --db {dir} --dry-run` shows what can be kept and what is lost; without \
             --dry-run it opens again with what can be kept, and no file is removed. A checkpoint in its place loses only what is newer."
        ));
    } else if damaged(VerifiedKind::Table) {
        advice.push(
            "Reads that need the damaged part of a table fail; all others give right answers. Put a sound copy of the file in its \
             place, for example from a checkpoint. If only its filter or key list is damaged, `tamis compact` writes it anew."
                .to_owned(),
        );
    } else if damaged(VerifiedKind::Log) {
        advice.push(format!(
            "The log was damaged after it was read. If a program has the database open, let it flush, which makes the log superfluous; \
             otherwise use `tamis salvage --db {dir}`."
        ));
    }
    if report.unopenable.is_none() && damaged(VerifiedKind::Blob) {
        advice.push(
            "Reads of damaged values fail; all others give right answers. Put a sound copy of the file in its place, for example from \
             a checkpoint. `tamis salvage` cannot mend values."
                .to_owned(),
        );
    }
    if damaged(VerifiedKind::Filter) {
        advice.push(
            "Damaged filter files cost time and no answers: the next writer builds what they held anew."
                .to_owned(),
        );
    }
    if options_lost {
        advice.push(format!(
            "Its options are only a description for people and programs: remove {dir}/OPTIONS, and give the options that differ from \
             the defaults with -o at the next opening."
        ));
    }
    if advice.is_empty() && !report.problems.is_empty() {
        advice.push(format!(
            "The tree contradicts itself: `tamis salvage --db {dir} --dry-run` shows what can be kept."
        ));
    }
    advice
}

/// Returns the number of files of each kind, and of what they hold.
fn sound(files: &[VerifiedFile]) -> String {
    let of = |kind| files.iter().filter(move |file| file.kind == kind && file.problems.is_empty());
    let mut parts = Vec::new();
    for (kind, noun, contents) in [
        (VerifiedKind::Manifest, "manifests", ""),
        (VerifiedKind::Table, "tables", "entries"),
        (VerifiedKind::Blob, "blob files", ""),
        (VerifiedKind::Filter, "filter files", ""),
        (VerifiedKind::Log, "logs", "writes"),
    ] {
        let (count, entries) = (of(kind).count() as u64, of(kind).map(|file| file.entries).sum());
        if count == 0 {
            continue;
        }
        parts.push(match contents {
            "" => counted(count, noun),
            contents => format!("{} with {}", counted(count, noun), counted(entries, contents)),
        });
    }
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

fn page(report: &VerifyReport, advice: &[String]) -> String {
    let mut page = String::new();
    for problem in &report.problems {
        let _ = writeln!(page, "problem: {problem}");
    }
    if !report.problems.is_empty() {
        for VerifiedFile { file, kind, keyspace, entries, .. } in
            report.files.iter().filter(|file| !file.problems.is_empty())
        {
            let of = if keyspace.is_empty() { String::new() } else { format!(" of keyspace `{keyspace}`") };
            let held = match kind {
                VerifiedKind::Table => format!(", {} in all", counted(*entries, "entries")),
                // Those of a log are not counted.
                VerifiedKind::Blob if *entries > 0 => format!(", {} in all", counted(*entries, "values")),
                VerifiedKind::Log => format!(", {} can be read", counted(*entries, "writes")),
                _ => String::new(),
            };
            let _ = writeln!(page, "damaged: {file}, a {}{of}{held}", kind.name());
        }
        let _ = writeln!(page, "sound:   {}", sound(&report.files));
        advice.iter().for_each(|what| {
            let _ = writeln!(page, "to do:   {what}");
        });
    }
    let count = |n: usize, what: &str| match n {
        0 => String::new(),
        n => counted(n as u64, &format!("{what} files")) + ", ",
    };
    let others = count(report.blob_files, "blob") + &count(report.filter_files, "filter");
    let _ = writeln!(
        page,
        "{}, {others}{}, {}, {} read: {}",
        counted(report.tables as u64, "tables"),
        counted(report.blocks, "blocks"),
        counted(report.entries, "entries"),
        bytes(report.bytes),
        match report.problems.len() {
            0 => "all sound".to_owned(),
            n => counted(n as u64, "problems"),
        }
    );
    page
}

fn object(report: &VerifyReport, advice: &[String]) -> Value {
    let files = report.files.iter().map(|file| {
        json!({
            "file": file.file, "kind": file.kind.name(), "keyspace": file.keyspace, "entries": file.entries,
            "problems": file.problems,
        })
    });
    json!({
        "tables": report.tables, "blocks": report.blocks, "bytes": report.bytes, "filter_files": report.filter_files,
        "blob_files": report.blob_files,
        "entries": report.entries, "log_writes": report.log_writes, "problems": report.problems,
        "unopenable": report.unopenable, "files": files.collect::<Vec<_>>(), "advice": advice,
    })
}
