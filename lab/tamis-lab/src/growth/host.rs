//! What the system tells: the processor's caches, and memory. Read from `/proc` and `/sys`; missing values are 0.

use std::fs;

use crate::machine::Machine;

/// Sizes of the processor's caches and of the memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) l2_bytes: u64,
    pub(super) l3_bytes: u64,
    /// Memory that programs and the page cache can have without swapping, at most the program's own limit.
    pub(super) available_bytes: u64,
    /// Memory of this process, pages of mapped files included.
    pub(super) resident_bytes: u64,
    /// The part of it that is no file.
    pub(super) anonymous_bytes: u64,
}

impl Host {
    pub(super) fn read() -> Host {
        let machine = Machine::read(None);
        let cache = |level: &str| {
            let sizes =
                machine.caches.iter().filter_map(|cache| cache.strip_prefix(level)?.strip_prefix(' '));
            sizes.filter_map(bytes_of).next().unwrap_or(0)
        };
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        let (meminfo, status) = (text("/proc/meminfo"), text("/proc/self/status"));
        let available = field(&meminfo, "MemAvailable:");
        Host {
            l2_bytes: cache("L2"),
            l3_bytes: cache("L3"),
            available_bytes: if machine.memory_bytes == 0 {
                available
            } else {
                available.min(machine.memory_bytes)
            },
            resident_bytes: field(&status, "VmRSS:"),
            anonymous_bytes: field(&status, "RssAnon:"),
        }
    }
}

/// Returns the bytes of a line `name   123 kB`; 0 if there is none.
fn field(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = rest.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Parses the size of a cache: `1024K`.
fn bytes_of(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_shl(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_missing_ones_are_nothing() {
        assert_eq!(field("MemFree: 1 kB\nMemAvailable:   2048 kB\n", "MemAvailable:"), 2 << 20);
        assert_eq!(field("MemAvailable: many kB", "MemAvailable:"), 0);
        assert_eq!(field("", "VmRSS:"), 0);
        assert_eq!(
            ["1024K", "32M", "7", "KK", "x"].map(bytes_of),
            [Some(1 << 20), Some(32 << 20), Some(7), None, None]
        );
    }
}
