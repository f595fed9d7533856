//! Types, bounds and signatures as text.

use serde_json::Value;

/// The string in a value; empty if it holds none.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn list(values: &Value, of: impl Fn(&Value) -> String) -> Vec<String> {
    values.as_array().into_iter().flatten().map(of).filter(|text| !text.is_empty()).collect()
}

/// A path with its arguments, by its last name.
pub(crate) fn path(value: &Value) -> String {
    let name = text(&value["path"]).rsplit("::").next().unwrap_or("");
    format!("{name}{}", arguments(&value["args"]))
}

fn arguments(args: &Value) -> String {
    if let Some(args) = args.get("angle_bracketed") {
        let mut all = list(&args["args"], |arg| {
            let kind = arg.as_object().and_then(|arg| arg.iter().next());
            match kind.map(|(kind, inner)| (&kind[..], inner)) {
                Some(("type", inner)) => ty(inner),
                Some(("lifetime", inner)) => text(inner).to_owned(),
                Some(("const", inner)) => text(&inner["expr"]).to_owned(),
                _ => "_".into(),
            }
        });
        all.extend(list(&args["constraints"], |constraint| {
            let bound = &constraint["binding"];
            let is = match bound.get("equality") {
                Some(term) => format!(" = {}", term.get("type").map_or_else(|| "_".into(), ty)),
                None => format!(": {}", bounds(&bound["constraint"])),
            };
            format!("{}{is}", text(&constraint["name"]))
        }));
        return if all.is_empty() { String::new() } else { format!("<{}>", all.join(", ")) };
    }
    if let Some(args) = args.get("parenthesized") {
        let output =
            if args["output"].is_null() { String::new() } else { format!(" -> {}", ty(&args["output"])) };
        return format!("({}){output}", list(&args["inputs"], ty).join(", "));
    }
    String::new()
}

/// A type.
pub(crate) fn ty(value: &Value) -> String {
    let Some((kind, inner)) = value.as_object().and_then(|value| value.iter().next()) else {
        return text(value).to_owned();
    };
    match &kind[..] {
        "resolved_path" => path(inner),
        "generic" | "primitive" => text(inner).to_owned(),
        "tuple" => format!("({})", list(inner, ty).join(", ")),
        "slice" => format!("[{}]", ty(inner)),
        "array" => format!("[{}; {}]", ty(&inner["type"]), text(&inner["len"])),
        "impl_trait" => format!("impl {}", bounds(inner)),
        "dyn_trait" => {
            let mut all = list(&inner["traits"], |one| path(&one["trait"]));
            all.extend(inner["lifetime"].as_str().map(str::to_owned));
            format!("dyn {}", all.join(" + "))
        }
        "borrowed_ref" => {
            let lifetime = inner["lifetime"].as_str().map_or_else(String::new, |name| format!("{name} "));
            let mutable = if inner["is_mutable"] == true { "mut " } else { "" };
            format!("&{lifetime}{mutable}{}", ty(&inner["type"]))
        }
        "raw_pointer" => {
            format!("*{} {}", if inner["is_mutable"] == true { "mut" } else { "const" }, ty(&inner["type"]))
        }
        "qualified_path" => {
            let of = if inner["trait"].is_null() { String::new() } else { path(&inner["trait"]) };
            match &of[..] {
                "" => format!("{}::{}", ty(&inner["self_type"]), text(&inner["name"])),
                of => format!("<{} as {of}>::{}", ty(&inner["self_type"]), text(&inner["name"])),
            }
        }
        "function_pointer" => signature("fn", &inner["sig"]),
        other => other.to_owned(),
    }
}

/// Bounds, joined by `+`.
pub(crate) fn bounds(value: &Value) -> String {
    list(value, |bound| match (bound.get("trait_bound"), bound.get("outlives")) {
        (Some(bound), _) => {
            let maybe = if bound["modifier"] == "maybe" { "?" } else { "" };
            format!("{maybe}{}", path(&bound["trait"]))
        }
        (_, Some(lifetime)) => text(lifetime).to_owned(),
        _ => String::new(),
    })
    .join(" + ")
}

/// The parameters of an item, in angle brackets; those that the compiler made for `impl Trait` are
/// left out.
pub(crate) fn generics(value: &Value) -> String {
    let all = list(&value["params"], |param| {
        let kind = &param["kind"];
        let name = text(&param["name"]);
        if let Some(of) = kind.get("type") {
            if of["is_synthetic"] == true {
                return String::new();
            }
            let bounds = bounds(&of["bounds"]);
            return if bounds.is_empty() { name.to_owned() } else { format!("{name}: {bounds}") };
        }
        match kind.get("const") {
            Some(of) => format!("const {name}: {}", ty(&of["type"])),
            None => name.to_owned(),
        }
    });
    if all.is_empty() { String::new() } else { format!("<{}>", all.join(", ")) }
}

fn signature(name: &str, sig: &Value) -> String {
    let inputs = list(&sig["inputs"], |input| {
        let parts = input.as_array();
        let (name, of) = match parts.map(|parts| &parts[..]) {
            Some([name, of]) => (text(name), ty(of)),
            _ => ("_", String::new()),
        };
        match (name, &of[..]) {
            ("self", "Self") => "self".into(),
            ("self", "&Self") => "&self".into(),
            ("self", "&mut Self") => "&mut self".into(),
            ("_" | "", of) => of.to_owned(),
            (name, of) => format!("{name}: {of}"),
        }
    });
    let output = if sig["output"].is_null() { String::new() } else { format!(" -> {}", ty(&sig["output"])) };
    format!("{name}({}){output}", inputs.join(", "))
}

/// A function's head.
pub(crate) fn function(path: &str, inner: &Value) -> String {
    let header = &inner["header"];
    let mut words = String::new();
    for (flag, word) in [("is_const", "const "), ("is_async", "async "), ("is_unsafe", "unsafe ")] {
        if header[flag] == true {
            words.push_str(word);
        }
    }
    signature(&format!("{words}fn {path}{}", generics(&inner["generics"])), &inner["sig"])
}
