//! All results in one HTML page.
//!
//! A self-contained and inert [document](crate::page). Each figure has its claim, our pictures, the tables, findings in
//! words, the machine and the command. On a telephone the page scrolls only vertically, except for wide tables, which
//! scroll in boxes of their own; in print no picture is cut and nothing depends on colour alone.
//!
//! A pure function of the loaded results; a page of all figures has a few megabytes at most.

mod figure;
mod summary;
mod words;

use super::Paper;
use super::results::Loaded;
use crate::machine::Machine;
use crate::page::{self, Page};
use figure::moment;

const TITLE: &str = "Three papers on LSM filters, measured again with tamis";

/// Returns the page. `figures` are in the order of [`Paper::ALL`]; within a paper they keep the given order.
/// `unreadable` lists in sentences what was omitted.
pub fn html(figures: &[Loaded], unreadable: &[String]) -> String {
    page::document(TITLE, include_str!("style.css"), |page| {
        page.tag("header", &[], |page| head(page, figures, unreadable));
        page.tag("main", &[], |page| {
            page.tag("section", &[("id", "summary"), ("aria-labelledby", "summary-h")], |page| {
                page.text_tag("h2", &[("id", "summary-h")], "All findings");
                summary::table(page, figures);
            });
            for (paper, figures) in by_paper(figures) {
                let (anchor, heading) = (anchor(paper), format!("{}-h", anchor(paper)));
                page.tag("section", &[("id", anchor), ("aria-labelledby", &heading)], |page| {
                    page.text_tag("h2", &[("id", &heading)], paper.name());
                    if !paper.source().is_empty() {
                        page.text_tag("p", &[("class", "source")], paper.source());
                    }
                    figures.into_iter().for_each(|loaded| figure::article(page, loaded));
                });
            }
        });
    })
}

/// Groups figures by paper, without papers that have none.
pub(super) fn by_paper(figures: &[Loaded]) -> Vec<(Paper, Vec<&Loaded>)> {
    let of = |paper| figures.iter().filter(|figure| figure.about.paper == paper).collect::<Vec<_>>();
    Paper::ALL
        .map(|paper| (paper, of(paper)))
        .into_iter()
        .filter(|(_, figures)| !figures.is_empty())
        .collect()
}

fn anchor(paper: Paper) -> &'static str {
    match paper {
        Paper::HashSharing => "paper-hash-sharing",
        Paper::ElasticBf => "paper-elasticbf",
        Paper::Grf => "paper-grf",
        Paper::Ours => "paper-ours",
    }
}

fn head(page: &mut Page, figures: &[Loaded], unreadable: &[String]) {
    page.text_tag("h1", &[], TITLE);
    page.text_tag(
        "p",
        &[("class", "lead")],
        "Tables and figures of the papers on hash sharing, ElasticBF and GRF, reproduced by the experiments of tamis, an LSM \
         key-value engine. For each: what the paper claims, what was measured here, how far the claim holds, and the \
         command that measures it again.",
    );
    page.tag("dl", &[("class", "facts")], |page| {
        let mut say = |name: &str, text: &str| {
            page.tag("div", &[], |page| {
                page.text_tag("dt", &[], name);
                page.text_tag("dd", &[], text);
            });
        };
        let unfinished = figures.iter().filter(|figure| !figure.is_complete()).count();
        let count = match unfinished {
            0 => figures.len().to_string(),
            _ => format!("{}, of which {unfinished} unfinished", figures.len()),
        };
        say("Figures", &count);
        let days = || figures.iter().map(|figure| figure.setup.began.as_str());
        match (days().min(), days().max()) {
            (Some(first), Some(last)) if moment(first) == moment(last) => say("Measured", &moment(first)),
            (Some(first), Some(last)) => say("Measured", &format!("{} to {}", moment(first), moment(last))),
            _ => {}
        }
        let mut machines: Vec<&Machine> = Vec::new();
        for machine in figures.iter().map(|figure| &figure.setup.machine) {
            if !machines.iter().any(|known| known.is_same(machine)) {
                machines.push(machine);
            }
        }
        let name = if machines.len() == 1 { "Machine" } else { "A machine" };
        machines.iter().for_each(|machine| say(name, &machine.describe()));
    });
    if figures.is_empty() {
        page.text_tag("p", &[("class", "warning")], "There are no results yet.");
    }
    unreadable
        .iter()
        .for_each(|text| page.text_tag("p", &[("class", "warning")], &format!("Left out: {text}")));
    findings(page, figures);
    page.tag("nav", &[("aria-label", "Parts of this page")], |page| {
        page.tag("ul", &[], |page| {
            let papers = by_paper(figures).into_iter().map(|(paper, _)| (anchor(paper), paper.name()));
            for (to, name) in std::iter::once(("summary", "All findings")).chain(papers) {
                page.tag("li", &[], |page| page.text_tag("a", &[("href", &format!("#{to}"))], name));
            }
        });
    });
}

/// Writes a legend of findings with their counts.
fn findings(page: &mut Page, figures: &[Loaded]) {
    page.text_tag("h2", &[("class", "minor")], "How to read it");
    page.tag("dl", &[("class", "legend")], |page| {
        let verdicts = || figures.iter().flat_map(|figure| &figure.view.verdicts);
        for finding in words::FINDINGS {
            let count = verdicts().filter(|verdict| verdict.finding == finding).count();
            let claims = if count == 1 { "claim" } else { "claims" };
            page.tag("div", &[], |page| {
                page.tag("dt", &[], |page| words::finding(page, finding));
                page.text_tag("dd", &[], &format!("{count} {claims}: {}", words::meaning(finding)));
            });
        }
    });
    page.text_tag(
        "p",
        &[],
        "In pictures, points are medians, and whiskers reach from the least to the greatest round; dashed lines without \
         points are theory or model. A ratio is our number divided by the paper’s: 1× is the same.",
    );
}
