//! Sizes and rates.

use super::*;
