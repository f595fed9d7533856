//! `tamis dump`: one file of a database as text.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tamis::inspect;
use tamis::io::DiskFs;

use crate::failure::{Failure, Outcome};
use crate::output::Out;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A sorted table (`….tam`)
    Table,
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
            Some((_, "log")) => Some(Kind::Log),
            _ => None,
        }
    }
}

/// Print a table, log or manifest file as text, without opening the database
#[derive(Args)]
#[command(
    after_help = "Examples:\n  tamis dump ./tamis-demo/000012.tam\n  tamis dump ./tamis-demo/MANIFEST-000001"
)]
pub(crate) struct DumpArgs {
    /// The file
    file: PathBuf,
    /// What the file is; by default known by its name
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

pub(crate) fn run(args: DumpArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let unknown = || {
        let name = args.file.display();
        Failure::usage(format!("{name} does not tell by its name what it is; say it with --kind"))
    };
    let kind = args.kind.or_else(|| Kind::of_name(&args.file)).ok_or_else(unknown)?;
    let dump = match kind {
        Kind::Table => inspect::dump_table,
        Kind::Log => inspect::dump_log,
        Kind::Manifest => inspect::dump_manifest,
    };
    let mut watched = Watched { out, failed: None };
    let result = dump(&DiskFs::default(), &args.file, &mut watched);
    // A failure of the output is what it is, whatever the dump made of it.
    if let Some(kind) = watched.failed {
        return Err(io::Error::from(kind).into());
    }
    result?;
    Ok(Outcome::Done)
}

/// Remembers that the output failed.
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
    fn files_are_known_by_their_names() {
        for (name, kind) in [
            ("db/000012.tam", Some(Kind::Table)),
            ("000013.log", Some(Kind::Log)),
            ("MANIFEST-000001", Some(Kind::Manifest)),
            ("CURRENT", None),
            ("x.txt", None),
        ] {
            assert_eq!(Kind::of_name(Path::new(name)), kind, "{name}");
        }
    }
}
