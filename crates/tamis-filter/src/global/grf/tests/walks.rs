//! Walks.

use super::*;
