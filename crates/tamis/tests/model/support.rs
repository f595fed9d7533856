//! Running random cases: seeds, scale, and handling of panics in background threads.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{Mutex, Once};
use std::thread::ThreadId;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The case each thread is testing, for the report of a panic in an engine thread.
static RUNNING: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().expect(variable))
}

/// How many times longer than usual the tests run.
pub(crate) fn scale() -> u64 {
    number("TAMIS_TEST_SCALE", 1)
}

/// Runs `test` on `cases` values of `strategy` (times the scale), always the same ones for one
/// seed.
pub(crate) fn for_all<T: Debug>(cases: u32, strategy: impl Strategy<Value = T>, test: impl Fn(&T)) {
    abort_when_the_engine_panics();
    let seed = number("TAMIS_TEST_SEED", 1);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: cases * scale() as u32,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(&strategy, |value| {
        let _note = Note::new(format!("{value:#?}"));
        test(&value);
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("seed {seed}: {failure}");
    }
}

/// Records what the current thread is testing, until dropped.
struct Note(ThreadId);

impl Note {
    fn new(what: String) -> Note {
        let id = std::thread::current().id();
        RUNNING.lock().expect("notes").insert(format!("{id:?}"), what);
        Note(id)
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        RUNNING.lock().expect("notes").remove(&format!("{:?}", self.0));
    }
}

/// A panic in a background thread fails no test by itself and may leave the tests waiting forever.
pub(crate) fn abort_when_the_engine_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| name.starts_with("tamis-")) {
                let mut err = std::io::stderr();
                let _ = writeln!(err, "{panic}\nwhile testing {:#?}", RUNNING.lock().map(|r| r.clone()));
                std::process::abort();
            }
            usual(panic);
        }));
    });
}
