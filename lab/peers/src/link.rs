//! The conductor's end of a worker: sends requests, waits, and reports what happened to a worker that does not answer.
//!
//! A worker is stopped whenever it has nothing to do: what its engine would do in the background then, it would do while another one is
//! measured.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engines::system::System;
use crate::memory::Group;
use crate::protocol::{Answer, FailureKind, Request};

/// Maximum number of final bytes of a worker's standard error in messages.
const STDERR_TAIL: u64 = 4096;

/// The reason why a request failed. The texts name the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The engine's answer contradicts earlier puts.
    WrongAnswer(String),
    /// The request failed; the worker is unusable, and may be gone.
    Failed(String),
}

/// A worker. Dropping it kills its process.
pub(crate) struct Link {
    system: String,
    requests: Box<dyn Write>,
    /// Lines from the worker. A thread reads them, so that waiting can time out.
    answers: Receiver<io::Result<String>>,
    process: Option<Process>,
    limit: Duration,
}

struct Process {
    child: Child,
    /// Its standard error as a file, since a pipe could fill up.
    stderr: File,
    /// The limit of its memory, if it has one. Dropped after the process has ended.
    group: Option<Group>,
}

impl Link {
    /// Starts a program as the worker of `system`. A request that takes longer than `limit` kills it.
    pub(crate) fn spawn(program: &Path, system: &System, limit: Duration) -> io::Result<Link> {
        let mut command = Command::new(program);
        command.args(["worker", "--system", system.name()]);
        Link::of_command(command, system.name(), limit)
    }

    /// Starts a program that speaks the protocol.
    pub(crate) fn of_command(mut command: Command, system: &str, limit: Duration) -> io::Result<Link> {
        let stderr = tempfile::tempfile()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr.try_clone()?);
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a worker has no pipes"));
        };
        let mut link = Link::over(output, input, system, limit);
        link.process = Some(Process { child, stderr, group: None });
        Ok(link)
    }

    /// Connects to a worker over two pipes.
    pub(crate) fn over(
        answers: impl Read + Send + 'static,
        requests: impl Write + 'static,
        system: &str,
        limit: Duration,
    ) -> Link {
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines() {
                // The link is gone, and with it all interested parties.
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let requests = Box::new(requests);
        Link { system: system.to_owned(), requests, answers: receive, process: None, limit }
    }

    /// Limits the memory of its process from now on. Workers that are no processes have no limit.
    pub(crate) fn confine(&mut self, bytes: u64) -> io::Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let group = process.group.insert(Group::new(bytes)?);
        group.add(process.child.id())
    }

    /// Sends a request and waits for its answer, which is not [`Answer::Failed`].
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer, Trouble> {
        match self.exchange(request)? {
            Answer::Failed { kind: FailureKind::WrongAnswer, text } => {
                Err(Trouble::WrongAnswer(format!("{}: {text}", self.system)))
            }
            Answer::Failed { text, .. } => Err(self.failed(text)),
            answer => Ok(answer),
        }
    }

    /// Sends a request of any protocol of lines of JSON, and waits for its answer.
    pub(crate) fn exchange<Q: Serialize, A: DeserializeOwned>(&mut self, request: &Q) -> Result<A, Trouble> {
        let mut line = serde_json::to_string(request).map_err(|error| self.failed(error.to_string()))?;
        line.push('\n');
        self.signal(Signal::CONT);
        let sent = self.requests.write_all(line.as_bytes()).and_then(|()| self.requests.flush());
        if sent.is_err() {
            return Err(self.gone());
        }
        let line = match self.answers.recv_timeout(self.limit) {
            Ok(Ok(line)) => line,
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                return Err(
                    self.failed(format!("took longer than {} s and was killed", self.limit.as_secs()))
                );
            }
        };
        self.signal(Signal::STOP);
        serde_json::from_str(&line)
            .map_err(|error| self.failed(format!("its worker does not speak the protocol: {error}: {line}")))
    }

    /// Stops the process, or lets it continue. It may have ended, which the next request finds out.
    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            let _ = kill_process(Pid::from_child(&process.child), signal);
        }
    }

    /// Lets it close its database and exit; returns its standard error, if not empty.
    pub(crate) fn quit(mut self) -> Result<Option<String>, Trouble> {
        self.ask(&Request::Quit)?;
        self.signal(Signal::CONT);
        let Some(mut process) = self.process.take() else { return Ok(None) };
        let status = process.child.wait().map_err(|error| self.failed(error.to_string()))?;
        let said = process.said();
        match status.success() {
            true => Ok((!said.is_empty()).then_some(said)),
            false => Err(self.died(status, &process, &said)),
        }
    }

    fn failed(&self, text: impl AsRef<str>) -> Trouble {
        Trouble::Failed(format!("{}: {}", self.system, text.as_ref()))
    }

    /// Describes the end of a worker that closed its pipes.
    fn gone(&mut self) -> Trouble {
        let Some(mut process) = self.process.take() else { return self.failed("its worker is gone") };
        match process.child.wait() {
            Ok(status) => {
                let said = process.said();
                self.died(status, &process, &said)
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn died(&self, status: ExitStatus, process: &Process, said: &str) -> Trouble {
        if process.group.as_ref().is_some_and(|group| group.kills() > 0) {
            return self.failed("its worker was killed: it needs more memory than the limit");
        }
        let said = if said.is_empty() {
            "without any message".to_owned()
        } else {
            format!("with the message:\n{said}")
        };
        self.failed(format!("its worker died ({status}) {said}"))
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Fails only if it has already exited.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// Returns the end of its standard error.
    fn said(&mut self) -> String {
        let mut bytes = Vec::new();
        let length = self.stderr.metadata().map_or(0, |metadata| metadata.len());
        let from = SeekFrom::Start(length.saturating_sub(STDERR_TAIL));
        // An unreadable message is omitted; the death is reported anyway.
        let _ = self.stderr.seek(from).and_then(|_| self.stderr.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str, limit: Duration) -> Link {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        Link::of_command(command, "shell", limit).unwrap()
    }

    const LONG: Duration = Duration::from_secs(60);

    fn text_of(trouble: Trouble) -> String {
        match trouble {
            Trouble::Failed(text) => text,
            Trouble::WrongAnswer(text) => panic!("{text}"),
        }
    }

    #[test]
    fn a_dead_worker_is_reported_with_its_last_message() {
        let mut link = script("read request; echo 'out of luck' >&2; exit 7", LONG);
        let text = text_of(link.ask(&Request::Settle).unwrap_err());
        assert!(["shell: ", "7", "out of luck"].iter().all(|part| text.contains(part)), "{text}");
        let again = text_of(link.ask(&Request::Settle).unwrap_err());
        assert!(again.contains("gone"), "{again}");
        let mut killed = script("read request; kill -9 $$", LONG);
        let text = text_of(killed.ask(&Request::Settle).unwrap_err());
        assert!(text.contains("signal") && text.contains("without any message"), "{text}");
        let good = script(r#"read request; echo '{"answer":"done"}'; exit 3"#, LONG);
        assert!(text_of(good.quit().unwrap_err()).contains("3"));
    }

    #[test]
    fn only_the_end_of_a_long_message_is_reported() {
        let mut link =
            script("read request; yes 0123456789 | head -n 10000 >&2; echo last >&2; exit 1", LONG);
        let text = text_of(link.ask(&Request::Settle).unwrap_err());
        assert!(text.ends_with("last") && text.len() < 5000, "{}", text.len());
    }

    #[test]
    fn a_hanging_worker_is_killed() {
        let mut link = script("read request; exec sleep 600", Duration::from_millis(50));
        let text = text_of(link.ask(&Request::Settle).unwrap_err());
        assert!(text.contains("longer than"), "{text}");
    }

    #[test]
    fn a_worker_without_a_request_does_nothing() {
        let done = r#"{"answer":"done"}"#;
        let mut link = script(&format!("read request; echo '{done}'; read request; echo '{done}'"), LONG);
        assert_eq!(link.ask(&Request::Settle), Ok(Answer::Done));
        let state = || {
            let pid = link.process.as_ref().unwrap().child.id();
            let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            text.rsplit_once(") ").unwrap().1.chars().next().unwrap()
        };
        let stopped = (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            state() == 'T'
        });
        assert!(stopped, "state {}", state());
        assert_eq!(link.quit(), Ok(None));
    }

    #[test]
    fn wrong_answers_and_nonsense_name_the_system() {
        let wrong = r#"{"answer":"failed","kind":"wrong-answer","text":"key 07"}"#;
        let mut link = script(&format!("read request; echo '{wrong}'; read request; echo hello"), LONG);
        let expected = Trouble::WrongAnswer("shell: key 07".into());
        assert_eq!(link.ask(&Request::Settle), Err(expected));
        let text = text_of(link.ask(&Request::Settle).unwrap_err());
        assert!(text.contains("protocol") && text.contains("hello"), "{text}");
    }

    #[test]
    fn messages_of_a_good_worker_are_reported_at_the_end() {
        let link = script(r#"read request; echo beware >&2; echo '{"answer":"done"}'"#, LONG);
        assert_eq!(link.quit(), Ok(Some("beware".into())));
        assert_eq!(script(r#"read request; echo '{"answer":"done"}'"#, LONG).quit(), Ok(None));
    }
}
