//! `tamis heatmap`: draws where reads go and where filter memory follows them.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use serde_json::{Value, json};
use tamis::stats::SegmentStats;
use tamis_show::heatmap::{By, Picture, What};

use crate::args::DbArgs;
use crate::complete;
use crate::failure::{Failure, Outcome};
use crate::json as to_json;
use crate::output::{Out, note};
use crate::text;

/// Characters of the database's path in the title.
const TITLE: usize = 80;

/// Draw hotness and filter units over levels and keys, for databases with elastic filters
#[derive(Args)]
#[command(
    after_help = "Draws one SVG: a strip for each run, newest on top, with the keys from left to right. Colour shows how \
                        often gets look there for an absent key, height how many filter units are in memory. \
                        Hotness is as last stored by the database; units are those loaded since it was opened.\n\n\
                        Exits with 1 if no table has an elastic filter.\n\nExamples:\n  \
                        tamis heatmap --db ./data --out hotness.svg\n  \
                        tamis heatmap --db ./data --keyspace users --by key --hex > hotness.svg\n  \
                        tamis heatmap --db ./data --json | jq '.segments | map(.hotness) | add'"
)]
pub(crate) struct HeatmapArgs {
    #[command(flatten)]
    db: DbArgs,
    /// Write to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only this keyspace
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::keyspaces))]
    keyspace: Option<String>,
    /// The scale of the horizontal axis
    #[arg(long, value_enum, default_value = "data")]
    by: By,
    /// The quantity shown by colour
    #[arg(long, value_enum, default_value = "hotness")]
    what: What,
    /// Show keys as hexadecimal digits
    #[arg(long)]
    hex: bool,
    /// Print all segments as one JSON object instead
    #[arg(long, conflicts_with_all = ["by", "what"])]
    json: bool,
}

pub(crate) fn run(args: HeatmapArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let db = args.db.open_read_only()?;
    db.wait_for_filters()?;
    let mut segments = db.segments();
    if let Some(name) = &args.keyspace {
        db.keyspace(name)?;
        segments.retain(|segment| segment.keyspace == *name);
    }
    if segments.is_empty() {
        let of_it = args.keyspace.map_or(String::new(), |name| format!(" of keyspace `{name}`"));
        note(&format!("nothing to draw: no table{of_it} has an elastic filter (see `tamis options filter`)"));
        return Ok(Outcome::Negative);
    }
    let elastic = db.stats().elastic;
    let text = if args.json {
        let mut object = object(&segments, args.hex);
        object["path"] = db.path().display().to_string().into();
        object["elastic"] = elastic.as_ref().map_or(Value::Null, to_json::elastic);
        to_json::line(&object) + "\n"
    } else {
        let name = text::excerpt(db.path().display().to_string().as_bytes(), TITLE);
        let picture = Picture {
            name: &name,
            elastic: elastic.as_ref(),
            segments: &segments,
            by: args.by,
            what: args.what,
            hex: args.hex,
        };
        picture.to_svg()
    };
    match &args.out {
        None => out.write_all(text.as_bytes())?,
        Some(path) => {
            let failed = |error| Failure::usage(format!("could not write {}: {error}", path.display()));
            fs::write(path, text).map_err(failed)?;
        }
    }
    Ok(Outcome::Done)
}

fn object(segments: &[SegmentStats], hex: bool) -> Value {
    let segments: Vec<Value> = segments.iter().map(|segment| to_json::segment(segment, hex)).collect();
    json!({ "segments": segments })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of the default keyspace.
    fn segment(level: usize, run: u64, smallest: &str, end: &str, keys: u64) -> SegmentStats {
        filled!(SegmentStats {
            keyspace: "default".to_owned(),
            level,
            run,
            smallest: smallest.into(),
            end: end.into(),
            keys,
            units: 6,
            ..SegmentStats::default()
        })
    }

    #[test]
    fn the_object_holds_every_segment() {
        let binary = filled!(SegmentStats {
            end: vec![0xff],
            hotness: 0.25,
            uncached: 0.5,
            ..segment(1, 7, "a", "", 10)
        });
        let object = object(&[segment(0, 9, "a", "b", 3), binary], false);
        assert_eq!(object["segments"].as_array().unwrap().len(), 2);
        let last = &object["segments"][1];
        assert_eq!((&last["smallest"], &last["end_hex"]), (&"a".into(), &"ff".into()));
        assert_eq!(
            (&last["hotness"], &last["uncached"], &last["units"]),
            (&0.25.into(), &0.5.into(), &6.into())
        );
    }
}
