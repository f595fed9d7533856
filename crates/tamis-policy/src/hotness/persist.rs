//! Serialized hotness, for the manifest: a version, then for each segment one byte for its misses
//! and one for all lookups that asked it.
//!
//! A byte encodes a frequency in steps of 9 %: 255 is 1, each lower value divides by 1.09, 1 is 3 ·
//! 10⁻¹⁰, 0 is none.

use tamis_base::ids::TableId;

use super::{Hotness, Manager};

const VERSION: u8 = 1;

/// The ratio between neighbouring byte values.
const STEP: f64 = 1.09;

impl Manager {
    /// Encodes the hotness of a table's segments, if the table is known: 1 + 2 · segments bytes.
    pub fn encode(&self, table: TableId) -> Option<Vec<u8>> {
        let segments = &self.tables.get(&table)?.segments;
        let mut bytes = Vec::with_capacity(1 + 2 * segments.len());
        bytes.push(VERSION);
        for segment in segments {
            let stored = [segment.misses, segment.asked];
            bytes.extend(stored.map(|stored| to_byte(self.clock.frequency(stored))));
        }
        Some(bytes)
    }
}

/// Decodes what [`Manager::encode`] wrote for a table of `segments` segments; `None` for anything
/// else.
pub fn decode_hotness(bytes: &[u8], segments: usize) -> Option<Vec<Hotness>> {
    let (&version, rest) = bytes.split_first()?;
    let (pairs, odd) = rest.as_chunks::<2>();
    if version != VERSION || pairs.len() != segments || !odd.is_empty() {
        return None;
    }
    let hotness = |&[misses, asked]: &[u8; 2]| Hotness { misses: from_byte(misses), asked: from_byte(asked) };
    Some(pairs.iter().map(hotness).collect())
}

/// The byte nearest to a frequency, by ratio.
fn to_byte(frequency: f64) -> u8 {
    // NaN becomes 0.
    if frequency > 0.0 { (255.0 + frequency.ln() / STEP.ln()).round().clamp(0.0, 255.0) as u8 } else { 0 }
}

fn from_byte(byte: u8) -> f64 {
    if byte == 0 { 0.0 } else { STEP.powi(i32::from(byte) - 255) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips_and_frequencies_are_off_by_less_than_a_step() {
        for byte in 0..=255 {
            assert_eq!(to_byte(from_byte(byte)), byte);
        }
        for i in 1..1000 {
            let f = 0.98f64.powi(i);
            let ratio = from_byte(to_byte(f)) / f;
            assert!((0.957..1.045).contains(&ratio), "{f} {ratio}");
        }
        assert_eq!([1e-12, 0.0, -1.0, f64::NAN, 7.0, f64::INFINITY].map(to_byte), [0, 0, 0, 0, 255, 255]);
    }

    #[test]
    fn other_bytes_are_rejected() {
        assert_eq!(decode_hotness(&[], 0), None);
        assert_eq!(decode_hotness(&[VERSION], 0), Some(Vec::new()));
        assert_eq!(decode_hotness(&[VERSION + 1], 0), None);
        assert_eq!(decode_hotness(&[VERSION, 1, 2], 0), None);
        assert_eq!(decode_hotness(&[VERSION, 1], 1), None);
        assert_eq!(decode_hotness(&[VERSION, 1, 2, 3], 1), None);
        assert_eq!(decode_hotness(&[VERSION, 1, 2], usize::MAX), None);
        let one = Hotness { misses: 1.0, asked: 0.0 };
        assert_eq!(decode_hotness(&[VERSION, 255, 0], 1), Some(vec![one]));
    }
}
