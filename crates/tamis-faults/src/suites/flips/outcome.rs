//! What came of a flip.

use crate::machine::Ended;
use crate::oracle::{Record, Records, difference, shown};
use crate::wire::{Live, Message};

/// What begins the description of something wrong in the open database…
pub(super) const OPEN: &str = "open:";
/// … and after it was reopened.
pub(super) const AFTER: &str = "after reopening:";

/// The outcomes, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Outcome {
    /// Everything was right.
    Nothing,
    /// A signal, an abort, or a panic.
    Crash,
    Hang,
    /// The engine returned an error, or `verify` found a problem.
    Reported,
    /// Something was wrong, and there was no error.
    Silent,
    /// The same, but the worker had given the engine a wrong record, or had lost count.
    BeforeEngine,
}

impl Outcome {
    pub(crate) const ALL: [Outcome; 6] = [
        Outcome::Nothing,
        Outcome::Crash,
        Outcome::Hang,
        Outcome::Reported,
        Outcome::Silent,
        Outcome::BeforeEngine,
    ];

    pub(crate) fn name(self) -> &'static str {
        ["no effect", "crash", "hang", "reported", "silent", "before the engine"][self as usize]
    }
}

/// Everything that is known of one run.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) job: Ended,
    pub(crate) job_messages: Vec<Message>,
    /// The number of acknowledged batches, or how the worker's counters contradict each other.
    pub(crate) acknowledged: Result<u32, String>,
    pub(crate) check: Ended,
    pub(crate) check_messages: Vec<Message>,
    /// The warnings that the engine logged. A program does not see them, so they are no reports.
    pub(crate) warnings: Vec<String>,
}

/// An outcome, with what led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) details: Vec<String>,
}

impl Account {
    pub(crate) fn judge(&self, records: Records) -> Verdict {
        let live = self.job_messages.iter().filter_map(|message| match message {
            Message::Live(live) => wrong_live(records, live),
            _ => None,
        });
        let closed = self.check_messages.iter().filter_map(|message| match message {
            Message::Different(what) => Some(format!("{AFTER} {what}")),
            _ => None,
        });
        let wrong: Vec<String> = live.chain(closed).collect();
        let errors = self.find(|message| match message {
            Message::Failed(what) => Some(format!("error: {what}")),
            _ => None,
        });
        let panics = self.find(|message| match message {
            Message::Wrong(what) if what.starts_with("PANIC") => Some(what.clone()),
            _ => None,
        });
        let harness = self.find(|message| match message {
            Message::Damaged(what) => Some(format!("damaged before the engine got it: {what}")),
            // A message that cannot be read.
            Message::Wrong(what) if !what.starts_with("PANIC") => Some(what.clone()),
            _ => None,
        });
        let harness = harness.into_iter().chain(self.acknowledged.clone().err()).collect::<Vec<_>>();
        let verified = self.find(|message| match message {
            Message::Verified(what) => Some(format!("verify: {what}")),
            _ => None,
        });
        let mut ends = Vec::new();
        for (who, ended, messages) in
            [("the job", &self.job, &self.job_messages), ("reading", &self.check, &self.check_messages)]
        {
            if *ended != Ended::Exited(0) || !messages.contains(&Message::Finished) {
                ends.push(format!("{who} ended with {ended}"));
            }
        }
        let has_hung = [&self.job, &self.check].iter().any(|ended| matches!(ended, Ended::Hung(_)));
        let outcome = if !wrong.is_empty() && errors.is_empty() {
            if harness.is_empty() { Outcome::Silent } else { Outcome::BeforeEngine }
        } else if has_hung {
            Outcome::Hang
        } else if !panics.is_empty() || !ends.is_empty() {
            Outcome::Crash
        } else if !errors.is_empty() || !verified.is_empty() {
            Outcome::Reported
        } else {
            Outcome::Nothing
        };
        let warnings = self.warnings.clone();
        let details = [wrong, errors, panics, ends, verified, harness, warnings].concat();
        Verdict { outcome, details }
    }

    fn find(&self, of: impl Fn(&Message) -> Option<String>) -> Vec<String> {
        self.job_messages.iter().chain(&self.check_messages).filter_map(of).collect()
    }
}

/// Judges a read that the worker found to be wrong: its own expectation, or its comparison, may
/// have been hit instead.
fn wrong_live(records: Records, live: &Live) -> Option<String> {
    let contents = records.contents(live.shelf, live.batches);
    let shelf = live.shelf.name();
    let Some(position) = live.position else {
        let mut record = Record::new();
        records.key_into(live.shelf, live.index, &mut record);
        let expected = contents.entries.get(record.key());
        let found = live.found.as_ref().map(|(_, value)| value);
        let what = match (expected, found) {
            (expected, found) if expected == found => return None,
            (Some(expected), Some(found)) => difference(expected, found),
            (Some(_), None) => "lost".to_owned(),
            (None, _) => "extra".to_owned(),
        };
        return Some(format!("{OPEN} {shelf} get of `{}`: {what}", shown(record.key())));
    };
    let expected = contents.entries.iter().nth(position as usize);
    let what = match (expected, &live.found) {
        (None, None) => return None,
        (Some((key, value)), Some(found)) if (key, value) == (&found.0, &found.1) => return None,
        (Some((key, value)), Some(found)) if *key == found.0 => {
            format!("value of `{}`: {}", shown(key), difference(value, &found.1))
        }
        (expected, found) => format!(
            "`{}` instead of `{}`",
            found.as_ref().map_or("the end".into(), |(key, _)| shown(key)),
            expected.map_or("the end".into(), |(key, _)| shown(key))
        ),
    };
    Some(format!("{OPEN} {shelf} scan, entry {position}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Shelf;

    const RECORDS: Records = Records { seed: 8 };

    fn account(job: Ended, job_messages: Vec<Message>, check_messages: Vec<Message>) -> Account {
        let mut all = Account {
            job,
            job_messages,
            acknowledged: Ok(3),
            check: Ended::Exited(0),
            check_messages,
            warnings: Vec::new(),
        };
        if all.job == Ended::Exited(0) {
            all.job_messages.push(Message::Finished);
        }
        all.check_messages.push(Message::Finished);
        all
    }

    fn outcome(account: &Account) -> Outcome {
        account.judge(RECORDS).outcome
    }

    #[test]
    fn each_outcome_is_told_from_the_others() {
        let (well, lost) = (Ended::Exited(0), Message::Different("wide scan: lost `key`".into()));
        let error = Message::Failed("get: a bad block".into());
        let panic = Message::Wrong("PANIC in tamis-flush: index".into());
        let verified = Message::Verified("table 3".into());
        let damaged = Message::Damaged("record 1 of batch 2".into());
        let of = |job: &Ended, messages: &[&Message], check: &[&Message]| {
            let copies = |of: &[&Message]| of.iter().map(|message| (*message).clone()).collect();
            outcome(&account(job.clone(), copies(messages), copies(check)))
        };
        assert_eq!(of(&well, &[], &[]), Outcome::Nothing);
        assert_eq!(of(&well, &[], &[&lost]), Outcome::Silent);
        assert_eq!(of(&well, &[&error], &[]), Outcome::Reported);
        assert_eq!(of(&well, &[], &[&error]), Outcome::Reported);
        assert_eq!(of(&well, &[&error], &[&lost]), Outcome::Reported);
        assert_eq!(of(&well, &[], &[&verified]), Outcome::Reported);
        assert_eq!(of(&well, &[], &[&lost, &verified]), Outcome::Silent);
        assert_eq!(of(&Ended::Signal(11), &[], &[]), Outcome::Crash);
        assert_eq!(of(&Ended::Signal(11), &[], &[&lost]), Outcome::Silent);
        assert_eq!(of(&Ended::Exited(101), &[&panic], &[]), Outcome::Crash);
        assert_eq!(of(&Ended::Exited(101), &[&panic, &error], &[]), Outcome::Crash);
        assert_eq!(of(&Ended::Hung(String::new()), &[], &[]), Outcome::Hang);
        assert_eq!(of(&well, &[&damaged], &[&lost]), Outcome::BeforeEngine);
        assert_eq!(of(&well, &[&damaged], &[]), Outcome::Nothing);
    }

    #[test]
    fn a_job_that_ends_early_without_an_error_crashed() {
        let mut early = account(Ended::Exited(0), Vec::new(), Vec::new());
        early.job_messages.clear();
        assert_eq!(outcome(&early), Outcome::Crash);
    }

    #[test]
    fn contradicting_counters_are_no_fault_of_the_engine() {
        let mut lost = account(Ended::Exited(0), Vec::new(), vec![Message::Different("lost".into())]);
        lost.acknowledged = Err("2 batches, but the counter is 9".into());
        assert_eq!(outcome(&lost), Outcome::BeforeEngine);
    }

    #[test]
    fn a_live_read_counts_only_if_the_parent_finds_it_wrong_too() {
        let contents = RECORDS.contents(Shelf::Wide, 20);
        let (key, value) = contents.entries.iter().nth(5).unwrap();
        let live = |found: Option<(Vec<u8>, Vec<u8>)>| {
            let live = Live { shelf: Shelf::Wide, batches: 20, position: Some(5), index: 0, found };
            outcome(&account(Ended::Exited(0), vec![Message::Live(live)], Vec::new()))
        };
        assert_eq!(live(Some((key.clone(), value.clone()))), Outcome::Nothing);
        assert_eq!(live(Some((key.clone(), Vec::new()))), Outcome::Silent);
        assert_eq!(live(None), Outcome::Silent);
        let get = Live { shelf: Shelf::Wide, batches: 0, position: None, index: 1, found: None };
        assert_eq!(
            outcome(&account(Ended::Exited(0), vec![Message::Live(get)], Vec::new())),
            Outcome::Nothing
        );
    }
}
