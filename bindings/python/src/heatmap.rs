//! The heat map of elastic filters, which the `tamis` program draws as well.

use pyo3::prelude::*;
use tamis::Db;
use tamis::stats::SegmentStats;
use tamis_show::heatmap::{By, Picture, What};
use tamis_show::text::excerpt;

use crate::errors::{OrRaise, invalid_argument};

/// Characters of the database's path in the title.
const TITLE: usize = 80;

/// Reads the names of both choices.
pub(crate) fn choices(by: &str, what: &str) -> PyResult<(By, What)> {
    let by = match by {
        "data" => By::Data,
        "key" => By::Key,
        other => return Err(invalid_argument(format!("by is `data` or `key`, not `{other}`"))),
    };
    let what = match what {
        "hotness" => What::Hotness,
        "asked" => What::Asked,
        other => return Err(invalid_argument(format!("what is `hotness` or `asked`, not `{other}`"))),
    };
    Ok((by, what))
}

/// Returns the picture as SVG, and the segments that it shows.
pub(crate) fn draw(
    db: &Db,
    keyspace: Option<&str>,
    by: By,
    what: What,
    hex: bool,
) -> PyResult<(String, Vec<SegmentStats>)> {
    db.wait_for_filters().or_raise()?;
    let mut segments = db.segments();
    if let Some(name) = keyspace {
        db.keyspace(name).or_raise()?;
        segments.retain(|segment| segment.keyspace == name);
    }
    if segments.is_empty() {
        return Err(invalid_argument("there is nothing to draw: no table has an elastic filter"));
    }
    let (name, elastic) = (excerpt(db.path().display().to_string().as_bytes(), TITLE), db.stats().elastic);
    let picture = Picture { name: &name, elastic: elastic.as_ref(), segments: &segments, by, what, hex };
    Ok((picture.to_svg(), segments))
}
