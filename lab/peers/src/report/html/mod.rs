//! The report as one self-contained HTML page, without scripts, fonts or external images.
//!
//! It is also well-formed XML, so that a parser can check it. Bars and quantiles are SVG within the page, as wide as
//! the screen or the paper; everything they show is also given in words.

use tamis_lab::page::{self, Page};

use super::context::Context;
use super::summary::{Standing, Suite, Summary, is_tamis};
use super::tables::{self, Grid, Tally};
use super::text::{self, HOW_TO_READ, Labels};

mod bars;
#[cfg(test)]
mod tests;

const TITLE: &str = "tamis compared with other engines";

/// Returns the page.
pub(super) fn page(summary: &Summary, context: &Context) -> String {
    page::document(TITLE, include_str!("style.css"), |out| {
        out.tag("header", &[], |out| head(out, summary, context));
        out.tag("main", &[], |out| {
            out.tag("section", &[("id", "overview")], |out| overview(out, summary));
            for (at, suite) in summary.suites.iter().enumerate() {
                out.tag("section", &[("id", &format!("suite-{at}"))], |out| self::suite(out, suite));
            }
            out.tag("section", &[("id", "systems")], |out| systems(out, summary));
        });
    })
}

fn head(out: &mut Page, summary: &Summary, context: &Context) {
    out.text_tag("h1", &[], TITLE);
    out.text_tag("p", &[], &format!("{}, on {}.", context.date, context.machine.describe()));
    out.tag("pre", &[], |out| out.text_tag("code", &[], &context.commands.join("\n")));
    out.tag("nav", &[("aria-label", "Parts of the report")], |out| {
        out.tag("ul", &[], |out| {
            let suites = summary.suites.iter().enumerate();
            let suites = suites.map(|(at, suite)| (format!("#suite-{at}"), text::suite(&suite.name)));
            let first = ("#overview".to_owned(), "Overview".to_owned());
            let last = ("#systems".to_owned(), "Systems and their options".to_owned());
            for (to, name) in std::iter::once(first).chain(suites).chain([last]) {
                out.tag("li", &[], |out| out.text_tag("a", &[("href", &to)], &name));
            }
        });
    });
}

fn overview(out: &mut Page, summary: &Summary) {
    out.text_tag("h2", &[], "Overview");
    out.tag("ul", &[("class", "tally")], |out| {
        for system in summary.systems.iter().filter(|system| is_tamis(&system.name)) {
            out.tag("li", &[], |out| {
                out.text_tag("strong", &[], &system.name);
                out.text(": ");
                out.text(&Tally::of(summary, &system.name).sentence());
            });
        }
    });
    if let Some(sentence) = tables::absent(summary) {
        out.text_tag("p", &[], sentence);
    }
    for grid in [tables::overview(summary), tables::missed(summary)] {
        if !grid.rows.is_empty() {
            table(out, &grid);
        }
    }
    out.text_tag("h3", &[], "How to read it");
    out.tag("ul", &[], |out| {
        for paragraph in HOW_TO_READ {
            out.text_tag("li", &[], paragraph);
        }
    });
}

fn suite(out: &mut Page, suite: &Suite) {
    let labels = Labels::of(&suite.groups);
    out.text_tag("h2", &[], &text::suite(&suite.name));
    out.text_tag("p", &[], &format!("{}.", labels.common()));
    out.tag("div", &[("class", "figures")], |out| {
        for group in &suite.groups {
            bars::bars(out, suite, group, &labels.name(group));
        }
    });
    if suite.groups.iter().any(|group| group.conditions.suite == "steady") {
        out.tag("div", &[("class", "figures")], |out| {
            for group in &suite.groups {
                bars::courses(out, suite, group, &labels.name(group));
            }
        });
    }
    table(out, &tables::main(suite, false));
    let durability = tables::durability(suite);
    if !durability.is_empty() {
        out.text_tag("h3", &[], "Where a put is when it returns");
        out.tag("ul", &[], |out| durability.iter().for_each(|line| out.text_tag("li", &[], line)));
    }
    let refusals = tables::refusals(suite);
    if !refusals.is_empty() {
        out.text_tag("h3", &[], "Refused");
        out.tag("ul", &[], |out| refusals.iter().for_each(|line| out.text_tag("li", &[], line)));
    }
    if let Some(grid) = tables::latencies(suite) {
        out.text_tag("h3", &[], "Latencies of single operations");
        out.tag("div", &[("class", "figures")], |out| {
            for group in &suite.groups {
                bars::quantiles(out, suite, group, &labels.name(group));
            }
        });
        table(out, &grid);
    }
    let costs = tables::costs(suite);
    if !costs.is_empty() {
        out.text_tag("h3", &[], "Costs");
        costs.iter().for_each(|grid| table(out, grid));
    }
}

fn systems(out: &mut Page, summary: &Summary) {
    out.text_tag("h2", &[], "Systems and their options");
    for system in &summary.systems {
        out.text_tag("h3", &[], &format!("{} {}", system.name, system.versions.join(", ")));
        for (options, suites) in &system.options {
            table(out, &tables::options(options, suites));
        }
    }
}

/// Writes a table that scrolls by itself on narrower screens. Rows that are a comparison begin with a bar.
fn table(out: &mut Page, grid: &Grid) {
    let label = [("class", "scroll"), ("role", "region"), ("tabindex", "0"), ("aria-label", &*grid.caption)];
    let bars = grid.rows.iter().any(|row| row.ratio.is_some());
    out.tag("div", &label, |out| {
        out.tag("table", &[], |out| {
            // The text in it stays visible while the table scrolls.
            out.tag("caption", &[], |out| out.text_tag("span", &[], &grid.caption));
            out.tag("thead", &[], |out| {
                out.tag("tr", &[], |out| {
                    for (at, cell) in grid.head.iter().enumerate() {
                        out.text_tag("th", &[("scope", "col"), ("class", class(grid, at))], cell);
                    }
                    if bars {
                        out.text_tag("th", &[("scope", "col")], "behind | ahead");
                    }
                });
            });
            out.tag("tbody", &[], |out| {
                for row in &grid.rows {
                    let standing = row.ratio.map_or("plain", |ratio| text::standing(Standing::of(ratio)));
                    out.tag("tr", &[("class", standing)], |out| {
                        for (at, cell) in row.cells.iter().enumerate() {
                            match at {
                                // The first of several names is short; a single name is a row's label.
                                0 if grid.names == 1 => {
                                    out.text_tag("th", &[("scope", "row"), ("class", "row")], cell)
                                }
                                0 => out.text_tag("th", &[("scope", "row")], cell),
                                _ => out.tag("td", &[("class", class(grid, at))], |out| figure(out, cell)),
                            }
                        }
                        if let Some(ratio) = row.ratio {
                            out.tag("td", &[], |out| bars::lead(out, ratio));
                        }
                    });
                }
            });
        });
    });
}

/// Writes a cell's text. A spread in brackets may be moved to its own line, but is not broken.
fn figure(out: &mut Page, cell: &str) {
    match cell.split_once(" (") {
        Some((median, spread)) => {
            out.text(median);
            out.text(" ");
            out.text_tag("span", &[("class", "spread")], &format!("({spread}"));
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
