//! Single values as text: [`Display`](fmt::Display) and [`FromStr`] in the words of the text form.

use std::fmt;
use std::str::FromStr;

use super::domain::{Compactions, Domain, DurabilityDomain, Levels, OneOf};
use super::prefixes::{PrefixFilter, Prefixes};
use super::table::excerpt;
use super::values::{
    AsyncReads, ChecksumMode, CompactionChoice, Compression, CompressionPerLevel, Durability, FilePicker,
    FilterAllocation, FilterChoice, FilterPolicy, KeyMapChoice, LogWrites, MergeGranularity, OnDamage,
    ReadMode,
};

/// A text that is not a value of the type asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a value: expected {expected}")]
#[non_exhaustive]
pub struct ParseValueError {
    /// The text; a long one is cut.
    pub text: String,
    /// What is accepted: type, unit and range, as a phrase.
    pub expected: String,
}

fn parse<T>(domain: &impl Domain<T>, text: &str) -> Result<T, ParseValueError> {
    let value = domain.parse(text).filter(|value| domain.accepts(value));
    value.ok_or_else(|| ParseValueError { text: excerpt(text), expected: domain.complaint(text) })
}

macro_rules! from_text {
    ($($type:ty: $domain:expr;)*) => {$(
        impl FromStr for $type {
            type Err = ParseValueError;

            fn from_str(text: &str) -> Result<Self, ParseValueError> {
                parse(&$domain, text)
            }
        }
    )*};
}

macro_rules! both_ways {
    ($($type:ty: $domain:expr;)*) => {
        from_text! { $($type: $domain;)* }
        $(
            impl fmt::Display for $type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.pad(&$domain.print(self))
                }
            }
        )*
    };
}

both_ways! {
    AsyncReads: OneOf;
    ChecksumMode: OneOf;
    Compression: OneOf;
    CompressionPerLevel: Levels;
    Durability: DurabilityDomain;
    FilePicker: OneOf;
    FilterAllocation: OneOf;
    FilterChoice: OneOf;
    FilterPolicy: Levels;
    KeyMapChoice: OneOf;
    MergeGranularity: OneOf;
    OnDamage: OneOf;
    PrefixFilter: Prefixes;
    LogWrites: OneOf;
    ReadMode: OneOf;
}

from_text! {
    CompactionChoice: Compactions;
}
