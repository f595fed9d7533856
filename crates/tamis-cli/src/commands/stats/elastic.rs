//! What `tamis stats` tells of the elastic filters of a database.

use tamis::ElasticStats;
use tamis_bench::report::{bytes, grouped, mean};

use crate::text::small;

/// The lines about elastic filters: their memory, what it is given to, what that is expected to save, and the loads
/// that it took to get there.
pub(super) fn lines(elastic: &ElasticStats) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} of {} for units, {} bits per key; {} for the borders of segments and their heat",
            bytes(elastic.used_bytes),
            bytes(elastic.budget_bytes),
            mean(elastic.bits_per_key()),
            bytes(elastic.index_bytes)
        ),
        format!(
            "{} segments of {} keys: {}; {} expired",
            grouped(elastic.segments),
            grouped(elastic.keys),
            by_units(&elastic.by_units),
            grouped(elastic.expired)
        ),
        format!(
            "{} block reads for nothing to be expected of a get, {}",
            small(elastic.expected_extra_reads),
            // A database that has just been opened has answered nothing yet, but remembers.
            match elastic.gets {
                0 => "by the heat as stored".to_owned(),
                gets => format!("by the heat of {} gets", grouped(gets)),
            }
        ),
        format!(
            "one get of {} is counted, {} were dropped; life time {} gets",
            grouped(elastic.sampling),
            grouped(elastic.dropped_samples),
            grouped(elastic.life_time)
        ),
        format!(
            "{} units loaded with {} reads of {}; {} took the place of others, {} found none to take",
            grouped(elastic.loads),
            grouped(elastic.load_reads),
            bytes(elastic.load_bytes),
            grouped(elastic.evictions),
            grouped(elastic.refused)
        ),
    ];
    if elastic.failed_loads > 0 {
        lines.push(format!("{} UNITS COULD NOT BE LOADED", grouped(elastic.failed_loads)));
    }
    lines
}

/// How many segments have how many units, without the numbers that none has.
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
        ElasticStats {
            budget_bytes: 4 << 20,
            used_bytes: 3 << 20,
            index_bytes: 70_000,
            gets: 1_234_567,
            life_time: 1500,
            sampling: 16,
            segments: 1500,
            keys: 8 << 20,
            by_units: vec![500, 0, 999, 1],
            expired: 34,
            expected_extra_reads: 0.000_34,
            loads: 2001,
            load_reads: 1700,
            load_bytes: 8 << 20,
            failed_loads: 0,
            evictions: 77,
            refused: 5,
            dropped_samples: 3,
        }
    }

    #[test]
    fn the_page_tells_memory_segments_gain_and_loads() {
        let text = lines(&example()).join("\n");
        for part in [
            "3.0 MiB of 4.0 MiB for units, 3.00 bits per key; 68.4 KiB for",
            "1,500 segments of 8,388,608 keys: 500 with 0 units, 999 with 2, 1 with 3; 34 expired",
            "3.4e-4 block reads for nothing to be expected of a get, by the heat of 1,234,567 gets\n",
            "one get of 16 is counted, 3 were dropped; life time 1,500 gets\n",
            "2,001 units loaded with 1,700 reads of 8.0 MiB; 77 took the place of others, 5 found none to take",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
        assert!(!text.contains("COULD NOT"), "{text}");
    }

    #[test]
    fn heat_that_was_stored_is_not_said_to_be_of_no_gets() {
        let opened = ElasticStats { gets: 0, ..example() };
        assert!(lines(&opened).iter().any(|line| line.ends_with("of a get, by the heat as stored")));
    }

    #[test]
    fn loads_that_failed_stand_out() {
        let failed = ElasticStats { failed_loads: 2, ..example() };
        assert_eq!(lines(&failed).last().unwrap(), "2 UNITS COULD NOT BE LOADED");
    }

    #[test]
    fn a_database_without_segments_has_none_with_units() {
        assert_eq!(by_units(&[0, 0]), "none");
        assert_eq!(by_units(&[]), "none");
        assert_eq!(by_units(&[0, 7, 1]), "7 with 1 unit, 1 with 2");
    }
}
