//! [`Value`]: what is stored with a key.

use tamis::Slice;

use crate::error::{DecodeError, ValueError};
use crate::key::Key;

/// A type that is stored as the value of a key: every [`Key`], `()` (no bytes), [`Slice`] (bytes as
/// they are, read without a copy), and with the feature `serde` any type as `Json<T>`.
pub trait Value: Sized + 'static {
    /// What a value is passed as: `&str` for a `String`, `&T` for a `Json<T>`.
    type Ref<'a>: Copy;

    /// Appends the bytes of `value` to `out`.
    ///
    /// # Errors
    ///
    /// If the value has no encoding; most types have one for every value.
    fn encode(value: Self::Ref<'_>, out: &mut Vec<u8>) -> Result<(), ValueError>;

    /// Returns the value that `bytes` were encoded from.
    ///
    /// # Errors
    ///
    /// If they are no value's. They come from a file: an implementation must not panic.
    fn decode(bytes: &Slice) -> Result<Self, ValueError>;
}

impl<K: Key> Value for K {
    type Ref<'a> = <K as Key>::Ref<'a>;

    fn encode(value: <K as Key>::Ref<'_>, out: &mut Vec<u8>) -> Result<(), ValueError> {
        <K as Key>::encode(value, out);
        Ok(())
    }

    fn decode(bytes: &Slice) -> Result<K, ValueError> {
        <K as Key>::decode(bytes).map_err(ValueError::decoding)
    }
}

impl Value for () {
    type Ref<'a> = ();

    fn encode((): (), _: &mut Vec<u8>) -> Result<(), ValueError> {
        Ok(())
    }

    fn decode(bytes: &Slice) -> Result<(), ValueError> {
        match bytes.is_empty() {
            true => Ok(()),
            false => Err(ValueError::decoding(DecodeError::new("(): there are bytes"))),
        }
    }
}

impl Value for Slice {
    type Ref<'a> = &'a [u8];

    fn encode(value: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
        out.extend_from_slice(value);
        Ok(())
    }

    fn decode(bytes: &Slice) -> Result<Slice, ValueError> {
        Ok(bytes.clone())
    }
}
