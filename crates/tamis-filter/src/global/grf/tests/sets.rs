//! Sets of entries against sorted lists.

use proptest::prelude::*;

use super::*;
use layout::{BUCKETS, Layout};
use names::Names;
use set::Set;

/// Compares a set with the list that it was written from, and with what it is after being stored
/// and read.
fn same_as_list(layout: Layout, names: &Names, entries: &[Entry], queries: impl Iterator<Item = u64>) {
    let set = Set::write(layout, names, entries);
    assert_eq!((set.entries(), set.blocks() as u64), (entries.len() as u64, layout.blocks()));
    let mut all = Vec::new();
    set.each_from(names, 0, |position, symbol| {
        all.push(Entry { position, symbol: symbol as u16 });
        true
    });
    assert_eq!(all, entries);
    for query in queries.filter(|&query| query < layout.positions) {
        let kept = layout.kept(query);
        let from = entries.partition_point(|entry| entry.position < kept);
        let to = entries.partition_point(|entry| entry.position <= kept);
        let wanted: Vec<u32> = entries[from..to].iter().map(|entry| entry.symbol.into()).collect();
        let mut found = Vec::new();
        set.probe(names, query, |symbol| found.push(symbol));
        assert_eq!(found, wanted, "position {query} of {layout:?}");
        // From the bucket of the query on.
        let bucket = query >> layout.width << layout.width;
        let from = entries.partition_point(|entry| entry.position < bucket);
        let mut nth = from;
        set.each_place_from(query, |position, place| {
            let symbol = set.symbol(names, place) as u16;
            assert_eq!(Entry { position, symbol }, entries[nth], "entry {nth} from {query} on");
            nth += 1;
            nth < from + 40
        });
        assert_eq!(nth, entries.len().min(from + 40).max(from));
        let range = query..=(query + 9).min(layout.positions - 1);
        let held = entries.iter().any(|entry| {
            entry.position <= *range.end() && entry.position + u64::from(layout.cut(entry.position)) >= query
        });
        assert_eq!(set.is_empty(range, 0), !held, "ten positions from {query} on");
    }
    let mut bytes = Vec::new();
    set.encode(&mut bytes);
    let read = Set::read(&mut image::Reader(&bytes)).expect("its own bytes");
    let mut again = Vec::new();
    read.encode(&mut again);
    assert!(again == bytes);
}

/// Some codes have exceptions.
fn names(symbols: u32) -> Names {
    let first = if symbols.is_multiple_of(3) { 1000.0 } else { 1.0 };
    let weights = (0..symbols).map(|symbol| if symbol == 0 { first } else { 1.0 / f64::from(1 + symbol) });
    Names::new(&weights.collect::<Vec<_>>())
}

/// Returns entries of a layout, made of random numbers.
fn entries(layout: Layout, symbols: u32, numbers: impl Iterator<Item = u64>, twice: bool) -> Vec<Entry> {
    let entry = |number: u64| Entry {
        position: layout.kept(number % layout.positions),
        symbol: (random(number, 5) % u64::from(symbols)) as u16,
    };
    let mut entries: Vec<Entry> = numbers.map(entry).collect();
    entries.sort_unstable();
    if !twice {
        entries.dedup();
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_set_holds_its_entries(
        width in 0u32..38,
        buckets in 1u64..1000,
        less in 0u64..1 << 40,
        coarse in 0u32..9,
        symbols in 1u32..300,
        picks in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..500, 1000u64..1004], 0..900),
        queries in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..600], 20),
        twice: bool,
    ) {
        let positions = (buckets << width) - less % (1 << width) / 2;
        let layout = Layout { positions, width, coarse: 0 };
        let coarse = if width == 0 { 0 } else { coarse.min(layout.blocks() as u32) };
        let layout = Layout { coarse, ..layout };
        let entries = entries(layout, symbols, picks.iter().copied(), twice);
        let near = entries.iter().step_by(7).flat_map(|e| [e.position.saturating_sub(1), e.position, e.position + 1]);
        let queries = queries.iter().map(|query| query % positions).chain(near);
        same_as_list(layout, &names(symbols), &entries, queries);
    }
}

/// The directory has twelve bits for the number of entries of a block.
#[test]
fn blocks_of_any_size_are_read() {
    for count in [4094, 4095, 4096, 20_000] {
        for width in [0, 1, 9] {
            let layout = Layout { positions: (3 * BUCKETS) << width, width, coarse: u32::from(width > 0) };
            for symbols in [1, 2000] {
                // All in the block in the middle, a third of them at one position.
                let numbers = (0..count).map(|i| match i % 3 {
                    0 => (BUCKETS << width) + 5,
                    _ => (BUCKETS << width) + random(i, 1) % (BUCKETS << width),
                });
                let entries = entries(layout, symbols, numbers, true);
                let queries = (0..200).map(|i| random(i, 2) % layout.positions);
                let near = [0, 1, 4, 5, 6].map(|i| (BUCKETS << width) + i);
                same_as_list(layout, &names(symbols), &entries, queries.chain(near));
            }
        }
    }
}

/// The directory has twenty bits for a block's place: beyond a mebibyte they count larger units.
#[test]
fn large_sets_count_places_in_larger_units() {
    for (count, width) in [(400_000u64, 28u32), (1_200_000, 26)] {
        let layout = Layout { positions: (count / 2) << width, width, coarse: 300 };
        let numbers = (0..count).map(|i| random(i, 3)).chain((0..5000).map(|i| 77 << width | i << 1));
        let entries = entries(layout, 40, numbers, false);
        let queries = (0..300).map(|i| random(i, 4) % layout.positions);
        let near = entries.iter().step_by(1999).flat_map(|entry| [entry.position, entry.position + 1]);
        same_as_list(layout, &names(40), &entries, queries.chain(near.collect::<Vec<_>>()));
    }
}

/// With a budget below a block, or for no entries, cutting bits went on for ever.
#[test]
fn a_budget_too_small_for_a_block_gets_a_layout() {
    for entries in [0, 1, 2, 3, 1000] {
        for positions in [1, 2, 1000, 1 << 40] {
            for budget in [f64::NEG_INFINITY, -5.0, 0.0, 9.0] {
                let (layout, cut) = Layout::fit(positions, entries, budget);
                assert_eq!(layout.positions, layout::after_cut(positions, cut));
                assert!(layout.positions <= (entries / 2).max(1), "{layout:?} for {entries} entries");
            }
        }
    }
}

proptest! {
    /// A layout that is fitted again asks for no bit that was lost before.
    #[test]
    fn lost_bits_stay_lost(
        positions in 2000u64..1 << 44,
        plans in prop::collection::vec((1u64..100_000, 0.5..50.0, prop_oneof![Just(0u64), 1u64..6]), 2..8),
        asked in prop::collection::vec(any::<u64>(), 20),
    ) {
        let mut positions = positions;
        let mut now: Option<(Layout, u32)> = None;
        for (entries, bits, more) in plans {
            let budget = entries as f64 * bits;
            let Some((old, cut)) = now else {
                now = Some(Layout::fit(positions, entries, budget));
                continue;
            };
            let shift = more * (2 << cut);
            positions += shift;
            let (layout, next) = Layout::refit(positions, entries, budget, old.lost(cut, shift));
            prop_assert_eq!(layout.positions, layout::after_cut(positions, next));
            prop_assert!(layout.width > 0 || layout.coarse == 0);
            for asked in &asked {
                let before = asked % (positions - shift);
                let stored = (old.kept(before >> cut) << cut) + shift;
                let wanted = layout.kept((before + shift) >> next);
                prop_assert_eq!(layout.kept(stored >> next), wanted, "{:?} after {:?}", layout, old);
            }
            now = Some((layout, next));
        }
    }
}
