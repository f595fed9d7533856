//! Documents that show commands with their outputs: the program prints what they say.
//!
//! In a block that begins with "```console", a line `$ tamis …` is a command, run in the root of
//! the repository, with `\` at its end if it continues; the lines up to the next command or the end
//! of the block are its output. A line `…` stands for any lines. `UPDATE_DOCUMENTS=1` rewrites
//! outputs that have no such line.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{run, tamis};

/// A command in a document, and what is said to be its output.
struct Shown {
    words: Vec<String>,
    output: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("the document")
}

fn shown(text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line == "```console") {
        let mut is_command = false;
        for line in lines.by_ref().take_while(|line| *line != "```") {
            if is_command || line.starts_with("$ tamis ") {
                if !is_command {
                    all.push(Shown { words: Vec::new(), output: String::new() });
                }
                is_command = line.ends_with('\\');
                let line = line.trim_start_matches("$ tamis ").trim_end_matches('\\');
                all.last_mut().expect("a command").words.extend(words(line));
            } else {
                let last = all.last_mut().expect("a block of this kind begins with a command");
                last.output += line;
                last.output.push('\n');
            }
        }
    }
    all
}

/// Splits at blanks outside of double quotes.
pub(crate) fn words(line: &str) -> Vec<String> {
    let parts = line.split('"').enumerate();
    parts
        .flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

fn said(words: &[String]) -> String {
    let mut command = tamis();
    command.args(words).current_dir(root());
    run(command, b"").ok()
}

/// Whether `text` is what `pattern` says, in which a line `…` stands for any lines.
fn fits(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("…\n");
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut is_open = false;
    for part in parts {
        is_open = part.is_empty();
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

#[test]
fn the_commands_of_a_document_print_what_it_says() {
    let name = "bindings/kafka-streams/docs/scale-out.md";
    let mut text = document(name);
    let commands = shown(&text);
    assert!(commands.len() >= 2, "{name} shows its commands");
    for Shown { words, output } in commands {
        let now = said(&words);
        if std::env::var_os("UPDATE_DOCUMENTS").is_some() && !output.contains("…\n") {
            text = text.replace(&output, &now);
            std::fs::write(root().join(name), &text).expect("the document is written");
        } else {
            assert!(fits(&now, &output), "{name} shows\n{output}but {words:?} prints\n{now}");
        }
    }
}

#[test]
fn patterns_leave_out_lines_and_nothing_else() {
    for (pattern, is) in [
        ("a\nb\nc\n", true),
        ("a\n…\nc\n", true),
        ("…\nc\n", true),
        ("a\n…\n", true),
        ("a\nb\n", false),
        ("b\n…\n", false),
        ("a\n…\nd\n", false),
        ("a\n…\nb\n", false),
        ("…\na\n…\nx\n…\n", false),
        ("", false),
    ] {
        assert_eq!(fits("a\nb\nc\n", pattern), is, "{pattern:?}");
    }
}

const GIB: f64 = (1_u64 << 30) as f64;

/// The README's database `words` is made in a temporary directory.
#[test]
fn the_commands_of_the_readme_print_what_it_says() {
    let place = crate::support::Place::new();
    let commands = shown(&document("README.md"));
    assert!(commands.len() >= 4, "the README shows the program");
    for Shown { words, output } in commands {
        let elsewhere = |word: &String| if word == "words" { place.path("words") } else { word.clone() };
        let now = said(&words.iter().map(elsewhere).collect::<Vec<_>>());
        assert!(fits(&now, &output), "README.md shows\n{output}but {words:?} prints\n{now}");
    }
}

/// The tables of the document follow from what the program says for one partition.
#[test]
fn the_sizes_of_a_cluster_follow_from_those_of_a_partition() {
    let text = document("bindings/kafka-streams/docs/scale-out.md");
    let mut words = shown(&text).swap_remove(0).words;
    assert!(
        words.windows(2).any(|pair| pair == ["--keys", "1e8"]),
        "the first command is that of a partition"
    );
    words.push("--json".to_owned());
    let advice: Value = serde_json::from_str(&said(&words)).expect("an object");
    let number = |name: &str| advice[name].as_f64().expect("a number");
    let now = advice["ranking"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|c| c["current"] == true)
        .expect("the present one");
    let (partitions, instances, copies) = (1000.0, 100.0, 2.0);
    let stores = partitions * copies / instances;
    let entries = number("entries");
    // As the cost model has it: eight bytes beside key and value.
    let data = entries * (number("key_bytes") + number("value_bytes") + 8.0);
    let filters = now["filter_bytes"].as_f64().expect("a number");
    let amplification = now["write_amplification"].as_f64().expect("a number");
    let advised = advice["ranking"][0]["write_amplification"].as_f64().expect("a number");
    // What all stores share, and an eighth more of memtables; an index of 15 bytes for each block
    // of 4 KiB.
    let (memtables, read_memory, heap) = (0.25 * 9.0 / 8.0, 0.25, 4.0);
    let index = data / 4096.0 * 15.0;
    let memory = stores * (filters + index) / GIB + memtables + read_memory + heap;
    let updates = 10_000.0;
    let device = |times: f64| format!("{:.0} MB/s", copies * updates * data / entries * times / 1e6);
    let rows = [
        ("keys of the cluster", format!("{:.0e}", entries * partitions)),
        ("stores of an instance", format!("{stores}")),
        ("data of a store", format!("{:.1} GiB", data / GIB)),
        ("data of an instance", format!("{:.0} GiB", stores * data / GIB)),
        ("data of the cluster", format!("{:.1} TiB", instances * stores * data / GIB / 1024.0)),
        ("filters of a store", format!("{:.0} MiB", filters / GIB * 1024.0)),
        ("filters of an instance", format!("{:.2} GiB", stores * filters / GIB)),
        ("indexes of an instance", format!("{:.2} GiB", stores * index / GIB)),
        ("memtables of an instance", format!("{memtables:.2} GiB")),
        ("memory of an instance", format!("{memory:.1} GiB")),
        ("bytes written for a byte", format!("{amplification:.1}")),
        ("device writes of an instance", device(amplification)),
        ("bytes written for a byte, as advised", format!("{advised:.1}")),
        ("device writes of an instance, as advised", device(advised)),
    ];
    for (what, value) in rows {
        let row = format!("| {what} | {value} |");
        assert!(text.lines().any(|line| line.starts_with(&row)), "{row} is not in the document");
    }
}
