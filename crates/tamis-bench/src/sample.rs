//! The key set that ships with the repository: 171,075 places from the GeoNames gazetteer (CC BY
//! 4.0, geonames.org). `data/README.md` of the repository describes its source, format and
//! preparation.

use std::io::Read;

use crate::keys::{KeySet, KeySetError};

static PACKED: &[u8] = include_bytes!("../data/geonames-cities.tsv.gz");

/// One place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// `COUNTRY/REGION/NAME@LATITUDE,LONGITUDE`, UTF-8; unique.
    pub key: &'a str,
    /// The second administrative division; may be empty.
    pub district: &'a str,
}

impl Record<'_> {
    /// Returns the record as one JSON object, which the main job stores under the key.
    pub fn to_json(&self) -> String {
        let (place, at) = self.key.rsplit_once('@').unwrap_or((self.key, ""));
        let (lat, lon) = at.split_once(',').unwrap_or((at, ""));
        let mut parts = place.splitn(3, '/');
        let mut part = || parts.next().unwrap_or("");
        let (country, region, name) = (part(), part(), part());
        serde_json::json!({
            "name": name, "country": country, "region": region, "district": self.district,
            "lat": lat.parse::<f64>().ok(), "lon": lon.parse::<f64>().ok(),
        })
        .to_string()
    }

    /// Returns the key's first part with its slash: the prefix of all places of the same country.
    pub fn country_prefix(&self) -> &str {
        self.key.find('/').map_or(self.key, |slash| &self.key[..=slash])
    }
}

/// The decompressed sample (10 MB).
#[derive(Clone, Debug)]
pub struct Sample {
    text: String,
}

impl Sample {
    /// Decompresses the sample; takes about 0.1 s.
    ///
    /// # Panics
    /// If the bytes compiled into the program are damaged.
    pub fn load() -> Sample {
        let mut text = String::new();
        flate2::read::GzDecoder::new(PACKED).read_to_string(&mut text).expect("the embedded sample is sound");
        Sample { text }
    }

    /// Returns all records in ascending key order.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.text.lines().map(|line| {
            let (key, district) = line.split_once('\t').unwrap_or((line, ""));
            Record { key, district }
        })
    }

    /// Returns the keys as a set for workloads, at most `limit` of them (all if 0).
    pub fn key_set(&self, limit: u64) -> Result<KeySet, KeySetError> {
        KeySet::listed("geonames", self.records().map(|r| r.key.as_bytes().to_vec()).collect(), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_at_least_100000_distinct_ascending_keys_in_four_megabytes() {
        assert!(PACKED.len() < 4_000_000);
        let sample = Sample::load();
        assert!(sample.records().count() >= 100_000);
        assert!(sample.records().map(|r| r.key.as_bytes()).is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn every_record_has_country_region_name_and_place() {
        for record in Sample::load().records() {
            let json: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
            assert_eq!(json["country"].as_str().unwrap().len(), 2, "{record:?}");
            assert!(!json["name"].as_str().unwrap().is_empty(), "{record:?}");
            assert!((-90.0..=90.0).contains(&json["lat"].as_f64().unwrap()), "{record:?}");
            assert!((-180.0..=180.0).contains(&json["lon"].as_f64().unwrap()), "{record:?}");
            assert_eq!(record.country_prefix().len(), 3);
        }
    }
}
