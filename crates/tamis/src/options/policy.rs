//! What the options say to a compaction policy.

use tamis_policy::compaction::settings::{Form, Granularity, Picker, Ratios, Settings};

use super::definition::KeyspaceOptions;
use super::values::{CompactionChoice, FilePicker, MergeGranularity};

impl CompactionChoice {
    /// Returns what it is called among policies.
    pub(super) fn form(self) -> Form {
        match self {
            CompactionChoice::Leveling => Form::Leveling,
            CompactionChoice::Tiering => Form::Tiering,
            CompactionChoice::LazyLeveling => Form::LazyLeveling,
            CompactionChoice::Hybrid(levels) => Form::Hybrid(levels),
            CompactionChoice::Fragmented => Form::Fragmented,
            CompactionChoice::Fifo => Form::Fifo,
            CompactionChoice::TimeWindow => Form::TimeWindow,
        }
    }
}

impl MergeGranularity {
    /// Returns the option of this name.
    pub(super) fn of(granularity: Granularity) -> MergeGranularity {
        match granularity {
            Granularity::Full => MergeGranularity::Full,
            Granularity::Partial => MergeGranularity::Partial,
            Granularity::Partitioned => MergeGranularity::Partitioned,
        }
    }
}

impl KeyspaceOptions {
    fn merges(&self) -> Granularity {
        match self.merge {
            MergeGranularity::Auto => self.compaction.form().granularity(self.deterministic),
            MergeGranularity::Full => Granularity::Full,
            MergeGranularity::Partial => Granularity::Partial,
            MergeGranularity::Partitioned => Granularity::Partitioned,
        }
    }

    /// Returns how much of a level one merge takes: `merge`, with `auto` resolved for the policy.
    pub fn granularity(&self) -> MergeGranularity {
        MergeGranularity::of(self.merges())
    }

    /// Returns what a policy goes by.
    pub(crate) fn policy(&self) -> Settings {
        Settings {
            form: self.compaction.form(),
            granularity: self.merges(),
            picker: match self.picker {
                FilePicker::LeastOverlap => Picker::LeastOverlap,
                FilePicker::RoundRobin => Picker::RoundRobin,
                FilePicker::MostTombstones => Picker::MostTombstones,
                FilePicker::Oldest => Picker::Oldest,
            },
            deterministic: self.deterministic,
            size_ratio: Ratios::new(self.size_ratio.as_slice().to_vec()).expect("never empty"),
            memtable_bytes: self.memtable_bytes,
            table_bytes: self.table_bytes,
            levels: self.levels,
            level0_runs: self.level0_runs,
            slowdown_runs: self.slowdown_runs,
            stop_runs: self.stop_runs,
            slowdown_debt_bytes: self.slowdown_debt_bytes,
            stop_debt_bytes: self.slowdown_debt_bytes.saturating_mul(4),
            retain_bytes: self.retain_bytes,
            time_to_live: self.time_to_live,
            time_window: self.time_window,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_tested_with_the_defaults_that_keyspaces_have() {
        assert_eq!(KeyspaceOptions::default().policy(), Settings::default());
    }

    #[test]
    fn a_policy_goes_by_the_name_of_its_option() {
        for (name, choice) in CompactionChoice::NAMED {
            assert_eq!(choice.form().to_string(), *name);
        }
        assert_eq!(CompactionChoice::Hybrid(3).form().to_string(), CompactionChoice::Hybrid(3).to_string());
    }
}
