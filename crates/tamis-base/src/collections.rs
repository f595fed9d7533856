//! The engine's hash maps and sets, and a [map](SharedMap) whose copies share their entries.
//!
//! With the feature `simulation` they hash without a seed: a map's iteration order must be the same
//! in every run of a simulation.

mod shared_map;

pub use shared_map::SharedMap;

#[cfg(not(feature = "simulation"))]
type State = std::hash::RandomState;
#[cfg(feature = "simulation")]
type State = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// A hash map of the standard library.
pub type HashMap<K, V, S = State> = std::collections::HashMap<K, V, S>;
/// A hash set of the standard library.
pub type HashSet<T, S = State> = std::collections::HashSet<T, S>;
