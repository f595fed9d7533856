//! What the kernel did meanwhile: `perf record` beside a run, and the events of `perf script`.

use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The recorded events. Only switches and samples need a stack.
const EVENTS: [&str; 4] = [
    "sched:sched_switch/call-graph=fp/",
    "sched:sched_waking",
    "exceptions:page_fault_user",
    "cpu-clock/freq=10000,call-graph=fp/",
];

/// A moment of a processor. Times are of the monotonic clock, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: u64,
    pub(super) processor: u32,
    /// The thread that ran.
    pub(super) tid: u32,
    pub(super) what: What,
    /// Functions, innermost first; empty for events that are recorded without.
    pub(super) stack: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// It stops running, and another thread goes on.
    Switch {
        /// Whether it could have run on.
        runnable: bool,
        next: u32,
        next_name: String,
    },
    /// It wakes another thread.
    Wakes { tid: u32 },
    /// It touches a page that has to be provided.
    Fault,
    /// It is running.
    Sample,
}

/// A running `perf record` of the whole machine.
pub(super) struct Recording {
    perf: Child,
}

impl Recording {
    pub(super) fn start(file: &Path) -> io::Result<Recording> {
        let mut command = Command::new("perf");
        command.args([
            "record",
            "--quiet",
            "--all-cpus",
            "--clockid",
            "CLOCK_MONOTONIC",
            "--mmap-pages",
            "32M",
        ]);
        command.args(EVENTS.iter().flat_map(|event| ["--event", event]));
        let perf = command.arg("--output").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        Ok(Recording { perf })
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        kill_process(Pid::from_child(&self.perf), Signal::INT)?;
        self.perf.wait().map(drop)
    }
}

/// Reads a recording, in the order of time.
pub(super) fn read(file: &Path) -> io::Result<Vec<Event>> {
    let mut command = Command::new("perf");
    command.args(["script", "--ns", "--fields", "tid,cpu,time,event,trace,ip,sym", "--input"]).arg(file);
    let mut perf = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = perf.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut events: Vec<Event> = Vec::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        match (line.strip_prefix('\t'), events.last_mut()) {
            (Some(frame), Some(event)) => {
                let function = frame.trim().split_once(' ').map_or("", |(_, function)| function);
                event.stack.push(function.to_owned());
            }
            _ => events.extend(event(&line)),
        }
    }
    match perf.wait()?.success() {
        true => Ok(events),
        false => Err(io::Error::other("perf script failed")),
    }
}

/// Parses the first line of an event; `None` for any other line.
fn event(line: &str) -> Option<Event> {
    let (thread, rest) = line.trim_start().split_once(' ')?;
    let (processor, rest) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let (seconds, nanoseconds) = time.split_once('.')?;
    let at = seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)? + nanoseconds.parse::<u64>().ok()?;
    let (name, fields) = rest
        .trim_start()
        .split_once(": ")
        .or_else(|| rest.trim().strip_suffix(':').map(|name| (name, "")))?;
    // A name may contain anything: look for the last place of what comes behind it.
    let what = match name {
        "sched:sched_switch" => {
            let (out, into) = fields.split_once(" ==> next_comm=")?;
            let (next_name, next) = into.rsplit_once(" next_pid=")?;
            let state = out.rsplit_once(" prev_state=")?.1;
            What::Switch {
                runnable: state.starts_with('R'),
                next: next.split(' ').next()?.parse().ok()?,
                next_name: next_name.to_owned(),
            }
        }
        "sched:sched_waking" => {
            What::Wakes { tid: fields.rsplit_once(" pid=")?.1.split(' ').next()?.parse().ok()? }
        }
        "exceptions:page_fault_user" => What::Fault,
        _ if name.contains("cpu-clock") => What::Sample,
        _ => return None,
    };
    Some(Event { at, processor: processor.parse().ok()?, tid: thread.parse().ok()?, what, stack: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_events() {
        let switch = event(
            "  4826 [001] 27900.859478919:         sched:sched_switch: prev_comm=a b prev_pid=4826 prev_prio=120 \
             prev_state=R+ ==> next_comm=c next_pid=d next_pid=18 next_prio=0",
        );
        let what = What::Switch { runnable: true, next: 18, next_name: "c next_pid=d".to_owned() };
        let at = 27_900_859_478_919;
        assert_eq!(switch, Some(Event { at, processor: 1, tid: 4826, what, stack: Vec::new() }));
        let waking = event(
            "18 [000] 27900.000000001: sched:sched_waking: comm=perf pid=4826 prio=120 target_cpu=000 ffffffff813a89c4 try_to_wake_up",
        );
        assert_eq!(waking.unwrap().what, What::Wakes { tid: 4826 });
        let fault =
            event("9 [000] 1.000000005: exceptions:page_fault_user: address=0x1 ip=0x2 error_code=0x14");
        assert_eq!(fault.unwrap().what, What::Fault);
        assert_eq!(event("9 [000] 1.000000005: cpu-clock: ").unwrap().what, What::Sample);
        for other in ["", "x", "4826 [000] 1.2 sched", "4826 [000] 1.000000002: syscalls:sys_enter: 5"] {
            assert_eq!(event(other), None, "{other}");
        }
    }
}
