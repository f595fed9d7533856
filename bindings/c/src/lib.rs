//! The C interface of tamis. `tamis.h`, which cbindgen writes from these files, is its documentation.
//!
//! Each function is a thin shell: it checks its pointers, makes one call of the engine inside `border::guard`, and hands out what it
//! returns. What all functions ask of their callers is in the header's opening comment (`cbindgen.toml`), which is why there are no
//! sections on safety here.

#![allow(non_camel_case_types, reason = "types have the names that C sees")]
#![allow(clippy::missing_safety_doc, reason = "the header's opening comment has the rules for all functions")]
#![allow(clippy::too_many_arguments, reason = "bytes are two arguments in C")]

mod border;
pub mod database;
pub mod error;
pub mod iterator;
pub mod keyspace;
pub mod memory;
pub mod merge;
pub mod options;
pub mod output;
pub mod read;
pub mod reports;
pub mod table;
pub mod transaction;
pub mod update;
pub mod write;
