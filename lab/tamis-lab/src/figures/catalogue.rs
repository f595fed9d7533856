//! All figures, family by family.

use super::peers::with_peers;
use super::{Figure, Paper};

/// Returns all figures in the order of lists and reports: papers in the order of [`Paper::ALL`], each in its own order.
pub fn all() -> Vec<Box<dyn Figure>> {
    let families = [
        crate::hash_functions::figures(),
        crate::hashing::figures(),
        crate::elastic::figures::figures(),
        crate::filters::figures::figures(),
        crate::grf_theory::figures(),
        crate::ycsb::figures(),
        crate::model_check::figures(),
        crate::growth::figures(),
        crate::advised::figures(),
    ];
    let mut figures: Vec<Box<dyn Figure>> = families.into_iter().flatten().map(with_peers).collect();
    // The sort is stable, so the order within a paper is kept.
    figures.sort_by_key(|figure| Paper::ALL.iter().position(|&paper| paper == figure.about().paper));
    figures
}

/// Returns the figure with this name.
pub fn find(name: &str) -> Result<Box<dyn Figure>, UnknownFigure> {
    all().into_iter().find(|figure| figure.about().name == name).ok_or_else(|| UnknownFigure(name.to_owned()))
}

/// A name that belongs to no figure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no experiment is called `{name}`; known are {known}", name = .0, known = names())]
pub struct UnknownFigure(pub String);

fn names() -> String {
    all().iter().map(|figure| figure.about().name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        let mut seen = HashSet::new();
        for figure in all() {
            let name = figure.about().name;
            assert!(seen.insert(name), "{name} is there twice");
            assert_eq!(find(name).unwrap().about().name, name);
        }
        let unknown = find("hash-fig99").err().unwrap().to_string();
        assert!(unknown.contains("`hash-fig99`"), "{unknown}");
    }

    /// Rows that are made to break a claim break it: no verdict can only hold.
    #[test]
    fn every_verdict_of_every_figure_can_hold_and_can_fail() {
        let faults = |figure: Box<dyn Figure>| {
            let (name, faults) = (figure.about().name, figure.trial().faults(&*figure));
            faults.into_iter().map(move |fault| format!("{name}: {fault}"))
        };
        let faults: Vec<String> = all().into_iter().flat_map(faults).collect();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// A report can be made from any rows, even from none.
    #[test]
    fn no_rows_and_foreign_rows_are_viewed_without_a_panic() {
        let foreign = serde_json::json!({"kind": "read", "point": 7, "ns_per_op": "many", "side": null});
        for figure in all() {
            let foreign = foreign.as_object().cloned().into_iter().collect::<Vec<_>>();
            for rows in [&[][..], &foreign] {
                let view = figure.view(rows);
                let name = figure.about().name;
                assert!(view.verdicts.iter().all(|v| v.finding == super::super::Finding::Open), "{name}");
            }
        }
    }
}
