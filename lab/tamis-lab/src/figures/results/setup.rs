//! The setting and the machine: everything that must be equal for rows to belong together.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::figures::{Custom, Plan, Scale};
use crate::machine::{COMMIT, Machine, now};

/// Version of this layout. Others are refused, since their rows would be misread.
const FORMAT: u32 = 1;

/// The setting and the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Version of the directory's layout.
    pub format: u32,
    /// The figure's name.
    pub figure: String,
    /// The scale.
    pub scale: Scale,
    /// The program's version.
    pub version: String,
    /// The commit that the program was built from when the first step began; empty if that was not recorded.
    #[serde(default)]
    pub commit: String,
    /// `release`, or `debug`, whose times are meaningless.
    pub build: String,
    /// Seed of keys and all random choices.
    pub seed: u64,
    /// Settings that replace the figure's own: option and value, in the order of [`Custom::given`]. Paths are not
    /// stored, only that one was given.
    pub custom: Vec<(String, String)>,
    /// The shell command that repeats the measurement. Words in capitals stand for directories.
    pub command: String,
    /// Description of the measurement in a sentence or two, with all sizes.
    pub setting: String,
    /// Differences in size from the paper, and what was preserved, one sentence each.
    pub scaled: Vec<String>,
    /// The names of all steps, in execution order.
    pub steps: Vec<String>,
    /// The machine.
    pub machine: Machine,
    /// When the first step began, UTC: `2026-11-22T14:55:07Z`.
    pub began: String,
}

impl Setup {
    /// Returns the setup of a plan on this machine, now. Databases are created below [`Custom::place`].
    pub(in crate::figures) fn of(figure: &str, scale: Scale, custom: &Custom, plan: &dyn Plan) -> Setup {
        let arguments = custom.arguments();
        Setup {
            format: FORMAT,
            figure: figure.to_owned(),
            scale,
            version: tamis_bench::VERSION.to_owned(),
            commit: COMMIT.to_owned(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            seed: custom.seed,
            command: command(figure, scale, custom.seed, &arguments),
            custom: arguments.into_iter().map(|(flag, value)| (flag.to_owned(), value)).collect(),
            setting: plan.setting(),
            scaled: plan.scaled(),
            steps: plan.steps(),
            machine: Machine::read(Some(&custom.place())),
            began: now(),
        }
    }

    /// Returns what makes rows of this setup incomparable with rows of `other`; `None` if nothing does. The time, the
    /// commit and the machine's memory are ignored.
    pub(in crate::figures) fn difference(&self, other: &Setup) -> Option<String> {
        let mut found = Vec::new();
        let mut differ = |what: &str, there: &str, here: &str| {
            if there != here {
                found.push(format!("{what}: {there} there, {here} now"));
            }
        };
        differ("layout", &self.format.to_string(), &other.format.to_string());
        differ("experiment", &self.figure, &other.figure);
        differ("scale", self.scale.name(), other.scale.name());
        differ("version", &self.version, &other.version);
        differ("build", &self.build, &other.build);
        differ("--seed", &self.seed.to_string(), &other.seed.to_string());
        let mut flags: Vec<&str> = Vec::new();
        for (flag, _) in self.custom.iter().chain(&other.custom) {
            if !flags.contains(&flag.as_str()) {
                flags.push(flag);
            }
        }
        for flag in flags {
            differ(flag, &values(&self.custom, flag), &values(&other.custom, flag));
        }
        if !self.machine.is_same(&other.machine) {
            differ("machine", &self.machine.describe(), &other.machine.describe());
        }
        if found.is_empty() {
            // The custom settings are equal, so the program itself chose differently.
            let mut differ = |what: &str, there: &str, here: &str| {
                if there != here {
                    found.push(format!("{what}: \"{there}\" there, \"{here}\" now"));
                }
            };
            differ("setting", &self.setting, &other.setting);
            differ("steps", &self.steps.join("; "), &other.steps.join("; "));
        }
        (!found.is_empty()).then(|| found.join("; "))
    }
}

/// Returns all values of an option.
fn values(custom: &[(String, String)], flag: &str) -> String {
    let given: Vec<&str> =
        custom.iter().filter(|(name, _)| name == flag).map(|(_, value)| value.as_str()).collect();
    match given[..] {
        [] => "not given".to_owned(),
        [""] => "given".to_owned(),
        _ => given.join(" "),
    }
}

fn command(figure: &str, scale: Scale, seed: u64, arguments: &[(&'static str, String)]) -> String {
    let mut line = format!("tamis-lab experiment run {figure} --scale {scale}");
    for (flag, value) in arguments {
        let _ = write!(line, " {flag}");
        if !value.is_empty() {
            let _ = write!(line, " {}", quoted(value));
        }
    }
    if seed != Custom::default().seed {
        let _ = write!(line, " --seed {seed}");
    }
    line
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,=:/+%@".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figure;
    use crate::figures::run::tests::Steps;

    fn setup(custom: &Custom) -> Setup {
        let figure = Steps::new(2);
        let plan = figure.plan(Scale::Small, custom).unwrap();
        Setup::of("test-steps", Scale::Small, custom, plan.as_ref())
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let custom = Custom {
            keys: Some(5),
            bits: vec![8.0, 10.5],
            direct: Some(true),
            dir: Some("/home/somebody/db".into()),
            options: vec![("a".into(), "it's".into()), ("b".into(), "2".into())],
            seed: 9,
            ..Custom::default()
        };
        let setup = setup(&custom);
        let line = r"tamis-lab experiment run test-steps --scale small --keys 5 --bits 8,10.5 --direct --db DIR --option 'a=it'\''s' --option b=2 --seed 9";
        assert_eq!(setup.command, line);
        assert!(!serde_json::to_string(&setup).unwrap().contains("somebody"));
    }

    #[test]
    fn differences_are_named() {
        let one = setup(&Custom { keys: Some(5), ..Custom::default() });
        assert_eq!(one.difference(&Setup { began: "later".into(), ..one.clone() }), None);
        let two = setup(&Custom { ops: Some(7), direct: Some(false), seed: 3, ..Custom::default() });
        let text = one.difference(&two).unwrap();
        for part in [
            "--seed: 1 there, 3 now",
            "--keys: 5 there, not given now",
            "--mapped: not given there, given now",
        ] {
            assert!(text.contains(part), "{part:?} not in {text:?}");
        }
        assert!(!text.contains("steps"), "{text}");
        let mut other = one.clone();
        other.machine.cores += 1;
        assert!(one.difference(&other).unwrap().starts_with("machine: "));
        let other = Setup { steps: vec!["x".into()], ..one.clone() };
        assert!(one.difference(&other).unwrap().starts_with("steps: "));
    }
}
