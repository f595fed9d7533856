//! Phrases used in several places.

use crate::figures::results::Loaded;
use crate::figures::{Finding, Verdict};
use crate::page::Page;

/// All findings, the best ones first.
pub(super) const FINDINGS: [Finding; 4] = [Finding::Holds, Finding::Partly, Finding::Fails, Finding::Open];

/// Returns the definition of a finding.
pub(super) fn meaning(finding: Finding) -> &'static str {
    match finding {
        Finding::Holds => {
            "the same direction, the same order where the claim has one, and the size within a factor of 1.5"
        }
        Finding::Partly => "the same direction, but another size, or not all of the order",
        Finding::Fails => "the opposite direction",
        Finding::Open => {
            "nothing can be said: rows are missing, or differences are within the spread of rounds"
        }
    }
}

fn sign(finding: Finding) -> &'static str {
    match finding {
        Finding::Holds => "✓",
        Finding::Partly => "≈",
        Finding::Fails => "✗",
        Finding::Open => "?",
    }
}

/// Writes a finding as a word with a sign, in a colour.
pub(super) fn finding(page: &mut Page, finding: Finding) {
    page.tag("span", &[("class", &format!("finding {}", finding.name()))], |page| {
        page.text_tag("span", &[("aria-hidden", "true")], sign(finding));
        page.text(" ");
        page.text(finding.name());
    });
}

/// Returns whether the direction agrees, as text.
pub(super) fn direction(verdict: &Verdict) -> &'static str {
    match verdict.direction {
        Some(true) => "same",
        Some(false) => "opposite",
        None => "–",
    }
}

/// Returns whether the order agrees, as text.
pub(super) fn order(verdict: &Verdict) -> &'static str {
    match verdict.order {
        Some(true) => "same",
        Some(false) => "another",
        None => "–",
    }
}

/// Returns our number divided by the paper's.
pub(super) fn ratio(verdict: &Verdict) -> String {
    match verdict.ratio.filter(|ratio| ratio.is_finite()) {
        Some(ratio) => format!("{}×", super::super::draw::number(ratio)),
        None => "–".to_owned(),
    }
}

/// Returns the text, or a dash if it is empty.
pub(super) fn or_dash(text: &str) -> &str {
    if text.trim().is_empty() { "–" } else { text }
}

/// Writes a cell of a table of class `cards`. Without a value it is omitted where cells are laid out one below the
/// other.
pub(super) fn cell(page: &mut Page, name: &str, text: &str) {
    let class = if text == "–" { "none" } else { "some" };
    page.text_tag("td", &[("role", "cell"), ("data-as", name), ("class", class)], text);
}

/// Returns the anchor of a figure's section. Names of figures consist of letters, digits and `-`.
pub(super) fn anchor(figure: &Loaded) -> String {
    let name: String =
        figure.about.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{name}-{}", figure.scale)
}

/// Returns its place in the paper, or its name where it has none.
pub(super) fn place(figure: &Loaded) -> &'static str {
    if figure.about.place.is_empty() { figure.about.name } else { figure.about.place }
}

/// Returns a note if a run is incomplete; `None` if it is complete.
pub(super) fn unfinished(figure: &Loaded) -> Option<String> {
    let (done, all) = (figure.done.len(), figure.setup.steps.len());
    let steps = if all == 1 { "step is" } else { "steps are" };
    (!figure.is_complete()).then(|| format!("Unfinished: {done} of {all} {steps} measured."))
}
