//! Keys and values, and the checks of what is read back.
//!
//! A key is 8 bytes without order. A value begins with a number, 8 bytes in little-endian order, and is filled up with
//! its key, so that every value shows whether it belongs to the key and is whole.

use tamis_bench::random::mix64;

use super::side::SideError;

/// A key.
pub(crate) type Key = [u8; 8];

/// The shortest value: the number alone.
pub(crate) const LEAST_VALUE_BYTES: usize = 8;

/// The contents of a database before it is measured: the first `keys` keys, each with the number `initial`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    /// Number of keys.
    pub(crate) keys: u64,
    /// Size of a value in bytes.
    pub(crate) value_bytes: usize,
    /// The number in each value.
    pub(crate) initial: i64,
}

impl Data {
    /// Returns all keys with their values.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Key, Vec<u8>)> {
        let Data { keys, value_bytes, initial } = *self;
        (0..keys).map(move |i| (key(i), value(&key(i), value_bytes, initial)))
    }
}

/// Returns key number `i`.
pub(crate) fn key(i: u64) -> Key {
    mix64(i).to_be_bytes()
}

/// Returns the value of a key.
pub(crate) fn value(key: &Key, bytes: usize, number: i64) -> Vec<u8> {
    let mut value = Vec::new();
    write_value(&mut value, key, bytes, number);
    value
}

/// Makes `value` that of a key.
#[inline]
pub(crate) fn write_value(value: &mut Vec<u8>, key: &Key, bytes: usize, number: i64) {
    value.resize(bytes.max(LEAST_VALUE_BYTES), 0);
    set_number(value, number);
    for part in value[LEAST_VALUE_BYTES..].chunks_mut(key.len()) {
        part.copy_from_slice(&key[..part.len()]);
    }
}

/// Returns the number of a value; 0 if it is too short, which [`Audit`] reports.
#[inline]
pub(crate) fn number(value: &[u8]) -> i64 {
    value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

/// Changes the number of a value.
#[inline]
pub(crate) fn set_number(value: &mut [u8], number: i64) {
    if let Some(bytes) = value.first_chunk_mut() {
        *bytes = number.to_le_bytes();
    }
}

/// The check of a pass over all entries: each key once and in order, each value whole.
#[derive(Debug)]
pub(crate) struct Audit {
    data: Data,
    entries: u64,
    /// All keys, combined by exclusive or.
    mixed: u64,
    last: Option<Key>,
    /// The first violation.
    wrong: Option<String>,
    /// The sum of all numbers.
    pub(crate) sum: i128,
    /// The smallest and the largest number.
    pub(crate) extent: (i64, i64),
}

impl Audit {
    /// Begins a pass.
    pub(crate) fn of(data: Data) -> Audit {
        Audit { data, entries: 0, mixed: 0, last: None, wrong: None, sum: 0, extent: (i64::MAX, i64::MIN) }
    }

    /// Checks the next entry.
    #[inline]
    pub(crate) fn look(&mut self, found: &[u8], value: &[u8]) {
        let Ok(key) = Key::try_from(found) else {
            self.fail(format!("a key of {} bytes", found.len()));
            return;
        };
        if self.last.is_some_and(|last| last >= key) {
            self.fail(format!("key {} is out of order", hex(&key)));
        }
        let filling = value.get(LEAST_VALUE_BYTES..).unwrap_or_default();
        let whole = filling.chunks(key.len()).all(|part| key.starts_with(part));
        if value.len() != self.data.value_bytes || !whole {
            self.fail(format!("the value of key {} is damaged", hex(&key)));
        }
        self.last = Some(key);
        self.entries += 1;
        self.mixed ^= u64::from_be_bytes(key);
        let number = number(value);
        self.sum += i128::from(number);
        self.extent = (self.extent.0.min(number), self.extent.1.max(number));
    }

    #[cold]
    fn fail(&mut self, text: String) {
        self.wrong.get_or_insert(text);
    }

    /// Checks that these were all entries.
    pub(crate) fn finish(&self) -> Result<(), SideError> {
        let keys = self.data.keys;
        let mixed = (0..keys).fold(0, |mixed, i| mixed ^ u64::from_be_bytes(key(i)));
        match &self.wrong {
            Some(text) => Err(SideError::Wrong(text.clone())),
            None if self.entries != keys => {
                Err(SideError::Wrong(format!("{} entries instead of {keys}", self.entries)))
            }
            None if self.mixed != mixed => Err(SideError::Wrong("other keys than were put".to_owned())),
            None => Ok(()),
        }
    }
}

/// Formats a key for messages.
pub(crate) fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Data = Data { keys: 50, value_bytes: 21, initial: 7 };

    fn audited(change: impl FnOnce(&mut Vec<(Key, Vec<u8>)>)) -> (Audit, Result<(), SideError>) {
        let mut entries: Vec<_> = DATA.entries().collect();
        entries.sort();
        change(&mut entries);
        let mut audit = Audit::of(DATA);
        entries.iter().for_each(|(key, value)| audit.look(key, value));
        let result = audit.finish();
        (audit, result)
    }

    #[test]
    fn whole_data_passes_and_is_summed() {
        let (audit, result) = audited(|entries| set_number(&mut entries[3].1, -10));
        result.unwrap();
        assert_eq!((audit.sum, audit.extent), (49 * 7 - 10, (-10, 7)));
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        type Damage = (&'static str, fn(&mut Vec<(Key, Vec<u8>)>));
        let damages: [Damage; 7] = [
            ("49 entries", |entries| drop(entries.pop())),
            ("out of order", |entries| entries.swap(1, 2)),
            ("out of order", |entries| entries[1] = entries[0].clone()),
            ("damaged", |entries| entries[4].1[20] ^= 1),
            ("damaged", |entries| entries[4].1.truncate(5)),
            ("other keys", |entries| {
                let other = [0xff; 8];
                *entries.last_mut().unwrap() = (other, value(&other, 21, 7));
            }),
            ("damaged", |entries| entries[0].1 = entries[1].1.clone()),
        ];
        for (text, damage) in damages {
            let error = audited(damage).1.unwrap_err().to_string();
            assert!(error.contains(text), "{text}: {error}");
        }
    }
}
