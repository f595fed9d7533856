//! Parts of the project's documents that are made from results in the repository.
//!
//! A document has a line `<!-- WORD: lab/results/NAME KIND -->`, then what was made, then `<!-- end of WORD -->`. A [`Marker`] is
//! one such word, and a program that knows its kinds. Everything else in a document stays as it is.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Directories with documents, below that of the project.
const DIRECTORIES: [&str; 6] = [".", "docs", "lab", "lab/peers", "lab/reports", "lab/results"];

/// Directory of results.
const RESULTS: &str = "lab/results";

/// What stands between two lines of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Markdown.
    pub text: String,
    /// Files that it refers to, such as pictures: paths relative to the document's directory, and contents.
    pub files: Vec<(PathBuf, String)>,
}

impl From<String> for Section {
    fn from(text: String) -> Section {
        Section { text, files: Vec::new() }
    }
}

/// The reason why a document cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line that asks for something unknown, or whose results are missing or damaged.
    #[error("{}: line {line}: {reason}", path.display())]
    Line {
        /// The document.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// The lines around a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker(pub &'static str);

impl Marker {
    /// Returns the line before a section of `kind`, made from the results in `dir`.
    pub fn begin(self, dir: &str, kind: &str) -> String {
        format!("{}{dir} {kind} -->", self.prefix())
    }

    /// Returns the line after a section.
    pub fn end(self) -> String {
        format!("<!-- end of {} -->", self.0)
    }

    fn prefix(self) -> String {
        format!("<!-- {}: ", self.0)
    }

    /// Reports whether a line begins a section.
    pub fn begins(self, line: &str) -> bool {
        line.starts_with(&self.prefix())
    }

    /// Makes all sections below `root` again, and returns the paths and the contents of the files that differ. `make` gets the
    /// directory of the results and the kind.
    ///
    /// # Errors
    ///
    /// A file cannot be read; a section has no end; its results are not below `lab/results`; `make` fails.
    pub fn outdated(
        self,
        root: &Path,
        make: &mut dyn FnMut(&Path, &str) -> Result<Section, String>,
    ) -> Result<Vec<(PathBuf, String)>, DocumentError> {
        let mut changed = Vec::new();
        for path in documents(root)? {
            let text = read(&path)?;
            let mut files = Vec::new();
            let fresh = self.renewed(root, &path, &text, make, &mut files)?;
            if fresh != text {
                changed.push((path, fresh));
            }
            for (path, text) in files {
                // Of a picture that several documents show.
                if changed.contains(&(path.clone(), text.clone())) {
                    continue;
                }
                let there = match fs::read_to_string(&path) {
                    Ok(there) => there == text,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                    Err(source) => return Err(DocumentError::Io { path, source }),
                };
                if !there {
                    changed.push((path, text));
                }
            }
        }
        Ok(changed)
    }

    /// Writes the files that differ, and returns their paths. Nothing is written if a section cannot be made.
    ///
    /// # Errors
    ///
    /// As for [`outdated`](Self::outdated), and if a file cannot be written.
    pub fn refresh(
        self,
        root: &Path,
        make: &mut dyn FnMut(&Path, &str) -> Result<Section, String>,
    ) -> Result<Vec<PathBuf>, DocumentError> {
        let changed = self.outdated(root, make)?;
        for (path, text) in &changed {
            let written =
                path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
            written.map_err(|source| DocumentError::Io { path: path.clone(), source })?;
        }
        Ok(changed.into_iter().map(|(path, _)| path).collect())
    }

    fn renewed(
        self,
        root: &Path,
        path: &Path,
        text: &str,
        make: &mut dyn FnMut(&Path, &str) -> Result<Section, String>,
        files: &mut Vec<(PathBuf, String)>,
    ) -> Result<String, DocumentError> {
        let (prefix, end) = (self.prefix(), self.end());
        if !text.contains(&prefix) {
            return Ok(text.to_owned());
        }
        let mut out = String::with_capacity(text.len());
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            out += line;
            out.push('\n');
            let Some(request) = line.strip_prefix(&prefix) else { continue };
            let bad = |reason: String| DocumentError::Line { path: path.to_owned(), line: at + 1, reason };
            let request = request.strip_suffix("-->").ok_or_else(|| bad("it has no end".to_owned()))?;
            let (dir, kind) =
                request.trim().split_once(' ').ok_or_else(|| bad("it names nothing to make".to_owned()))?;
            let section = make(&below(root, dir).map_err(bad)?, kind.trim()).map_err(bad)?;
            out += &format!("\n{}\n\n", section.text.trim());
            let beside = path.parent().unwrap_or(root);
            files.extend(section.files.into_iter().map(|(name, text)| (beside.join(name), text)));
            // Up to its end, which comes before the next section: what stands between the two is not ours.
            let closed = lines.find(|(_, line)| *line == end || self.begins(line));
            if closed.is_none_or(|(_, line)| line != end) {
                return Err(bad(format!("there is no `{end}` after it")));
            }
            out += &end;
            out.push('\n');
        }
        Ok(out)
    }
}

/// Returns a directory of results, which is below [`RESULTS`].
fn below(root: &Path, dir: &str) -> Result<PathBuf, String> {
    let asked = Path::new(dir);
    let plain = asked.components().all(|part| matches!(part, Component::Normal(_)));
    match plain && asked.starts_with(RESULTS) {
        true => Ok(root.join(asked)),
        false => Err(format!("results are below {RESULTS}, and {dir} is not")),
    }
}

fn documents(root: &Path) -> Result<Vec<PathBuf>, DocumentError> {
    let mut all = Vec::new();
    for directory in DIRECTORIES.map(|directory| root.join(directory)) {
        if !directory.is_dir() {
            continue;
        }
        let failed = |source| DocumentError::Io { path: directory.clone(), source };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                all.push(path);
            }
        }
    }
    all.sort();
    Ok(all)
}

fn read(path: &Path) -> Result<String, DocumentError> {
    fs::read_to_string(path).map_err(|source| DocumentError::Io { path: path.to_owned(), source })
}

/// Escapes any text for Markdown: no markup, no HTML, no end of a cell or a line.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let text: Vec<char> = one_line(text).chars().collect();
    let word = |at: Option<usize>| at.and_then(|at| text.get(at)).is_some_and(|c| c.is_alphanumeric());
    for (at, c) in text.iter().enumerate() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            // Between letters it has no special meaning.
            '_' if word(at.checked_sub(1)) && word(at.checked_add(1)) => out.push('_'),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '~' => out.extend(['\\', *c]),
            c => out.push(*c),
        }
    }
    out
}

/// Replaces line breaks.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns command lines, fenced.
pub fn commands(commands: &[String]) -> String {
    let lines: Vec<String> = commands.iter().map(|command| one_line(command)).collect();
    // A fence longer than any sequence of backticks within.
    let runs = lines.iter().flat_map(|line| line.split(|c| c != '`')).map(str::len);
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    let mut out = format!("{fence}sh\n");
    for line in lines {
        out += &line;
        out.push('\n');
    }
    out + &fence + "\n\n"
}

/// Returns one line of a table. Cells are Markdown.
pub fn table_line(cells: impl IntoIterator<Item = String>) -> String {
    let mut out = String::new();
    for cell in cells {
        out += &format!("| {cell} ");
    }
    out + "|\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: Marker = Marker("figures");

    fn project(document: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("docs")).unwrap();
        fs::write(dir.path().join("docs/a.md"), document).unwrap();
        dir
    }

    fn text(dir: &tempfile::TempDir, name: &str) -> String {
        fs::read_to_string(dir.path().join("docs").join(name)).unwrap()
    }

    fn make(dir: &Path, kind: &str) -> Result<Section, String> {
        let name = dir.file_name().unwrap().to_string_lossy().into_owned();
        match kind {
            "name" => Ok(name.into()),
            "picture" => Ok(Section {
                text: "![it](pictures/it.svg)".to_owned(),
                files: vec![("pictures/it.svg".into(), format!("<svg>{name}</svg>"))],
            }),
            other => Err(format!("there is no {other}")),
        }
    }

    #[test]
    fn sections_follow_their_results_and_the_rest_stays() {
        let section = |dir: &str, kind: &str| {
            format!("{}\nstale\n{}\n", MARKER.begin(&format!("lab/results/{dir}"), kind), MARKER.end())
        };
        let foreign = "<!-- rows: lab/results/one name -->\nstays\n<!-- end of rows -->\n";
        let dir = project(&format!(
            "# A\n\n{}between\n{}{foreign}",
            section("one", "name"),
            section("two", "name")
        ));
        let written = MARKER.refresh(dir.path(), &mut make).unwrap();
        assert_eq!(written, [dir.path().join("docs/a.md")]);
        let fresh = text(&dir, "a.md");
        assert!(fresh.starts_with("# A\n\n<!-- figures: ") && fresh.ends_with(foreign), "{fresh}");
        assert!(
            fresh.contains(" -->\n\none\n\n<!-- end") && fresh.contains(" -->\n\ntwo\n\n<!-- end"),
            "{fresh}"
        );
        assert!(fresh.contains("-->\nbetween\n<!--") && !fresh.contains("stale"), "{fresh}");
        assert!(MARKER.refresh(dir.path(), &mut make).unwrap().is_empty(), "nothing has changed since");
        fs::write(dir.path().join("docs/a.md"), fresh.replace("\none\n", "\nzero\n")).unwrap();
        assert_eq!(MARKER.outdated(dir.path(), &mut make).unwrap().len(), 1, "corrected by hand");
    }

    #[test]
    fn pictures_are_written_beside_the_document_and_compared() {
        let dir = project(&format!("{}\n{}\n", MARKER.begin("lab/results/one", "picture"), MARKER.end()));
        assert_eq!(MARKER.refresh(dir.path(), &mut make).unwrap().len(), 2);
        assert_eq!(text(&dir, "pictures/it.svg"), "<svg>one</svg>");
        assert!(MARKER.outdated(dir.path(), &mut make).unwrap().is_empty());
        fs::write(dir.path().join("docs/pictures/it.svg"), "<svg>another</svg>").unwrap();
        let outdated = MARKER.outdated(dir.path(), &mut make).unwrap();
        assert_eq!(outdated, [(dir.path().join("docs/pictures/it.svg"), "<svg>one</svg>".to_owned())]);
    }

    /// The end of the next section was taken, and everything between the two was gone.
    #[test]
    fn a_section_without_an_end_does_not_swallow_what_follows() {
        let (one, end) = (MARKER.begin("lab/results/one", "name"), MARKER.end());
        let document = format!("{one}\nlost\n\nkept\n\n{one}\n{end}\n");
        let dir = project(&document);
        let error = MARKER.refresh(dir.path(), &mut make).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("after it"), "{error}");
        assert_eq!(text(&dir, "a.md"), document);
    }

    #[test]
    fn what_cannot_be_made_is_refused_and_nothing_is_written() {
        for (line, what) in [
            ("<!-- figures: lab/results/one -->\n<!-- end of figures -->", "names nothing"),
            ("<!-- figures: lab/results/one poem -->\n<!-- end of figures -->", "no poem"),
            ("<!-- figures: lab/results/../../x name -->\n<!-- end of figures -->", "results are below"),
            ("<!-- figures: /lab/results name -->\n<!-- end of figures -->", "results are below"),
            ("<!-- figures: lab/results/one name\n<!-- end of figures -->", "no end"),
            ("<!-- figures: lab/results/one name -->\n", "after it"),
        ] {
            let stale = format!("{}\nstale\n{}\n", MARKER.begin("lab/results/one", "name"), MARKER.end());
            let document = format!("{stale}{line}\n");
            let dir = project(&document);
            let error = MARKER.refresh(dir.path(), &mut make).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("line 4"), "{line}: {error}");
            assert_eq!(text(&dir, "a.md"), document);
        }
    }

    #[test]
    fn hostile_text_is_escaped() {
        let hostile = "<script>|a``` [x](y) *b* _c_ d_e \\\n\r\n# \u{1b} ~~z~~";
        let shown = "&lt;script&gt;\\|a\\`\\`\\` \\[x\\](y) \\*b\\* \\_c\\_ d_e \\\\   #   \\~\\~z\\~\\~";
        assert_eq!(escaped(hostile), shown);
        assert_eq!(commands(&["a\nb".to_owned(), "`````".to_owned()]), "``````sh\na b\n`````\n``````\n\n");
    }
}
