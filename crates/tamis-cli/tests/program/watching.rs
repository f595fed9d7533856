//! `tamis top` and `tamis serve`, beside the process that writes and without one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use crate::support::{Place, run, tamis};

/// A program that serves until the end of the test.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
}

impl Served {
    pub(crate) fn start(args: &[&str]) -> Served {
        let mut command = tamis();
        command.args(["serve", "--metrics", "127.0.0.1:0"]).args(args).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        let url = match args.contains(&"--json") {
            true => serde_json::from_str::<serde_json::Value>(&line)
                .ok()
                .and_then(|object| Some(object["metrics"].as_str()?.to_owned())),
            false => Some(line.trim().to_owned()),
        };
        let address = url.as_deref().and_then(|url| url.strip_prefix("http://")?.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Served { child, address }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_database_of_nobody_is_served_and_shown_as_it_lies() {
    let place = Place::new();
    place.run("put", &["key", "value"]).ok();
    let served = Served::start(&[&place.db()]);
    let (status, metrics) = served.get("/metrics");
    assert_eq!(status, 200);
    let labels = format!("{{database=\"{}\",keyspace=\"default\"}}", place.db());
    // It is in the log.
    assert!(metrics.contains(&format!("\ntamis_memtable_entries{labels} 1\n")), "{metrics}");
    assert_eq!(served.get("/healthz").0, 200);
    assert_eq!(served.get("/other").0, 404);
    let mut top = tamis();
    top.args(["top", "--once", &place.db()]);
    let page = run(top, b"").ok();
    assert!(page.contains("no rates: the writer publishes none") && page.contains("gets –,"), "{page}");
    assert!(!page.contains("suspended"), "{page}");
    assert!(page.contains("\nkeyspace   default: 1 memtable of "), "{page}");
}

/// The writer is `tamis serve --write`, which publishes; the others read what it has put beside the
/// tables.
#[test]
fn what_a_writer_publishes_is_served_and_shown() {
    let place = Place::new();
    place.run("put", &["key", "value"]).ok();
    let writer = Served::start(&["--write", "--publish", "1s", "--db", &place.db()]);
    assert_eq!(writer.get("/healthz").0, 200);
    place.run("put", &["key", "other"]).fails(3, "");
    let stats = std::path::PathBuf::from(place.path("db/STATS"));
    while !stats.exists() {
        std::thread::yield_now();
    }
    let served = Served::start(&[&place.db()]);
    let (status, metrics) = served.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("\ntamis_publish_interval_seconds 1\n"), "{metrics}");
    let page = place.run("top", &["--once"]).ok();
    assert!(page.contains("published ") && page.contains("gets 0,"), "{page}");
}

#[test]
fn a_database_or_an_address_that_is_none_is_refused() {
    let place = Place::new();
    place.run("top", &["--once"]).fails(2, "no database");
    place.run("serve", &["--metrics", "127.0.0.1:0"]).fails(2, "no database");
    place.run("put", &["key", "value"]).ok();
    place.run("serve", &["--metrics", "nowhere"]).fails(2, "`nowhere` is no address");
    place.run("top", &["--interval", "0"]).fails(2, "");
    let mut neither = tamis();
    neither.arg("top");
    run(neither, b"").fails(2, "");
}
