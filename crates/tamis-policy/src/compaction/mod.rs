//! What to compact: a *policy* is a pure function from the shape of a tree to a *plan*. The engine
//! carries plans out.

pub mod deletes;
pub mod plan;
pub mod policy;
pub mod released;
pub mod settings;
pub mod shape;
#[cfg(test)]
mod simulator;

pub use policy::Promise;
