//! tamis side by side with other storage engines.

pub mod engines;
pub mod record;
pub mod report;

fn main() {}
