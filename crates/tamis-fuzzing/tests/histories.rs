//! A few of the random histories that `examples/histories.rs` runs by the thousand.
//! `TAMIS_TEST_SCALE=10` runs ten times as many.

#![allow(clippy::print_stderr, reason = "the seed of a history that fails")]

/// Prints the seed of a history that panics.
struct Trying(u64);

impl Drop for Trying {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("history {}", self.0);
        }
    }
}

#[test]
fn histories_are_those_of_the_model() {
    let scale: u64 = std::env::var("TAMIS_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    for seed in 0..60 * scale {
        let _trying = Trying(seed);
        tamis_fuzzing::history(seed);
    }
}
