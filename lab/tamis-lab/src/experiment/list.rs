//! `tamis-lab experiment list` and `show`: the experiments and their costs.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tamis_bench::report::{Align, Table};
use tamis_cli::failure::{Failure, Outcome};
use tamis_lab::figures::{Custom, Figure, Paper, Scale, results};

use super::{OUT, select, text};

#[derive(Args)]
pub(super) struct ListArgs {
    /// List only figures of one paper: hash-sharing, elastic or grf, or ours, which are of none
    #[arg(long, value_name = "PAPER")]
    paper: Option<Paper>,
    /// Print one JSON object per figure
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(super) struct ShowArgs {
    /// Name of the figure
    name: String,
    /// Scale of the setting: small, default or paper
    #[arg(long, value_name = "SCALE", default_value_t)]
    scale: Scale,
    /// Directory to look for results in
    #[arg(long, value_name = "DIR", default_value = OUT)]
    out: PathBuf,
}

pub(super) fn list(
    args: &ListArgs,
    figures: &[Box<dyn Figure>],
    out: &mut impl Write,
) -> Result<Outcome, Failure> {
    let mut first = true;
    for paper in Paper::ALL {
        let of: Vec<&dyn Figure> = figures
            .iter()
            .map(|figure| figure.as_ref())
            .filter(|figure| figure.about().paper == paper)
            .collect();
        if of.is_empty() || args.paper.is_some_and(|only| only != paper) {
            continue;
        }
        if args.json {
            for figure in of {
                writeln!(out, "{}", object(figure))?;
            }
            continue;
        }
        if !std::mem::take(&mut first) {
            writeln!(out)?;
        }
        match paper.source() {
            "" => writeln!(out, "{}", paper.name())?,
            source => writeln!(out, "{}. {source}", paper.name())?,
        }
        let mut table = Table::new(&[
            ("name", Align::Left),
            ("place", Align::Left),
            ("small", Align::Left),
            ("default", Align::Left),
            ("paper", Align::Left),
            ("what", Align::Left),
        ]);
        for figure in of {
            let about = figure.about();
            let needs = Scale::ALL.map(|scale| text::needs(figure.needs(scale)));
            let before = [about.name, about.place].map(str::to_owned);
            table.row(before.into_iter().chain(needs).chain([about.title.to_owned()]));
        }
        out.write_all(table.render().as_bytes())?;
    }
    Ok(Outcome::Done)
}

fn object(figure: &dyn Figure) -> Value {
    let about = figure.about();
    let needs = Scale::ALL.map(|scale| {
        let needs = figure.needs(scale);
        let object = json!({
            "seconds": needs.seconds, "disk_bytes": needs.disk_bytes, "memory_bytes": needs.memory_bytes,
        });
        (scale.name().to_owned(), object)
    });
    json!({
        "name": about.name, "paper": about.paper.name(), "place": about.place, "title": about.title,
        "needs": needs.into_iter().collect::<serde_json::Map<_, _>>(),
    })
}

pub(super) fn show(
    args: &ShowArgs,
    figures: &[Box<dyn Figure>],
    out: &mut impl Write,
) -> Result<Outcome, Failure> {
    for figure in select(figures, &[&args.name])? {
        let about = figure.about();
        writeln!(out, "{}  {}", about.name, text::heading(about))?;
        for (what, words) in [("The paper", about.claim), ("Otherwise here", about.differs)] {
            if !words.is_empty() {
                writeln!(out, "{what}: {words}")?;
            }
        }
        let needs = Scale::ALL.map(|scale| format!("{scale} {}", text::needs(figure.needs(scale))));
        writeln!(out, "Takes: {}.", needs.join("; "))?;
        let plan = figure.plan(args.scale, &Custom::default())?;
        writeln!(out, "At scale {}: {}", args.scale, plan.setting())?;
        for sentence in plan.scaled() {
            writeln!(out, "* {sentence}")?;
        }
        writeln!(out, "Steps: {}.", plan.steps().join("; "))?;
        match results::load(figure, args.scale, &args.out)? {
            Some(there) => {
                let dir = results::directory(&args.out, about.name, args.scale);
                let (done, steps) = (there.done.len(), there.setup.steps.len());
                writeln!(
                    out,
                    "Results: {done} of {steps} steps, begun {}, in {}",
                    there.setup.began,
                    dir.display()
                )?;
                there
                    .view
                    .verdicts
                    .iter()
                    .try_for_each(|found| out.write_all(text::verdict(found).as_bytes()))?;
            }
            None => {
                writeln!(out, "Measured by: tamis-lab experiment run {} --scale {}", about.name, args.scale)?
            }
        }
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;

    fn listed(paper: Option<Paper>, json: bool) -> String {
        let mut out = Vec::new();
        list(&ListArgs { paper, json }, &synthetic::figures(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_list_contains_costs_at_each_scale() {
        let text = listed(None, false);
        for part in
            ["Hash sharing. Zhu", "Beyond the papers\n", "one-b", "Figure 2", "4 min, 3.0 MiB", "2.0 h, "]
        {
            assert!(text.contains(part), "{part:?} not in {text}");
        }
        let ours = listed(Some(Paper::Ours), false);
        assert!(ours.contains("two-a") && !ours.contains("one-a"), "{ours}");
        assert!(text.starts_with("Hash") && ours.starts_with("Beyond"), "no empty line comes first: {ours}");
        assert_eq!(listed(Some(Paper::Grf), false), "");
        let objects = listed(None, true);
        let objects: Vec<Value> = objects.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((objects.len(), &objects[1]["name"]), (3, &"one-b".into()));
        assert_eq!(objects[1]["needs"]["default"]["disk_bytes"], 3 << 20);
    }

    #[test]
    fn a_figure_is_shown_with_claim_and_setting() {
        let figures = synthetic::figures();
        let dir = tempfile::tempdir().unwrap();
        let show = |name: &str| {
            let mut out = Vec::new();
            let args = ShowArgs { name: name.to_owned(), scale: Scale::Small, out: dir.path().to_owned() };
            show(&args, &figures, &mut out).map(|_| String::from_utf8(out).unwrap())
        };
        let text = show("one-b").unwrap();
        for part in [
            "one-b  Hash sharing, Figure 2: What is counted",
            "The paper: It grows.",
            "Otherwise here: Nothing is measured.",
            "small 2.0 s, 1.0 MiB; default 4 min",
            "At scale small: Two rows.\n* Rows are few.",
            "Steps: first; second.",
            "tamis-lab experiment run one-b --scale small",
        ] {
            assert!(text.contains(part), "{part:?} not in {text}");
        }
        assert!(show("one-c").unwrap_err().to_string().contains("`one-c`"));
    }
}
