//! System calls that fail, by kind, error and number.

use std::collections::BTreeMap;

use super::sessions::{Account, Ground};
use super::{Bench, remove};
use crate::inject::{Errno, How, Plan, SITES, When};
use crate::report::Failure;

const SUITE: &str = "injections";
/// The number of option sets through which sessions rotate: every filter, each with some policies.
const TURNS: u64 = 48;
/// Weights of calls whose failure requires the most work of the engine. Syncs come first: few of
/// them belong to the manifest, and the state that they interrupt only exists while another job is
/// about to end.
const WEIGHTS: [(&str, usize); 5] =
    [("fdatasync", 16), ("openat", 4), ("pwrite64", 4), ("fsync", 4), ("renameat", 4)];
/// Multiples of this are well distributed over a range.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// One way for calls to fail, independent of the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trouble {
    site: &'static str,
    errno: Errno,
    how: How,
    when: When,
}

/// Returns all ways to try, with those of the same kind of call far apart.
fn troubles() -> Vec<Trouble> {
    let mut all = Vec::new();
    let times = |site| WEIGHTS.iter().find(|(name, _)| *name == site).map_or(1, |(_, times)| *times);
    for site in SITES.iter().flat_map(|site| std::iter::repeat_n(site, times(site.name))) {
        let trouble = |errno, how, when| Trouble { site: site.name, errno, how, when };
        for errno in site.errors.iter().copied() {
            all.push(trouble(errno, How::Once, When::Before));
            all.push(trouble(errno, How::Thrice, When::Before));
            if !errno.is_passing() {
                all.push(trouble(errno, How::On, When::Before));
            }
        }
        if site.after {
            all.push(trouble(site.errors[0], How::Once, When::After));
        }
        if site.short {
            all.push(trouble(site.errors[0], How::Once, When::Short));
            all.push(trouble(site.errors[0], How::On, When::Short));
        }
    }
    all
}

pub(super) fn run(bench: &Bench<'_>) -> Result<(), String> {
    let seen = count_calls(bench)?;
    if seen.is_empty() {
        return Ok(());
    }
    let never = SITES.iter().filter(|site| !seen.values().any(|calls| calls.contains_key(site.name)));
    let never: Vec<&str> = never.map(|site| site.name).collect();
    bench.report.skip(format!("injections into calls that no session makes: {}", never.join(", ")));
    let plans = plan(bench.amount.seed, bench.amount.injections, &seen);
    bench.share(plans.len(), |number| {
        let (turn, plan) = plans[number];
        let account = one(bench, number, turn, plan)?;
        tally(bench, &plan, &account);
        Ok(())
    })
}

/// Counts each call of a session of each turn.
fn count_calls(bench: &Bench<'_>) -> Result<BTreeMap<u64, BTreeMap<String, u64>>, String> {
    let seen = std::sync::Mutex::new(BTreeMap::new());
    let turns = TURNS.min(bench.amount.injections.max(1));
    bench.share(turns as usize, |number| {
        let turn = number as u64;
        let home = bench.fresh_dir(&format!("calls-{turn}"))?;
        let ground = Ground { home, seed: bench.amount.seed, turn };
        let account = ground.run("session", &[])?;
        for what in account.all_wrong() {
            let how = ground.setup("session", &[]).command();
            bench.report.fail(
                Failure { suite: SUITE, what: format!("without a fault: {what}"), how },
                &ground.evidence(),
            );
        }
        let calls =
            account.counts.iter().filter_map(|(what, count)| Some((what.strip_prefix("calls ")?, *count)));
        let calls: BTreeMap<String, u64> = calls.map(|(name, count)| (name.to_owned(), count)).collect();
        bench.report.count(SUITE, "system calls of sessions without a fault", calls.values().sum());
        bench.report.count(SUITE, "sessions without a fault", 1);
        seen.lock().unwrap_or_else(|e| e.into_inner()).insert(turn, calls);
        remove(&ground.home);
        Ok(())
    })?;
    Ok(seen.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// Returns the plans: all troubles in turn over all sets of options, at positions distributed over
/// all calls.
fn plan(seed: u64, count: u64, seen: &BTreeMap<u64, BTreeMap<String, u64>>) -> Vec<(u64, Plan)> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut troubles = troubles();
    troubles.retain(|trouble| seen.values().any(|calls| calls.contains_key(trouble.site)));
    rng.shuffle(&mut troubles);
    let mut plans = Vec::new();
    let turns: Vec<u64> = seen.keys().copied().collect();
    let mut round = 0;
    while (plans.len() as u64) < count && !troubles.is_empty() {
        for (number, trouble) in troubles.iter().enumerate() {
            let turn = turns[(number + round * 7) % turns.len()];
            // Some sets of options do not make every call.
            let Some(calls) = seen[&turn].get(trouble.site) else { continue };
            let place = (round as f64 * GOLDEN + rng.f64() / 10.0).fract();
            let at = 1 + (place * *calls as f64) as u64;
            plans.extend(
                Plan::new(trouble.site, trouble.errno, at, trouble.how, trouble.when)
                    .map(|plan| (turn, plan)),
            );
        }
        round += 1;
    }
    plans.truncate(count as usize);
    plans
}

fn one(bench: &Bench<'_>, number: usize, turn: u64, plan: Plan) -> Result<Account, String> {
    let home = bench.fresh_dir(&format!("injection-{number}"))?;
    let ground = Ground { home, seed: bench.amount.seed, turn };
    let more = ["--plan".to_owned(), plan.to_string()];
    let account = ground.run("session", &more)?;
    let mut wrong = account.all_wrong();
    if !account.finished {
        // The resulting files must be correct nevertheless.
        wrong.extend(ground.judge(&account)?);
    }
    for what in wrong {
        let how = ground.setup("session", &more).command();
        bench.report.fail(Failure { suite: SUITE, what, how }, &ground.evidence());
    }
    remove(&ground.home);
    Ok(account)
}

fn tally(bench: &Bench<'_>, plan: &Plan, account: &Account) {
    let count = |what: String, count| bench.report.count(SUITE, what, count);
    count("sessions with a fault planned".into(), 1);
    if account.counted("fired") == 0 && account.finished {
        count("   in which the call was not made that often".into(), 1);
        return;
    }
    let what = if plan.when == When::After { "after it was done" } else { "" };
    count(
        format!("calls made to fail: {} {} {what}", plan.site_name(), plan.error_name()).trim_end().into(),
        1,
    );
    count("injections".into(), 1);
    for what in ["closings: writes went on", "closings: writes had ended"] {
        count(what.into(), account.counted(what));
    }
    count("acknowledged writes found again".into(), account.journal.held() as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> BTreeMap<u64, BTreeMap<String, u64>> {
        let calls = |n| BTreeMap::from([("pwrite64".to_owned(), n), ("fdatasync".to_owned(), n / 2)]);
        BTreeMap::from([(0, calls(100)), (1, calls(40))])
    }

    #[test]
    fn plans_depend_on_the_seed_and_stay_within_the_calls_made() {
        let plans = plan(1, 500, &seen());
        assert_eq!(plans, plan(1, 500, &seen()));
        assert_ne!(plans, plan(2, 500, &seen()));
        assert_eq!(plans.len(), 500);
        for (turn, plan) in &plans {
            let calls = seen()[turn][plan.site_name()];
            assert!((1..=calls).contains(&plan.at), "{plan}");
        }
        let errors: std::collections::BTreeSet<_> = plans.iter().map(|(_, plan)| plan.error_name()).collect();
        assert!(errors.len() >= 7, "{errors:?}");
    }

    #[test]
    fn errors_that_callers_retry_are_never_permanent() {
        assert!(
            troubles().iter().all(|t| t.how != How::On || !t.errno.is_passing() || t.when == When::Short)
        );
    }
}
