//! Tuples as keys: see [`Key`] for the bytes.
//!
//! Invariant: of two different encoded components of one type, neither is a prefix of the other,
//! and they compare as the components do. So whatever follows a component cannot change its order.

use std::borrow::Cow;

use crate::error::DecodeError;
use crate::key::Key;

/// What follows the `00` at the end of a component.
const END: u8 = 0x00;
/// What follows a `00` of a component: greater than [`END`], so that the end sorts first.
const ESCAPED: u8 = 0xFF;

/// Appends a component that is not the last.
pub(crate) fn encode_component<K: Key>(key: K::Ref<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    K::encode(key, out);
    if K::WIDTH.is_some() {
        return;
    }
    if out[start..].contains(&0) {
        for byte in out.split_off(start) {
            out.push(byte);
            if byte == 0 {
                out.push(ESCAPED);
            }
        }
    }
    out.extend_from_slice(&[0, END]);
}

/// Takes a component from the front of `bytes`; returns it and the rest.
fn decode_component<K: Key>(bytes: &[u8]) -> Result<(K, &[u8]), DecodeError> {
    let (component, rest) = match K::WIDTH {
        None => unescape(bytes)?,
        Some(width) => {
            let split = bytes.split_at_checked(width).ok_or(DecodeError::new("tuple: too few bytes"))?;
            (Cow::Borrowed(split.0), split.1)
        }
    };
    Ok((K::decode(&component)?, rest))
}

/// Returns the escaped component at the front of `bytes`, and what is behind its end.
fn unescape(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), DecodeError> {
    let mut component = Vec::new();
    let mut rest = bytes;
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        let (plain, from_zero) = rest.split_at(zero);
        match from_zero {
            // Nothing was escaped.
            [_, END, rest @ ..] if component.is_empty() => return Ok((Cow::Borrowed(plain), rest)),
            [_, END, rest @ ..] => {
                component.extend_from_slice(plain);
                return Ok((Cow::Owned(component), rest));
            }
            [_, ESCAPED, behind @ ..] => {
                component.extend_from_slice(plain);
                component.push(0);
                rest = behind;
            }
            _ => return Err(DecodeError::new("tuple: 00 is followed by neither 00 nor FF")),
        }
    }
    Err(DecodeError::new("tuple: a component has no end"))
}

impl<A: Key, B: Key> Key for (A, B) {
    type Ref<'a> = (A::Ref<'a>, B::Ref<'a>);

    const WIDTH: Option<usize> = match (A::WIDTH, B::WIDTH) {
        (Some(a), Some(b)) => a.checked_add(b),
        _ => None,
    };

    fn encode((a, b): Self::Ref<'_>, out: &mut Vec<u8>) {
        encode_component::<A>(a, out);
        B::encode(b, out);
    }

    fn decode(bytes: &[u8]) -> Result<(A, B), DecodeError> {
        let (a, rest) = decode_component(bytes)?;
        Ok((a, B::decode(rest)?))
    }

    fn borrowed(&self) -> (A::Ref<'_>, B::Ref<'_>) {
        (self.0.borrowed(), self.1.borrowed())
    }
}

/// Since the last component is stored as it is, a triple has the bytes of `(A, (B, C))`.
impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    type Ref<'a> = (A::Ref<'a>, B::Ref<'a>, C::Ref<'a>);
    const WIDTH: Option<usize> = <(A, (B, C))>::WIDTH;

    fn encode((a, b, c): Self::Ref<'_>, out: &mut Vec<u8>) {
        <(A, (B, C))>::encode((a, (b, c)), out);
    }

    fn decode(bytes: &[u8]) -> Result<(A, B, C), DecodeError> {
        let (a, (b, c)) = <(A, (B, C))>::decode(bytes)?;
        Ok((a, b, c))
    }

    fn borrowed(&self) -> (A::Ref<'_>, B::Ref<'_>, C::Ref<'_>) {
        (self.0.borrowed(), self.1.borrowed(), self.2.borrowed())
    }
}
