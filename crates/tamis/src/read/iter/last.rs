//! How far an end of an iteration has come.

use tamis_files::table::is_beyond;

/// The last key that an end has left behind.
///
/// Invariant: each key lies beyond the one before it. So every iteration ends.
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

    /// Called with a key that is about to be returned. Leaves a buffer in its place.
    #[inline]
    pub(super) fn give<const BACK: bool>(&mut self, key: &mut Vec<u8>) {
        self.passed = false;
        self.set::<BACK>(key);
    }

    /// Called with a key that has no value. Leaves a buffer in its place.
    #[inline]
    pub(super) fn pass<const BACK: bool>(&mut self, key: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.passed, true) {
            self.returned.clone_from(&self.key);
        }
        self.set::<BACK>(key);
    }

    /// Called backwards with the start of a gap that holds the last key, which was passed.
    pub(super) fn pass_to_gap(&mut self, start: &mut Vec<u8>) {
        debug_assert!(self.passed);
        if self.key.as_ref() != Some(start) {
            self.set::<true>(start);
        }
    }

    #[inline]
    fn set<const BACK: bool>(&mut self, key: &mut Vec<u8>) {
        // Tables whose bytes are out of order are opened in fuzzing builds.
        debug_assert!(
            cfg!(feature = "fuzzing")
                || self.key.as_ref().is_none_or(|last| is_beyond(&last[..], &key[..], BACK)),
            "an iteration does not move (backwards: {BACK}): from {:?} to {key:?}",
            self.key
        );
        std::mem::swap(self.key.get_or_insert_default(), key);
    }

    /// Takes the last key that was returned.
    pub(super) fn take_returned(&mut self) -> Option<Vec<u8>> {
        if self.passed { self.returned.take() } else { self.key.take() }
    }
}

#[cfg(all(test, debug_assertions, not(feature = "fuzzing")))]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_move_is_noticed() {
        for (from, to) in [("b", "b"), ("b", "a")] {
            let stays = |back: bool, passed: bool| {
                let mut last = LastKey::resumed(Some(if back { to } else { from }.into()));
                let mut key = if back { from } else { to }.into();
                match (back, passed) {
                    (false, false) => last.give::<false>(&mut key),
                    (false, true) => last.pass::<false>(&mut key),
                    (true, false) => last.give::<true>(&mut key),
                    (true, true) => last.pass::<true>(&mut key),
                }
            };
            for (back, passed) in [(false, false), (false, true), (true, false), (true, true)] {
                let noticed = std::panic::catch_unwind(|| stays(back, passed)).is_err();
                assert!(noticed, "from {from} to {to}, backwards: {back}, passed: {passed}");
            }
        }
    }

    #[test]
    fn the_last_key_returned_is_remembered_behind_those_that_were_passed() {
        let mut last = LastKey::default();
        last.give::<false>(&mut b"a".to_vec());
        last.pass::<false>(&mut b"b".to_vec());
        last.pass::<false>(&mut b"c".to_vec());
        assert_eq!(last.get(), Some(&b"c"[..]));
        assert_eq!(last.take_returned(), Some(b"a".to_vec()));
    }
}
