//! `tamis checkpoint`: makes a consistent copy.
//!
//! If no other process has the database open, the engine makes the checkpoint. Beside a writer, a
//! follower catches up with it and holds its files, which are linked or copied. `CURRENT` comes
//! last, after all other files are durable: a directory without it is no database.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use tamis::live_files::{LiveFile, LiveFileKind};
use tamis::{Db, OpenError};

use crate::args::DbArgs;
use crate::failure::{Failure, Outcome};

/// Bytes copied at a time.
const PIECE: u64 = 1 << 20;

/// Make a consistent copy of a database, using hard links where the file system supports them
#[derive(Args)]
#[command(
    after_help = "The database may be in use. The copy then has what its writer had written when the command began.\n\n\
                        Example:\n  tamis checkpoint --db ./tamis-demo ./tamis-demo-copy"
)]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    db: DbArgs,
    /// The new directory; must not exist
    target: PathBuf,
}

pub(crate) fn run(args: CheckpointArgs) -> Result<Outcome, Failure> {
    match args.db.try_open_existing()? {
        Ok(db) => {
            db.checkpoint(&args.target)?;
            db.close()?;
        }
        Err(OpenError::Locked { .. }) => beside_a_writer(&args)?,
        Err(error) => return Err(error.into()),
    }
    Ok(Outcome::Done)
}

fn beside_a_writer(args: &CheckpointArgs) -> Result<(), Failure> {
    let target = &args.target;
    let db = args.db.open_to_copy()?;
    fs::create_dir(target).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::usage(format!("{} exists", target.display())),
        _ => failed(target, &error),
    })?;
    copy(&db, &args.db.db, target).inspect_err(|_| {
        // Without `CURRENT` what is left is no database.
        let _ = fs::remove_dir_all(target);
    })
}

fn copy(db: &Db, dir: &Path, target: &Path) -> Result<(), Failure> {
    let live = db.live_files()?;
    let (last, others): (Vec<_>, Vec<_>) =
        live.files().iter().partition(|file| file.kind() == LiveFileKind::Current);
    for file in others {
        let to = target.join(file.name());
        place(file, &dir.join(file.name()), &to).map_err(|error| failed(&to, &error))?;
    }
    sync_dir(target)?;
    for file in last {
        let to = target.join(file.name());
        write(file, &to).map_err(|error| failed(&to, &error))?;
    }
    sync_dir(target)?;
    // Until its parent is durable, too, a power failure may take the directory.
    sync_dir(target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Links a file that never changes, and copies any other. The writer may have removed its name.
fn place(file: &LiveFile, from: &Path, to: &Path) -> io::Result<()> {
    let never_changes =
        matches!(file.kind(), LiveFileKind::Table | LiveFileKind::Blob | LiveFileKind::Filter);
    if never_changes && fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    write(file, to)
}

fn write(file: &LiveFile, to: &Path) -> io::Result<()> {
    let mut copy = File::create_new(to)?;
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < file.len() {
        bytes.resize(PIECE.min(file.len() - at) as usize, 0);
        file.read_exact_at(&mut bytes, at)?;
        copy.write_all(&bytes)?;
        at += bytes.len() as u64;
    }
    copy.sync_all()
}

fn sync_dir(dir: &Path) -> Result<(), Failure> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| failed(dir, &error))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::database(format!("could not make {}: {error}", path.display()))
}
