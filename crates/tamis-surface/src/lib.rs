//! Lists everything public in a crate, one item a line, from the JSON that rustdoc writes.
//!
//! `tests/surface.rs` compares the lists with `golden/`. A line names an item by the path under
//! which users reach it, and shows its signature: fields and variants that are public, arguments
//! and results of functions, traits that a type implements. Docs, bodies and blanket
//! implementations are left out.
//!
//! The JSON is an unstable format with a version number; [`FORMAT`] is the one that this reads.

#![forbid(unsafe_code)]

mod render;

use std::collections::BTreeSet;

use serde_json::Value;

use render::{bounds, function, generics, text, ty};

/// The version of rustdoc's JSON format that this crate reads.
pub const FORMAT: u64 = 57;

/// The public surface of the crate that `json` describes, sorted, one item a line. What it
/// re-exports from one of `parts`, crates that nobody else is meant to use, is listed as if it were
/// its own.
///
/// # Errors
/// The version of the format, if it is another one.
pub fn list(json: &Value, parts: &[Value]) -> Result<Vec<String>, u64> {
    let version = json["format_version"].as_u64().unwrap_or(0);
    if version != FORMAT {
        return Err(version);
    }
    let mut surface = Surface { json, parts, lines: BTreeSet::new() };
    let root = surface.item(&json["root"]).expect("a crate has a root");
    surface.module(text(&root["name"]), root);
    Ok(surface.lines.into_iter().collect())
}

struct Surface<'j> {
    json: &'j Value,
    parts: &'j [Value],
    lines: BTreeSet<String>,
}

impl<'j> Surface<'j> {
    fn item(&self, id: &Value) -> Option<&'j Value> {
        let id = id.as_u64()?;
        self.json["index"].get(id.to_string())
    }

    fn items(&self, ids: &'j Value) -> impl Iterator<Item = &'j Value> + use<'j> {
        let index = &self.json["index"];
        ids.as_array().into_iter().flatten().filter_map(|id| index.get(id.as_u64()?.to_string()))
    }

    fn add(&mut self, line: String) {
        self.lines.insert(line);
    }

    fn module(&mut self, path: &str, module: &'j Value) {
        for item in self.items(&module["inner"]["module"]["items"]) {
            self.public(path, item);
        }
    }

    /// An item of the module `path`, if it is public.
    fn public(&mut self, path: &str, item: &'j Value) {
        if item["visibility"] != "public" || is_hidden(item) {
            return;
        }
        if let Some(used) = item["inner"].get("use") {
            match self.item(&used["id"]).filter(|_| used["is_glob"] != true) {
                Some(target) => self.named(&format!("{path}::{}", text(&used["name"])), target),
                None => self.reexported(path, used),
            }
            return;
        }
        self.named(&format!("{path}::{}", text(&item["name"])), item);
    }

    /// An item of another crate, under the path by which users reach it.
    fn reexported(&mut self, path: &str, used: &'j Value) {
        let path = format!("{path}::{}", text(&used["name"]));
        let id = used["id"].as_u64().map(|id| id.to_string()).unwrap_or_default();
        let origin = &self.json["paths"][id]["path"];
        let found = self.parts.iter().find_map(|part| {
            let mut own = part["paths"].as_object()?.iter();
            let (id, _) = own.find(|(_, item)| item["crate_id"] == 0 && item["path"] == *origin)?;
            Some((part, part["index"].get(id)?))
        });
        match found {
            Some((part, item)) => {
                let mut surface =
                    Surface { json: part, parts: self.parts, lines: std::mem::take(&mut self.lines) };
                surface.named(&path, item);
                self.lines = surface.lines;
            }
            None => self.add(format!("{path} = use {}", text(&used["source"]))),
        }
    }

    /// An item under the path by which users reach it.
    fn named(&mut self, path: &str, item: &'j Value) {
        let Some((kind, inner)) = item["inner"].as_object().and_then(|inner| inner.iter().next()) else {
            return;
        };
        let open = if is_non_exhaustive(item) { "#[non_exhaustive] " } else { "" };
        match &kind[..] {
            "module" => {
                self.add(format!("mod {path}"));
                self.module(path, item);
            }
            "struct" => {
                self.add(format!("{open}struct {path}{}", generics(&inner["generics"])));
                for field in self.fields(&inner["kind"]) {
                    self.add(format!(
                        "{path}.{}: {}",
                        text(&field["name"]),
                        ty(&field["inner"]["struct_field"])
                    ));
                }
                self.implementations(path, &inner["impls"]);
            }
            "enum" => {
                self.add(format!("{open}enum {path}{}", generics(&inner["generics"])));
                for variant in self.items(&inner["variants"]) {
                    self.variant(path, variant);
                }
                self.implementations(path, &inner["impls"]);
            }
            "trait" => {
                let above = bounds(&inner["bounds"]);
                let above = if above.is_empty() { above } else { format!(": {above}") };
                self.add(format!("trait {path}{}{above}", generics(&inner["generics"])));
                for member in self.items(&inner["items"]) {
                    self.member(path, member);
                }
            }
            "function" => self.add(function(path, inner)),
            "type_alias" => self.add(format!("type {path} = {}", ty(&inner["type"]))),
            "constant" => self.add(format!("const {path}: {}", ty(&inner["type"]))),
            "static" => self.add(format!("static {path}: {}", ty(&inner["type"]))),
            "macro" | "proc_macro" => self.add(format!("macro {path}")),
            other => self.add(format!("{other} {path}")),
        }
    }

    /// The public fields of a struct.
    fn fields(&self, kind: &'j Value) -> Vec<&'j Value> {
        let ids = match kind.get("plain") {
            Some(plain) => &plain["fields"],
            None => &kind["tuple"],
        };
        self.items(ids).filter(|field| field["visibility"] == "public").collect()
    }

    fn variant(&mut self, path: &str, variant: &'j Value) {
        let kind = &variant["inner"]["variant"]["kind"];
        let open = if is_non_exhaustive(variant) { "#[non_exhaustive] " } else { "" };
        let content = if let Some(named) = kind.get("struct") {
            let fields = self.items(&named["fields"]);
            let fields = fields.map(|f| format!("{}: {}", text(&f["name"]), ty(&f["inner"]["struct_field"])));
            format!(" {{ {} }}", fields.collect::<Vec<_>>().join(", "))
        } else if let Some(tuple) = kind.get("tuple") {
            let fields = self.items(tuple).map(|field| ty(&field["inner"]["struct_field"]));
            format!("({})", fields.collect::<Vec<_>>().join(", "))
        } else {
            String::new()
        };
        self.add(format!("{open}{path}::{}{content}", text(&variant["name"])));
    }

    /// An item of a trait or of an inherent implementation.
    fn member(&mut self, path: &str, member: &'j Value) {
        let path = format!("{path}::{}", text(&member["name"]));
        let inner = &member["inner"];
        if let Some(inner) = inner.get("function") {
            let provided = if inner["has_body"] == true { "" } else { " (required)" };
            self.add(format!("{}{provided}", function(&path, inner)));
        } else if let Some(constant) = inner.get("assoc_const") {
            self.add(format!("const {path}: {}", ty(&constant["type"])));
        } else if let Some(alias) = inner.get("assoc_type") {
            self.add(format!("type {path}: {}", bounds(&alias["bounds"])));
        }
    }

    fn implementations(&mut self, path: &str, ids: &'j Value) {
        for item in self.items(ids) {
            let implementation = &item["inner"]["impl"];
            if implementation["is_synthetic"] == true || !implementation["blanket_impl"].is_null() {
                continue;
            }
            let of = &implementation["trait"];
            if of.is_null() {
                for member in self.items(&implementation["items"]) {
                    if member["visibility"] == "public" && !is_hidden(member) {
                        self.member(path, member);
                    }
                }
            } else {
                let head = generics(&implementation["generics"]);
                let negative = if implementation["is_negative"] == true { "!" } else { "" };
                self.add(format!("impl{head} {negative}{} for {path}", render::path(of)));
            }
        }
    }
}

fn attributes(item: &Value) -> String {
    item["attrs"].to_string()
}

fn is_non_exhaustive(item: &Value) -> bool {
    attributes(item).contains("non_exhaustive")
}

fn is_hidden(item: &Value) -> bool {
    let attributes = attributes(item);
    attributes.contains("doc(hidden)") || attributes.contains("Hidden")
}
