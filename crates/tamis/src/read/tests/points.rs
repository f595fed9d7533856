//! Point reads: one probe each.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::truth::{Manner, install};
use crate::explain::{ExplainStep, FilterAnswer};
use crate::io::MemFs;
use crate::{Db, Options};

/// More than the read path would probe at once.
const RUNS: usize = 70;

fn filled(hash_sharing: bool) -> Db {
    let mut options =
        Options { file_system: Some(Arc::new(MemFs::new())), hash_sharing, ..Options::default() };
    options.keyspace.auto_compaction = false;
    options.keyspace.merge_operator = Some("append".into());
    let db = options.open("/db").expect("opening");
    for run in 0..RUNS {
        // Makes every run span all keys.
        db.put("a", "").expect("a write");
        db.put("z", "").expect("a write");
        db.put(format!("key{run:02}"), format!("{run}")).expect("a write");
        if run % 20 == 0 {
            db.merge("merged", format!("{run},")).expect("a write");
        }
        db.flush().expect("a flush");
    }
    assert_eq!(db.stats().keyspaces[0].runs, RUNS);
    db
}

#[test]
fn a_global_filter_is_probed_once_whatever_the_number_of_runs() {
    for sharing in [true, false] {
        let db = filled(sharing);
        let asked = install(&db, Manner::default());
        let before = db.stats().read;
        let mut questions = 0;
        for run in 0..RUNS {
            let value = db.get(format!("key{run:02}")).expect("a get");
            assert_eq!(value.as_deref(), Some(format!("{run}").as_bytes()));
            assert_eq!(db.get(format!("key{run:02}-")).expect("a get"), None);
            questions += 2;
        }
        assert_eq!(db.get("merged").expect("a get").as_deref(), Some(&b"0,20,40,60,"[..]));
        questions += 1;
        let keys: Vec<_> =
            (0..RUNS + 10).map(|run| format!("key{run:02}")).chain(["merged".into()]).collect();
        let values = db.multi_get(&keys).expect("gets");
        for (run, value) in values[..RUNS + 10].iter().enumerate() {
            let expected = (run < RUNS).then(|| format!("{run}"));
            assert_eq!(value.as_deref(), expected.as_ref().map(String::as_bytes));
        }
        assert_eq!(values.last().expect("asked for").as_deref(), Some(&b"0,20,40,60,"[..]));
        questions += keys.len() as u64;
        assert_eq!(asked.select.load(Relaxed), questions);
        let used = db.stats().read - before;
        // Each existing key is searched for in its one run, the merged one in four; all of this
        // twice.
        assert_eq!((used.filter_probes, used.runs_searched), (questions, 2 * RUNS as u64 + 2 * 4));
        assert_eq!(used.false_positives, 0);
    }
}

/// Search results are recorded at the run that was searched, although several runs follow one
/// probe. (They once all went to the last run of a probe, from the time when a probe concerned one
/// run.)
#[test]
fn explain_records_which_run_was_searched() {
    let db = filled(true);
    let asked = install(&db, Manner { lies: 128, seed: 3, ..Manner::default() });
    let told = db.explain_get("key20").expect("an explanation");
    assert_eq!((asked.select.load(Relaxed), told.steps.len()), (1, RUNS));
    let mut searched = 0;
    for (place, step) in told.steps.iter().enumerate() {
        let ExplainStep::Run { filter, block, found, .. } = step else { panic!("{step:?}") };
        // Newest first.
        let here = place == RUNS - 1 - 20;
        assert_eq!(*found, here, "{step:?}");
        assert_eq!(block.is_some(), *filter == FilterAnswer::Maybe && place <= RUNS - 1 - 20, "{step:?}");
        searched += u64::from(block.is_some());
    }
    assert!(searched > 10 && told.cost.runs_searched == searched, "{told:?}");
    assert_eq!(told.cost.false_positives, searched - 1);
}
