//! Which file depends on which, and the cycles among them.
//!
//! A file depends on the files whose items it names: in its imports, and in paths that begin with
//! `crate`, `super` or `self`. A re-export is no dependency of the module that has it; whoever
//! names it depends on the file that defines the item. A call of a session's method is a dependency
//! on the file that has the method, although it needs no import. Tests may name anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The type whose methods stand in many files.
const SESSION: &str = "Session";

/// What a variable that holds the session is called.
const HANDLES: &[&str] = &["db", "inner", "session"];

type Names = Vec<String>;

/// A file as the graph sees it.
struct File {
    path: PathBuf,
    /// The module's path below the crate.
    module: Names,
    text: String,
    /// The paths that it names, relative to `module`.
    named: Vec<Names>,
    /// Names that it exports from elsewhere.
    exports: BTreeMap<String, Names>,
}

/// Returns the cycles among the files of a crate that are no tests, each as its files in
/// alphabetical order.
pub(crate) fn cycles(sources: &[(PathBuf, String)], is_test: impl Fn(&Path) -> bool) -> Vec<Vec<String>> {
    let files: Vec<File> = sources.iter().map(|(path, text)| File::new(path, text)).collect();
    let by_module: BTreeMap<&[String], usize> =
        files.iter().enumerate().map(|(at, file)| (&file.module[..], at)).collect();
    let methods = session_methods(&files);
    let edges: Vec<BTreeSet<usize>> = (0..files.len())
        .map(|at| {
            if is_test(&files[at].path) {
                return BTreeSet::new();
            }
            let named = files[at].named.iter().filter_map(|path| {
                let path = absolute(&files[at].module, path, &by_module)?;
                resolve(&files, &by_module, path, 0)
            });
            let called = calls(&files[at].text).into_iter().filter_map(|name| methods.get(&name).copied());
            named.chain(called).filter(|to| *to != at).collect()
        })
        .collect();
    let name = |at: usize| files[at].path.display().to_string();
    let mut found: Vec<Vec<String>> = components(&edges)
        .into_iter()
        .filter(|component| component.len() > 1)
        .map(|component| component.into_iter().map(name).collect())
        .collect();
    found.iter_mut().for_each(|files| files.sort());
    found.sort();
    found
}

impl File {
    fn new(path: &Path, text: &str) -> File {
        let text = without_tests(text);
        let mut module: Names =
            path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| last == "mod" || last == "lib") {
            module.pop();
        }
        let (mut named, mut exports, mut rest) = (Vec::new(), BTreeMap::new(), String::new());
        let mut statements = text.as_str();
        while let Some((before, public, list, after)) = next_use(statements) {
            rest.push_str(before);
            let mut paths = Vec::new();
            expand(&[], list, &mut paths);
            match public {
                true => exports.extend(paths.into_iter().map(|path| (path[path.len() - 1].clone(), path))),
                false => named.append(&mut paths),
            }
            statements = after;
        }
        rest.push_str(statements);
        named.extend(inline_paths(&rest));
        File { path: path.to_owned(), module, text, named, exports }
    }
}

/// Removes modules that only tests have.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_test = line.starts_with("#[cfg(") && line.contains("test");
        let is_block = lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if is_test && is_block {
            lines.by_ref().take_while(|line| *line != "}").for_each(drop);
            continue;
        }
        kept.push_str(line.split("//").next().unwrap_or(""));
        kept.push('\n');
    }
    kept
}

/// Returns what is before the next `use`, whether it is public, its list, and what is behind it.
fn next_use(text: &str) -> Option<(&str, bool, &str, &str)> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim_start();
        let public = code.starts_with("pub");
        let behind = code.strip_prefix("use ").or_else(|| {
            let rest = code.strip_prefix("pub")?;
            let rest = rest.strip_prefix('(').map_or(rest, |rest| rest.split_once(')').map_or("", |r| r.1));
            rest.trim_start().strip_prefix("use ")
        });
        if let Some(behind) = behind {
            let from = start + line.len() - behind.len();
            let end = from + text[from..].find(';')?;
            return Some((&text[..start], public, &text[from..end], &text[end + 1..]));
        }
        start += line.len();
    }
    None
}

/// Adds the paths of a `use` list to `paths`.
fn expand(prefix: &[String], list: &str, paths: &mut Vec<Names>) {
    let (mut depth, mut from) = (0, 0);
    let mut items = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    items.push(&list[from..]);
    for item in items.into_iter().map(str::trim).filter(|item| !item.is_empty()) {
        let (head, nested) = match item.split_once('{') {
            Some((head, nested)) => (head, nested.trim_end().strip_suffix('}')),
            None => (item.split(" as ").next().unwrap_or(item), None),
        };
        let head = head.split("::").map(str::trim).filter(|name| !name.is_empty() && *name != "self");
        let is_self = item.starts_with("self::");
        let own = is_self.then(|| "self".to_owned()).into_iter();
        let path: Names = prefix.iter().cloned().chain(own).chain(head.map(str::to_owned)).collect();
        match nested {
            Some(nested) => expand(&path, nested, paths),
            None if path.is_empty() => {}
            None => paths.push(path),
        }
    }
}

/// Returns the paths that begin with `crate`, `super` or `self`.
fn inline_paths(text: &str) -> Vec<Names> {
    let mut paths = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(root) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c == '$' || c == ':' || is_name(c)) {
                continue;
            }
            let end = text[at..].find(|c| c != ':' && !is_name(c)).map_or(text.len(), |end| at + end);
            let names = text[at..end].split("::").filter(|name| !name.is_empty());
            paths.push(names.map(str::to_owned).collect());
        }
    }
    paths
}

fn is_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns a path from the crate's root; `None` for one that leads out of the crate.
fn absolute(module: &[String], path: &[String], known: &BTreeMap<&[String], usize>) -> Option<Names> {
    let mut own = module.to_vec();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([&own[..], &path[1..]].concat()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            own.truncate(own.len().checked_sub(ups)?);
            Some([&own[..], &path[ups..]].concat())
        }
        child => {
            own.push(child.to_owned());
            known.contains_key(&own[..]).then(|| [module, path].concat())
        }
    }
}

/// Returns the file that defines what a path names.
fn resolve(
    files: &[File],
    known: &BTreeMap<&[String], usize>,
    path: Names,
    followed: usize,
) -> Option<usize> {
    let length = (0..=path.len()).rev().find(|length| known.contains_key(&path[..*length]))?;
    let at = known[&path[..length]];
    let Some(export) = path.get(length).and_then(|name| files[at].exports.get(name)) else {
        // The root's own items are names of the rooms.
        return (length > 0).then_some(at);
    };
    let target = absolute(&files[at].module, export, known)?;
    let rest = &path[length + 1..];
    (followed < 8).then(|| resolve(files, known, [&target[..], rest].concat(), followed + 1))?
}

/// Returns the blocks of the session's methods in a text.
fn session_blocks(text: &str) -> Vec<&str> {
    let head = format!("impl {SESSION} {{\n");
    let blocks = text.match_indices(&head).map(|(at, _)| &text[at + head.len()..]);
    blocks.map(|rest| rest.split_once("\n}\n").map_or(rest, |(block, _)| block)).collect()
}

/// Returns the session's methods, each with its file.
fn session_methods(files: &[File]) -> BTreeMap<String, usize> {
    let mut methods = BTreeMap::new();
    for (at, file) in files.iter().enumerate() {
        for line in session_blocks(&file.text).iter().flat_map(|block| block.lines()) {
            let is_member = line.starts_with("    ") && !line.starts_with("     ");
            if let Some((_, name)) = line.split_once("fn ").filter(|_| is_member) {
                methods.insert(name.chars().take_while(|c| is_name(*c)).collect(), at);
            }
        }
    }
    methods
}

/// Returns the names of methods that a text calls on a session.
fn calls(text: &str) -> BTreeSet<String> {
    let mut called = BTreeSet::new();
    let mut find = |text: &str, receiver: &str| {
        for (at, _) in text.match_indices(receiver) {
            let before = text[..at].chars().next_back();
            let name: String = text[at + receiver.len()..].chars().take_while(|c| is_name(*c)).collect();
            let is_call = text[at + receiver.len() + name.len()..].starts_with('(');
            if is_call && !before.is_some_and(is_name) {
                called.insert(name);
            }
        }
    };
    HANDLES.iter().for_each(|handle| find(text, &format!("{handle}.")));
    session_blocks(text).into_iter().for_each(|block| find(block, "self."));
    called
}

/// Returns the strongly connected components of a graph, after Tarjan.
fn components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    struct Search<'e> {
        edges: &'e [BTreeSet<usize>],
        index: Vec<Option<usize>>,
        low: Vec<usize>,
        stack: Vec<usize>,
        found: Vec<Vec<usize>>,
        next: usize,
    }
    impl Search<'_> {
        fn visit(&mut self, node: usize) {
            (self.index[node], self.low[node]) = (Some(self.next), self.next);
            self.next += 1;
            self.stack.push(node);
            for &to in &self.edges[node] {
                match self.index[to] {
                    None => {
                        self.visit(to);
                        self.low[node] = self.low[node].min(self.low[to]);
                    }
                    Some(index) if self.stack.contains(&to) => self.low[node] = self.low[node].min(index),
                    Some(_) => {}
                }
            }
            if self.index[node] == Some(self.low[node]) {
                let at = self.stack.iter().position(|other| *other == node).expect("on the stack");
                self.found.push(self.stack.split_off(at));
            }
        }
    }
    let nodes = edges.len();
    let (index, low) = (vec![None; nodes], vec![0; nodes]);
    let mut search = Search { edges, index, low, stack: Vec::new(), found: Vec::new(), next: 0 };
    for node in 0..nodes {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

#[test]
fn cycles_are_found_by_imports_paths_re_exports_and_calls() {
    let cycles_of = |files: &[(&str, &str)]| {
        let sources: Vec<_> =
            files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        cycles(&sources, |path| path.ends_with("tests.rs"))
    };
    let pair = |one: &str, other: &str| vec![vec![one.to_owned(), other.to_owned()]];
    assert_eq!(
        cycles_of(&[("a.rs", "use crate::b::{C, D};\n"), ("b.rs", "fn f() { super::a::g() }\n")]),
        pair("a.rs", "b.rs")
    );
    let through = [
        ("a/mod.rs", "mod x;\npub use x::X;\n"),
        ("a/x.rs", "use crate::b::B;\n"),
        ("b.rs", "use crate::a::X;\n"),
    ];
    assert_eq!(cycles_of(&through), pair("a/x.rs", "b.rs"));
    let called = format!("use crate::b::B;\nimpl {SESSION} {{\n    fn work(&self) {{}}\n}}\n");
    assert_eq!(cycles_of(&[("a.rs", &called), ("b.rs", "fn f() { db.work(); }\n")]), pair("a.rs", "b.rs"));
    let fine = [
        ("a.rs", "use crate::b::B;\n"),
        ("tests.rs", "use crate::a::A;\nuse crate::b::B;\n"),
        (
            "b.rs",
            "// crate::a::A\nuse super::tests::Helper;\nfn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        ),
    ];
    assert!(cycles_of(&fine).is_empty());
}
