use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::time::Duration;

use super::*;
use crate::engines::tamis::Tamis;
use crate::suites::tests::sizes;
use crate::suites::{Sizes, Suite};
use crate::worker::serve;
use crate::worker::tests::Forgetful;

#[derive(Default)]
struct Listener {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Audience for Listener {
    fn doing(&mut self, _what: &str) {}

    fn row(&mut self, row: &Row) -> Result<(), Failure> {
        self.rows.push(row.clone());
        Ok(())
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

/// Runs a worker in a thread, over pipes as between processes.
fn thread_of(
    serve: fn(BufReader<PipeReader>, PipeWriter) -> io::Result<()>,
    system: &System,
) -> io::Result<Link> {
    let (requests, to_worker) = io::pipe()?;
    let (from_worker, answers) = io::pipe()?;
    std::thread::spawn(move || serve(BufReader::new(requests), answers));
    Ok(Link::over(from_worker, to_worker, system.name(), Duration::from_secs(300)))
}

fn good(system: &System) -> io::Result<Link> {
    thread_of(serve::<Tamis>, system)
}

fn tiny() -> Sizes {
    Sizes {
        keys: 2000,
        values: 64.into(),
        ops: 1000,
        rounds: 2,
        memtable_bytes: 64 << 10,
        cache_bytes: Some(1 << 20),
        threads: vec![1, 2],
        ..sizes()
    }
}

fn plans(suites: &[Suite]) -> Vec<Plan> {
    suites.iter().flat_map(|suite| suite.plans(&tiny()).unwrap()).collect()
}

fn systems(list: &str) -> Vec<System> {
    System::parse_list(list).unwrap()
}

/// Conducts plans, and checks that the directory of databases is empty afterwards.
fn conduct_with(
    plans: &[Plan],
    systems: &[System],
    spawn: &dyn Fn(&System) -> io::Result<Link>,
) -> (Result<Vec<String>, Failure>, Listener, usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut listener = Listener::default();
    let done =
        conduct(plans, Stage { systems, spawn, count: None, dir: dir.path(), audience: &mut listener });
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    (done, listener, left)
}

#[test]
fn every_step_of_every_suite_has_a_row_per_system_and_round() {
    let plans = plans(&Suite::ALL);
    let systems = systems("tamis,tamis:keyspace.merge=partitioned");
    let (done, heard, left) = conduct_with(&plans, &systems, &good);
    assert_eq!(done, Ok(Vec::new()));
    assert_eq!((left, &heard.notes), (0, &Vec::new()));
    let steps: usize = plans.iter().map(|plan| plan.steps.len()).sum();
    assert_eq!(heard.rows.len(), steps * 2 * 2);
    for row in &heard.rows {
        assert_eq!(row.refused, None);
        let figures = &row.figures;
        assert!(figures.ops > 0 && figures.ns_per_op > 0.0 && figures.space_amplification > 0.9, "{row:?}");
        let writes = row.conditions.workload.parse::<Workload>().unwrap().writes();
        assert_eq!(writes, figures.write_amplification > 0.0, "{row:?}");
        if row.conditions.suite == "runs" {
            assert!(figures.inside.runs >= Some(8), "{row:?}");
        }
    }
    // The first system of a round is the second one of the next.
    let order = |round| {
        let first = |row: &&Row| row.round == round && row.conditions.workload == "ycsb-a";
        heard.rows.iter().find(first).unwrap().system.clone()
    };
    assert_ne!(order(0), order(1));
}

#[test]
fn a_wrong_answer_ends_the_run_and_names_the_system() {
    let spawn = |system: &System| match system.name() {
        "tamis-grf" => thread_of(serve::<Forgetful>, system),
        _ => good(system),
    };
    let (done, heard, _) = conduct_with(&plans(&[Suite::Settled]), &systems("tamis,tamis-grf"), &spawn);
    let Err(Failure::WrongAnswer(text)) = done else { panic!("{done:?}") };
    assert!(text.starts_with("tamis-grf: ") && text.contains("get-existing"), "{text}");
    assert!(heard.rows.iter().all(|row| row.conditions.workload != "seek"), "no system continues");
}

#[test]
fn refusals_are_rows_with_a_reason() {
    let spawn = |system: &System| match system.name() {
        "tamis-grf" => thread_of(serve::<Forgetful>, system),
        _ => good(system),
    };
    let plans = plans(&[Suite::Direct]);
    let (done, heard, left) = conduct_with(&plans, &systems("tamis,tamis-grf"), &spawn);
    assert_eq!((done, left), (Ok(Vec::new()), 0));
    let (refused, measured): (Vec<&Row>, Vec<&Row>) =
        heard.rows.iter().partition(|row| row.refused.is_some());
    assert_eq!((refused.len(), measured.len()), (plans[0].steps.len(), plans[0].steps.len() * 2));
    assert!(
        refused
            .iter()
            .all(|row| row.system == "tamis-grf" && row.refused.as_ref().unwrap().contains("forgets"))
    );
}

/// Serves requests until a seek, then disappears.
fn mortal(requests: BufReader<PipeReader>, answers: PipeWriter) -> io::Result<()> {
    let (inner, mut forward) = io::pipe()?;
    let served = std::thread::spawn(move || serve::<Tamis>(BufReader::new(inner), answers));
    for line in requests.lines() {
        let line = line?;
        if line.contains("\"workload\":\"seek\"") {
            break;
        }
        forward.write_all(format!("{line}\n").as_bytes())?;
    }
    drop(forward);
    served.join().unwrap()
}

#[test]
fn a_dead_worker_is_reported_and_the_others_continue() {
    let spawn = |system: &System| match system.name() {
        "tamis-grf" => thread_of(mortal, system),
        _ => good(system),
    };
    let plans = plans(&[Suite::Cold, Suite::Sync]);
    let (done, heard, left) = conduct_with(&plans, &systems("tamis,tamis-grf"), &spawn);
    let troubles = done.unwrap();
    assert_eq!((troubles.len(), left), (1, 0));
    assert!(troubles[0].contains("cold, tamis-grf: ") && troubles[0].contains("gone"), "{troubles:?}");
    assert!(heard.notes.contains(&troubles[0]));
    let of = |system: &str, suite: &str| {
        let its = |row: &&Row| row.system == system && row.conditions.suite == suite;
        heard.rows.iter().filter(its).collect::<Vec<_>>()
    };
    assert_eq!(of("tamis", "cold").len(), 3 * 2, "three steps, two rounds");
    assert!(of("tamis", "cold").iter().all(|row| row.figures.open_ns > 0), "each was opened for it");
    assert!(of("tamis", "sync").iter().all(|row| row.figures.open_ns == 0));
    let its = of("tamis-grf", "cold");
    assert_eq!(its.len(), 3, "two steps and the one that it died of");
    assert!(its[2].refused.as_ref().unwrap().starts_with(STOPPED) && its[1].refused.is_none());
    assert_eq!(of("tamis-grf", "sync").len(), 3 * 2, "out until the end of the plan only");
}

#[test]
fn a_worker_that_cannot_be_started_is_reported() {
    let spawn = |_: &System| Err(io::Error::other("no more processes"));
    let (done, heard, left) = conduct_with(&plans(&[Suite::Load, Suite::Sync]), &systems("tamis"), &spawn);
    let troubles = done.unwrap();
    assert!(troubles.len() == 2 && troubles[0].contains("no more processes"), "{troubles:?}");
    assert_eq!((heard.rows.len(), left), (2 + 3, 0));
    assert!(heard.rows.iter().all(|row| row.refused.as_ref().unwrap().starts_with(STOPPED)));
}
