//! The expected contents of the database.
//!
//! Every key belongs to one client, and only that client changes it, one operation after the other.
//! So any observation of a client's keys is the state after some number of its operations: a
//! *prefix*. An observation is correct if there is a prefix for each client such that
//!
//! * every observed key has its value of that prefix;
//! * the prefix has all operations that were acknowledged before the observation began, and none
//!   that began after it ended;
//! * together they are a prefix of all operations: with each operation, they include every one that
//!   ended before it began.
//!
//! After a crash the lower bound is the durable prefix; see [`Oracle::recover`]. Failed operations
//! are in no prefix, since they must not become visible; but another opening of the files may show
//! those that no acknowledged write of the client follows, because their records may have reached
//! the disk.

use std::collections::BTreeMap;

use crate::disk::Loss;
use crate::plan::{Change, Space};

/// A moment: the number of operations that began or ended before it.
pub type Stamp = u64;

/// A key by its keyspace and its bytes.
pub type Place = (Space, Vec<u8>);

/// An observation: the value of every key in the observed range.
pub type Seen = BTreeMap<Place, Vec<u8>>;

/// Returns the bytes of a client's key.
pub fn key(client: usize, key: u8) -> Vec<u8> {
    format!("{}/{key:03}", char::from(b'a' + client as u8)).into_bytes()
}

/// A change with the bytes that it writes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// This value.
    Put(Place, Vec<u8>),
    /// The previous value with this appended.
    Append(Place, Vec<u8>),
    /// No value.
    Delete(Place),
}

/// Returns the effects of a change by operation `number` of a client.
pub fn effects(client: usize, number: usize, change: &Change) -> Vec<Effect> {
    match change {
        Change::Put { space, key: k, len } => {
            vec![Effect::Put((*space, key(client, *k)), value(client, number, usize::from(*len)))]
        }
        Change::Merge { space, key: k } => {
            vec![Effect::Append((*space, key(client, *k)), value(client, number, 0))]
        }
        Change::Delete { space, key: k } => vec![Effect::Delete((*space, key(client, *k)))],
        Change::DeleteRange { space, from, to } => {
            (*from..*to).map(|k| Effect::Delete((*space, key(client, k)))).collect()
        }
    }
}

/// Returns a value that only this operation writes.
pub fn value(client: usize, number: usize, len: usize) -> Vec<u8> {
    let mut value = format!("<{client}.{number}>").into_bytes();
    while value.len() < len {
        value.push(b'a' + (value.len() * 7 + number) as u8 % 26);
    }
    value
}

#[derive(Clone, Debug)]
struct Operation {
    began: Stamp,
    ended: Option<Stamp>,
    failed: bool,
    effects: Vec<Effect>,
}

/// The values of a key with the numbers of the operations that wrote them, ascending.
type Values = Vec<(usize, Option<Vec<u8>>)>;

#[derive(Clone, Debug, Default)]
struct Client {
    /// Operation `n` is at index `n - 1`.
    operations: Vec<Operation>,
    /// The last acknowledged operation.
    acknowledged: usize,
    /// The last durable operation.
    durable: usize,
    values: BTreeMap<Place, Values>,
}

impl Client {
    fn value_at(&self, place: &Place, prefix: usize) -> Option<&Vec<u8>> {
        let values = self.values.get(place)?;
        let behind = values.partition_point(|(number, _)| *number <= prefix);
        values[..behind].last()?.1.as_ref()
    }

    fn apply(&mut self, number: usize, effects: &[Effect]) {
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
    fn cut(&mut self, prefix: usize) {
        for values in self.values.values_mut() {
            values.retain(|(number, _)| *number <= prefix);
        }
    }

    /// Reports whether the client's observed keys have exactly these values after `prefix`.
    fn fits(&self, seen: &Seen, within: &Within, prefix: usize) -> bool {
        let mut looked_at = self.values.keys().filter(|place| within.holds(place));
        looked_at.all(|place| self.value_at(place, prefix) == seen.get(place))
    }
}

/// The observed keys.
#[derive(Clone, Debug)]
pub struct Within {
    /// The keyspace; all if `None`.
    pub space: Option<Space>,
    /// The client; all if `None`.
    pub client: Option<usize>,
    /// The key; all if `None`.
    pub key: Option<u8>,
}

impl Within {
    /// Everything.
    pub const ALL: Within = Within { space: None, client: None, key: None };

    fn holds(&self, place: &Place) -> bool {
        self.space.is_none_or(|space| space == place.0)
            && match (self.client, self.key) {
                (Some(client), Some(k)) => place.1 == key(client, k),
                (Some(client), None) => place.1.starts_with(&key(client, 0)[..2]),
                (None, _) => true,
            }
    }
}

/// For each client, the prefixes that explain an observation at one moment.
#[derive(Clone, Debug)]
pub struct Candidates(Vec<Vec<usize>>);

/// The history of all clients.
#[derive(Clone, Debug)]
pub struct Oracle {
    clients: Vec<Client>,
    clock: Stamp,
}

impl Oracle {
    /// Creates a history in which nothing was written.
    pub fn new(clients: usize) -> Oracle {
        Oracle { clients: vec![Client::default(); clients], clock: 0 }
    }

    /// Returns the current moment.
    pub fn stamp(&mut self) -> Stamp {
        self.clock += 1;
        self.clock
    }

    /// Returns the number of the client's next operation.
    pub fn next(&self, client: usize) -> usize {
        self.clients[client].operations.len() + 1
    }

    /// Begins an operation and returns its number.
    pub fn begin(&mut self, client: usize, effects: Vec<Effect>) -> usize {
        let began = self.stamp();
        let number = self.next(client);
        let client = &mut self.clients[client];
        client.apply(number, &effects);
        client.operations.push(Operation { began, ended: None, failed: false, effects });
        number
    }

    /// Records an acknowledgement; `durable` if everything up to the operation survives a power
    /// cut.
    pub fn acknowledged(&mut self, client: usize, number: usize, durable: bool) {
        let ended = self.stamp();
        let client = &mut self.clients[client];
        client.operations[number - 1].ended = Some(ended);
        client.acknowledged = number;
        if durable {
            client.durable = number;
        }
    }

    /// Records a failure: the operation must not become visible.
    pub fn failed(&mut self, client: usize, number: usize) {
        let ended = self.stamp();
        let client = &mut self.clients[client];
        client.operations[number - 1].ended = Some(ended);
        client.operations[number - 1].failed = true;
        client.cut(number - 1);
    }

    /// Records that everything acknowledged before `moment` survives a power cut.
    pub fn synced(&mut self, moment: Stamp) {
        for client in &mut self.clients {
            let before = |operation: &Operation| {
                !operation.failed && operation.ended.is_some_and(|ended| ended < moment)
            };
            let last = client.operations.iter().rposition(before).map_or(0, |at| at + 1);
            client.durable = client.durable.max(last);
        }
    }

    /// Checks an observation between two moments; returns the prefixes that explain it.
    pub fn check(
        &self,
        seen: &Seen,
        within: &Within,
        began: Stamp,
        ended: Stamp,
    ) -> Result<Candidates, String> {
        self.check_further(seen, within, &self.window(began, ended))
    }

    /// Checks the observation of another opening of the files. As after the next opening, it may
    /// include the records of failed writes, as long as no later write was acknowledged at the
    /// moment that it shows: writes resume only once those records no longer count. Clients whose
    /// failed writes explain the observation are not checked further.
    pub fn check_files(&self, seen: &Seen, began: Stamp, ended: Stamp) -> Result<(), String> {
        let window = self.window(began, ended);
        let mut settled = true;
        for (number, (client, prefixes)) in self.clients.iter().zip(&window.0).enumerate() {
            if !prefixes.iter().any(|prefix| client.fits(seen, &Within::ALL, *prefix)) {
                if !prefixes.iter().any(|prefix| client.with_failed(*prefix, seen).is_some()) {
                    return Err(self.explain(seen, &Within::ALL, number, prefixes));
                }
                settled = false;
            }
        }
        if settled { self.check_further(seen, &Within::ALL, &window).map(drop) } else { Ok(()) }
    }

    /// Returns the prefixes that may be observed between two moments.
    pub fn window(&self, began: Stamp, ended: Stamp) -> Candidates {
        let window = |client: &Client| {
            let done =
                |operation: &Operation| !operation.failed && operation.ended.is_some_and(|end| end < began);
            let least = client.operations.iter().rposition(done).map_or(0, |at| at + 1);
            let most = client.operations.iter().rposition(|operation| operation.began < ended);
            let most = most.map_or(0, |at| at + 1);
            (least..=most.max(least)).filter(|prefix| *prefix == least || !client.failed(*prefix)).collect()
        };
        Candidates(self.clients.iter().map(window).collect())
    }

    /// Checks a further observation at a moment for which candidates are already known.
    pub fn check_further(
        &self,
        seen: &Seen,
        within: &Within,
        known: &Candidates,
    ) -> Result<Candidates, String> {
        let mut fitting = Vec::new();
        for (number, (client, prefixes)) in self.clients.iter().zip(&known.0).enumerate() {
            let fits: Vec<usize> =
                prefixes.iter().copied().filter(|prefix| client.fits(seen, within, *prefix)).collect();
            if fits.is_empty() {
                return Err(self.explain(seen, within, number, prefixes));
            }
            fitting.push(fits);
        }
        if let Some(place) =
            seen.keys().find(|place| !self.clients.iter().any(|c| c.values.contains_key(*place)))
        {
            return Err(format!("a key that was never written: {}", show(place)));
        }
        self.agree(&fitting)?;
        Ok(Candidates(fitting))
    }

    /// Finds one prefix of each list that together form a prefix of all operations.
    fn agree(&self, fitting: &[Vec<usize>]) -> Result<Vec<usize>, String> {
        let mut chosen: Vec<usize> = fitting.iter().map(|prefixes| prefixes[0]).collect();
        loop {
            let Some((late, early, least)) = self.missing(&chosen) else { return Ok(chosen) };
            match fitting[early].iter().find(|prefix| **prefix >= least) {
                Some(more) => chosen[early] = *more,
                None => {
                    return Err(format!(
                        "operation {} of client {late} is there, and operation {least} of client {early}, which had \
                         ended before it began, is not",
                        chosen[late],
                    ));
                }
            }
        }
    }

    /// Returns a client whose chosen prefix requires more of another client's than was chosen.
    fn missing(&self, chosen: &[usize]) -> Option<(usize, usize, usize)> {
        for (late, &prefix) in chosen.iter().enumerate() {
            let Some(began) = prefix.checked_sub(1).map(|at| self.clients[late].operations[at].began) else {
                continue;
            };
            for (early, client) in self.clients.iter().enumerate() {
                let before = |operation: &Operation| {
                    !operation.failed && operation.ended.is_some_and(|ended| ended < began)
                };
                let least = client.operations.iter().rposition(before).map_or(0, |at| at + 1);
                if chosen[early] < least {
                    return Some((late, early, least));
                }
            }
        }
        None
    }

    /// Checks the whole contents found after the next opening and adopts them as the state from now
    /// on. `begun`: the opening wrote what it found to tables. Otherwise, on a full disk, a log of
    /// a process that ended may still not be on the device.
    pub fn recover(&mut self, seen: &Seen, loss: Option<Loss>, begun: bool) -> Result<(), String> {
        let mut fitting = Vec::new();
        for number in 0..self.clients.len() {
            let client = &self.clients[number];
            let least = match loss {
                None | Some(Loss::Nothing) => client.acknowledged,
                Some(Loss::Unsynced | Loss::Random) => client.durable,
            };
            let prefixes: Vec<usize> = (least..=client.acknowledged)
                .filter(|prefix| *prefix == least || !client.failed(*prefix))
                .collect();
            let fits: Vec<usize> =
                prefixes.iter().copied().filter(|prefix| client.fits(seen, &Within::ALL, *prefix)).collect();
            if !fits.is_empty() {
                fitting.push(fits);
                continue;
            }
            let Some(with) = client.with_failed(client.acknowledged, seen) else {
                let explained = self.explain(seen, &Within::ALL, number, &prefixes);
                return Err(format!("after the next opening: {explained}"));
            };
            let last = with.operations.len();
            self.clients[number] = with;
            self.clients[number].acknowledged = last;
            fitting.push(vec![last]);
        }
        let chosen = self.agree(&fitting).map_err(|what| format!("after the next opening: {what}"))?;
        for (client, prefix) in self.clients.iter_mut().zip(chosen) {
            client.cut(prefix);
            for operation in &mut client.operations[prefix..] {
                operation.failed = true;
            }
            let on_device = begun || matches!(loss, Some(Loss::Unsynced | Loss::Random));
            client.durable = if on_device { prefix } else { client.durable.min(prefix) };
            client.acknowledged = prefix;
        }
        Ok(())
    }

    fn explain(&self, seen: &Seen, within: &Within, number: usize, prefixes: &[usize]) -> String {
        let client = &self.clients[number];
        let (least, most) = (prefixes.first().copied().unwrap_or(0), prefixes.last().copied().unwrap_or(0));
        let mut text =
            format!("client {number}'s keys are not as after any of its operations {least} to {most}");
        let wrong = client.values.keys().filter(|place| within.holds(place)).filter(|place| {
            prefixes.iter().all(|prefix| client.value_at(place, *prefix) != seen.get(*place))
        });
        for place in wrong.take(5) {
            let found = seen.get(place).map_or("nothing".to_owned(), |value| text_of(value));
            let history: Vec<String> = client.values[place]
                .iter()
                .map(|(at, value)| {
                    format!("{at}: {}", value.as_ref().map_or("deleted".to_owned(), |value| text_of(value)))
                })
                .collect();
            text.push_str(&format!("\n  {}: found {found}; written {}", show(place), history.join(", ")));
        }
        let alone = prefixes.iter().map(|prefix| {
            let differ = client
                .values
                .keys()
                .filter(|place| within.holds(place) && client.value_at(place, *prefix) != seen.get(*place));
            (*prefix, differ.map(show).collect::<Vec<_>>().join(" "))
        });
        for (prefix, differ) in alone.take(6) {
            text.push_str(&format!("\n  after operation {prefix} these would differ: {differ}"));
        }
        text
    }
}

impl Client {
    fn failed(&self, prefix: usize) -> bool {
        prefix > 0 && self.operations[prefix - 1].failed
    }

    /// Returns the client with some of the failed operations between `prefix` and its next
    /// acknowledged one (one of them, or the first few), if that explains the observation.
    fn with_failed(&self, prefix: usize, seen: &Seen) -> Option<Client> {
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
            if with.fits(seen, &Within::ALL, with.operations.len()) {
                return Some(with);
            }
        }
        None
    }
}

fn show(place: &Place) -> String {
    format!("{}:{}", place.0, String::from_utf8_lossy(&place.1))
}

fn text_of(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], value.len()),
        None => text.into_owned(),
    }
}
