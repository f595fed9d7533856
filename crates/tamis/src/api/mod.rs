//! The database as programs see it.

pub(crate) mod atomic;
pub(crate) mod database;
pub(crate) mod doctor;
pub(crate) mod opening;
pub(crate) mod place;
pub(crate) mod readable;
pub(crate) mod snapshot;
pub(crate) mod view;
