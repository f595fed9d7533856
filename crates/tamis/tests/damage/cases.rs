//! The cases: one change to the files at a time.

use std::ops::Range;
use std::sync::Arc;

use crate::specimen::{Files, Specimen};

/// The files of a database after one change.
pub(crate) struct Case {
    pub(crate) what: String,
    pub(crate) files: Files,
    /// Whether the last log ends earlier than it did, is no longer the last one, or has lost every
    /// record that tells how far it had been synced. Missing synced writes cannot be noticed then:
    /// a killed database's log ends wherever the power was cut.
    pub(crate) end_is_gone: bool,
}

impl Case {
    pub(crate) fn none(specimen: &Specimen) -> Case {
        Case { what: "nothing".into(), files: specimen.files.clone(), end_is_gone: false }
    }

    fn new(specimen: &Specimen, name: &str, what: String, bytes: Option<Vec<u8>>) -> Case {
        let mut files = specimen.files.clone();
        let hurt = |record: &Range<usize>| {
            let is = bytes.as_ref().and_then(|bytes| bytes.get(record.clone()));
            is != Some(&specimen.files[name][record.clone()])
        };
        let end_is_gone = name == specimen.last_log()
            && match &specimen.unsynced[..] {
                [] => bytes.as_ref().is_none_or(|bytes| ends_before(bytes, &specimen.files[name])),
                unsynced => unsynced.iter().all(hurt),
            };
        match bytes {
            Some(bytes) => files.insert(name.to_owned(), bytes.into()),
            None => files.remove(name),
        };
        Case { what: format!("{:?}: {name} {what}", specimen.filter), files, end_is_gone }
    }
}

/// Reports whether the last nonzero byte lies earlier.
fn ends_before(bytes: &[u8], than: &[u8]) -> bool {
    let end = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte != 0);
    end(bytes) < end(than)
}

/// Steps through `len` positions: all of them or about `most`.
fn steps(len: usize, most: Option<usize>) -> impl Iterator<Item = usize> {
    let step = most.map_or(1, |most| (len / most).max(1));
    // Not always the first byte of a step: other files, other positions.
    let first = if step > 1 { len % step } else { 0 };
    (first..len).step_by(step)
}

/// Every case, or a sample of about this many positions per file.
pub(crate) fn all(specimen: &Specimen, most: Option<usize>) -> impl Iterator<Item = Case> {
    let places =
        specimen.files.iter().flat_map(move |(name, bytes)| in_one_file(specimen, name, bytes, most));
    places.chain(names(specimen))
}

fn in_one_file<'a>(
    specimen: &'a Specimen,
    name: &'a str,
    bytes: &'a Arc<[u8]>,
    most: Option<usize>,
) -> impl Iterator<Item = Case> + 'a {
    let edited = move |what: String, edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.to_vec();
        edit(&mut bytes);
        Case::new(specimen, name, what, Some(bytes))
    };
    let len = bytes.len();
    // Logs are preallocated: of the zeros after the written part, a few represent all.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    let reach = len.min(written + 64);
    let flipped = steps(reach, most).map(move |at| {
        edited(format!("with byte {at} of {len} flipped"), &|bytes| bytes[at] ^= 1 << (at % 8))
    });
    let cut =
        steps(len, most).map(move |at| edited(format!("cut at {at} of {len}"), &|bytes| bytes.truncate(at)));
    let zeroed = steps(reach, most.map(|most| most / 2)).map(move |at| {
        let end = len.min(at + [1, 8, 64, 512][at % 4]);
        edited(format!("with zeros from {at} to {end}"), &|bytes| bytes[at..end].fill(0))
    });
    let longer = [(1, 0), (64, 0), (4096, 0), (1, 0xFF), (100, 1)].into_iter().map(move |(n, byte)| {
        edited(format!("longer by {n} bytes {byte:#x}"), &|bytes| bytes.resize(len + n, byte))
    });
    flipped.chain(cut).chain(zeroed).chain(longer)
}

fn kind(name: &str) -> &str {
    name.rsplit_once('.').map_or("manifest", |(_, extension)| extension)
}

/// Changes to whole files.
fn names(specimen: &Specimen) -> impl Iterator<Item = Case> {
    let files = &specimen.files;
    let mut cases = Vec::new();
    for (name, bytes) in files {
        cases.push(Case::new(specimen, name, "deleted".into(), None));
        cases.push(Case::new(specimen, name, "emptied".into(), Some(Vec::new())));
        cases.push(Case::new(specimen, name, "zeroed".into(), Some(vec![0; bytes.len()])));
        // Duplicated, and under another number: an unused one, and a neighbour's.
        let others = files.keys().filter(|other| kind(other) == kind(name) && *other != name);
        for other in others {
            let mut case =
                Case::new(specimen, name, format!("is {other} as well"), Some(files[other].to_vec()));
            case.end_is_gone |= name == specimen.last_log();
            cases.push(case);
            if name < other {
                let mut case =
                    Case::new(specimen, name, format!("and {other} exchanged"), Some(files[other].to_vec()));
                case.files.insert(other.clone(), bytes.clone());
                case.end_is_gone |= [name, other].contains(&&specimen.last_log().to_owned());
                cases.push(case);
            }
        }
        if let Some((_, extension)) = name.rsplit_once('.') {
            for keep in [false, true] {
                let to = format!("000900.{extension}");
                let mut case = Case::new(specimen, name, format!("renamed to {to} (copied: {keep})"), None);
                case.files.insert(to, bytes.clone());
                if keep {
                    case.files.insert(name.clone(), bytes.clone());
                }
                cases.push(case);
            }
        }
    }
    // Earlier versions of files reappear, beside or in place of the current ones.
    for (name, bytes) in &specimen.earlier {
        if specimen.files.get(name) != Some(bytes) {
            let mut case = Case::none(specimen);
            case.what = format!("{:?}: {name} as it was earlier", specimen.filter);
            case.files.insert(name.clone(), bytes.clone());
            case.end_is_gone = name == specimen.last_log();
            cases.push(case);
        }
    }
    cases.into_iter()
}
