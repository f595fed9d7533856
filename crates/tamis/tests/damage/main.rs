//! Damage to every file of a small database, for every kind of filter, closed in order and killed.
//!
//! Each case hurts one thing: a byte is flipped, a file cut, a stretch zeroed, a file deleted, emptied, made longer,
//! renamed, exchanged with another of its kind, or replaced by what it was earlier. Then the database is opened and all
//! of it read, in every way there is. What must come is an error or the right answer; never a panic, never a value that
//! no state had, never two answers of different states. `judge.rs` says what is right.
//!
//! An ordinary run takes a sample of the places (a step through each file, so that the same cases come every time).
//! `TAMIS_DAMAGE=all` takes every byte and every length of every file, some two million cases, `TAMIS_DAMAGE=400` about so
//! many of each file:
//!
//!     TAMIS_DAMAGE=all cargo test --release -p tamis --test damage -- --nocapture
//!
//! Each test prints how many cases it ran, and how they ended.

#![allow(clippy::print_stdout)]

mod cases;
mod judge;
mod specimen;

use tamis::FilterChoice;

use judge::{Ends, judge};
use specimen::Specimen;

/// How many places of each file are taken, and how many lengths; `None`: all.
fn places() -> Option<usize> {
    match std::env::var("TAMIS_DAMAGE") {
        Ok(all) if all == "all" => None,
        Ok(many) => Some(many.parse().expect("`all`, or how many places of a file")),
        Err(_) => Some(24),
    }
}

/// Runs all cases for the filters of a family, in one of the two states.
fn run(killed: bool, family: fn(FilterChoice) -> bool) {
    let (mut total, mut wrong) = (0, Vec::new());
    for filter in FilterChoice::all().filter(|filter| family(*filter)) {
        let specimen = if killed { Specimen::killed(filter) } else { Specimen::closed(filter) };
        let mut ends = Ends::default();
        let sound = judge(&specimen, &cases::Case::none(&specimen), 0).expect("nothing is damaged");
        assert_eq!(sound.right, 1, "nothing is damaged");
        for (number, case) in cases::all(&specimen, places()).enumerate() {
            match judge(&specimen, &case, number) {
                Ok(end) => ends += end,
                Err(what) => wrong.push(what),
            }
        }
        println!("{filter:?}, {}: {ends}", if killed { "killed" } else { "closed" });
        assert!(ends.refused > 0 && ends.failed + ends.right > 0, "{filter:?}: all cases end alike: {ends}");
        total += ends.cases();
    }
    println!("{total} cases");
    assert!(wrong.is_empty(), "{} cases went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn of_ranges(filter: FilterChoice) -> bool {
    filter.is_range()
}

fn of_the_tree(filter: FilterChoice) -> bool {
    filter.is_global() || filter.is_elastic()
}

fn of_points(filter: FilterChoice) -> bool {
    !of_ranges(filter) && !of_the_tree(filter)
}

#[test]
fn closed_databases_with_point_filters_answer_rightly_or_not_at_all() {
    run(false, of_points);
}

#[test]
fn closed_databases_with_range_filters_answer_rightly_or_not_at_all() {
    run(false, of_ranges);
}

#[test]
fn closed_databases_with_elastic_and_global_filters_answer_rightly_or_not_at_all() {
    run(false, of_the_tree);
}

#[test]
fn killed_databases_with_point_filters_answer_rightly_or_not_at_all() {
    run(true, of_points);
}

#[test]
fn killed_databases_with_range_filters_answer_rightly_or_not_at_all() {
    run(true, of_ranges);
}

#[test]
fn killed_databases_with_elastic_and_global_filters_answer_rightly_or_not_at_all() {
    run(true, of_the_tree);
}
