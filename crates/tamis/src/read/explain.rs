//! The path of one read, step by step.

use std::fmt;
use std::ops::Range;

use tamis_files::table::{BlockSource, BlockTouch, HashAnswer, ReadTrace};
use tamis_policy::hotness::SegmentId;

use crate::observe::cost::ReadCost;
use crate::read::lookup::FilterAnswer;
use crate::read::{Lookup, MemtableSlot, Recorder};
use crate::select::{Candidate, Candidates, Probe};
use crate::tree::open_table::{OpenTable, TableFilter};
use crate::tree::version::Version;

/// A data block that a read touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExplainBlock {
    /// Offset of the block in its file, in bytes.
    pub offset: u64,
    /// Its stored size in bytes.
    pub bytes: u64,
    /// Whether the decoded block came from the block cache.
    pub from_cache: bool,
    /// The answer of the block's hash index: `hit`, `absent`, `collision` (searched by key), or
    /// `none`.
    pub hash_index: &'static str,
}

/// The segment of an elastic filter that covers a key.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ExplainUnits {
    /// Its number within the table.
    pub segment: usize,
    /// Number of segments of the table.
    pub segments: usize,
    /// Number of its units in memory.
    pub enabled: u32,
    /// Total number of its units.
    pub units: u32,
    /// Its hotness: the estimated number of lookups of absent keys that probe it, per get of the
    /// database.
    pub hotness: f64,
}

/// One step of a read, in the order taken.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ExplainStep {
    /// A memtable was searched.
    Memtable {
        /// Whether it is the active memtable, which takes writes.
        active: bool,
        /// Number of key versions in it.
        entries: u64,
        /// The answer of its filter.
        filter: FilterAnswer,
        /// Whether it held a visible version of the key.
        found: bool,
    },
    /// The record cache was asked.
    RecordCache {
        /// Whether it had the newest version of the key in the runs, so that no run was considered.
        found: bool,
    },
    /// A run was considered.
    Run {
        /// Its level.
        level: usize,
        /// Its id.
        run: u64,
        /// The only table whose key range holds the key; `None` if no range does.
        table: Option<u64>,
        /// The answer of the table's filter.
        filter: FilterAnswer,
        /// The units used for the answer, if the filter is elastic.
        units: Option<ExplainUnits>,
        /// The last block touched in this run, if any.
        block: Option<ExplainBlock>,
        /// Whether it held a visible version of the key.
        found: bool,
    },
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ExplainOutcome {
    /// The key has a value.
    Found {
        /// The version's sequence number (0: older than any snapshot).
        seq: u64,
        /// The value's length in bytes.
        value_bytes: usize,
    },
    /// The newest version is a delete.
    Deleted {
        /// The delete's sequence number.
        seq: u64,
    },
    /// A range tombstone covers the key.
    DeletedByRange {
        /// The tombstone's sequence number.
        seq: u64,
    },
    /// The newest version has exceeded the keyspace's time to live.
    Expired {
        /// Everything before the write with this number has expired.
        horizon: u64,
    },
    /// There is no version of the key.
    Absent,
}

/// The path of one read. Produced by the code that serves `get`, with a recorder that keeps each
/// step.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Explanation {
    /// The key looked up.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub key: Vec<u8>,
    /// The filter that named the tables to search: one `per table`, one `for the tree`, or
    /// `external`. With `filter = auto`, also the reason.
    pub filter: String,
    /// The key's digest, used to probe every filter and hash index.
    pub digest: u64,
    /// The steps, in order.
    pub steps: Vec<ExplainStep>,
    /// The result.
    pub outcome: ExplainOutcome,
    /// The cost.
    pub cost: ReadCost,
}

/// A source of an iteration.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RangeSource {
    /// A memtable.
    Memtable {
        /// Whether it is the active memtable, which takes writes.
        active: bool,
        /// Number of key versions in it.
        entries: u64,
        /// Approximate number of versions with keys within the range.
        in_range: u64,
    },
    /// A run.
    Run {
        /// Its level.
        level: usize,
        /// Its id.
        run: u64,
        /// Number of its tables that reach into the range.
        tables: usize,
        /// Number of seeks in it: 0 if the iteration ended before its keys, or a filter ruled it
        /// out.
        seeks: u64,
        /// Number of data blocks touched in it.
        blocks: u64,
        /// Stored bytes of those blocks.
        bytes: u64,
    },
}

/// What an iteration from the start of a range touched. Produced by the code that serves iterators.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RangeExplanation {
    /// The first key of the range.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes"))]
    pub start: Vec<u8>,
    /// The first key behind the range; `None`: no end.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes_or_none"))]
    pub end: Option<Vec<u8>>,
    /// The filter that can rule out runs: one `per table`, one `for the tree`, or `external`.
    pub filter: String,
    /// The memtables and runs, newest first.
    pub sources: Vec<RangeSource>,
    /// Number of entries returned.
    pub entries: u64,
    /// The last key returned.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::serial::bytes_or_none"))]
    pub last: Option<Vec<u8>>,
    /// The cost.
    pub cost: ReadCost,
}

/// One line: the outcome, the steps that contributed to it, and the cost.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            ExplainOutcome::Found { value_bytes, .. } => write!(f, "found {value_bytes} bytes")?,
            ExplainOutcome::Deleted { .. } => f.write_str("deleted")?,
            ExplainOutcome::DeletedByRange { .. } => f.write_str("deleted by a range")?,
            ExplainOutcome::Expired { .. } => f.write_str("expired")?,
            ExplainOutcome::Absent => f.write_str("absent")?,
        }
        let mut ruled_out = 0;
        for step in &self.steps {
            match step {
                ExplainStep::Memtable { entries, found, filter, .. } if *filter != FilterAnswer::No => {
                    write!(f, ", searched a memtable of {entries} entries")?;
                    f.write_str(if *found { " (found)" } else { "" })?;
                }
                ExplainStep::RecordCache { found } => {
                    f.write_str(if *found { ", found in the record cache" } else { "" })?;
                }
                ExplainStep::Run { level, run, block: Some(block), found, .. } => {
                    let cached = if block.from_cache { ", cached" } else { "" };
                    write!(f, ", searched run {run} of level {level} ({} bytes{cached})", block.bytes)?;
                    f.write_str(if *found { " (found)" } else { "" })?;
                }
                _ => ruled_out += 1,
            }
        }
        write!(f, ", {ruled_out} ruled out; {}", summary(&self.cost))
    }
}

/// One line: the sources that were positioned, and the cost.
impl fmt::Display for RangeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.entries)?;
        for source in &self.sources {
            match source {
                RangeSource::Memtable { entries, .. } => write!(f, ", a memtable of {entries} entries")?,
                RangeSource::Run { level, run, seeks, blocks, .. } if *seeks > 0 => {
                    write!(f, ", {blocks} blocks in run {run} of level {level}")?;
                }
                RangeSource::Run { .. } => {}
            }
        }
        write!(f, "; {}", summary(&self.cost))
    }
}

/// Returns the non-zero counters in words.
pub(crate) fn summary(cost: &ReadCost) -> String {
    let counters = cost.fields().filter(|(_, count)| *count > 0);
    let counters: Vec<String> = counters.map(|(name, count)| format!("{name} {count}")).collect();
    counters.join(", ")
}

/// Returns the units in memory for the segment of a probe's key, if the table has an elastic
/// filter.
fn units(table: &OpenTable, probe: &Probe<'_>) -> Option<ExplainUnits> {
    let TableFilter::Elastic(filter) = &table.filter else { return None };
    let segment = filter.segment_of(probe.key, probe.prefix);
    Some(ExplainUnits {
        segment,
        segments: filter.directory().segments(),
        enabled: filter.enabled(segment),
        units: filter.directory().units(),
        hotness: 0.0,
    })
}

/// The recorder of `explain_get`. Counts like [`ReadCost`] and keeps the steps.
#[derive(Debug, Default)]
pub(crate) struct ExplainRecorder {
    cost: ReadCost,
    steps: Vec<ExplainStep>,
    /// The runs probed last, and the step of the first of them.
    asked: Range<usize>,
    first_step: usize,
    last_block: Option<ExplainBlock>,
}

impl ExplainRecorder {
    /// Returns the explanation. `horizon` is the lookup's horizon, which it treats as a range
    /// tombstone over all keys. `hotness` returns a segment's hotness.
    pub(crate) fn finish(
        mut self,
        key: &[u8],
        filter: String,
        outcome: &Lookup,
        horizon: u64,
        hotness: impl Fn(SegmentId) -> f64,
    ) -> Explanation {
        for step in &mut self.steps {
            if let ExplainStep::Run { table: Some(table), units: Some(units), .. } = step {
                units.hotness = hotness(SegmentId { table: *table, segment: units.segment as u32 });
            }
        }
        let found = self.steps.iter().any(|step| match step {
            ExplainStep::Memtable { found, .. }
            | ExplainStep::RecordCache { found }
            | ExplainStep::Run { found, .. } => *found,
        });
        let outcome = match outcome {
            Lookup::Found { seq, value } => ExplainOutcome::Found { seq: *seq, value_bytes: value.len() },
            Lookup::Separated { .. } => unreachable!("a get reads the value"),
            Lookup::Deleted { seq } => ExplainOutcome::Deleted { seq: *seq },
            Lookup::DeletedByRange { seq } if *seq == horizon && found => ExplainOutcome::Expired { horizon },
            Lookup::DeletedByRange { seq } if *seq == horizon => ExplainOutcome::Absent,
            Lookup::DeletedByRange { seq } => ExplainOutcome::DeletedByRange { seq: *seq },
            Lookup::Absent => ExplainOutcome::Absent,
        };
        let digest = tamis_filter::Digest::of(key).get();
        Explanation { key: key.to_vec(), filter, digest, steps: self.steps, outcome, cost: self.cost }
    }
}

impl ReadTrace for ExplainRecorder {
    fn block_touched(&mut self, touch: BlockTouch) {
        self.cost.block_touched(touch);
        self.last_block = Some(ExplainBlock {
            offset: touch.offset,
            bytes: touch.stored_bytes,
            from_cache: touch.source == BlockSource::Cache,
            hash_index: "none",
        });
    }

    fn hash_index_answered(&mut self, answer: HashAnswer) {
        if let Some(block) = &mut self.last_block {
            block.hash_index = match answer {
                HashAnswer::Hit => "hit",
                HashAnswer::Absent => "absent",
                HashAnswer::Collision => "collision",
                HashAnswer::NotAsked => "none",
            };
        }
    }

    fn metadata_touched(&mut self, touch: BlockTouch) {
        self.cost.metadata_touched(touch);
    }

    fn blob_touched(&mut self, touch: BlockTouch) {
        self.cost.blob_touched(touch);
    }

    fn checksum_verified(&mut self) {
        self.cost.checksum_verified();
    }
}

impl Recorder for ExplainRecorder {
    const ONE_BY_ONE: bool = true;

    fn cost(&mut self) -> &mut ReadCost {
        &mut self.cost
    }

    fn memtable(&mut self, slot: &MemtableSlot, active: bool, filter: FilterAnswer, found: bool) {
        self.steps.push(ExplainStep::Memtable {
            active,
            entries: slot.memtable.entries() as u64,
            filter,
            found,
        });
    }

    fn cached(&mut self, found: bool) {
        self.steps.push(ExplainStep::RecordCache { found });
    }

    fn selected(&mut self, version: &Version, probe: &Probe<'_>, runs: Range<usize>, out: &Candidates) {
        (self.asked, self.first_step) = (runs.clone(), self.steps.len());
        for place in runs {
            let run = &version.runs[place];
            let table = version.table_for(run, probe.key, probe.prefix);
            let filter = match out.iter().find(|c| c.run == place) {
                Some(candidate) if candidate.filtered => FilterAnswer::Maybe,
                None if table.is_some() => FilterAnswer::No,
                _ => FilterAnswer::NotAsked,
            };
            self.steps.push(ExplainStep::Run {
                level: run.level,
                run: run.id,
                table: table.map(|t| version.tables[t].meta.id),
                filter,
                units: table.and_then(|table| units(&version.tables[table], probe)),
                block: None,
                found: false,
            });
        }
    }

    fn searched(&mut self, candidate: Candidate, was_found: bool) {
        let step = self.first_step + (candidate.run - self.asked.start);
        if let Some(ExplainStep::Run { block, found, .. }) = self.steps.get_mut(step) {
            *block = self.last_block.take();
            *found = was_found;
        }
    }
}
