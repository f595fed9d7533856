//! Figures and their results as plain text.

use std::io::{self, Write};

use tamis_bench::report::{bytes, duration};
use tamis_lab::figures::results::Loaded;
use tamis_lab::figures::{About, Needs, Verdict};

/// Returns the heading of a figure: paper, place and title, as `GRF, Figure 10: Gets of absent keys`.
pub(super) fn heading(about: &About) -> String {
    match about.place {
        "" => format!("{}: {}", about.paper.name(), about.title),
        place => format!("{}, {place}: {}", about.paper.name(), about.title),
    }
}

/// Formats the time and disk space needed.
pub(super) fn needs(needs: Needs) -> String {
    let disk = if needs.disk_bytes == 0 { "no disk".to_owned() } else { bytes(needs.disk_bytes) };
    format!("{}, {disk}", duration(needs.seconds as f64))
}

/// Formats a claim as one line, and its note as another.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let Verdict { claim, paper, ours, note, finding, .. } = verdict;
    let here = if ours.is_empty() { "not measured" } else { ours };
    let mut text = format!("{:<6}  paper: {paper}  here: {here}  {claim}\n", finding.name());
    if !note.is_empty() {
        text += &format!("        {note}\n");
    }
    text
}

/// Prints everything about a figure's results: setting, tables, verdicts.
pub(super) fn results(loaded: &Loaded, out: &mut impl Write) -> io::Result<()> {
    let Loaded { about, setup, view, .. } = loaded;
    writeln!(out, "{}  {}", about.name, heading(about))?;
    writeln!(out, "{}", setup.setting)?;
    for sentence in &setup.scaled {
        writeln!(out, "* {sentence}")?;
    }
    if setup.build != "release" {
        writeln!(out, "* This is a debug build: counts are right, times mean nothing.")?;
    }
    for sheet in &view.sheets {
        writeln!(out, "\n{}", sheet.title)?;
        out.write_all(sheet.to_text().as_bytes())?;
    }
    if !view.verdicts.is_empty() {
        writeln!(out)?;
    }
    view.verdicts.iter().try_for_each(|found| out.write_all(verdict(found).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_one_line_with_both_numbers() {
        let open = Verdict::open("It is faster", "2–3×");
        assert_eq!(verdict(&open), "open    paper: 2–3×  here: not measured  It is faster\n");
        let found = open.with("2.4×", Some(true), None, None).noting("On a slow disk.");
        let text = "holds   paper: 2–3×  here: 2.4×  It is faster\n        On a slow disk.\n";
        assert_eq!(verdict(&found), text);
    }

    #[test]
    fn needs_are_formatted_with_units() {
        assert_eq!(needs(Needs { seconds: 90, disk_bytes: 3 << 30, memory_bytes: 0 }), "90 s, 3.0 GiB");
        assert_eq!(needs(Needs { seconds: 7200, disk_bytes: 0, memory_bytes: 0 }), "2.0 h, no disk");
    }
}
