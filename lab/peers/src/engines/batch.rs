//! Puts that are handed to an engine together.

/// Keys and values in the order of their puts, in one buffer.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// Where each key and each value ends in `bytes`.
    ends: Vec<(usize, usize)>,
}

impl Batch {
    /// Appends a put.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// Removes all puts.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns the number of puts.
    pub fn puts(&self) -> usize {
        self.ends.len()
    }

    /// Returns keys and values in the order of their puts.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        begins
            .zip(&self.ends)
            .map(|(begin, &(key_end, end))| (&self.bytes[begin..key_end], &self.bytes[key_end..end]))
    }
}
