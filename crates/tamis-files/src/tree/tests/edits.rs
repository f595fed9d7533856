use std::fmt::Write;

use tamis_base::epochs::EpochMap;
use tamis_base::meta::TableMeta;
use tamis_testkit::script::{self, Case};

use super::drawing::{range, show_range};
use crate::tree::edit::{Ages, VersionEdit};
use crate::tree::state::ManifestState;
use crate::tree::times::Sample;

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}

/// A table with these keys; it holds the writes `seqs` (`from-to`) of flush `epoch`.
fn table(id: &str, keys: &str, seqs: &str, epoch: &str) -> TableMeta {
    let (smallest, largest) = range(keys);
    let (from, to) = seqs.split_once('-').expect("FROM-TO");
    TableMeta {
        id: number(id),
        epochs: EpochMap::flush(smallest.clone(), number(epoch)),
        smallest,
        largest,
        file_bytes: 1000,
        entries: 10,
        deletes: 0,
        range_tombstones: 0,
        raw_bytes: 500,
        min_seq: number(from),
        max_seq: number(to),
        extra: Default::default(),
    }
}

/// The edit whose parts are lines.
fn edit(lines: &[&str]) -> VersionEdit {
    let mut edit = VersionEdit::default();
    for line in lines {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["create", "keyspace", id, name, ref options @ ..] => {
                edit.create_keyspaces.push((number(id), name.into(), options.join(" ")));
            }
            ["keyspace", id, "options", ref options @ ..] => {
                edit.set_options.push((number(id), options.join(" ")));
            }
            ["keyspace", id, "log", log] => edit.log_floor.push((number(id), number(log))),
            ["keyspace", id, "epoch", epoch] => edit.next_epochs.push((number(id), number(epoch))),
            ["keyspace", id, "expired", expired, "since", since] => {
                edit.ages.push((number(id), Ages { since: number(since), expired: number(expired) }));
            }
            [
                "keyspace",
                id,
                "add",
                level,
                "run",
                run,
                "table",
                table_id,
                keys,
                "writes",
                seqs,
                "flush",
                epoch,
            ] => {
                let level = number(level.strip_prefix('L').expect("a level"));
                edit.added.push((number(id), level, number(run), table(table_id, keys, seqs, epoch)));
            }
            ["keyspace", id, "remove", "table", table] => edit.removed.push((number(id), number(table))),
            ["drop", "keyspace", id] => edit.drop_keyspaces.push(number(id)),
            ["log", n] => edit.floor = Some(number(n)),
            ["next", "file", n] => edit.next_file = Some(number(n)),
            ["next", "run", n] => edit.next_run = Some(number(n)),
            ["next", "keyspace", n] => edit.next_keyspace = Some(number(n)),
            ["next", "epoch", n] => edit.next_epoch = Some(number(n)),
            ["last", "write", n] => edit.last_seq = Some(number(n)),
            ["time", time, "write", seq] => {
                edit.times.push(Sample { time: number(time), seq: number(seq) });
            }
            ["hotness", "of", table, hotness] => edit.hotness.push((number(table), hotness.into())),
            _ => panic!("no part of an edit: {line}"),
        }
    }
    edit
}

fn show(state: &ManifestState) -> String {
    let mut text = format!(
        "next: file {}, run {}, keyspace {}; last write {}; logs needed from {}\n",
        state.next_file,
        state.next_run,
        state.next_keyspace,
        state.last_seq,
        state.log_floor()
    );
    for (id, keyspace) in state.keyspaces.iter() {
        let name = &keyspace.name;
        write!(text, "keyspace {id} {name}: log {}, next epoch {}", keyspace.log_floor, keyspace.next_epoch)
            .expect("text");
        if let Some(ages) = keyspace.ages {
            write!(text, ", expired {} since {}", ages.expired, ages.since).expect("text");
        }
        if !keyspace.options.is_empty() {
            write!(text, ", options {}", keyspace.options).expect("text");
        }
        text += "\n";
        for ((level, run), tables) in &keyspace.runs {
            let table = |table: &std::sync::Arc<TableMeta>| {
                let hotness = state
                    .hotness(table.id)
                    .map(|hotness| format!(" hotness {}", String::from_utf8_lossy(hotness)));
                format!(
                    "table {} {}{}",
                    table.id,
                    show_range(&table.smallest, &table.largest),
                    hotness.unwrap_or_default()
                )
            };
            let tables: Vec<String> = tables.iter().map(table).collect();
            writeln!(text, "  L{level} run {run}: {}", tables.join(", ")).expect("text");
        }
    }
    let times: Vec<_> = state.times.samples().iter().map(|s| format!("{} write {}", s.time, s.seq)).collect();
    if !times.is_empty() {
        writeln!(text, "times: {}", times.join(", ")).expect("text");
    }
    text
}

/// Every edit goes through its bytes, and every state through the edit that rebuilds it. A refused
/// edit leaves the state of the script as it was.
fn execute(state: &mut ManifestState, case: &Case<'_>) -> String {
    match case.command {
        "new" => *state = ManifestState::new("default", ""),
        "edit" => {
            let edit = edit(&case.input);
            let mut bytes = Vec::new();
            edit.encode(&mut bytes);
            let read = VersionEdit::decode(&bytes);
            let mut next = state.clone();
            let applied = next.apply(&edit);
            if read.is_err() || applied.is_err() {
                let reader =
                    read.err().map(|error| format!("the reader of its bytes refuses: {}\n", error.0));
                let applied = applied.err().map(|error| format!("the state refuses: {error}\n"));
                return reader.into_iter().chain(applied).collect();
            }
            assert_eq!(read, Ok(edit));
            let mut bytes = Vec::new();
            next.snapshot().encode(&mut bytes);
            let mut rebuilt = ManifestState::default();
            rebuilt.apply(&VersionEdit::decode(&bytes).expect("an edit")).expect("a state");
            assert_eq!(rebuilt, next);
            *state = next;
        }
        _ => panic!("no such command"),
    }
    show(state)
}

fn run(name: &str) {
    let mut state = ManifestState::default();
    let path = format!("{}/testdata/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    script::run(path, |case| execute(&mut state, case));
}

#[test]
fn edits_script() {
    run("edits");
}

#[test]
fn refused_edits_script() {
    run("edits-refused");
}
