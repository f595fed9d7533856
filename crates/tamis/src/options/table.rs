//! The table behind an options struct, and the macro that generates both from the same rows.
//!
//! Invariant: a struct field exists if and only if its row does, so that documentation, defaults,
//! range checks, the text form and `tamis options` cannot disagree.

use crate::error::OptionsError;

/// The class of an option: who needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OptionClass {
    /// One to look at first.
    Basic,
    /// Fits a database to its workload, its machine or its operators.
    Tuning,
    /// The default suits nearly everyone.
    Expert,
}

impl OptionClass {
    /// All classes, in the order of the text form.
    pub(super) const ALL: [OptionClass; 3] = [OptionClass::Basic, OptionClass::Tuning, OptionClass::Expert];

    /// Returns the heading of the class in the text form.
    pub fn name(self) -> &'static str {
        match self {
            OptionClass::Basic => "basic",
            OptionClass::Tuning => "tuning",
            OptionClass::Expert => "expert",
        }
    }
}

/// The description of one option.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// The name in the text form.
    pub name: &'static str,
    /// The text of the default value.
    pub default: &'static str,
    /// Type, unit and range, as a phrase.
    pub takes: String,
    /// The class: basic, tuning or expert.
    pub class: OptionClass,
    /// The option's effect and consequences.
    pub doc: &'static str,
}

/// One row: an option of the struct `S`.
pub(super) struct Field<S> {
    pub(super) name: &'static str,
    /// The name among a database's options: the same, or with the prefix `keyspace.`.
    pub(super) qualified: &'static str,
    pub(super) default: &'static str,
    pub(super) class: OptionClass,
    /// Whether only experiments set it.
    pub(super) measured: bool,
    pub(super) doc: &'static str,
    pub(super) expected: fn() -> String,
    pub(super) complaint: fn(&str) -> String,
    pub(super) print: fn(&S) -> String,
    pub(super) accepts: fn(&S) -> bool,
    /// Sets the field if the text is an accepted value, and reports whether it was.
    pub(super) parse: fn(&mut S, &str) -> bool,
}

/// Shortens a text echoed in an error; a hostile one is not echoed whole.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the name that `wrong` is most likely a misspelling of, if one is near enough. The prefix
/// of a keyspace's options may be missing or superfluous, and hyphens stand for underscores.
pub(super) fn nearest(wrong: &str, names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    // No name is that long, and the cost is the product of the lengths.
    const MAX_BYTES: usize = 60;
    let bare = |name: &str| -> Vec<u8> {
        let name = name.strip_prefix("keyspace.").unwrap_or(name);
        name.bytes().map(|byte| if byte == b'-' { b'_' } else { byte.to_ascii_lowercase() }).collect()
    };
    if wrong.len() > MAX_BYTES {
        return None;
    }
    let wrong = bare(wrong);
    let distances = names.map(|name| (edits(&wrong, &bare(name)), name));
    distances
        .min_by_key(|(edits, _)| *edits)
        .filter(|(edits, _)| edits * 3 <= wrong.len())
        .map(|(_, name)| name)
}

/// The number of bytes to insert, remove or replace to turn one text into another.
fn edits(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

/// Why a build without the feature `measure` refuses the options of experiments.
pub(super) const NEEDS_MEASURE: &str = "needs a build with the feature `measure`";

impl<S> Field<S> {
    /// Reports whether the option keeps its default in this build.
    pub(super) fn is_fixed(&self) -> bool {
        self.measured && !cfg!(feature = "measure")
    }

    pub(super) fn name(&self, qualified: bool) -> &'static str {
        if qualified { self.qualified } else { self.name }
    }

    pub(super) fn refuse(&self, qualified: bool, value: &str) -> OptionsError {
        let expected = format!("it takes {}", (self.complaint)(value));
        OptionsError::Value { name: self.name(qualified), value: excerpt(value), expected }
    }

    pub(super) fn set(&self, target: &mut S, qualified: bool, value: &str) -> Result<(), OptionsError> {
        if (self.parse)(target, value) { Ok(()) } else { Err(self.refuse(qualified, value)) }
    }

    pub(super) fn check(&self, target: &S, qualified: bool) -> Result<(), OptionsError> {
        let value = || (self.print)(target);
        if self.is_fixed() && value() != self.default {
            let expected = format!("another value than {} {NEEDS_MEASURE}", self.default);
            return Err(OptionsError::Value { name: self.name(qualified), value: value(), expected });
        }
        if (self.accepts)(target) { Ok(()) } else { Err(self.refuse(qualified, &value())) }
    }

    pub(super) fn info(&self, qualified: bool) -> OptionInfo {
        OptionInfo {
            name: self.name(qualified),
            default: self.default,
            takes: (self.expected)(),
            class: self.class,
            doc: self.doc,
        }
    }

    pub(super) fn print_line(&self, target: &S, qualified: bool, out: &mut String) {
        out.push_str(self.name(qualified));
        out.push_str(" = ");
        out.push_str(&(self.print)(target));
        out.push('\n');
    }
}

/// Returns the `name = value` lines of a text with their numbers from 1, skipping comments and
/// blank lines.
pub(super) fn assignments(text: &str) -> impl Iterator<Item = Result<(usize, &str, &str), OptionsError>> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let content = line.split('#').next().unwrap_or("").trim();
        if content.is_empty() {
            return None;
        }
        Some(match content.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => Ok((i + 1, name.trim(), value.trim())),
            _ => Err(OptionsError::Syntax { line: i + 1, text: excerpt(content) }),
        })
    })
}

/// Declares an options struct and its table. Options that are `measured` are of class `Expert`, and
/// without the feature `measure` they keep their defaults: they are hidden, not private, as a
/// private field would forbid `..Default::default()` to every program.
///
/// ```text
/// options_table! {
///     #[derive(Clone)]
///     pub struct Name: "prefix." {
///         Class, field: Type = "default text", domain expression, "Documentation.";
///         …
///     }
///     measured { field: Type = "default text", domain expression, "Documentation."; … }
///     besides { #[doc = "…"] field: Type = default expression; … }
/// }
/// ```
macro_rules! options_table {
    (
        $(#[$attribute:meta])*
        pub struct $struct:ident: $prefix:literal {
            $($class:ident, $name:ident: $type:ty = $default:literal, $domain:expr, $doc:literal;)*
        }
        measured { $($measured:ident: $m_type:ty = $m_default:literal, $m_domain:expr, $m_doc:literal;)* }
        besides { $($(#[$extra_attribute:meta])* $extra:ident: $extra_type:ty = $extra_default:expr;)* }
    ) => {
        $(#[$attribute])*
        pub struct $struct {
            $(
                #[doc = $doc]
                #[doc = ""]
                #[doc = concat!("Default: `", $default, "`.")]
                pub $name: $type,
            )*
            $(
                #[doc = $m_doc]
                #[doc = ""]
                #[doc = concat!("Default: `", $m_default, "`.")]
                #[cfg_attr(not(feature = "measure"), doc(hidden))]
                pub $measured: $m_type,
            )*
            $($(#[$extra_attribute])* pub $extra: $extra_type,)*
        }

        impl $struct {
            pub(super) const FIELDS: &'static [Field<$struct>] = &[
                $(field!($struct, $prefix, $class, false, $name: $type = $default, $domain, $doc),)*
                $(field!($struct, $prefix, Expert, true, $measured: $m_type = $m_default, $m_domain, $m_doc),)*
            ];

            /// The options that can be set in this build.
            fn fields() -> impl Iterator<Item = &'static Field<$struct>> {
                Self::FIELDS.iter().filter(|field| !field.is_fixed())
            }

            /// Reports whether all options of the table are equal; says nothing of the fields
            /// outside the table.
            fn same_table(&self, other: &Self) -> bool {
                $(self.$name == other.$name)&&* $(&& self.$measured == other.$measured)*
            }
        }

        /// One method for each field, to set it in a chain.
        impl $struct {
            $(setter!($struct, $name: $type);)*
            $(setter!(#[cfg_attr(not(feature = "measure"), doc(hidden))] $struct, $measured: $m_type);)*
            $(setter!($struct, $extra: $extra_type);)*
        }

        impl Default for $struct {
            fn default() -> Self {
                $struct {
                    $($name: Domain::<$type>::parse(&$domain, $default)
                        .expect("the default of an option is one of its values"),)*
                    $($measured: Domain::<$m_type>::parse(&$m_domain, $m_default)
                        .expect("the default of an option is one of its values"),)*
                    $($extra: $extra_default,)*
                }
            }
        }
    };
}
pub(super) use options_table;

/// The method that sets one field.
macro_rules! setter {
    ($(#[$attribute:meta])? $struct:ident, $name:ident: $type:ty) => {
        #[doc = concat!("Sets [`", stringify!($name), "`](#structfield.", stringify!($name), ").")]
        $(#[$attribute])?
        #[must_use]
        pub fn $name(mut self, $name: $type) -> $struct {
            self.$name = $name;
            self
        }
    };
}
pub(super) use setter;

/// One row of the table.
macro_rules! field {
    (
        $struct:ident, $prefix:literal, $class:ident, $is_measured:literal,
        $name:ident: $type:ty = $default:literal, $domain:expr, $doc:literal
    ) => {
        Field {
            name: stringify!($name),
            qualified: concat!($prefix, stringify!($name)),
            default: $default,
            class: OptionClass::$class,
            measured: $is_measured,
            doc: $doc,
            expected: || Domain::<$type>::expected(&$domain),
            complaint: |text| Domain::<$type>::complaint(&$domain, text),
            print: |options: &$struct| Domain::<$type>::print(&$domain, &options.$name),
            accepts: |options: &$struct| Domain::<$type>::accepts(&$domain, &options.$name),
            parse: |options: &mut $struct, text| match Domain::<$type>::parse(&$domain, text) {
                Some(value) if Domain::<$type>::accepts(&$domain, &value) => {
                    options.$name = value;
                    true
                }
                _ => false,
            },
        }
    };
}
pub(super) use field;
