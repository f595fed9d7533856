//! Typed keyspaces of a [tamis] database: keys and values of Rust types.
//!
//! ```
//! use tamis::{Durability, KeyspaceOptions, Options, Readable, WriteBatch};
//! use tamis_typed::{Error, Typed};
//!
//! let db = Options::in_memory().open("places")?;
//! let places = db.create_keyspace("places", KeyspaceOptions::default())?;
//! // A country and a number as the key, a name as the value.
//! let places: Typed<(String, i32), String> = Typed::new(places);
//!
//! places.put(("fr", 20), "Lyon")?;
//! places.put_with(("fr", -3), "Paris", Durability::Sync)?;
//! assert_eq!(places.get(("fr", 20))?.as_deref(), Some("Lyon"));
//!
//! let mut batch = WriteBatch::new();
//! places.put_in(&mut batch, ("is", 7), "Vík")?;
//! places.delete_in(&mut batch, ("fr", 20))?;
//! let before = db.snapshot();
//! db.write(batch)?;
//!
//! /// Reads wherever it is told to: now, at a snapshot, or within a transaction.
//! fn french<R: Readable>(places: &Typed<(String, i32), String, R>) -> Result<Vec<String>, Error> {
//!     places.prefix("fr").map(|entry| entry.map(|(_, name)| name)).collect()
//! }
//! assert_eq!(french(&places.at(&before))?, ["Paris", "Lyon"]);
//! assert_eq!(french(&places)?, ["Paris"]);
//! for entry in places.range(("fr", 0)..).rev() {
//!     let ((country, number), name) = entry?;
//!     assert_eq!((&country[..], number, &name[..]), ("is", 7, "Vík"));
//! }
//! # Ok::<(), Error>(())
//! ```
//!
//! * [`Typed`]: a keyspace with a type of key and a type of value.
//! * [`Key`]: types whose bytes sort as their values do, and what those bytes are.
//! * [`Value`]: types that are stored. With the feature `serde`, `Json<T>` stores any type that
//!   implements the traits of the crate `serde`.
//! * [`Expiring`]: the same, with a time to live for each entry; [`Expiry`] makes it.
//!
//! Invariants:
//! * This stands on the public interface of `tamis`; the engine knows nothing of types, and stores
//!   none. A keyspace that is opened with other types than it was written with yields errors, or
//!   values that are wrong: eight bytes are a `u64` as well as an `i64`.
//! * The bytes of a type that this crate encodes never change.
//! * Decoding is total: any bytes are a value or an error, never a panic.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod error;
mod expiring;
mod expiry;
mod iter;
#[cfg(feature = "serde")]
mod json;
mod key;
mod pending;
#[cfg(test)]
mod tests;
mod tuple;
mod typed;
mod value;

pub use error::{DecodeError, Error, ValueError};
pub use expiring::{Expiring, Unexpired};
pub use expiry::Expiry;
pub use iter::{Iter, Keys};
#[cfg(feature = "serde")]
pub use json::Json;
pub use key::Key;
pub use pending::Pending;
pub use typed::Typed;
pub use value::Value;
