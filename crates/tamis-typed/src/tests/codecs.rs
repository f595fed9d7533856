//! Every type's bytes: their order, the way back, and bytes that are no value's.

use std::cmp::Ordering;
use std::fmt::Debug;

use proptest::collection::vec;
use proptest::prelude::*;
use tamis::Slice;

use crate::iter::bytes_of;
use crate::{DecodeError, Json, Key};

fn bytes<K: Key>(key: &K) -> Vec<u8> {
    bytes_of::<K>(key.borrowed())
}

/// Checks that the bytes of two keys compare as the keys do, alone and as components, and that they
/// read back. `f64` is not `Ord`, so the order is given.
fn check<K: Key + Clone + Debug>(a: &K, b: &K, order: Ordering) -> Result<(), TestCaseError> {
    prop_assert_eq!(bytes(a).cmp(&bytes(b)), order, "{:?} {:?}", a, b);
    for key in [a, b] {
        let stored = bytes(key);
        prop_assert!(K::WIDTH.is_none_or(|width| width == stored.len()));
        let back = K::decode(&stored);
        prop_assert!(back.is_ok(), "{:?}: {:?}", key, back);
        // `K` may be no `PartialEq`, as floats are none that knows NaN.
        prop_assert_eq!(format!("{:?}", back.as_ref().ok()), format!("{:?}", Some(key)));
        prop_assert_eq!(bytes(&back.expect("checked")), stored);
    }
    // What follows a component does not change its order, and decides between equal ones.
    for (x, y) in [(0u8, 0u8), (0, 0xFF), (0xFF, 0)] {
        let (left, right) = ((a.clone(), x), (b.clone(), y));
        prop_assert_eq!(bytes(&left).cmp(&bytes(&right)), order.then(x.cmp(&y)), "{:?} {:?}", left, right);
        let (left, right) = (((x, a.clone()), b.clone()), ((x, b.clone()), a.clone()));
        prop_assert_eq!(bytes(&left).cmp(&bytes(&right)), order, "{:?} {:?}", left, right);
        let (left, right) = ((a.clone(), b.clone(), x), (b.clone(), a.clone(), y));
        prop_assert_eq!(bytes(&left).cmp(&bytes(&right)), order.then(x.cmp(&y)), "{:?} {:?}", left, right);
        let pair = (a.clone(), b.clone(), x);
        let back = <(K, K, u8)>::decode(&bytes(&pair));
        prop_assert_eq!(format!("{:?}", back.ok()), format!("{:?}", Some(pair)));
    }
    Ok(())
}

/// Bytes are an error, or the key that encodes to them and to nothing else.
fn check_hostile<K: Key + Debug>(stored: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(key) = K::decode(stored) {
        prop_assert_eq!(bytes(&key), stored, "{:?}", key);
    }
    Ok(())
}

/// Bytes that often have zeros, ends and escapes in them.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![4 => Just(0u8), 2 => Just(0xFF), 2 => Just(1), 1 => any::<u8>()], 0..20)
}

fn short_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![3 => Just(0u8), 1 => Just(1), 1 => Just(0xFF), 1 => any::<u8>()], 0..5)
}

fn short_text() -> impl Strategy<Value = String> {
    let char = prop_oneof![3 => Just('\0'), 1 => Just('\u{1}'), 2 => Just('a'), 1 => any::<char>()];
    vec(char, 0..5).prop_map(|chars| chars.into_iter().collect())
}

/// For each type: pairs of keys, often equal or close, and hostile bytes.
macro_rules! codecs {
    ($($name:ident: $type:ty, $strategy:expr;)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #[test]
                fn order_and_way_back((a, b) in ($strategy, $strategy)) {
                    check::<$type>(&a, &b, a.cmp(&b))?;
                    check::<$type>(&a, &a, Ordering::Equal)?;
                }

                #[test]
                fn any_bytes_are_a_key_or_an_error(stored in hostile(), of in $strategy, cut in 0..40usize) {
                    check_hostile::<$type>(&stored)?;
                    check_hostile::<($type, $type)>(&stored)?;
                    check_hostile::<(u8, $type, bool)>(&stored)?;
                    check_hostile::<Option<$type>>(&stored)?;
                    // Keys cut off, and followed by something.
                    let mut whole = bytes::<($type, $type)>(&(of.clone(), of));
                    whole.truncate(cut);
                    check_hostile::<($type, $type)>(&whole)?;
                    whole.extend_from_slice(&stored);
                    check_hostile::<($type, $type)>(&whole)?;
                }
            }
        }
    )*};
}

codecs! {
    unsigned_8: u8, any::<u8>();
    unsigned_16: u16, any::<u16>();
    unsigned_32: u32, any::<u32>();
    unsigned_64: u64, prop_oneof![any::<u64>(), 0..3u64, Just(u64::MAX)];
    unsigned_128: u128, prop_oneof![any::<u128>(), 0..3u128, Just(u128::MAX)];
    signed_8: i8, any::<i8>();
    signed_16: i16, any::<i16>();
    signed_32: i32, prop_oneof![any::<i32>(), -2..2i32, Just(i32::MIN), Just(i32::MAX)];
    signed_64: i64, prop_oneof![any::<i64>(), -2..2i64, Just(i64::MIN), Just(i64::MAX)];
    signed_128: i128, prop_oneof![any::<i128>(), -2..2i128, Just(i128::MIN), Just(i128::MAX)];
    boolean: bool, any::<bool>();
    character: char, prop_oneof![any::<char>(), Just('\0'), Just('\u{D7FF}'), Just('\u{E000}')];
    text: String, short_text();
    byte_vector: Vec<u8>, short_bytes();
    byte_array: [u8; 3], any::<[u8; 3]>();
    no_bytes: [u8; 0], Just([0u8; 0]);
    option_of_text: Option<String>, prop::option::of(short_text());
    option_of_number: Option<u16>, prop::option::of(any::<u16>());
    option_of_option: Option<Option<bool>>, prop::option::of(prop::option::of(any::<bool>()));
    pair: (String, i8), (short_text(), -1..1i8);
    pair_of_bytes: (Vec<u8>, Vec<u8>), (short_bytes(), short_bytes());
    triple: (Vec<u8>, u8, String), (short_bytes(), 0..2u8, short_text());
    triple_with_option: (Option<u8>, Vec<u8>, bool), (prop::option::of(0..2u8), short_bytes(), any::<bool>());
    three_in_two: (u8, (Vec<u8>, Vec<u8>, i8)), (0..2u8, (short_bytes(), short_bytes(), -1..1i8));
    nested: ((String, Vec<u8>), u8), ((short_text(), short_bytes()), 0..2u8);
    nested_numbers: ((u8, i8), Vec<u8>), ((0..2u8, -1..1i8), short_bytes());
}

fn value_of<V: crate::Value>(stored: &Slice) -> Result<V, crate::ValueError> {
    V::decode(stored)
}

/// Every bit pattern, most of the special ones included.
fn bits() -> impl Strategy<Value = u64> {
    let special =
        [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -f64::NAN, f64::MIN_POSITIVE, 1.0, -1.0];
    prop_oneof![any::<u64>(), (0..special.len()).prop_map(move |i| special[i].to_bits())]
}

proptest! {
    #[test]
    fn floats_have_their_total_order(a in bits(), b in bits(), stored in hostile()) {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        check(&a, &b, a.total_cmp(&b))?;
        let (a, b) = (f32::from_bits(a.to_bits() as u32), f32::from_bits(b.to_bits() as u32));
        check(&a, &b, a.total_cmp(&b))?;
        check_hostile::<f64>(&stored)?;
        check_hostile::<f32>(&stored)?;
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(stored in hostile(), text in ".{0,20}") {
        let slice = Slice::from(&stored[..]);
        prop_assert_eq!(value_of::<()>(&slice).is_ok(), stored.is_empty());
        prop_assert_eq!(&value_of::<Slice>(&slice).expect("any bytes")[..], &stored[..]);
        _ = value_of::<Json<Vec<Option<String>>>>(&slice);
        _ = value_of::<Json<(u8, f64)>>(&Slice::from(text.as_bytes()));
        _ = value_of::<(String, u8)>(&slice);
    }

    #[test]
    fn json_reads_back(value in vec(prop::option::of(".{0,5}"), 0..4)) {
        let mut stored = Vec::new();
        <Json<_> as crate::Value>::encode(&value, &mut stored).expect("strings");
        prop_assert_eq!(value_of::<Json<_>>(&Slice::from(stored)).expect("what was encoded"), Json(value));
    }
}

/// What is stored must be read by every later version.
#[test]
fn the_bytes_are_the_documented_ones() {
    assert_eq!(bytes(&("fr".to_owned(), 7u8)), b"fr\0\0\x07");
    assert_eq!(bytes(&("a\0".to_owned(), "b".to_owned())), b"a\0\xFF\0\0b");
    assert_eq!(bytes(&(1u16, -1i8, "x".to_owned())), b"\0\x01\x7Fx");
    assert_eq!(bytes(&(("a".to_owned(), 0u8), 1u8)), b"a\0\xFF\0\xFF\0\xFF\0\0\x01");
    assert_eq!(bytes(&0x0102_0304u32), [1, 2, 3, 4]);
    assert_eq!(bytes(&i64::MIN), [0; 8]);
    assert_eq!(bytes(&1i32), [0x80, 0, 0, 1]);
    assert_eq!(bytes(&1.0f64), [0xBF, 0xF0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes(&-1.0f64), [0x40, 0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert_eq!(bytes(&'é'), [0, 0, 0, 0xE9]);
    assert_eq!(bytes(&Some("x".to_owned())), b"\x01x");
    assert_eq!(bytes(&None::<u8>), [0]);
    assert_eq!((<(u8, [u8; 3])>::WIDTH, <(u8, String)>::WIDTH), (Some(4), None));
}

#[test]
fn bytes_of_no_key_say_what_is_wrong() {
    let what = |error: DecodeError| error.to_string();
    assert_eq!(u64::decode(&[0; 7]).map_err(what), Err("u64: wrong number of bytes".into()));
    assert_eq!(bool::decode(&[2]).map_err(what), Err("bool: no such value".into()));
    assert_eq!(char::decode(&[0, 0, 0xD8, 0]).map_err(what), Err("char: no such value".into()));
    assert_eq!(String::decode(&[0xFF]).map_err(what), Err("String: not UTF-8".into()));
    assert_eq!(
        Option::<u8>::decode(&[0, 0]).map_err(what),
        Err("Option: neither 00 nor 01 and a key".into())
    );
    let pair = |stored: &[u8]| <(String, u8)>::decode(stored).map_err(what).unwrap_err();
    assert_eq!(pair(b"a"), "tuple: a component has no end");
    assert_eq!(pair(b"a\0"), "tuple: 00 is followed by neither 00 nor FF");
    assert_eq!(pair(b"a\0\x01"), "tuple: 00 is followed by neither 00 nor FF");
    assert_eq!(pair(b"a\0\0"), "u8: wrong number of bytes");
    assert_eq!(<(u16, u8)>::decode(&[1]).map_err(what), Err("tuple: too few bytes".into()));
}
