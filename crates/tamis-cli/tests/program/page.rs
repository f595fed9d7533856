//! The page of `tamis serve`: with its headers, and in a headless Chromium at the widths of a
//! telephone and a screen, light and dark. `TAMIS_BROWSER` names the browser if it is not in
//! `PATH`; without one these tests are skipped, unless `CI_BROWSER=required`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, run, tamis};
use crate::watching::Served;

#[test]
fn the_page_is_served_with_its_policy() {
    let place = Place::new();
    place.run("put", &["key", "value"]).ok();
    let served = Served::start(&[&place.db()]);
    let answer = ask(&served.address, "GET / HTTP/1.1\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    for line in [
        "HTTP/1.1 200 OK",
        "Content-Type: text/html; charset=utf-8",
        "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
         connect-src 'self'",
        "X-Content-Type-Options: nosniff",
    ] {
        assert!(head.lines().any(|own| own == line), "{line} is not in\n{head}");
    }
    assert!(body.starts_with("<!DOCTYPE html>") && body.len() <= 14 << 10, "{}", body.len());
    for word in ["http:", "https:", "innerHTML", "src="] {
        assert!(!body.contains(word), "{word}");
    }
    assert!(ask(&served.address, "GET /metrics HTTP/1.1\r\n\r\n").contains("\r\nAge: 0\r\n"));
    assert!(
        ask(&served.address, "GET /page HTTP/1.1\r\n\r\n").ends_with("there are /, /metrics and /healthz\n")
    );
}

/// The writer is the server. Nobody reads, and so the rates are zero.
#[test]
fn a_database_that_is_served_is_shown() {
    let Some(browser) = browser() else { return };
    let place = Place::new();
    let mut create = tamis();
    create.args(["keyspaces", "create", "--db", &place.db(), HOSTILE]);
    run(create, b"").ok();
    place.run_with_input("load", &["--keyspace", HOSTILE], b"a\t1\nb\t2\n").ok();
    let served = Served::start(&["--write", "--db", &place.db()]);
    let address = served.address.clone();
    let front = front(move |request| {
        // The page asks again and again without waiting, as time is virtual. The server reads twice
        // a second.
        if request.starts_with("GET /metrics") {
            std::thread::sleep(Duration::from_millis(20));
        }
        ask(&address, request)
    });
    for saw in look(&browser, &front) {
        assert_eq!(saw["status"], "good Writes proceed");
        assert_eq!(saw["name"], place.db());
        assert_eq!(saw["tiles"], serde_json::json!(["0", "0", "0"]));
        assert!(saw["age"].as_str().unwrap().starts_with("as of "), "{}", saw["age"]);
        let rows = saw["rows"].as_str().unwrap();
        assert!(
            rows.contains(&format!("\nlevels: {HOSTILE}\n")) && rows.contains("\nlevels: 0|1|1|"),
            "{rows}"
        );
        assert!(rows.contains("\nstate: damaged tables|0\n"), "{rows}");
        assert!(rows.contains("\nmemory: total ") && !rows.contains("memory: total 0"), "{rows}");
    }
}

/// Metrics of a writer that does a thousand gets in each second of its uptime.
#[test]
fn rates_and_percentiles_are_those_of_the_metrics() {
    let Some(browser) = browser() else { return };
    let place = Place::new();
    place.run("put", &["key", "value"]).ok();
    let served = Served::start(&[&place.db()]);
    let (address, asked) = (served.address.clone(), AtomicU64::new(10));
    let front = front(move |request| {
        if !request.starts_with("GET /metrics") {
            return ask(&address, request);
        }
        let now = asked.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "tamis_uptime_seconds {now}\ntamis_writable{{database=\"d\"}} 0\n\
             tamis_read_gets_total{{database=\"d\"}} {gets}\ntamis_read_found_total{{database=\"d\"}} {found}\n\
             tamis_read_block_reads_total{{database=\"d\"}} {gets}\ntamis_read_scans_total{{database=\"d\"}} 0\n\
             tamis_read_false_positives_total{{database=\"d\"}} {now}\n\
             tamis_read_filter_negatives_total{{database=\"d\"}} {negatives}\n\
             tamis_write_writes_total{{database=\"d\"}} 5\n\
             tamis_latency_seconds_bucket{{operation=\"get\",le=\"0.000001\"}} {found}\n\
             tamis_latency_seconds_bucket{{operation=\"get\",le=\"0.000002\"}} {gets}\n\
             tamis_latency_seconds_bucket{{operation=\"get\",le=\"+Inf\"}} {gets}\n\
             tamis_stalls_total{{cause=\"log_space\"}} 3\ntamis_stall_seconds_total{{cause=\"log_space\"}} {stalled}\n\
             tamis_table_bytes{{database=\"d\",keyspace=\"{escaped}\"}} 2048\n\
             tamis_level_bytes{{keyspace=\"{escaped}\",level=\"6\"}} 2048\n\
             tamis_memory_bytes{{owner=\"held_memtables\"}} 1048576\ntamis_broken{{ 1\ntamis_nan NaN\n",
            gets = now * 1000,
            found = now * 500,
            negatives = now * 99,
            stalled = now as f64 / 4.0,
            escaped = HOSTILE.replace('\\', "\\\\").replace('"', "\\\"").repeat(9),
        );
        format!("HTTP/1.1 200 OK\r\nAge: 7\r\nContent-Length: {}\r\n\r\n{text}", text.len())
    });
    for saw in look(&browser, &front) {
        assert_eq!(saw["status"], "bad Writes are suspended or have stopped");
        assert_eq!(saw["tiles"], serde_json::json!(["1,000", "0", "0"]));
        assert_eq!(saw["age"], "as of 7 s ago");
        let rows = saw["rows"].as_str().unwrap();
        for row in [
            "reads: gets that found a value|50.0 %|50.0 %",
            "reads: blocks read per get or scan|1.0|1.0",
            "reads: false positives of filters|1.00 %|1.00 %",
            "stalls: log space|3|",
            "memory: held memtables|1.0 MiB",
            "levels: 6|–|–|2.0 KiB|–",
        ] {
            assert!(rows.contains(&format!("\n{row}")), "{row} is not in {rows}");
        }
        // Half of the gets took up to a microsecond, the others up to two.
        assert!(rows.contains("|1.0 µs|2.0 µs|2.0 µs\n"), "{rows}");
    }
}

#[test]
fn the_page_says_when_it_knows_nothing() {
    let Some(browser) = browser() else { return };
    let place = Place::new();
    place.run("put", &["key", "value"]).ok();
    let served = Served::start(&[&place.db()]);
    let (address, page) = (served.address.clone(), ask(&served.address, "GET / HTTP/1.1\r\n\r\n"));
    for saw in look(&browser, &front(move |request| ask(&address, request))) {
        assert_eq!(saw["status"], "warn Nobody publishes: only the tree is shown");
        let hint = saw["hint"].as_str().unwrap();
        assert!(hint.contains("tamis_metrics::Publisher") && hint.contains("--publish"), "{hint}");
        assert!(saw["rows"].as_str().unwrap().contains("\nlevels: default\n"), "{}", saw["rows"]);
    }
    let lost = page.clone();
    let front_of_none = front(move |request| match request.starts_with("GET / ") {
        true => lost.clone(),
        false => String::new(),
    });
    for saw in look(&browser, &front_of_none) {
        assert_eq!(saw["status"], "bad Connection lost: tamis serve does not answer");
    }
    let failing = front(move |request| match request.starts_with("GET / ") {
        true => page.clone(),
        false => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 13\r\n\r\nit has <gone>".into(),
    });
    for saw in look(&browser, &failing) {
        assert_eq!(saw["status"], "bad The database cannot be read");
        assert_eq!(saw["hint"], "it has <gone>");
    }
}

/// A page with the one at `/` in two frames.
const LOOK: &str = include_str!("look.html");

const HOSTILE: &str = "<img src=x onerror=alert(1)>\"\\ a_name_without_a_place_to_break_it";

/// How long a page lives, in virtual milliseconds: time stands still while it waits for an answer.
const LIFE: u32 = 40_000;

/// Returns the program of a browser.
#[expect(clippy::print_stderr, reason = "a skipped test says so where its output is shown")]
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut all = std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    let program = std::env::var_os("TAMIS_BROWSER").map(PathBuf::from);
    let program = program.or_else(|| all.find(|program| program.is_file()));
    if program.is_none() {
        let required = std::env::var_os("CI_BROWSER").is_some_and(|value| value == "required");
        assert!(!required, "CI_BROWSER=required, and there is no browser");
        eprintln!("SKIPPED: no chromium in PATH, and TAMIS_BROWSER names none");
    }
    program
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Serves what a test says, and at `/look` a page that looks at the one at `/`, which it may as it
/// comes from the same place. Returns the address.
fn front(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        // A browser opens connections before it needs them.
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                    head.push(byte[0]);
                }
                let request = String::from_utf8_lossy(&head);
                let said = match request.split(' ').nth(1) {
                    None => return,
                    Some("/look") => format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{LOOK}"),
                    Some(_) => answer(&request),
                };
                // A browser that has gone away is no failure.
                let _ = stream.write_all(said.as_bytes());
            });
        }
    });
    address
}

/// Returns what is seen at both widths, light and dark, after checks of what holds for all.
fn look(browser: &Path, address: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for (dark, ground) in [(false, "rgb(244, 246, 248)"), (true, "rgb(16, 19, 23)")] {
        let profile = tempfile::tempdir().expect("a temporary directory");
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args([
                "--disable-dev-shm-usage",
                "--enable-logging=stderr",
                "--hide-scrollbars",
                "--window-size=1600,1000",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
            .args(["--dump-dom", &format!("--virtual-time-budget={LIFE}")])
            .arg(format!("http://{address}/look"))
            .output()
            .expect("the browser starts");
        let (dom, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        // Failed requests are what one of the tests is about.
        assert!(console.iter().all(|line| line.contains("Failed to load resource")), "{console:?}");
        let found = dom.split_once("<pre id=\"out\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        let (json, _) = found.unwrap_or_else(|| panic!("nothing was seen: {dom}\n{log}"));
        let saw: Vec<Value> = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        assert_eq!(saw.iter().map(|saw| &saw["width"]).collect::<Vec<_>>(), [360, 1400], "{json}");
        for saw in &saw {
            assert!(saw["scrollWidth"].as_u64() <= saw["width"].as_u64(), "{saw}");
            assert_eq!(saw["ground"], ground, "{saw}");
            for none in ["beyond", "faint", "elsewhere"] {
                assert_eq!(saw[none], serde_json::json!([]), "{none}: {saw}");
            }
            assert!(saw["shift"].as_f64().is_some_and(|shift| shift < 0.1), "{saw}");
        }
        all.extend(saw);
    }
    all
}
