//! [`Key`], and the keys that have one part.

use crate::error::DecodeError;

/// A type whose bytes sort as its values do, so that a range of values is a range of stored keys.
///
/// | type | bytes |
/// | --- | --- |
/// | `u8` to `u128` | big-endian |
/// | `i8` to `i128` | big-endian, with the sign bit flipped |
/// | `f32`, `f64` | big-endian, sign bit flipped, if negative all bits; the order is `total_cmp` |
/// | `bool` | `00` or `01` |
/// | `char` | its number as a `u32` |
/// | `String`, passed as `&str` | UTF-8 |
/// | `Vec<u8>`, passed as `&[u8]`; `[u8; N]` | as they are |
/// | `Option<K>` | `00` for none, or `01` and the key |
/// | `(A, B)`, `(A, B, C)` | the components one after another: see below |
///
/// **Tuples.** The last component is stored as it is, and so is one whose [`WIDTH`](Key::WIDTH) is
/// known. In any other component each `00` becomes `00 FF`, and `00 00` marks its end. That end
/// sorts before everything that could come in its place, so a component sorts before the longer
/// ones that begin with it. A tuple within a tuple is one component: its bytes are escaped again,
/// unless all of its components have a width.
///
/// ```text
/// ("fr", 7u8)              66 72 00 00 07
/// ("a\0", "b")             61 00 FF 00 00 62
/// (1u16, -1i8, "x")        00 01 7F 78
/// ```
///
/// **A type of your own** implements the trait in terms of these:
///
/// ```
/// use tamis_typed::{DecodeError, Key};
///
/// #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
/// struct Day {
///     year: i32,
///     day: u16,
/// }
///
/// impl Key for Day {
///     type Ref<'a> = Day;
///     const WIDTH: Option<usize> = <(i32, u16)>::WIDTH;
///
///     fn encode(key: Day, out: &mut Vec<u8>) {
///         <(i32, u16)>::encode((key.year, key.day), out);
///     }
///
///     fn decode(bytes: &[u8]) -> Result<Day, DecodeError> {
///         match <(i32, u16)>::decode(bytes)? {
///             (year, day @ 1..=366) => Ok(Day { year, day }),
///             _ => Err(DecodeError::new("Day: no such day")),
///         }
///     }
///
///     fn borrowed(&self) -> Day {
///         *self
///     }
/// }
/// ```
pub trait Key: Sized + 'static {
    /// What a key is passed as: `&str` for a `String`, a number itself, a tuple of these for a
    /// tuple.
    type Ref<'a>: Copy;

    /// The number of bytes of every key, if they all have the same.
    const WIDTH: Option<usize> = None;

    /// Appends the bytes of `key` to `out`, and leaves alone what is there. The bytes of two keys
    /// compare as the keys do, and those of different keys differ.
    fn encode(key: Self::Ref<'_>, out: &mut Vec<u8>);

    /// Returns the key that `bytes` were encoded from.
    ///
    /// # Errors
    ///
    /// If no key encodes to these bytes. They come from a file: an implementation must not panic.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// Returns the key as it is passed.
    fn borrowed(&self) -> Self::Ref<'_>;
}

/// Keys that are big-endian numbers: the type, its bits, and the ways there and back.
macro_rules! numbers {
    ($($type:ident as $bits:ident: $to:expr, $from:expr;)*) => {$(
        impl Key for $type {
            type Ref<'a> = $type;
            const WIDTH: Option<usize> = Some(size_of::<$bits>());

            fn encode(key: $type, out: &mut Vec<u8>) {
                let to: fn($type) -> $bits = $to;
                out.extend_from_slice(&to(key).to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Result<$type, DecodeError> {
                let wrong_width = concat!(stringify!($type), ": wrong number of bytes");
                let no_value = concat!(stringify!($type), ": no such value");
                let from: fn($bits) -> Option<$type> = $from;
                let bytes = bytes.try_into().map_err(|_| DecodeError::new(wrong_width))?;
                from($bits::from_be_bytes(bytes)).ok_or(DecodeError::new(no_value))
            }

            fn borrowed(&self) -> $type {
                *self
            }
        }
    )*};
}

numbers! {
    u8 as u8: |n| n, Some;
    u16 as u16: |n| n, Some;
    u32 as u32: |n| n, Some;
    u64 as u64: |n| n, Some;
    u128 as u128: |n| n, Some;
    i8 as u8: |n| (n ^ i8::MIN).cast_unsigned(), |bits| Some(bits.cast_signed() ^ i8::MIN);
    i16 as u16: |n| (n ^ i16::MIN).cast_unsigned(), |bits| Some(bits.cast_signed() ^ i16::MIN);
    i32 as u32: |n| (n ^ i32::MIN).cast_unsigned(), |bits| Some(bits.cast_signed() ^ i32::MIN);
    i64 as u64: |n| (n ^ i64::MIN).cast_unsigned(), |bits| Some(bits.cast_signed() ^ i64::MIN);
    i128 as u128: |n| (n ^ i128::MIN).cast_unsigned(), |bits| Some(bits.cast_signed() ^ i128::MIN);
    f32 as u32:
        |x| x.to_bits() ^ if x.is_sign_negative() { u32::MAX } else { 1 << 31 },
        |bits| Some(f32::from_bits(bits ^ if bits >> 31 == 0 { u32::MAX } else { 1 << 31 }));
    f64 as u64:
        |x| x.to_bits() ^ if x.is_sign_negative() { u64::MAX } else { 1 << 63 },
        |bits| Some(f64::from_bits(bits ^ if bits >> 63 == 0 { u64::MAX } else { 1 << 63 }));
    bool as u8: u8::from, |bits| match bits { 0 => Some(false), 1 => Some(true), _ => None };
    char as u32: u32::from, char::from_u32;
}

impl Key for String {
    type Ref<'a> = &'a str;

    fn encode(key: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(key.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<String, DecodeError> {
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| DecodeError::new("String: not UTF-8"))
    }

    fn borrowed(&self) -> &str {
        self
    }
}

impl Key for Vec<u8> {
    type Ref<'a> = &'a [u8];

    fn encode(key: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(bytes.to_vec())
    }

    fn borrowed(&self) -> &[u8] {
        self
    }
}

impl<const N: usize> Key for [u8; N] {
    type Ref<'a> = &'a [u8; N];
    const WIDTH: Option<usize> = Some(N);

    fn encode(key: &[u8; N], out: &mut Vec<u8>) {
        out.extend_from_slice(key);
    }

    fn decode(bytes: &[u8]) -> Result<[u8; N], DecodeError> {
        bytes.try_into().map_err(|_| DecodeError::new("[u8; N]: wrong number of bytes"))
    }

    fn borrowed(&self) -> &[u8; N] {
        self
    }
}

impl<K: Key> Key for Option<K> {
    type Ref<'a> = Option<K::Ref<'a>>;

    fn encode(key: Option<K::Ref<'_>>, out: &mut Vec<u8>) {
        out.push(u8::from(key.is_some()));
        if let Some(key) = key {
            K::encode(key, out);
        }
    }

    fn decode(bytes: &[u8]) -> Result<Option<K>, DecodeError> {
        match bytes {
            [0] => Ok(None),
            [1, key @ ..] => K::decode(key).map(Some),
            _ => Err(DecodeError::new("Option: neither 00 nor 01 and a key")),
        }
    }

    fn borrowed(&self) -> Option<K::Ref<'_>> {
        self.as_ref().map(K::borrowed)
    }
}
