//! False positives compared with theory, and checks for false negatives.

use std::error::Error;

use serde::Serialize;

use super::{Options, Subject, denied};
use crate::filters::Filter;
use crate::keysets::KeySet;
use crate::progress::Progress;
use crate::queries::{Class, Queries, Width, ranges_with_a_key};
use crate::stats::interval;

/// Minimum number of empty queries for a rate.
const FEWEST: usize = 200;
/// Number of members queried inside ranges, for each width.
const RANGES_WITH_A_KEY: usize = 20_000;

/// The answers of one filter to the queries of one class and width.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rate {
    /// The key set's name.
    pub key_set: &'static str,
    /// The filter's name.
    pub filter: &'static str,
    /// Requested bits per key.
    pub bits_asked: f64,
    /// Actual bits per key.
    pub bits: f64,
    /// Class of the queries.
    pub class: Class,
    /// Number of integers per query; "prefix" for prefixes.
    pub width: String,
    /// Number of queries, all of which contain no key.
    pub queries: u64,
    /// Number of positive answers.
    pub positives: u64,
    /// Their share.
    pub rate: f64,
    /// The 95 % interval of the rate.
    pub interval: (f64, f64),
    /// The theoretical rate, if there is one.
    pub theory: Option<f64>,
    /// The reason if the filter could not be built, in which case everything else is 0.
    pub refused: Option<String>,
}

/// Measures all subjects over one set.
pub(super) fn measure(
    set: &KeySet,
    subjects: &[Subject],
    widths: &[Width],
    options: &Options,
    progress: &Progress,
) -> Result<Vec<Rate>, Box<dyn Error>> {
    progress.phase(&format!("{}: drawing queries", set.name));
    let digests = set.digests();
    let mut queries = Vec::new();
    for &width in widths {
        for class in Class::ALL {
            queries.push(Queries::draw(set, class, width, options.queries, options.common.seed));
        }
    }
    progress.begin(&format!("{}: rates", set.name), subjects.len());
    let mut rates = Vec::new();
    for subject in subjects {
        match subject.kind.build(set, &digests, subject.bits, options.common.seed) {
            Ok(filter) => {
                check(set, subject, &filter, &digests, widths)?;
                let asked = queries.iter().filter(|queries| {
                    queries.len() >= FEWEST && (subject.kind.is_range() || queries.width == Width::Point)
                });
                rates.extend(asked.map(|queries| ask(set, subject, &filter, queries)));
            }
            Err(error) => rates.push(Rate {
                key_set: set.name,
                filter: subject.kind.name,
                bits_asked: subject.bits,
                bits: 0.0,
                class: Class::Uniform,
                width: Width::Point.text(),
                queries: 0,
                positives: 0,
                rate: 0.0,
                interval: (0.0, 1.0),
                theory: None,
                refused: Some(error.to_string()),
            }),
        }
        progress.advance(1);
    }
    Ok(rates)
}

/// Queries every member as a point, and many inside ranges.
fn check(
    set: &KeySet,
    subject: &Subject,
    filter: &Filter,
    digests: &[tamis_filter::Digest],
    widths: &[Width],
) -> Result<(), Box<dyn Error>> {
    for (key, &digest) in set.members.iter().zip(digests) {
        if !filter.contains(key, digest) {
            return Err(denied(set, subject, filter, "the point", key));
        }
    }
    for &width in widths.iter().filter(|_| subject.kind.is_range()) {
        let mut lost = None;
        ranges_with_a_key(set, width, RANGES_WITH_A_KEY, |key, range| {
            if lost.is_none() && !filter.contains_range(range) {
                lost = Some((key.to_vec(), format!("the range {range:02x?}")));
            }
        });
        if let Some((key, what)) = lost {
            return Err(denied(set, subject, filter, &what, &key));
        }
    }
    Ok(())
}

fn ask(set: &KeySet, subject: &Subject, filter: &Filter, queries: &Queries) -> Rate {
    let positive = |&at: &usize| match queries.width {
        Width::Point => filter.contains(queries.start(at), queries.digest(at)),
        Width::Integers(_) | Width::Prefix => filter.contains_range(queries.range(at)),
    };
    let asked = queries.len() as u64;
    let positives = (0..queries.len()).filter(positive).count() as u64;
    Rate {
        key_set: set.name,
        filter: subject.kind.name,
        bits_asked: subject.bits,
        bits: filter.bits_per_key(),
        class: queries.class,
        width: queries.width.text(),
        queries: asked,
        positives,
        rate: positives as f64 / asked as f64,
        interval: interval(positives, asked),
        theory: filter.expected_rate(queries.width, !set.integers),
        refused: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filters::Kind;
    use crate::keysets::{Name, Sources};

    #[test]
    fn a_filter_that_lacks_a_key_ends_the_program() {
        let set = KeySet::load(Name::Words, 2_000, 1, &Sources::default()).unwrap();
        let less = set.thinned(set.members.len() - 100);
        let kind = Kind::named("blocked-bloom").unwrap()[0];
        let subject = Subject { kind, bits: 16.0 };
        let filter = kind.build(&less, &less.digests(), 16.0, 1).unwrap();
        assert!(check(&less, &subject, &filter, &less.digests(), &[Width::Point]).is_ok());
        let error = check(&set, &subject, &filter, &set.digests(), &[Width::Point]).unwrap_err().to_string();
        assert!(error.starts_with("FALSE NEGATIVE: blocked-bloom at 16 bits"), "{error}");
    }

    #[test]
    fn the_rate_counts_positive_answers_to_empty_queries() {
        let set = KeySet::load(Name::Uniform, 2_000, 1, &Sources::default()).unwrap();
        let kind = Kind::named("bloom").unwrap()[0];
        let subject = Subject { kind, bits: 4.0 };
        let filter = kind.build(&set, &set.digests(), 4.0, 1).unwrap();
        let queries = Queries::draw(&set, Class::Gap, Width::Point, 20_000, 1);
        let rate = ask(&set, &subject, &filter, &queries);
        assert_eq!(rate.queries, 20_000);
        assert!((rate.rate - rate.theory.unwrap()).abs() < 0.03, "{rate:?}");
        assert!(rate.interval.0 < rate.rate && rate.rate < rate.interval.1);
    }
}
