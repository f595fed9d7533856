//! Rewrites a source so that each of its mutants waits behind its switch.
//!
//! # Invariants
//!
//! * With no mutant on, the rewritten source does what the source does: each expression is
//!   evaluated once, in its place. Only comparisons of plain operands may be evaluated again.
//! * A mutated text is a copy of the source without other mutants. So the length grows with the
//!   depth of nesting, not with its power.

use std::collections::HashSet;
use std::ops::Range;

use crate::site::{Shape, Site, Source};

/// What a range of the rewritten source belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The text of one mutant.
    Mutant(u32),
    /// A rewritten place with these mutants.
    Site(Vec<u32>),
    /// The body of a function with these mutants in it.
    Function(Vec<u32>),
}

/// A rewritten source.
#[derive(Debug, Default)]
pub struct Rewritten {
    pub text: String,
    /// Inner ranges come before those around them.
    pub owners: Vec<(Range<usize>, Owner)>,
}

impl Rewritten {
    /// Returns the mutants that may cause an error at the range: those of the innermost text or
    /// place around it, else those of the function.
    pub fn suspects(&self, range: &Range<usize>) -> &[u32] {
        let around =
            |owner: &&(Range<usize>, Owner)| owner.0.start <= range.start && range.end <= owner.0.end;
        match self.owners.iter().find(around) {
            Some((_, Owner::Mutant(mutant))) => std::slice::from_ref(mutant),
            Some((_, Owner::Site(mutants) | Owner::Function(mutants))) => mutants,
            None => &[],
        }
    }

    /// Reports whether the range is in a rewritten place, not merely in a function with some.
    pub fn is_within_site(&self, range: &Range<usize>) -> bool {
        self.owners.iter().any(|(owned, owner)| {
            !matches!(owner, Owner::Function(_)) && owned.start <= range.start && range.end <= owned.end
        })
    }
}

/// Rewrites the source, without the mutants that are `dropped`.
pub fn rewrite(source: &Source, dropped: &HashSet<u32>) -> Rewritten {
    let mut writer = Writer { source, dropped, next: 0, inside: Vec::new(), out: Rewritten::default() };
    writer.piece(0..source.text.len());
    writer.out
}

#[cfg(test)]
mod tests;

struct Writer<'a> {
    source: &'a Source,
    dropped: &'a HashSet<u32>,
    /// The next place.
    next: usize,
    /// The mutants of the functions around, innermost last.
    inside: Vec<Vec<u32>>,
    out: Rewritten,
}

impl Writer<'_> {
    /// Writes a part of the source with the places in it.
    fn piece(&mut self, range: Range<usize>) {
        let mut at = range.start;
        while let Some(site) = self.source.sites.get(self.next) {
            if site.range.start < at || site.range.end > range.end {
                break;
            }
            self.next += 1;
            self.out.text.push_str(&self.source.text[at..site.range.start]);
            at = site.range.end;
            self.site(site);
        }
        self.out.text.push_str(&self.source.text[at..range.end]);
    }

    fn site(&mut self, site: &Site) {
        let start = self.out.text.len();
        let mutants: Vec<u32> =
            site.mutants().into_iter().filter(|one| !self.dropped.contains(one)).collect();
        if let Some(inside) = self.inside.last_mut() {
            inside.extend(&mutants);
        }
        match &site.shape {
            Shape::Function => {
                self.inside.push(Vec::new());
                self.piece(site.range.clone());
                let mutants = self.inside.pop().unwrap_or_default();
                self.out.owners.push((start..self.out.text.len(), Owner::Function(mutants)));
                return;
            }
            _ if mutants.is_empty() => return self.piece(site.range.clone()),
            Shape::Choice(all) => {
                self.push("(");
                for (mutant, text) in all.iter().filter(|(mutant, _)| mutants.contains(mutant)) {
                    self.push(&format!("if ::tamis_mutant::on({mutant}) {{ "));
                    self.alternative(*mutant, text);
                    self.push(" } else ");
                }
                self.push("{ ");
                self.piece(site.range.clone());
                self.push(" })");
            }
            Shape::Compare(mutant, text) => {
                self.push("({ let __original = ");
                self.piece(site.range.clone());
                self.push(&format!("; if ::tamis_mutant::probe({mutant}) {{ "));
                self.push(&format!("::tamis_mutant::seen({mutant}, __original, "));
                self.alternative(*mutant, text);
                self.push(") } else { __original } })");
            }
            Shape::Flip(mutant) => {
                self.push(&format!("(::tamis_mutant::on({mutant}) ^ ("));
                self.piece(site.range.clone());
                self.push("))");
            }
            Shape::Guard(mutant) => {
                self.push(&format!("if !::tamis_mutant::on({mutant}) {{ "));
                self.piece(site.range.clone());
                self.push(" }");
            }
            Shape::Entry(all) => {
                for (mutant, value) in all.iter().filter(|(mutant, _)| mutants.contains(mutant)) {
                    self.push(&format!(" if ::tamis_mutant::on({mutant}) {{ return "));
                    self.alternative(*mutant, value);
                    self.push("; }");
                }
            }
        }
        self.out.owners.push((start..self.out.text.len(), Owner::Site(mutants)));
    }

    fn push(&mut self, text: &str) {
        self.out.text.push_str(text);
    }

    fn alternative(&mut self, mutant: u32, text: &str) {
        let start = self.out.text.len();
        self.push(text);
        self.out.owners.push((start..self.out.text.len(), Owner::Mutant(mutant)));
    }
}
