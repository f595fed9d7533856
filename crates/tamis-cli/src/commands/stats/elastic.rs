//! The lines of `tamis stats` about the elastic filters of a database.

use tamis::stats::ElasticStats;
use tamis_bench::report::{bytes, grouped, mean};

use crate::text::small;

/// Returns the lines about elastic filters: their memory, its distribution, the expected wasted
/// reads, and the loads so far.
pub(super) fn lines(elastic: &ElasticStats) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} of {}, {} bits per key; {} of it always in memory",
            bytes(elastic.used_bytes),
            bytes(elastic.budget_bytes),
            mean(elastic.bits_per_key()),
            bytes(elastic.index_bytes)
        ),
        format!(
            "{} segments of {} keys: {}",
            grouped(elastic.segments),
            grouped(elastic.keys),
            by_units(&elastic.by_units)
        ),
        format!(
            "{} expected wasted block reads per get, at least {} with this memory, {}",
            small(elastic.expected_extra_reads),
            small(elastic.least_extra_reads),
            // A database that was just opened has answered nothing yet, but has its stored hotness.
            match elastic.gets {
                0 => "by the hotness as stored".to_owned(),
                gets => format!("by the hotness of {} gets", grouped(gets)),
            }
        ),
        format!(
            "one get in {} is sampled, {} samples were dropped; lifetime {} gets",
            grouped(elastic.sampling),
            grouped(elastic.dropped_samples),
            grouped(elastic.life_time)
        ),
        format!(
            "{} units loaded with {} reads of {}; {} evicted",
            grouped(elastic.loads),
            grouped(elastic.load_reads),
            bytes(elastic.load_bytes),
            grouped(elastic.evictions)
        ),
    ];
    if elastic.failed_loads > 0 {
        lines.push(format!("{} UNITS COULD NOT BE LOADED", grouped(elastic.failed_loads)));
    }
    lines
}

/// Returns the number of segments per number of units, without the empty ones.
fn by_units(counts: &[u64]) -> String {
    let some = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let texts: Vec<String> = some
        .enumerate()
        .map(|(i, (units, count))| {
            let unit = match (i, units) {
                (0, 1) => " unit",
                (0, _) => " units",
                _ => "",
            };
            format!("{} with {units}{unit}", grouped(*count))
        })
        .collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ElasticStats {
        filled!(ElasticStats {
            budget_bytes: 4 << 20,
            used_bytes: 3 << 20,
            index_bytes: 70_000,
            gets: 1_234_567,
            life_time: 1500,
            sampling: 16,
            segments: 1500,
            keys: 8 << 20,
            by_units: vec![500, 0, 999, 1],
            expected_extra_reads: 0.000_34,
            least_extra_reads: 0.000_21,
            loads: 2001,
            load_reads: 1700,
            load_bytes: 8 << 20,
            failed_loads: 0,
            evictions: 77,
            dropped_samples: 3,
            ..ElasticStats::default()
        })
    }

    #[test]
    fn the_page_shows_memory_segments_gain_and_loads() {
        let text = lines(&example()).join("\n");
        for part in [
            "3.0 MiB of 4.0 MiB, 3.00 bits per key; 68.4 KiB of it always in memory",
            "1,500 segments of 8,388,608 keys: 500 with 0 units, 999 with 2, 1 with 3",
            "3.4e-4 expected wasted block reads per get, at least 2.1e-4 with this memory, by the hotness of 1,234,567 gets\n",
            "one get in 16 is sampled, 3 samples were dropped; lifetime 1,500 gets\n",
            "2,001 units loaded with 1,700 reads of 8.0 MiB; 77 evicted",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains("COULD NOT"), "{text}");
    }

    #[test]
    fn stored_hotness_is_not_attributed_to_zero_gets() {
        let opened = filled!(ElasticStats { gets: 0, ..example() });
        assert!(lines(&opened).iter().any(|line| line.ends_with(", by the hotness as stored")));
    }

    #[test]
    fn loads_that_failed_stand_out() {
        let failed = filled!(ElasticStats { failed_loads: 2, ..example() });
        assert_eq!(lines(&failed).last().unwrap(), "2 UNITS COULD NOT BE LOADED");
    }

    #[test]
    fn a_database_without_segments_lists_none_by_units() {
        assert_eq!(by_units(&[0, 0]), "none");
        assert_eq!(by_units(&[]), "none");
        assert_eq!(by_units(&[0, 7, 1]), "7 with 1 unit, 1 with 2");
    }
}
