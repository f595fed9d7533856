//! The report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere.
//!
//! It is well-formed XML as well, so that a parser can check it. Bars and quantiles are SVG within the page, as wide as
//! the screen or the paper; everything they show stands beside them in words.

use super::context::Context;
use super::summary::{Standing, Suite, Summary, is_tamis};
use super::tables::{self, Grid, Tally};
use super::text::{self, HOW_TO_READ, Labels};
use markup::Markup;

mod bars;
mod markup;
#[cfg(test)]
mod tests;

const TITLE: &str = "tamis side by side with other engines";

/// Forbids the page to load or run anything.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// The page.
pub(super) fn page(summary: &Summary, context: &Context) -> String {
    let mut out = Markup::default();
    out.element("html", &[("lang", "en")], |out| {
        out.element("head", &[], |out| {
            out.void("meta", &[("charset", "utf-8")]);
            out.void("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
            out.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
            out.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
            out.leaf("title", &[], TITLE);
            out.style(include_str!("style.css"));
        });
        out.element("body", &[], |out| {
            out.element("header", &[], |out| head(out, summary, context));
            out.element("main", &[], |out| {
                out.element("section", &[("id", "overview")], |out| overview(out, summary));
                for (at, suite) in summary.suites.iter().enumerate() {
                    out.element("section", &[("id", &format!("suite-{at}"))], |out| self::suite(out, suite));
                }
                out.element("section", &[("id", "systems")], |out| systems(out, summary));
            });
        });
    });
    format!("<!DOCTYPE html>\n{}\n", out.finish())
}

fn head(out: &mut Markup, summary: &Summary, context: &Context) {
    out.leaf("h1", &[], TITLE);
    out.leaf("p", &[], &format!("{}, on {}.", context.date, context.machine.describe()));
    out.element("pre", &[], |out| out.leaf("code", &[], &context.commands.join("\n")));
    out.element("nav", &[("aria-label", "Parts of the report")], |out| {
        out.element("ul", &[], |out| {
            let suites = summary.suites.iter().enumerate();
            let suites = suites.map(|(at, suite)| (format!("#suite-{at}"), text::suite(&suite.name)));
            let first = ("#overview".to_owned(), "Overview".to_owned());
            let last = ("#systems".to_owned(), "Systems and their options".to_owned());
            for (to, name) in std::iter::once(first).chain(suites).chain([last]) {
                out.element("li", &[], |out| out.leaf("a", &[("href", &to)], &name));
            }
        });
    });
}

fn overview(out: &mut Markup, summary: &Summary) {
    out.leaf("h2", &[], "Overview");
    out.element("ul", &[("class", "tally")], |out| {
        for system in summary.systems.iter().filter(|system| is_tamis(&system.name)) {
            out.element("li", &[], |out| {
                out.leaf("strong", &[], &system.name);
                out.text(": ");
                out.text(&Tally::of(summary, &system.name).sentence());
            });
        }
    });
    if let Some(sentence) = tables::absent(summary) {
        out.leaf("p", &[], &sentence);
    }
    for grid in [tables::overview(summary), tables::missed(summary)] {
        if !grid.rows.is_empty() {
            table(out, &grid);
        }
    }
    out.leaf("h3", &[], "How to read it");
    out.element("ul", &[], |out| {
        for paragraph in HOW_TO_READ {
            out.leaf("li", &[], paragraph);
        }
    });
}

fn suite(out: &mut Markup, suite: &Suite) {
    let labels = Labels::of(&suite.groups);
    out.leaf("h2", &[], &text::suite(&suite.name));
    out.leaf("p", &[], &format!("{}.", labels.common()));
    out.element("div", &[("class", "figures")], |out| {
        for group in &suite.groups {
            bars::bars(out, suite, group, &labels.name(group));
        }
    });
    table(out, &tables::main(suite, false));
    let refusals = tables::refusals(suite);
    if !refusals.is_empty() {
        out.leaf("h3", &[], "Refused");
        out.element("ul", &[], |out| refusals.iter().for_each(|line| out.leaf("li", &[], line)));
    }
    if let Some(grid) = tables::latencies(suite) {
        out.leaf("h3", &[], "Latencies of single operations");
        out.element("div", &[("class", "figures")], |out| {
            for group in &suite.groups {
                bars::quantiles(out, suite, group, &labels.name(group));
            }
        });
        table(out, &grid);
    }
    let costs = tables::costs(suite);
    if !costs.is_empty() {
        out.leaf("h3", &[], "What it costs");
        costs.iter().for_each(|grid| table(out, grid));
    }
}

fn systems(out: &mut Markup, summary: &Summary) {
    out.leaf("h2", &[], "Systems and their options");
    for system in &summary.systems {
        out.leaf("h3", &[], &format!("{} {}", system.name, system.versions.join(", ")));
        for (options, suites) in &system.options {
            table(out, &tables::options(options, suites));
        }
    }
}

/// A table that scrolls by itself where the screen is narrower. Rows that are a comparison begin with a bar.
fn table(out: &mut Markup, grid: &Grid) {
    let label = [("class", "scroll"), ("role", "region"), ("tabindex", "0"), ("aria-label", &*grid.caption)];
    let bars = grid.rows.iter().any(|row| row.ratio.is_some());
    out.element("div", &label, |out| {
        out.element("table", &[], |out| {
            // The text in it stays in view while the table scrolls.
            out.element("caption", &[], |out| out.leaf("span", &[], &grid.caption));
            out.element("thead", &[], |out| {
                out.element("tr", &[], |out| {
                    for (at, cell) in grid.head.iter().enumerate() {
                        out.leaf("th", &[("scope", "col"), ("class", class(grid, at))], cell);
                    }
                    if bars {
                        out.leaf("th", &[("scope", "col")], "behind | ahead");
                    }
                });
            });
            out.element("tbody", &[], |out| {
                for row in &grid.rows {
                    let standing = row.ratio.map_or("plain", |ratio| text::standing(Standing::of(ratio)));
                    out.element("tr", &[("class", standing)], |out| {
                        for (at, cell) in row.cells.iter().enumerate() {
                            match at {
                                // The first of several names is short; a name by itself is a row's label.
                                0 if grid.names == 1 => {
                                    out.leaf("th", &[("scope", "row"), ("class", "row")], cell)
                                }
                                0 => out.leaf("th", &[("scope", "row")], cell),
                                _ => {
                                    out.element("td", &[("class", class(grid, at))], |out| figure(out, cell))
                                }
                            }
                        }
                        if let Some(ratio) = row.ratio {
                            out.element("td", &[], |out| bars::lead(out, ratio));
                        }
                    });
                }
            });
        });
    });
}

/// A cell's text. A spread in brackets may go to a line of its own, but is not broken.
fn figure(out: &mut Markup, cell: &str) {
    match cell.split_once(" (") {
        Some((median, spread)) => {
            out.text(median);
            out.text(" ");
            out.leaf("span", &[("class", "spread")], &format!("({spread}"));
        }
        None => out.text(cell),
    }
}

fn class(grid: &Grid, column: usize) -> &'static str {
    match (column < grid.names, grid.head[column].as_str()) {
        (true, _) => "name",
        (false, "target") => "target",
        (false, _) => "figure",
    }
}
