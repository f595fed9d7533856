//! Mutants, and the places in a source where they are put.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// One small mistake.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mutant {
    /// Its switch. Numbers begin at 1 and change when the sources do.
    pub number: u32,
    /// Names the mistake for as long as its function does not change: a hash of file, function,
    /// operator and texts.
    pub id: String,
    /// The group of rooms.
    pub group: String,
    /// Crate and room.
    pub room: String,
    /// The file, relative to the root of the repository.
    pub file: String,
    pub line: usize,
    pub column: usize,
    /// The type, if any, and the function.
    pub function: String,
    /// What kind of mistake.
    pub operator: String,
    /// The text in question, on one line and shortened.
    pub original: String,
    /// What it is instead.
    pub mutated: String,
    /// The path of the module, without the crate.
    pub module: String,
}

/// How a place is rewritten.
#[derive(Debug)]
pub enum Shape {
    /// An expression, with other texts for it.
    Choice(Vec<(u32, String)>),
    /// A comparison whose two sides may be evaluated twice, and another one of the same sides.
    Compare(u32, String),
    /// A condition that is turned around.
    Flip(u32),
    /// A statement that is left out.
    Guard(u32),
    /// The beginning of a function's body, and values to return at once.
    Entry(Vec<(u32, String)>),
    /// The body of a function: nothing is rewritten.
    Function,
}

/// A place in a source.
#[derive(Debug)]
pub struct Site {
    /// In bytes of the source.
    pub range: Range<usize>,
    pub shape: Shape,
}

impl Site {
    /// Returns the mutants of the place.
    pub fn mutants(&self) -> Vec<u32> {
        match &self.shape {
            Shape::Choice(all) | Shape::Entry(all) => all.iter().map(|(mutant, _)| *mutant).collect(),
            Shape::Compare(mutant, _) | Shape::Flip(mutant) | Shape::Guard(mutant) => vec![*mutant],
            Shape::Function => Vec::new(),
        }
    }
}

/// A source with its places, sorted so that an outer one comes before those in it.
#[derive(Debug)]
pub struct Source {
    /// The path relative to the root of the repository.
    pub file: String,
    pub text: String,
    pub sites: Vec<Site>,
}
