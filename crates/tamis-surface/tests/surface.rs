//! The public surface of the crates that users get is what `golden/` says: whoever changes it shows
//! that in review.
//!
//! `UPDATE_SURFACE=1 cargo test -p tamis-surface` writes the lists anew. The lists come from
//! rustdoc's JSON, an unstable format: with a toolchain that writes another version of it, the test
//! says `SKIPPED`; `CI_SURFACE=required` makes that a failure.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The crates that users get.
const CRATES: [&str; 9] = [
    "tamis",
    "tamis-advisor",
    "tamis-doctor",
    "tamis-env",
    "tamis-filter",
    "tamis-metrics",
    "tamis-model",
    "tamis-testkit",
    "tamis-typed",
];

/// The crates that the engine is made of, whose items users reach through `tamis`.
const PARTS: [&str; 3] = ["tamis-base", "tamis-files", "tamis-policy"];

/// What rustdoc writes about a crate.
fn described(name: &str) -> Value {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("surface");
    let output = Command::new(env!("CARGO"))
        .args(["rustdoc", "--quiet", "--lib", "-p", name, "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--cap-lints", "allow"])
        // The JSON is unstable, not the crates: a stable compiler writes it all the same when it is
        // asked for.
        .env("RUSTC_BOOTSTRAP", "1")
        .env_remove("RUSTDOCFLAGS")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = target.join("doc").join(format!("{}.json", name.replace('-', "_")));
    let json = std::fs::read(path).expect("rustdoc wrote it");
    serde_json::from_slice(&json).expect("JSON")
}

#[test]
#[expect(clippy::print_stdout, reason = "says what was skipped")]
fn the_public_surface_is_the_golden_one() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let parts = PARTS.map(described);
    let mut changed = String::new();
    for name in CRATES {
        let lines = match tamis_surface::list(&described(name), &parts) {
            Ok(lines) => lines,
            Err(version) => {
                assert!(std::env::var("CI_SURFACE").is_err(), "rustdoc writes format {version}");
                println!("SKIPPED: rustdoc writes format {version}, not {}", tamis_surface::FORMAT);
                return;
            }
        };
        let path = golden.join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_SURFACE").is_some() {
            std::fs::write(&path, lines.join("\n") + "\n").expect("golden files can be written");
            continue;
        }
        let before = std::fs::read_to_string(&path).expect("a golden file");
        let before: Vec<&str> = before.lines().collect();
        let gone = before.iter().filter(|line| !lines.iter().any(|new| new == *line));
        gone.for_each(|line| changed += &format!("- {line}\n"));
        let new = lines.iter().filter(|line| !before.contains(&&***line));
        new.for_each(|line| changed += &format!("+ {line}\n"));
    }
    assert!(
        changed.is_empty(),
        "the public surface changed; if it should, UPDATE_SURFACE=1 writes it anew:\n{changed}"
    );
}
