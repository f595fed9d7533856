//! What a function can return at once instead of doing its work.

use std::collections::HashSet;

use syn::{GenericArgument, PathArguments, ReturnType, Type};

const INTEGERS: &[&str] =
    &["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

/// Returns values of the return type; none if the type is not simple. `integers` are other names of
/// integers.
pub fn values(output: &ReturnType, integers: &HashSet<String>) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, of) => match &**of {
            Type::Tuple(tuple) if tuple.elems.is_empty() => vec![String::new()],
            of => of_type(of, integers),
        },
    }
}

fn of_type(of: &Type, integers: &HashSet<String>) -> Vec<String> {
    let all = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match of {
        Type::Paren(inner) => of_type(&inner.elem, integers),
        Type::Tuple(tuple) if tuple.elems.is_empty() => all(&["()"]),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            let name = last.ident.to_string();
            match name.as_str() {
                "bool" => all(&["true", "false"]),
                "f32" | "f64" => all(&["0.0"]),
                "Option" => all(&["None"]),
                "Vec" => all(&["::std::vec::Vec::new()"]),
                "Duration" => all(&["::std::time::Duration::ZERO"]),
                "Ordering" => all(&["::std::cmp::Ordering::Equal"]),
                "Result" => match &last.arguments {
                    PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
                        Some(GenericArgument::Type(of)) => {
                            of_type(of, integers).into_iter().map(|value| format!("Ok({value})")).collect()
                        }
                        _ => Vec::new(),
                    },
                    _ => Vec::new(),
                },
                name if INTEGERS.contains(&name) || integers.contains(name) => all(&["0", "1"]),
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

/// Adds the names that the items give to integers.
pub fn add_names(items: &[syn::Item], integers: &mut HashSet<String>) {
    for item in items {
        if let syn::Item::Type(alias) = item
            && let Type::Path(path) = &*alias.ty
            && path.path.get_ident().is_some_and(|ident| INTEGERS.contains(&ident.to_string().as_str()))
        {
            integers.insert(alias.ident.to_string());
        }
    }
}
