//! Settings that replace a figure's own.

use std::path::PathBuf;

use tamis_bench::BenchError;
use tamis_bench::workload::Workload;

use crate::filters::KeySource;

/// Settings of the command line; where one is `None` or empty, the figure's own at its scale applies. A figure refuses
/// settings that would have no effect ([`Custom::refuse_all_but`]).
#[derive(Clone, Debug)]
pub struct Custom {
    /// Number of keys.
    pub keys: Option<u64>,
    /// Kind of keys.
    pub key_set: Option<KeySource>,
    /// Sizes of keys in bytes, several where the figure varies them.
    pub key_bytes: Vec<usize>,
    /// Size of values in bytes.
    pub value_bytes: Option<usize>,
    /// Names of the sides.
    pub filters: Vec<String>,
    /// Filter bits per key, several where the figure varies them.
    pub bits: Vec<f64>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Numbers of threads, several where the figure varies them.
    pub threads: Vec<usize>,
    /// Size ratio of the tree.
    pub size_ratio: Option<u64>,
    /// Operations of a workload in a round, over all threads.
    pub ops: Option<u64>,
    /// Rounds.
    pub repeats: Option<u32>,
    /// Whether reads of tables bypass the page cache.
    pub direct: Option<bool>,
    /// Devices by name: `hdd`, `ssd`, `pcie-ssd`, `spdk`, `nvm`, `memory` (emulated), `page-cache`, `disk`, `ram-disk`
    /// (measured).
    pub devices: Vec<String>,
    /// Exponents of Zipf's law, 0 for uniform.
    pub skews: Vec<f64>,
    /// Absent keys in percent.
    pub absents: Vec<u64>,
    /// Numbers of neighbouring keys that are hot together.
    pub localities: Vec<u64>,
    /// Gets before measuring.
    pub warmup: Option<u64>,
    /// Size of the block cache in bytes.
    pub cache_bytes: Option<u64>,
    /// Directory in which databases are created and kept for other runs; a temporary one if absent.
    pub dir: Option<PathBuf>,
    /// Seed of keys and all random choices.
    pub seed: u64,
    /// Options of the database by name, set last.
    pub options: Vec<(String, String)>,
    /// The comparison program, whose engines run beside ours where the paper has them.
    pub peers: Option<PathBuf>,
}

impl Default for Custom {
    fn default() -> Self {
        Custom {
            keys: None,
            key_set: None,
            key_bytes: Vec::new(),
            value_bytes: None,
            filters: Vec::new(),
            bits: Vec::new(),
            workloads: Vec::new(),
            threads: Vec::new(),
            size_ratio: None,
            ops: None,
            repeats: None,
            direct: None,
            devices: Vec::new(),
            skews: Vec::new(),
            absents: Vec::new(),
            localities: Vec::new(),
            warmup: None,
            cache_bytes: None,
            dir: None,
            seed: 1,
            options: Vec::new(),
            peers: None,
        }
    }
}

impl Custom {
    /// Returns the given options by their command line names, except `--seed`, which all figures accept.
    pub fn given(&self) -> Vec<&'static str> {
        let flags = [
            ("--keys", self.keys.is_some()),
            ("--key-set", self.key_set.is_some()),
            ("--key-bytes", !self.key_bytes.is_empty()),
            ("--value-bytes", self.value_bytes.is_some()),
            ("--filters", !self.filters.is_empty()),
            ("--bits", !self.bits.is_empty()),
            ("--workload", !self.workloads.is_empty()),
            ("--threads", !self.threads.is_empty()),
            ("--size-ratio", self.size_ratio.is_some()),
            ("--ops", self.ops.is_some()),
            ("--repeat", self.repeats.is_some()),
            ("--direct", self.direct == Some(true)),
            ("--mapped", self.direct == Some(false)),
            ("--device", !self.devices.is_empty()),
            ("--skew", !self.skews.is_empty()),
            ("--absent", !self.absents.is_empty()),
            ("--locality", !self.localities.is_empty()),
            ("--warmup", self.warmup.is_some()),
            ("--cache", self.cache_bytes.is_some()),
            ("--db", self.dir.is_some()),
            ("--option", !self.options.is_empty()),
            ("--peers", self.peers.is_some()),
        ];
        flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag).collect()
    }

    /// Returns the given options with their values in command line syntax: lists with commas, an empty value for flags,
    /// one pair for each `--option`. Words in capitals replace the paths of directories and programs.
    pub fn arguments(&self) -> Vec<(&'static str, String)> {
        fn list<T: ToString>(values: &[T]) -> String {
            values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        let value = |flag: &str| match flag {
            "--keys" => self.keys.map(|n| n.to_string()),
            "--key-set" => self.key_set.map(|source| match source {
                KeySource::Drawn(distribution) => distribution.name().to_owned(),
                KeySource::Places => "geonames".to_owned(),
            }),
            "--key-bytes" => Some(list(&self.key_bytes)),
            "--value-bytes" => self.value_bytes.map(|n| n.to_string()),
            "--filters" => Some(list(&self.filters)),
            "--bits" => Some(list(&self.bits)),
            "--workload" => Some(list(&self.workloads.iter().map(|w| w.name()).collect::<Vec<_>>())),
            "--threads" => Some(list(&self.threads)),
            "--size-ratio" => self.size_ratio.map(|n| n.to_string()),
            "--ops" => self.ops.map(|n| n.to_string()),
            "--repeat" => self.repeats.map(|n| n.to_string()),
            "--device" => Some(list(&self.devices)),
            "--skew" => Some(list(&self.skews)),
            "--absent" => Some(list(&self.absents)),
            "--locality" => Some(list(&self.localities)),
            "--warmup" => self.warmup.map(|n| n.to_string()),
            "--cache" => self.cache_bytes.map(|n| n.to_string()),
            "--db" => Some("DIR".to_owned()),
            "--peers" => Some("PROGRAM".to_owned()),
            _ => None,
        };
        let mut arguments = Vec::new();
        for flag in self.given() {
            match flag {
                "--option" => {
                    arguments.extend(self.options.iter().map(|(name, set)| (flag, format!("{name}={set}"))))
                }
                _ => arguments.push((flag, value(flag).unwrap_or_default())),
            }
        }
        arguments
    }

    /// Returns the directory of the databases: [`dir`](Custom::dir), or the directory of temporary files.
    pub fn place(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Fails with the first given option that `figure` does not accept.
    pub fn refuse_all_but(&self, figure: &str, taken: &[&str]) -> Result<(), BenchError> {
        match self.given().into_iter().find(|flag| !taken.contains(flag)) {
            Some(flag) => Err(BenchError::Request(format!("{figure} does not take {flag}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_without_effect_are_refused() {
        let custom = Custom { ops: Some(5), direct: Some(false), ..Custom::default() };
        assert_eq!(custom.given(), ["--ops", "--mapped"]);
        assert!(custom.refuse_all_but("f", &["--ops", "--mapped"]).is_ok());
        let refused = custom.refuse_all_but("f", &["--ops"]).unwrap_err().to_string();
        assert_eq!(refused, "f does not take --mapped");
        assert!(Custom::default().given().is_empty());
    }

    #[test]
    fn options_keep_their_values_as_given() {
        let custom = Custom {
            keys: Some(1),
            key_set: Some(KeySource::Places),
            key_bytes: vec![8, 16],
            value_bytes: Some(2),
            filters: vec!["grf".into(), "bloom".into()],
            bits: vec![4.5, 10.0],
            workloads: vec!["get-empty".parse().unwrap()],
            threads: vec![1, 8],
            size_ratio: Some(3),
            ops: Some(4),
            repeats: Some(5),
            direct: Some(true),
            devices: vec!["nvm".into()],
            skews: vec![0.99],
            absents: vec![50],
            localities: vec![1, 64],
            warmup: Some(6),
            cache_bytes: Some(7),
            dir: Some("x".into()),
            seed: 2,
            options: vec![("a".into(), "1".into()), ("b".into(), "2".into())],
            peers: Some("y".into()),
        };
        let arguments = custom.arguments();
        let line =
            arguments.iter().map(|(flag, value)| format!("{flag} {value}")).collect::<Vec<_>>().join(" ");
        let expected = "--keys 1 --key-set geonames --key-bytes 8,16 --value-bytes 2 --filters grf,bloom --bits 4.5,10 \
                        --workload get-empty --threads 1,8 --size-ratio 3 --ops 4 --repeat 5 --direct  --device nvm \
                        --skew 0.99 --absent 50 --locality 1,64 --warmup 6 --cache 7 --db DIR \
                        --option a=1 --option b=2 --peers PROGRAM";
        assert_eq!(line, expected);
        // All options were given; only flags may lack a value.
        assert!(arguments.iter().all(|(flag, value)| !value.is_empty() || *flag == "--direct"));
    }
}
