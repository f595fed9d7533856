//! Figures that measure nothing, for tests.

use serde_json::json;
use tamis_bench::{BenchError, Progress};
use tamis_lab::figures::{About, Custom, Figure, Needs, Paper, Plan, Row, Scale, Sheet, Verdict, View};

struct Synthetic(About);

struct Work;

/// Returns three figures of two origins.
pub(super) fn figures() -> Vec<Box<dyn Figure>> {
    let about = |name, paper, place| About {
        name,
        paper,
        place,
        title: "What is counted",
        claim: "It grows.",
        differs: "Nothing is measured.",
    };
    vec![
        Box::new(Synthetic(about("one-a", Paper::HashSharing, "Figure 1"))),
        Box::new(Synthetic(about("one-b", Paper::HashSharing, "Figure 2"))),
        Box::new(Synthetic(about("two-a", Paper::Ours, ""))),
    ]
}

impl Figure for Synthetic {
    fn about(&self) -> &About {
        &self.0
    }

    fn needs(&self, scale: Scale) -> Needs {
        match scale {
            Scale::Small => Needs { seconds: 2, disk_bytes: 1 << 20, memory_bytes: 0 },
            Scale::Default => Needs { seconds: 240, disk_bytes: 3 << 20, memory_bytes: 0 },
            Scale::Paper => Needs { seconds: 7200, disk_bytes: u64::MAX, memory_bytes: 0 },
        }
    }

    fn plan<'f>(&'f self, _: Scale, custom: &Custom) -> Result<Box<dyn Plan + 'f>, BenchError> {
        custom.refuse_all_but(self.0.name, &["--keys", "--db"])?;
        Ok(Box::new(Work))
    }

    fn view(&self, rows: &[Row]) -> View {
        let mut sheet = Sheet::new("Counts", &["<what", "n"]);
        sheet.row(["rows".to_owned(), rows.len().to_string()]);
        let open = Verdict::open("It grows", "2×");
        let holds = open.clone().with("2.1×", Some(true), None, Some(1.05)).noting("Of course.");
        View {
            panels: vec![],
            sheets: vec![sheet],
            verdicts: vec![if rows.is_empty() { open } else { holds }],
        }
    }
}

impl Plan for Work {
    fn setting(&self) -> String {
        "Two rows.".to_owned()
    }

    fn scaled(&self) -> Vec<String> {
        vec!["Rows are few.".to_owned()]
    }

    fn steps(&self) -> Vec<String> {
        vec!["first".to_owned(), "second".to_owned()]
    }

    fn run(&mut self, step: usize, _: &dyn Progress) -> Result<Vec<Row>, BenchError> {
        let row = json!({"kind": "count", "n": step});
        Ok(vec![row.as_object().cloned().unwrap_or_default()])
    }
}
