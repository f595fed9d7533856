use std::collections::HashSet;

use tamis_bench::progress::NoProgress;

use super::*;
use crate::figures::{Custom, Finding, Row, Scale, View};

fn find(name: &str) -> Box<dyn Figure> {
    figures().into_iter().find(|figure| figure.about().name == name).expect("a figure of this name")
}

/// Returns all rows of a figure with `custom` at the smallest scale.
fn rows(figure: &dyn Figure, custom: &Custom) -> Vec<Row> {
    let mut plan = figure.plan(Scale::Small, custom).unwrap();
    let steps = plan.steps();
    assert_eq!(steps.iter().collect::<HashSet<_>>().len(), steps.len(), "names are unique");
    assert!(!plan.setting().is_empty());
    (0..steps.len()).flat_map(|step| plan.run(step, &NoProgress).unwrap()).collect()
}

fn view(name: &str, custom: &Custom) -> View {
    let figure = find(name);
    let rows = rows(figure.as_ref(), custom);
    assert!(!rows.is_empty());
    let view = figure.view(&rows);
    assert!(!view.panels.is_empty() && !view.sheets.is_empty() && !view.verdicts.is_empty(), "{name}");
    assert!(
        view.verdicts.iter().all(|verdict| verdict.finding != Finding::Open),
        "{name}: {:?}",
        view.verdicts
    );
    // Rows of an interrupted run are viewed, too.
    (0..rows.len()).step_by(rows.len().div_ceil(8)).for_each(|n| drop(figure.view(&rows[..n])));
    view
}

#[test]
fn rates_are_near_theory() {
    let custom = Custom { ops: Some(20_000), repeats: Some(2), key_bytes: vec![16], ..Custom::default() };
    for name in ["hash-table2", "hash-table3"] {
        let view = view(name, &custom);
        assert_eq!(view.verdicts[0].finding, Finding::Holds, "{:?}", view.verdicts[0]);
    }
    let custom = Custom { bits: vec![2.0, 10.0, 12.0], ..custom };
    let view = view("hash-fig3", &custom);
    assert_eq!(view.verdicts[0].finding, Finding::Holds, "{:?}", view.verdicts[0]);
    assert_eq!(view.sheets[0].rows.len(), 3);
}

/// The same seed gives the same counts, even if a step runs alone.
#[test]
fn rates_are_reproducible() {
    let figure = find("hash-table3");
    let custom = Custom { ops: Some(2_000), key_bytes: vec![16], ..Custom::default() };
    let all = rows(figure.as_ref(), &custom);
    let alone = figure.plan(Scale::Small, &custom).unwrap().run(1, &NoProgress).unwrap();
    assert_eq!(all[all.len() - alone.len()..], alone);
}

#[test]
fn lookups_are_timed_at_every_size() {
    let custom = Custom { ops: Some(500), repeats: Some(1), key_bytes: vec![8, 64], ..Custom::default() };
    for (name, sides) in [("hash-fig4", 5), ("hash-fig5", 5)] {
        let view = view(name, &custom);
        assert_eq!((view.sheets[0].rows.len(), view.sheets[0].columns.len()), (sides, 4));
        // All sides have the memory of the first one.
        assert!(view.sheets[0].rows.iter().all(|row| row[1].starts_with("10.0")), "{:?}", view.sheets[0]);
    }
}

#[test]
fn invalid_settings_are_refused() {
    let refuse = |name: &str, custom: Custom| {
        find(name).plan(Scale::Default, &custom).err().expect("refused").to_string()
    };
    let text = refuse("hash-table2", Custom { bits: vec![8.0], ..Custom::default() });
    assert_eq!(text, "hash-table2 does not take --bits");
    let text = refuse("hash-fig3", Custom { bits: vec![0.5], ..Custom::default() });
    assert!(text.contains("not 0.5"), "{text}");
    refuse("hash-fig3", Custom { bits: vec![f64::NAN], ..Custom::default() });
    refuse("hash-fig3", Custom { key_bytes: vec![4], ..Custom::default() });
    refuse("hash-fig4", Custom { key_bytes: vec![0], ..Custom::default() });
    refuse("hash-fig4", Custom { key_bytes: vec![1 << 20], ..Custom::default() });
}

#[test]
fn every_figure_has_a_description() {
    for figure in figures() {
        let about = figure.about();
        for text in [about.title, about.claim, about.place] {
            assert!(!text.is_empty() && !text.contains("  "), "{}: {text:?}", about.name);
        }
        let seconds = Scale::ALL.map(|scale| figure.needs(scale).seconds);
        assert!(seconds.is_sorted(), "{}", about.name);
    }
}

#[test]
fn hashes_and_devices_are_timed() {
    let custom = Custom { ops: Some(50), repeats: Some(1), ..Custom::default() };
    let view = view("hash-table1", &custom);
    // Six emulated devices, three of this machine or the reason why not, memory, eight functions.
    assert_eq!(view.sheets[0].rows.len(), 6 + 3 + 1 + 8);
    let one = Custom { devices: vec!["nvm".into(), "nvm".into()], ..custom };
    assert_eq!(find("hash-table1").plan(Scale::Small, &one).unwrap().steps(), ["hashing", "nvm"]);
    let other = Custom { devices: vec!["tape".into()], ..Custom::default() };
    let refused = find("hash-table1").plan(Scale::Small, &other).err().unwrap().to_string();
    assert!(refused.contains("`tape`") && refused.contains("page-cache"), "{refused}");
}

#[test]
fn the_model_is_shown_with_both_sets_of_constants_and_beside_counts() {
    let custom = Custom { ops: Some(200), keys: Some(40_000), repeats: Some(1), ..Custom::default() };
    let view = view("hash-fig6", &custom);
    // What the equation makes of the paper's own constants is shown, not judged: a test of the equation does that.
    assert_eq!((view.panels.len(), view.verdicts.len()), (5, 12));
    let counted = view.sheets.last().unwrap();
    assert!(counted.title.starts_with("Gain by counts"), "{}", counted.title);
}
