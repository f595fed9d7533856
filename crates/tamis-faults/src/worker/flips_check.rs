//! Reads everything that the job of the flips left, in a process that was not hit.

use std::collections::BTreeMap;

use tamis::Keyspace;

use super::Place;
use super::flips::{Protect, options};
use crate::oracle::{Contents, Records, Shelf, batches, difference, shown};
use crate::wire::{Message, tell};

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The number of acknowledged batches. One more may be there
    #[arg(long)]
    batches: u32,
    #[arg(long, value_enum, default_value_t = Protect::Off)]
    protect: Protect,
}

/// No more differences than this are reported for each way of reading.
const MOST_WRONG: usize = 4;

pub(super) fn run(args: &Args) {
    let db = match options(args.place.turn, args.protect).open_read_only(&args.place.dir) {
        Ok(db) => db,
        Err(error) => return tell(&Message::Failed(format!("opening: {error}"))),
    };
    let records = Records { seed: args.place.seed };
    let mut read = Vec::new();
    for shelf in Shelf::ALL {
        match db.keyspace(shelf.name()) {
            Ok(space) => read.push((shelf, Read::all(&space, &records.contents(shelf, batches())))),
            Err(error) => return tell(&Message::Failed(format!("the keyspace {}: {error}", shelf.name()))),
        }
    }
    let wrong = |count: u32| -> Vec<String> {
        let of = |(shelf, read): &(Shelf, Read)| {
            let wrong = read.judge(&records.contents(*shelf, count));
            wrong.into_iter().map(|what| format!("{} {what}", shelf.name())).collect::<Vec<_>>()
        };
        read.iter().flat_map(of).collect()
    };
    // The next batch may have been written without being acknowledged.
    let mut found = wrong(args.batches);
    if !found.is_empty() && args.batches < batches() {
        let also = wrong(args.batches + 1);
        if also.len() < found.len() {
            found = also;
        }
    }
    read.iter().flat_map(|(_, read)| &read.errors).for_each(|error| tell(&Message::Failed(error.clone())));
    found.into_iter().for_each(|what| tell(&Message::Different(what)));
    match db.verify() {
        Ok(report) => {
            report.problems.into_iter().for_each(|problem| tell(&Message::Verified(problem.to_string())))
        }
        Err(error) => tell(&Message::Verified(error.to_string())),
    }
    db.close().unwrap_or_else(|error| tell(&Message::Failed(format!("closing: {error}"))));
}

type Entry = (Vec<u8>, Vec<u8>);

/// Everything that reads returned.
#[derive(Debug, Default)]
struct Read {
    forward: Option<Vec<Entry>>,
    backward: Option<Vec<Entry>>,
    /// Without those that failed.
    gets: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    errors: Vec<String>,
}

impl Read {
    /// Reads all keys that may be asked for: those that `contents` has, and those that it must not
    /// have.
    fn all(space: &Keyspace, contents: &Contents) -> Read {
        let mut read = Read::default();
        let plain = |item: Result<_, _>| {
            item.map(|(key, value): (tamis::Slice, tamis::Slice)| (key.to_vec(), value.to_vec()))
        };
        match space.iter().map(plain).collect::<Result<Vec<_>, tamis::ReadError>>() {
            Ok(entries) => read.forward = Some(entries),
            Err(error) => read.errors.push(format!("scan: {error}")),
        }
        match space.iter().rev().map(plain).collect::<Result<Vec<_>, tamis::ReadError>>() {
            Ok(entries) => read.backward = Some(entries),
            Err(error) => read.errors.push(format!("scan backwards: {error}")),
        }
        for key in contents.entries.keys().chain(&contents.absent) {
            match space.get(key) {
                Ok(found) => {
                    read.gets.insert(key.clone(), found.map(|value| value.to_vec()));
                }
                Err(error) => read.errors.push(format!("get: {error}")),
            }
        }
        read.errors.truncate(MOST_WRONG);
        read
    }

    /// Returns the differences from what must be there.
    fn judge(&self, expected: &Contents) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Some(entries) = &self.forward {
            wrong.extend(judge_scan("scan", entries, expected));
        }
        if let Some(entries) = &self.backward {
            let entries: Vec<Entry> = entries.iter().rev().cloned().collect();
            wrong.extend(judge_scan("backwards", &entries, expected));
        }
        let mut of_gets = Vec::new();
        for (key, found) in &self.gets {
            let name = shown(key);
            of_gets.extend(match (expected.entries.get(key), found) {
                (Some(value), Some(found)) if value != found => {
                    Some(format!("get: value of `{name}`: {}", difference(value, found)))
                }
                (Some(_), None) => Some(format!("get: lost `{name}`")),
                (None, Some(_)) => Some(format!("get: extra `{name}`")),
                _ => None,
            });
        }
        wrong.extend(first_of(of_gets));
        wrong
    }
}

fn judge_scan(what: &str, entries: &[Entry], expected: &Contents) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(pair) = entries.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        wrong.push(format!("{what}: order: `{}` before `{}`", shown(&pair[0].0), shown(&pair[1].0)));
    }
    let found: BTreeMap<&Vec<u8>, &Vec<u8>> = entries.iter().map(|(key, value)| (key, value)).collect();
    for (key, value) in &expected.entries {
        match found.get(key) {
            None => wrong.push(format!("{what}: lost `{}`", shown(key))),
            Some(there) if *there != value => {
                wrong.push(format!("{what}: value of `{}`: {}", shown(key), difference(value, there)));
            }
            Some(_) => {}
        }
    }
    let extra = found.keys().filter(|key| !expected.entries.contains_key(**key));
    wrong.extend(extra.map(|key| format!("{what}: extra `{}`", shown(key))));
    first_of(wrong)
}

/// Returns the first differences, and the number of the others.
fn first_of(mut wrong: Vec<String>) -> Vec<String> {
    let more = wrong.len().saturating_sub(MOST_WRONG);
    if more > 0 {
        wrong.truncate(MOST_WRONG);
        wrong.push(format!("… and {more} more"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(entries: Vec<Entry>) -> Read {
        let gets = entries.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
        let backward = entries.iter().rev().cloned().collect();
        Read { forward: Some(entries), backward: Some(backward), gets, errors: Vec::new() }
    }

    fn contents() -> Contents {
        Records { seed: 3 }.contents(Shelf::Wide, 30)
    }

    fn entries() -> Vec<Entry> {
        contents().entries.into_iter().collect()
    }

    #[test]
    fn what_must_be_there_is_right() {
        assert_eq!(read(entries()).judge(&contents()), Vec::<String>::new());
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let starts = |entries: Vec<Entry>, what: &str| {
            let wrong = read(entries).judge(&contents());
            assert!(wrong.iter().any(|one| one.starts_with(what)), "{what}: {wrong:?}");
        };
        let mut lost = entries();
        lost.remove(7);
        starts(lost, "scan: lost");
        let mut damaged = entries();
        damaged[3].1[5] ^= 1;
        starts(damaged.clone(), "scan: value of");
        starts(damaged, "get: value of");
        let mut extra = entries();
        extra.push((contents().absent.into_iter().max().unwrap(), Vec::new()));
        starts(extra.clone(), "scan: extra");
        starts(extra, "get: extra");
        let mut order = entries();
        order.swap(1, 2);
        starts(order, "scan: order");
    }

    #[test]
    fn a_filter_that_denies_a_key_is_found_by_the_get() {
        let mut read = read(entries());
        let key = entries()[4].0.clone();
        read.gets.insert(key, None);
        let wrong = read.judge(&contents());
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].starts_with("get: lost"));
    }
}
