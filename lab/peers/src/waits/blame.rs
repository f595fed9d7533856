//! What a slow put waited for. Pure: from events and intervals to causes.

use std::collections::{BTreeMap, HashMap};

use super::trace::{Event, What};

/// A wait for a thread that waits for another one is blamed on what that one did, for so many steps.
const MOST_STEPS: u32 = 4;

/// A sample stands for at most so much time.
const SAMPLE_NS: u64 = 100_000;

/// Functions of the kernel on the stack of a thread that waits, and what it waits for. The first one that is there counts.
const WAITS: [(&str, &str); 12] = [
    ("balance_dirty_pages", "write-back: too many dirty pages"),
    ("folio_wait_writeback", "write-back of the page"),
    ("jbd2_log_wait_commit", "the file system's journal"),
    ("wait_transaction_locked", "the file system's journal"),
    ("start_this_handle", "the file system's journal"),
    ("blk_", "the device"),
    ("submit_bio_wait", "the device"),
    ("io_schedule", "the device"),
    ("rwsem_down", "a lock of the kernel"),
    ("mutex_lock", "a lock of the kernel"),
    ("nanosleep", "sleep"),
    ("futex_wait", "a lock"),
];

/// Functions of the kernel on the stack of a thread that runs.
const RUNS: [(&str, &str); 8] = [
    ("clear_huge_page", "runs: zeroes a huge page"),
    ("do_huge_pmd_anonymous_page", "runs: provides a huge page"),
    ("page_mkwrite", "runs: makes a page of a file writable"),
    ("filemap_fault", "runs: finds or reads a page of a file"),
    ("exc_page_fault", "runs: page fault"),
    ("do_syscall_64", "runs: system call"),
    ("irq", "runs: interrupt"),
    ("softirq", "runs: interrupt"),
];

/// The time of one thread off the processor.
#[derive(Clone, Debug)]
struct Off {
    from: u64,
    to: u64,
    processor: u32,
    /// `None`: it could have run on.
    waits_for: Option<&'static str>,
    /// When it was woken, and by which thread.
    woken: Option<(u64, u32)>,
}

/// What ran on a processor since.
#[derive(Clone, Copy, Debug)]
struct On {
    at: u64,
    tid: u32,
}

/// The events by thread and by processor.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    names: HashMap<u32, String>,
    offs: HashMap<u32, Vec<Off>>,
    processors: HashMap<u32, Vec<On>>,
    samples: HashMap<u32, Vec<(u64, &'static str, String)>>,
    faults: HashMap<u32, Vec<u64>>,
}

/// Nanoseconds by cause.
pub(super) type Causes = BTreeMap<String, u64>;

impl Timeline {
    pub(super) fn new(events: Vec<Event>) -> Timeline {
        let mut line = Timeline::default();
        let mut woken: HashMap<u32, (u64, u32)> = HashMap::new();
        let mut out: HashMap<u32, Off> = HashMap::new();
        for Event { at, processor, tid, what, stack } in events {
            match what {
                What::Switch { runnable, next, next_name } => {
                    let waits_for = (!runnable).then(|| first_of(&WAITS, &stack).unwrap_or("something else"));
                    woken.remove(&tid);
                    out.insert(tid, Off { from: at, to: at, processor, waits_for, woken: None });
                    line.processors.entry(processor).or_default().push(On { at, tid: next });
                    line.names.insert(next, next_name);
                    if let Some(off) = out.remove(&next) {
                        let off = Off { to: at, processor, woken: woken.remove(&next), ..off };
                        line.offs.entry(next).or_default().push(off);
                    }
                }
                What::Wakes { tid: of } => drop(woken.insert(of, (at, tid))),
                What::Fault => line.faults.entry(tid).or_default().push(at),
                What::Sample => {
                    let kind = first_of(&RUNS, &stack).unwrap_or("runs");
                    let innermost = stack.into_iter().next().unwrap_or_default();
                    line.samples.entry(tid).or_default().push((at, kind, innermost));
                }
            }
        }
        line
    }

    /// Divides the time of a thread between causes.
    pub(super) fn causes(&self, tid: u32, from: u64, to: u64) -> Causes {
        let mut causes = Causes::new();
        self.blame(tid, (from, to), MOST_STEPS, "", &mut causes);
        causes
    }

    /// The faults of a thread in a time.
    pub(super) fn faults(&self, tid: u32, from: u64, to: u64) -> usize {
        let faults = self.faults.get(&tid).map_or(&[][..], Vec::as_slice);
        faults.partition_point(|&at| at < to) - faults.partition_point(|&at| at < from)
    }

    /// `via` names the thread if it is not the first one.
    fn blame(&self, tid: u32, (from, to): (u64, u64), steps: u32, via: &str, causes: &mut Causes) {
        let offs = self.offs.get(&tid).map_or(&[][..], Vec::as_slice);
        let mut at = from;
        for off in &offs[offs.partition_point(|off| off.to <= from)..] {
            if off.from >= to {
                break;
            }
            let (start, end) = (off.from.max(from), off.to.min(to));
            self.runs(tid, (at, start), via, causes);
            at = end;
            let waited_until = match (off.waits_for, off.woken) {
                (None, _) => start,
                (Some(_), Some((woken, _))) => woken.clamp(start, end),
                (Some(_), None) => end,
            };
            if let Some(reason) = off.waits_for {
                self.waits((start, waited_until), (reason, off.woken), steps, via, causes);
            }
            self.preempted(off.processor, (waited_until, end), via, causes);
        }
        self.runs(tid, (at, to), via, causes);
    }

    fn waits(
        &self,
        (from, to): (u64, u64),
        (reason, woken): (&str, Option<(u64, u32)>),
        steps: u32,
        via: &str,
        causes: &mut Causes,
    ) {
        let waker = woken.map(|(_, by)| by).filter(|&by| by != 0 && reason == "a lock");
        match waker {
            Some(by) if steps > 0 => {
                self.blame(by, (from, to), steps - 1, &format!("{via}{} ", self.name(by)), causes);
            }
            _ => add(causes, format!("{via}waits for {reason}"), to.saturating_sub(from)),
        }
    }

    /// The thread could run, and others did.
    fn preempted(&self, processor: u32, (from, to): (u64, u64), via: &str, causes: &mut Causes) {
        let ran = self.processors.get(&processor).map_or(&[][..], Vec::as_slice);
        let first = ran.partition_point(|on| on.at <= from).saturating_sub(1);
        for (i, on) in ran.iter().enumerate().skip(first).take_while(|(_, on)| on.at < to) {
            let until = ran.get(i + 1).map_or(to, |next| next.at).min(to);
            let name = format!("{via}could run, but {} does", self.name(on.tid));
            add(causes, name, until.saturating_sub(on.at.max(from)));
        }
    }

    /// The thread runs: what it does is known from samples.
    fn runs(&self, tid: u32, (from, to): (u64, u64), via: &str, causes: &mut Causes) {
        if to <= from {
            return;
        }
        let samples = self.samples.get(&tid).map_or(&[][..], Vec::as_slice);
        let (first, end) =
            (samples.partition_point(|(at, ..)| *at < from), samples.partition_point(|(at, ..)| *at < to));
        let sampled = &samples[first..end];
        let each = ((to - from) / sampled.len().max(1) as u64).min(SAMPLE_NS * 2);
        for (_, kind, innermost) in sampled {
            let within = if *kind == "runs" { format!(" {innermost}") } else { String::new() };
            add(causes, format!("{via}{kind}{within}"), each);
        }
        add(
            causes,
            format!("{via}runs, not sampled"),
            (to - from).saturating_sub(each * sampled.len() as u64),
        );
    }

    fn name(&self, tid: u32) -> &str {
        match tid {
            0 => "nobody",
            tid => self.names.get(&tid).map_or("?", String::as_str),
        }
    }
}

fn first_of(table: &[(&str, &'static str)], stack: &[String]) -> Option<&'static str> {
    let on_stack = |part: &str| stack.iter().any(|function| function.contains(part));
    table.iter().find(|(part, _)| on_stack(part)).map(|(_, meaning)| *meaning)
}

fn add(causes: &mut Causes, cause: String, ns: u64) {
    if ns > 0 {
        *causes.entry(cause).or_default() += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(at: u64, tid: u32, runnable: bool, next: u32, stack: &[&str]) -> Event {
        let stack = stack.iter().map(|function| (*function).to_owned()).collect();
        let what = What::Switch { runnable, next, next_name: format!("t{next}") };
        Event { at, processor: 0, tid, what, stack }
    }

    fn event(at: u64, tid: u32, what: What) -> Event {
        Event { at, processor: 1, tid, what, stack: Vec::new() }
    }

    fn causes(line: &Timeline, from: u64, to: u64) -> Vec<(String, u64)> {
        line.causes(1, from, to).into_iter().collect()
    }

    #[test]
    fn a_preempted_thread_waits_for_those_that_run() {
        let line = Timeline::new(vec![
            switch(10, 1, true, 2, &[]),
            switch(40, 2, true, 3, &[]),
            switch(50, 3, true, 1, &[]),
        ]);
        let expected =
            [("could run, but t2 does", 30), ("could run, but t3 does", 10), ("runs, not sampled", 15)];
        assert_eq!(causes(&line, 5, 60), expected.map(|(cause, ns)| (cause.to_owned(), ns)));
    }

    #[test]
    fn a_wait_for_a_lock_is_blamed_on_what_its_holder_did() {
        let futex = ["__schedule", "futex_wait_queue", "do_syscall_64"];
        let line = Timeline::new(vec![
            switch(8, 2, false, 1, &["folio_wait_writeback"]),
            switch(10, 1, false, 0, &futex),
            switch(30, 0, true, 2, &[]),
            event(50, 2, What::Wakes { tid: 1 }),
            switch(60, 2, true, 1, &[]),
        ]);
        let expected = [
            ("could run, but t2 does", 10),
            ("runs, not sampled", 5),
            ("t2 runs, not sampled", 20),
            ("t2 waits for write-back of the page", 20),
        ];
        assert_eq!(causes(&line, 10, 65), expected.map(|(cause, ns)| (cause.to_owned(), ns)));
    }

    #[test]
    fn faults_and_samples_are_those_of_the_time() {
        let sample = |at, stack: &str| Event {
            stack: vec!["clear_page".to_owned(), stack.to_owned()],
            ..event(at, 1, What::Sample)
        };
        let events = [5, 10, 19, 20].map(|at| event(at, 1, What::Fault));
        let samples = [sample(12, "exc_page_fault"), sample(18, "main")];
        let line = Timeline::new(events.into_iter().chain(samples).collect());
        assert_eq!(line.faults(1, 10, 20), 2);
        let expected = [("runs clear_page", 5), ("runs: page fault", 5)];
        assert_eq!(causes(&line, 10, 20), expected.map(|(cause, ns)| (cause.to_owned(), ns)));
    }
}
