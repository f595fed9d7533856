//! The memory of a process: its mappings, and which pages of the heap are resident.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    pub(super) executable: bool,
    /// Writable, private and without a file.
    is_anonymous: bool,
    pub(super) path: String,
}

/// Parses the lines of `/proc/PID/maps`.
pub(super) fn mappings(text: &str) -> Vec<Mapping> {
    let one = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let flags = words.next()?;
        let inode = words.nth(2)?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let path = words.collect::<Vec<_>>().join(" ");
        let is_anonymous = flags.starts_with("rw") && flags.ends_with('p') && inode == "0";
        Some(Mapping { range, executable: flags.contains('x'), is_anonymous, path })
    };
    text.lines().filter_map(one).collect()
}

pub(super) fn read_mappings(process: u32) -> io::Result<Vec<Mapping>> {
    Ok(mappings(&std::fs::read_to_string(format!("/proc/{process}/maps"))?))
}

/// Returns the mappings of the heap: anonymous ones that are no stack.
fn heap(mappings: &[Mapping], stacks: &[u64]) -> Vec<Range<u64>> {
    let is_stack = |mapping: &Mapping| {
        mapping.path == "[stack]" || stacks.iter().any(|pointer| mapping.range.contains(pointer))
    };
    let heap = mappings.iter().filter(|mapping| mapping.is_anonymous && !is_stack(mapping));
    heap.map(|mapping| mapping.range.clone()).collect()
}

/// Returns the addresses of the resident pages of the heap.
pub(super) fn resident_heap(process: u32, stacks: &[u64]) -> io::Result<Vec<u64>> {
    const PRESENT: u64 = 1 << 63;
    let page = rustix::param::page_size() as u64;
    let table = File::open(format!("/proc/{process}/pagemap"))?;
    let mut resident = Vec::new();
    for range in heap(&read_mappings(process)?, stacks) {
        let pages = (range.end - range.start) / page;
        let mut entries = vec![0; 8 * pages as usize];
        table.read_exact_at(&mut entries, 8 * (range.start / page))?;
        for (number, entry) in entries.as_chunks().0.iter().enumerate() {
            if u64::from_le_bytes(*entry) & PRESENT != 0 {
                resident.push(range.start + number as u64 * page);
            }
        }
    }
    Ok(resident)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0a00000-55d0c0b00000 r-xp 00001000 fe:00 1234 /a program/tamis-faults
55d0c0c00000-55d0c0c10000 rw-p 00101000 fe:00 1234 /a program/tamis-faults
55d0c0c10000-55d0c0c20000 rw-p 00000000 00:00 0
55d0c1000000-55d0c1100000 rw-p 00000000 00:00 0    [heap]
7f0000000000-7f0000100000 rw-s 00000000 00:1a 77   /dev/shm/desk
7f0010000000-7f0010200000 rw-p 00000000 00:00 0
7f0020000000-7f0020200000 ---p 00000000 00:00 0
7ffc00000000-7ffc00020000 rw-p 00000000 00:00 0    [stack]
";

    #[test]
    fn the_heap_is_anonymous_and_no_stack() {
        let all = mappings(TEXT);
        assert_eq!(all.len(), 8);
        assert_eq!(all.iter().filter(|mapping| mapping.executable).count(), 1);
        assert_eq!(all[0].path, "/a program/tamis-faults");
        let starts: Vec<u64> = heap(&all, &[0x7f00_1000_1234]).iter().map(|range| range.start).collect();
        assert_eq!(starts, [0x55d0_c0c1_0000, 0x55d0_c100_0000]);
    }

    #[test]
    fn this_process_has_a_resident_heap() {
        let bytes = vec![1_u8; 1 << 20];
        let pages = resident_heap(std::process::id(), &[]).unwrap();
        let inside = bytes.as_ptr() as u64 + 8192;
        assert!(pages.iter().any(|page| (*page..*page + 4096).contains(&inside)));
    }
}
