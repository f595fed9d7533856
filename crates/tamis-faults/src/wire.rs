//! The messages of a worker to its parent: lines on standard output, one system call each, so that
//! a line arrives whole as soon as its content is true. A last line without a line end was cut by a
//! kill.

use std::io::Write as _;

use crate::oracle::{Shelf, Space, State};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A write was acknowledged.
    Acked {
        thread: u32,
        number: u64,
        synced: bool,
    },
    /// A journalled write began.
    Began {
        number: u64,
        ingested: bool,
    },
    /// An operation failed; the text names it and the reason.
    Failed(String),
    /// A phase of a session began.
    Phase(String),
    /// A copy was begun, with at least these writes by thread.
    CopyBegan {
        name: String,
        seen: Vec<u64>,
    },
    CopyDone(String),
    /// There is no database at the place of a copy.
    CopyAbsent(String),
    /// The contents of a database follow; its own name is [`DATABASE`].
    StateBegan(String),
    Counter {
        thread: u32,
        counter: Vec<u64>,
    },
    Done(u64),
    Entry {
        space: Space,
        key: Vec<u8>,
        fingerprint: u64,
    },
    StateEnded,
    /// A count kept by the worker.
    Count {
        what: String,
        count: u64,
    },
    /// An error that only the worker could detect.
    Wrong(String),
    /// A read of an open database that was not as the worker expected.
    Live(Live),
    /// A record that the worker itself may have damaged before the engine got it.
    Damaged(String),
    /// A difference between the contents of a closed database and the required ones.
    Different(String),
    /// A problem found by `verify`.
    Verified(String),
    /// The job is finished.
    Finished,
}

/// A read of an open database: a get of the key with an index, or an entry of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) shelf: Shelf,
    /// The number of acknowledged batches.
    pub(crate) batches: u32,
    /// The entry's position in a scan; `None` for a get.
    pub(crate) position: Option<u32>,
    pub(crate) index: u32,
    /// Key and value. A get has no key.
    pub(crate) found: Option<(Vec<u8>, Vec<u8>)>,
}

impl std::fmt::Display for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let position = self.position.map_or("-".to_owned(), |position| position.to_string());
        write!(f, "live {} {} {position} {}", self.shelf as usize, self.batches, self.index)?;
        match &self.found {
            Some((key, value)) => write!(f, " {}:{}", hex(key), hex(value)),
            None => write!(f, " -"),
        }
    }
}

impl Live {
    fn parse(text: &str) -> Option<Live> {
        let mut words = text.split(' ');
        let mut next = || words.next();
        let shelf = *Shelf::ALL.get(next()?.parse::<usize>().ok()?)?;
        let batches = next()?.parse().ok()?;
        let position = match next()? {
            "-" => None,
            number => Some(number.parse().ok()?),
        };
        let index = next()?.parse().ok()?;
        let found = match next()? {
            "-" => None,
            entry => {
                let (key, value) = entry.split_once(':')?;
                Some((read_hex(key)?, read_hex(value)?))
            }
        };
        Some(Live { shelf, batches, position, index, found })
    }
}

/// The name of the database's own state.
pub(crate) const DATABASE: &str = "database";

fn numbers(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn read_numbers(text: &str) -> Option<Vec<u64>> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().ok()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl std::fmt::Display for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let one_line = |text: &str| text.replace('\n', " | ");
        match self {
            Message::Acked { thread, number, synced } => {
                write!(f, "acked {thread} {number} {}", u8::from(*synced))
            }
            Message::Began { number, ingested } => write!(f, "began {number} {}", u8::from(*ingested)),
            Message::Failed(what) => write!(f, "failed {}", one_line(what)),
            Message::Phase(name) => write!(f, "phase {name}"),
            Message::CopyBegan { name, seen } => write!(f, "copy-began {name} {}", numbers(seen)),
            Message::CopyDone(name) => write!(f, "copy-done {name}"),
            Message::CopyAbsent(name) => write!(f, "copy-absent {name}"),
            Message::StateBegan(name) => write!(f, "state-began {name}"),
            Message::Counter { thread, counter } => write!(f, "counter {thread} {}", numbers(counter)),
            Message::Done(number) => write!(f, "done {number}"),
            Message::Entry { space, key, fingerprint } => {
                write!(f, "entry {} {} {fingerprint:x}", *space as usize, hex(key))
            }
            Message::StateEnded => write!(f, "state-ended"),
            Message::Count { what, count } => write!(f, "count {count} {}", one_line(what)),
            Message::Wrong(what) => write!(f, "wrong {}", one_line(what)),
            Message::Live(live) => write!(f, "{live}"),
            Message::Damaged(what) => write!(f, "damaged {}", one_line(what)),
            Message::Different(what) => write!(f, "different {}", one_line(what)),
            Message::Verified(what) => write!(f, "verified {}", one_line(what)),
            Message::Finished => write!(f, "finished"),
        }
    }
}

impl Message {
    /// Parses a line without its end.
    pub(crate) fn parse(line: &str) -> Option<Message> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, second) = rest.split_once(' ').unwrap_or((rest, ""));
        Some(match word {
            "acked" => {
                let (number, synced) = second.split_once(' ')?;
                let (thread, number) = (first.parse().ok()?, number.parse().ok()?);
                Message::Acked { thread, number, synced: synced == "1" }
            }
            "began" => Message::Began { number: first.parse().ok()?, ingested: second == "1" },
            "failed" => Message::Failed(rest.to_owned()),
            "phase" => Message::Phase(rest.to_owned()),
            "copy-began" => Message::CopyBegan { name: first.to_owned(), seen: read_numbers(second)? },
            "copy-done" => Message::CopyDone(rest.to_owned()),
            "copy-absent" => Message::CopyAbsent(rest.to_owned()),
            "state-began" => Message::StateBegan(rest.to_owned()),
            "counter" => Message::Counter { thread: first.parse().ok()?, counter: read_numbers(second)? },
            "done" => Message::Done(rest.parse().ok()?),
            "entry" => {
                let space = *Space::ALL.get(first.parse::<usize>().ok()?)?;
                let (key, fingerprint) = second.split_once(' ')?;
                let fingerprint = u64::from_str_radix(fingerprint, 16).ok()?;
                Message::Entry { space, key: read_hex(key)?, fingerprint }
            }
            "state-ended" => Message::StateEnded,
            "count" => Message::Count { what: second.to_owned(), count: first.parse().ok()? },
            "wrong" => Message::Wrong(rest.to_owned()),
            "live" => Message::Live(Live::parse(rest)?),
            "damaged" => Message::Damaged(rest.to_owned()),
            "different" => Message::Different(rest.to_owned()),
            "verified" => Message::Verified(rest.to_owned()),
            "finished" => Message::Finished,
            _ => return None,
        })
    }
}

/// Sends one message. Ends the process if the pipe is closed.
pub(crate) fn tell(message: &Message) {
    say(&format!("{message}\n"));
}

/// Writes a line, which is with the kernel when this returns: standard output is flushed at each
/// end of a line.
fn say(text: &str) {
    let mut output = std::io::stdout().lock();
    if output.write_all(text.as_bytes()).and_then(|()| output.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Reports the contents of a database.
pub(crate) fn tell_state(name: &str, state: &State) {
    let mut text = format!("{}\n", Message::StateBegan(name.to_owned()));
    let mut add = |message: Message| text.push_str(&format!("{message}\n"));
    for (thread, counter) in &state.counters {
        add(Message::Counter { thread: *thread, counter: counter.clone() });
    }
    state.done.iter().for_each(|number| add(Message::Done(*number)));
    for space in Space::ALL {
        for (key, fingerprint) in state.model.space(space) {
            add(Message::Entry { space, key: key.clone(), fingerprint: *fingerprint });
        }
    }
    add(Message::StateEnded);
    say(&text);
}

/// Assembles the lines of a state.
#[derive(Clone, Debug, Default)]
pub(crate) struct StateReader {
    current: Option<(String, State)>,
}

impl StateReader {
    /// Takes a line that may be part of a state; returns the state when it is complete.
    pub(crate) fn take(&mut self, message: &Message) -> Option<(String, State)> {
        match message {
            Message::StateBegan(name) => self.current = Some((name.clone(), State::default())),
            Message::StateEnded => return self.current.take(),
            _ => {}
        }
        let (_, state) = self.current.as_mut()?;
        match message {
            Message::Counter { thread, counter } => {
                state.counters.insert(*thread, counter.clone());
            }
            Message::Done(number) => {
                state.done.insert(*number);
            }
            Message::Entry { space, key, fingerprint } => {
                state.model.insert(*space, key.clone(), *fingerprint);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_written() {
        let all = [
            Message::Acked { thread: 2, number: 117, synced: true },
            Message::Began { number: 3, ingested: true },
            Message::Failed("put: no space left".into()),
            Message::Phase("checkpoint".into()),
            Message::CopyBegan { name: "copy-1".into(), seen: vec![1, 2, 3] },
            Message::CopyDone("copy-1".into()),
            Message::CopyAbsent("copy-1".into()),
            Message::StateBegan(DATABASE.into()),
            Message::Counter { thread: 1, counter: vec![9, 0, 8] },
            Message::Done(12),
            Message::Entry { space: Space::Wide, key: vec![0, 255, 10], fingerprint: u64::MAX },
            Message::StateEnded,
            Message::Count { what: "openat EIO".into(), count: 4 },
            Message::Wrong("a key was gone".into()),
            Message::Live(Live { shelf: Shelf::Small, batches: 7, position: None, index: 9, found: None }),
            Message::Live(Live {
                shelf: Shelf::Wide,
                batches: 7,
                position: Some(3),
                index: 0,
                found: Some((vec![1], vec![])),
            }),
            Message::Damaged("record 1".into()),
            Message::Different("lost".into()),
            Message::Verified("a block".into()),
            Message::Finished,
        ];
        for message in all {
            assert_eq!(Message::parse(&message.to_string()).as_ref(), Some(&message), "{message}");
        }
    }

    #[test]
    fn truncated_lines_are_no_messages() {
        for line in ["", "ack", "acked 1", "acked 1 2", "entry 1 0a", "entry 9 0a 1", "copy-began a x"] {
            assert_eq!(Message::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_state_arrives_whole_or_not_at_all() {
        let mut state = State::default();
        state.counters.insert(1, vec![4, 2, 4]);
        state.done.insert(4);
        state.model.insert(Space::Sums, b"key".to_vec(), 77);
        let lines = [
            Message::StateBegan(DATABASE.into()),
            Message::Counter { thread: 1, counter: vec![4, 2, 4] },
            Message::Done(4),
            Message::Entry { space: Space::Sums, key: b"key".to_vec(), fingerprint: 77 },
            Message::StateEnded,
        ];
        let mut reader = StateReader::default();
        assert!(lines[..4].iter().all(|line| reader.take(line).is_none()));
        assert_eq!(reader.take(&lines[4]), Some((DATABASE.to_owned(), state)));
    }
}
