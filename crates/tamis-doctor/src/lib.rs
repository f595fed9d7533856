//! For [tamis] databases that are damaged: salvage, verification of what cannot be opened,
//! and the contents of single files.
//!
//! | what | for |
//! | --- | --- |
//! | [`salvage`] | restores a damaged database with everything that can still be read |
//! | [`open_read_only`] | shows what a salvage would keep, and changes nothing |
//! | [`verify`] | checks every file, also of a database that cannot be opened |
//! | [`inspect`] | prints a single file, which may be damaged |
//!
//! Invariants:
//! * Nothing is ever removed or overwritten: a file loses its old name only once it has another.
//! * A directory without a file that bears this engine's mark is not touched.
//! * Decisions follow from the directory alone: an interrupted salvage is repeated in the same way,
//!   and what it had done was no more than second names.
//! * Bytes are hostile, as everywhere: no table is believed what it says of itself.
//!
//! It stands on `tamis-files`, which reads every byte, and on the engine's opening, which replays
//! logs and puts the new manifest in force, behind a seam that nobody else uses.
//!
//! Threads: a single one does all of this, which holds the directory lock or changes nothing.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

pub mod inspect;
mod salvage;
mod verify;

pub use salvage::{
    SalvageReport, SalvagedKeyspace, SalvagedLog, SalvagedTable, TableFate, open_read_only, salvage,
};
pub use verify::verify;
