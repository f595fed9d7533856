//! What may be asked for in place of what a figure does by itself.

use std::path::PathBuf;

use crate::error::BenchError;
use crate::filters::KeySource;
use crate::workload::Workload;

/// Settings of the command line; what is `None`, or empty, is the figure's own at its scale. A figure that has no use for one
/// that was given refuses it ([`Custom::refuse_all_but`]): it would be without effect.
#[derive(Clone, Debug)]
pub struct Custom {
    /// How many keys exist.
    pub keys: Option<u64>,
    /// The kind of keys.
    pub key_set: Option<KeySource>,
    /// Bytes of a key, several where the figure varies them.
    pub key_bytes: Vec<usize>,
    /// Bytes of a value.
    pub value_bytes: Option<usize>,
    /// The sides by name.
    pub filters: Vec<String>,
    /// Bits of filter a key, several where the figure varies them.
    pub bits: Vec<f64>,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// Threads, several where the figure varies them.
    pub threads: Vec<usize>,
    /// The size ratio of the tree.
    pub size_ratio: Option<u64>,
    /// Operations of a workload in a round, over all threads.
    pub ops: Option<u64>,
    /// Rounds.
    pub repeats: Option<u32>,
    /// Read tables past the page cache (`true`) or through it.
    pub direct: Option<bool>,
    /// Devices by name: `hdd`, `ssd`, `pcie-ssd`, `nvm`, `memory` (emulated), `page-cache`, `disk`, `ram-disk` (measured).
    pub devices: Vec<String>,
    /// Exponents of Zipf's law, 0 for uniform.
    pub skews: Vec<f64>,
    /// Absent keys in percent.
    pub absents: Vec<u64>,
    /// How many neighbouring keys are hot together.
    pub localities: Vec<u64>,
    /// Unmeasured gets.
    pub warmup: Option<u64>,
    /// Bytes of the block cache.
    pub cache_bytes: Option<u64>,
    /// Where databases are made and kept for other runs; a temporary directory if nowhere.
    pub dir: Option<PathBuf>,
    /// Drives keys and every random choice.
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
    /// The flags that were given, by their names on the command line, but for `--seed`, which all figures take.
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

    /// Refuses the first flag that was given and that `figure` does not take.
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
    fn a_flag_without_effect_is_refused() {
        let custom = Custom { ops: Some(5), direct: Some(false), ..Custom::default() };
        assert_eq!(custom.given(), ["--ops", "--mapped"]);
        assert!(custom.refuse_all_but("f", &["--ops", "--mapped"]).is_ok());
        let refused = custom.refuse_all_but("f", &["--ops"]).unwrap_err().to_string();
        assert_eq!(refused, "f does not take --mapped");
        assert!(Custom::default().given().is_empty());
    }
}
