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

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::Loss;
use crate::plan::Space;

mod effects;
mod history;
mod lives;

pub use effects::{Effect, Seen, Spaces, Within, effects, key, value};
use history::{Client, Operation, show};
pub use lives::{Contents, FIXED_SPACES, Life};
use lives::{During, Lives};

/// A moment: the number of operations that began or ended before it.
pub type Stamp = u64;

/// For each client, the prefixes that explain an observation at one moment.
#[derive(Clone, Debug)]
pub struct Candidates(Vec<Vec<usize>>);

/// The history of all clients.
#[derive(Clone, Debug)]
pub struct Oracle {
    clients: Vec<Client>,
    lives: Lives,
    clock: Stamp,
}

impl Oracle {
    /// Creates a history in which nothing was written.
    pub fn new(clients: usize) -> Oracle {
        Oracle { clients: vec![Client::default(); clients], lives: Lives::default(), clock: 0 }
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

    /// Begins a life of a keyspace, unless it has one.
    pub fn begin_creation(&mut self, space: Space) -> Option<Life> {
        let now = self.stamp();
        self.lives.begin(space, now)
    }

    /// Records how the creation of a keyspace ended.
    pub fn created(&mut self, life: Life, success: bool) {
        let now = self.stamp();
        self.lives.created(life, success, now);
    }

    /// Begins to drop a keyspace, unless it is being dropped or does not exist.
    pub fn begin_drop(&mut self, space: Space) -> Option<Life> {
        let now = self.stamp();
        self.lives.begin_drop(space, now)
    }

    /// Records how the drop of a keyspace ended.
    pub fn dropped(&mut self, life: Life, success: bool) {
        let now = self.stamp();
        self.lives.dropped(life, success, now);
    }

    /// Reports whether somebody has begun to drop the keyspace.
    pub fn may_be_dropped(&self, life: Life) -> bool {
        self.lives.may_be_dropped(life)
    }

    /// Checks the names of the keyspaces between two moments.
    pub fn check_spaces(&self, spaces: BTreeSet<Space>, began: Stamp, ended: Stamp) -> Result<(), String> {
        let contents = Contents { spaces, ..Contents::default() };
        self.lives.resolve(&contents, During { began, ended, files: false }).map(drop)
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

    /// Checks all contents of a copy of the database's state between two moments.
    pub fn check_copy(&self, contents: &Contents, began: Stamp, ended: Stamp) -> Result<(), String> {
        let (seen, within) = self.lives.resolve(contents, During { began, ended, files: false })?;
        self.check(&seen, &within, began, ended).map(drop)
    }

    /// Checks the observation of another opening of the files. As after the next opening, it may
    /// include the records of failed writes, as long as no later write was acknowledged at the
    /// moment that it shows: writes resume only once those records no longer count. Clients whose
    /// failed writes explain the observation are not checked further.
    pub fn check_files(&self, contents: &Contents, began: Stamp, ended: Stamp) -> Result<(), String> {
        let (seen, within) = self.lives.resolve(contents, During { began, ended, files: true })?;
        self.check_files_within(&seen, &within, began, ended)
    }

    /// Like `check_files`, for a part of the contents.
    pub fn check_files_within(
        &self,
        seen: &Seen,
        within: &Within,
        began: Stamp,
        ended: Stamp,
    ) -> Result<(), String> {
        let window = self.window(began, ended);
        let mut settled = true;
        for (number, (client, prefixes)) in self.clients.iter().zip(&window.0).enumerate() {
            if !prefixes.iter().any(|prefix| client.fits(seen, within, *prefix)) {
                if !prefixes.iter().any(|prefix| client.with_failed(*prefix, seen, within).is_some()) {
                    return Err(client.explain(seen, within, number, prefixes));
                }
                settled = false;
            }
        }
        if settled { self.check_further(seen, within, &window).map(drop) } else { Ok(()) }
    }

    /// Checks what a copy shows that has followed the changes, and that it does not go back.
    /// `least` has the operations of each client that it has shown.
    pub fn check_lagging(&self, seen: &Seen, least: &mut Vec<usize>) -> Result<(), String> {
        least.resize(self.clients.len(), 0);
        let window = |(client, &least): (&Client, &usize)| {
            let prefixes = least..=client.operations.len();
            prefixes.filter(|prefix| *prefix == least || !client.failed(*prefix)).collect()
        };
        let known = Candidates(self.clients.iter().zip(least.iter()).map(window).collect());
        let fitting = self.check_further(seen, &Within::FIXED, &known)?;
        *least = fitting.0.iter().map(|prefixes| prefixes[0]).collect();
        Ok(())
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
                return Err(client.explain(seen, within, number, prefixes));
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
    /// a process that ended may still not be on the device. Returns the lives of the keyspaces.
    pub fn recover(
        &mut self,
        contents: &Contents,
        loss: Option<Loss>,
        begun: bool,
    ) -> Result<BTreeMap<Space, Life>, String> {
        let now = self.stamp();
        let during = During { began: now, ended: now, files: true };
        let resolved = self.lives.resolve(contents, during);
        let (seen, within) = resolved.map_err(|what| format!("after the next opening: {what}"))?;
        self.recover_values(&seen, &within, loss, begun)
            .map_err(|what| format!("after the next opening: {what}"))?;
        let lives = self.lives.settle(contents, during);
        for client in &mut self.clients {
            let alive = |life: &Life| *life < Life::FIXED || lives.values().any(|other| other == life);
            client.values.retain(|(life, _), _| alive(life));
        }
        Ok(lives)
    }

    fn recover_values(
        &mut self,
        seen: &Seen,
        within: &Within,
        loss: Option<Loss>,
        begun: bool,
    ) -> Result<(), String> {
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
                prefixes.iter().copied().filter(|prefix| client.fits(seen, within, *prefix)).collect();
            if !fits.is_empty() {
                fitting.push(fits);
                continue;
            }
            let Some(with) = client.with_failed(client.acknowledged, seen, within) else {
                return Err(client.explain(seen, within, number, &prefixes));
            };
            let last = with.operations.len();
            self.clients[number] = with;
            self.clients[number].acknowledged = last;
            fitting.push(vec![last]);
        }
        let chosen = self.agree(&fitting)?;
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
}
