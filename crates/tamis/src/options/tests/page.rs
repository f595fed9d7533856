//! `docs/options.md` is made of the table. `UPDATE_DOCUMENTS=1` rewrites it.

use std::fmt::Write;
use std::path::Path;

use super::super::table::Field;
use super::*;

const HEAD: &str = "\
# Options

Every option has a default that works. In Rust, each option is a method. In any other language, it is set by its name
and text, and on the command line with `-o NAME=VALUE`. `tamis options NAME` prints what this page says. `zstd` needs a
build with the feature of that name.

```rust
use tamis::{Durability, KeyspaceOptions, Options};

let keyspace = KeyspaceOptions::default().blob_threshold(4 << 10);
let options = Options::default().cache_bytes(256 << 20).durability(Durability::Sync).keyspace(keyspace);
let db = options.open(\"my-data\")?;
```

* An option of a keyspace is a field of `options.keyspace` in Rust. Among a database's options, it has the prefix
  `keyspace.`: `tamis load --db ./data -o keyspace.filter=ribbon words.tsv`. Python has no prefix:
  `tamis.open('data', filter='ribbon')`. A keyspace created later has options of its own.
* In text, a size is in bytes or has a unit: `64 MiB` is 64 × 1,024 × 1,024 bytes, `64 MB` is 64,000,000. A time has a
  unit too: `250 ms`, `2 h`.
* A file of lines `name = value` is read by `Options::from_text`; `#` begins a comment, and the last line wins.
* The file `OPTIONS` in a database's directory has the options of its last opening for writing. `Db::open` takes
  none from it; `Options::stored_in` does.
* **Every `tamis` command that opens a database reads `OPTIONS`**, and so runs with your program's options. A command
  that writes stores its own `-o` there; later commands then use that, too. If the file is damaged, commands fail until
  you [remove it](failures.md#damage).
* Options of the database change at the next opening. [Changing options](running.md#changing-options) says which
  options of a keyspace can change, and when.
* Some options are for experiments only. They need the feature `measure`, and [the
  lab](../lab/README.md#options-for-experiments) lists them. The `tamis` program has that feature, so `tamis options`
  prints them, too. Four values of [`filter`](#filter) also need it.

";

const SIZE: &str = "a size in bytes, or with KiB, MiB, GiB or TiB (1 KiB is 1,024 bytes), or kB, MB, GB or TB (1 kB is 1,000)";

fn section<S: 'static>(fields: &[Field<S>], class: OptionClass, page: &mut String) {
    for field in fields.iter().filter(|field| !field.measured && field.class == class) {
        let (name, default) = (field.name, field.default);
        // The head of the page explains sizes, and a build may lack `zstd`.
        let takes =
            (field.expected)().replace(SIZE, "a size").replace(" (not in this build: zstd)", ", zstd");
        let takes = folded(&format!("Default `{default}`; takes {takes}."));
        write!(page, "#### {name}\n\n{takes}\n\n{}\n\n", folded(field.doc)).expect("a text");
    }
}

/// Breaks a paragraph into lines of at most 120 columns.
fn folded(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("a line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > 120 {
            lines.push(word.to_owned());
        } else {
            let space = if last.is_empty() { "" } else { " " };
            *last += space;
            *last += word;
        }
    }
    lines.join("\n")
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let sections = [
        (OptionClass::Basic, "Basic", "Look at these first."),
        (
            OptionClass::Tuning,
            "Tuning",
            "These fit a database to its workload, its machine and its operators. Two of them matter for every server:\n\
             `memtable_budget_bytes` and `read_mode`. [Running tamis in production](running.md) says why.",
        ),
        (OptionClass::Expert, "Expert", "The default suits nearly everyone."),
    ];
    for (class, title, what) in sections {
        write!(page, "## {title}\n\n{what}\n\n### {title}: the database\n\n").expect("a text");
        section(Options::FIELDS, class, &mut page);
        write!(page, "### {title}: a keyspace\n\n").expect("a text");
        section(KeyspaceOptions::FIELDS, class, &mut page);
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

#[test]
fn the_page_of_options_is_made_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/options.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCUMENTS").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let found = std::fs::read_to_string(&path).expect("the page of options");
    assert!(found == page, "docs/options.md is not what the table says: run with UPDATE_DOCUMENTS=1");
}
