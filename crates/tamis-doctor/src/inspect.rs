//! Inspecting single files without opening a database: the output of `tamis dump`.
//!
//! Works on files of databases that are open elsewhere, and on damaged files: prints what can be
//! read, then returns the error.

use std::io::Write;
use std::path::Path;

use tamis::{Error, OpenError, StorageError};
use tamis_base::key::Kind;
use tamis_env::io::{Access, FileSystem};
use tamis_files::blob::{BlobFile, Reference};
use tamis_files::images::ImageFile;
use tamis_files::table::{
    CursorOptions, ELASTIC, GLOBAL, KEY_LIST, KeyListReader, ReaderConfig, Table, TableCursor, UnitDirectory,
    read_filter,
};
use tamis_files::tree::files::{FileKind, parse};
use tamis_files::tree::manifest::read_edits;
use tamis_files::tree::tombstones::Tombstones;
use tamis_files::wal::ops::{BatchOp, GroupHeader, Ops};
use tamis_files::wal::{End, LogKind, LogReader, ReadOptions};
use tamis_filter::BloomScheme;

pub use tamis_files::tree::identify::{Contents, identify};

/// Formats bytes as text where they are printable ASCII, escaped elsewhere; long values are
/// truncated.
fn show(bytes: &[u8]) -> String {
    const MOST: usize = 64;
    let (head, more) = bytes.split_at(bytes.len().min(MOST));
    let rest = if more.is_empty() { String::new() } else { format!("… ({} bytes)", bytes.len()) };
    format!("\"{}\"{rest}", head.escape_ascii())
}

/// Says how a log or a manifest ends.
fn how_it_ends(end: Option<&End>) -> String {
    match end {
        None => "ends: not known".to_owned(),
        Some(End::Closed { offset, successor: None }) => format!("ends at {offset}: closed"),
        Some(End::Closed { offset, successor: Some(next) }) => {
            format!("ends at {offset}: closed, continued by log {next}")
        }
        Some(End::Clean { offset }) => format!("ends at {offset}: nothing follows the last record"),
        Some(End::Torn { offset }) => {
            format!("ends at {offset}: the next record is torn, as a crash leaves one, and does not count")
        }
        Some(End::Damaged { offset, what }) => format!("ends at {offset}: damaged, {what}"),
    }
}

fn written(result: std::io::Result<()>) -> Result<(), Error> {
    result.map_err(|e| StorageError::io("write", Path::new("(output)"), e).into())
}

fn kind_of(path: &Path) -> Option<FileKind> {
    parse(path.file_name()?.to_str()?)
}

/// Prints a table file: properties, filter or key list, range tombstones, and every entry.
///
/// # Errors
///
/// A failed system call, also of `out`; damage, with file and offset, once what precedes it is
/// printed; a file that is no table.
pub fn dump_table(fs: &dyn FileSystem, path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let id = match kind_of(path) {
        Some(FileKind::Table(id)) => id,
        _ => 0,
    };
    let config = ReaderConfig::for_a_look();
    let table = Table::open(fs, path, id, config)?;
    let p = table.properties();
    written(writeln!(
        out,
        "table {}: {} bytes, made by {}",
        path.display(),
        table.file_bytes(),
        p.created_by
    ))?;
    written(writeln!(
        out,
        "  entries {} (deletes {}), range tombstones {}, data blocks {}",
        p.entries, p.deletes, p.range_tombstones, p.data_blocks
    ))?;
    written(writeln!(out, "  key bytes {}, value bytes {}", p.raw_key_bytes, p.raw_value_bytes))?;
    written(writeln!(out, "  keys {} to {}", show(&p.smallest), show(&p.largest)))?;
    written(writeln!(
        out,
        "  sequence numbers {} to {}, digest {}",
        p.min_seq, p.max_seq, p.digest_function
    ))?;
    if p.external > 0 {
        written(writeln!(out, "  external: every entry gets the sequence number of its ingestion"))?;
    }
    if table.has_filter() && p.filter_kind == KEY_LIST {
        written(writeln!(out, "  key list in place of a filter: {}", key_list_line(&table)))?;
    } else if table.has_filter() && p.filter_kind == ELASTIC {
        dump_units(&table, out)?;
    } else if table.has_filter() {
        let line = match read_filter(&table) {
            Ok(f) => format!(
                "{}, {:.2} bits per key, {} bytes, expected false-positive rate {}",
                f.kind().name(),
                f.bits_per_key(),
                f.memory_bytes(),
                f.expected_rate().map_or("unknown".into(), |rate| format!("{:.4} %", 100.0 * rate))
            ),
            Err(why) => format!("unusable: {why}"),
        };
        written(writeln!(out, "  filter {line}"))?;
    } else {
        let whose = if p.filter_kind == GLOBAL { ", as the whole tree had one" } else { "" };
        written(writeln!(out, "  no filter{whose}"))?;
    }
    if let Some(bytes) = table.tombstone_bytes()? {
        let tombstones = Tombstones::decode(&bytes)
            .ok_or_else(|| StorageError::corrupt(path, None, "its range tombstones do not decode"))?;
        for t in tombstones.iter() {
            let end = t.end.as_deref().map_or("the end".to_owned(), show);
            written(writeln!(out, "delete-range {} to {end} @ {}", show(&t.start), t.seq))?;
        }
    }
    let mut cursor = TableCursor::new(table.clone(), CursorOptions::default());
    cursor.seek_to_first()?;
    while cursor.valid() {
        let line = match cursor.kind() {
            Kind::Put => format!("put {} = {} @ {}", show(cursor.key()), show(cursor.value()), cursor.seq()),
            Kind::Merge => {
                format!("merge {} with {} @ {}", show(cursor.key()), show(cursor.value()), cursor.seq())
            }
            Kind::PutBlob => match Reference::decode(cursor.value()) {
                Ok(Reference { file, offset, len, .. }) => format!(
                    "put {} = {len} bytes at {offset} of blob file {file} @ {}",
                    show(cursor.key()),
                    cursor.seq()
                ),
                Err(damage) => return Err(cursor.damaged(damage.0).into()),
            },
            Kind::Delete => format!("delete {} @ {}", show(cursor.key()), cursor.seq()),
        };
        written(writeln!(out, "{line}"))?;
        cursor.next()?;
    }
    Ok(())
}

/// Prints what a blob file says about itself. Its values are found by the references in tables,
/// which [`dump_table`] prints. The file's number is the one in its footer, regardless of its name.
///
/// # Errors
///
/// A failed system call, also of `out`; a file that is no blob file, or a damaged one.
pub fn dump_blobs(fs: &dyn FileSystem, path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let file = BlobFile::open(fs, path, None, &ReaderConfig::for_a_look())?;
    let bytes = file.file_bytes();
    let Some(footer) = file.footer() else {
        let path = path.display();
        return written(writeln!(out, "blob file {path}: {bytes} bytes, a log with large values"));
    };
    let path = path.display();
    written(writeln!(
        out,
        "blob file {path}: {bytes} bytes, {} values of {} bytes",
        footer.records, footer.value_bytes
    ))?;
    if let Some(FileKind::Blob(named)) = kind_of(file.path())
        && named != footer.id
    {
        written(writeln!(out, "this is blob file {}, not {named}: the file was renamed", footer.id))?;
    }
    Ok(())
}

/// Prints a filter file: its images, and whether each can be read. The file's number is the one in
/// its footer, regardless of its name.
///
/// # Errors
///
/// A failed system call, also of `out`; damage, with file and offset, once what precedes it is
/// printed; a file that is no filter file.
pub fn dump_filter_images(fs: &dyn FileSystem, path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let file = ImageFile::open(fs, path)?;
    let (bytes, count) = (file.bytes(), file.images().len());
    written(writeln!(
        out,
        "filter file {}: {bytes} bytes, {count} images of keyspace {}",
        path.display(),
        file.keyspace()
    ))?;
    if let Some(FileKind::Filter(named)) = kind_of(path)
        && named != file.number()
    {
        written(writeln!(out, "this is filter file {}, not {named}: the file was renamed", file.number()))?;
    }
    let mut damage = Ok(());
    for image in file.images() {
        let end = image.end.as_deref().map_or("the end".to_owned(), show);
        let copied = if image.made == file.number() {
            String::new()
        } else {
            format!(", first in file {}", image.made)
        };
        let state = match file.read(fs, image) {
            Ok(_) => "",
            Err(why) => {
                damage = damage.and(Err(why));
                ", damaged"
            }
        };
        written(writeln!(
            out,
            "  {} from {} to {end}: flushes below {}, {} bytes{copied}{state}",
            image.kind.name(),
            show(&image.start),
            image.until,
            image.bytes
        ))?;
    }
    Ok(damage?)
}

fn key_list_line(table: &Table) -> String {
    let bytes = match table.filter_bytes() {
        Ok(bytes) => bytes,
        Err(why) => return format!("unusable: {why}"),
    };
    let bytes = bytes.as_deref().unwrap_or_default();
    match KeyListReader::open(bytes) {
        Ok(list) => format!(
            "{} keys, {:.2} bytes per key, {} bytes",
            list.len(),
            bytes.len() as f64 / list.len().max(1) as f64,
            bytes.len()
        ),
        Err(why) => format!("unusable: {}", why.0),
    }
}

/// Prints an elastic filter: its segments, and which of their units are unusable.
fn dump_units(table: &Table, out: &mut dyn Write) -> Result<(), Error> {
    let directory = match UnitDirectory::read(table) {
        Ok(directory) => directory,
        Err(why) => return written(writeln!(out, "  filter unusable: {why}")),
    };
    let (spec, rate) = (directory.spec(), directory.rates()[1]);
    let hashing = match spec.scheme {
        BloomScheme::Rotation => "rotation",
        BloomScheme::DoubleHashing => "double",
        BloomScheme::Independent => "independent",
    };
    written(writeln!(
        out,
        "  filter elastic-{hashing}, {} segments of {} units of {} bits per key, {} keys, {} bytes, expected \
         false-positive rate {:.4} % with one unit and {:.4} % with all",
        directory.segments(),
        spec.units,
        spec.bits_per_key,
        directory.total_keys(),
        table.filter_len(),
        100.0 * rate,
        100.0 * rate.powi(spec.units as i32)
    ))?;
    let mut unusable = vec![Vec::new(); directory.segments()];
    for unit in 0..spec.units {
        for loaded in directory.read_units(table, unit..unit + 1, 0..directory.segments()).units {
            if let Err(why) = loaded.result {
                unusable[loaded.segment].push(format!("unit {} unusable: {why}", loaded.unit));
            }
        }
    }
    for (segment, unusable) in unusable.iter().enumerate() {
        let (_, unit_bytes) = directory.unit_span(segment, 0);
        let (keys, first) = (directory.keys(segment), show(&directory.first_key(segment)));
        written(writeln!(
            out,
            "    segment {segment}: {keys} keys from {first}, {unit_bytes} bytes per unit"
        ))?;
        for why in unusable {
            written(writeln!(out, "      {why}"))?;
        }
    }
    Ok(())
}

/// Prints a write-ahead log: every operation with its sequence number, and how the log ends. The
/// log's number is the one in its header, regardless of the file's name.
///
/// # Errors
///
/// A failed system call, also of `out`; a file that is no log.
pub fn dump_log(fs: &dyn FileSystem, path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let named = match kind_of(path) {
        Some(FileKind::Log(id)) => Some(id),
        _ => None,
    };
    let contents = identify(fs, path)?;
    let held = match contents {
        Contents::Log(id) => Some(id),
        _ => None,
    };
    let Some(id) = held.or(named) else {
        let what = "it has no header, and its name is not that of a log (000012.log)";
        return Err(StorageError::corrupt(path, None, what).into());
    };
    let file = fs.open(path, Access::Sequential).map_err(|e| StorageError::io("open", path, e))?;
    let mut reader =
        LogReader::open(file, path, LogKind::Writes, id, ReadOptions::default()).map_err(OpenError::from)?;
    written(writeln!(out, "log {}", path.display()))?;
    if contents == Contents::Nothing {
        written(writeln!(out, "the file is empty: nothing was written to it before the process ended"))?;
    }
    if let (Some(named), Some(held)) = (named, held)
        && named != held
    {
        let after = match held < named {
            true => ", or was being reused under that number, which did not reach the disk",
            false => "",
        };
        written(writeln!(out, "this is log {held}, not {named}: the file was renamed{after}"))?;
    }
    while let Some(record) = reader.next_record()? {
        let damaged = || StorageError::corrupt(path, record.offset, "a record that does not decode");
        let (header, operations) = GroupHeader::decode(record.payload).map_err(|_| damaged())?;
        written(writeln!(
            out,
            "record at {}: {} writes from {}, synced up to {}",
            record.offset, header.count, header.first_seq, record.synced
        ))?;
        for (op, seq) in Ops::new(operations).zip(header.first_seq..) {
            let line = match op.map_err(|_| damaged())? {
                BatchOp::Put { keyspace, key, value } => {
                    format!("  put {} = {} @ {seq} keyspace {keyspace}", show(key), show(value))
                }
                BatchOp::Merge { keyspace, key, operand } => {
                    format!("  merge {} with {} @ {seq} keyspace {keyspace}", show(key), show(operand))
                }
                BatchOp::Delete { keyspace, key } => {
                    format!("  delete {} @ {seq} keyspace {keyspace}", show(key))
                }
                BatchOp::Ingestion { keyspace } => {
                    format!("  tables ingested @ {seq} keyspace {keyspace}, if the manifest names them")
                }
                BatchOp::DeleteRange { keyspace, start, end } => {
                    let end = end.map_or("the end".to_owned(), show);
                    format!("  delete-range {} to {end} @ {seq} keyspace {keyspace}", show(start))
                }
            };
            written(writeln!(out, "{line}"))?;
        }
    }
    written(writeln!(out, "{}", how_it_ends(reader.end())))
}

/// Prints a manifest: every edit, in order. The manifest's number is the one in its header,
/// regardless of the file's name.
///
/// # Errors
///
/// A failed system call, also of `out`; damage; a file that is no manifest.
pub fn dump_manifest(fs: &dyn FileSystem, path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let named = match kind_of(path) {
        Some(FileKind::Manifest(number)) => Some(number),
        _ => None,
    };
    let held = match identify(fs, path)? {
        Contents::Manifest(number) => Some(number),
        _ => None,
    };
    let Some(number) = held.or(named) else {
        let what = "it has no header, and its name is not that of a manifest (MANIFEST-000001)";
        return Err(StorageError::corrupt(path, None, what).into());
    };
    written(writeln!(out, "manifest {}", path.display()))?;
    if let Some(named) = named.filter(|named| *named != number) {
        written(writeln!(out, "this is manifest {number}, not {named}: the file was renamed"))?;
    }
    let mut failed = Ok(());
    let end = read_edits(fs, path, number, |offset, edit| {
        let mut print = || -> std::io::Result<()> {
            writeln!(out, "edit at {offset}:")?;
            for (id, name, _) in &edit.create_keyspaces {
                writeln!(out, "  create keyspace {id} `{}`", name.escape_debug())?;
            }
            for (id, name) in &edit.rename_keyspaces {
                writeln!(out, "  rename keyspace {id} to `{}`", name.escape_debug())?;
            }
            for id in &edit.drop_keyspaces {
                writeln!(out, "  drop keyspace {id}")?;
            }
            for (ks, floor) in &edit.log_floor {
                writeln!(out, "  keyspace {ks}: logs from {floor} on")?;
            }
            for (ks, ages) in &edit.ages {
                writeln!(
                    out,
                    "  keyspace {ks}: ages known after write {}, expired up to {}",
                    ages.since, ages.expired
                )?;
            }
            for sample in &edit.times {
                writeln!(out, "  write {} and all before: made by {}", sample.seq, sample.time)?;
            }
            for (ks, id) in &edit.removed {
                writeln!(out, "  keyspace {ks}: - table {id}")?;
            }
            for (ks, file) in &edit.removed_filters {
                writeln!(out, "  keyspace {ks}: - filter file {file}")?;
            }
            for (ks, file, bytes) in &edit.added_filters {
                writeln!(out, "  keyspace {ks}: + filter file {file}, {bytes} bytes")?;
            }
            for (ks, level, run, t) in &edit.added {
                let (low, high) = t.epochs.hull();
                let smallest = show(&t.smallest);
                let ingested = t.extra.global_seq.map_or(String::new(), |seq| format!(", ingested @ {seq}"));
                writeln!(
                    out,
                    "  keyspace {ks}: + table {} level {level} run {run}, {} entries, from {smallest}, flushes {low}..{high}{ingested}",
                    t.id, t.entries
                )?;
            }
            Ok(())
        };
        if failed.is_ok() {
            failed = print();
        }
        Ok(())
    })
    .map_err(OpenError::from)?;
    written(failed)?;
    written(writeln!(out, "{}", how_it_ends(Some(&end))))
}
