//! Where keys come from.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tamis_bench::keys::Distribution;
use tamis_bench::{BenchError, KeySet};
use tamis_lab::samples;

/// The source of a database's keys. A pure function of its parameters, so that all processes have the same keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Source {
    /// Random keys of one length.
    #[default]
    Uniform,
    /// Cells of places: 8 bytes, in clusters.
    Cells,
    /// Names of places, with their country and region first.
    Places,
    /// English words.
    Words,
    /// First addresses of blocks of IPv4 addresses, 8 bytes.
    Addresses,
    /// The lines of a file.
    File(PathBuf),
}

impl Source {
    /// The sources of real keys that ship with the laboratory.
    pub(crate) const SHIPPED: [Source; 4] = [Source::Places, Source::Words, Source::Addresses, Source::Cells];

    /// Returns the keys: at most `keys`, of a list the first ones in their order; of `width` bytes where that can be chosen.
    ///
    /// # Errors
    ///
    /// There are not enough keys, or the file cannot be read.
    pub(crate) fn keys(&self, keys: u64, width: usize, seed: u64) -> Result<KeySet, BenchError> {
        let unpacked = |source| BenchError::Io { operation: "unpack", path: self.to_string().into(), source };
        let listed = |list: Vec<Vec<u8>>| Ok(KeySet::listed(&self.to_string(), list, keys)?);
        match self {
            Source::Uniform => Ok(KeySet::uniform(keys, width, seed)?),
            Source::Cells => Ok(KeySet::drawn(Distribution::Cells, keys, seed)?),
            Source::Places => listed(samples::places()),
            Source::Words => listed(samples::words().map_err(unpacked)?),
            Source::Addresses => {
                let addresses = samples::addresses().map_err(unpacked)?;
                listed(addresses.iter().map(|address| address.to_be_bytes().to_vec()).collect())
            }
            Source::File(path) => {
                let lines = std::fs::File::open(path).map_err(|source| BenchError::Io {
                    operation: "open",
                    path: path.clone(),
                    source,
                })?;
                KeySet::from_lines(&self.to_string(), std::io::BufReader::new(lines), keys)
            }
        }
    }
}

/// A name as in rows, or else the path of a file.
impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Source, Infallible> {
        let named =
            Source::SHIPPED.into_iter().chain([Source::Uniform]).find(|source| source.to_string() == text);
        Ok(named.unwrap_or_else(|| Source::File(text.into())))
    }
}

/// The name in rows and reports: of a file only its name without directories.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Uniform => f.pad("uniform"),
            Source::Cells => f.pad("cells"),
            Source::Places => f.pad("places"),
            Source::Words => f.pad("words"),
            Source::Addresses => f.pad("addresses"),
            Source::File(path) => {
                let name = path.file_stem().unwrap_or(path.as_os_str());
                f.pad(&name.to_string_lossy())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_keys_that_are_the_same_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("paths.txt");
        std::fs::write(&path, "usr/bin/env\nusr/bin/sh\n\nusr/lib/os-release\n").unwrap();
        for source in Source::SHIPPED.into_iter().chain([Source::Uniform, Source::File(path.clone())]) {
            let (once, again) = (source.keys(1000, 8, 7).unwrap(), source.keys(1000, 8, 7).unwrap());
            let key = |set: &KeySet| {
                let mut key = Vec::new();
                set.existing(1, &mut key);
                key
            };
            assert_eq!((once.len(), key(&once)), (again.len(), key(&again)), "{source}");
            let text = serde_json::to_string(&source).unwrap();
            assert_eq!(serde_json::from_str::<Source>(&text).unwrap(), source);
            let Source::File(path) = &source else {
                assert_eq!(source.to_string().parse(), Ok(source));
                continue;
            };
            assert_eq!(path.to_str().unwrap().parse(), Ok(source));
        }
        assert_eq!(Source::File(path).to_string(), "paths");
        assert!(Source::File("absent".into()).keys(10, 8, 1).is_err());
    }
}
