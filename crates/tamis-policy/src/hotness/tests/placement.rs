//! Which units are loaded and unloaded, case by case.

use super::*;

/// The bytes of this many units in segments of their own.
fn room(manager: &Manager, segments: u64, units: u64) -> u64 {
    manager.fixed + segments * 16 + units * 400
}

#[test]
fn free_bytes_go_where_they_save_most() {
    let mut manager = manager(1 << 20);
    manager.add_table(table(1, 0..10_000, 10), even(10, 0.01));
    manager.add_table(table(2, 0..10_000, 1), even(1, 0.1));
    manager.set_budget(room(&manager, 5, 6));
    settle(&mut manager);
    // The small run is asked as often as the ten segments of the other together: its first two
    // units come first.
    assert_eq!(units(&manager, 2), [2]);
    assert_eq!(units(&manager, 1).iter().sum::<u8>(), 4, "segments of equal value share what is left");
    manager.set_budget(1 << 20);
    settle(&mut manager);
    assert_eq!((units(&manager, 2), units(&manager, 1)), (vec![8], vec![8; 10]));
}

#[test]
fn a_unit_moves_as_soon_as_it_is_worth_clearly_more_elsewhere() {
    let mut manager = manager(1 << 20);
    manager.add_table(table(1, 0..2000, 2), even(2, 0.0));
    manager.set_budget(room(&manager, 1, 1));
    let ask = |manager: &mut Manager, segment, times| {
        for _ in 0..times {
            manager.advance(1);
            miss(manager, 1, segment, 1);
        }
    };
    ask(&mut manager, 0, 1000);
    settle(&mut manager);
    assert_eq!(units(&manager, 1), [1, 0]);
    // As often as the other: that is no reason to move.
    ask(&mut manager, 1, 1000);
    assert_eq!(settle(&mut manager), Adjustment::default());
    ask(&mut manager, 1, 1000);
    let moved = settle(&mut manager);
    assert_eq!((moved.unload.len(), moved.load.len()), (1, 1), "without waiting for anything to expire");
    assert_eq!(units(&manager, 1), [0, 1]);
}

#[test]
fn misses_that_the_cache_answers_are_worth_little() {
    let mut manager = manager(1 << 20);
    manager.add_table(table(1, 0..2000, 2), even(2, 0.0));
    manager.set_budget(room(&manager, 1, 1));
    for _ in 0..500 {
        for (segment, read) in [(0, BlockRead::Cached), (0, BlockRead::Cached), (1, BlockRead::Fetched)] {
            let id = SegmentId { table: 1, segment };
            manager.access(&Sample { id, weight: 1, held: false, read });
            manager.advance(1);
        }
    }
    settle(&mut manager);
    assert_eq!(units(&manager, 1), [0, 1], "segment 0 is asked twice as often, but costs no reads");
}

#[test]
fn present_keys_are_no_reason_for_a_filter() {
    let mut manager = manager(1 << 20);
    manager.add_table(table(1, 0..2000, 2), even(2, 0.0));
    for _ in 0..1000 {
        let id = SegmentId { table: 1, segment: 0 };
        manager.access(&Sample { id, weight: 1, held: true, read: BlockRead::Fetched });
    }
    assert_eq!(settle(&mut manager), Adjustment::default());
    assert!(manager.segments_of(1).next().unwrap().asked > 0.0);
}

#[test]
fn a_smaller_budget_evicts_the_cheapest_and_cancels_loads() {
    let mut manager = manager(1 << 20);
    manager.add_table(
        table(1, 0..3000, 3),
        vec![
            Hotness { misses: 0.1, asked: 0.1 },
            Hotness { misses: 0.01, asked: 0.01 },
            Hotness { misses: 0.001, asked: 0.001 },
        ],
    );
    settle(&mut manager);
    assert_eq!(units(&manager, 1), [8; 3]);
    let evicted = manager.set_budget(room(&manager, 3, 12));
    check(&manager);
    let left = units(&manager, 1);
    assert!(
        left[0] >= left[1] && left[1] >= left[2] && left.iter().sum::<u8>() >= 11,
        "{left:?} {evicted:?}"
    );
    // A load that is under way when the budget falls to nothing is no longer wanted.
    manager.set_budget(1 << 20);
    let load = manager.adjust().load[0];
    assert!(manager.wants(&load));
    manager.set_budget(0);
    assert!(!manager.wants(&load) && manager.held == 0 && manager.reserved == 0);
    let zero = units(&manager, 1);
    assert_eq!(zero, [0; 3]);
    manager.loaded(&load, Outcome::Done);
    assert_eq!(units(&manager, 1), zero);
    check(&manager);
}

#[test]
fn a_unit_that_cannot_be_read_ends_the_group() {
    let mut manager = manager(1 << 20);
    manager.add_table(table(1, 0..1000, 1), even(1, 1.0));
    let load = manager.adjust().load[0];
    assert_eq!((load.from, load.to), (0, 8));
    assert_eq!(manager.loaded(&load, Outcome::Unreadable(3)), Some(3));
    check(&manager);
    assert_eq!(units(&manager, 1), [3]);
    manager.due = true;
    assert_eq!(settle(&mut manager), Adjustment::default(), "it is not asked for again");
    assert_eq!(manager.report().failed, 1);
}

#[test]
fn a_removed_table_takes_its_loads_with_it() {
    let mut manager = manager(1 << 20);
    manager.add_table(table(1, 0..2000, 2), even(2, 0.5));
    manager.add_table(table(2, 0..2000, 2), even(2, 0.5));
    let loads = manager.adjust().load;
    manager.remove_table(1);
    check(&manager);
    for load in loads {
        assert_eq!(manager.loaded(&load, Outcome::Done).is_some(), load.segment.table == 2);
    }
    check(&manager);
    manager.remove_table(2);
    assert_eq!((manager.used(), manager.report().segments), (0, 0));
}

/// Fixed memory alone may exceed the budget: then there are no units.
#[test]
fn without_room_for_the_directory_there_are_no_units() {
    let mut manager = manager(50);
    manager.add_table(table(1, 0..2000, 2), even(2, 0.5));
    assert_eq!(settle(&mut manager), Adjustment::default());
    assert!(manager.used() > 50);
}
