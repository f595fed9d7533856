//! The metrics of a database as another process sees them: those that its writer publishes, or those of a read-only opening.

mod samples;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use tamis::{Db, Options};

use crate::args::DbArgs;
use crate::failure::Failure;
use crate::values::OptionArgs;

pub(crate) use samples::{Labels, Samples, label};

/// A database that is watched.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatchArgs {
    /// The database's directory
    #[arg(value_name = "DIR", required_unless_present = "db")]
    dir: Option<PathBuf>,
    /// The database's directory, as for the other subcommands
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    db: Option<PathBuf>,
    #[command(flatten)]
    options: OptionArgs,
}

impl WatchArgs {
    /// Returns the database and its options.
    pub(crate) fn db(&self) -> DbArgs {
        let db = self.dir.clone().or(self.db.clone()).unwrap_or_default();
        DbArgs { db, options: self.options.clone() }
    }
}

/// Where metrics come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Origin {
    /// The writer has published them so many seconds ago, and does every so often.
    Published { age: f64, interval: f64 },
    /// The database was opened read-only: there are the tree and its sizes, and nothing of what the writer does.
    ReadOnly,
    /// This process is the writer.
    Own,
}

/// Published metrics are given up after this many intervals, and never before so long.
const STALE_INTERVALS: f64 = 3.0;
const STALE_SECONDS: f64 = 10.0;

/// The least time between two read-only openings, each of which reads the metadata of all tables and replays the log.
const REOPEN: Duration = Duration::from_secs(10);

/// Reads the metrics of one database again and again.
pub(crate) struct Watch {
    args: DbArgs,
    own: Option<Db>,
    /// The text of the last read-only opening.
    opened: Option<(Instant, String)>,
}

impl Watch {
    /// Watches a database of another process, or of none.
    pub(crate) fn others(args: DbArgs) -> Watch {
        Watch { args, own: None, opened: None }
    }

    /// Opens a database as its writer.
    pub(crate) fn own(args: DbArgs) -> Result<Watch, Failure> {
        let own = Some(args.open_existing()?);
        Ok(Watch { args, own, opened: None })
    }

    /// Returns the metrics as text, and where they come from.
    pub(crate) fn read(&mut self) -> Result<(String, Origin), Failure> {
        let name = self.args.db.display().to_string();
        if let Some(db) = &self.own {
            return Ok((db.stats().to_prometheus(&name), Origin::Own));
        }
        // What cannot be read is not published.
        if let Ok(Some(text)) = Db::published_stats(&self.args.db, &Options::default())
            && let Some(origin) = published(&text, now())
        {
            self.opened = None;
            return Ok((text, origin));
        }
        if let Some((when, text)) = &self.opened
            && when.elapsed() < REOPEN
        {
            return Ok((text.clone(), Origin::ReadOnly));
        }
        let text = self.args.open_to_look()?.stats().to_prometheus(&name);
        self.opened = Some((Instant::now(), text.clone()));
        Ok((text, Origin::ReadOnly))
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns the origin of a published text, unless it is older than a writer that lives would let it become.
fn published(text: &str, now: f64) -> Option<Origin> {
    let samples = Samples::parse(text);
    let interval = samples.get("tamis_publish_interval_seconds", &[]).filter(|interval| *interval > 0.0)?;
    let age = now - samples.get("tamis_published_timestamp_seconds", &[])?;
    let fresh = age <= (interval * STALE_INTERVALS).max(STALE_SECONDS);
    fresh.then_some(Origin::Published { age: age.max(0.0), interval })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_metrics_that_a_crash_left_are_stale() {
        let text = "tamis_published_timestamp_seconds 1000\ntamis_publish_interval_seconds 1\n";
        assert_eq!(published(text, 1002.0), Some(Origin::Published { age: 2.0, interval: 1.0 }));
        assert_eq!(published(text, 1011.0), None);
        assert_eq!(published(text, 999.0), Some(Origin::Published { age: 0.0, interval: 1.0 }));
        let slow = text.replace("interval_seconds 1", "interval_seconds 60");
        assert!(published(&slow, 1150.0).is_some() && published(&slow, 1190.0).is_none());
        for broken in ["", "tamis_published_timestamp_seconds NaN\ntamis_publish_interval_seconds 1\n"] {
            assert_eq!(published(broken, 1000.0), None, "{broken}");
        }
    }
}
