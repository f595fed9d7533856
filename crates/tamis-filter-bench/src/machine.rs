//! The machine that the numbers come from.

use std::fs;

use serde::Serialize;

/// What a reader must know to judge the numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor as it names itself.
    pub processor: String,
    /// Threads that the program may use at once. All measurements use one.
    pub threads: usize,
    /// Data caches by level, as the system names their sizes.
    pub caches: Vec<String>,
    /// Operating system and instruction set.
    pub system: String,
    /// Whether this is a build whose times mean something.
    pub optimised: bool,
}

impl Machine {
    /// This one. What cannot be found out is called unknown.
    pub fn this() -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let processor = model.map_or("unknown processor", |(_, name)| name.trim()).to_owned();
        Self {
            processor,
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            caches: caches(),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            optimised: !cfg!(debug_assertions),
        }
    }

    fn lines(&self) -> Vec<String> {
        let caches = if self.caches.is_empty() { "unknown".to_owned() } else { self.caches.join(", ") };
        let mut lines = vec![format!(
            "Machine: {}, {} threads (one used), data caches {caches}, {}.",
            self.processor, self.threads, self.system
        )];
        if !self.optimised {
            lines.push("This is a debug build: rates are right, times mean nothing.".to_owned());
        }
        lines
    }

    /// For a terminal.
    pub fn to_text(&self) -> String {
        self.lines().join("\n")
    }

    /// For a page.
    pub fn to_markdown(&self) -> String {
        self.lines().join(" ")
    }

    /// Bytes of the largest cache; 32 MiB if unknown.
    pub fn largest_cache(&self) -> usize {
        self.caches.iter().filter_map(|cache| bytes(cache.split_once(' ')?.1)).max().unwrap_or(32 << 20)
    }
}

fn bytes(size: &str) -> Option<usize> {
    let digits = size.trim_end_matches(['K', 'M', 'G']);
    let shift = match &size[digits.len()..] {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    Some(digits.parse::<usize>().ok()? << shift)
}

/// As "L1 48K", of the first processor.
fn caches() -> Vec<String> {
    let read = |index: usize, what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    (0..8)
        .filter(|&index| read(index, "type").is_some_and(|kind| kind != "Instruction"))
        .filter_map(|index| Some(format!("L{} {}", read(index, "level")?, read(index, "size")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_read() {
        assert_eq!(bytes("48K"), Some(48 << 10));
        assert_eq!(bytes("32M"), Some(32 << 20));
        assert_eq!(bytes("7"), Some(7));
        assert_eq!(bytes("K"), None);
    }
}
