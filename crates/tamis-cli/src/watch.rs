//! The metrics of a database as another process sees them: those that its writer publishes, or
//! those of a follower.

mod samples;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use tamis::{Db, Options};
use tamis_metrics::{Publisher, to_prometheus};

use crate::args::{DbArgs, DirArgs, refuse_file};
use crate::failure::Failure;
use crate::values::{OptionArgs, PublishArgs};

pub(crate) use samples::{Labels, Samples, label};

/// A database that is watched.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    options: OptionArgs,
}

impl WatchArgs {
    /// Returns the database and its options.
    pub(crate) fn db(&self) -> DbArgs {
        DbArgs { db: self.dir.path().to_owned(), options: self.options.clone() }
    }
}

/// Where metrics come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Origin {
    /// The writer has published them so many seconds ago, and does every so often.
    Published { age: f64, interval: f64 },
    /// The database is followed: there are the tree and its sizes, and nothing of what the writer
    /// does.
    ReadOnly,
    /// This process is the writer.
    Own,
}

/// Published metrics are given up after this many intervals, and never before so long.
const STALE_INTERVALS: f64 = 3.0;
const STALE_SECONDS: f64 = 10.0;

/// Reads the metrics of one database again and again.
pub(crate) struct Watch {
    args: DbArgs,
    /// The database of this process, and since when it is open.
    own: Option<(Db, Instant)>,
    /// Of a writer that publishes.
    _publisher: Option<Publisher>,
    /// A follower, while nothing is published.
    follower: Option<Db>,
    /// Whether a writer has published before.
    had_writer: bool,
}

impl Watch {
    /// Watches a database of another process, or of none.
    pub(crate) fn others(args: DbArgs) -> Watch {
        Watch { args, own: None, _publisher: None, follower: None, had_writer: false }
    }

    /// Opens a database as its writer.
    pub(crate) fn own(args: DbArgs, publish: &PublishArgs) -> Result<Watch, Failure> {
        let db = args.open_existing()?;
        let _publisher = publish.start(&db)?;
        Ok(Watch { args, own: Some((db, Instant::now())), _publisher, follower: None, had_writer: false })
    }

    /// Reports whether there was a writer that published, and has stopped.
    pub(crate) fn has_lost_writer(&self) -> bool {
        self.had_writer && self.follower.is_some()
    }

    /// Returns the metrics as text, and where they come from.
    pub(crate) fn read(&mut self) -> Result<(String, Origin), Failure> {
        let name = self.args.db.display().to_string();
        if let Some((db, opened)) = &self.own {
            // As a publisher says it: rates are those between two uptimes.
            let uptime = opened.elapsed().as_secs_f64();
            let text = to_prometheus(&db.stats(), &name);
            let uptime = format!("# TYPE tamis_uptime_seconds gauge\ntamis_uptime_seconds {uptime}\n");
            return Ok((uptime + &text, Origin::Own));
        }
        refuse_file(&self.args.db)?;
        // What cannot be read is not published.
        if let Ok(Some(text)) = tamis_metrics::published(&self.args.db, &Options::default())
            && let Some(origin) = published(&text, now())
        {
            (self.follower, self.had_writer) = (None, true);
            return Ok((named(text, &name), origin));
        }
        let follower = match self.follower.take() {
            Some(follower) => {
                follower.catch_up()?;
                follower
            }
            None => self.args.open_to_watch()?,
        };
        let text = gauges(&to_prometheus(&follower.stats(), &name));
        self.follower = Some(follower);
        Ok((text, Origin::ReadOnly))
    }
}

/// Gives published metrics the name by which the database is known here.
fn named(text: String, name: &str) -> String {
    const LABEL: &str = "{database=\"";
    let Some(start) = text.find(LABEL).map(|at| at + LABEL.len()) else { return text };
    let mut escaped = false;
    let end = text[start..].find(|char| {
        let ends = char == '"' && !escaped;
        escaped = char == '\\' && !escaped;
        ends
    });
    let Some(end) = end else { return text };
    let theirs = format!("{LABEL}{}\"", &text[start..start + end]);
    let ours = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    text.replace(&theirs, &format!("{LABEL}{ours}\""))
}

/// Leaves out what a process counts itself, of which a follower knows nothing: a scraper would take
/// its zeros for a new beginning, and the counters that a writer publishes later for what has
/// happened since.
fn gauges(text: &str) -> String {
    let mut kept = String::new();
    let (mut help, mut is_kept) = ("", false);
    for line in text.split_inclusive('\n') {
        if line.starts_with("# HELP ") {
            help = line;
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            is_kept = kind.trim_end().ends_with(" gauge") && !kind.starts_with("tamis_writable ");
            if is_kept {
                kept.push_str(help);
                kept.push_str(line);
            }
        } else if is_kept {
            kept.push_str(line);
        }
    }
    kept
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the origin of a published text, unless it is older than a writer that lives would let it
/// become.
fn published(text: &str, now: f64) -> Option<Origin> {
    let samples = Samples::parse(text);
    let interval = samples.get("tamis_publish_interval_seconds", &[]).filter(|interval| *interval > 0.0)?;
    let age = now - samples.get("tamis_published_timestamp_seconds", &[])?;
    // A timestamp of the future is that of a clock that was set back since.
    let fresh = age.abs() <= (interval * STALE_INTERVALS).max(STALE_SECONDS);
    fresh.then_some(Origin::Published { age: age.max(0.0), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_metrics_get_the_name_that_is_used_here() {
        let text = "a{database=\"/x \\\"y\\\\\"} 1\nb{database=\"/x \\\"y\\\\\",keyspace=\"k\"} 2\n";
        let named = named(text.to_owned(), "./\"db\"");
        assert_eq!(named, "a{database=\"./\\\"db\\\"\"} 1\nb{database=\"./\\\"db\\\"\",keyspace=\"k\"} 2\n");
        assert_eq!(super::named("a 1\n".into(), "x"), "a 1\n");
    }

    /// A writer that had been late for ten seconds had all of its counters counted twice.
    #[test]
    fn a_follower_has_no_counters() {
        let text = "# HELP a help\n# TYPE a counter\na 0\n# HELP b help\n# TYPE b gauge\nb 1\n# HELP c help\n# TYPE c histogram\nc_sum 0\n\
                    # HELP tamis_writable help\n# TYPE tamis_writable gauge\ntamis_writable 1\n";
        assert_eq!(gauges(text), "# HELP b help\n# TYPE b gauge\nb 1\n");
    }

    #[test]
    fn published_metrics_that_a_crash_left_are_stale() {
        let text = "tamis_published_timestamp_seconds 1000\ntamis_publish_interval_seconds 1\n";
        assert_eq!(published(text, 1002.0), Some(Origin::Published { age: 2.0, interval: 1.0 }));
        assert_eq!(published(text, 1011.0), None);
        assert_eq!(published(text, 980.0), None);
        assert_eq!(published(text, 999.0), Some(Origin::Published { age: 0.0, interval: 1.0 }));
        let slow = text.replace("interval_seconds 1", "interval_seconds 60");
        assert!(published(&slow, 1150.0).is_some() && published(&slow, 1190.0).is_none());
        for broken in ["", "tamis_published_timestamp_seconds NaN\ntamis_publish_interval_seconds 1\n"] {
            assert_eq!(published(broken, 1000.0), None, "{broken}");
        }
    }
}
