use roxmltree::{Document, Node, ParsingOptions};

use super::*;
use crate::record::Row;
use crate::report::synthetic::{comparison, context, refused, row, rows_of};

fn parsed(page: &str, check: impl FnOnce(&Document<'_>)) {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    match Document::parse_with_options(page, options) {
        Ok(document) => check(&document),
        Err(error) => panic!("{error}\n{page}"),
    }
}

fn page_of(rows: &[Row]) -> String {
    page(&Summary::of(rows), &context())
}

fn named<'a, 'b>(document: &'a Document<'b>, name: &'static str) -> impl Iterator<Item = Node<'a, 'b>> {
    document.descendants().filter(move |node| node.has_tag_name(name))
}

fn content(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.is_text().then(|| node.text()).flatten()).collect()
}

#[test]
fn the_page_is_well_formed_whole_and_loads_nothing() {
    let page = page_of(&comparison());
    parsed(&page, |document| {
        for name in ["script", "link", "img", "iframe", "object", "use", "image"] {
            assert_eq!(named(document, name).count(), 0, "{name}");
        }
        for node in document.descendants() {
            for attribute in node.attributes() {
                let local = !matches!(attribute.name(), "href" | "src") || attribute.value().starts_with('#');
                assert!(local && !attribute.name().starts_with("on"), "{attribute:?}");
            }
        }
        let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
        let different: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), different.len());
        for link in named(document, "a") {
            assert!(different.contains(link.attribute("href").unwrap().trim_start_matches('#')));
        }
    });
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn pictures_have_titles_and_tables_have_heads() {
    parsed(&page_of(&comparison()), |document| {
        let pictures: Vec<_> =
            named(document, "svg").filter(|svg| svg.attribute("role") == Some("img")).collect();
        // Bars and quantiles of 7 workloads with two numbers of threads, 7 with many runs, 2 loads, 2 mixes.
        assert_eq!(pictures.len(), 2 * (14 + 7 + 4));
        for svg in pictures {
            let kinds: Vec<&str> =
                svg.children().filter(Node::is_element).map(|n| n.tag_name().name()).collect();
            assert_eq!(kinds[..2], ["title", "desc"]);
            let desc = content(svg.children().find(|node| node.has_tag_name("desc")).unwrap());
            assert!(desc.contains("tamis: ") && desc.contains("redb: "), "{desc}");
        }
        for table in named(document, "table") {
            let columns = table.descendants().filter(|n| n.attribute("scope") == Some("col")).count();
            for row in table.descendants().filter(|node| node.has_tag_name("tr")) {
                assert_eq!(row.children().filter(Node::is_element).count(), columns);
            }
            assert!(table.children().any(|node| node.has_tag_name("caption")));
        }
    });
}

#[test]
fn steady_overwrites_have_a_course_without_the_incomplete_second() {
    let systems: &[(&str, &[f64])] = &[("tamis", &[1.0, 2.0]), ("rocksdb", &[3.0]), ("fjall", &[4.0])];
    let mut rows = rows_of("steady", "overwrite", systems);
    rows[0].figures.puts_by_second = vec![9, 9, 9, 9];
    rows[1].figures.puts_by_second = vec![200, 100, 0, 50, 77];
    rows[2].figures.puts_by_second = vec![150, 150, 3];
    parsed(&page_of(&rows), |document| {
        let courses: Vec<(&str, &str)> = named(document, "polyline")
            .map(|line| (line.attribute("class").unwrap(), line.attribute("points").unwrap()))
            .collect();
        let expected =
            [("course own", "0,0.00 1,50.00 2,100.00 3,75.00"), ("course peer", "0,25.00 1,25.00")];
        assert_eq!(courses, expected, "of the last round");
    });
    for row in &mut rows {
        row.conditions.suite = "load".to_owned();
    }
    parsed(&page_of(&rows), |document| assert_eq!(named(document, "polyline").count(), 0));
}

#[test]
fn lost_rows_come_first() {
    parsed(&page_of(&comparison()), |document| {
        let first = named(document, "table").next().unwrap();
        let classes: Vec<&str> = first.descendants().filter_map(|node| node.attribute("class")).collect();
        let of = |name: &str| classes.iter().position(|class| *class == name);
        assert!(of("behind").unwrap() < of("ahead").unwrap(), "{classes:?}");
        let rows: Vec<String> =
            first.descendants().filter(|node| node.has_tag_name("tr")).map(content).collect();
        // LevelDB's empty ranges after compaction, with the numbers of both sides.
        assert!(rows[1].contains("behind") && rows[1].contains("range-empty"), "{}", rows[1]);
        assert!(rows[1].contains("leveldb") && rows[1].contains("2,"), "{}", rows[1]);
    });
}

#[test]
fn bars_are_as_long_as_their_figures() {
    let rows = rows_of("settled", "seek", &[("tamis", &[50.0]), ("rocksdb", &[200.0]), ("fjall", &[100.0])]);
    parsed(&page_of(&rows), |document| {
        let rects: Vec<(&str, &str)> = named(document, "rect")
            .filter(|rect| rect.attribute("height") == Some("9"))
            .map(|rect| (rect.attribute("class").unwrap(), rect.attribute("width").unwrap()))
            .collect();
        assert_eq!(rects, [("own", "25.00%"), ("peer", "100.00%"), ("best", "50.00%")]);
    });
}

/// Names come from files of rows, which are untrusted.
#[test]
fn hostile_names_are_escaped() {
    let hostile = "<script>alert(1)</script>\"'&\u{0}\u{1b}[31m\u{202e}|`]]>\u{fffe}";
    let mut rows = comparison();
    rows.extend(rows_of(
        hostile,
        hostile,
        &[("tamis:<b>", &[1.0, 2.0]), (hostile, &[3.0]), ("rocksdb", &[2.0])],
    ));
    rows.push(refused(hostile, hostile, "fjall", hostile));
    for row in &mut rows {
        row.options.insert(hostile.to_owned(), hostile.to_owned());
        row.version = hostile.to_owned();
    }
    let mut context = context();
    context.commands = vec![hostile.to_owned()];
    context.date = hostile.to_owned();
    context.machine.cpu = hostile.to_owned();
    let page = page(&Summary::of(&rows), &context);
    assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains('\u{202e}'));
    parsed(&page, |document| {
        let shown = "<script>alert(1)</script>\"'&\u{fffd}\u{fffd}[31m\u{fffd}|`]]>\u{fffd}";
        assert!(document.descendants().any(|node| node.text().is_some_and(|text| text.contains(shown))));
    });
}

/// Regression: a bar of the longest representable time had the length `inf%`, since a hundred times it overflows.
#[test]
fn extreme_figures_yield_a_valid_page() {
    let figures = [f64::MAX, f64::MIN_POSITIVE, 5e-324, -1.0, f64::NAN, f64::INFINITY, 0.0];
    let counts = [u64::MAX, 0, 1, u64::MAX, 1, 0, u64::MAX];
    let mut rows = Vec::new();
    for (at, system) in ["tamis", "tamis-grf", "rocksdb", "leveldb", "fjall", "redb"].into_iter().enumerate()
    {
        for round in 0..3 {
            for suite in ["settled", "runs", "load", "ycsb"] {
                let (float, count) = (figures[(at + round) % 7], counts[(at + 2 * round) % 7]);
                let mut row = row(suite, "seek", system, round as u32 * (u32::MAX / 2), float);
                row.conditions.keys = u64::MAX;
                row.conditions.cache_bytes = u64::MAX;
                row.conditions.threads = [1, usize::MAX][round % 2];
                let f = &mut row.figures;
                (f.p50_ns, f.p99_ns, f.p999_ns, f.settle_ns, f.resident_bytes) =
                    (count, count, 1, count, count);
                (f.write_amplification, f.space_amplification, f.read_bytes_per_op) = (float, float, float);
                f.ops_per_second = float;
                f.inside.runs = Some(count);
                f.inside.filter_bytes = Some(count);
                rows.push(row);
            }
        }
    }
    parsed(&page_of(&rows), |document| {
        let places = document.descendants().flat_map(|node| node.attributes());
        let places: Vec<&str> =
            places.map(|a| a.value()).filter(|v| v.ends_with('%') && !v.contains(' ')).collect();
        assert!(places.len() > 20);
        for place in places {
            let percent: f64 = place.trim_end_matches('%').parse().unwrap();
            assert!((0.0..=100.0).contains(&percent), "{place}");
        }
    });
}

#[test]
fn an_almost_empty_page_is_valid() {
    let mut empty = rows_of("load", "fill-seq", &[("redb", &[0.0])]);
    parsed(&page_of(&empty), |_| {});
    empty.push(refused("load", "fill-seq", "tamis", ""));
    parsed(&page_of(&empty), |document| {
        assert!(named(document, "td").any(|cell| content(cell) == "refused"));
    });
    let equal = rows_of("load", "fill-seq", &[("tamis", &[1.0]), ("rocksdb", &[1.0])]);
    parsed(&page_of(&equal), |document| {
        let values = document.descendants().flat_map(|node| node.attributes());
        assert!(values.map(|a| a.value()).all(|value| !value.contains("NaN") && !value.contains("inf")));
    });
}
