//! Values that are written as one word of a list.

/// A type whose values are a few fixed words. The first word of a value is the one printed; more
/// are aliases.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// Pairs of word and value; every value has at least one word.
    const WORDS: &'static [(&'static str, Self)];

    /// Returns the word printed for this value.
    fn word(self) -> &'static str {
        word_of(self)
    }

    /// Explains why this build does not support the value, if it does not.
    fn missing(self) -> Option<&'static str> {
        None
    }

    /// Returns the value of a word or alias.
    fn from_word(word: &str) -> Option<Self> {
        value_of(word)
    }
}

/// Returns the first of the fixed words for `value`.
pub(crate) fn word_of<T: Words>(value: T) -> &'static str {
    T::WORDS.iter().find(|(_, other)| *other == value).map_or("", |(word, _)| word)
}

/// Returns the value of one of the fixed words.
pub(crate) fn value_of<T: Words>(word: &str) -> Option<T> {
    T::WORDS.iter().find(|(other, _)| *other == word).map(|(_, value)| *value)
}
