//! Words that are said in more than one place.

use crate::figures::results::Loaded;
use crate::figures::{Finding, Verdict};
use crate::page::Page;

/// All findings, the good ones first.
pub(super) const FINDINGS: [Finding; 4] = [Finding::Holds, Finding::Partly, Finding::Fails, Finding::Open];

/// What a finding means.
pub(super) fn meaning(finding: Finding) -> &'static str {
    match finding {
        Finding::Holds => {
            "the same direction, the same order where the claim has one, and the size within a factor of 1.5"
        }
        Finding::Partly => "the same direction, but another size, or not all of the order",
        Finding::Fails => "another direction",
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

/// A finding as a word with a sign, and with a colour for those who see it.
pub(super) fn finding(page: &mut Page, finding: Finding) {
    page.tag("span", &[("class", &format!("finding {}", finding.name()))], |page| {
        page.text_tag("span", &[("aria-hidden", "true")], sign(finding));
        page.text(" ");
        page.text(finding.name());
    });
}

/// Same direction or not.
pub(super) fn direction(verdict: &Verdict) -> &'static str {
    match verdict.direction {
        Some(true) => "same",
        Some(false) => "opposite",
        None => "–",
    }
}

/// Same order or not.
pub(super) fn order(verdict: &Verdict) -> &'static str {
    match verdict.order {
        Some(true) => "same",
        Some(false) => "another",
        None => "–",
    }
}

/// Ours by the paper's.
pub(super) fn ratio(verdict: &Verdict) -> String {
    match verdict.ratio.filter(|ratio| ratio.is_finite()) {
        Some(ratio) => format!("{}×", super::super::draw::number(ratio)),
        None => "–".to_owned(),
    }
}

/// Text, or a dash for none.
pub(super) fn or_dash(text: &str) -> &str {
    if text.trim().is_empty() { "–" } else { text }
}

/// A cell of a table of class `cards`; without a value it is left out where cells stand one below the other.
pub(super) fn cell(page: &mut Page, name: &str, text: &str) {
    let class = if text == "–" { "none" } else { "some" };
    page.text_tag("td", &[("role", "cell"), ("data-as", name), ("class", class)], text);
}

/// The name of a figure's part of the page. Names of figures are letters, digits and `-`.
pub(super) fn anchor(figure: &Loaded) -> String {
    let name: String =
        figure.about.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{name}-{}", figure.scale)
}

/// Its place in the paper, or its name where it has none.
pub(super) fn place(figure: &Loaded) -> &'static str {
    if figure.about.place.is_empty() { figure.about.name } else { figure.about.place }
}

/// That a run is not whole; `None` if it is.
pub(super) fn unfinished(figure: &Loaded) -> Option<String> {
    let (done, all) = (figure.done.len(), figure.setup.steps.len());
    let steps = if all == 1 { "step is" } else { "steps are" };
    (!figure.is_complete()).then(|| format!("Unfinished: {done} of {all} {steps} measured."))
}
