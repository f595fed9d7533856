//! Overview of all claims.

use super::{by_paper, figure, words};
use crate::figures::results::Loaded;
use crate::page::Page;

const HEAD: [&str; 5] = ["Figure", "Claim", "Paper", "Here", "Finding"];

/// Writes one table body per figure, headed by its name.
pub(super) fn table(page: &mut Page, figures: &[Loaded]) {
    page.tag("table", &[("class", "cards summary"), ("role", "table")], |page| {
        page.text_tag("caption", &[], "Every claim, the paper’s figure, and ours");
        figure::head(page, &HEAD);
        for (_, figures) in by_paper(figures) {
            figures.into_iter().for_each(|figure| body(page, figure));
        }
    });
}

fn body(page: &mut Page, figure: &Loaded) {
    let verdicts = &figure.view.verdicts;
    page.tag("tbody", &[("role", "rowgroup")], |page| {
        page.tag("tr", &[("role", "row")], |page| {
            let rows = verdicts.len().max(1).to_string();
            page.tag("th", &[("scope", "rowgroup"), ("role", "rowheader"), ("rowspan", &rows)], |page| {
                name(page, figure)
            });
            match verdicts.first() {
                Some(_) => cells(page, figure, 0),
                None => {
                    words::cell(page, HEAD[1], words::or_dash(figure.about.claim));
                    for column in [2, 3] {
                        words::cell(page, HEAD[column], "–");
                    }
                    words::cell(page, HEAD[4], "not judged");
                }
            }
        });
        for row in 1..verdicts.len() {
            page.tag("tr", &[("role", "row")], |page| cells(page, figure, row));
        }
    });
}

fn name(page: &mut Page, figure: &Loaded) {
    page.text_tag("a", &[("href", &format!("#{}", words::anchor(figure)))], words::place(figure));
    page.text(" ");
    page.text_tag("span", &[("class", "note")], &format!("{}, {}", figure.about.paper.name(), figure.scale));
    if !figure.is_complete() {
        page.text(" ");
        page.text_tag("span", &[("class", "note")], "unfinished");
    }
}

fn cells(page: &mut Page, figure: &Loaded, row: usize) {
    let verdict = &figure.view.verdicts[row];
    let texts = [&*verdict.claim, words::or_dash(&verdict.paper), words::or_dash(&verdict.ours)];
    for (name, text) in HEAD[1..].iter().zip(texts) {
        words::cell(page, name, text);
    }
    page.tag("td", &[("role", "cell"), ("data-as", HEAD[4])], |page| words::finding(page, verdict.finding));
}
