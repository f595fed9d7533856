//! How far an end of an iteration has come.

/// The last key that an end has left behind.
#[derive(Debug, Default)]
pub(super) struct LastKey {
    key: Option<Vec<u8>>,
    /// Whether it has no value and was passed, not returned.
    passed: bool,
    /// If so, the last one that was returned.
    returned: Option<Vec<u8>>,
}

impl LastKey {
    /// Starts behind `key`, as if it had been returned.
    pub(super) fn resumed(key: Option<Vec<u8>>) -> LastKey {
        LastKey { key, ..LastKey::default() }
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// Called with a key that is about to be returned.
    #[inline]
    pub(super) fn give(&mut self, key: &[u8]) {
        self.passed = false;
        self.set(key);
    }

    /// Called with a key that has no value.
    #[inline]
    pub(super) fn pass(&mut self, key: &[u8]) {
        if !std::mem::replace(&mut self.passed, true) {
            self.returned.clone_from(&self.key);
        }
        self.set(key);
    }

    #[inline]
    fn set(&mut self, key: &[u8]) {
        let last = self.key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    /// Takes the last key that was returned.
    pub(super) fn take_returned(&mut self) -> Option<Vec<u8>> {
        if self.passed { self.returned.take() } else { self.key.take() }
    }
}
