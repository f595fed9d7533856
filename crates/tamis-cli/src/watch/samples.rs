//! Metrics read back from their text. The file may have been written by anybody: what is not
//! understood is left out.

use std::collections::BTreeMap;

/// At most so many numbers are kept of a text.
const MOST: usize = 1 << 18;

/// The labels of a number, in the order of the text.
pub(crate) type Labels = Vec<(String, String)>;

/// Numbers by metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(BTreeMap<String, Vec<(Labels, f64)>>);

impl Samples {
    pub(crate) fn parse(text: &str) -> Samples {
        let mut samples = Samples::default();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for (name, labels, value) in lines.filter_map(sample).take(MOST) {
            samples.0.entry(name.to_owned()).or_default().push((labels, value));
        }
        samples
    }

    /// Returns all numbers with their metrics and labels.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Labels, f64)> {
        self.0
            .iter()
            .flat_map(|(name, all)| all.iter().map(move |(labels, value)| (&name[..], labels, *value)))
    }

    /// Returns all numbers of a metric with their labels.
    pub(crate) fn all(&self, name: &str) -> &[(Labels, f64)] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Returns the first number of a metric that has these labels.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.with(name, labels).next().map(|(_, value)| value)
    }

    /// Returns the numbers of a metric that have these labels.
    pub(crate) fn with<'s>(
        &'s self,
        name: &str,
        labels: &'s [(&'s str, &'s str)],
    ) -> impl Iterator<Item = (&'s Labels, f64)> {
        let has = |own: &Labels| labels.iter().all(|(name, value)| label(own, name) == Some(*value));
        self.all(name).iter().filter(move |(own, _)| has(own)).map(|(own, value)| (own, *value))
    }
}

/// Returns the value of a label.
pub(crate) fn label<'l>(labels: &'l Labels, name: &str) -> Option<&'l str> {
    labels.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

/// Reads one line: a name, labels in braces if there are any, and a finite number.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Labels::new(), rest),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && !name.is_empty()).then_some((name, labels, value))
}

/// Reads labels up to the closing brace; returns what is behind it, too.
fn labels(mut text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        text = text.trim_start_matches(',');
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
        text = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_writes_is_read_back() {
        let text = "# HELP a what\n# TYPE a gauge\na{database=\"x\",keyspace=\"odd \\\"\\\\\\n}, name\"} 12.5\n\
                    b 3\nb{x=\"1\"} 4\n";
        let samples = Samples::parse(text);
        assert_eq!(samples.get("a", &[("keyspace", "odd \"\\\n}, name")]), Some(12.5));
        assert_eq!(samples.get("b", &[]), Some(3.0));
        assert_eq!(samples.get("b", &[("x", "1")]), Some(4.0));
        assert_eq!(samples.get("b", &[("x", "2")]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_hostile(text in "[a-z{}=\"\\\\,# \n0-9.eE+-]{0,200}") {
            Samples::parse(&text);
        }
    }

    #[test]
    fn broken_lines_are_left_out() {
        for line in [
            "a",
            "a{",
            "a{b",
            "a{b=\"",
            "a{b=\"\\",
            "a{b=\"c\"",
            "a{b=\"c\"}",
            "a{b=\"c\"} x",
            "{} 1",
            "a NaN",
            "a 1e999",
        ] {
            assert_eq!(Samples::parse(line), Samples::default(), "{line}");
        }
    }
}
