//! The varied parameters of a figure, and its points at a scale.

use tamis_bench::BenchError;

use crate::figures::{Custom, Scale};

/// The horizontal axis of a figure's panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Across {
    /// The share of absent keys.
    Absent,
    /// Size of a key in bytes.
    KeyBytes,
    /// Number of levels of the tree.
    Levels,
    /// The device.
    Device,
    /// Filter bits per key.
    Bits,
}

/// The measurements of a figure at all scales: every combination of its lists.
#[derive(Debug)]
pub(super) struct Design {
    pub(super) across: Across,
    /// Size of a key and its value in bytes.
    pub(super) entry_bytes: usize,
    pub(super) key_bytes: &'static [usize],
    pub(super) tiering: bool,
    /// Repeats the measurement with leveling on the device with this name.
    pub(super) leveling_on: Option<&'static str>,
    pub(super) size_ratio: u64,
    pub(super) levels: &'static [usize],
    pub(super) bits: &'static [f64],
    /// In percent.
    pub(super) absents: &'static [u64],
    pub(super) devices: &'static [&'static str],
    pub(super) skews: &'static [f64],
}

/// The tree that most figures query: five levels of ratio 10, keys of 512 bytes in entries of a kilobyte.
pub(super) const USUAL: Design = Design {
    across: Across::Absent,
    entry_bytes: 1024,
    key_bytes: &[512],
    tiering: false,
    leveling_on: None,
    size_ratio: 10,
    levels: &[5],
    bits: &[10.0],
    absents: &[100],
    devices: &["pcie-ssd"],
    skews: &[0.0],
};

/// Total size of keys and values of the paper's databases in bytes.
const PAPER_BYTES: u64 = 22_000_000_000;

/// A tree of runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) key_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) bits: f64,
    pub(super) tiering: bool,
    pub(super) size_ratio: u64,
    pub(super) levels: usize,
    /// Number of keys of each run, the newest first.
    pub(super) runs: Vec<u64>,
}

impl Shape {
    /// Returns the number of all keys.
    pub(super) fn keys(&self) -> u64 {
        self.runs.iter().sum()
    }

    /// Returns the total size of keys and values in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.keys() * (self.key_bytes + self.value_bytes) as u64
    }

    /// Returns `leveling` or `tiering`.
    pub(super) fn policy(&self) -> &'static str {
        if self.tiering { "tiering" } else { "leveling" }
    }
}

/// Returns the sizes of runs, newest first, of a tree with at least `keys` keys whose levels grow by the ratio: one run
/// per level, or `ratio` runs. No run is empty.
pub(super) fn run_sizes(keys: u64, levels: usize, ratio: u64, tiering: bool) -> Vec<u64> {
    let per_level = if tiering { ratio as usize } else { 1 };
    let weight = |level: usize| (ratio as f64).powi(level as i32);
    let all: f64 = (0..levels).map(weight).sum::<f64>() * per_level as f64;
    let size = |level: usize| ((keys as f64 * weight(level) / all).round() as u64).max(1);
    (0..levels).flat_map(|level| std::iter::repeat_n(size(level), per_level)).collect()
}

/// The measurement of one step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// The step's name.
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) device: String,
    /// In percent.
    pub(super) absent: u64,
    pub(super) skew: f64,
}

/// Returns the first, the middle and the last of more than three values.
fn thinned<T: Copy>(list: &[T]) -> Vec<T> {
    match list.len() {
        0..=3 => list.to_vec(),
        n => vec![list[0], list[n / 2], list[n - 1]],
    }
}

impl Design {
    /// Returns the default size of the largest tree in bytes of keys and values.
    pub(super) fn most_bytes(&self, scale: Scale) -> u64 {
        match scale {
            Scale::Small => 24_000_000,
            Scale::Default => 220_000_000,
            Scale::Paper => PAPER_BYTES,
        }
    }

    /// Returns all points. Trees are in the outer loops, since building them dominates the cost.
    pub(super) fn points(&self, scale: Scale, custom: &Custom) -> Result<Vec<Point>, BenchError> {
        let key_bytes =
            self.list("--key-bytes", &custom.key_bytes, self.key_bytes, Across::KeyBytes, scale)?;
        let bits = self.list("--bits", &custom.bits, self.bits, Across::Bits, scale)?;
        let absents = self.list("--absent", &custom.absents, self.absents, Across::Absent, scale)?;
        let skews = if custom.skews.is_empty() { self.skews.to_vec() } else { custom.skews.clone() };
        let levels = self.list("", &[], self.levels, Across::Levels, scale)?;
        let devices: Vec<String> = match custom.devices.is_empty() {
            true => self.devices.iter().map(|&name| name.to_owned()).collect(),
            false => custom.devices.clone(),
        };
        check(&key_bytes, &bits, &absents, &skews)?;
        let size_ratio = custom.size_ratio.unwrap_or(self.size_ratio);
        if !(2..=100).contains(&size_ratio) {
            return Err(request(format!("--size-ratio {size_ratio} is out of range: 2 to 100")));
        }
        let most_levels = levels.iter().copied().max().unwrap_or(1);
        let mut points = Vec::new();
        let shapes = if self.tiering { &[true, false][..] } else { &[false] };
        for &tiering in shapes {
            // The second iteration: leveling beside tiering.
            let beside = tiering != self.tiering;
            if beside && self.leveling_on.is_none() {
                continue;
            }
            for &levels in &levels {
                for &key_bytes in &key_bytes {
                    for &bits in &bits {
                        let value_bytes = match custom.value_bytes {
                            Some(bytes) => bytes,
                            // Keys that leave no space have short values.
                            None => self.entry_bytes.saturating_sub(key_bytes).max(self.entry_bytes / 16),
                        };
                        let entry_bytes = (key_bytes + value_bytes) as u64;
                        let keys = custom.keys.unwrap_or(self.most_bytes(scale) / entry_bytes).max(1);
                        // Smaller trees are the first levels of the largest.
                        let all = run_sizes(keys, most_levels, size_ratio, tiering);
                        let runs = all[..all.len() / most_levels * levels].to_vec();
                        let shape = Shape { key_bytes, value_bytes, bits, tiering, size_ratio, levels, runs };
                        for device in &devices {
                            if beside && self.leveling_on != Some(device) {
                                continue;
                            }
                            for &skew in &skews {
                                for &absent in &absents {
                                    let name = name_of(self, &shape, device, absent, skew);
                                    let (shape, device) = (shape.clone(), device.clone());
                                    points.push(Point { name, shape, device, absent, skew });
                                }
                            }
                        }
                    }
                }
            }
        }
        Ok(points)
    }

    /// Returns the given values, or the figure's own, thinned at the smallest scale; several are allowed only for a
    /// varied parameter.
    fn list<T: Copy>(
        &self,
        flag: &str,
        given: &[T],
        own: &[T],
        across: Across,
        scale: Scale,
    ) -> Result<Vec<T>, BenchError> {
        if given.len() > 1 && self.across != across {
            return Err(request(format!(
                "this figure takes one value of {flag}, not a list, since it does not vary it"
            )));
        }
        Ok(match given.is_empty() {
            false => given.to_vec(),
            true if scale == Scale::Small => thinned(own),
            true => own.to_vec(),
        })
    }
}

fn check(key_bytes: &[usize], bits: &[f64], absents: &[u64], skews: &[f64]) -> Result<(), BenchError> {
    if let Some(bytes) = key_bytes.iter().find(|bytes| !(8..=16 << 10).contains(*bytes)) {
        return Err(request(format!("--key-bytes {bytes} is out of range: 8 to 16384")));
    }
    if let Some(bits) = bits.iter().find(|bits| !(1.0..=64.0).contains(*bits)) {
        return Err(request(format!("--bits {bits} is out of range: 1 to 64")));
    }
    if let Some(absent) = absents.iter().find(|absent| **absent > 100) {
        return Err(request(format!("--absent {absent} is out of range: 0 to 100 percent")));
    }
    if let Some(skew) = skews.iter().find(|skew| !(0.0..=5.0).contains(*skew)) {
        return Err(request(format!("--skew {skew} is out of range: 0 to 5")));
    }
    Ok(())
}

/// Returns the step's name: all varied parameters.
fn name_of(design: &Design, shape: &Shape, device: &str, absent: u64, skew: f64) -> String {
    let mut name = format!("{device}, {} B keys", shape.key_bytes);
    if design.across == Across::Levels {
        name += &format!(", {} levels", shape.levels);
    }
    if design.across == Across::Bits {
        name += &format!(", {} bits", shape.bits);
    }
    if shape.tiering || design.tiering {
        name += &format!(", {}", shape.policy());
    }
    if skew > 0.0 {
        name += &format!(", Zipf {skew}");
    }
    name + &format!(", {absent} % absent")
}

pub(super) fn request(text: String) -> BenchError {
    BenchError::Request(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_grow_by_the_ratio_and_hold_the_keys() {
        assert_eq!(run_sizes(22_222, 5, 10, false), [2, 20, 200, 2000, 20_000]);
        let tiered = run_sizes(1_111_100, 5, 10, true);
        assert_eq!((tiered.len(), tiered[0], tiered[49], tiered.iter().sum()), (50, 10, 100_000, 1_111_100));
        assert_eq!(run_sizes(1, 3, 10, false), [1, 1, 1], "no run is empty");
    }

    #[test]
    fn points_have_unique_names_and_only_varied_parameters_are_lists() {
        let design = Design {
            devices: &["ssd", "nvm"],
            tiering: true,
            leveling_on: Some("nvm"),
            absents: &[0, 50, 60, 100],
            ..USUAL
        };
        let points = design.points(Scale::Default, &Custom::default()).unwrap();
        assert_eq!(points.len(), 2 * 4 + 4);
        let names: std::collections::HashSet<_> = points.iter().map(|point| &point.name).collect();
        assert_eq!(names.len(), points.len());
        assert_eq!(design.points(Scale::Small, &Custom::default()).unwrap().len(), 2 * 3 + 3);
        let given = Custom { key_bytes: vec![8, 16], ..Custom::default() };
        assert!(design.points(Scale::Small, &given).unwrap_err().to_string().contains("--key-bytes"));
        let given = Custom { absents: vec![1, 2], devices: vec!["hdd".into()], ..Custom::default() };
        assert_eq!(
            design.points(Scale::Small, &given).unwrap().len(),
            2,
            "no leveling on a device that is not measured"
        );
        for wrong in [
            Custom { absents: vec![101], ..Custom::default() },
            Custom { bits: vec![0.0], ..Custom::default() },
            Custom { key_bytes: vec![7], ..Custom::default() },
            Custom { skews: vec![-1.0], ..Custom::default() },
            Custom { size_ratio: Some(1), ..Custom::default() },
        ] {
            assert!(matches!(design.points(Scale::Small, &wrong), Err(BenchError::Request(_))), "{wrong:?}");
        }
    }
}
