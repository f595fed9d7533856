use roxmltree::{Document, Node};

use super::*;
use crate::figures::{Bar, Point, Series};

/// Draws a single panel.
fn svg(panel: &Panel) -> String {
    super::svg(panel, &Sides::of([panel]))
}

fn series(name: &str, points: &[(f64, f64)]) -> Series {
    Series { name: name.to_owned(), points: points.iter().map(|&(x, y)| Point::new(x, y)).collect() }
}

fn lines(title: &str, series: Vec<Series>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: Axis::new("filter", "bits/key"),
        y: Axis::new("a get", "ns").log(),
        kind: Kind::Lines(series),
    }
}

fn bar(name: &str, parts: &[f64]) -> Bar {
    Bar { name: name.to_owned(), parts: parts.to_vec(), spread: None }
}

fn bars(title: &str, parts: &[&str], groups: Vec<(String, Vec<Bar>)>) -> Panel {
    Panel {
        title: title.to_owned(),
        x: Axis::new("device", ""),
        y: Axis::new("a get", "ns"),
        kind: Kind::Bars { parts: parts.iter().map(|part| (*part).to_owned()).collect(), groups },
    }
}

/// Parses a panel's SVG and checks what holds for every picture: it has a size and names, and everything is within it.
fn check(panel: &Panel, more: impl FnOnce(&Document<'_>)) {
    let svg = svg(panel);
    let document = Document::parse(&svg).unwrap_or_else(|error| panic!("{error}\n{svg}"));
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "svg");
    assert_eq!(root.tag_name().namespace(), Some("http://www.w3.org/2000/svg"));
    let size: Vec<f64> = root.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    assert!(size[2] == 720.0 && size[3] >= 100.0, "{size:?}");
    let kinds: Vec<&str> =
        root.children().filter(Node::is_element).map(|n| n.tag_name().name()).take(2).collect();
    assert_eq!(kinds, ["title", "desc"]);
    for id in root.attribute("aria-labelledby").unwrap().split(' ') {
        let named =
            document.descendants().filter(|node| node.attribute("id") == Some(id)).collect::<Vec<_>>();
        assert!(named.len() == 1 && !content(named[0]).trim().is_empty(), "{id}");
    }
    for node in document.descendants() {
        let within = |text: &str, most: f64| {
            let place: f64 = text.parse().unwrap();
            assert!((-0.5..=most + 0.5).contains(&place), "{place} of {most} in {:?}", node.tag_name());
        };
        for (name, most) in [
            ("x", size[2]),
            ("x1", size[2]),
            ("x2", size[2]),
            ("cx", size[2]),
            ("y", size[3]),
            ("cy", size[3]),
        ] {
            node.attribute(name).iter().for_each(|value| within(value, most));
        }
        for pair in node.attribute("points").unwrap_or_default().split_whitespace() {
            let (x, y) = pair.split_once(',').unwrap();
            within(x, size[2]);
            within(y, size[3]);
        }
    }
    more(&document);
}

fn content(node: Node<'_, '_>) -> String {
    node.descendants().filter_map(|node| node.is_text().then(|| node.text()).flatten()).collect()
}

fn texts(document: &Document<'_>) -> Vec<String> {
    document.descendants().filter(|n| n.has_tag_name("text")).map(|n| content(n).trim().to_owned()).collect()
}

fn count(document: &Document<'_>, name: &str) -> usize {
    document.descendants().filter(|node| node.tag_name().name() == name).count()
}

#[test]
fn lines_have_marks_and_theoretical_lines_have_dashes() {
    let measured = series("rotation", &[(6.0, 900.0), (8.0, 1200.0), (10.0, 30_000.0)]);
    let theory = series("theory: rotation", &[(6.0, 800.0), (10.0, 900.0)]);
    check(&lines("latency", vec![measured, theory]), |document| {
        // Three points and the sample of the legend; the theoretical line has none.
        assert_eq!(count(document, "circle"), 4);
        let texts = texts(document);
        for label in [
            "latency",
            "a get",
            "filter, bits/key",
            "6",
            "8",
            "10",
            "1 µs",
            "10 µs",
            "rotation",
            "theory: rotation",
        ] {
            assert!(texts.iter().any(|text| text == label), "{label}: {texts:?}");
        }
        let desc = content(document.descendants().find(|node| node.has_tag_name("desc")).unwrap());
        assert!(desc.contains("rotation: 900 ns at 6, 1.2 µs at 8, 30 µs at 10."), "{desc}");
        // Both have the colour of the side.
        let lines = document.descendants().filter(|n| n.attribute("stroke-width") == Some("3"));
        let colours: std::collections::BTreeSet<_> = lines.map(|n| n.attribute("class").unwrap()).collect();
        assert_eq!(colours.len(), 1);
    });
}

#[test]
fn whiskers_are_drawn_and_the_axis_holds_them() {
    let mut panel = lines("spread", vec![series("a", &[(1.0, 100.0), (2.0, 200.0)])]);
    let before = svg(&panel);
    let Kind::Lines(series) = &mut panel.kind else { unreachable!() };
    series[0].points[0].spread = Some((10.0, 90_000.0));
    series[0].points[1].spread = Some((f64::NAN, 1.0));
    check(&panel, |document| {
        assert!(texts(document).contains(&"10 µs".to_owned()));
        let lines = |svg: &str| svg.matches("<polyline").count();
        assert!(lines(&svg(&panel)) >= lines(&before) + 3);
    });
}

#[test]
fn bars_show_names_and_values_and_stacked_bars_their_parts() {
    let side = |name: &str| vec![bar("own", &[1000.0, 200.0]), bar(name, &[2500.0, 300.0])];
    let groups = vec![("SSD".to_owned(), side("other")), ("NVM".to_owned(), side("other"))];
    check(&bars("cost", &["data", "hashing"], groups), |document| {
        let texts = texts(document);
        for label in ["SSD", "NVM", "own", "other", "1.2 µs", "2.8 µs", "data", "hashing", "device"] {
            assert!(texts.iter().any(|text| text == label), "{label}: {texts:?}");
        }
    });
    // With one bar per group, as in a table of devices, the group is the name.
    let groups =
        vec![("SSD".to_owned(), vec![bar("own", &[1.0])]), ("NVM".to_owned(), vec![bar("own", &[0.0])])];
    check(&bars("one", &[], groups), |document| {
        let texts = texts(document);
        assert!(texts.contains(&"NVM".to_owned()) && texts.contains(&"0".to_owned()), "{texts:?}");
        assert!(!texts.iter().any(|text| text.contains("not drawn")), "{texts:?}");
    });
}

/// Bars too numerous for names of their own are identified by the legend.
#[test]
fn many_bars_are_thin_and_in_the_legend() {
    let group = |n: usize| {
        (
            format!("group {n}"),
            (0..7).map(|side| bar(&format!("side {side}"), &[side as f64 + 1.0])).collect(),
        )
    };
    check(&bars("many", &[], (0..10).map(group).collect()), |document| {
        let texts = texts(document);
        assert_eq!(texts.iter().filter(|text| *text == "side 3").count(), 1);
        assert_eq!(texts.iter().filter(|text| text.starts_with("group ")).count(), 10);
    });
}

/// A picture of nine engines had no names: those beside the own side have one colour, in the legend as well.
#[test]
fn bars_of_one_colour_have_names_however_many_they_are() {
    let group = |n: usize| {
        let bars = (0..9).map(|side| bar(&format!("side {side}"), &[side as f64 + 1.0]));
        (format!("group {n}"), bars.collect())
    };
    let panel = bars("many", &[], (0..6).map(group).collect());
    let picture = super::svg(&panel, &Sides::beside("side 0", Vec::new()));
    assert_eq!(picture.matches(">side 3<").count(), 6);
}

#[test]
fn empty_panels_say_that_they_are_empty() {
    for panel in [
        lines("", vec![]),
        lines("t", vec![series("a", &[])]),
        bars("t", &["x"], vec![]),
        bars("t", &[], vec![("g".to_owned(), vec![])]),
    ] {
        check(&panel, |document| assert!(texts(document).contains(&describe::NOTHING.to_owned())));
    }
}

#[test]
fn values_that_cannot_be_drawn_are_counted() {
    let odd = [
        (1.0, f64::NAN),
        (2.0, f64::INFINITY),
        (3.0, 0.0),
        (4.0, -1.0),
        (f64::NAN, 5.0),
        (5.0, 100.0),
        (6.0, 1e307),
    ];
    check(&lines("odd", vec![series("a", &odd)]), |document| {
        let said = texts(document).join(" ");
        assert!(said.contains("6 values are not drawn: no number, or not above 0"), "{said}");
        // The drawable one and the sample of the legend.
        assert_eq!(count(document, "circle"), 2);
    });
    let parts = vec![
        bar("a", &[f64::NAN]),
        bar("b", &[-1.0, 2.0]),
        bar("c", &[]),
        bar("d", &[1e308, 1.0]),
        bar("e", &[3.0]),
    ];
    check(&bars("odd", &["one"], vec![("g".to_owned(), parts)]), |document| {
        let said = texts(document).join(" ");
        assert!(said.contains("4 values are not drawn: no number"), "{said}");
        assert!(said.contains("part 2"), "{said}");
    });
}

#[test]
fn any_values_and_any_number_of_series_yield_a_document() {
    let values =
        [0.0, 1.0, -3.5, 1e300, -1e300, 5e-324, 1e-300, f64::MAX, f64::NAN, f64::NEG_INFINITY, 7.0, 7.0];
    let all: Vec<(f64, f64)> = values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y))).collect();
    for log in [false, true] {
        let dozen = (0..12).map(|n| series(&format!("side {n} of a dozen"), &all[n * 12..])).collect();
        let mut panel = lines("any", dozen);
        (panel.x.log, panel.y.log) = (log, log);
        check(&panel, |document| {
            assert_eq!(texts(document).iter().filter(|text| text.ends_with("of a dozen")).count(), 12);
        });
        for &value in &values {
            for other in values {
                let mut panel =
                    lines("point", vec![series("a", &[(value, other)]), series("model", &[(value, other)])]);
                (panel.x.log, panel.y.log) = (log, !log);
                check(&panel, |_| {});
                let mut a = bar("a", &[value, other]);
                a.spread = Some((value, other));
                let mut panel =
                    bars("bars", &["x", "y"], vec![("g".to_owned(), vec![a, bar("b", &[value])])]);
                panel.y.log = log;
                check(&panel, |_| {});
            }
        }
    }
}

#[test]
fn all_equal_values_have_an_axis() {
    for log in [false, true] {
        let mut panel = lines("equal", vec![series("a", &[(10.0, 5.0), (10.0, 5.0)])]);
        (panel.x.log, panel.y.log) = (log, log);
        check(&panel, |document| assert!(texts(document).contains(&"10".to_owned())));
    }
}

#[test]
fn names_are_escaped() {
    let hostile = "</text><script>alert(1)</script>&amp;\"'\u{0}\u{202e}]]>\n\u{ffff}";
    let mut panel =
        lines(hostile, vec![series(hostile, &[(1.0, 2.0)]), series(&"w<".repeat(5000), &[(1.0, 2.0)])]);
    panel.x = Axis::new(hostile, hostile);
    panel.y = Axis::new(hostile, hostile);
    for panel in [
        panel.clone(),
        Panel {
            kind: Kind::Bars {
                parts: vec![hostile.to_owned()],
                groups: vec![(hostile.to_owned(), vec![bar(hostile, &[1.0, 2.0])])],
            },
            ..panel
        },
    ] {
        check(&panel, |document| {
            assert_eq!(count(document, "script"), 0);
            assert!(content(document.root_element()).contains("<script>alert(1)</script>"));
        });
    }
}

#[test]
fn panels_of_a_page_do_not_share_names() {
    let id = |panel: &Panel| svg(panel).split('"').find(|part| part.ends_with("-d")).unwrap().to_owned();
    let one = lines("same", vec![series("a", &[(1.0, 2.0)])]);
    let other = lines("same", vec![series("a", &[(1.0, 3.0)])]);
    assert_eq!(id(&one), id(&one));
    assert_ne!(id(&one), id(&other));
    assert!(svg_named(&one, &Sides::default(), "here").contains("aria-labelledby=\"here-t here-d\""));
}

/// Three lines at sizes of caches made a legend of seven.
#[test]
fn upright_lines_are_named_above_and_not_in_the_legend() {
    let upright = |name: &str, x: f64| series(name, &[(x, 10.0), (x, 900.0)]);
    let measured = series("get", &[(1.0, 10.0), (9.0, 900.0)]);
    let marks = [upright("model: filters > L2", 2.0), upright("model: tables > L2", 8.9)];
    check(&lines("caches", [vec![measured], marks.to_vec()].concat()), |document| {
        let texts = texts(document);
        assert!(texts.contains(&"filters > L2".to_owned()) && !texts.iter().any(|t| t.contains("model")));
        assert_eq!(count(document, "circle"), 3);
        // A name that has no room to the right of its line is left of it.
        let right = document.descendants().find(|n| content(*n) == "tables > L2").unwrap();
        assert_eq!(right.attribute("text-anchor"), Some("end"));
    });
}

#[test]
fn one_side_alone_may_have_a_colour_and_bars_may_be_bold() {
    let groups = vec![("get".to_owned(), vec![bar("own", &[1.0]), bar("other", &[2.0])])];
    let strong = vec![("get".to_owned(), "other".to_owned())];
    let svg = super::svg(&bars("peers", &[], groups), &Sides::beside("own", strong));
    assert_eq!(
        (svg.matches("<rect class=\"c0072b2\"").count(), svg.matches("<rect class=\"cb4bcc5\"").count()),
        (1, 1)
    );
    // The title, the group's name, and the bar's name and value.
    assert_eq!(svg.matches("font-weight").count(), 4, "{svg}");
    assert!(svg.contains(".tamis-picture .c0072b2{color:#56b4e9}"), "dark mode");
}

/// Regression: in a panel that lacks a side, the others took the colours and marks of their neighbours.
#[test]
fn a_side_looks_the_same_in_all_panels_of_a_figure() {
    let (a, b) = (series("a", &[(1.0, 2.0)]), series("b", &[(1.0, 2.0)]));
    let panels = [
        lines("both", vec![a, b.clone()]),
        lines("one", vec![b]),
        bars("bars", &[], vec![("g".to_owned(), vec![bar("b", &[1.0])])]),
    ];
    let sides = Sides::of(&panels);
    // The first has a disk, the second does not; the side's colour is in all of them.
    for (n, panel) in panels.iter().enumerate() {
        let svg = super::svg(panel, &sides);
        assert_eq!(svg.contains("<circle"), n == 0);
        assert!(svg.contains("cd55e00"), "{n}");
    }
}
