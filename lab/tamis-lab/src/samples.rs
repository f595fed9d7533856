//! The samples of keys that ship with the laboratory. See `data/README.md` for their sources and licences.

use std::io::{self, Read};

use flate2::read::GzDecoder;
use tamis_bench::sample::Sample;

static BLOCKS: &[u8] = include_bytes!("../../../data/ipv4-blocks.txt.gz");
static WORDS: &[u8] = include_bytes!("../../../data/words-en.txt.gz");

fn unpack(packed: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns `COUNTRY/REGION/NAME@LATITUDE,LONGITUDE` of every place.
pub fn places() -> Vec<Vec<u8>> {
    Sample::load().records().map(|record| record.key.into()).collect()
}

/// Returns the first address of every block: the file contains differences.
///
/// # Errors
///
/// The sample in this program is damaged.
pub fn addresses() -> io::Result<Vec<u64>> {
    let mut address = 0;
    let next = |line: &str| {
        address += line.parse::<u64>().map_err(io::Error::other)?;
        Ok(address)
    };
    unpack(BLOCKS)?.lines().map(next).collect()
}

/// Returns English words.
///
/// # Errors
///
/// The sample in this program is damaged.
pub fn words() -> io::Result<Vec<Vec<u8>>> {
    Ok(unpack(WORDS)?.lines().map(|word| word.as_bytes().to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_whole() {
        assert_eq!(places().len(), tamis_bench::keys::places().len());
        assert!(places().len() > 170_000);
        let addresses = addresses().unwrap();
        assert_eq!((addresses.len(), addresses[0]), (334_294, 1 << 24));
        assert!(addresses.is_sorted_by(|a, b| a < b) && *addresses.last().unwrap() < 1 << 32);
        assert_eq!(words().unwrap().len(), 120_000);
    }
}
