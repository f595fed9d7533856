//! Limits of the process: descriptors, address space, file size.

use super::sessions::{Account, Ground};
use super::{Bench, remove};
use crate::machine::Ended;
use crate::promises::{MOST_DESCRIPTORS, WRITES_RESUME_WITH_DESCRIPTORS};
use crate::report::Failure;
use crate::worker::Limit;

const SUITE: &str = "limits";

/// The limits and their values: see [`Limit`] for units.
const CASES: [(Limit, &str, u64); 11] = [
    (Limit::Nofile, "nofile", 64),
    (Limit::Nofile, "nofile", 128),
    (Limit::Nofile, "nofile", 4096),
    (Limit::As, "as", 8),
    (Limit::As, "as", 32),
    (Limit::As, "as", 64),
    (Limit::As, "as", 128),
    (Limit::Fsize, "fsize", 16),
    (Limit::Fsize, "fsize", 100),
    (Limit::Fsize, "fsize", 1000),
    (Limit::FsizeSignal, "fsize-signal", 100),
];
/// Number of sets of options for each.
const TURNS: usize = 3;

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    bench.share(CASES.len() * TURNS, |number| {
        let (limit, name, value) = CASES[number / TURNS];
        let turn = (number % TURNS) as u64 * 5;
        let home = bench.fresh_dir(&format!("limits-{number}"))?;
        let ground = Ground { home, seed: bench.amount.seed, turn };
        let more = ["--limit", name, "--value", &value.to_string()].map(str::to_owned);
        let account = ground.run("limits", &more)?;
        let ended = how_it_ended(limit, &account);
        let mut wrong = match ended {
            Some(_) => account.wrong.clone(),
            None => account.all_wrong(),
        };
        wrong.extend(ground.judge(&account)?);
        wrong.extend(tally(bench, limit, &format!("{name} {value}"), &account));
        if let Some(ended) = ended {
            bench.report.count(SUITE, format!("{name} {value}: {ended}"), 1);
        }
        for what in wrong {
            let (what, how) = (format!("{name} {value}: {what}"), ground.setup("limits", &more).command());
            bench.report.fail(Failure { suite: SUITE, what, how }, &ground.evidence());
        }
        remove(&ground.home);
        Ok(())
    })
}

/// Returns the name of an end that is caused by the limit itself, and that no Rust program can
/// prevent: missing memory aborts it, and an excessive file size ends it by a signal unless
/// ignored.
fn how_it_ended(limit: Limit, account: &Account) -> Option<&'static str> {
    match (limit, &account.ended) {
        (Limit::As, Ended::Signal(libc::SIGABRT)) => Some("ended for lack of memory"),
        (Limit::FsizeSignal, Ended::Signal(libc::SIGXFSZ)) => Some("ended by the signal"),
        _ => None,
    }
}

fn tally(bench: &Bench<'_>, limit: Limit, name: &str, account: &Account) -> Vec<String> {
    for (what, count) in account.counts.iter().filter(|(what, _)| *what != "most descriptors open") {
        bench.report.count(SUITE, format!("{name}: {what}"), *count);
    }
    bench.report.count(SUITE, "acknowledged writes found again", account.journal.held() as u64);
    if limit != Limit::Nofile {
        return Vec::new();
    }
    let open = account.counted("most descriptors open");
    bench.report.most(SUITE, &format!("{name}: most descriptors open"), open);
    let mut broken = Vec::new();
    if WRITES_RESUME_WITH_DESCRIPTORS && account.counted("writes did not resume") > 0 {
        broken.push(format!("writes did not resume: {:?}", account.failed.first()));
    }
    if MOST_DESCRIPTORS.is_some_and(|most| open > most) {
        broken.push(format!("{open} descriptors were open"));
    }
    broken
}
