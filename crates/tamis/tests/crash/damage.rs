//! Damaged bytes.
