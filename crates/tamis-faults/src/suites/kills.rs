//! `kill -9` before every call that changes a file, step by step of a session.

use super::sessions::Ground;
use super::{Bench, remove};
use crate::inject::Kill;
use crate::machine::Ended;
use crate::report::Failure;
use crate::worker::step_names;

const SUITE: &str = "kill";
/// The number of calls varies slightly between sessions because of background threads, so this many
/// more boundaries are tried.
const MARGIN: u64 = 3;

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    let mut kills = Vec::new();
    for turn in 0..bench.amount.kill_turns {
        // Sets of options with many differences.
        let turn = bench.amount.seed.wrapping_mul(31).wrapping_add(turn * 7) % 1000;
        let home = bench.fresh_dir(&format!("kill-calls-{turn}"))?;
        let ground = Ground { home, seed: bench.amount.seed, turn };
        let account = ground.run("session", &[])?;
        for what in account.all_wrong() {
            let how = ground.setup("session", &[]).command();
            bench.report.fail(Failure { suite: SUITE, what, how }, &ground.evidence());
        }
        remove(&ground.home);
        for step in step_names() {
            let calls = account.counted(&format!("changes {step}"));
            let last = if calls == 0 { 0 } else { calls + MARGIN };
            kills.extend((1..=last).map(|at| (turn, Kill { phase: step.to_owned(), at })));
        }
    }
    bench.share(kills.len(), |number| {
        let (turn, kill) = &kills[number];
        one(bench, number, *turn, kill)
    })
}

fn one(bench: &Bench<'_>, number: usize, turn: u64, kill: &Kill) -> Result<(), String> {
    let home = bench.fresh_dir(&format!("kill-{number}"))?;
    let ground = Ground { home, seed: bench.amount.seed, turn };
    let more = ["--kill".to_owned(), kill.to_string()];
    let account = ground.run("session", &more)?;
    let mut wrong = account.wrong.clone();
    match &account.ended {
        Ended::Signal(9) => {
            bench.report.count(SUITE, format!("kills in step {}", kill.phase), 1);
            bench.report.count(SUITE, "kills", 1);
            wrong.extend(ground.judge(&account)?);
            bench.report.count(SUITE, "acknowledged writes found again", account.journal.held() as u64);
        }
        // The step had already ended.
        Ended::Exited(0) => bench.report.count(SUITE, "boundaries that did not come", 1),
        _ => wrong.extend(account.all_wrong()),
    }
    for what in wrong {
        let how = ground.setup("session", &more).command();
        bench.report.fail(Failure { suite: SUITE, what, how }, &ground.evidence());
    }
    remove(&ground.home);
    Ok(())
}
