//! Damage to every file of a small database, for every kind of filter, closed cleanly and killed.
//!
//! Each case makes one change: a byte is flipped, a file cut, a byte range zeroed, a file deleted,
//! emptied, extended, renamed, exchanged with another of its kind, or replaced by an earlier
//! version. Then the database is opened and read completely, in every possible way. The result must
//! be an error or the right answer; never a panic, never a value that no state had, never two
//! answers from different states. `judge.rs` decides what is right.
//!
//! An ordinary run takes a sample of the positions (a step through each file, so that the same
//! cases run every time). `TAMIS_DAMAGE=all` takes every byte and every length of every file, some
//! two million cases; `TAMIS_DAMAGE=400` takes about that many of each file:
//!
//!     TAMIS_DAMAGE=all cargo test --release -p tamis --test damage -- --nocapture
//!
//! Each test prints the number of cases it ran and their outcomes.

#![allow(clippy::print_stdout)]

mod cases;
mod judge;
mod specimen;

use tamis::options::FilterChoice;

use judge::{Ends, judge};
use specimen::Specimen;

/// The number of positions, and of lengths, per file; `None` for all.
fn places() -> Option<usize> {
    match std::env::var("TAMIS_DAMAGE") {
        Ok(all) if all == "all" => None,
        Ok(many) => Some(many.parse().expect("`all`, or the number of positions per file")),
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
        assert!(
            ends.refused > 0 && ends.failed + ends.right > 0,
            "{filter:?}: all cases have the same outcome: {ends}"
        );
        total += ends.cases();
    }
    println!("{total} cases");
    assert!(wrong.is_empty(), "{} cases went wrong:\n{}", wrong.len(), wrong.join("\n"));
}

fn of_ranges(filter: FilterChoice) -> bool {
    filter.is_range()
}

fn of_the_tree(filter: FilterChoice) -> bool {
    filter.is_of_tree() || filter.is_elastic()
}

fn of_points(filter: FilterChoice) -> bool {
    !of_ranges(filter) && !of_the_tree(filter)
}

#[test]
fn closed_databases_with_point_filters_answer_correctly_or_not_at_all() {
    run(false, of_points);
}

#[test]
fn closed_databases_with_range_filters_answer_correctly_or_not_at_all() {
    run(false, of_ranges);
}

#[test]
fn closed_databases_with_elastic_and_global_filters_answer_correctly_or_not_at_all() {
    run(false, of_the_tree);
}

#[test]
fn killed_databases_with_point_filters_answer_correctly_or_not_at_all() {
    run(true, of_points);
}

#[test]
fn killed_databases_with_range_filters_answer_correctly_or_not_at_all() {
    run(true, of_ranges);
}

#[test]
fn killed_databases_with_elastic_and_global_filters_answer_correctly_or_not_at_all() {
    run(true, of_the_tree);
}
