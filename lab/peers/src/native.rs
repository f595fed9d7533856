//! The second program: the same one, built for the present processor. It has the worker of `rocksdb-native`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::engines::system::System;
use crate::failure::Failure;
use crate::link::{Link, Trouble};
use crate::protocol::{Answer, Data, Request};
use crate::suites::{Plan, Sizes, Suite};

/// Its name beside this program.
const BESIDE: &str = "tamis-peers-native";

/// The limit of time to open an empty database.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the given program, or that beside this program if there is one.
pub(crate) fn program(given: Option<&Path>) -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name(BESIDE));
    given.map(Path::to_owned).or_else(|| beside().filter(|program| program.is_file()))
}

/// Lets the program open an empty database in `dir`, which it refuses unless its RocksDB was built for the present
/// processor.
pub(crate) fn check(
    program: Option<&Path>,
    system: &System,
    sizes: &Sizes,
    dir: &Path,
) -> Result<(), Failure> {
    let Some(program) = program else {
        return Err(Failure::Usage(format!(
            "{system} needs this program built for the present processor: --native PROGRAM, or {BESIDE} beside this one"
        )));
    };
    let unusable = |why: &str| Failure::Usage(format!("--native {}: {why}", program.display()));
    let plan: Plan = Suite::Settled.plans(sizes)?.remove(0);
    let (setup, data) = (plan.setup(dir.join("native"), &[]), Data { keys: 1, asked: 1, ..plan.data });
    let setup = crate::engines::Setup { direct_io: false, ..setup };
    let mut link = Link::spawn(program, system, LIMIT).map_err(|error| unusable(&error.to_string()))?;
    let answer = link.ask(&Request::Open { setup: setup.clone(), data, loaded: 0 });
    drop(link);
    if setup.dir.exists() {
        std::fs::remove_dir_all(&setup.dir).map_err(|error| Failure::file("remove", &setup.dir, &error))?;
    }
    match answer {
        Ok(Answer::Opened { .. }) => Ok(()),
        Ok(Answer::Refused { why }) | Err(Trouble::Failed(why) | Trouble::WrongAnswer(why)) => {
            Err(unusable(&why))
        }
        Ok(other) => Err(unusable(&format!("its worker sent an unexpected answer: {other:?}"))),
    }
}
