//! The report on one figure: the paper's results, ours, and how to measure them again.

use tamis_bench::report::duration;

use super::words;
use crate::figures::results::Loaded;
use crate::figures::{Scale, Sheet, Verdict, draw};
use crate::page::Page;

pub(super) fn article(page: &mut Page, figure: &Loaded) {
    let anchor = words::anchor(figure);
    let heading = format!("{anchor}-h");
    page.tag("article", &[("id", &anchor), ("aria-labelledby", &heading)], |page| {
        page.tag("header", &[], |page| {
            page.tag("p", &[("class", "place")], |page| {
                if !figure.about.place.is_empty() {
                    page.text(figure.about.place);
                    page.text(" · ");
                }
                page.text_tag("code", &[], figure.about.name);
                page.text(&format!(" · scale {}", figure.scale));
            });
            page.text_tag("h3", &[("id", &heading)], figure.about.title);
        });
        for warning in warnings(figure) {
            page.text_tag("p", &[("class", "warning")], &warning);
        }
        if !figure.about.claim.is_empty() {
            page.tag("p", &[("class", "claim")], |page| {
                page.text_tag("strong", &[], "The paper: ");
                page.text(figure.about.claim);
            });
        }
        if !figure.view.verdicts.is_empty() {
            verdicts(page, &figure.view.verdicts);
        }
        if !figure.view.panels.is_empty() {
            let sides = draw::Sides::of(&figure.view.panels);
            page.tag("div", &[("class", "plots")], |page| {
                for (n, panel) in figure.view.panels.iter().enumerate() {
                    let svg = draw::svg_named(panel, &sides, &format!("{anchor}-p{n}"));
                    page.tag("figure", &[], |page| page.picture(&svg));
                }
            });
        }
        figure.view.sheets.iter().for_each(|sheet| table(page, sheet));
        measured(page, figure);
    });
}

/// Returns warnings about what limits the figure's significance.
fn warnings(figure: &Loaded) -> Vec<String> {
    let debug = figure.setup.build == "debug";
    let debug = debug.then(|| "Built without optimisation: times mean nothing.".to_owned());
    let small = figure.scale == Scale::Small;
    let small = small.then(|| {
        "The small scale only shows that the experiment works; its figures are not significant.".to_owned()
    });
    words::unfinished(figure).into_iter().chain(debug).chain(small).collect()
}

/// Writes claims and findings. On narrow screens, cells are laid out one below the other with names from `data-as`;
/// explicit roles are needed because that layout would remove the implicit ones.
fn verdicts(page: &mut Page, verdicts: &[Verdict]) {
    const HEAD: [&str; 7] = ["Claim", "Paper", "Here", "Direction", "Order", "Ratio", "Finding"];
    page.tag("table", &[("class", "cards"), ("role", "table")], |page| {
        page.text_tag("caption", &[], "Our figures and the paper’s");
        head(page, &HEAD);
        page.tag("tbody", &[("role", "rowgroup")], |page| {
            for verdict in verdicts {
                page.tag("tr", &[("role", "row")], |page| {
                    page.tag("th", &[("scope", "row"), ("role", "rowheader")], |page| {
                        page.text(&verdict.claim);
                        if !verdict.note.is_empty() {
                            page.text(" ");
                            page.text_tag("span", &[("class", "note")], &verdict.note);
                        }
                    });
                    let cells = [
                        words::or_dash(&verdict.paper),
                        words::or_dash(&verdict.ours),
                        words::direction(verdict),
                        words::order(verdict),
                        &words::ratio(verdict),
                    ];
                    for (name, text) in HEAD[1..].iter().zip(cells) {
                        words::cell(page, name, text);
                    }
                    page.tag("td", &[("role", "cell"), ("data-as", HEAD[6])], |page| {
                        words::finding(page, verdict.finding);
                    });
                });
            }
        });
    });
}

/// Writes the head of a table of class `cards`.
pub(super) fn head(page: &mut Page, names: &[&str]) {
    page.tag("thead", &[("role", "rowgroup")], |page| {
        page.tag("tr", &[("role", "row")], |page| {
            for name in names {
                page.text_tag("th", &[("scope", "col"), ("role", "columnheader")], name);
            }
        });
    });
}

/// Writes a table that scrolls by itself on narrower screens.
fn table(page: &mut Page, sheet: &Sheet) {
    let title = if sheet.title.trim().is_empty() { "Numbers" } else { &sheet.title };
    let class = |column: usize| if sheet.columns[column].1 { "words" } else { "number" };
    page.tag(
        "div",
        &[("class", "scroll"), ("role", "region"), ("tabindex", "0"), ("aria-label", title)],
        |page| {
            page.tag("table", &[], |page| {
                // In a box of its own, which stays visible while the table scrolls.
                page.tag("caption", &[], |page| page.text_tag("span", &[], title));
                page.tag("thead", &[], |page| {
                    page.tag("tr", &[], |page| {
                        for (column, (name, _)) in sheet.columns.iter().enumerate() {
                            page.text_tag("th", &[("scope", "col"), ("class", class(column))], name);
                        }
                    });
                });
                page.tag("tbody", &[], |page| {
                    for row in &sheet.rows {
                        page.tag("tr", &[], |page| {
                            for (column, cell) in row.iter().enumerate().take(sheet.columns.len()) {
                                page.text_tag("td", &[("class", class(column))], cell);
                            }
                        });
                    }
                });
            });
        },
    );
}

/// Writes setting, machine and command.
fn measured(page: &mut Page, figure: &Loaded) {
    let setup = &figure.setup;
    page.text_tag("h4", &[], "How it was measured");
    page.tag("dl", &[], |page| {
        let mut say = |name: &str, text: &str| {
            if !text.trim().is_empty() {
                page.text_tag("dt", &[], name);
                page.text_tag("dd", &[], text);
            }
        };
        say("Setting", &setup.setting);
        say("Different from the paper", figure.about.differs);
        if !setup.scaled.is_empty() {
            page.text_tag("dt", &[], "Scaled");
            page.tag("dd", &[], |page| {
                page.tag("ul", &[], |page| {
                    setup.scaled.iter().for_each(|text| page.text_tag("li", &[], text))
                });
            });
        }
        let mut say = |name: &str, text: &str| {
            page.text_tag("dt", &[], name);
            page.text_tag("dd", &[], text);
        };
        say("Machine", &setup.machine.describe());
        let took = match &figure.done[..] {
            [] => String::new(),
            _ => format!(", took {}", duration(figure.seconds())),
        };
        say("Begun", &format!("{}{took}", moment(&setup.began)));
        let commit = if setup.commit.is_empty() { String::new() } else { format!(" {}", setup.commit) };
        say("Program", &format!("tamis {}{commit} ({}), seed {}", setup.version, setup.build, setup.seed));
        page.text_tag("dt", &[], "Command");
        page.tag("dd", &[], |page| {
            page.tag("pre", &[], |page| page.tag("code", &[], |page| command(page, &setup.command)));
        });
    });
}

/// Writes a command line that breaks between options, not within one, as far as they are narrow enough.
fn command(page: &mut Page, command: &str) {
    for (n, flag) in command.split(" -").enumerate() {
        if n == 0 {
            page.text_tag("span", &[], flag);
        } else {
            page.text(" ");
            page.text_tag("span", &[], &format!("-{flag}"));
        }
    }
}

/// Formats `2026-11-22T14:55:07Z` as `2026-11-22 14:55 UTC`; other text is unchanged.
pub(super) fn moment(began: &str) -> String {
    match (began.split_once('T'), began.ends_with('Z')) {
        (Some((day, time)), true) if time.is_ascii() && time.len() >= 6 => {
            format!("{day} {} UTC", &time[..5])
        }
        _ => began.to_owned(),
    }
}
