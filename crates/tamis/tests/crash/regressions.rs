//! Stories of bugs.
