//! What the C interface adds to a get: `cargo run --release -p tamis-c --example overhead`.
//!
//! All ways read the same keys of the same database, in turns; medians of nanoseconds per get, over rounds of a million.

#![allow(clippy::print_stdout, reason = "it is what an example does")]

use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::ptr::{null, null_mut};
use std::time::Instant;

use tamis::{Db, Options};
use tamis_c::database::{tamis_db, tamis_db_free, tamis_open_read_only, tamis_snapshot};
use tamis_c::error::{tamis_answer, tamis_error};
use tamis_c::keyspace::tamis_keyspace;
use tamis_c::output::{tamis_free, tamis_slice, tamis_slice_data, tamis_slice_free, tamis_slice_len};
use tamis_c::read::{tamis_get, tamis_get_into, tamis_get_slice};

const KEYS: u64 = 100_000;
const GETS: u64 = 1_000_000;
const ROUNDS: usize = 9;

type Database = *const tamis_db;
type Key = *const c_void;
type Keyspace = *const tamis_keyspace;
type Snapshot = *const tamis_snapshot;
type Error = *mut *mut tamis_error;
type Copied = unsafe extern "C" fn(
    Database,
    Keyspace,
    Snapshot,
    Key,
    usize,
    *mut *mut c_void,
    *mut usize,
    Error,
) -> tamis_answer;
type Sliced = unsafe extern "C" fn(
    Database,
    Keyspace,
    Snapshot,
    Key,
    usize,
    *mut *mut tamis_slice,
    Error,
) -> tamis_answer;
type Into = unsafe extern "C" fn(
    Database,
    Keyspace,
    Snapshot,
    Key,
    usize,
    *mut c_void,
    usize,
    *mut usize,
    Error,
) -> tamis_answer;

type Way<'a> = (&'a str, &'a dyn Fn(&[u8]));

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    key[8..].copy_from_slice(&(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS).to_be_bytes());
    key
}

/// Reads a value's ends, as whoever asks for it would.
fn touch(value: &[u8]) {
    assert_eq!(value.len(), 100);
    black_box(value[0] ^ value[99]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("db");
    let writer = Db::open(&path)?;
    for i in 0..KEYS {
        let mut key = *b"key-000000000000";
        key[8..].copy_from_slice(&i.to_be_bytes());
        writer.put(key, [7; 100])?;
    }
    writer.compact()?;
    writer.close()?;

    let rust = Options::default().open_read_only(&path)?;
    let c_path = CString::new(path.to_str().ok_or("a path that is text")?)?;
    // SAFETY: valid pointers, or null ones where they may be.
    let db = unsafe { tamis_open_read_only(c_path.as_ptr(), null(), null_mut()) };
    assert!(!db.is_null(), "it opens");
    // As a program that is linked with the library calls them: by an address that the compiler cannot see through.
    let copied: Copied = black_box(tamis_get);
    let sliced: Sliced = black_box(tamis_get_slice);
    let into: Into = black_box(tamis_get_into);
    let ways: [Way<'_>; 5] = [
        ("Rust, Db::get", &|key| touch(&rust.get(key).expect("a read").expect("a value"))),
        ("Rust, and a copy", &|key| {
            touch(&black_box(rust.get(key).expect("a read").expect("a value").to_vec()))
        }),
        ("C, tamis_get_into", &|key| {
            let (mut buffer, mut len) = ([0u8; 128], 0usize);
            let to = buffer.as_mut_ptr().cast::<c_void>();
            // SAFETY: valid pointers, or null ones where they may be.
            let found = unsafe {
                into(db, null(), null(), key.as_ptr().cast(), key.len(), to, 128, &mut len, null_mut())
            };
            assert!(found == tamis_answer::Yes);
            touch(&buffer[..len]);
        }),
        ("C, tamis_get", &|key| {
            let (mut value, mut len) = (null_mut(), 0usize);
            // SAFETY: valid pointers, or null ones where they may be; the value is freed once.
            unsafe {
                let found = copied(
                    db,
                    null(),
                    null(),
                    key.as_ptr().cast(),
                    key.len(),
                    &mut value,
                    &mut len,
                    null_mut(),
                );
                assert!(found == tamis_answer::Yes);
                touch(std::slice::from_raw_parts(value.cast(), len));
                tamis_free(value);
            }
        }),
        ("C, tamis_get_slice", &|key| {
            let mut slice: *mut tamis_slice = null_mut();
            // SAFETY: valid pointers, or null ones where they may be; the slice is freed once.
            unsafe {
                let found =
                    sliced(db, null(), null(), key.as_ptr().cast(), key.len(), &mut slice, null_mut());
                assert!(found == tamis_answer::Yes);
                let (data, len) = (tamis_slice_data(slice), tamis_slice_len(slice));
                touch(std::slice::from_raw_parts(data.cast(), len));
                tamis_slice_free(slice);
            }
        }),
    ];
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..=ROUNDS {
        for (way, times) in ways.iter().zip(&mut times) {
            let started = Instant::now();
            for i in 0..GETS {
                (way.1)(&key(i));
            }
            // The first round fills caches.
            if round > 0 {
                times.push(started.elapsed().as_nanos() as f64 / GETS as f64);
            }
        }
    }
    let medians: Vec<f64> = times
        .iter_mut()
        .map(|times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
        .collect();
    for ((name, _), median) in ways.iter().zip(&medians) {
        println!("{name:<20} {median:7.1} ns   {:.3} of Rust's", median / medians[0]);
    }
    // SAFETY: opened above, and freed once.
    unsafe { tamis_db_free(db) };
    Ok(())
}
