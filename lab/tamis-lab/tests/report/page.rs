//! The page as text.

use std::collections::BTreeSet;

use roxmltree::{Document, Node, ParsingOptions};
use tamis_lab::figures::report::html;

use crate::samples;

fn parsed(page: &str, check: impl FnOnce(&Document<'_>)) {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    match Document::parse_with_options(page, options) {
        Ok(document) => check(&document),
        Err(error) => panic!("{error}\n{page}"),
    }
}

fn named<'a, 'b>(document: &'a Document<'b>, name: &'static str) -> impl Iterator<Item = Node<'a, 'b>> {
    document.descendants().filter(move |node| node.tag_name().name() == name)
}

fn content(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.is_text().then(|| node.text()).flatten()).collect()
}

/// Checks what holds for every page: nothing runs, nothing is loaded, names are unique, and links have targets.
fn check(document: &Document<'_>) {
    for name in ["script", "link", "img", "iframe", "object", "embed", "use", "image", "base"] {
        assert_eq!(named(document, name).count(), 0, "{name}");
    }
    let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let known: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), known.len());
    for attribute in document.descendants().flat_map(|node| node.attributes().collect::<Vec<_>>()) {
        let (name, value) = (attribute.name(), attribute.value());
        assert!(!name.starts_with("on") && !matches!(name, "src" | "style" | "srcset"), "{attribute:?}");
        match name {
            "href" => assert!(known.contains(value.strip_prefix('#').unwrap()), "{value}"),
            "aria-labelledby" => assert!(value.split(' ').all(|id| known.contains(id)), "{value}"),
            _ => {}
        }
    }
    for table in named(document, "table") {
        let columns = table.descendants().filter(|n| n.attribute("scope") == Some("col")).count();
        let mut under_head = 0;
        for row in table.descendants().filter(|node| node.tag_name().name() == "tr") {
            let cells: Vec<Node<'_, '_>> = row.children().filter(Node::is_element).collect();
            // A head of several rows has a cell for each.
            assert_eq!(cells.len() + usize::from(under_head > 0), columns, "{}", content(row));
            under_head = match cells[0].attribute("rowspan") {
                Some(rows) => rows.parse::<usize>().unwrap() - 1,
                None => under_head.saturating_sub(1),
            };
        }
        assert!(table.children().any(|node| node.tag_name().name() == "caption"));
    }
    for svg in named(document, "svg") {
        assert_eq!(svg.attribute("role"), Some("img"));
        assert!(svg.attribute("aria-labelledby").is_some());
    }
}

#[test]
fn the_page_is_well_formed_whole_and_loads_nothing() {
    let page = html(&samples::all(), &[]);
    assert!(page.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    assert!(!page.contains("url(") && !page.contains("@import"));
    parsed(&page, |document| {
        check(document);
        assert_eq!(named(document, "svg").count(), 6);
        assert_eq!(named(document, "article").count(), 4);
    });
}

/// Each figure has its name, place and title, the claim, findings in words, pictures, tables, the machine, and the
/// command.
#[test]
fn figures_are_complete() {
    parsed(&html(&samples::all(), &[]), |document| {
        let article =
            named(document, "article").find(|n| n.attribute("id") == Some("hash-fig8a-default")).unwrap();
        let said = content(article);
        for words in [
            "Figure 8a",
            "hash-fig8a",
            "scale default",
            "A get of an absent key by size of the key",
            "Sharing one hash saves up to 23 %",
            "up to 23 %",
            "21 %",
            "0.91×",
            "same",
            "opposite",
            "holds",
            "partly",
            "fails",
            "A get here takes more time outside of filters.",
            "Devices are emulated",
            "22 GB in the paper, 280 MB here.",
            "1,000,000 keys of 24 bytes",
            "Some CPU @ 2.50GHz, 2 cores",
            "tamis-lab experiment run hash-fig8a --scale default --seed 7",
            "2026-11-22 14:55 UTC",
            "Median of 7 rounds",
        ] {
            assert!(said.contains(words), "{words}");
        }
        assert!(!said.contains("Unfinished"));
    });
}

#[test]
fn unfinished_and_insignificant_results_are_marked() {
    let page = html(&samples::all(), &["x is damaged".to_owned()]);
    for words in [
        "Unfinished: 2 of 8 steps are measured.",
        "Unfinished: 0 of 3 steps are measured.",
        "4, of which 2 unfinished",
        "Built without optimisation: times mean nothing.",
        "The small scale only shows that the experiment works",
        "Left out: x is damaged",
        "not judged",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn papers_are_in_order_and_the_summary_links_to_all_figures() {
    parsed(&html(&samples::all(), &[]), |document| {
        let headings: Vec<String> = named(document, "h2").map(content).collect();
        assert_eq!(headings, ["How to read it", "All findings", "Hash sharing", "GRF", "Beyond the papers"]);
        let summary = named(document, "section").find(|n| n.attribute("id") == Some("summary")).unwrap();
        let links: Vec<&str> = summary.descendants().filter_map(|node| node.attribute("href")).collect();
        assert_eq!(
            links,
            ["#hash-fig8a-default", "#hash-fig1-small", "#grf-fig13-paper", "#ours-locality-default"]
        );
        let said = content(document.root_element());
        for count in [
            "2 claims: the same direction",
            "1 claim: the same direction, but",
            "1 claim: the opposite direction",
            "1 claim: nothing",
        ] {
            assert!(said.contains(count), "{count}");
        }
    });
}

#[test]
fn hostile_text_is_escaped() {
    let page = html(&[samples::hostile()], &[samples::HOSTILE.to_owned()]);
    assert!(!page.contains("<script") && !page.contains('\u{202e}') && !page.contains('\0'));
    parsed(&page, |document| {
        check(document);
        // Title, head of a table and more: each is present as text.
        assert!(content(document.root_element()).matches("<script>console.error(1)</script>").count() > 10);
    });
}

#[test]
fn an_empty_page_says_so() {
    let page = html(&[], &[]);
    parsed(&page, check);
    assert!(page.contains("There are no results yet."));
}
