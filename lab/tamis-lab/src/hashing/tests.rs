//! Every figure at a tiny size, and exact checks of counters.

use tamis_bench::progress::NoProgress;

use super::*;
use serde_json::Value;

/// Returns settings with tiny trees, each run one table, and few gets, on the fastest device unless devices vary.
fn tiny(figure: &HashFigure) -> Custom {
    let devices = match figure.design.across {
        design::Across::Device => vec!["nvm".into(), "page-cache".into(), "disk".into(), "ram-disk".into()],
        _ => vec!["nvm".into()],
    };
    Custom { keys: Some(1500), ops: Some(60), repeats: Some(2), devices, ..Custom::default() }
}

fn rows_of(figure: &'static HashFigure, custom: &Custom) -> Vec<Row> {
    let mut plan = figure.plan(Scale::Small, custom).unwrap();
    assert!(!plan.setting().is_empty() && !plan.scaled().is_empty());
    let steps = plan.steps().len();
    assert!(steps > 0);
    (0..steps).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect()
}

fn number(row: &Row, name: &str) -> f64 {
    row.get(name).and_then(Value::as_f64).unwrap_or_else(|| panic!("{name} of {row:?}"))
}

#[test]
fn every_figure_is_planned_run_and_viewed() {
    for figure in &catalogue::FIGURES {
        let name = figure.about.name;
        let rows = rows_of(figure, &tiny(figure));
        let view = figure.view(&rows);
        assert!(view.panels.len() >= 2 && view.sheets.len() >= 2 && !view.verdicts.is_empty(), "{name}");
        let gets = rows.iter().filter(|row| row["kind"] == "get").count();
        let gains = rows.iter().filter(|row| row["kind"] == "gain").count();
        assert!(gains >= 2 && gets == 2 * gains, "{name}: {gets} and {gains}");
        // Rows pass through a file.
        let text: Vec<String> = rows.iter().map(|row| serde_json::to_string(row).unwrap()).collect();
        let read: Vec<Row> = text.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        let again = figure.view(&read);
        assert_eq!((again.panels.len(), again.sheets), (view.panels.len(), view.sheets), "{name}");
        // An interrupted run.
        for some in [1, rows.len() / 2] {
            figure.view(&rows[..some]);
        }
    }
}

#[test]
fn without_sharing_each_filter_needs_a_digest_and_with_it_each_get_needs_one() {
    for name in ["hash-fig1", "hash-fig2", "hash-fig8b"] {
        let figure = catalogue::FIGURES.iter().find(|figure| figure.about.name == name).unwrap();
        let rows = rows_of(figure, &tiny(figure));
        for row in rows.iter().filter(|row| row["kind"] == "get") {
            let (digests, filters) = (number(row, "digests_per_op"), number(row, "filters_per_op"));
            // All filters are those of tables, with whole cache lines in tiny runs.
            assert!(number(row, "filter_bits_per_key") >= number(row, "bits_per_key"), "{row:?}");
            let (runs, absent) = (number(row, "runs"), number(row, "absent_percent"));
            match row["side"].as_str() {
                Some("shared") => assert_eq!(digests, 1.0, "{row:?}"),
                _ => assert_eq!(digests, filters, "{row:?}"),
            }
            // A present key ends the search, unless a global filter answers.
            match absent {
                100.0 => assert_eq!(filters, runs, "{row:?}"),
                _ => assert!(filters <= runs && filters > 1.0, "{row:?}"),
            }
            let parts = ["hash_ns", "probe_ns", "data_ns", "rest_ns"].map(|part| number(row, part));
            assert!(parts.iter().all(|part| *part >= 0.0), "{row:?}");
            let (sum, whole) = (parts.iter().sum::<f64>(), number(row, "ns_per_op"));
            assert!(row["parts_exceed"] == true || (sum - whole).abs() < 1e-6 * whole, "{sum} of {row:?}");
        }
    }
}

/// Reads of the device equal those in the counters of the database, unless debug checks read more.
#[test]
fn data_is_timed_where_the_device_is_read() {
    let figure = catalogue::FIGURES.iter().find(|figure| figure.about.name == "hash-fig13").unwrap();
    let custom = Custom { absents: vec![0], ..tiny(figure) };
    for row in rows_of(figure, &custom).iter().filter(|row| row["kind"] == "get") {
        let (reads, blocks) = (number(row, "reads_per_op"), number(row, "blocks_per_op"));
        assert!(blocks >= 1.0 && reads >= blocks, "{row:?}");
        assert!(cfg!(debug_assertions) || reads == blocks, "{row:?}");
        assert!(number(row, "read_ns") >= 200.0 && number(row, "data_ns") >= 200.0, "{row:?}");
    }
}

#[test]
fn trees_are_kept_and_reused_and_depend_on_the_seed() {
    let dir = tempfile::tempdir().unwrap();
    let figure = &catalogue::FIGURES[8];
    let custom =
        |seed| Custom { seed, dir: Some(dir.path().join("trees")), absents: vec![50], ..tiny(figure) };
    let kept = || {
        let entries = std::fs::read_dir(dir.path().join("trees")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    rows_of(figure, &custom(1));
    let first = kept();
    assert_eq!(first.len(), 1, "copies are removed: {first:?}");
    let card = dir.path().join("trees").join(&first[0]).join("loaded.txt");
    let made = std::fs::metadata(&card).unwrap().modified().unwrap();
    rows_of(figure, &custom(1));
    assert_eq!((kept(), std::fs::metadata(&card).unwrap().modified().unwrap()), (first.clone(), made));
    // An interrupted load leaves no card.
    std::fs::remove_file(&card).unwrap();
    rows_of(figure, &custom(1));
    assert!(card.exists());
    rows_of(figure, &custom(2));
    assert_eq!(kept().len(), 2);
}

#[test]
fn invalid_settings_are_refused_before_anything_is_loaded() {
    let figure = &catalogue::FIGURES[0];
    for custom in [
        Custom { devices: vec!["tape".into()], ..Custom::default() },
        Custom { devices: vec!["nvm".into(), "nvm".into()], ..Custom::default() },
        Custom { threads: vec![2], ..Custom::default() },
        Custom { ops: Some(0), ..Custom::default() },
        Custom { bits: vec![8.0, 9.0], ..Custom::default() },
    ] {
        let refused = figure.plan(Scale::Small, &custom).err();
        assert!(matches!(refused, Some(BenchError::Request(_))), "{custom:?}");
    }
}
