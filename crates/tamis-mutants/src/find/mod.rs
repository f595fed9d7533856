//! Finds the places of a source where a small mistake can be made.
//!
//! Left alone: tests, constants and `const fn`, unsafe code, the insides of macros (so assertions,
//! too), `Debug` and `Display`, code that is not built for tests on Linux, and what only saves
//! time or memory (`with_capacity`, `reserve`).

mod conditional;
mod modules;
mod operators;
mod values;
mod visitor;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use crate::rooms;
use crate::site::{Mutant, Source};
use visitor::{Names, Visitor};

/// The mutants of the engine and the sources they are in.
#[derive(Debug, Default)]
pub struct Found {
    pub mutants: Vec<Mutant>,
    pub sources: Vec<Source>,
}

/// Finds the mutants of all crates of the engine under the root of a repository.
pub fn find(root: &Path) -> io::Result<Found> {
    let mut crates = Vec::new();
    let mut integers = HashSet::new();
    for krate in rooms::CRATES {
        let modules = modules::modules(root, krate)?;
        for module in &modules {
            values::add_names(&module.parsed.items, &mut integers);
        }
        crates.push((krate, modules));
    }
    let mut found = Found::default();
    for (krate, modules) in crates {
        for module in modules {
            let place = module.path.iter().fold((*krate).to_owned(), |place, part| format!("{place}/{part}"));
            let names = Names {
                file: module.file.to_string_lossy().into_owned(),
                group: rooms::group(&place),
                room: rooms::room(krate, &module.path),
                module: module.path.join("::"),
            };
            let first = found.mutants.len() as u32 + 1;
            let (mutants, sites) = Visitor::new(names, &module.text, &integers, first).visit(&module.parsed);
            let file = module.file.to_string_lossy().into_owned();
            found.sources.push(Source { file, text: module.text, sites });
            found.mutants.extend(mutants);
        }
    }
    name(&mut found.mutants);
    Ok(found)
}

/// Finds the mutants of one source, for tests.
#[cfg(test)]
pub fn find_in(text: &str) -> (Vec<Mutant>, Source) {
    let parsed = syn::parse_file(text).unwrap();
    let names = Names {
        file: "source.rs".to_owned(),
        group: "others",
        room: "room".to_owned(),
        module: String::new(),
    };
    let mut integers = HashSet::new();
    values::add_names(&parsed.items, &mut integers);
    let (mut mutants, sites) = Visitor::new(names, text, &integers, 1).visit(&parsed);
    name(&mut mutants);
    (mutants, Source { file: "source.rs".to_owned(), text: text.to_owned(), sites })
}

/// Gives each mutant its name. Equal ones in a function are counted.
fn name(mutants: &mut [Mutant]) {
    let mut seen = HashMap::new();
    for mutant in mutants {
        let of = [&mutant.file, &mutant.function, &mutant.operator, &mutant.original, &mutant.mutated];
        let count = seen.entry(of.map(Clone::clone)).or_insert(0u32);
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        for byte in of.iter().flat_map(|part| part.bytes().chain([0])).chain(count.to_le_bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        *count += 1;
        mutant.id = format!("{hash:016x}");
    }
}
