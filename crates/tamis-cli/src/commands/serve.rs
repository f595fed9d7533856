//! `tamis serve`: the metrics of a database over HTTP, for a scraper, and as a live page.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::http::{self, Answer};
use crate::output::Out;
use crate::text::harmless;
use crate::values::PublishArgs;
use crate::watch::{Origin, Samples, Watch, WatchArgs};

/// A page that reads `/metrics` each second.
const PAGE: &str = include_str!("serve/page.html");

/// Serve the metrics of a database over HTTP, for Prometheus, and as a live page
#[derive(Args)]
#[command(
    after_help = "Serves `/metrics`, in the text format of Prometheus; `/`, a page that shows them live in a browser; and\n\
                  `/healthz`: 200 while writes proceed, 503 otherwise; without what the writer publishes, 200 if\n\
                  the database can be read. Shows what the process that writes publishes (`--publish`); without\n\
                  that, the tree as a follower sees it. Nothing is encrypted and nobody is asked for a password:\n\
                  serve on an address that only the scraper and you reach.\n\nExample:\n  \
                  tamis serve --metrics 127.0.0.1:9091 --db ./tamis-demo"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    watch: WatchArgs,
    /// The address to serve on; port 0 is any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9091")]
    metrics: String,
    /// Open the database for writing, as its owner: compactions run, and everything is measured
    /// here
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    publish: PublishArgs,
    /// Print one JSON object with the addresses, once they are served
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ServeArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let db = args.watch.db();
    let mut watch = if args.write { Watch::own(db, &args.publish)? } else { Watch::others(db) };
    // A database that cannot be read is an error now, not at the first scrape.
    watch.read()?;
    let failed = |error: std::io::Error| Failure::Database(format!("{}: {error}", args.metrics));
    let addresses: Vec<SocketAddr> = args
        .metrics
        .to_socket_addrs()
        .map_err(|_| {
            Failure::usage(format!(
                "`{}` is no address: it takes a host and a port, like 127.0.0.1:9091",
                args.metrics
            ))
        })?
        .collect();
    let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (metrics, page) = (format!("http://{address}/metrics"), format!("http://{address}/"));
    match args.json {
        true => out.json(&json!({ "metrics": metrics, "page": page }))?,
        false => writeln!(out, "{metrics}\n{page}")?,
    }
    out.flush()?;
    let mut cached = Cached { watch, last: None };
    http::serve(listener, &mut |path| answer(&mut cached, path)).map_err(failed)?;
    Ok(Outcome::Done)
}

/// Metrics are read at most this often, however often they are asked for.
const LEAST: Duration = Duration::from_millis(500);

/// Metrics as text and how old they were when they were read, or why there are none.
type Read = Result<(String, Duration), String>;

struct Cached {
    watch: Watch,
    last: Option<(Instant, Read)>,
}

impl Cached {
    fn read(&mut self) {
        if self.last.as_ref().is_none_or(|(when, _)| when.elapsed() >= LEAST) {
            let read = self.watch.read().map(|(text, origin)| (text, age(origin)));
            let read = read.map_err(|failure| harmless(&failure.to_string()));
            self.last = Some((Instant::now(), read));
        }
    }
}

fn age(origin: Origin) -> Duration {
    match origin {
        Origin::Published { age, .. } => Duration::try_from_secs_f64(age).unwrap_or_default(),
        Origin::ReadOnly | Origin::Own => Duration::ZERO,
    }
}

fn answer(cached: &mut Cached, path: &str) -> Answer {
    match path {
        "/" => return Answer::html(PAGE),
        "/metrics" | "/healthz" => cached.read(),
        _ => return Answer::text(404, "there are /, /metrics and /healthz\n"),
    }
    let (when, read) = cached.last.as_ref().expect("just read");
    match (path, read) {
        ("/metrics", Ok((text, age))) => Answer::metrics(text.clone(), *age + when.elapsed()),
        (_, Ok(_)) if cached.watch.has_lost_writer() => {
            Answer::text(503, "the process that writes has stopped publishing\n")
        }
        (_, Ok((text, _))) => health(text),
        (_, Err(error)) => Answer::text(503, &format!("{error}\n")),
    }
}

fn health(text: &str) -> Answer {
    let samples = Samples::parse(text);
    let number = |name| samples.get(name, &[]).unwrap_or(0.0);
    if samples.get("tamis_memtable_entries", &[]).is_some() && samples.get("tamis_writable", &[]).is_none() {
        return Answer::text(200, "it can be read; nothing is known of a process that writes\n");
    }
    if number("tamis_writable") < 1.0 {
        return Answer::text(503, "writes are suspended or have stopped\n");
    }
    let (troubles, damaged) = (number("tamis_troubles"), number("tamis_damaged_tables"));
    Answer::text(200, &format!("ok; work being retried: {troubles}; damaged tables: {damaged}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_that_of_the_writer() {
        assert_eq!(health("tamis_writable 1\ntamis_troubles 2\n").status(), 200);
        assert_eq!(health("tamis_writable{database=\"x\"} 0\n").status(), 503);
        assert_eq!(health("").status(), 503, "it says nothing");
    }
}
