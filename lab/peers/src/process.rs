//! Resources used by the calling process, as counted by the kernel (Linux).
//!
//! * Processor time: the clock `CLOCK_PROCESS_CPUTIME_ID` with nanosecond resolution; user and system time of all
//!   threads, including ended ones.
//! * Bytes: `/proc/self/io`. `rchar` and `wchar` count the bytes of read and write calls, also on pipes and terminals.
//!   They do not count mapped files and io_uring (tamis maps its log, but first writes zeros over what it maps, which
//!   count instead); `read_bytes` counts reads of the device, also for page faults. Before
//!   dividing by them, check whether an engine writes by other means ([`Directory`](crate::directory::Directory) shows
//!   this).
//! * Reads: `syscr` of the same file counts read calls, `majflt` of `/proc/self/stat` page faults that read.
//! * Memory: `RssAnon` of `/proc/self/status`, in pages. It excludes pages of mapped files.

use std::io;

/// Counters since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Nanoseconds of processor time.
    pub cpu_ns: u64,
    /// Bytes transferred by read calls.
    pub read_bytes: u64,
    /// Bytes transferred by write calls.
    pub written_bytes: u64,
    /// Bytes read from the device.
    pub device_read_bytes: u64,
    /// Read calls.
    pub reads: u64,
    /// Faults of mapped pages that had to be read.
    pub major_faults: u64,
}

impl Usage {
    /// Returns the current counters.
    pub(crate) fn now() -> io::Result<Usage> {
        let text = std::fs::read_to_string("/proc/self/io")?;
        let mut usage = parse_io(&text)?;
        // Reading the counters is counted as well, but only by later readings.
        usage.read_bytes += text.len() as u64;
        usage.major_faults = parse_major_faults(&std::fs::read_to_string("/proc/self/stat")?)?;
        if !crate::instructions::is_counting() {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            usage.cpu_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        }
        Ok(usage)
    }

    /// Returns the usage since `before`.
    pub(crate) fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            device_read_bytes: self.device_read_bytes.saturating_sub(before.device_read_bytes),
            reads: self.reads.saturating_sub(before.reads),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
        }
    }
}

/// Returns the resident anonymous memory of the process in bytes.
pub(crate) fn resident_anonymous_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let kilobytes = field(&text, "RssAnon:").ok_or_else(|| missing("RssAnon", "/proc/self/status"))?;
    Ok(kilobytes * 1024)
}

fn parse_io(text: &str) -> io::Result<Usage> {
    let count = |name| field(text, name).ok_or_else(|| missing(name, "/proc/self/io"));
    Ok(Usage {
        cpu_ns: 0,
        read_bytes: count("rchar:")?,
        written_bytes: count("wchar:")?,
        device_read_bytes: count("read_bytes:")?,
        reads: count("syscr:")?,
        major_faults: 0,
    })
}

/// Returns the tenth field after the name, which is in parentheses and may contain anything.
fn parse_major_faults(text: &str) -> io::Result<u64> {
    let faults = text.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(9)?.parse().ok());
    faults.ok_or_else(|| missing("majflt", "/proc/self/stat"))
}

/// Returns the number after a line's name.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn missing(name: &str, file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} has no `{name}`: the kernel must keep it"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn written_bytes_are_counted() {
        let mut file = tempfile::tempfile().unwrap();
        let before = Usage::now().unwrap();
        file.write_all(&[7; 300_000]).unwrap();
        let used = Usage::now().unwrap().since(&before);
        // Other tests of this process may write as well.
        assert!(used.written_bytes >= 300_000, "{used:?}");
    }

    #[test]
    fn work_takes_processor_time_and_memory_is_resident() {
        let before = Usage::now().unwrap();
        let mut sum = 0u64;
        while Usage::now().unwrap().since(&before).cpu_ns < 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let memory = resident_anonymous_bytes().unwrap();
        let block = std::hint::black_box(vec![1u8; 64 << 20]);
        let more = resident_anonymous_bytes().unwrap();
        assert!(more > memory && more >= block.len() as u64, "{memory} {more}");
    }

    #[test]
    fn missing_counters_are_an_error() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 200 33 44 5 6";
        assert_eq!(parse_major_faults(stat).unwrap(), 33);
        assert!(parse_major_faults("7 (a) S 1").is_err());
        assert!(parse_io("rchar: 1\nwchar: 2\nsyscr: 3\nread_bytes: 4\n").is_ok());
        for text in ["", "rchar: 1\n", "rchar: x\nwchar: 2\nread_bytes: 3\n"] {
            assert!(parse_io(text).unwrap_err().to_string().contains("char"), "{text}");
        }
    }
}
