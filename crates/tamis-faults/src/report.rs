//! Counts, failures with evidence, and skipped parts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::machine::copy_dir;

/// The number of failures of one kind whose evidence is kept.
const EVIDENCE_OF_A_KIND: u64 = 3;

/// A failure found by a suite.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) suite: &'static str,
    pub(crate) what: String,
    /// How to repeat it.
    pub(crate) how: String,
}

impl Failure {
    /// Returns the common part of failures with the same cause: the text without numbers and
    /// without details after a colon.
    fn kind(&self) -> String {
        let words = self.what.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        let words: Vec<&str> = words.take(18).collect();
        format!("{}: {}", self.suite, words.join(" "))
    }
}

/// Whether a failure fails the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Noted,
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Outcome::Noted => "NOTED",
            Outcome::Failed => "FAILED",
        }
    }
}

#[derive(Debug, Default)]
struct Ledger {
    /// Counts by suite and description, in the order of the first count.
    counts: Vec<(&'static str, String, u64)>,
    skipped: Vec<String>,
    /// By outcome and kind: the number of failures, and the first of them.
    failures: BTreeMap<(Outcome, String), (u64, Failure, Option<PathBuf>)>,
    times: Vec<(&'static str, Duration)>,
}

/// The collector of all suites' results.
#[derive(Debug)]
pub(crate) struct Report {
    evidence: PathBuf,
    ledger: Mutex<Ledger>,
}

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Reports whether an interrupt was received.
pub(crate) fn stopped() -> bool {
    STOPPED.load(SeqCst)
}

extern "C" fn stop(_: libc::c_int) {
    STOPPED.store(true, SeqCst);
}

/// Makes an interrupt end the suites at their next step, so that mounts and loop devices are
/// released.
pub(crate) fn stop_on_interrupt() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler stores to an atomic, which is async-signal-safe; nothing else handles
        // these signals here.
        unsafe { libc::signal(signal, stop as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

impl Report {
    pub(crate) fn new(evidence: PathBuf) -> Report {
        Report { evidence, ledger: Mutex::default() }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Returns the directory for a suite's own files.
    pub(crate) fn dir_of(&self, suite: &str) -> PathBuf {
        self.evidence.join(suite)
    }

    pub(crate) fn count(&self, suite: &'static str, what: impl Into<String>, count: u64) {
        let (what, mut ledger) = (what.into(), self.ledger());
        match ledger.counts.iter_mut().find(|row| row.0 == suite && row.1 == what) {
            Some(row) => row.2 += count,
            None => ledger.counts.push((suite, what, count)),
        }
    }

    /// Records a maximum.
    pub(crate) fn most(&self, suite: &'static str, what: &str, count: u64) {
        let mut ledger = self.ledger();
        match ledger.counts.iter_mut().find(|row| row.0 == suite && row.1 == what) {
            Some(row) => row.2 = row.2.max(count),
            None => ledger.counts.push((suite, what.to_owned(), count)),
        }
    }

    pub(crate) fn skip(&self, what: impl Into<String>) {
        let what = what.into();
        eprintln!("skipped: {what}");
        self.ledger().skipped.push(what);
    }

    pub(crate) fn took(&self, suite: &'static str, time: Duration) {
        self.ledger().times.push((suite, time));
    }

    /// Records a failure, and keeps copies of its evidence.
    pub(crate) fn fail(&self, failure: Failure, evidence: &[&Path]) {
        self.keep(Outcome::Failed, failure, evidence);
    }

    /// Records what is worth knowing but no failure of what is tested, and keeps its evidence.
    pub(crate) fn remark(&self, remark: Failure, evidence: &[&Path]) {
        self.keep(Outcome::Noted, remark, evidence);
    }

    fn keep(&self, outcome: Outcome, failure: Failure, evidence: &[&Path]) {
        // An interrupt ends workers, too: their failures are meaningless.
        if stopped() {
            return;
        }
        let key = (outcome, failure.kind());
        let number = {
            let mut ledger = self.ledger();
            let known = ledger.failures.entry(key.clone()).or_insert((0, failure.clone(), None));
            known.0 += 1;
            known.0
        };
        if number > EVIDENCE_OF_A_KIND {
            return;
        }
        eprintln!("{} {}: {}", outcome.word(), failure.suite, failure.what);
        let dir =
            (1..).map(|n| self.evidence.join(format!("{}-{n}", failure.suite))).find(|dir| !dir.exists());
        let Some(dir) = dir else { return };
        if let Err(error) = copy_evidence(&dir, &failure, evidence) {
            eprintln!("evidence could not be kept: {error}");
        }
        eprintln!("    evidence: {}", dir.display());
        if let Some(known) = self.ledger().failures.get_mut(&key) {
            known.2.get_or_insert(dir);
        }
    }

    /// Prints the summary, and returns whether nothing failed.
    pub(crate) fn print(&self) -> bool {
        let ledger = self.ledger();
        println!("\n{:<11} {:<72} {:>10}", "suite", "what", "count");
        for (suite, what, count) in &ledger.counts {
            println!("{suite:<11} {what:<72} {count:>10}");
        }
        for (suite, time) in &ledger.times {
            println!("{suite:<11} {:<72} {:>10.0}", "seconds", time.as_secs_f64());
        }
        for what in &ledger.skipped {
            println!("SKIPPED     {what}");
        }
        for ((outcome, _), (count, failure, dir)) in &ledger.failures {
            println!("{:<11} {count} x {}: {}", outcome.word(), failure.suite, failure.what);
            println!("            again: {}", failure.how);
            if let Some(dir) = dir {
                println!("            evidence: {}", dir.display());
            }
        }
        let failed = || ledger.failures.iter().filter(|(key, _)| key.0 == Outcome::Failed);
        let failures: u64 = failed().map(|(_, failure)| failure.0).sum();
        println!("{failures} failures of {} kinds", failed().count());
        failures == 0
    }
}

fn copy_evidence(dir: &Path, failure: &Failure, evidence: &[&Path]) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::write(dir.join("failure.txt"), format!("{}\n\n{}\n", failure.what, failure.how))?;
    for path in evidence.iter().filter(|path| path.exists()) {
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            copy_dir(path, &dir.join(name))?;
        } else {
            std::fs::copy(path, dir.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(what: &str) -> Failure {
        Failure { suite: "cuts", what: what.to_owned(), how: "run it".to_owned() }
    }

    #[test]
    fn failures_of_one_kind_are_counted_together_and_evidence_is_kept_of_few() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("log");
        std::fs::write(&source, "words").unwrap();
        let report = Report::new(dir.path().join("evidence"));
        for number in 0..5 {
            report.fail(failure(&format!("write {number} was lost")), &[&source]);
        }
        report.fail(failure("a panic"), &[&source]);
        assert_eq!(report.ledger().failures.len(), 2);
        assert_eq!(report.ledger().failures.values().map(|f| f.0).sum::<u64>(), 6);
        assert_eq!(std::fs::read_dir(dir.path().join("evidence")).unwrap().count(), 4);
        assert_eq!(std::fs::read_to_string(dir.path().join("evidence/cuts-1/log")).unwrap(), "words");
        assert!(!report.print());
    }

    #[test]
    fn remarks_do_not_fail_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let report = Report::new(dir.path().to_owned());
        report.remark(failure("a torn block"), &[]);
        assert!(dir.path().join("cuts-1/failure.txt").exists());
        assert!(report.print());
        report.fail(failure("a torn block"), &[]);
        assert!(!report.print());
    }

    #[test]
    fn without_failures_all_is_well() {
        let report = Report::new("nowhere".into());
        report.count("cuts", "cuts", 2);
        report.count("cuts", "cuts", 3);
        report.most("limits", "open", 3);
        report.most("limits", "open", 2);
        assert_eq!(report.ledger().counts[0].2, 5);
        assert_eq!(report.ledger().counts[1].2, 3);
        assert!(report.print());
    }
}
