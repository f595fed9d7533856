//! Workers: children of this process, running this program.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::wire::Message;

/// The end of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Exited(i32),
    Signal(i32),
    /// It was killed because it took too long; the text describes its threads.
    Hung(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exited(code) => write!(f, "exit code {code}"),
            Ended::Signal(signal) => write!(f, "signal {signal}"),
            Ended::Hung(threads) => write!(f, "HUNG: {threads}"),
        }
    }
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Ended {
        match status.signal() {
            Some(signal) => Ended::Signal(signal),
            None => Ended::Exited(status.code().unwrap_or(-1)),
        }
    }
}

/// The parameters of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Arguments after `worker`.
    pub(crate) args: Vec<String>,
    /// Directory for its output and its reports.
    pub(crate) logs: PathBuf,
}

impl Setup {
    pub(crate) fn new(args: impl IntoIterator<Item = impl Into<String>>, logs: &Path) -> Setup {
        Setup { args: args.into_iter().map(Into::into).collect(), logs: logs.to_owned() }
    }

    /// Returns the command that repeats it.
    pub(crate) fn command(&self) -> String {
        format!("tamis-faults worker {}", self.args.join(" "))
    }
}

/// A running worker.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    reader: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a worker. `on` receives each message, in order, on its own thread.
    pub(crate) fn start(
        setup: &Setup,
        mut on: impl FnMut(Message) + Send + 'static,
    ) -> std::io::Result<Worker> {
        std::fs::create_dir_all(&setup.logs)?;
        let words = File::options().create(true).append(true).open(setup.logs.join("worker.log"))?;
        let mut reports = File::options().create(true).append(true).open(setup.logs.join("reports.log"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .args(&setup.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(words)
            .spawn()?;
        let output = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        writeln!(reports, "# {}", setup.command())?;
        let reader = std::thread::spawn(move || {
            let mut lines = BufReader::with_capacity(256 << 10, output);
            let mut line = String::new();
            let mut kept = Vec::new();
            while let Ok(1..) = lines.read_line(&mut line) {
                // A line without an end was cut by a kill.
                let Some(whole) = line.strip_suffix('\n') else { break };
                let strange = || Message::Wrong(format!("an unknown report: {whole}"));
                let message = Message::parse(whole).unwrap_or_else(strange);
                if !matches!(message, Message::Entry { .. } | Message::Done(_)) {
                    kept.extend_from_slice(line.as_bytes());
                }
                on(message);
                line.clear();
            }
            // A full pipe would block the worker.
            let _ = lines.read_to_end(&mut Vec::new());
            let _ = reports.write_all(&kept);
        });
        Ok(Worker { child, reader: Some(reader) })
    }

    /// Sends one line to the worker.
    pub(crate) fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.child.stdin {
            // The worker may have exited.
            let _ = writeln!(input, "{line}");
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has exited and all its reports were received.
    pub(crate) fn wait(&mut self, patience: Duration) -> Ended {
        let began = Instant::now();
        let ended = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status.into(),
                Ok(None) if began.elapsed() < patience => std::thread::sleep(Duration::from_millis(1)),
                _ => {
                    let threads = threads_of(self.child.id());
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    break Ended::Hung(threads);
                }
            }
        };
        self.hear_all();
        ended
    }

    /// Kills it, and waits until all its reports were received.
    pub(crate) fn kill(&mut self) -> Ended {
        let _ = self.child.kill();
        let ended = self.child.wait().map_or(Ended::Exited(-1), Ended::from);
        self.hear_all();
        ended
    }

    fn hear_all(&mut self) {
        if let Some(reader) = self.reader.take() {
            // A panic there comes from the handler, and has been printed.
            let _ = reader.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.reader.is_some() {
            self.kill();
        }
    }
}

/// Describes the threads of a process by name and by what they wait for.
fn threads_of(process: u32) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let read = |path: PathBuf, name: &str| std::fs::read_to_string(path.join(name)).unwrap_or_default();
    let one = |path: PathBuf| {
        let call = read(path.clone(), "syscall");
        let call = call.split(' ').next().unwrap_or("?").trim().to_owned();
        format!("{} in {} (call {call})", read(path.clone(), "comm").trim(), read(path, "wchan"))
    };
    tasks.map(|task| one(task.path())).collect::<Vec<_>>().join(", ")
}

/// Runs a worker to its end and returns its messages.
pub(crate) fn collect(setup: &Setup, patience: Duration) -> std::io::Result<(Ended, Vec<Message>)> {
    let messages = Arc::new(Mutex::new(Vec::new()));
    let heard = messages.clone();
    let mut worker = Worker::start(setup, move |message| {
        heard.lock().unwrap_or_else(|e| e.into_inner()).push(message);
    })?;
    let ended = worker.wait(patience);
    let messages = std::mem::take(&mut *messages.lock().unwrap_or_else(|e| e.into_inner()));
    Ok((ended, messages))
}
