//! Cuts a large merge into parts that several threads merge in parallel.
//!
//! A part is a key range; parts are disjoint and together cover all keys. All versions of a key are
//! in one part, so decisions about what to drop are the same as in an undivided merge. Range
//! tombstones are clipped to each part.
//!
//! Cuts depend only on the inputs and on the number of parts requested, not on the number of
//! threads that happen to be free. So a merge writes the same tables whichever threads write them.
//!
//! Cost, for a merge of `n` tables: up to 16 keys from the index of each, and one sort of these
//! keys.

use std::sync::Arc;

use tamis_base::key::KeyBytes;
use tamis_base::meta::TableMeta;
use tamis_filter::Digest;
use tamis_policy::compaction::plan::{Plan, is_guard};

use crate::tree::open_table::OpenTable;

/// Keys sampled from the index of one table, however small it is: one that covers all keys has its
/// bytes in every part.
const KEYS_OF_A_TABLE: usize = 16;

/// Each part must have at least this many times `max_table_bytes` of input: every cut ends a table
/// early, which should stay the exception.
const LEAST_TABLES_OF_A_PART: u64 = 2;

/// A key range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartRange {
    /// The first key.
    pub(crate) start: KeyBytes,
    /// The exclusive end; `None` if unbounded.
    pub(crate) end: Option<KeyBytes>,
}

impl PartRange {
    /// Returns the parts between the given cuts, which are in ascending order.
    pub(crate) fn between(cuts: &[KeyBytes]) -> Vec<PartRange> {
        let starts = std::iter::once(KeyBytes::from(&[][..])).chain(cuts.iter().cloned());
        let ends = cuts.iter().cloned().map(Some).chain([None]);
        starts.zip(ends).map(|(start, end)| PartRange { start, end }).collect()
    }

    /// Reports whether a table may hold a key of the part.
    pub(crate) fn overlaps(&self, meta: &TableMeta) -> bool {
        meta.largest.reaches(&self.start) && self.end.as_ref().is_none_or(|end| meta.smallest < *end)
    }
}

/// A key, and the number of input bytes between it and the previous anchor.
struct Anchor {
    key: KeyBytes,
    bytes: u64,
    /// An output table ends here: always, or, at an edge, if it is half full.
    border: bool,
}

/// Returns the keys before which the merge of `inputs` is cut, ascending, for up to `parts` parts
/// of about equal bytes. If an output must end near a cut anyway (at one of the plan's borders or
/// guards) or preferably ends there (at an edge), the cut moves to that place, to avoid an extra
/// small table.
pub(crate) fn cuts(inputs: &[Arc<OpenTable>], plan: &Plan, parts: usize) -> Vec<KeyBytes> {
    let total: u64 = inputs.iter().map(|t| t.meta.file_bytes).sum();
    let least = plan.max_table_bytes.saturating_mul(LEAST_TABLES_OF_A_PART).max(1);
    let parts = (total / least).min(parts as u64);
    if parts < 2 {
        return Vec::new();
    }
    let mut anchors = Vec::new();
    for table in inputs {
        anchors_of(table, &mut anchors);
    }
    let is_guard = |key: &KeyBytes| plan.guard_bits.is_some_and(|bits| is_guard(Digest::of(key), bits));
    anchors.iter_mut().for_each(|anchor| anchor.border = is_guard(&anchor.key));
    let ends = plan.borders.iter().chain(&plan.edges);
    anchors.extend(ends.map(|key| Anchor { key: key.clone(), bytes: 0, border: true }));
    anchors.sort_by(|a, b| a.key.cmp(&b.key));
    choose(&anchors, total, parts)
}

/// Collects the table's first key, and keys from its index. An unreadable index is left for the
/// merge to report.
fn anchors_of(table: &OpenTable, anchors: &mut Vec<Anchor>) {
    let meta = &table.meta;
    anchors.push(Anchor { key: meta.smallest.clone(), bytes: 0, border: false });
    let mut left = meta.file_bytes;
    for (key, bytes) in table.table.keys_within(KEYS_OF_A_TABLE).unwrap_or_default() {
        let bytes = bytes.min(left);
        left -= bytes;
        anchors.push(Anchor { key: key.into(), bytes, border: false });
    }
    if let Some(last) = anchors.last_mut() {
        last.bytes += left;
    }
}

/// Picks the anchors nearest to the ends of equal parts, preferring a border within a quarter of a
/// part of such an end.
fn choose(anchors: &[Anchor], total: u64, parts: u64) -> Vec<KeyBytes> {
    let mut before = 0u64;
    let places: Vec<u64> = anchors
        .iter()
        .map(|anchor| {
            before += anchor.bytes;
            before
        })
        .collect();
    let (Some(first), part) = (anchors.first(), total / parts) else { return Vec::new() };
    let mut cuts: Vec<KeyBytes> = Vec::new();
    for i in 1..parts {
        let goal = total / parts * i;
        let distance = |at: usize| places[at].abs_diff(goal);
        let from = places.partition_point(|place| *place + part / 4 < goal);
        let to = places.partition_point(|place| *place <= goal + part / 4);
        let border = (from..to).filter(|&at| anchors[at].border).min_by_key(|&at| distance(at));
        let at = border.or_else(|| (0..anchors.len()).min_by_key(|&at| distance(at)));
        let key = at.map(|at| &anchors[at].key);
        // Never before the first key, which would make an empty part, and never twice at the same
        // key.
        let after = cuts.last().unwrap_or(&first.key);
        if let Some(key) = key.filter(|key| *key > after) {
            cuts.push(key.clone());
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use tamis_policy::compaction::plan::{OutputRun, Reason, Work};
    use tamis_policy::compaction::shape::KeyRange;

    use super::*;
    use crate::Options;
    use crate::io::MemFs;

    /// Regression: the bytes of a table smaller than half of a part counted at its last key. So one
    /// part of a merge of level 0 had nearly all of them, and one thread did all the work.
    #[test]
    fn tables_that_each_cover_all_keys_are_cut_in_the_middle() {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.keyspace.auto_compaction = false;
        options.keyspace.block_bytes = 512;
        let db = options.open("db").unwrap();
        for run in 0..20 {
            (run..4000).step_by(20).for_each(|key| db.put(format!("{key:04}"), [1; 100]).unwrap());
            db.flush().unwrap();
        }
        let version = db.default_keyspace().inner.view.load().version.clone();
        assert_eq!(version.tables.len(), 20);
        let bytes: u64 = version.tables.iter().map(|table| table.meta.file_bytes).sum();
        let plan = Plan {
            inputs: Vec::new(),
            output_level: 1,
            output: OutputRun::New,
            range: KeyRange {
                smallest: "".as_bytes().into(),
                largest: version.tables[0].meta.largest.clone(),
            },
            max_table_bytes: bytes / 10,
            borders: Vec::new(),
            edges: Vec::new(),
            reason: Reason::Level0Runs,
            work: Work::Merge,
            guard_bits: None,
            bottommost: true,
            stretch: None,
        };
        // Separators are shorter than keys.
        let number = |key: &KeyBytes| format!("{:0<4}", str::from_utf8(key).unwrap()).parse().unwrap();
        let cuts: Vec<f64> = cuts(&version.tables, &plan, 4).iter().map(number).collect();
        let near = |(cut, goal): (&f64, f64)| (cut - goal).abs() < 500.0;
        assert!(cuts.len() == 3 && cuts.iter().zip([1000.0, 2000.0, 3000.0]).all(near), "{cuts:?}");
    }

    fn anchors(list: &[(&str, u64, bool)]) -> Vec<Anchor> {
        list.iter()
            .map(|&(key, bytes, border)| Anchor { key: key.as_bytes().into(), bytes, border })
            .collect()
    }

    fn chosen(list: &[(&str, u64, bool)], parts: u64) -> Vec<String> {
        let total = list.iter().map(|a| a.1).sum();
        let cuts = choose(&anchors(list), total, parts);
        cuts.iter().map(|key| String::from_utf8(key.to_vec()).unwrap()).collect()
    }

    #[test]
    fn parts_have_about_equal_bytes() {
        let even: Vec<(String, u64)> =
            (0..100).map(|i| (format!("k{i:02}"), if i == 0 { 0 } else { 10 })).collect();
        let list: Vec<_> = even.iter().map(|(key, bytes)| (&key[..], *bytes, false)).collect();
        assert_eq!(chosen(&list, 2), ["k49"]);
        assert_eq!(chosen(&list, 3), ["k33", "k66"]);
        // All bytes are in the first tenth.
        let uneven: Vec<_> =
            even.iter().enumerate().map(|(i, (k, b))| (&k[..], b * u64::from(i < 10), false)).collect();
        assert!(chosen(&uneven, 2)[0].as_str() < "k10");
    }

    #[test]
    fn a_cut_is_at_a_border_if_one_is_near() {
        let list = [
            ("a", 0, false),
            ("b", 10, false),
            ("c", 10, true),
            ("d", 10, false),
            ("e", 10, false),
            ("f", 10, false),
        ];
        assert_eq!(chosen(&list, 2), ["c"]);
        let far = [("a", 0, true), ("b", 10, true), ("d", 20, false), ("e", 20, false), ("f", 10, true)];
        assert_eq!(chosen(&far, 2), ["d"]);
    }

    #[test]
    fn a_single_key_is_never_split() {
        assert!(chosen(&[("a", 0, false), ("a", 100, false), ("a", 100, true)], 8).is_empty());
        let cuts = chosen(&[("a", 0, false), ("b", 1000, false), ("c", 10, false)], 8);
        assert!(cuts.is_sorted_by(|a, b| a < b) && !cuts.contains(&"a".to_owned()), "{cuts:?}");
    }

    #[test]
    fn parts_are_disjoint_and_cover_all_keys() {
        let key = |s: &str| KeyBytes::from(s.as_bytes());
        let parts = PartRange::between(&[key("f"), key("m")]);
        assert_eq!(parts.len(), 3);
        assert_eq!((&parts[0].start, parts[0].end.clone()), (&key(""), Some(key("f"))));
        assert!(parts.windows(2).all(|pair| pair[0].end.as_ref() == Some(&pair[1].start)));
        assert_eq!(parts[2].end, None);
        assert_eq!(PartRange::between(&[]), [PartRange { start: key(""), end: None }]);
    }
}
