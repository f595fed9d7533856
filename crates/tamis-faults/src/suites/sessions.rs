//! Sessions of one worker, and the judgement of their reports and of the files they leave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machine::{Ended, Setup, collect};
use crate::oracle::Way;
use crate::oracle::{Journal, State};
use crate::wire::{DATABASE, Message, StateReader};
use crate::worker::session_stream;

/// A session that takes longer hangs: it normally takes at most a second.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The place and the parameters of a session.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    /// The directory around the database.
    pub(super) home: PathBuf,
    pub(super) seed: u64,
    pub(super) turn: u64,
}

/// What a session reported.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) ended: Ended,
    pub(super) finished: bool,
    /// What it found to be wrong.
    pub(super) wrong: Vec<String>,
    /// The first operation that failed, in words.
    pub(super) failed: Vec<String>,
    pub(super) counts: BTreeMap<String, u64>,
    pub(super) phase: String,
    /// The required contents.
    pub(super) journal: Journal,
    /// Copies by name: their required contents, and whether they were complete.
    pub(super) copies: BTreeMap<String, (Journal, bool)>,
    states: BTreeMap<String, State>,
    absent: Vec<String>,
}

impl Ground {
    pub(super) fn setup(&self, job: &str, more: &[String]) -> Setup {
        let dir = self.home.join("db").to_string_lossy().into_owned();
        let mut args = vec![job.to_owned(), "--dir".into(), dir];
        args.extend(["--seed".into(), self.seed.to_string(), "--turn".into(), self.turn.to_string()]);
        args.extend(more.iter().cloned());
        Setup::new(args, &self.home.join("logs"))
    }

    /// Runs a worker to its end.
    pub(super) fn run(&self, job: &str, more: &[String]) -> Result<Account, String> {
        let (ended, messages) =
            collect(&self.setup(job, more), PATIENCE).map_err(|error| format!("a worker: {error}"))?;
        Ok(self.account(ended, &messages))
    }

    pub(super) fn account(&self, ended: Ended, messages: &[Message]) -> Account {
        let mut account = Account {
            ended,
            finished: false,
            wrong: Vec::new(),
            failed: Vec::new(),
            counts: BTreeMap::new(),
            phase: String::new(),
            journal: Journal::new(session_stream(self.seed, self.turn)),
            copies: BTreeMap::new(),
            states: BTreeMap::new(),
            absent: Vec::new(),
        };
        let mut reader = StateReader::default();
        for message in messages {
            if let Some((name, state)) = reader.take(message) {
                account.states.insert(name, state);
            }
            account.hear(message);
        }
        account
    }

    /// Opens the files left by a session in a new process and judges them. Returns descriptions of
    /// what is wrong.
    pub(super) fn judge(&self, left: &Account) -> Result<Vec<String>, String> {
        let copies: Vec<String> = left
            .copies
            .keys()
            .map(|name| self.home.join(name))
            .filter(|path| path.exists())
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        let more = if copies.is_empty() { vec![] } else { vec!["--copies".to_owned(), copies.join(",")] };
        let found = self.run("check", &more)?;
        let mut wrong: Vec<String> = found.wrong.iter().map(|what| format!("afterwards: {what}")).collect();
        if !found.finished {
            wrong.push(format!("afterwards: the worker ended with {}", found.ended));
        }
        wrong.extend(self.judge_found(left, &found));
        for (name, (journal, done)) in &left.copies {
            match found.states.get(name) {
                Some(state) => {
                    if let Err(what) = journal.clone().judge_reopened(state) {
                        wrong.push(format!("the copy {name}: {what}"));
                    }
                }
                None if *done && found.absent.contains(name) => {
                    wrong.push(format!("the copy {name} is LOST"))
                }
                None => {}
            }
        }
        Ok(wrong)
    }

    /// Judges the findings of another worker on the files of a session.
    pub(super) fn judge_found(&self, left: &Account, found: &Account) -> Option<String> {
        match found.states.get(DATABASE) {
            Some(state) => {
                left.journal.clone().judge_reopened(state).err().map(|what| format!("afterwards: {what}"))
            }
            None => found.wrong.is_empty().then(|| "afterwards: nothing was found".into()),
        }
    }

    /// Returns the evidence of a failure.
    pub(super) fn evidence(&self) -> [&Path; 1] {
        [&self.home]
    }
}

impl Account {
    fn hear(&mut self, message: &Message) {
        match message {
            Message::Began { number, ingested } => {
                self.journal.begin(*number, if *ingested { Way::Ingestion } else { Way::Batch });
            }
            Message::Acked { number, .. } => self.journal.acknowledge(*number),
            Message::CopyBegan { name, .. } => {
                self.copies.insert(name.clone(), (self.journal.clone(), false));
            }
            Message::CopyDone(name) => {
                if let Some(copy) = self.copies.get_mut(name) {
                    copy.1 = true;
                }
            }
            Message::CopyAbsent(name) => self.absent.push(name.clone()),
            Message::Phase(name) => self.phase = name.clone(),
            Message::Failed(what) => self.failed.push(what.clone()),
            Message::Wrong(what) => self.wrong.push(what.clone()),
            Message::Count { what, count } => *self.counts.entry(what.clone()).or_default() += count,
            Message::Finished => self.finished = true,
            _ => {}
        }
    }

    pub(super) fn counted(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Returns everything that is wrong, including an abnormal end.
    pub(super) fn all_wrong(&self) -> Vec<String> {
        let mut wrong = self.wrong.clone();
        if !self.finished && wrong.is_empty() {
            let phase = &self.phase;
            wrong.push(format!("the worker did not finish: in step {phase}, {}", self.ended));
        } else if matches!(self.ended, Ended::Hung(_)) {
            wrong.push(format!("in step {}: {}", self.phase, self.ended));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_collected_in_an_account() {
        let ground = Ground { home: "nowhere".into(), seed: 1, turn: 2 };
        let messages = [
            Message::Phase("write".into()),
            Message::Began { number: 1, ingested: false },
            Message::Acked { thread: 0, number: 1, synced: true },
            Message::Began { number: 2, ingested: true },
            Message::Failed("write: no".into()),
            Message::Count { what: "fired".into(), count: 1 },
            Message::CopyBegan { name: "copy-0".into(), seen: vec![] },
        ];
        let account = ground.account(Ended::Signal(9), &messages);
        assert_eq!((account.journal.held(), account.counted("fired"), account.finished), (1, 1, false));
        assert_eq!(account.copies["copy-0"].0.held(), 1);
        assert_eq!(account.all_wrong(), ["the worker did not finish: in step write, signal 9"]);
    }
}
