use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use tamis::Db;
use tamis_bench::store::{Session, Store};

use super::*;
use crate::engines::tamis::Tamis;
use crate::engines::{Batch, Compression, Inside};
use crate::source::Source;

pub(crate) fn setup(dir: &Path) -> Setup {
    Setup {
        dir: dir.to_owned(),
        cache_bytes: 1 << 20,
        metadata_bytes: 0,
        memtable_bytes: 256 << 10,
        filter_bits: 10,
        compression: Compression::None,
        sync: false,
        direct_io: false,
        compaction: true,
        separated_bytes: None,
        overrides: Vec::new(),
    }
}

fn data(seed: u64) -> Data {
    Data { keys: 3000, key_bytes: 8, values: 100.into(), seed, source: Source::Uniform, asked: 3000 }
}

fn open(dir: &Path, seed: u64, loaded: u64) -> Request {
    Request::Open { setup: setup(dir), data: data(seed), loaded }
}

fn fill(order: Order, loaded: u64) -> Request {
    Request::Fill { order, loaded, threads: 1, batch: 1, inline: false, rest: false }
}

fn run_of(workload: &str, ops: u64) -> Request {
    Request::Run {
        workload: workload.to_owned(),
        threads: 2,
        ops,
        seconds: None,
        warmup: 100,
        warm_with: "get-existing".to_owned(),
        hot: None,
        seed: 5,
    }
}

/// Returns a worker's answers to these lines.
fn answers<E: Engine>(lines: &[String]) -> Vec<Answer> {
    let mut output = Vec::new();
    serve::<E>(lines.join("\n").as_bytes(), &mut output).unwrap();
    let text = String::from_utf8(output).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ask(requests: &[Request]) -> Vec<Answer> {
    let lines: Vec<String> = requests.iter().map(|request| serde_json::to_string(request).unwrap()).collect();
    answers::<Tamis>(&lines)
}

fn figures(answer: &Answer) -> (&Figures, u64) {
    match answer {
        Answer::Measured { figures, loaded, notes } => {
            assert!(notes.is_empty(), "{notes:?}");
            (figures, *loaded)
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_failed(answer: &Answer, kind: FailureKind, text: &str) {
    match answer {
        Answer::Failed { kind: is, text: says } => assert!(*is == kind && says.contains(text), "{says}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn filled_keys_are_found_by_other_workers() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let first = ask(&[
        open(&db, 1, 0),
        fill(Order::Random, 2500),
        run_of("get-existing", 1000),
        run_of("ycsb-d", 2000),
        run_of("overwrite", 500),
        Request::Settle,
        Request::Close,
        Request::Evict,
        Request::Quit,
    ]);
    assert!(matches!(&first[0], Answer::Opened { options, ns } if !options.is_empty() && *ns > 0));
    let (filled, loaded) = figures(&first[1]);
    assert_eq!((filled.ops, loaded), (2500, 2500));
    assert!(filled.write_amplification >= 1.0 && filled.space_amplification >= 1.0, "{filled:?}");
    assert!(filled.settle_ns > 0 && filled.cpu_ns_per_op > 0.0 && filled.resident_bytes > 0);
    let (read, loaded) = figures(&first[2]);
    assert_eq!((read.ops, loaded, read.write_amplification, read.settle_ns), (1000, 2500, 0.0, 0));
    assert!(read.inside.runs >= Some(1) && read.ns_per_op > 0.0 && read.p50_ns <= read.p999_ns, "{read:?}");
    assert_eq!(figures(&first[3]).1, 2600, "one in twenty inserts");
    assert_eq!(figures(&first[4]).0.ops, 500);
    assert_eq!(first[5..], [Answer::Done, Answer::Done, Answer::Done, Answer::Done]);
    // The second worker finds all keys that the first one put, and no others.
    let second = ask(&[
        open(&db, 1, 2600),
        run_of("ycsb-e", 200),
        run_of("get-zipf", 1000),
        Request::ReadAll,
        Request::Quit,
    ]);
    assert_eq!(figures(&second[1]).1, 2610);
    assert_eq!(figures(&second[2]).0.ops, 1000);
    assert_eq!(second[3], Answer::Done);
}

#[test]
fn wrong_answers_do_not_end_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    ask(&[open(&db, 1, 0), fill(Order::Sequential, 3000)]);
    let answers = ask(&[open(&db, 2, 3000), run_of("get-existing", 100), Request::Close, open(&db, 1, 3000)]);
    assert_failed(&answers[1], FailureKind::WrongAnswer, "get-existing");
    assert!(matches!(answers[3], Answer::Opened { .. }));
}

#[test]
fn failed_requests_are_reported_and_the_next_one_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let text = |request: &Request| serde_json::to_string(request).unwrap();
    let wide = Data { key_bytes: 0, ..data(1) };
    let lines = [
        "nonsense".to_owned(),
        r#"{"request":"dance"}"#.to_owned(),
        text(&run_of("get-existing", 10)),
        text(&Request::Evict),
        text(&Request::Close),
        text(&Request::Open { setup: setup(&db), data: wide, loaded: 0 }),
        text(&open(&db, 1, 3001)),
        text(&open(&db, 1, 0)),
        text(&open(&db, 1, 0)),
        text(&Request::Evict),
        text(&run_of("get-existing", 10)),
        text(&fill(Order::Sequential, 10)),
        text(&fill(Order::Random, 0)),
        text(&fill(Order::Random, 3001)),
        text(&fill(Order::Random, 2999)),
        text(&fill(Order::Random, 2999)),
        text(&run_of("get-nothing", 10)),
        text(&run_of("fill-seq", 10)),
        text(&run_of("get-existing", 0)),
        text(&run_of("ycsb-d", 100)),
        text(&run_of("ycsb-d", 39)),
    ];
    let answers = answers::<Tamis>(&lines);
    let done = [7, 14, 20];
    for (at, answer) in answers.iter().enumerate() {
        match done.contains(&at) {
            true => {
                assert!(matches!(answer, Answer::Opened { .. } | Answer::Measured { .. }), "{at}: {answer:?}")
            }
            false => assert_failed(answer, FailureKind::Request, ""),
        }
    }
    assert_failed(&answers[0], FailureKind::Request, "nonsense");
    assert_failed(&answers[16], FailureKind::Request, "get-nothing");
    assert_failed(&answers[19], FailureKind::Request, "1 are left");
    assert_eq!(figures(&answers[20]).1, 3000);
}

#[test]
fn puts_are_counted_by_threads_batches_and_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let filled = |threads, batch, inline, rest| {
        let db = dir.path().join(format!("{threads}-{batch}-{inline}"));
        let fill = Request::Fill { order: Order::Random, loaded: 2999, threads, batch, inline, rest };
        // All keys have to be there afterwards, the last and incomplete batch of each thread included.
        let answers = ask(&[open(&db, 1, 0), fill, run_of("get-existing", 3000)]);
        figures(&answers[2]);
        figures(&answers[1]).0.clone()
    };
    for (threads, batch, inline, rest) in [
        (1, 1, false, false),
        (1, 1, true, false),
        (3, 1, false, false),
        (1, 100, false, false),
        (3, 64, false, true),
    ] {
        let found = filled(threads, batch, inline, rest);
        assert_eq!(found.puts_by_second.iter().sum::<u32>(), 2999);
        assert!(found.p50_ns <= found.put_p9999_ns && found.put_p9999_ns > 0, "{found:?}");
        // The upper end of a bucket may be a little longer.
        assert!(found.put_p9999_ns <= found.slowest_put_ns + found.slowest_put_ns / 16, "{found:?}");
        assert!(found.space_amplification_before_settling > 0.0 && found.wall_ns_per_op > 0.0);
    }
    let none =
        Request::Fill { order: Order::Random, loaded: 10, threads: 1, batch: 0, inline: false, rest: false };
    assert_failed(&ask(&[open(&dir.path().join("none"), 1, 0), none])[1], FailureKind::Request, "batches");
}

#[test]
fn a_run_with_a_limit_of_time_lasts_so_long() {
    let dir = tempfile::tempdir().unwrap();
    let limited = |workload: &str| Request::Run {
        workload: workload.to_owned(),
        threads: 1,
        ops: 500,
        seconds: Some(2),
        warmup: 0,
        warm_with: "get-existing".to_owned(),
        hot: None,
        seed: 3,
    };
    let begun = Instant::now();
    let fill = fill(Order::Random, 2900);
    let answers = ask(&[open(&dir.path().join("db"), 1, 0), fill, limited("overwrite"), limited("ycsb-d")]);
    assert!(begun.elapsed() >= Duration::from_secs(2));
    let found = figures(&answers[2]).0;
    assert!(found.ops > 500 && found.ops.is_multiple_of(500), "{found:?}");
    assert_eq!(found.puts_by_second.iter().map(|&puts| u64::from(puts)).sum::<u64>(), found.ops);
    assert!(found.puts_by_second.len() >= 2 && found.ops_per_second > 0.0, "{found:?}");
    assert_failed(&answers[3], FailureKind::Request, "must not insert");
}

/// A tamis that has lost every key beginning with a byte below 8.
pub(crate) struct Forgetful(Db);

pub(crate) struct ForgetfulSession<'s>(&'s Db);

impl Store for Forgetful {
    type Session<'s> = ForgetfulSession<'s>;

    fn session(&self) -> Result<ForgetfulSession<'_>, BenchError> {
        Ok(ForgetfulSession(&self.0))
    }
}

impl Session for ForgetfulSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        if key[0] >= 8 { Session::put(&mut self.0, key, value) } else { Ok(()) }
    }

    fn get<R>(&mut self, key: &[u8], look: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Session::get(&mut self.0, key, look)
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        look: impl FnMut(usize, Option<&[u8]>) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        Session::multi_get(&mut self.0, keys, look)
    }

    fn scan(
        &mut self,
        low: &[u8],
        high: Option<&[u8]>,
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        Session::scan(&mut self.0, low, high, look)
    }

    fn scan_back(
        &mut self,
        high: &[u8],
        look: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), BenchError> {
        Session::scan_back(&mut self.0, high, look)
    }
}

impl Engine for Forgetful {
    const NAME: &'static str = "forgetful";

    fn version() -> String {
        "1".to_owned()
    }

    fn refuses(setup: &Setup) -> Option<&'static str> {
        setup.direct_io.then_some("forgets how to bypass the page cache")
    }

    fn open(setup: &Setup) -> Result<(Self, BTreeMap<String, String>), BenchError> {
        let options = tamis::Options { create_if_missing: true, ..Default::default() };
        Ok((Forgetful(options.open(&setup.dir)?), BTreeMap::new()))
    }

    fn settle(&self) -> Result<(), BenchError> {
        Ok(self.0.flush()?)
    }

    fn write(session: &mut ForgetfulSession<'_>, batch: &Batch) -> Result<(), BenchError> {
        batch.iter().try_for_each(|(key, value)| session.put(key, value))
    }

    fn inside(&self) -> Result<Inside, BenchError> {
        Ok(Inside::default())
    }

    fn close(self) -> Result<(), BenchError> {
        Ok(self.0.close()?)
    }
}

#[test]
fn lost_keys_are_detected_and_refusals_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let refused = Setup { direct_io: true, ..setup(&db) };
    let requests = [
        Request::Check { setup: refused.clone() },
        Request::Open { setup: refused, data: data(1), loaded: 0 },
        Request::Check { setup: setup(&db) },
        open(&db, 1, 0),
        fill(Order::Random, 3000),
        run_of("multi-get-existing", 2000),
        Request::ReadAll,
    ];
    let lines: Vec<String> = requests.iter().map(|request| serde_json::to_string(request).unwrap()).collect();
    let answers = answers::<Forgetful>(&lines);
    for refused in &answers[..2] {
        assert!(matches!(refused, Answer::Refused { why } if why.contains("forgets")));
    }
    assert_eq!(answers[2], Answer::Done);
    assert_failed(&answers[5], FailureKind::WrongAnswer, "none");
    assert_failed(&answers[6], FailureKind::WrongAnswer, "entries of 3000");
}

#[test]
fn bytes_written_without_write_calls_are_counted_and_noted() {
    let size = |held_bytes| Directory { held_bytes, allocated_bytes: held_bytes, files: 1 };
    let mut notes = Vec::new();
    let grown = size(20_000 + PREPARED);
    assert_eq!(written_bytes(size(10_000), grown, 10_000, &mut notes), 10_000);
    assert_eq!(written_bytes(size(10_000), grown, 6000, &mut notes), 6000, "a page more");
    assert_eq!(written_bytes(grown, size(10_000), 0, &mut notes), 0);
    assert!(notes.is_empty());
    assert_eq!(written_bytes(size(10_000), grown, 5000, &mut notes), 10_000 + PREPARED);
    assert!(notes[0].contains(&(10_000 + PREPARED).to_string()) && notes[0].contains("5000"), "{notes:?}");
}
