//! What the calling process has used, as the kernel counts it (Linux).
//!
//! * Processor time: the clock `CLOCK_PROCESS_CPUTIME_ID`, all threads, user and system, ended ones included, to the
//!   nanosecond.
//! * Bytes: `/proc/self/io`. `rchar` and `wchar` count what read and write calls moved, to pipes and terminals as well. They
//!   count nothing of mapped files and nothing of io_uring; `read_bytes` counts what the device read, for page faults as well.
//!   Whoever divides by them must see whether an engine writes past them ([`Directory`](crate::directory::Directory) tells).
//! * Memory: `RssAnon` of `/proc/self/status`, in pages. Pages of mapped files are no part of it.

use std::io;

/// Counts since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Nanoseconds of processor time.
    pub cpu_ns: u64,
    /// Bytes that read calls moved.
    pub read_bytes: u64,
    /// Bytes that write calls moved.
    pub written_bytes: u64,
    /// Bytes that the device read.
    pub device_read_bytes: u64,
}

impl Usage {
    /// The counts now.
    pub(crate) fn now() -> io::Result<Usage> {
        let text = std::fs::read_to_string("/proc/self/io")?;
        let mut usage = parse_io(&text)?;
        // Reading the counts is counted as well, but only by those who come later.
        usage.read_bytes += text.len() as u64;
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        usage.cpu_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        Ok(usage)
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(before.cpu_ns),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            device_read_bytes: self.device_read_bytes.saturating_sub(before.device_read_bytes),
        }
    }
}

/// Anonymous memory of the process that is resident, in bytes.
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
    })
}

/// The number behind a line's name.
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
    fn what_is_written_is_counted() {
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
    fn a_kernel_that_does_not_count_is_an_error() {
        assert!(parse_io("rchar: 1\nwchar: 2\nsyscr: 3\nread_bytes: 4\n").is_ok());
        for text in ["", "rchar: 1\n", "rchar: x\nwchar: 2\nread_bytes: 3\n"] {
            assert!(parse_io(text).unwrap_err().to_string().contains("char"), "{text}");
        }
    }
}
