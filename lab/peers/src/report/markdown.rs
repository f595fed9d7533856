//! The report as (GitHub) Markdown: for the repository, and a short form for its front page.

use tamis_lab::documents::{commands, escaped, table_line};

use super::context::Context;
use super::summary::{Suite, Summary, is_tamis};
use super::tables::{self, Grid, Tally};
use super::text::{self, HOW_TO_READ, Labels};

/// The suites of the short form.
const MAIN: [&str; 5] = ["compacted", "settled", "runs", "load", "ycsb"];

/// Returns the whole report.
pub(super) fn report(summary: &Summary, context: &Context) -> String {
    let mut out = String::from("# tamis compared with other engines\n\n");
    out += &format!("{}, on {}.\n\n", escaped(&context.date), escaped(&context.machine.describe()));
    out += &commands(&context.commands);
    for paragraph in HOW_TO_READ {
        out += &format!("* {}\n", escaped(paragraph));
    }
    out += "\n## Summary\n\n";
    for system in summary.systems.iter().filter(|system| is_tamis(&system.name)) {
        let sentence = Tally::of(summary, &system.name).sentence();
        out += &format!("* {}: {}\n", escaped(&system.name), escaped(&sentence));
    }
    out.push('\n');
    if let Some(sentence) = tables::absent(summary) {
        out += &format!("{}\n\n", escaped(sentence));
    }
    for grid in [tables::overview(summary), tables::missed(summary)] {
        if !grid.rows.is_empty() {
            titled(&mut out, &grid);
        }
    }
    for suite in &summary.suites {
        self::suite(&mut out, suite);
    }
    out += "## Systems and their options\n\n";
    for system in &summary.systems {
        out += &format!("### {} {}\n\n", escaped(&system.name), escaped(&system.versions.join(", ")));
        for (options, suites) in &system.options {
            titled(&mut out, &tables::options(options, suites));
        }
    }
    ended(out)
}

/// Returns the main rows only: settled, many runs, load and YCSB, one thread, medians.
pub(super) fn short(summary: &Summary, context: &Context) -> String {
    let mut out = String::new();
    for name in MAIN {
        let Some(suite) = summary.suites.iter().find(|suite| suite.name == name) else { continue };
        let grid = tables::main(suite, true);
        if grid.rows.is_empty() {
            continue;
        }
        let unit = suite.headline().title();
        out += &format!("**{}**, {}:\n\n", escaped(&text::suite(name)), escaped(unit));
        table(&mut out, &grid);
    }
    out += &format!(
        "Medians over the rounds, {}, on {}. {}\n\n",
        escaped(&context.date),
        escaped(&context.machine.describe()),
        escaped(HOW_TO_READ[3])
    );
    out += &commands(&context.commands);
    ended(out)
}

fn suite(out: &mut String, suite: &Suite) {
    *out += &format!("## {}\n\n", escaped(&text::suite(&suite.name)));
    *out += &format!("{}.\n\n", escaped(Labels::of(&suite.groups).common()));
    titled(out, &tables::main(suite, false));
    below(out, suite);
    if !out.ends_with("\n\n") {
        out.push('\n');
    }
    for grid in tables::latencies(suite).iter().chain(&tables::costs(suite)) {
        titled(out, grid);
    }
}

/// Appends what belongs below a suite's main table: where puts are when they return, and what was refused.
pub(super) fn below(out: &mut String, suite: &Suite) {
    for line in tables::durability(suite) {
        *out += &format!("* Where a put is when it returns: {}\n", escaped(&line));
    }
    for line in tables::refusals(suite) {
        *out += &format!("* {}\n", escaped(&line));
    }
}

/// Appends a table with its caption.
pub(crate) fn titled(out: &mut String, grid: &Grid) {
    *out += &format!("**{}**\n\n", escaped(&grid.caption));
    table(out, grid);
}

/// Appends a table without its caption.
pub(super) fn table(out: &mut String, grid: &Grid) {
    *out += &table_line(grid.head.iter().map(|cell| escaped(cell)));
    let rule = |at: usize| if at < grid.names { "---" } else { "---:" };
    *out += &table_line((0..grid.head.len()).map(|at| rule(at).to_owned()));
    for row in &grid.rows {
        let stressed = |(at, cell): (usize, &String)| match row.strong.contains(&at) {
            true => format!("**{}**", escaped(cell)),
            false => escaped(cell),
        };
        *out += &table_line(row.cells.iter().enumerate().map(stressed));
    }
    out.push('\n');
}

/// Ends text with a single newline.
pub(crate) fn ended(out: String) -> String {
    out.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use tamis_lab::documents::one_line;

    use super::*;
    use crate::report::synthetic::{comparison, context, rows_of};

    /// Counts the cells of a table's line: the parts between bars that are not escaped.
    fn columns(line: &str) -> usize {
        let mut escaped = false;
        let bars = line.chars().filter(|c| {
            let bar = *c == '|' && !escaped;
            escaped = *c == '\\' && !escaped;
            bar
        });
        bars.count() - 1
    }

    fn tables_are_whole(text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let mut tables = 0;
        for table in lines.split(|line| !line.starts_with('|')).filter(|lines| !lines.is_empty()) {
            assert!(table.len() >= 2 && table[1].trim_matches(['|', '-', ':', ' ']).is_empty(), "{table:?}");
            assert!(table.iter().all(|line| columns(line) == columns(table[0])), "{table:?}");
            tables += 1;
        }
        assert!(tables > 0, "{text}");
    }

    #[test]
    fn tables_have_as_many_cells_as_columns() {
        let summary = Summary::of(&comparison());
        tables_are_whole(&report(&summary, &context()));
        tables_are_whole(&short(&summary, &context()));
    }

    #[test]
    fn the_short_form_has_the_main_rows_of_one_thread() {
        let mut rows = comparison();
        rows.extend(rows_of("cold", "seek", &[("tamis", &[1.0]), ("rocksdb", &[2.0])]));
        let summary = Summary::of(&rows);
        let short = short(&summary, &context());
        let count = |what: &str| short.lines().filter(|line| line.starts_with(what)).count();
        assert_eq!((count("| get-empty |"), count("| get-empty"), count("| seek |")), (2, 2, 2));
        assert!(!short.contains("thread ") && !short.contains("Cold") && !short.contains('('), "{short}");
        assert!(short.contains("| 0.81× leveldb | 2.85× leveldb |"), "{short}");
        let long = report(&summary, &context());
        assert!(long.contains("get-empty, 2 threads") && long.contains("## Cold"));
    }

    #[test]
    fn hostile_names_are_escaped() {
        let hostile = "<script>|a``` [x](y) *b* _c_ d_e \\\n\r\n# \u{1b} ~~z~~";
        let mut rows =
            rows_of(hostile, hostile, &[("tamis", &[1.0]), ("rocksdb", &[2.0]), (hostile, &[3.0])]);
        rows[0].options.insert(hostile.to_owned(), hostile.to_owned());
        let mut context = context();
        context.commands = vec![hostile.to_owned(), "`````".to_owned()];
        let text = report(&Summary::of(&rows), &context);
        tables_are_whole(&text.replace(&one_line(hostile), ""));
        assert!(text.contains("\n``````sh\n") && text.contains("\n``````\n"), "{text}");
        let outside: String = text.split("``````").step_by(2).collect();
        for markup in ["<", "](", "\u{1b}", "\r"] {
            assert!(!outside.replace("\\]", "").contains(markup), "{markup}: {outside}");
        }
        let shown = "&lt;script&gt;\\|a\\`\\`\\` \\[x\\](y) \\*b\\* \\_c\\_ d_e \\\\   #   \\~\\~z\\~\\~";
        assert!(outside.contains(shown), "{outside}");
    }
}
