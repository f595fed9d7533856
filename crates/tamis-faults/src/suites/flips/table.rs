//! The table of outcomes.

use std::collections::BTreeMap;

use super::cause::Cause;
use super::outcome::Outcome;
use crate::oracle::Phase;
use crate::strike::Kind;

/// Counts outcomes by phase and kind of place.
#[derive(Debug, Default)]
pub(super) struct Table {
    counts: BTreeMap<(Phase, Kind, Outcome), u64>,
    /// Silent runs: by cause, and whether the damage remained after reopening.
    causes: BTreeMap<(Cause, bool), u64>,
}

impl Table {
    pub(super) fn add(&mut self, phase: Phase, kind: Kind, outcome: Outcome) {
        *self.counts.entry((phase, kind, outcome)).or_default() += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn add_silent(&mut self, cause: Cause, remains: bool) {
        *self.causes.entry((cause, remains)).or_default() += 1;
    }

    /// Returns the causes of the silent runs in Markdown.
    pub(super) fn causes(&self) -> String {
        let mut text =
            "| silent: what was hit | gone after reopening | remains |\n| --- | --: | --: |\n".to_owned();
        let mut causes: Vec<Cause> = self.causes.keys().map(|(cause, _)| *cause).collect();
        causes.dedup();
        for cause in causes {
            let count = |remains| self.causes.get(&(cause, remains)).copied().unwrap_or_default();
            text += &format!("| {} | {} | {} |\n", cause.name(), count(false), count(true));
        }
        text
    }

    fn count(&self, phases: &[Phase], kinds: &[Kind], outcome: Outcome) -> u64 {
        let fits = |key: &(Phase, Kind, Outcome)| {
            phases.contains(&key.0) && kinds.contains(&key.1) && key.2 == outcome
        };
        self.counts.iter().filter(|(key, _)| fits(key)).map(|(_, count)| count).sum()
    }

    /// Returns the table in Markdown: a row for each phase and kind of place, sums, and rates.
    pub(super) fn markdown(&self) -> String {
        let mut text = "| phase | place | flips |".to_owned();
        Outcome::ALL.iter().for_each(|outcome| text += &format!(" {} |", outcome.name()));
        text += "\n| --- | --- | --: |";
        Outcome::ALL.iter().for_each(|_| text += " --: |");
        text.push('\n');
        let mut row = |phase: &str, place: &str, phases: &[Phase], kinds: &[Kind], is_rate: bool| {
            let counts = Outcome::ALL.map(|outcome| self.count(phases, kinds, outcome));
            let all: u64 = counts.iter().sum();
            text += &format!("| {phase} | {place} | {all} |");
            for count in counts {
                match is_rate {
                    true => text += &format!(" {:.2} % |", 100.0 * count as f64 / all.max(1) as f64),
                    false => text += &format!(" {count} |"),
                }
            }
            text.push('\n');
        };
        for phase in Phase::ALL {
            for kind in Kind::ALL {
                row(phase.name(), kind.name(), &[phase], &[kind], false);
            }
        }
        for kind in Kind::ALL {
            row("all", kind.name(), &Phase::ALL, &[kind], false);
        }
        row("all", "all", &Phase::ALL, &Kind::ALL, false);
        for kind in Kind::ALL {
            row("rate", kind.name(), &Phase::ALL, &[kind], true);
        }
        row("rate", "all", &Phase::ALL, &Kind::ALL, true);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up() {
        let mut table = Table::default();
        assert!(table.is_empty());
        table.add(Phase::Flush, Kind::Heap, Outcome::Silent);
        table.add(Phase::Flush, Kind::Heap, Outcome::Nothing);
        table.add(Phase::Write, Kind::Register, Outcome::Crash);
        let text = table.markdown();
        assert!(text.contains("| flush | heap | 2 | 1 | 0 | 0 | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("| all | all | 3 | 1 | 1 | 0 | 0 | 1 | 0 |"), "{text}");
        assert!(text.contains("| rate | heap | 2 | 50.00 % |"), "{text}");
        assert_eq!(text.lines().count(), 2 + 12 + 4 + 4);
        table.add_silent(Cause::Filter, true);
        table.add_silent(Cause::Filter, false);
        table.add_silent(Cause::Filter, true);
        assert!(table.causes().ends_with("| filter or index | 1 | 2 |\n"), "{}", table.causes());
    }
}
