//! Where and how rows were measured: the machine, the command, the day. Kept as `machine.json` beside the rows, so that
//! a report made later, or elsewhere, tells of the machine that measured and not of the one that writes.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tamis_bench::report::bytes;

use super::ReportError;

/// The file's name.
const FILE: &str = "machine.json";

/// Where and how rows were measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The command lines that measured them. More than one if a run was resumed in another way.
    pub commands: Vec<String>,
    /// The day of the first of them, UTC: `2026-11-21`.
    pub date: String,
    /// The machine.
    pub machine: Machine,
}

/// What is to be known of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of the processor; `unknown` where the system does not tell.
    pub cpu: String,
    /// Processors that the system has.
    pub cores: usize,
    /// Bytes of memory; 0 where the system does not tell.
    pub memory_bytes: u64,
    /// The kernel's release; `unknown` where the system does not tell.
    pub kernel: String,
}

impl Machine {
    /// This machine, from `/proc`. What is not told there is unknown.
    pub fn read() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine::from_proc(
            &read("/proc/cpuinfo"),
            &read("/proc/meminfo"),
            &read("/proc/sys/kernel/osrelease"),
        )
    }

    fn from_proc(cpuinfo: &str, meminfo: &str, osrelease: &str) -> Machine {
        let named = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let cpu =
            fields().find(|(name, _)| name.trim() == "model name").map_or("", |(_, model)| model.trim());
        let listed = fields().filter(|(name, _)| name.trim() == "processor").count();
        let cores =
            if listed > 0 { listed } else { std::thread::available_parallelism().map_or(1, usize::from) };
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        Machine {
            cpu: named(cpu),
            cores,
            memory_bytes: kib.saturating_mul(1024),
            kernel: named(osrelease.trim()),
        }
    }

    /// In a line: `AMD EPYC 7B13, 2 cores, 23.5 GiB, Linux 6.1.0`.
    pub fn describe(&self) -> String {
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let memory = match self.memory_bytes {
            0 => "memory unknown".to_owned(),
            known => bytes(known),
        };
        format!("{}, {cores}, {memory}, kernel {}", self.cpu, self.kernel)
    }

    /// Memory is left out: the kernel keeps a little more or less of it from boot to boot.
    fn is_same(&self, other: &Machine) -> bool {
        (&self.cpu, self.cores, &self.kernel) == (&other.cpu, other.cores, &other.kernel)
    }
}

impl Context {
    /// Notes beside the rows in `dir` that `command` measures on this machine, now. What was noted before stays: the
    /// day is that of the first command, and a command is listed once. Call it before the first row is appended, from
    /// one process at a time.
    ///
    /// # Errors
    ///
    /// The rows there are of another machine; the file is damaged; it cannot be read or written.
    pub fn note(dir: &Path, command: &str) -> Result<Context, ReportError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Context::note_at(dir, command, Machine::read(), &day(now))
    }

    fn note_at(dir: &Path, command: &str, here: Machine, date: &str) -> Result<Context, ReportError> {
        let path = dir.join(FILE);
        let mut context = match Context::load(dir) {
            Ok(context) if !context.machine.is_same(&here) => {
                let (there, here) = (context.machine.describe(), here.describe());
                return Err(ReportError::OtherMachine { path, there, here });
            }
            Ok(context) => context,
            Err(ReportError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                Context { commands: Vec::new(), date: date.to_owned(), machine: here }
            }
            Err(error) => return Err(error),
        };
        if !context.commands.iter().any(|known| known == command) {
            context.commands.push(command.to_owned());
            let json =
                serde_json::to_string_pretty(&context).expect("strings and numbers have a form in JSON");
            // Beside it first: an interrupted run leaves the old file or the new one.
            let fresh = path.with_extension("json.new");
            let written = fs::write(&fresh, json + "\n").and_then(|()| fs::rename(&fresh, &path));
            written.map_err(|source| ReportError::io(&path, source))?;
        }
        Ok(context)
    }

    /// What was noted beside the rows in `dir`.
    ///
    /// # Errors
    ///
    /// There is none, it cannot be read, or it is damaged.
    pub fn load(dir: &Path) -> Result<Context, ReportError> {
        let path = dir.join(FILE);
        let json = fs::read(&path).map_err(|source| ReportError::io(&path, source))?;
        serde_json::from_slice(&json)
            .map_err(|error| ReportError::Context { path, reason: error.to_string() })
    }
}

/// The day of a moment in seconds since 1970, UTC, in the Gregorian calendar.
fn day(seconds: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    // 400 years have 146,097 days, and repeat.
    let days = seconds / 86_400;
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::context;
    use super::*;

    #[test]
    fn days_follow_the_calendar() {
        let days = [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_603_200, "2024-12-31"),
            (1_795_219_200, "2026-11-21"),
            (4_107_542_400, "2100-03-01"),
            (253_402_300_799, "9999-12-31"),
        ];
        for (seconds, text) in days {
            assert_eq!(day(seconds), text);
        }
    }

    #[test]
    fn a_machine_is_read_and_what_is_not_told_is_unknown() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2: x\n\nprocessor\t: 1\nmodel name\t: Some CPU\n";
        let machine = Machine::from_proc(cpuinfo, "MemTotal:       2048 kB\nMemFree: 1 kB\n", "6.1.0\n");
        assert_eq!(machine.describe(), "Some CPU @ 2: x, 2 cores, 2.0 MiB, kernel 6.1.0");
        let bare = Machine::from_proc("", "MemTotal: many kB", "");
        assert_eq!((bare.cpu.as_str(), bare.memory_bytes, bare.kernel.as_str()), ("unknown", 0, "unknown"));
        assert!(bare.cores > 0 && bare.describe().contains("memory unknown"));
        assert!(Machine::read().cores > 0);
    }

    #[test]
    fn commands_are_noted_once_and_rows_of_two_machines_do_not_mix() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Context::load(dir.path()), Err(ReportError::Io { .. })));
        let machine = context().machine;
        let note = |command: &str, machine: Machine, date: &str| {
            Context::note_at(dir.path(), command, machine, date)
        };
        note("run a", machine.clone(), "2026-11-21").unwrap();
        note("run b", Machine { memory_bytes: 1, ..machine.clone() }, "2026-11-22").unwrap();
        note("run a", machine.clone(), "2026-11-23").unwrap();
        let there = Context::load(dir.path()).unwrap();
        assert_eq!(there.commands, ["run a", "run b"]);
        assert_eq!((there.date.as_str(), &there.machine), ("2026-11-21", &machine));

        let other = note("run a", Machine { cores: 64, ..machine }, "2026-11-24").unwrap_err().to_string();
        assert!(other.contains("64 cores") && other.contains("2 cores"), "{other}");
        fs::write(dir.path().join(FILE), "{").unwrap();
        let damaged = Context::load(dir.path()).unwrap_err().to_string();
        assert!(damaged.contains(FILE), "{damaged}");
    }

    #[test]
    fn this_machine_can_be_noted() {
        let dir = tempfile::tempdir().unwrap();
        let context = Context::note(dir.path(), "run").unwrap();
        assert_eq!(Context::load(dir.path()).unwrap(), context);
    }
}
