//! What the program prints on a terminal of 80 columns.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{Place, tamis};

/// Runs a command on a terminal, and returns what it shows.
fn on_terminal(mut command: Command, columns: u16) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&master).expect("a terminal of ours");
    unlockpt(&master).expect("an unlocked terminal");
    let size = Winsize { ws_row: 25, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(master.as_fd(), size).expect("a size");
    let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("UTF-8");
    let slave = File::options().read(true).write(true).open(name).expect("its other side");
    let side = || Stdio::from(slave.try_clone().expect("a descriptor"));
    command.stdin(side()).stdout(side()).stderr(side());
    let mut child = command.spawn().expect("the program starts");
    // Else the end of the output would never come.
    drop((command, slave));
    let (mut shown, mut piece) = (Vec::new(), [0; 4096]);
    let mut master = File::from(master);
    // The end of a terminal is an error.
    while let Ok(count @ 1..) = master.read(&mut piece) {
        shown.extend_from_slice(&piece[..count]);
    }
    child.wait().expect("it ends");
    String::from_utf8(shown).expect("UTF-8").replace("\r\n", "\n")
}

fn on_80(words: &[&str]) -> String {
    let mut command = tamis();
    // Colours would count as characters.
    command.args(words).env("NO_COLOR", "1");
    on_terminal(command, 80)
}

fn longest(page: &str) -> usize {
    page.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Lines of 110 to 190 characters were broken by the terminal, in the middle of words and numbers.
#[test]
fn pages_and_tables_fit_80_columns() {
    let place = Place::new();
    let db = &place.db();
    place.run_with_input("load", &["--format", "tsv", "-"], b"one\t1\ntwo\t2\n").ok();
    place.run("put", &["one", "3"]).ok();
    for words in [
        &["stats", "--db", db][..],
        &["stats", "--runs", "--db", db],
        &["explain", "--db", db, "one"],
        &["explain", "--db", db, "--scan", "5", "a"],
        &["compact", "--db", db],
        &["verify", "--db", db],
        &["top", "--once", "--db", db],
        &["keyspaces", "list", "--db", db],
        &["options"],
    ] {
        let page = on_80(words);
        // A path cannot be broken.
        let lines = page.lines().filter(|line| !line.contains(db) && line.chars().count() > 80);
        let long: Vec<&str> = lines.collect();
        assert!(long.is_empty() && !page.is_empty(), "{words:?}: {long:#?} in\n{page}");
    }
    for words in [&["--help"][..], &["get", "--help"], &["bench", "--help"], &["soak", "-h"]] {
        assert!(longest(&on_80(words)) <= 80, "{words:?}");
    }
    // And nothing is broken for a pipe.
    assert!(longest(&place.run("stats", &[]).ok()) > 80);
}

/// A value of 16 MiB scrolled everything away, and with its control characters the terminal did
/// what it liked.
#[test]
fn huge_values_are_cut_on_a_terminal_and_nowhere_else() {
    let place = Place::new();
    let db = &place.db();
    let huge = "x".repeat(100_000);
    place.run_with_input("put", &["huge", "-"], huge.as_bytes()).ok();
    place.run("put", &["red", "a\tb\n\u{1b}[31m"]).ok();
    let shown = on_80(&["get", "--db", db, "huge"]);
    assert!(shown.len() < 5000 && shown.contains("100,000 bytes") && shown.contains("--full"), "{shown}");
    let shown = on_80(&["scan", "--db", db]);
    assert!(shown.contains("… (100,000 bytes)") && shown.contains("1 entry cut; --full"), "{shown}");
    assert!(shown.lines().count() == 3, "{shown}");
    for words in [&["get", "--db", db, "--full", "huge"][..], &["scan", "--db", db, "--full"]] {
        assert!(on_80(words).contains(&huge), "{words:?}");
    }
    assert_eq!(place.run("get", &["huge"]).ok(), format!("{huge}\n"));
    assert!(place.run("scan", &[]).ok().contains(&huge));
    // Tabs are expanded by some terminals.
    let red = on_80(&["get", "--db", db, "red"]);
    assert!(red.contains("\n\\x1b[31m") && !red.contains('\u{1b}'), "{red:?}");
    assert_eq!(place.run("get", &["red"]).ok(), "a\tb\n\u{1b}[31m\n");
}
