//! Which code is part of the build: conditions of compilation, as they are for the tests on Linux.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Features of the engine that its tests turn on.
const FEATURES: &[&str] = &["measure", "serde", "tracing"];

/// Reports whether code with these attributes is built outside unit tests, and may be mutated.
pub fn is_built(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        if attribute.path().is_ident("test") {
            return false;
        }
        if !attribute.path().is_ident("cfg") {
            return true;
        }
        attribute.parse_args::<Meta>().is_ok_and(|condition| holds(&condition))
    })
}

fn holds(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("unix"),
        Meta::NameValue(pair) => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(value), .. }) = &pair.value else {
                return false;
            };
            let value = value.value();
            match pair.path.get_ident().map(ToString::to_string).as_deref() {
                Some("feature") => FEATURES.contains(&value.as_str()),
                Some("target_os") => value == "linux",
                Some("target_arch") => value == std::env::consts::ARCH,
                Some("target_endian") => value == "little",
                Some("target_pointer_width") => value == "64",
                _ => false,
            }
        }
        Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
                return false;
            };
            match list.path.get_ident().map(ToString::to_string).as_deref() {
                Some("all") => parts.iter().all(holds),
                Some("any") => parts.iter().any(holds),
                Some("not") => parts.first().is_some_and(|part| !holds(part)),
                _ => false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_built;

    fn built(source: &str) -> bool {
        is_built(&syn::parse_str::<syn::ItemFn>(&format!("{source} fn f() {{}}")).unwrap().attrs)
    }

    #[test]
    fn tests_other_systems_and_the_simulation_are_left_out() {
        assert!(built(""));
        assert!(built("#[inline]"));
        assert!(built("#[cfg(not(all(test, loom)))]"));
        assert!(built("#[cfg(target_os = \"linux\")]"));
        assert!(built("#[cfg(any(test, unix))]"));
        assert!(!built("#[test]"));
        assert!(!built("#[cfg(test)]"));
        assert!(!built("#[cfg(all(test, unix))]"));
        assert!(!built("#[cfg(not(unix))]"));
        assert!(!built("#[cfg(windows)]"));
        assert!(!built("#[cfg(feature = \"simulation\")]"));
        assert!(!built("#[cfg(debug_assertions)]"));
    }
}
