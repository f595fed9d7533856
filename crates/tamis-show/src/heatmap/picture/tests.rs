//! The shapes and texts of the picture, and their places.

use super::*;
use crate::heatmap::tests::segment;

fn picture<'a>(segments: &'a [SegmentStats], elastic: Option<&'a ElasticStats>) -> Picture<'a> {
    Picture { name: "./data", elastic, segments, by: By::Data, what: What::Hotness, hex: false }
}

/// Returns the segments of a run over keys `k000000` to `k999999`.
fn run(level: usize, run: u64, count: usize, hotness: impl Fn(f64) -> f64) -> Vec<SegmentStats> {
    let key = |at: usize| format!("k{:06}", at * 999_999 / count);
    let one = |at: usize| {
        let place = at as f64 / count as f64;
        let hotness = hotness(place);
        let enabled = if hotness == 0.0 { 0 } else { (8.0 + hotness.log10()).clamp(0.0, 6.0) as u32 };
        filled!(SegmentStats {
            hotness,
            asked: 1.5 * hotness,
            enabled,
            ..segment(level, run, &key(at), &key(at + 1), 4000)
        })
    };
    (0..count).map(one).collect()
}

fn example() -> Vec<SegmentStats> {
    let skewed = |place: f64| if place > 0.85 { 0.0 } else { 1e-3 * (-12.0 * (place - 0.3).abs()).exp() };
    let runs = [run(0, 12, 3, |place| 0.01 * (1.0 - place)), run(0, 11, 4, |_| 0.004), run(1, 9, 60, skewed)];
    runs.into_iter().flatten().chain(run(2, 4, 3000, skewed)).collect()
}

#[test]
fn the_picture_names_runs_units_scales_and_totals() {
    let elastic = filled!(ElasticStats {
        expected_extra_reads: 0.0123,
        used_bytes: 3 << 20,
        budget_bytes: 4 << 20,
        keys: 8 << 20,
        gets: 1_234_567,
        ..ElasticStats::default()
    });
    let svg = picture(&example(), Some(&elastic)).to_svg();
    for part in [
        "keys of ./data",
        "E = 0.0123 expected wasted block reads per get",
        "3.00 bits per key",
        "3.0 MiB of a budget of 4.0 MiB",
        "1,234,567 gets",
        "level 0, run 12",
        "level 2, run 4",
        "12,000,000 keys",
        "k000000",
        "filter units in memory, 0 to 6",
        "lookups of absent keys, per get and key",
        "1e-7",
    ] {
        assert!(svg.contains(part), "{part:?} is missing");
    }
    assert!(!svg.contains("keyspace"), "a single keyspace needs no name");
    assert!(!svg.contains("<script") && svg.contains("prefers-color-scheme: dark"));
}

/// Returns the x, width and colour of the rectangles between a run's ends that begin at height `y`.
fn rectangles(svg: &str, y: i32) -> Vec<(i32, i32, &str)> {
    let value = |line: &'_ str, name: &str| {
        let from = line.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
        (from, from + line[from..].find('"').unwrap())
    };
    let of_y = svg.lines().filter(|line| line.starts_with("<rect") && line.contains(&format!(" y=\"{y}\"")));
    of_y.map(|line| {
        let text = |name| {
            let (from, to) = value(line, name);
            &line[from..to]
        };
        (text("x").parse().unwrap(), text("width").parse().unwrap(), text("class"))
    })
    .collect()
}

#[test]
fn strips_lie_where_their_keys_do() {
    let hot = filled!(SegmentStats { hotness: 0.1, enabled: 6, ..segment(0, 2, "c", "d", 100) });
    let segments = [hot, segment(1, 1, "a", "c", 100), segment(1, 1, "d", "e", 200)];
    let svg = picture(&segments, None).to_svg();
    let quarter = COLUMNS / 4;
    let upper = rectangles(&svg, HEAD);
    assert_eq!(upper, [(LEFT + quarter, quarter, "c440154")], "the hottest is darkest");
    let lower = rectangles(&svg, HEAD + RUN + LEVEL_GAP);
    let grey = "cdedede";
    assert_eq!(lower, [(LEFT, quarter, grey), (LEFT + 2 * quarter, 2 * quarter, grey)], "with a gap between");
}

#[test]
fn heights_show_units() {
    assert_eq!((height(0.0, 6), height(6.0, 6), height(3.0, 6)), (0, LANE - 2, LANE / 2 - 1));
    assert_eq!(
        (height(0.001, 6), height(9.0, 6)),
        (1, LANE - 2),
        "a nonzero height is at least one pixel and never too tall"
    );
    let steps = [(0, 2, 4), (2, 3, 8)];
    let x = |column| LEFT + 10 + column;
    let expected = [(x(0), 50), (x(0), 46), (x(2), 46), (x(2), 42), (x(3), 42), (x(3), 50)];
    assert_eq!(outline(&steps, 10, 50), expected);
}

/// All five labels of a database of places in one province read `FR/Auvergne-Rhône-Alpes/…`: what
/// differed was cut off.
#[test]
fn labels_show_what_differs() {
    let marks = |hex: bool, keys: &[&str]| {
        let bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        Picture { hex, ..picture(&[], None) }.labels(&bytes)
    };
    let start = "FR/Auvergne-Rhône-Alpes/";
    let long: Vec<String> = ["Lyon", "Lyon-Nord", "Paris, which is too long to be shown", "Vienne"]
        .map(|end| format!("{start}{end}"))
        .into();
    let keys: Vec<&str> = ["AD/Canillo"].into_iter().chain(long.iter().map(String::as_str)).collect();
    for hex in [false, true] {
        let labels = marks(hex, &keys);
        assert!(
            labels.is_sorted_by(|a, b| a != b)
                && labels.iter().all(|label| label.chars().count() <= KEY_TEXT),
            "{labels:?}"
        );
    }
    assert_eq!(
        marks(false, &keys)[..3],
        ["AD/Canillo", "…ergne-Rhône-Alpes/Lyon", "…e-Rhône-Alpes/Lyon-Nord"]
    );
    assert_eq!(marks(false, &["", "short", "shorter"]), ["(empty)", "short", "shorter"]);
}

/// Keys are arbitrary bytes and may look like markup. Two characters cannot be written in XML at
/// all.
#[test]
fn keys_and_names_cannot_break_the_picture() {
    let mut segments = vec![segment(0, 1, "<b>&\"'\u{0}\u{1b}", "\u{ffff}\u{fffe}", 5)];
    segments[0].keyspace = "<script>".to_owned();
    segments.push(filled!(SegmentStats {
        smallest: vec![0xff; 100],
        end: Vec::new(),
        ..segment(0, 1, "", "", 5)
    }));
    for hex in [false, true] {
        for by in [By::Data, By::Key] {
            let svg = Picture { hex, by, name: "a<b", ..picture(&segments, None) }.to_svg();
            assert!(
                svg.contains("a&lt;b") && svg.contains("&lt;script&gt;") && !svg.contains("<script"),
                "{svg}"
            );
            assert!(
                svg.contains(if hex { "3c623e26" } else { "&lt;b&gt;&amp;&quot;&apos;\\x00\\x1b" }),
                "{svg}"
            );
            let allowed = |c: char| c == '\n' || c >= ' ' && c != '\u{ffff}' && c != '\u{fffe}';
            assert!(svg.chars().all(allowed));
        }
    }
}

#[test]
fn each_keyspace_has_its_own_keys() {
    let other =
        filled!(SegmentStats { keyspace: "users".to_owned(), hotness: 0.5, ..segment(0, 3, "x1", "x9", 7) });
    let svg = picture(&[segment(0, 1, "a", "b", 5), other], None).to_svg();
    for part in ["keyspace default", "keyspace users", ">b<", ">x9<"] {
        assert!(svg.contains(part), "{part:?} in\n{svg}");
    }
}

#[test]
fn many_segments_and_runs_give_a_file_of_reasonable_size() {
    let noise = |place: f64| 1e-3 / (1.0 + (place * 1e6) % 977.0);
    let runs = (0..40).flat_map(|i| run(0, 100 - i, 2000, noise));
    let segments: Vec<SegmentStats> = runs.chain(run(3, 1, 20_000, noise)).collect();
    let svg = picture(&segments, None).to_svg();
    assert!(svg.contains("… and 28 older runs") && svg.contains("level 3, run 1"));
    assert!(svg.len() < 3 << 20, "{} bytes", svg.len());
    let heights: Vec<&str> = svg.lines().filter(|line| line.starts_with("<rect")).collect();
    assert!(heights.len() < (MOST_RUNS + 1) * (COLUMNS as usize + 1) + 100, "{}", heights.len());
}

#[test]
fn without_hotness_there_is_still_a_picture() {
    let svg = picture(&[segment(0, 1, "a", "b", 5)], None).to_svg();
    assert!(svg.contains("level 0, run 1") && svg.contains("none"), "{svg}");
    let broken = filled!(SegmentStats {
        hotness: f64::NAN,
        asked: f64::INFINITY,
        keys: 0,
        units: 0,
        ..segment(0, 1, "", "", 0)
    });
    for what in [What::Hotness, What::Asked] {
        let svg = Picture { what, ..picture(std::slice::from_ref(&broken), None) }.to_svg();
        assert!(!svg.contains("NaN") && !svg.contains("inf "), "{svg}");
    }
}
