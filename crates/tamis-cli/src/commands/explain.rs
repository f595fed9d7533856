//! `tamis explain`: shows the path of one read.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Value, json};
use tamis::explain::{
    ExplainBlock, ExplainOutcome, ExplainStep, ExplainUnits, Explanation, FilterAnswer, RangeExplanation,
    RangeSource,
};
use tamis_bench::report::{Align, Table, bytes, counted, grouped};

use crate::args::{DbArgs, KEYS_HELP, KeyspaceArgs};
use crate::failure::{Failure, Outcome};
use crate::json as to_json;
use crate::output::Out;
use crate::text::{self, small};

/// Show the path of one read: digest, memtables, runs, filters, blocks, outcome; or what a scan
/// touches
#[derive(Args)]
#[command(after_help = KEYS_HELP, after_long_help = format!("{KEYS_HELP}\n\nThe read is really executed. The exit code is 0 whether or not the key has a \
    value.\n\nExample:\n  tamis explain --db ./tamis-demo 'FR/Auvergne-Rhône-Alpes/Lyon@45.74906,4.84789'"))]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    db: DbArgs,
    #[command(flatten)]
    keyspace: KeyspaceArgs,
    /// The key
    key: OsString,
    /// Explain a scan of up to N entries from the key on instead
    #[arg(long, value_name = "N")]
    scan: Option<usize>,
    /// The key is hexadecimal
    #[arg(long)]
    hex: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: ExplainArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let key = text::typed(&args.key, args.hex)?;
    let keyspace = args.keyspace.open_read_only(&args.db)?;
    // Show the filters that a long-open database would probe, not those this opening has loaded so
    // far.
    keyspace.database().wait_for_filters()?;
    if let Some(limit) = args.scan {
        let explanation = keyspace.explain_range(&key[..].., limit)?;
        if args.json {
            out.json(&range_object(&explanation, args.hex))?;
        } else {
            let page = range_page(&explanation, args.hex, out.width());
            out.page(&page, INDENT)?;
        }
        return Ok(Outcome::Done);
    }
    let explanation = keyspace.explain_get(&key)?;
    if args.json {
        out.json(&object(&explanation, args.hex))?;
    } else {
        let page = page(&explanation, args.hex, out.width());
        out.page(&page, INDENT)?;
    }
    Ok(Outcome::Done)
}

/// Where texts begin behind the words at the left.
const INDENT: usize = 9;

/// The position of the units column, if there is one: after the filter's answer.
const UNITS_COLUMN: usize = 4;

/// Returns the explanation as text.
fn page(explanation: &Explanation, hex: bool, width: usize) -> String {
    use Align::{Left, Right};
    let key = if hex { text::hex(&explanation.key) } else { text::printable(&explanation.key) };
    let mut page =
        format!("key      {key}\ndigest   {:016x}\nfilter   {}\n\n", explanation.digest, explanation.filter);
    let mut columns = vec![
        ("step", Right),
        ("where", Left),
        ("table", Left),
        ("filter", Left),
        ("block", Left),
        ("hash index", Left),
        ("key", Left),
    ];
    // Most databases have no elastic filters, and the lines are long enough.
    let elastic = explanation.steps.iter().any(|step| units_of(step).is_some());
    if elastic {
        columns.insert(UNITS_COLUMN, ("elastic filter", Left));
    }
    let mut table = Table::new(&columns).named_by(2);
    for (i, step) in explanation.steps.iter().enumerate() {
        let mut row = vec![(i + 1).to_string()];
        row.extend(cells(step));
        if elastic {
            row.insert(UNITS_COLUMN, units_of(step).map_or_else(|| "-".to_owned(), units_text));
        }
        table.row(row);
    }
    page.push_str(&table.within(width));
    page.push_str(&format!("\noutcome  {}\n", outcome_text(&explanation.outcome)));
    let cost = &explanation.cost;
    page.push_str(&format!(
        "cost     {}, {} probed, {}, {} ({})\n",
        counted(cost.digests, "digests"),
        counted(cost.filter_probes, "filters"),
        counted(cost.false_positives, "false positives"),
        counted(cost.block_reads, "blocks"),
        bytes(cost.bytes_read)
    ));
    if cost.merge_operands > 0 {
        page.push_str(&format!("merged   {}\n", counted(cost.merge_operands, "operands")));
    }
    page
}

/// Returns the explanation of a scan as text.
fn range_page(explanation: &RangeExplanation, hex: bool, width: usize) -> String {
    use Align::{Left, Right};
    let shown = |key: &[u8]| if hex { text::hex(key) } else { text::printable(key) };
    let mut page = format!("from     {}\nfilter   {}\n\n", shown(&explanation.start), explanation.filter);
    let mut table = Table::new(&[
        ("where", Left),
        ("in range", Left),
        ("seeks", Right),
        ("blocks", Right),
        ("read", Right),
    ]);
    for source in &explanation.sources {
        table.row(match source {
            RangeSource::Memtable { active, entries, in_range } => vec![
                if *active { "memtable, active".to_owned() } else { "memtable, full".to_owned() },
                format!("{} of {}", grouped(*in_range), counted(*entries, "entries")),
                "-".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
            ],
            RangeSource::Run { level, run, tables, seeks, blocks, bytes: read } => vec![
                format!("level {level}, run {run}"),
                counted(*tables as u64, "tables"),
                grouped(*seeks),
                grouped(*blocks),
                bytes(*read),
            ],
            _ => vec!["something that this program does not know".to_owned()],
        });
    }
    page.push_str(&table.within(width));
    let last = explanation.last.as_deref().map_or_else(String::new, |key| format!(", up to {}", shown(key)));
    let cost = &explanation.cost;
    page.push_str(&format!("\noutcome  {}{last}\n", counted(explanation.entries, "entries")));
    page.push_str(&format!(
        "cost     {} opened, {} and {} stepped over, {} probed, {} ({})\n",
        counted(cost.runs_opened, "runs"),
        counted(cost.versions_skipped, "versions"),
        counted(cost.tombstones_skipped, "deleted keys"),
        counted(cost.range_probes, "range filters"),
        counted(cost.block_reads, "blocks"),
        bytes(cost.bytes_read)
    ));
    page
}

fn range_object(explanation: &RangeExplanation, hex: bool) -> Value {
    let source = |source: &RangeSource| match source {
        RangeSource::Memtable { active, entries, in_range } => {
            json!({ "kind": "memtable", "active": active, "entries": entries, "in_range": in_range })
        }
        RangeSource::Run { level, run, tables, seeks, blocks, bytes } => json!({
            "kind": "run", "level": level, "run": run, "tables": tables, "seeks": seeks, "blocks": blocks,
            "bytes": bytes,
        }),
        _ => json!({ "kind": "unknown" }),
    };
    let mut object = serde_json::Map::new();
    to_json::bytes(&mut object, "start", &explanation.start, hex);
    if let Some(last) = &explanation.last {
        to_json::bytes(&mut object, "last", last, hex);
    }
    object.insert("filter".into(), explanation.filter.clone().into());
    object.insert("sources".into(), explanation.sources.iter().map(source).collect());
    object.insert("entries".into(), explanation.entries.into());
    object.insert("cost".into(), to_json::read_cost(&explanation.cost));
    Value::Object(object)
}

fn cells(step: &ExplainStep) -> [String; 6] {
    match step {
        ExplainStep::Memtable { active, entries, filter, found } => [
            if *active { "memtable, active".to_owned() } else { "memtable, full".to_owned() },
            counted(*entries, "entries"),
            filter_text(filter).to_owned(),
            "-".to_owned(),
            "-".to_owned(),
            found_text(*found, filter),
        ],
        ExplainStep::RecordCache { found } => {
            let found = if *found { "found" } else { "not found" };
            ["record cache", "-", "-", "-", "-", found].map(str::to_owned)
        }
        ExplainStep::Run { level, run, table, filter, units: _, block, found } => [
            format!("level {level}, run {run}"),
            table.map_or_else(|| "no table covers it".to_owned(), |table| format!("{table:06}")),
            filter_text(filter).to_owned(),
            block.as_ref().map_or_else(|| "-".to_owned(), block_text),
            block.as_ref().map_or("-", |block| block.hash_index).to_owned(),
            found_text(*found, filter),
        ],
        _ => ["-"; 6].map(str::to_owned),
    }
}

/// Returns the segment that was probed, if the filter is elastic.
fn units_of(step: &ExplainStep) -> Option<&ExplainUnits> {
    match step {
        ExplainStep::Run { units, .. } => units.as_ref(),
        _ => None,
    }
}

/// Segments are counted from 1 here: "segment 8 of 8" is the last one.
fn units_text(units: &ExplainUnits) -> String {
    format!(
        "segment {} of {}, {} of {} units, hotness {}",
        grouped(units.segment as u64 + 1),
        grouped(units.segments as u64),
        units.enabled,
        units.units,
        small(units.hotness)
    )
}

fn block_text(block: &ExplainBlock) -> String {
    let from = if block.from_cache { "cached" } else { "read" };
    format!("{} B at {}, {from}", grouped(block.bytes), grouped(block.offset))
}

fn filter_text(answer: &FilterAnswer) -> &'static str {
    match answer {
        FilterAnswer::NotAsked => "-",
        FilterAnswer::No => "no",
        FilterAnswer::Maybe => "maybe",
    }
}

fn found_text(found: bool, filter: &FilterAnswer) -> String {
    match (found, filter) {
        (true, _) => "found".to_owned(),
        (false, FilterAnswer::Maybe) => "absent: a false positive".to_owned(),
        (false, _) => "absent".to_owned(),
    }
}

fn outcome_text(outcome: &ExplainOutcome) -> String {
    match outcome {
        ExplainOutcome::Found { seq, value_bytes } => {
            format!("found: a value of {}, written as number {}", bytes(*value_bytes as u64), grouped(*seq))
        }
        ExplainOutcome::Deleted { seq } => format!("absent: deleted by write number {}", grouped(*seq)),
        ExplainOutcome::DeletedByRange { seq } => {
            format!("absent: deleted by the range delete with write number {}", grouped(*seq))
        }
        ExplainOutcome::Expired { horizon } => {
            format!("absent: expired, like everything before write number {}", grouped(*horizon))
        }
        ExplainOutcome::Absent => "absent: never written, or its tombstone was dropped".to_owned(),
        _ => "unknown to this program".to_owned(),
    }
}

fn object(explanation: &Explanation, hex: bool) -> Value {
    let steps: Vec<Value> = explanation.steps.iter().map(step_object).collect();
    let outcome = match &explanation.outcome {
        ExplainOutcome::Found { seq, value_bytes } => {
            json!({ "kind": "found", "seq": seq, "value_bytes": value_bytes })
        }
        ExplainOutcome::Deleted { seq } => json!({ "kind": "deleted", "seq": seq }),
        ExplainOutcome::DeletedByRange { seq } => json!({ "kind": "deleted_by_range", "seq": seq }),
        ExplainOutcome::Expired { horizon } => json!({ "kind": "expired", "horizon": horizon }),
        ExplainOutcome::Absent => json!({ "kind": "absent" }),
        _ => json!({ "kind": "unknown" }),
    };
    let mut object = serde_json::Map::new();
    to_json::bytes(&mut object, "key", &explanation.key, hex);
    object.insert("digest".into(), format!("{:016x}", explanation.digest).into());
    object.insert("filter".into(), explanation.filter.clone().into());
    object.insert("steps".into(), steps.into());
    object.insert("outcome".into(), outcome);
    object.insert("cost".into(), to_json::read_cost(&explanation.cost));
    Value::Object(object)
}

fn step_object(step: &ExplainStep) -> Value {
    let answer = |filter: &FilterAnswer| match filter {
        FilterAnswer::NotAsked => Value::Null,
        FilterAnswer::No => "no".into(),
        FilterAnswer::Maybe => "maybe".into(),
    };
    match step {
        ExplainStep::Memtable { active, entries, filter, found } => json!({
            "kind": "memtable", "active": active, "entries": entries, "filter": answer(filter), "found": found,
        }),
        ExplainStep::RecordCache { found } => json!({ "kind": "record_cache", "found": found }),
        ExplainStep::Run { level, run, table, filter, units, block, found } => json!({
            "kind": "run", "level": level, "run": run, "table": table, "filter": answer(filter), "found": found,
            "elastic": units.as_ref().map(|units| json!({
                "segment": units.segment, "segments": units.segments, "units_enabled": units.enabled,
                "units": units.units, "hotness": units.hotness,
            })),
            "block": block.as_ref().map(|block| json!({
                "offset": block.offset, "bytes": block.bytes, "from_cache": block.from_cache,
                "hash_index": block.hash_index,
            })),
        }),
        _ => json!({ "kind": "unknown" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use tamis::Options;
    use tamis::io::MemFs;
    use tamis::options::FilterPolicy;

    /// Returns the explanation of a get that reads one block of a table with an elastic filter.
    fn real() -> Explanation {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.keyspace.filter = FilterPolicy::elastic();
        let db = options.open("db").unwrap();
        db.put("k\n", "value").unwrap();
        db.flush().unwrap();
        db.explain_get("k\n").unwrap()
    }

    fn block_and_units() -> (ExplainBlock, ExplainUnits) {
        let explanation = real();
        let Some(ExplainStep::Run { block: Some(mut block), units: Some(mut units), .. }) =
            explanation.steps.last().cloned()
        else {
            panic!("{explanation:?}")
        };
        (block.offset, block.bytes, block.from_cache, block.hash_index) = (8192, 4090, false, "hit");
        (units.segment, units.segments, units.enabled, units.units, units.hotness) = (2, 8, 2, 6, 0.0012);
        (block, units)
    }

    fn example() -> Explanation {
        let (block, _) = block_and_units();
        let run = |level, table, filter, block, found| ExplainStep::Run {
            level,
            run: 5,
            table,
            filter,
            units: None,
            block,
            found,
        };
        let mut example = real();
        example.digest = 0xAB;
        example.steps = vec![
            ExplainStep::Memtable { active: true, entries: 1234, filter: FilterAnswer::No, found: false },
            run(0, None, FilterAnswer::NotAsked, None, false),
            run(0, Some(9), FilterAnswer::Maybe, Some(block), false),
            run(1, Some(7), FilterAnswer::Maybe, Some(block), true),
        ];
        example.outcome = ExplainOutcome::Found { seq: 77, value_bytes: 2048 };
        (example.cost.digests, example.cost.filter_probes) = (1, 2);
        example
    }

    #[test]
    fn the_page_shows_each_step_with_its_filter_and_block() {
        let page = page(&example(), false, usize::MAX);
        for part in [
            "key      k\\n\n",
            "digest   00000000000000ab\n",
            "1,234 entries",
            "no table covers it",
            "maybe   4,090 B at 8,192, read  hit         absent: a false positive\n",
            "found: a value of 2.0 KiB, written as number 77",
            "1 digest, 2 filters probed",
        ] {
            assert!(page.contains(part), "{part:?} in\n{page}");
        }
    }

    #[test]
    fn a_scan_shows_what_it_touches_in_each_source() {
        let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
        options.keyspace.auto_compaction = false;
        let db = options.open("db").unwrap();
        ["a", "b", "c"].iter().for_each(|key| db.put(key, "value").unwrap());
        db.flush().unwrap();
        db.delete("b").unwrap();
        let explanation = db.explain_range("a".., 10).unwrap();
        let page = range_page(&explanation, false, usize::MAX);
        for part in [
            "from     a\n",
            "1 of 1 entry",
            "1 table",
            "2 entries, up to c\n",
            "1 run opened",
            "1 version and 1 deleted",
        ] {
            assert!(page.contains(part), "{part:?} in\n{page}");
        }
        let object = range_object(&explanation, true);
        assert_eq!((&object["start_hex"], &object["last_hex"]), (&json!("61"), &json!("63")));
        assert_eq!(object["sources"][1]["seeks"], 1);
        assert_eq!(object["cost"]["tombstones_skipped"], 1);
    }

    #[test]
    fn a_run_with_an_elastic_filter_shows_its_segment_and_units() {
        let mut example = example();
        let ExplainStep::Run { units, .. } = &mut example.steps[2] else { panic!("a run") };
        *units = Some(block_and_units().1);
        let page = page(&example, false, usize::MAX);
        let part = "maybe   segment 3 of 8, 2 of 6 units, hotness 0.0012  4,090 B at 8,192";
        assert!(page.contains(part) && page.contains("elastic filter"), "{page}");
        assert!(page.contains("no      -               "), "a memtable has none: {page}");
        let elastic = &object(&example, false)["steps"][2]["elastic"];
        let expected =
            json!({ "segment": 2, "segments": 8, "units_enabled": 2, "units": 6, "hotness": 0.0012 });
        assert_eq!(elastic, &expected);
    }

    #[test]
    fn without_elastic_filters_they_are_not_mentioned() {
        assert!(!page(&example(), false, usize::MAX).contains("elastic"));
        assert_eq!(object(&example(), false)["steps"][3]["elastic"], Value::Null);
    }

    #[test]
    fn the_json_object_holds_the_same() {
        let object = object(&example(), true);
        assert_eq!(object["key_hex"], "6b0a");
        assert_eq!(object["steps"][1]["table"], Value::Null);
        assert_eq!(object["steps"][3]["block"]["offset"], 8192);
        assert_eq!(object["outcome"]["kind"], "found");
        assert_eq!(object["cost"]["digests"], 1);
    }
}
