//! Keys from a list, with every tenth held out.

use crate::keys::KeySetError;

/// The last of this many keys in key order is held out.
const HOLD_OUT_EVERY: u64 = 10;

/// Distinct keys in key order, contiguous in one buffer.
///
/// Position `p` in key order is held out (absent) if `p % 10 == 9`; the others exist. A list of
/// fewer than ten keys holds out its last.
#[derive(Clone, Debug)]
pub struct Listed {
    name: String,
    bytes: Vec<u8>,
    /// `ends[p]` is where the key at position `p` ends.
    ends: Vec<usize>,
    hold_out_every: u64,
}

impl Listed {
    pub(crate) fn new(name: &str, mut keys: Vec<Vec<u8>>, limit: u64) -> Result<Self, KeySetError> {
        keys.sort_unstable();
        keys.dedup();
        if let Ok(limit) = usize::try_from(limit)
            && limit > 0
        {
            keys.truncate(limit.max(2));
        }
        if keys.len() < 2 {
            return Err(KeySetError::TooFew { name: name.to_owned(), found: keys.len(), needed: 2 });
        }
        let mut listed = Listed {
            name: name.to_owned(),
            bytes: Vec::with_capacity(keys.iter().map(Vec::len).sum()),
            ends: Vec::with_capacity(keys.len()),
            hold_out_every: HOLD_OUT_EVERY.min(keys.len() as u64),
        };
        for key in &keys {
            listed.bytes.extend_from_slice(key);
            listed.ends.push(listed.bytes.len());
        }
        Ok(listed)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn len(&self) -> u64 {
        self.ends.len() as u64 - self.absent_len()
    }

    pub(crate) fn absent_len(&self) -> u64 {
        self.ends.len() as u64 / self.hold_out_every
    }

    pub(crate) fn mean_bytes(&self) -> f64 {
        self.bytes.len() as f64 / self.ends.len() as f64
    }

    pub(crate) fn existing(&self, i: u64) -> &[u8] {
        self.at(self.position(i))
    }

    pub(crate) fn absent(&self, i: u64) -> &[u8] {
        self.at(i * self.hold_out_every + self.hold_out_every - 1)
    }

    /// Returns the position of existing key `i` among all keys of the list.
    fn position(&self, i: u64) -> u64 {
        i + i / (self.hold_out_every - 1)
    }

    fn exists_at(&self, position: u64) -> bool {
        position % self.hold_out_every != self.hold_out_every - 1
    }

    fn at(&self, position: u64) -> &[u8] {
        let position = position as usize;
        let start = if position == 0 { 0 } else { self.ends[position - 1] };
        &self.bytes[start..self.ends[position]]
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let (mut low, mut high) = (0, self.ends.len() as u64);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(middle).cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.exists_at(middle),
            }
        }
        false
    }

    pub(crate) fn empty_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) -> bool {
        let position = self.position(i);
        let key = self.at(position);
        if key.len() + 2 > tamis::MAX_KEY_BYTES {
            return false;
        }
        let start = high.len();
        low.extend_from_slice(key);
        low.push(0);
        high.extend_from_slice(key);
        high.extend_from_slice(&[0, 64]);
        // Held-out neighbours would not affect correctness, but are rare and cheaper to skip.
        position + 1 >= self.ends.len() as u64 || *self.at(position + 1) > high[start..]
    }

    pub(crate) fn absent_range(&self, i: u64, low: &mut Vec<u8>, high: &mut Vec<u8>) {
        let position = i * self.hold_out_every + self.hold_out_every - 1;
        let key = self.at(position);
        let start = high.len();
        low.extend_from_slice(key);
        high.extend_from_slice(key);
        high.extend_from_slice(&[0, 64]);
        let too_long = high.len() - start > tamis::MAX_KEY_BYTES;
        if too_long || self.ends.len() as u64 > position + 1 && *self.at(position + 1) <= high[start..] {
            high.truncate(start + key.len());
        }
    }
}
