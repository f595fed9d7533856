//! `tamis dump`: prints one file of a database as text.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tamis::StorageError;
use tamis::io::DiskFs;
use tamis_doctor::inspect::{self, Contents};

use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A sorted table (`….tam`)
    Table,
    /// A file with images of a global filter (`….flt`)
    Filter,
    /// A file with large values (`….blb`)
    Blob,
    /// A write-ahead log (`….log`)
    Log,
    /// A manifest (`MANIFEST-…`)
    Manifest,
}

impl Kind {
    fn of_name(path: &Path) -> Option<Kind> {
        let name = path.file_name()?.to_str()?;
        match name.rsplit_once('.') {
            _ if name.starts_with("MANIFEST-") => Some(Kind::Manifest),
            Some((_, "tam")) => Some(Kind::Table),
            Some((_, "flt")) => Some(Kind::Filter),
            Some((_, "blb")) => Some(Kind::Blob),
            Some((_, "log")) => Some(Kind::Log),
            _ => None,
        }
    }
}

impl Kind {
    /// Returns the kind of marked contents; `None` for kinds that `dump` does not print.
    fn of_contents(contents: Contents) -> Option<Kind> {
        match contents {
            Contents::Table | Contents::ExternalTable => Some(Kind::Table),
            Contents::FilterImages => Some(Kind::Filter),
            Contents::Blobs => Some(Kind::Blob),
            Contents::Log(_) => Some(Kind::Log),
            Contents::Manifest(_) => Some(Kind::Manifest),
            _ => None,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Filter => "filter file",
            Kind::Blob => "blob file",
            Kind::Log => "log",
            Kind::Manifest => "manifest",
        }
    }

    /// Returns the value of `--kind`.
    fn flag(self) -> &'static str {
        match self {
            Kind::Filter => "filter",
            Kind::Blob => "blob",
            kind => kind.noun(),
        }
    }
}

/// Print a table, filter, blob, log or manifest file as text, without opening the database
#[derive(Args)]
#[command(after_help = "\
The kind of a file is taken from its name, or from its contents if the name does not tell. If the two contradict each other,\n\
the program only says what the file contains (exit code 2); with --kind, the name does not count.\n\n\
Examples:\n  tamis dump ./tamis-demo/000012.tam\n  tamis dump ./tamis-demo/MANIFEST-000001")]
pub(crate) struct DumpArgs {
    /// The file
    file: PathBuf,
    /// The kind of file [default: taken from its name, or else from its contents]
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

/// Returns the kind to read the file as, or the reason why it is not printed.
fn choose(args: &DumpArgs) -> Result<Kind, Failure> {
    let name = args.file.display();
    if args.file.is_dir() {
        return Err(Failure::usage(format!("{name} is a directory; give one of its files")));
    }
    let contents = match inspect::identify(&DiskFs::default(), &args.file) {
        Err(StorageError::Io(failure)) if failure.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::usage(failure));
        }
        contents => contents.map_err(Failure::database)?,
    };
    let wanted = args.kind.or_else(|| Kind::of_name(&args.file));
    let is_not = |wanted: Kind| match args.kind {
        Some(_) => format!("{name} is {contents}, not a {}", wanted.noun()),
        None => format!("{name} is {contents}, not the {} that its name says", wanted.noun()),
    };
    match (wanted, Kind::of_contents(contents), contents) {
        (Some(wanted), Some(held), _) if wanted == held => Ok(wanted),
        // Tables refer to large values in it.
        (Some(Kind::Blob), Some(Kind::Log), _) if args.kind.is_none() => Ok(Kind::Log),
        (Some(wanted), Some(held), _) => {
            let text = format!("{}; --kind {} prints it", is_not(wanted), held.flag());
            Err(Failure::usage(text))
        }
        (None, Some(held), _) => Ok(held),
        // A new log exists before its header is written.
        (Some(Kind::Log), None, Contents::Nothing) => Ok(Kind::Log),
        (Some(wanted), None, Contents::Nothing | Contents::Text) => Err(Failure::usage(is_not(wanted))),
        // Possibly damage: the file has lost its mark.
        (Some(wanted), None, _) => Ok(wanted),
        (None, None, Contents::Nothing | Contents::Text) => {
            Err(Failure::usage(format!("{name} is {contents}, which dump does not print")))
        }
        (None, None, _) => {
            let text =
                format!("neither the name of {name} nor its contents tell its kind; give it with --kind");
            Err(Failure::usage(text))
        }
    }
}

pub(crate) fn run(args: DumpArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let dump = match choose(&args)? {
        Kind::Table => inspect::dump_table,
        Kind::Filter => inspect::dump_filter_images,
        Kind::Blob => inspect::dump_blobs,
        Kind::Log => inspect::dump_log,
        Kind::Manifest => inspect::dump_manifest,
    };
    let mut watched = Watched { out, failed: None };
    let result = dump(&DiskFs::default(), &args.file, &mut watched);
    // A failure of the output is reported as such, whatever the dump turned it into.
    if let Some(kind) = watched.failed {
        return Err(io::Error::from(kind).into());
    }
    result?;
    Ok(Outcome::Done)
}

/// A writer that remembers that the output failed.
struct Watched<'a> {
    out: &'a mut Out,
    failed: Option<io::ErrorKind>,
}

impl Watched<'_> {
    fn watch<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            self.failed = Some(error.kind());
        }
        result
    }
}

impl Write for Watched<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.watch(result)
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.watch(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_taken_from_file_names() {
        for (name, kind) in [
            ("db/000012.tam", Some(Kind::Table)),
            ("000013.log", Some(Kind::Log)),
            ("000014.flt", Some(Kind::Filter)),
            ("000015.blb", Some(Kind::Blob)),
            ("MANIFEST-000001", Some(Kind::Manifest)),
            ("CURRENT", None),
            ("x.txt", None),
        ] {
            assert_eq!(Kind::of_name(Path::new(name)), kind, "{name}");
        }
    }
}
