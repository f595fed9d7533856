//! Parts of the project's documents that are made from kept results.
//!
//! A document has a line `<!-- figures: lab/results/NAME KIND -->`, then what was made, then `<!-- end of figures -->`. KIND is one of
//!
//! * `counts`: how many claims hold, paper by paper, and how many hold at every scale;
//! * `claims PAPER`: all claims of a paper (`hash-sharing`, `elastic`, `grf`, `ours`), with the paper's number and ours;
//! * `failures`: the claims that fail, then the open ones, with the reasons that verdicts give;
//! * `runs`: machines, days, commits and commands;
//! * `table EXPERIMENT SCALE N [COLUMN=CELL[|CELL]…]… [columns=COLUMN[,COLUMN]…]`: the N-th table of an experiment; of it, if it says so, the
//!   rows alone that have one of the cells in the column, and the columns alone that are named. `_` stands for a space;
//! * `picture EXPERIMENT SCALE N [DIR]`: its N-th picture, which is written to `DIR/EXPERIMENT-SCALE-N.svg` beside the document; DIR is
//!   `pictures` if it is not given.
//!
//! A test compares all of them with their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::report::by_paper;
use super::results::{self, Loaded};
use super::{Finding, Paper, Scale, Sheet, Verdict, draw};
use crate::documents::{DocumentError, Marker, Section, commands, escaped, table_line};

const MARKER: Marker = Marker("figures");

/// Directory of pictures, beside the document, where it names no other.
const PICTURES: &str = "pictures";

/// All findings, the best ones first, with the words of the counts.
const FINDINGS: [(Finding, &str); 4] = [
    (Finding::Holds, "hold"),
    (Finding::Partly, "partly"),
    (Finding::Fails, "fail"),
    (Finding::Open, "open"),
];

/// Writes the parts of all documents below `root` again, with their pictures, and returns the files that have changed.
///
/// # Errors
///
/// A document asks for something unknown, or results are missing or damaged. Nothing is written then.
pub fn refresh(root: &Path) -> Result<Vec<PathBuf>, DocumentError> {
    MARKER.refresh(root, &mut section(&mut BTreeMap::new()))
}

/// Returns the documents and pictures that differ from the results, with what they should contain.
///
/// # Errors
///
/// As for [`refresh`].
pub fn outdated(root: &Path) -> Result<Vec<(PathBuf, String)>, DocumentError> {
    MARKER.outdated(root, &mut section(&mut BTreeMap::new()))
}

/// Results that were read, by their directory.
type Known = BTreeMap<PathBuf, Vec<Loaded>>;

fn section(known: &mut Known) -> impl FnMut(&Path, &str) -> Result<Section, String> {
    |dir, kind| {
        if !known.contains_key(dir) {
            let present = results::load_all(dir).map_err(|error| error.to_string())?;
            if let Some(reason) = present.unreadable.first() {
                return Err(reason.clone());
            }
            if let Some(unfinished) = present.loaded.iter().find(|loaded| !loaded.is_complete()) {
                return Err(format!("{} at scale {} is unfinished", unfinished.about.name, unfinished.scale));
            }
            known.insert(dir.to_owned(), present.loaded);
        }
        made(&known[dir], kind)
    }
}

fn made(loaded: &[Loaded], kind: &str) -> Result<Section, String> {
    let words: Vec<&str> = kind.split_whitespace().collect();
    match words[..] {
        ["counts"] => Ok(counts(loaded).into()),
        ["claims", paper] => {
            let paper: Paper = paper.parse().map_err(|error| format!("{error}"))?;
            Ok(claims(loaded, paper).into())
        }
        ["failures"] => Ok(failures(loaded).into()),
        ["runs"] => Ok(runs(loaded).into()),
        ["table", name, scale, number, ref parts @ ..] => {
            let found = found(loaded, name, scale)?;
            let sheet =
                nth(&found.view.sheets, number).ok_or_else(|| format!("{name} has no table {number}"))?;
            Ok(sheet_text(&excerpt(sheet, parts)?).into())
        }
        ["picture", name, scale, number] => picture(loaded, (name, scale, number), PICTURES),
        ["picture", name, scale, number, dir] => picture(loaded, (name, scale, number), dir),
        _ => Err(format!("nothing is made of `{kind}`")),
    }
}

/// Returns what the parts of a kind `table` leave of a table. Every one of them must name something.
fn excerpt(sheet: &Sheet, parts: &[&str]) -> Result<Sheet, String> {
    let mut left = sheet.clone();
    let mut chosen: Option<Vec<usize>> = None;
    for part in parts {
        let part = part.replace('_', " ");
        let (name, values) =
            part.split_once('=').ok_or_else(|| format!("`{part}` is not COLUMN=CELL or columns=COLUMN"))?;
        let column = |name: &str| {
            let at = sheet.columns.iter().position(|(column, _)| column.replace('\n', " ") == name);
            at.ok_or_else(|| format!("the table `{}` has no column `{name}`", sheet.title))
        };
        if name == "columns" {
            chosen = Some(values.split(',').map(column).collect::<Result<_, _>>()?);
            continue;
        }
        let at = column(name)?;
        let values: Vec<&str> = values.split('|').collect();
        if let Some(value) = values.iter().find(|value| sheet.rows.iter().all(|row| row[at] != **value)) {
            return Err(format!("the table `{}` has no row with `{value}` in `{name}`", sheet.title));
        }
        left.rows.retain(|row| values.contains(&row[at].as_str()));
    }
    if left.rows.is_empty() {
        return Err(format!("no row of the table `{}` has all of {parts:?}", sheet.title));
    }
    if let Some(chosen) = chosen {
        left.columns = chosen.iter().map(|&at| sheet.columns[at].clone()).collect();
        for row in &mut left.rows {
            *row = chosen.iter().map(|&at| row[at].clone()).collect();
        }
    }
    Ok(left)
}

fn picture(
    loaded: &[Loaded],
    (name, scale, number): (&str, &str, &str),
    dir: &str,
) -> Result<Section, String> {
    if !Path::new(dir).components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("pictures are below the document, and {dir} is not"));
    }
    let found = found(loaded, name, scale)?;
    let panel = nth(&found.view.panels, number).ok_or_else(|| format!("{name} has no picture {number}"))?;
    let sides = draw::Sides::of(&found.view.panels);
    let svg = draw::svg(panel, &sides);
    let path = format!("{dir}/{name}-{scale}-{number}.svg");
    Ok(Section {
        text: format!("![{}: {}]({path})", escaped(found.about.title), escaped(&panel.title)),
        files: vec![(path.into(), svg)],
    })
}

fn found<'l>(loaded: &'l [Loaded], name: &str, scale: &str) -> Result<&'l Loaded, String> {
    let scale: Scale = scale.parse().map_err(|error| format!("{error}"))?;
    let found = loaded.iter().find(|loaded| loaded.about.name == name && loaded.scale == scale);
    found.ok_or_else(|| format!("there are no results of `{name}` at scale {scale}"))
}

/// Returns the element that a number from 1 names.
fn nth<'t, T>(all: &'t [T], number: &str) -> Option<&'t T> {
    all.get(number.parse::<usize>().ok()?.checked_sub(1)?)
}

/// Returns a table: names of columns, of which the first `words` have words, and cells in Markdown.
fn table(columns: &[(&str, bool)], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = table_line(columns.iter().map(|(name, _)| escaped(name)));
    out += &table_line(columns.iter().map(|(_, words)| if *words { "---" } else { "---:" }.to_owned()));
    out.extend(rows.into_iter().map(table_line));
    out
}

fn sheet_text(sheet: &Sheet) -> String {
    let columns: Vec<(&str, bool)> =
        sheet.columns.iter().map(|(name, words)| (name.as_str(), *words)).collect();
    let rows = sheet.rows.iter().map(|row| row.iter().map(|cell| escaped(cell)).collect());
    format!("**{}**\n\n{}", escaped(&sheet.title), table(&columns, rows))
}

/// Names an experiment, and its scale unless that is the default.
fn name(loaded: &Loaded) -> String {
    match loaded.scale {
        Scale::Default => format!("`{}`", loaded.about.name),
        scale => format!("`{}`, {scale}", loaded.about.name),
    }
}

fn counts(loaded: &[Loaded]) -> String {
    let mut columns = vec![("", true), ("experiments", false), ("claims", false)];
    columns.extend(FINDINGS.map(|(_, word)| (word, false)));
    let row = |title: &str, figures: &[&Loaded]| {
        let verdicts: Vec<&Verdict> = figures.iter().flat_map(|figure| &figure.view.verdicts).collect();
        let of = |finding| verdicts.iter().filter(|verdict| verdict.finding == finding).count();
        let mut row = vec![escaped(title), figures.len().to_string(), verdicts.len().to_string()];
        row.extend(FINDINGS.map(|(finding, _)| of(finding).to_string()));
        row
    };
    let papers = by_paper(loaded);
    let mut rows: Vec<Vec<String>> =
        papers.iter().map(|(paper, figures)| row(paper.name(), figures)).collect();
    rows.push(row("all", &loaded.iter().collect::<Vec<_>>()));
    rows.push(once(loaded));
    table(&columns, rows)
}

/// Returns a row of counts that has each claim once, with the worst of its findings at all scales.
fn once(loaded: &[Loaded]) -> Vec<String> {
    let mut worst = BTreeMap::new();
    for figure in loaded {
        for verdict in &figure.view.verdicts {
            let known = worst.entry((figure.about.name, &verdict.claim)).or_insert(verdict.finding);
            *known = verdict.finding.max(*known);
        }
    }
    let experiments: BTreeSet<&str> = worst.keys().map(|(name, _)| *name).collect();
    let mut row =
        vec!["all, each claim once".to_owned(), experiments.len().to_string(), worst.len().to_string()];
    row.extend(FINDINGS.map(|(finding, _)| worst.values().filter(|of| **of == finding).count().to_string()));
    row
}

fn claims(loaded: &[Loaded], paper: Paper) -> String {
    let columns = [("experiment", true), ("claim", true), ("paper", true), ("here", true), ("finding", true)];
    let figures = loaded.iter().filter(|figure| figure.about.paper == paper);
    let rows = figures.flat_map(|figure| {
        figure.view.verdicts.iter().map(|verdict| {
            let Verdict { claim, paper, ours, finding, .. } = verdict;
            let finding = match finding {
                Finding::Fails => format!("**{}**", finding.name()),
                _ => finding.name().to_owned(),
            };
            vec![name(figure), escaped(claim), escaped(paper), escaped(ours), finding]
        })
    });
    table(&columns, rows)
}

fn failures(loaded: &[Loaded]) -> String {
    let columns = [
        ("experiment", true),
        ("claim", true),
        ("paper", true),
        ("here", true),
        ("finding", true),
        ("note", true),
    ];
    let of = |wanted| {
        loaded.iter().flat_map(move |figure| {
            let verdicts = figure.view.verdicts.iter().filter(move |verdict| verdict.finding == wanted);
            verdicts.map(move |Verdict { claim, paper, ours, finding, note, .. }| {
                let texts: [&str; 5] = [claim, paper, ours, finding.name(), note];
                std::iter::once(name(figure)).chain(texts.map(escaped)).collect()
            })
        })
    };
    table(&columns, of(Finding::Fails).chain(of(Finding::Open)))
}

/// Returns machines, days, commits and commands. Experiments that differ in nothing but their names share a command.
fn runs(loaded: &[Loaded]) -> String {
    // Where, and with what; the names before the rest of the command.
    type Runs = Vec<(String, Vec<(String, Vec<&'static str>)>)>;
    let mut all: Runs = Vec::new();
    for figure in loaded {
        let setup = &figure.setup;
        let day = setup.began.split('T').next().unwrap_or_default();
        let commit =
            if setup.commit.is_empty() { String::new() } else { format!(", commit {}", setup.commit) };
        let build = if setup.build == "release" { String::new() } else { format!(", {} build", setup.build) };
        let place = format!("{day}, {}{commit}{build}", setup.machine.describe());
        let named = format!("experiment run {}", figure.about.name);
        // A command of another form stands for itself.
        let (rest, names) = match setup.command.split_once(&named) {
            Some((_, rest)) => (rest.to_owned(), vec![figure.about.name]),
            None => (setup.command.clone(), Vec::new()),
        };
        let at = all.iter().position(|(known, _)| *known == place).unwrap_or_else(|| {
            all.push((place, Vec::new()));
            all.len() - 1
        });
        let commands = &mut all[at].1;
        match commands.iter_mut().find(|(known, _)| *known == rest) {
            Some((_, known)) => known.extend(names),
            None => commands.push((rest, names)),
        }
    }
    let mut out = String::new();
    for (place, lines) in all {
        let lines: Vec<String> = lines
            .into_iter()
            .map(|(rest, names)| match names[..] {
                [] => rest,
                _ => format!("tamis-lab experiment run {}{rest}", names.join(" ")),
            })
            .collect();
        out += &format!("{}:\n\n{}", escaped(&place), commands(&lines));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::run::tests::Steps;
    use crate::figures::{Custom, run};
    use tamis_bench::NoProgress;

    #[test]
    fn the_projects_documents_are_those_of_their_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let outdated = outdated(&root).unwrap();
        let paths: Vec<&PathBuf> = outdated.iter().map(|(path, _)| path).collect();
        assert!(paths.is_empty(), "{paths:?} differ from their results: run `tamis-lab experiment tables`");
    }

    /// A name with `…` at its end stands for all that begin so.
    #[test]
    fn each_claim_that_fails_or_is_open_has_a_cause() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reports/results.md");
        let page = std::fs::read_to_string(page).unwrap();
        let section = |from: &str| page.split_once(from).unwrap().1.split("\n#").next().unwrap();
        // The names in backquotes of the first cells.
        let names_of = |section: &str| -> Vec<String> {
            let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
            cells.flat_map(|cell| cell.split('`').step_by(2).map(str::to_owned)).collect()
        };
        let failing = names_of(section("## What fails, and what is open\n"));
        let explained = names_of(section("### Why\n"));
        let is_explained = |name: &String| {
            explained.iter().any(|known| match known.strip_suffix('…') {
                Some(start) => name.starts_with(start),
                None => known == name,
            })
        };
        let unexplained: Vec<&String> = failing.iter().filter(|name| !is_explained(name)).collect();
        assert!(failing.len() > 5 && unexplained.is_empty(), "without a cause: {unexplained:?}");
    }

    /// Returns results of an experiment of two steps, whose claim holds.
    fn results(dir: &Path) -> Loaded {
        let report = run::run(&Steps::new(2), Scale::Default, &Custom::default(), dir, false, &NoProgress);
        report.unwrap().loaded
    }

    #[test]
    fn claims_are_counted_and_listed_with_both_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let holds = results(dir.path());
        let mut fails = Loaded { scale: Scale::Paper, ..holds.clone() };
        fails.view.verdicts[0].finding = Finding::Fails;
        fails.view.verdicts[0].note = "Too | few.".to_owned();
        let mut open = holds.clone();
        open.view.verdicts[0].finding = Finding::Open;
        let listed = made(&[open, fails.clone()], "failures").unwrap().text;
        assert!(listed.find("| fails |") < listed.find("| open |"), "{listed}");
        let loaded = [holds, fails];
        let text = |kind: &str| made(&loaded, kind).unwrap().text;
        assert_eq!(
            text("counts"),
            "|  | experiments | claims | hold | partly | fail | open |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n\
             | Beyond the papers | 2 | 2 | 1 | 0 | 1 | 0 |\n\
             | all | 2 | 2 | 1 | 0 | 1 | 0 |\n\
             | all, each claim once | 1 | 1 | 0 | 0 | 1 | 0 |\n"
        );
        let claims = text("claims ours");
        assert!(claims.contains("\n| `test-steps` | y grows | 10× | 10× | holds |\n"), "{claims}");
        assert!(
            claims.ends_with("\n| `test-steps`, paper | y grows | 10× | 10× | **fails** |\n"),
            "{claims}"
        );
        assert_eq!(text("claims grf").lines().count(), 2, "no claim of another paper");
        let failures = text("failures");
        assert!(
            failures.ends_with("| `test-steps`, paper | y grows | 10× | 10× | fails | Too \\| few. |\n"),
            "{failures}"
        );
        assert_eq!(failures.lines().count(), 3);
    }

    #[test]
    fn runs_with_the_same_options_share_a_command() {
        let dir = tempfile::tempdir().unwrap();
        let mut one = results(dir.path());
        one.setup.commit = "0123456789ab".to_owned();
        let mut other = one.clone();
        other.about.name = "test-others";
        other.setup.command = other.setup.command.replace("test-steps", "test-others");
        let mut small = one.clone();
        small.setup.command = small.setup.command.replace("default", "small");
        let made = made(&[one.clone(), other, small], "runs").unwrap().text;
        let day = &one.setup.began[..10];
        assert!(made.starts_with(day) && made.contains(", commit 0123456789ab"), "{made}");
        let lines = "tamis-lab experiment run test-steps test-others --scale default\n\
                     tamis-lab experiment run test-steps --scale small\n";
        assert!(made.contains(lines), "{made}");
        assert_eq!(made.matches("```sh").count(), 1, "one machine, one day, one commit");
    }

    #[test]
    fn pictures_and_tables_are_those_of_the_view() {
        let dir = tempfile::tempdir().unwrap();
        let mut loaded = results(dir.path());
        let mut sheet = Sheet::new("Costs", &["<filter", "ns"]);
        sheet.row(["a_b_".to_owned(), "12".to_owned()]);
        loaded.view.sheets.push(sheet);
        let of = |kind: &str| made(std::slice::from_ref(&loaded), kind);
        let table = of("table test-steps default 1").unwrap().text;
        assert_eq!(table, "**Costs**\n\n| filter | ns |\n| --- | ---: |\n| a_b\\_ | 12 |\n");
        let picture = of("picture test-steps default 1").unwrap();
        assert_eq!(picture.text, "![Steps: Y over X!](pictures/test-steps-default-1.svg)");
        let drawn = draw::svg(&loaded.view.panels[0], &draw::Sides::of(&loaded.view.panels));
        assert_eq!(picture.files, [("pictures/test-steps-default-1.svg".into(), drawn)]);
        let elsewhere = of("picture test-steps default 1 docs/pictures").unwrap();
        assert_eq!(elsewhere.text, "![Steps: Y over X!](docs/pictures/test-steps-default-1.svg)");
        let mut wide = Sheet::new("Costs", &["<filter", "<at", "ns", "bits\n/key"]);
        for (filter, at, ns) in [("a_b", "6 bits", "12"), ("c", "6 bits", "9"), ("c", "10 bits", "7")] {
            wide.row([filter, at, ns, "6.0"].map(str::to_owned));
        }
        loaded.view.sheets.push(wide);
        let of = |kind: &str| made(std::slice::from_ref(&loaded), kind);
        let table = of("table test-steps default 2 at=6_bits columns=ns,filter,bits_/key").unwrap().text;
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines,
            [
                "**Costs**",
                "",
                "| ns | filter | bits /key |",
                "| ---: | --- | ---: |",
                "| 12 | a_b | 6.0 |",
                "| 9 | c | 6.0 |"
            ]
        );
        let table = of("table test-steps default 2 at=6_bits|10_bits filter=c").unwrap().text;
        assert_eq!(table.lines().count(), 6);
        for (kind, what) in [
            ("table test-steps default 2 at=8_bits", "no row with `8 bits` in `at`"),
            ("table test-steps default 2 at=6_bits|8_bits", "no row with `8 bits` in `at`"),
            ("table test-steps default 2 ns=12 at=10_bits", "no row of the table `Costs` has all"),
            ("table test-steps default 2 for=10_bits", "no column `for`"),
            ("table test-steps default 2 columns=ns,µs", "no column `µs`"),
            ("table test-steps default 2 ns", "is not COLUMN=CELL"),
            ("picture test-steps default 1 ../x", "below the document"),
            ("picture test-steps default 1 /x", "below the document"),
            ("table test-steps default 3", "no table 3"),
            ("table test-steps default 0", "no table 0"),
            ("picture test-steps default x", "no picture x"),
            ("picture test-steps small 1", "no results of `test-steps` at scale small"),
            ("picture test-steps tiny 1", "tiny"),
            ("claims chemistry", "chemistry"),
            ("poem", "poem"),
            ("", "nothing is made"),
        ] {
            let error = of(kind).unwrap_err();
            assert!(error.contains(what), "{kind}: {error}");
        }
    }

    #[test]
    fn results_of_unknown_experiments_are_refused() {
        let root = tempfile::tempdir().unwrap();
        results(&root.path().join("lab/results/x"));
        std::fs::create_dir(root.path().join("docs")).unwrap();
        let document = format!("{}\n{}\n", MARKER.begin("lab/results/x", "counts"), MARKER.end());
        std::fs::write(root.path().join("docs/a.md"), document).unwrap();
        let error = refresh(root.path()).unwrap_err().to_string();
        assert!(error.contains("no experiment is called `test-steps`"), "{error}");
    }
}
