//! The state of one database that is cut repeatedly: its account, and the observations of the
//! current session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::oracle::{Cuts, Judged, Stream};
use crate::wire::{DATABASE, Message, StateReader};

/// The writes of one database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// The first writes of the first thread.
    pub(super) stream: Stream,
    pub(super) threads: u32,
}

impl Load {
    /// Returns a worker's arguments. `home` is the directory around the database.
    pub(super) fn args(self, home: &Path, turn: u64, epoch: u64, copies: &[PathBuf]) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut args: Vec<String> = vec!["cuts".into(), "--dir".into(), text(&home.join("db"))];
        let (stream, threads) = (self.stream, self.threads.into());
        for (name, value) in
            [("--seed", stream.seed), ("--turn", turn), ("--epoch", epoch), ("--threads", threads)]
        {
            args.extend([name.to_owned(), value.to_string()]);
        }
        for (name, chosen) in [
            ("--long-keys", stream.long_keys),
            ("--large-values", stream.large_values),
            ("--seldom-synced", stream.seldom_synced),
        ] {
            args.extend(chosen.then(|| name.to_owned()));
        }
        if !copies.is_empty() {
            let copies: Vec<String> = copies.iter().map(|path| text(path)).collect();
            args.extend(["--copies".to_owned(), copies.join(",")]);
        }
        args
    }
}

/// A copy that was being made.
#[derive(Clone, Debug)]
struct Copy {
    seen: Vec<u64>,
    done: bool,
    /// Whether it was complete before the cut began.
    safe: bool,
}

/// One database under trial.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    oracle: Cuts,
    /// The epoch of the current session.
    epoch: u64,
    copies: BTreeMap<String, Copy>,
    reader: StateReader,
    /// Whether the cut has begun: errors are expected from now on.
    frozen: bool,
    /// Whether the writers are working.
    pub(super) writing: bool,
    /// The verdict on the contents at the last opening.
    pub(super) judged: Option<Judged>,
    pub(super) copies_judged: u64,
    pub(super) acked: u64,
    pub(super) problems: Vec<String>,
}

impl Trial {
    pub(super) fn new(load: Load) -> Trial {
        Trial {
            oracle: Cuts::new(load.stream, load.threads),
            epoch: 0,
            copies: BTreeMap::new(),
            reader: StateReader::default(),
            frozen: false,
            writing: false,
            judged: None,
            copies_judged: 0,
            acked: 0,
            problems: Vec::new(),
        }
    }

    /// Begins a session.
    pub(super) fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.reader = StateReader::default();
        self.frozen = false;
        self.writing = false;
        self.judged = None;
        self.copies_judged = 0;
        self.acked = 0;
    }

    /// Marks the imminent beginning of the cut.
    pub(super) fn freeze(&mut self) {
        self.frozen = true;
        // The promises remain if the opening did not complete.
        if self.judged.is_some() {
            self.oracle.freeze();
        }
        self.copies.values_mut().for_each(|copy| copy.safe |= copy.done);
    }

    /// Returns the copies not checked yet.
    pub(super) fn copies(&self, beside: &Path) -> Vec<PathBuf> {
        self.copies.keys().map(|name| beside.join(name)).collect()
    }

    /// Drops the copies, which will not be checked.
    pub(super) fn forget_copies(&mut self) {
        self.copies.clear();
    }

    pub(super) fn hear(&mut self, message: &Message) {
        if let Some((name, state)) = self.reader.take(message) {
            let judged = if name == DATABASE {
                self.oracle.judge(&state, self.epoch).map(|judged| self.judged = Some(judged))
            } else {
                let seen = self.copies.remove(&name).map(|copy| copy.seen).unwrap_or_default();
                self.copies_judged += 1;
                self.oracle.judge_copy(&state, &seen).map(drop)
            };
            if let Err(what) = judged {
                self.problems.push(format!("{name}: {what}"));
            }
            return;
        }
        match message {
            Message::Acked { thread, number, synced } => {
                self.acked += 1;
                if let Err(what) = self.oracle.acknowledged(*thread, *number, *synced) {
                    self.problems.push(what);
                }
            }
            Message::CopyBegan { name, seen } => {
                let copy = Copy { seen: seen.clone(), done: false, safe: false };
                self.copies.insert(name.clone(), copy);
            }
            Message::CopyDone(name) => {
                if let Some(copy) = self.copies.get_mut(name) {
                    copy.done = true;
                }
            }
            Message::CopyAbsent(name) => {
                self.copies_judged += 1;
                if self.copies.remove(name).is_some_and(|copy| copy.safe) {
                    self.problems.push(format!("LOST: the copy {name}, which was done before the cut"));
                }
            }
            Message::Phase(name) if name == "writing" => self.writing = true,
            // A panic is always wrong, even when calls fail.
            Message::Wrong(what) if !self.frozen || what.starts_with("PANIC") => {
                self.problems.push(what.clone())
            }
            Message::Failed(what) if !self.frozen => {
                self.problems.push(format!("failed without a cut: {what}"))
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str) -> [Message; 2] {
        [Message::StateBegan(name.into()), Message::StateEnded]
    }

    fn trial() -> Trial {
        let mut trial = Trial::new(Load { stream: Stream::plain(1), threads: 1 });
        trial.begin(1);
        state(DATABASE).iter().for_each(|message| trial.hear(message));
        trial
    }

    #[test]
    fn errors_count_before_the_cut_and_panics_always_do() {
        let mut trial = trial();
        trial.hear(&Message::Failed("write".into()));
        assert_eq!(trial.problems.len(), 1);
        trial.freeze();
        trial.hear(&Message::Failed("write".into()));
        trial.hear(&Message::Wrong("opening".into()));
        assert_eq!(trial.problems.len(), 1);
        trial.hear(&Message::Wrong("PANIC in main".into()));
        assert_eq!(trial.problems.len(), 2);
    }

    #[test]
    fn a_copy_completed_before_the_cut_must_be_present() {
        for done in [false, true] {
            let mut trial = trial();
            trial.hear(&Message::CopyBegan { name: "copy".into(), seen: vec![0] });
            if done {
                trial.hear(&Message::CopyDone("copy".into()));
            }
            trial.freeze();
            trial.begin(2);
            trial.hear(&Message::CopyAbsent("copy".into()));
            assert_eq!(trial.problems.len(), usize::from(done));
        }
    }

    #[test]
    fn promises_remain_after_an_unfinished_opening() {
        let mut trial = trial();
        trial.hear(&Message::Acked { thread: 0, number: 1, synced: true });
        trial.freeze();
        trial.begin(2);
        trial.freeze();
        trial.begin(3);
        state(DATABASE).iter().for_each(|message| trial.hear(message));
        assert!(trial.problems[0].contains("LOST"), "{:?}", trial.problems);
    }
}
