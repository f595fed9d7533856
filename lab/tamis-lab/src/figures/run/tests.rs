//! Runs of a figure that measures nothing, interrupted in every way.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tamis::io::read_file;
use tamis_bench::progress::NoProgress;
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

use super::*;
use crate::figures::results::{load_all_of, load_from, store_keep};
use crate::figures::{About, Axis, Kind, Needs, Panel, Paper, Point, Row, Series, View};

/// A figure of steps whose rows depend on their number.
pub(in crate::figures) struct Steps {
    about: About,
    steps: usize,
    disk_bytes: AtomicU64,
    /// The executed steps, in order.
    ran: Mutex<Vec<usize>>,
    /// The step that fails, once.
    fails: AtomicUsize,
}

impl Steps {
    pub(in crate::figures) fn new(steps: usize) -> Steps {
        Steps {
            about: About {
                name: "test-steps",
                paper: Paper::Ours,
                place: "",
                title: "Steps",
                claim: "They follow each other.",
                differs: "",
            },
            steps,
            disk_bytes: AtomicU64::new(0),
            ran: Mutex::default(),
            fails: AtomicUsize::new(usize::MAX),
        }
    }

    fn failing_at(self, step: usize) -> Steps {
        self.fails.store(step, Relaxed);
        self
    }

    /// Returns the steps executed since the last call.
    fn ran(&self) -> Vec<usize> {
        std::mem::take(&mut self.ran.lock().unwrap())
    }
}

struct StepsPlan<'f> {
    figure: &'f Steps,
    keys: u64,
}

impl Figure for Steps {
    fn about(&self) -> &About {
        &self.about
    }

    fn needs(&self, _: Scale) -> Needs {
        Needs { seconds: 3, disk_bytes: self.disk_bytes.load(Relaxed), memory_bytes: 0 }
    }

    fn plan<'f>(&'f self, _: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        let keys = custom.keys.unwrap_or(10);
        if keys == 13 {
            return Err(BenchError::Request("13 keys are too many".into()));
        }
        Ok(Box::new(StepsPlan { figure: self, keys }))
    }

    fn view(&self, rows: &[Row]) -> View {
        let points = rows.iter().filter_map(|row| Some(Point::new(row["x"].as_f64()?, row["y"].as_f64()?)));
        let series = Series { name: "y".into(), points: points.collect() };
        let panel = Panel {
            title: "Y over X!".into(),
            x: Axis::new("x", ""),
            y: Axis::new("y", "ns"),
            kind: Kind::Lines(vec![series]),
        };
        let panels = if rows.is_empty() { vec![] } else { vec![panel] };
        let open = Verdict::open("y grows", "10×");
        let sized = (rows.len() > 1).then(|| open.clone().with("10×", Some(true), None, Some(1.0)));
        View { panels, sheets: vec![], verdicts: vec![sized.unwrap_or(open)] }
    }
}

impl Plan for StepsPlan<'_> {
    fn setting(&self) -> String {
        format!("{} keys", self.keys)
    }

    fn scaled(&self) -> Vec<String> {
        vec!["All of it.".into()]
    }

    fn steps(&self) -> Vec<String> {
        (0..self.figure.steps).map(|step| format!("x {step}, \"so\"")).collect()
    }

    fn run(&mut self, step: usize, progress: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        progress.begin("count", 1, "steps");
        progress.end();
        self.figure.ran.lock().unwrap().push(step);
        if self.figure.fails.compare_exchange(step, usize::MAX, Relaxed, Relaxed).is_ok() {
            return Err(BenchError::Request("the power is gone".into()));
        }
        // The number of rows is the step's number; the first step has one as well.
        let row =
            |n: usize| json!({"kind": "count", "x": step * 10 + n, "y": 0.1 + step as f64, "list": [1, 2]});
        Ok((0..step.max(1)).map(|n| row(n).as_object().unwrap().clone()).collect())
    }
}

fn go(fs: &dyn FileSystem, figure: &Steps, custom: &Custom, restart: bool) -> Result<Report, BenchError> {
    let out = Path::new("/out");
    Run { fs, figure, scale: Scale::Small, custom, out, restart }.run(&NoProgress)
}

fn file(name: &str) -> PathBuf {
    directory(Path::new("/out"), "test-steps", Scale::Small).join(name)
}

fn text(fs: &dyn FileSystem, name: &str) -> String {
    String::from_utf8(read_file(fs, &file(name)).unwrap()).unwrap()
}

fn put(fs: &dyn FileSystem, name: &str, bytes: &[u8]) {
    tamis::io::write_file_atomically(fs, &file(name), bytes).unwrap();
}

#[test]
fn an_interrupted_run_continues_with_its_current_step() {
    let fs = FaultyFs::new(1);
    let custom = Custom::default();
    let figure = Steps::new(4).failing_at(2);
    let error = go(&fs, &figure, &custom, false).unwrap_err();
    assert_eq!(error.to_string(), "the power is gone");
    assert_eq!(figure.ran(), [0, 1, 2]);
    let begun = load_from(&fs, &figure, Scale::Small, Path::new("/out")).unwrap().unwrap();
    assert_eq!((begun.done.len(), begun.rows.len(), begun.is_complete()), (2, 2, false));

    let report = go(&fs, &figure, &custom, false).unwrap();
    assert_eq!(figure.ran(), [2, 3]);
    assert_eq!((report.measured, report.loaded.is_complete()), (2, true));
    let xs: Vec<&Value> = report.loaded.rows.iter().map(|row| &row["x"]).collect();
    assert_eq!(xs, [0, 10, 20, 21, 30, 31, 32]);

    // All steps are done: results are shown, and nothing is measured.
    let again = go(&fs, &figure, &custom, false).unwrap();
    assert_eq!((figure.ran().len(), again.measured), (0, 0));
    assert_eq!((&again.loaded.rows, &again.loaded.view), (&report.loaded.rows, &report.loaded.view));
    let again = go(&fs, &figure, &custom, true).unwrap();
    assert_eq!((figure.ran().len(), again.measured), (4, 4));
}

#[test]
fn a_torn_last_line_belongs_to_the_interrupted_step() {
    let figure = Steps::new(3);
    let whole = {
        let fs = FaultyFs::new(1);
        go(&fs, &figure, &Custom::default(), false).unwrap();
        text(&fs, "rows.jsonl")
    };
    figure.ran();
    let ends: Vec<usize> = whole
        .split_inclusive('\n')
        .scan(0, |end, line| {
            *end += line.len();
            Some((*end, line.contains("done")))
        })
        .filter_map(|(end, done)| done.then_some(end))
        .collect();
    assert_eq!((ends.len(), ends[2]), (3, whole.len()));
    // Cut anywhere, and followed by what a power failure may leave behind.
    for cut in 0..whole.len() {
        for garbage in [&b""[..], b"\0\0\0\0", b"{}\nnull\n[\xff\n"] {
            let fs = FaultyFs::new(1);
            go(&fs, &Steps::new(3).failing_at(0), &Custom::default(), false).unwrap_err();
            put(&fs, "rows.jsonl", &[&whole.as_bytes()[..cut], garbage].concat());
            let report = go(&fs, &figure, &Custom::default(), false).unwrap();
            let kept = ends.iter().filter(|&&end| end <= cut).count();
            assert_eq!(figure.ran(), (kept..3).collect::<Vec<_>>(), "cut at {cut}");
            assert_eq!((report.loaded.rows.len(), report.loaded.done.len()), (4, 3));
            // Kept rows are identical byte by byte.
            assert!(text(&fs, "rows.jsonl").starts_with(&whole[..ends[..kept].last().copied().unwrap_or(0)]));
        }
    }
}

/// The steps of a run were continued by a program of another commit, and its rows were of two engines.
#[test]
fn an_unfinished_run_of_another_commit_is_not_continued() {
    let fs = FaultyFs::new(1);
    let figure = Steps::new(2).failing_at(1);
    go(&fs, &figure, &Custom::default(), false).unwrap_err();
    let setup = text(&fs, "setup.json");
    let field = |commit: &str| format!("\"commit\": \"{commit}\"");
    let another = setup.replace(&field(crate::machine::COMMIT), &field("0123456789ab"));
    assert_ne!(another, setup);
    put(&fs, "setup.json", another.as_bytes());
    let error = go(&fs, &figure, &Custom::default(), false).unwrap_err().to_string();
    assert!(error.contains("commit: 0123456789ab there") && error.contains("--restart"), "{error}");
    put(&fs, "setup.json", setup.as_bytes());
    go(&fs, &figure, &Custom::default(), false).unwrap();
    // What is complete is printed by any program.
    put(&fs, "setup.json", another.as_bytes());
    assert_eq!(go(&fs, &figure, &Custom::default(), false).unwrap().measured, 0);
}

#[test]
fn kept_results_are_read_like_others() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fs = DiskFs::without_mapping();
    let (there, kept) = (|out: &Path| directory(out, "test-steps", Scale::Small), "rows.jsonl.gz");
    let figure = Steps::new(3);
    let keep = || store_keep(&fs, &there(from.path()), &there(to.path()));
    assert!(!keep().unwrap(), "there is nothing");
    let begun = Steps::new(3).failing_at(2);
    run(&begun, Scale::Small, &Custom::default(), from.path(), false, &NoProgress).unwrap_err();
    assert!(!keep().unwrap() && !there(to.path()).exists(), "unfinished ones are not kept");
    let whole =
        run(&figure, Scale::Small, &Custom::default(), from.path(), false, &NoProgress).unwrap().loaded;
    assert!(keep().unwrap());
    let names: Vec<String> = fs.list(&there(to.path())).unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    let load = || load_from(&fs, &figure, Scale::Small, to.path());
    let loaded = load().unwrap().unwrap();
    assert_eq!((&loaded.setup, &loaded.rows, &loaded.done), (&whole.setup, &whole.rows, &whole.done));
    let path = there(to.path()).join(kept);
    let packed = std::fs::read(&path).unwrap();
    assert!(
        keep().unwrap() && std::fs::read(&path).unwrap() == packed,
        "the same results give the same bytes"
    );
    // Rows of a run into the same directory would be read in their place.
    std::fs::write(there(to.path()).join("rows.jsonl"), "").unwrap();
    assert!(keep().unwrap());
    assert_eq!(load().unwrap().unwrap().rows, whole.rows);
    // Damage is an error that names the file.
    let mut bad = vec![packed[..packed.len() - 9].to_vec(), b"not compressed".to_vec()];
    bad.push({
        let mut flipped = packed.clone();
        flipped[packed.len() / 2] ^= 0x10;
        flipped
    });
    for bytes in bad {
        std::fs::write(&path, &bytes).unwrap();
        let error = load().unwrap_err().to_string();
        assert!(error.contains(kept) && error.contains("damaged"), "{error}");
    }
    // Kept rows do not outlive a setup that replaces theirs.
    std::fs::write(&path, &packed).unwrap();
    run(&figure, Scale::Small, &Custom::default(), to.path(), true, &NoProgress).unwrap();
    assert!(!path.exists());
}

#[test]
fn damage_before_a_finished_step_is_an_error_with_its_line() {
    let fs = FaultyFs::new(1);
    let figure = Steps::new(3);
    go(&fs, &figure, &Custom::default(), false).unwrap();
    let whole = text(&fs, "rows.jsonl");
    let deep = "[".repeat(100_000);
    for (bad, part) in [
        ("{\"kind\":", "line 1: "),
        ("[1, 2]", "line 1: "),
        ("{\"x\": 1e999}", "line 1: "),
        (&deep, "line 1: "),
        ("{\"kind\":\"done\"}", "line 1: "),
        ("{}\n{}", "has 2 rows instead of 1"),
    ] {
        let text = whole.split_once('\n').unwrap().1;
        put(&fs, "rows.jsonl", format!("{bad}\n{text}").as_bytes());
        let error = go(&fs, &figure, &Custom::default(), false).unwrap_err().to_string();
        assert!(error.contains("rows.jsonl") && error.contains(part), "{error}");
        assert!(error.contains("--restart"), "{error}");
    }
    put(&fs, "rows.jsonl", whole.replace("x 1, ", "other ").as_bytes());
    let error = go(&fs, &figure, &Custom::default(), false).unwrap_err().to_string();
    assert!(error.contains("step 2 is `other \"so\"`, and setup.json has `x 1, \"so\"`"), "{error}");
    // More steps than the setup has.
    let last = whole.lines().last().unwrap();
    put(&fs, "rows.jsonl", format!("{whole}{}\n", last.replace("\"rows\":2", "\"rows\":0")).as_bytes());
    let error = go(&fs, &figure, &Custom::default(), false).unwrap_err().to_string();
    assert!(error.contains("no more steps"), "{error}");

    put(&fs, "rows.jsonl", whole.as_bytes());
    assert_eq!(go(&fs, &figure, &Custom::default(), false).unwrap().measured, 0);
    for bad in [&b""[..], b"{}", b"\xff", b"{\"format\":1}"] {
        put(&fs, "setup.json", bad);
        let error = go(&fs, &figure, &Custom::default(), false).unwrap_err().to_string();
        assert!(error.contains("setup.json is damaged"), "{error}");
    }
    assert_eq!(go(&fs, &figure, &Custom::default(), true).unwrap().measured, 3);
}

#[test]
fn rows_of_other_settings_do_not_mix() {
    let fs = FaultyFs::new(1);
    let figure = Steps::new(3).failing_at(1);
    go(&fs, &figure, &Custom::default(), false).unwrap_err();
    figure.ran();
    let other = Custom { keys: Some(7), ..Custom::default() };
    let error = go(&fs, &figure, &other, false).unwrap_err().to_string();
    assert!(error.contains("--keys: not given there, 7 now") && error.contains("--restart"), "{error}");
    assert_eq!(figure.ran(), [0; 0]);
    // The refused run changed nothing.
    assert_eq!(go(&fs, &figure, &Custom::default(), false).unwrap().measured, 2);
    let report = go(&fs, &figure, &other, true).unwrap();
    assert_eq!((report.measured, report.loaded.setup.setting.as_str()), (3, "7 keys"));
    let error = go(&fs, &Steps::new(4), &other, false).unwrap_err().to_string();
    assert!(error.contains("steps: "), "{error}");
}

#[test]
fn only_one_process_at_a_time_measures_into_a_directory() {
    let fs = FaultyFs::new(1);
    let figure = Steps::new(1);
    let plan = figure.plan(Scale::Small, &Custom::default()).unwrap();
    let setup = Setup::of("test-steps", Scale::Small, &Custom::default(), plan.as_ref());
    let held =
        Store::open(&fs, &directory(Path::new("/out"), "test-steps", Scale::Small), &setup, false).unwrap();
    for restart in [false, true] {
        let error = go(&fs, &figure, &Custom::default(), restart).unwrap_err().to_string();
        assert!(error.contains("another process is measuring into"), "{error}");
    }
    drop(held);
    assert_eq!(go(&fs, &figure, &Custom::default(), false).unwrap().measured, 1);
}

/// Power fails at every operation in turn; resuming yields the result of an uninterrupted run.
#[test]
fn a_power_cut_at_any_operation_loses_one_step_at_most() {
    let custom = Custom::default();
    let expected = {
        let fs = FaultyFs::new(1);
        let report = go(&fs, &Steps::new(3), &custom, false).unwrap();
        (report.loaded.rows, fs.operations())
    };
    for mode in [CrashMode::KeepAll, CrashMode::DropUnsynced, CrashMode::Random] {
        for operation in 0..expected.1 {
            let fs = FaultyFs::new(operation);
            fs.plan(FaultPlan {
                fail_at: Some(operation),
                sticky: true,
                partial_append: true,
                ..FaultPlan::none()
            });
            let figure = Steps::new(3);
            let failed = go(&fs, &figure, &custom, false);
            assert!(failed.is_err(), "operation {operation}");
            let begun = figure.ran().len();
            let fs = fs.crash(mode);
            let report =
                go(&fs, &figure, &custom, false).unwrap_or_else(|e| panic!("{mode:?} at {operation}: {e}"));
            assert_eq!(report.loaded.rows, expected.0, "{mode:?} at {operation}");
            assert!(report.measured <= 3 - begun.saturating_sub(1), "{mode:?} at {operation}: {begun} begun");
        }
    }
}

/// Starting over may be interrupted, too: rows never coexist with a setup that is not theirs.
#[test]
fn an_interrupted_restart_leaves_no_rows_of_the_old_settings() {
    let (old, new) = (Custom::default(), Custom { keys: Some(7), ..Custom::default() });
    let mut operation = 0;
    loop {
        let fs = FaultyFs::new(operation);
        let figure = Steps::new(2);
        go(&fs, &figure, &old, false).unwrap();
        let plan =
            FaultPlan { fail_at: Some(fs.operations() + operation), sticky: true, ..FaultPlan::none() };
        fs.plan(plan);
        let ended = go(&fs, &figure, &new, true).is_ok();
        let fs = fs.crash(CrashMode::Random);
        let there = load_from(&fs, &figure, Scale::Small, Path::new("/out")).unwrap().unwrap();
        let of_old = there.setup.custom.is_empty();
        // The old rows go first: with the new setup there are only new ones, and their number is complete only at the
        // end.
        figure.ran();
        let report = go(&fs, &figure, if of_old { &old } else { &new }, false).unwrap();
        assert_eq!(report.measured, 2 - there.done.len(), "operation {operation}");
        assert_eq!(report.measured, figure.ran().len());
        if ended {
            assert_eq!((there.done.len(), of_old), (2, false));
            break;
        }
        operation += 1;
    }
    assert!(operation > 10, "{operation}");
}

#[test]
fn derived_output_is_written_as_files() {
    let fs = FaultyFs::new(1);
    let figure = Steps::new(3);
    let report = go(&fs, &figure, &Custom::default(), false).unwrap();
    let table = text(&fs, "rows.csv");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "step,kind,list,x,y");
    assert_eq!(lines[1], "\"x 0, \"\"so\"\"\",count,\"[1,2]\",0,0.1");
    assert_eq!((lines.len(), lines[4]), (5, "\"x 2, \"\"so\"\"\",count,\"[1,2]\",21,2.1"));
    let verdicts: Value = serde_json::from_str(&text(&fs, "verdicts.json")).unwrap();
    assert_eq!((&verdicts[0]["finding"], &verdicts[0]["paper"]), (&"holds".into(), &"10×".into()));
    assert!(text(&fs, "plot-01-y-over-x.svg").starts_with("<svg"));
    assert_eq!(report.files, ["rows.csv", "verdicts.json", "plot-01-y-over-x.svg"].map(file));
    let setup: Value = serde_json::from_str(&text(&fs, "setup.json")).unwrap();
    assert_eq!(
        (&setup["figure"], &setup["seed"], &setup["scale"]),
        (&"test-steps".into(), &1.into(), &"small".into())
    );

    // Obsolete pictures are removed; foreign files stay.
    put(&fs, "plot-02-old.svg", b"old");
    put(&fs, "notes.svg", b"mine");
    go(&fs, &figure, &Custom::default(), false).unwrap();
    let names = fs.list(&file("").parent().unwrap().join("small")).unwrap();
    assert!(
        !names.contains(&"plot-02-old.svg".to_owned()) && names.contains(&"notes.svg".to_owned()),
        "{names:?}"
    );
    assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
}

#[test]
fn names_of_pictures_are_portable() {
    assert_eq!(picture(0, "Latency, 10 bits (µs)"), "plot-01-latency-10-bits-s.svg");
    assert_eq!(picture(11, "../../etc/passwd"), "plot-12-etc-passwd.svg");
    assert_eq!(picture(0, "…"), "plot-01.svg");
    assert!(picture(0, &"word ".repeat(100)).len() < 80);
}

#[test]
fn all_results_of_a_directory_are_loaded_and_damage_is_named() {
    let fs = FaultyFs::new(1);
    let out = Path::new("/out");
    let figures: [Box<dyn Figure>; 1] = [Box::new(Steps::new(2))];
    assert!(load_all_of(&fs, &figures, out).is_err(), "there is none");
    go(&fs, &Steps::new(2), &Custom::default(), false).unwrap();
    let present = load_all_of(&fs, &figures, out).unwrap();
    assert!(present.unreadable.is_empty(), "{:?}", present.unreadable);
    let [loaded] = &present.loaded[..] else { panic!("{present:?}") };
    assert_eq!((loaded.about.name, loaded.scale, loaded.view.panels.len()), ("test-steps", Scale::Small, 1));
    assert!(loaded.seconds() >= 0.0);

    // Moved by hand to the directory of another scale.
    let setup = text(&fs, "setup.json");
    for place in ["test-steps/paper", "test-gone/small"] {
        fs.create_dir_all(&out.join(place)).unwrap();
        tamis::io::write_file_atomically(&fs, &out.join(place).join("setup.json"), setup.as_bytes()).unwrap();
    }
    put(&fs, "setup.json", b"{");
    let present = load_all_of(&fs, &figures, out).unwrap();
    assert!(present.loaded.is_empty());
    let named = ["setup.json is damaged", "holds test-steps at scale small", "`test-gone`"];
    assert_eq!(present.unreadable.len(), 3);
    assert!(
        present.unreadable.iter().zip(named).all(|(text, part)| text.contains(part)),
        "{:?}",
        present.unreadable
    );
}

#[test]
fn a_run_is_refused_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let figure = Steps::new(2);
    let check = |custom: &Custom| check(&figure, Scale::Small, custom, &out, false);
    assert_eq!(check(&Custom::default()).unwrap(), State { done: 0, steps: 2 });
    let refused = check(&Custom { keys: Some(13), ..Custom::default() }).unwrap_err();
    assert!(refused.to_string().contains("too many"), "{refused}");
    figure.disk_bytes.store(u64::MAX, Relaxed);
    let place = Custom { dir: Some(dir.path().join("not/yet")), ..Custom::default() };
    let room = |custom: &Custom| room(&figure, Scale::Small, custom);
    let refused = room(&place).unwrap_err().to_string();
    for part in ["test-steps takes 16384.0 PiB", "not/yet has ", "give --db"] {
        assert!(refused.contains(part), "{part:?} not in {refused:?}");
    }
    assert!(room(&Custom::default()).unwrap_err().to_string().contains("TMPDIR"));
    // Nothing is known about custom sizes.
    room(&Custom { keys: Some(5), ..place.clone() }).unwrap();
    assert!(!out.exists(), "a check writes nothing");

    // A finished run is recognised.
    let report = run(&figure, Scale::Small, &place, &out, false, &NoProgress).unwrap();
    assert_eq!((report.measured, check(&place).unwrap().is_complete()), (2, true));
    assert!(report.files.iter().all(|file| file.exists()));
    assert_eq!(bytes_below(&report.dir), {
        let files = std::fs::read_dir(&report.dir).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    });
}

/// Collects messages.
#[derive(Default)]
struct Said(Mutex<Vec<String>>);

impl Progress for Said {
    fn begin(&self, phase: &str, _: u64, _: &'static str) {
        self.0.lock().unwrap().push(phase.to_owned());
    }
    fn advance(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

#[test]
fn messages_name_the_step_and_the_remaining_time() {
    let dir = tempfile::tempdir().unwrap();
    let figure = Steps::new(3).failing_at(1);
    let said = Said::default();
    let go = |said: &Said| run(&figure, Scale::Small, &Custom::default(), dir.path(), false, said);
    go(&said).unwrap_err();
    let said = said.0.into_inner().unwrap();
    assert_eq!(said[0], "test-steps: step 1 of 3, about 3.0 s left: x 0, \"so\"");
    assert_eq!(said[1], "[1/3] count");
    assert!(said[2].starts_with("test-steps: step 2 of 3, about ") && said[3] == "[2/3] count", "{said:?}");
    assert!(said[4].contains("1 of 3 steps are done and kept"), "{said:?}");
    let said = Said::default();
    go(&said).unwrap();
    assert!(said.0.into_inner().unwrap()[0].starts_with("test-steps: step 2 of 3"));
}
