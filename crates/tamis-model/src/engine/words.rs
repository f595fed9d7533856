//! A workload as text: as people declare it, and as a database records what it has observed.
//!
//! `get 60, empty-get 30, put 10, skew 0.99`: parts separated by commas, each a name and a number,
//! in any order. Shares are relative to their sum; parts that are not named are as in
//! [`Workload::default`]. A name may be given only once.

use std::fmt;
use std::str::FromStr;

use super::inputs::Workload;

/// Names of the numbers, their fields, and the maximum of each.
type Part = (&'static str, fn(&mut Workload) -> &mut f64, f64);

/// Shares first.
const PARTS: [Part; 10] = [
    ("get", |w| &mut w.existing_gets, 1e12),
    ("empty-get", |w| &mut w.empty_gets, 1e12),
    ("empty-range", |w| &mut w.empty_ranges, 1e12),
    ("seek", |w| &mut w.seeks, 1e12),
    ("scan", |w| &mut w.scans, 1e12),
    ("put", |w| &mut w.puts, 1e12),
    ("range-width", |w| &mut w.range_width, 1e18),
    ("scan-entries", |w| &mut w.scan_entries, 1e12),
    ("skew", |w| &mut w.skew, 8.0),
    ("near", |w| &mut w.near, 1.0),
];

/// How many of [`PARTS`] are shares of operations.
const SHARES: usize = 6;

const CLUSTERED: &str = "clustered";

/// Maximum length of the text, in bytes.
const MAX_BYTES: usize = 400;

impl fmt::Display for Workload {
    /// Writes the text that [`FromStr`] reads back as the same workload, if it is
    /// [valid](Workload::is_sound).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut here, mut usual) = (*self, Workload::default());
        let mut words = Vec::new();
        for (name, of, _) in PARTS {
            let number = *of(&mut here);
            if number != *of(&mut usual) {
                // As short as possible: some texts are for people, and some have a length limit.
                words.push(match number {
                    1e-6..1e15 | 0.0 => format!("{name} {number}"),
                    _ => format!("{name} {number:e}"),
                });
            }
        }
        if self.clustered {
            words.push(CLUSTERED.to_owned());
        }
        f.write_str(&words.join(", "))
    }
}

impl Workload {
    /// Returns whether every number is within its range and some operation has a share.
    pub fn is_sound(&self) -> bool {
        let mut here = *self;
        let in_range = PARTS.iter().all(|(_, of, most)| (0.0..=*most).contains(of(&mut here)));
        in_range && PARTS[..SHARES].iter().any(|part| *part.1(&mut here) > 0.0)
    }

    /// Returns the average of this and another workload, shares relative to their sums.
    #[must_use]
    pub fn blended(&self, other: &Workload) -> Workload {
        let (mut a, mut b) = (self.in_percent(), other.in_percent());
        for (_, of, _) in PARTS {
            let sum = *of(&mut a) + *of(&mut b);
            *of(&mut a) = sum / 2.0;
        }
        a.clustered &= b.clustered;
        a
    }

    /// Returns the same workload with shares in percent, and every number to four digits: for
    /// people, and for estimates.
    #[must_use]
    pub fn in_percent(&self) -> Workload {
        let mut here = *self;
        let sum: f64 = PARTS[..SHARES].iter().map(|part| part.1(&mut here).max(0.0)).sum();
        for (i, (_, of, most)) in PARTS.iter().enumerate() {
            let number = of(&mut here);
            let scaled = if i < SHARES && sum > 0.0 { *number / sum * 100.0 } else { *number };
            *number = rounded(scaled.clamp(0.0, *most));
        }
        here
    }
}

/// Rounds to four digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

/// A text that is not a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWorkload {
    /// The reason.
    pub why: String,
}

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = PARTS.iter().map(|part| part.0).collect();
        write!(
            f,
            "{}; a workload is a list of parts like `get 60, empty-get 30, put 10, skew 0.99`; the names are {} and {CLUSTERED}",
            self.why,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownWorkload {}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |why: String| Err(UnknownWorkload { why });
        if text.len() > MAX_BYTES {
            return fail(format!("a workload has at most {MAX_BYTES} bytes"));
        }
        let mut workload = Workload::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, number) = part.split_once([' ', '=']).unwrap_or((part, ""));
            if seen.contains(&name) {
                return fail(format!("`{name}` appears twice"));
            }
            seen.push(name);
            if name == CLUSTERED && number.is_empty() {
                workload.clustered = true;
                continue;
            }
            let Some((_, of, most)) = PARTS.iter().find(|part| part.0 == name) else {
                return fail(format!("unknown name `{name}`"));
            };
            match number.trim().trim_end_matches('%').trim_end().parse::<f64>() {
                Ok(number) if (0.0..=*most).contains(&number) => *of(&mut workload) = number,
                _ => return fail(format!("`{name}` must be a number from 0 to {most}, not `{number}`")),
            }
        }
        let sum: f64 = PARTS[..SHARES].iter().map(|part| *part.1(&mut workload)).sum();
        if sum <= 0.0 {
            return fail("no operation has a share".to_owned());
        }
        Ok(workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_workloads_are_read_back() {
        let w = Workload {
            empty_gets: 0.5,
            existing_gets: 0.25,
            puts: 0.25,
            skew: 0.99,
            scan_entries: 20.0,
            clustered: true,
            ..Workload::default()
        };
        let text = w.to_string();
        assert_eq!(text, "get 0.25, empty-get 0.5, put 0.25, scan-entries 20, skew 0.99, clustered");
        assert_eq!(text.parse::<Workload>().unwrap(), w);
        let odd = Workload { seeks: 1.0 / 3.0, scans: 1e-300, range_width: 1e18, near: 0.1 + 0.2, ..w };
        assert!(odd.is_sound());
        assert_eq!(odd.to_string().parse::<Workload>().unwrap(), odd);
        assert_eq!(odd.in_percent().to_string().parse::<Workload>().unwrap(), odd.in_percent());
        assert_eq!(
            w.in_percent().to_string(),
            "get 25, empty-get 50, put 25, scan-entries 20, skew 0.99, clustered"
        );
        let writes = Workload { puts: 7.0, scan_entries: 10.0, ..Workload::default() };
        let half = w.blended(&writes);
        assert_eq!(
            (half.empty_gets, half.puts, half.scan_entries, half.clustered),
            (25.0, 62.5, 15.0, false)
        );
        for unsound in [
            Workload::default(),
            Workload { puts: -1.0, ..w },
            Workload { skew: f64::NAN, ..w },
            Workload { near: 1.5, ..w },
        ] {
            assert!(!unsound.is_sound(), "{unsound}");
        }
    }

    #[test]
    fn spaces_equals_signs_and_percent_signs_are_accepted() {
        let read: Workload = " get=60 % ,empty-get 40,skew  1".parse().unwrap();
        assert_eq!((read.existing_gets, read.empty_gets, read.skew), (60.0, 40.0, 1.0));
    }

    #[test]
    fn invalid_workloads_are_rejected_with_a_reason() {
        for (text, why) in [
            ("", "unknown name ``"),
            ("got 5", "unknown name `got`"),
            ("get many", "not `many`"),
            ("get -1", "from 0"),
            ("get NaN", "from 0"),
            ("get inf", "from 0"),
            ("get 0", "no operation"),
            ("skew 1", "no operation"),
            ("get 1, get 2", "twice"),
            ("get 1, near 2", "from 0 to 1"),
        ] {
            let refused = text.parse::<Workload>().unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        assert!("get 1,".repeat(100).parse::<Workload>().is_err());
    }
}
