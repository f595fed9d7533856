//! The history of one client, and the values of its keys after each prefix of it.

use std::collections::BTreeMap;

use super::Stamp;
use super::effects::{Effect, Place, Seen, Within};

/// An operation of a client.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) began: Stamp,
    pub(super) ended: Option<Stamp>,
    pub(super) failed: bool,
    pub(super) effects: Vec<Effect>,
}

/// The values of a key with the numbers of the operations that wrote them, ascending.
type Values = Vec<(usize, Option<Vec<u8>>)>;

/// What one client did.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    /// Operation `n` is at index `n - 1`.
    pub(super) operations: Vec<Operation>,
    /// The last acknowledged operation.
    pub(super) acknowledged: usize,
    /// The last durable operation.
    pub(super) durable: usize,
    pub(super) values: BTreeMap<Place, Values>,
}

impl Client {
    pub(super) fn value_at(&self, place: &Place, prefix: usize) -> Option<&Vec<u8>> {
        let values = self.values.get(place)?;
        let behind = values.partition_point(|(number, _)| *number <= prefix);
        values[..behind].last()?.1.as_ref()
    }

    pub(super) fn apply(&mut self, number: usize, effects: &[Effect]) {
        for effect in effects {
            let (place, value) = match effect {
                Effect::Put(place, value) => (place, Some(value.clone())),
                Effect::Delete(place) => (place, None),
                Effect::Append(place, operand) => {
                    let mut value = self.value_at(place, number).cloned().unwrap_or_default();
                    value.extend_from_slice(operand);
                    (place, Some(value))
                }
            };
            let values = self.values.entry(place.clone()).or_default();
            match values.last_mut() {
                Some((last, old)) if *last == number => *old = value,
                _ => values.push((number, value)),
            }
        }
    }

    /// Forgets the writes of operations after `prefix`.
    pub(super) fn cut(&mut self, prefix: usize) {
        for values in self.values.values_mut() {
            values.retain(|(number, _)| *number <= prefix);
        }
    }

    /// Reports whether the client's observed keys have exactly these values after `prefix`.
    pub(super) fn fits(&self, seen: &Seen, within: &Within, prefix: usize) -> bool {
        let mut looked_at = self.values.keys().filter(|place| within.holds(place));
        looked_at.all(|place| self.value_at(place, prefix) == seen.get(place))
    }
}

impl Client {
    pub(super) fn failed(&self, prefix: usize) -> bool {
        prefix > 0 && self.operations[prefix - 1].failed
    }

    /// Returns the client with some of the failed operations between `prefix` and its next
    /// acknowledged one (one of them, or the first few), if that explains the observation.
    pub(super) fn with_failed(&self, prefix: usize, seen: &Seen, within: &Within) -> Option<Client> {
        let unanswered = |operation: &&Operation| operation.failed || operation.ended.is_none();
        let tail = prefix + 1..=prefix + self.operations[prefix..].iter().take_while(unanswered).count();
        let singles = tail.clone().map(|number| vec![number]);
        let firsts = tail.clone().map(|last| (prefix + 1..=last).collect());
        for numbers in singles.chain(firsts) {
            let mut with = self.clone();
            with.cut(prefix);
            for &number in &numbers {
                let effects = with.operations[number - 1].effects.clone();
                with.operations[number - 1].failed = false;
                with.apply(number, &effects);
            }
            if with.fits(seen, within, with.operations.len()) {
                return Some(with);
            }
        }
        None
    }

    /// Says how an observation differs from the client's keys after each of these prefixes.
    pub(super) fn explain(&self, seen: &Seen, within: &Within, number: usize, prefixes: &[usize]) -> String {
        let (least, most) = (prefixes.first().copied().unwrap_or(0), prefixes.last().copied().unwrap_or(0));
        let mut text =
            format!("client {number}'s keys are not as after any of its operations {least} to {most}");
        let wrong =
            self.values.keys().filter(|place| within.holds(place)).filter(|place| {
                prefixes.iter().all(|prefix| self.value_at(place, *prefix) != seen.get(*place))
            });
        for place in wrong.take(5) {
            let found = seen.get(place).map_or("nothing".to_owned(), |value| text_of(value));
            let history: Vec<String> = self.values[place]
                .iter()
                .map(|(at, value)| {
                    format!("{at}: {}", value.as_ref().map_or("deleted".to_owned(), |value| text_of(value)))
                })
                .collect();
            text.push_str(&format!("\n  {}: found {found}; written {}", show(place), history.join(", ")));
        }
        let alone = prefixes.iter().map(|prefix| {
            let differ = self
                .values
                .keys()
                .filter(|place| within.holds(place) && self.value_at(place, *prefix) != seen.get(*place));
            (*prefix, differ.map(show).collect::<Vec<_>>().join(" "))
        });
        for (prefix, differ) in alone.take(6) {
            text.push_str(&format!("\n  after operation {prefix} these would differ: {differ}"));
        }
        text
    }
}

pub(super) fn show(place: &Place) -> String {
    format!("{}:{}", place.0.number(), String::from_utf8_lossy(&place.1))
}

fn text_of(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], value.len()),
        None => text.into_owned(),
    }
}
