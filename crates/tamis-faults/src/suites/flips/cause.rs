//! What was hit, as well as it can be told from the code that ran and the bytes around the flip.

use super::outcome::{AFTER, OPEN};
use crate::strike::Place;

/// The data or the work that a flip hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Cause {
    /// Operations in the encoding of batches: in the batch itself, or on their way into the log.
    Batch,
    /// A node of the memtable's skip list, with its key and a short value.
    Node,
    /// A value that the memtable keeps apart from its node.
    MemtableValue,
    /// The code that inserts into the memtable or searches it.
    MemtableCode,
    /// Entries of a block that has no checksum yet, or of a decoded one that was checked before.
    Block,
    /// The code that builds tables and blob files.
    TableCode,
    /// The code that merges versions for a flush or a compaction.
    MergeCode,
    /// A filter or an index, or the code that builds it: gets miss what scans find.
    Filter,
    /// The code of reads.
    ReadCode,
    /// The code of the log and of commits.
    LogCode,
    Other,
}

impl Cause {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Cause::Batch => "bytes of a batch",
            Cause::Node => "memtable: node with key and short value",
            Cause::MemtableValue => "memtable: long value",
            Cause::MemtableCode => "memtable: code",
            Cause::Block => "bytes of a block, unsealed or already checked",
            Cause::TableCode => "building tables and blob files: code",
            Cause::MergeCode => "flush and compaction: code",
            Cause::Filter => "filter or index",
            Cause::ReadCode => "reads: code",
            Cause::LogCode => "log and commit: code",
            Cause::Other => "unknown",
        }
    }
}

/// Parts of the paths of sources, the most specific first.
const CODE: [(&str, Cause); 25] = [
    ("tamis/src/batch.rs", Cause::Batch),
    ("tamis-files/src/wal/ops.rs", Cause::Batch),
    ("tamis/src/memtable/", Cause::MemtableCode),
    ("tamis-filter/", Cause::Filter),
    ("table/filter.rs", Cause::Filter),
    ("table/units/", Cause::Filter),
    ("table/key_list/", Cause::Filter),
    ("tamis-files/src/images/", Cause::Filter),
    ("compaction/filters.rs", Cause::Filter),
    ("tamis/src/select/", Cause::Filter),
    ("builder.rs", Cause::TableCode),
    ("blob/writer.rs", Cause::TableCode),
    ("compaction/writer.rs", Cause::TableCode),
    ("compaction/blob_output.rs", Cause::TableCode),
    ("compaction/sink.rs", Cause::TableCode),
    ("tamis/src/compaction/", Cause::MergeCode),
    ("tamis/src/read/merge", Cause::MergeCode),
    ("tamis-files/src/wal/", Cause::LogCode),
    ("tamis/src/log.rs", Cause::LogCode),
    ("tamis/src/write/", Cause::LogCode),
    ("tamis/src/session/", Cause::LogCode),
    ("tamis-files/src/table/", Cause::ReadCode),
    ("tamis-files/src/blob/reader.rs", Cause::ReadCode),
    ("tamis/src/read/", Cause::ReadCode),
    ("tamis/src/jobs/", Cause::MergeCode),
];

/// Tells what was hit. `functions` are those of the stopped thread, innermost first; `details` what
/// was wrong.
pub(super) fn tell(place: &Place, functions: &[String], details: &[String]) -> Cause {
    // Scans ask no filter, and search no index for each key.
    let wrong = || details.iter().filter(|what| what.starts_with(OPEN) || what.starts_with(AFTER));
    let only_gets =
        wrong().all(|what| (what.contains(" get of `") || what.contains(" get: ")) && what.contains("lost"));
    if only_gets && wrong().next().is_some() {
        return Cause::Filter;
    }
    match place {
        Place::Heap { around, at, .. } => of_memory(around, *at),
        Place::Register { .. } | Place::Vector { .. } => of_code(functions),
    }
}

fn of_code(functions: &[String]) -> Cause {
    let of =
        |function: &String| CODE.iter().find(|(part, _)| function.contains(part)).map(|(_, cause)| *cause);
    functions.iter().find_map(of).unwrap_or(Cause::Other)
}

/// A value in memory: it begins with its key and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Value<'b> {
    start: usize,
    key: &'b [u8],
    number: u32,
}

/// Finds the values in memory: `KEY#NNNNNN.…`.
fn values(bytes: &[u8]) -> Vec<Value<'_>> {
    const DIGITS: usize = 6;
    let marks = (0..bytes.len()).filter(|at| bytes[*at] == b'#' && bytes.get(at + DIGITS + 1) == Some(&b'.'));
    let value = |mark: usize| {
        let number = std::str::from_utf8(&bytes[mark + 1..mark + 1 + DIGITS]).ok()?.parse().ok()?;
        // The two lengths of keys.
        [(13, &b"key"[..]), (9, &b"s"[..])].into_iter().find_map(|(len, name)| {
            let start = mark.checked_sub(len)?;
            let key = &bytes[start..mark];
            key.starts_with(name).then_some(Value { start, key, number })
        })
    };
    marks.filter_map(value).collect()
}

/// The bytes of a node before its key, at most for usual heights.
const NODE_BYTES: usize = 32 + 4 * 8;

fn of_memory(bytes: &[u8], at: usize) -> Cause {
    let values = values(bytes);
    let Some(next) = values.iter().position(|value| value.start + value.key.len() > at) else {
        return values
            .last()
            .map_or_else(|| without_values(bytes, at), |last| of_value(bytes, &values, last));
    };
    // The hit byte is in the value before or in what leads to this one.
    let near = if next > 0 && values[next].start > at { &values[next - 1] } else { &values[next] };
    of_value(bytes, &values, near)
}

fn of_value(bytes: &[u8], values: &[Value<'_>], value: &Value<'_>) -> Cause {
    let before = &bytes[..value.start];
    if before.ends_with(value.key) {
        return Cause::Node;
    }
    // A batch has the value's length between key and value: one byte, or two.
    if (1..=2)
        .any(|skip| before.len().checked_sub(skip).is_some_and(|end| before[..end].ends_with(value.key)))
    {
        return Cause::Batch;
    }
    // Values of a memtable follow each other as they were written, those of a block by key.
    let neighbor = values.windows(2).find(|pair| pair.contains(value));
    match neighbor {
        Some([a, b]) if b.number == a.number + 1 && a.key > b.key => Cause::MemtableValue,
        Some([a, b]) if b.number != a.number + 1 && a.key < b.key => Cause::Block,
        Some([a, b]) if b.number > a.number && b.number - a.number <= 2 => Cause::MemtableValue,
        _ => Cause::Block,
    }
}

/// Nodes of long values have only a key; they begin with its first eight bytes in reverse.
fn without_values(bytes: &[u8], at: usize) -> Cause {
    let near = &bytes[at.saturating_sub(2 * NODE_BYTES)..(at + 2 * NODE_BYTES).min(bytes.len())];
    if near.windows(3).any(|part| part == b"yek") { Cause::Node } else { Cause::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(parts: &[&[u8]], hit: usize) -> Cause {
        let around = parts.concat();
        let at = parts[..hit].iter().map(|part| part.len()).sum();
        let place = Place::Heap { address: 0, bit: 0, around, at, pages: 1 };
        tell(&place, &[], &["open: small scan, entry 1: value of `a`".to_owned()])
    }

    #[test]
    fn memory_is_told_by_what_surrounds_a_value() {
        let node: [&[u8]; 3] = [&[0, 7, 0, 0], b"s00-00217s00-00217#000871.", b"\x01\x02"];
        assert_eq!(heap(&node, 1), Cause::Node);
        let batch: [&[u8]; 3] = [b"\x01\x02\x09", b"s00-00217", b"\x19s00-00217#000871.abc"];
        assert_eq!(heap(&batch, 2), Cause::Batch);
        let long: [&[u8]; 3] = [b"key2c32-00048#000362.vcncets", b"mm", b"key0c32-00012#000363.ab"];
        assert_eq!(heap(&long, 1), Cause::MemtableValue);
        let block: [&[u8]; 3] = [b"key2c32-00048#000362.vcncets", b"mm", b"key3c32-00012#000014.ab"];
        assert_eq!(heap(&block, 1), Cause::Block);
        assert_eq!(heap(&[b"12-84cyek\x01\x09", b"\x04", b"key48"], 1), Cause::Node);
        assert_eq!(heap(&[&[0; 64], &[1], &[0; 64]], 1), Cause::Other);
    }

    #[test]
    fn code_is_told_by_its_innermost_known_function() {
        let place = Place::Register { name: "rax", bit: 1 };
        let functions = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let wrong = ["after reopening: wide scan: lost `key`".to_owned()];
        let names = functions(&[
            "in libc",
            "insert (tamis/src/memtable/skiplist.rs:7)",
            "commit (tamis/src/write/commit.rs:9)",
        ]);
        assert_eq!(tell(&place, &names, &wrong), Cause::MemtableCode);
        assert_eq!(tell(&place, &functions(&["main"]), &wrong), Cause::Other);
    }

    #[test]
    fn what_only_gets_miss_was_denied_by_a_filter() {
        let place = Place::Register { name: "rax", bit: 1 };
        let lost =
            ["open: small get of `s1`: lost".to_owned(), "after reopening: small get: lost `s1`".to_owned()];
        assert_eq!(tell(&place, &[], &lost), Cause::Filter);
    }
}
