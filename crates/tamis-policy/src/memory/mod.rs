//! The division of memory for reads: between the uses of one database, and between databases.

mod market;

pub use market::{Ghosts, Market, Reading};
