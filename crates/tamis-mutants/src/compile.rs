//! Builds the copy, and drops mutants that do not compile until it can be built.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::copy::write;
use crate::rewrite::{Rewritten, rewrite};
use crate::site::{Shape, Source};

/// After this many rounds, something is wrong that dropping mutants does not mend.
const ROUNDS: usize = 60;

/// The copy, with the sources that are rewritten in it.
pub struct Copy<'a> {
    pub dir: &'a Path,
    pub cargo: &'a str,
    pub sources: &'a [Source],
    /// Mutants that are not built.
    pub dropped: HashSet<u32>,
    rewritten: BTreeMap<PathBuf, Rewritten>,
    /// Mutants that leave a statement out.
    guards: HashSet<u32>,
}

/// Something that cargo made.
#[derive(Clone, Debug)]
pub struct Artifact {
    pub executable: PathBuf,
    /// The directory of the package.
    pub package: PathBuf,
    pub target: String,
    pub is_test: bool,
}

#[derive(Deserialize)]
struct Line {
    reason: String,
    message: Option<Message>,
    target: Option<Target>,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    spans: Vec<Span>,
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct Span {
    file_name: PathBuf,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

impl<'a> Copy<'a> {
    pub fn new(dir: &'a Path, cargo: &'a str, sources: &'a [Source], dropped: HashSet<u32>) -> Copy<'a> {
        let all = sources.iter().flat_map(|source| &source.sites);
        let guards = all.filter_map(|site| match site.shape {
            Shape::Guard(mutant) => Some(mutant),
            _ => None,
        });
        Copy { dir, cargo, sources, dropped, rewritten: BTreeMap::new(), guards: guards.collect() }
    }

    /// Runs cargo with the arguments in a directory of the copy, and drops mutants until it
    /// succeeds. Returns what it made.
    pub fn build(&mut self, dir: &Path, arguments: &[&str], incremental: bool) -> io::Result<Vec<Artifact>> {
        for round in 1..=ROUNDS {
            self.rewrite()?;
            let (artifacts, messages) = self.cargo(dir, arguments, incremental)?;
            if let Some(artifacts) = artifacts {
                return Ok(artifacts);
            }
            let before = self.dropped.len();
            let blamed = self.blame(&messages);
            self.dropped.extend(blamed);
            println!(
                "round {round}: {} errors, {} mutants dropped",
                messages.len(),
                self.dropped.len() - before
            );
            if self.dropped.len() == before {
                let rendered: Vec<_> =
                    messages.iter().take(3).filter_map(|one| one.rendered.clone()).collect();
                return Err(io::Error::other(format!(
                    "no mutant can be blamed for:\n{}",
                    rendered.join("\n")
                )));
            }
        }
        Err(io::Error::other("the copy does not compile"))
    }

    fn rewrite(&mut self) -> io::Result<()> {
        for source in self.sources {
            let rewritten = rewrite(source, &self.dropped);
            write(&self.dir.join(&source.file), rewritten.text.as_bytes())?;
            self.rewritten.insert(PathBuf::from(&source.file), rewritten);
        }
        Ok(())
    }

    /// Returns what was made, or nothing and the errors.
    fn cargo(
        &self,
        dir: &Path,
        arguments: &[&str],
        incremental: bool,
    ) -> io::Result<(Option<Vec<Artifact>>, Vec<Message>)> {
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        let output = Command::new(self.cargo)
            .args(arguments)
            .args(["--offline", "--message-format", "json"])
            .current_dir(dir)
            // Rewritten code looks odd, and overflows where a mutant asks for it.
            .env("RUSTFLAGS", format!("{flags} --cap-lints allow"))
            .env("CARGO_INCREMENTAL", if incremental { "1" } else { "0" })
            .stderr(Stdio::piped())
            .output()?;
        let (mut artifacts, mut errors) = (Vec::new(), Vec::new());
        for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")) {
            let line: Line = serde_json::from_slice(line)?;
            match line {
                Line { message: Some(message), .. } if message.level == "error" => errors.push(message),
                Line {
                    reason,
                    executable: Some(executable),
                    manifest_path: Some(manifest),
                    target: Some(target),
                    profile: Some(profile),
                    ..
                } if reason == "compiler-artifact" => artifacts.push(Artifact {
                    executable,
                    package: manifest.parent().unwrap_or(&manifest).to_owned(),
                    target: target.name,
                    is_test: profile.test,
                }),
                _ => {}
            }
        }
        if output.status.success() {
            return Ok((Some(artifacts), errors));
        }
        if errors.is_empty() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok((None, errors))
    }

    /// Returns the mutants to drop for these errors. Errors far from any mutant count only when
    /// there are no others: mostly, they go away with them.
    fn blame(&self, errors: &[Message]) -> HashSet<u32> {
        let mut near = HashSet::new();
        let mut far = HashSet::new();
        for error in errors {
            let mut spans: Vec<_> = error.spans.iter().collect();
            spans.sort_by_key(|span| !span.is_primary);
            let places: Vec<_> = spans.iter().filter_map(|span| self.place(span)).collect();
            match places.iter().find(|(rewritten, range)| rewritten.is_within_site(range)) {
                Some((rewritten, range)) => near.extend(rewritten.suspects(range)),
                None => {
                    for (rewritten, range) in places {
                        let all = rewritten.suspects(&range);
                        let guards: Vec<_> = all.iter().filter(|one| self.guards.contains(one)).collect();
                        if guards.is_empty() { far.extend(all) } else { far.extend(guards) }
                    }
                }
            }
        }
        if near.is_empty() { far } else { near }
    }

    fn place(&self, span: &Span) -> Option<(&Rewritten, Range<usize>)> {
        let file = span.file_name.strip_prefix(self.dir).unwrap_or(&span.file_name);
        Some((self.rewritten.get(file)?, span.byte_start..span.byte_end))
    }
}
