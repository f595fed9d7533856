//! As much HTTP as a scraper needs: `GET` and `HEAD` of a path, one request for each connection.
//!
//! One thread waits for all connections at once, so one that says nothing costs a slot of a table
//! and nobody's time. The limits are the point, and the servers that are small enough to be a
//! dependency here have none (`tiny_http` gives each connection a thread for as long as it stays):
//! a request's head has a size and a time to arrive in, an answer has a time to be taken in, and
//! when all slots are taken the oldest connection makes room. Nothing of a request is kept, and its
//! body, if it has one, is not read.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

/// The most bytes of a request's line and headers.
const MOST_HEAD: usize = 8 << 10;

/// How long a request may take to arrive, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a client has to close its side once it was answered. Closing ours while bytes of it are
/// unread would take the answer back.
const FAREWELL: Duration = Duration::from_secs(1);

/// The most connections at a time.
const MOST_CONNECTIONS: usize = 256;

/// The pause after a failed accept: too many open files, say.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: u16,
    content: &'static str,
    /// More lines of the head, each with its end.
    head: String,
    body: String,
}

/// A page loads nothing, and asks nobody but this server.
const PAGE_HEAD: &str = "Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; \
                         style-src 'unsafe-inline'; connect-src 'self'\r\nX-Content-Type-Options: nosniff\r\n";

impl Answer {
    pub(crate) fn text(status: u16, body: &str) -> Answer {
        let head = String::new();
        Answer { status, content: "text/plain; charset=utf-8", head, body: body.to_owned() }
    }

    /// Metrics that are so old.
    pub(crate) fn metrics(body: String, age: Duration) -> Answer {
        let head = format!("Age: {}\r\n", age.as_secs());
        Answer { status: 200, content: "text/plain; version=0.0.4; charset=utf-8", head, body }
    }

    /// A page that is in one piece.
    pub(crate) fn html(body: &str) -> Answer {
        let head = PAGE_HEAD.to_owned();
        Answer { status: 200, content: "text/html; charset=utf-8", head, body: body.to_owned() }
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    fn bytes(&self, with_body: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            _ => "Service Unavailable",
        };
        let Answer { status, content, head, body } = self;
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{allow}{head}Connection: close\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), if with_body { body.as_bytes() } else { b"" }].concat()
    }
}

/// Serves until the listener fails. `answer` is called on this thread: while it runs, the others
/// wait.
pub(crate) fn serve(
    listener: std::net::TcpListener,
    answer: &mut dyn FnMut(&str) -> Answer,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut server =
        Server { listener: TcpListener::from_std(listener), poll: Poll::new()?, slots: Vec::new() };
    server.poll.registry().register(&mut server.listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(MOST_CONNECTIONS + 1);
    let mut accepts_at = None;
    loop {
        let wakes =
            server.slots.iter().flatten().map(|connection| connection.deadline).chain(accepts_at).min();
        let timeout = wakes.map(|at| at.saturating_duration_since(Instant::now()));
        match server.poll.poll(&mut events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            if event.token() != LISTENER {
                server.proceed(event.token().0, answer);
            }
        }
        server.give_up(Instant::now(), answer);
        // Also without an event: one is given for what is new, and a failed accept may have left
        // some that are not.
        accepts_at = server.accept(answer)?;
    }
}

/// The token of the listener; those of connections are their slots.
const LISTENER: Token = Token(usize::MAX);

struct Server {
    listener: TcpListener,
    poll: Poll,
    slots: Vec<Option<Connection>>,
}

struct Connection {
    stream: TcpStream,
    state: State,
    deadline: Instant,
}

enum State {
    /// What has arrived of the request's head.
    Reading(Vec<u8>),
    /// The answer, and how much of it was taken.
    Writing(Vec<u8>, usize),
    /// All was said.
    Closing,
}

impl Server {
    /// Accepts all that wait. Returns when to try again, if it failed.
    fn accept(&mut self, answer: &mut dyn FnMut(&str) -> Answer) -> io::Result<Option<Instant>> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::InvalidInput => return Err(error),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Ok(Some(Instant::now() + PAUSE)),
                },
            };
            let slot = self.free_slot();
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(slot), interest).is_err() {
                continue;
            }
            let deadline = Instant::now() + PATIENCE;
            self.slots[slot] = Some(Connection { stream, state: State::Reading(Vec::new()), deadline });
            self.proceed(slot, answer);
        }
    }

    /// Returns the number of a free slot; if there is none, of that of the connection that has had
    /// the most time.
    fn free_slot(&mut self) -> usize {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| match self.slots.len() {
            count if count < MOST_CONNECTIONS => {
                self.slots.push(None);
                count
            }
            count => (0..count)
                .min_by_key(|&slot| self.slots[slot].as_ref().map(|connection| connection.deadline))
                .unwrap_or(0),
        });
        self.slots[slot] = None;
        slot
    }

    /// Does what can be done for a connection without waiting.
    fn proceed(&mut self, slot: usize, answer: &mut dyn FnMut(&str) -> Answer) {
        // An event may be that of the slot's former connection: then nothing is ready.
        let Some(connection) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        match connection.proceed(answer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // It is done, or has gone away, which is its own concern.
            _ => self.slots[slot] = None,
        }
    }

    /// Ends the connections that have taken too long.
    fn give_up(&mut self, now: Instant, answer: &mut dyn FnMut(&str) -> Answer) {
        for slot in 0..self.slots.len() {
            let Some(connection) = self.slots[slot].as_mut().filter(|connection| connection.deadline <= now)
            else {
                continue;
            };
            match connection.state {
                State::Reading(_) => {
                    connection.say(&Answer::text(408, "the request did not arrive in time\n"), true);
                    self.proceed(slot, answer);
                }
                State::Writing(..) | State::Closing => self.slots[slot] = None,
            }
        }
    }
}

impl Connection {
    /// Goes on until it would have to wait, which is an error of that kind.
    fn proceed(&mut self, answer: &mut dyn FnMut(&str) -> Answer) -> io::Result<()> {
        loop {
            match &mut self.state {
                State::Reading(head) => {
                    let mut piece = [0; 1024];
                    let count = retried(|| self.stream.read(&mut piece))?;
                    head.extend_from_slice(&piece[..count]);
                    let end = head.windows(4).position(|four| four == b"\r\n\r\n");
                    let (said, with_body) = match end {
                        Some(end) => respond(&head[..end], answer),
                        None if count == 0 => (Answer::text(400, "the request is not whole\n"), true),
                        None if head.len() > MOST_HEAD => {
                            (Answer::text(431, "the request's head is too large\n"), true)
                        }
                        None => continue,
                    };
                    self.say(&said, with_body);
                }
                State::Writing(bytes, at) => {
                    while *at < bytes.len() {
                        match retried(|| self.stream.write(&bytes[*at..]))? {
                            0 => return Err(io::ErrorKind::WriteZero.into()),
                            count => *at += count,
                        }
                    }
                    self.stream.shutdown(Shutdown::Write)?;
                    (self.state, self.deadline) = (State::Closing, Instant::now() + FAREWELL);
                }
                State::Closing => {
                    let mut piece = [0; 1024];
                    if retried(|| self.stream.read(&mut piece))? == 0 {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn say(&mut self, answer: &Answer, with_body: bool) {
        (self.state, self.deadline) = (State::Writing(answer.bytes(with_body), 0), Instant::now() + PATIENCE);
    }
}

/// Repeats a call that a signal has interrupted.
fn retried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns the answer to a request, and whether its body is wanted.
fn respond(head: &[u8], answer: &mut dyn FnMut(&str) -> Answer) -> (Answer, bool) {
    let bad = || (Answer::text(400, "this is no request of HTTP/1\n"), true);
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return bad() };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return bad();
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return bad();
    }
    match method {
        "GET" | "HEAD" => {
            let path = target.split('?').next().unwrap_or_default();
            // A panic is no concern of the others.
            let answered = catch_unwind(AssertUnwindSafe(|| answer(path)));
            let failed = |_| Answer::text(500, "this program has failed here\n");
            (answered.unwrap_or_else(failed), method == "GET")
        }
        _ => (Answer::text(405, "only GET and HEAD\n"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> u16 {
        let mut answer = |path: &str| Answer::text(if path == "/metrics" { 200 } else { 404 }, path);
        respond(request, &mut answer).0.status
    }

    #[test]
    fn only_whole_requests_of_http_1_are_answered() {
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: x"), 200);
        assert_eq!(status(b"GET /metrics?name=x HTTP/1.0"), 200);
        assert_eq!(status(b"HEAD /metrics HTTP/1.1"), 200);
        assert_eq!(status(b"GET /etc/passwd HTTP/1.1"), 404);
        assert_eq!(status(b"GET /metrics/../x HTTP/1.1"), 404);
        assert_eq!(status(b"POST /metrics HTTP/1.1"), 405);
        let bad: [&[u8]; 8] = [
            b"",
            b"GET",
            b"GET /metrics",
            b"GET /metrics HTTP/2",
            b"GET http://x/ HTTP/1.1",
            b"GET  /metrics HTTP/1.1",
            b"GET /metrics HTTP/1.1 x",
            b"\xff\xfe / HTTP/1.1",
        ];
        for request in bad {
            assert_eq!(status(request), 400, "{request:?}");
        }
    }

    use std::net::{SocketAddr, TcpStream};

    fn served(mut answer: impl FnMut(&str) -> Answer + Send + 'static) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(listener, &mut answer));
        address
    }

    fn ask(address: SocketAddr, request: &[u8], ends: bool) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        if ends {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Over a socket: requests that never end or are too large, and connections that are closed at
    /// once, leave the others served.
    #[test]
    fn hostile_connections_are_refused_and_others_served() {
        let address = served(|_| Answer::text(200, "fine\n"));
        let ask = |request: &[u8], ends| ask(address, request, ends);
        let mut silent = TcpStream::connect(address).unwrap();
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n", false).ends_with("\r\n\r\nfine\n"));
        assert!(ask(b"HEAD / HTTP/1.1\r\n\r\n", false).ends_with("\r\n\r\n"));
        assert!(ask(b"GET / HT", true).starts_with("HTTP/1.1 400 "));
        assert!(ask(b"\x16\x03\x01\x02\x00\x01\x00", true).starts_with("HTTP/1.1 400 "));
        drop(TcpStream::connect(address).unwrap());
        let mut large = b"GET / HTTP/1.1\r\n".to_vec();
        large.resize(4 * MOST_HEAD, b'x');
        assert!(
            ask(&large, false).starts_with("HTTP/1.1 431 "),
            "and what it has sent more does not take that back"
        );
        // And the one that only connects is given up.
        let mut answer = String::new();
        silent.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }

    /// Each of eight threads waited five seconds for whoever had connected: 137 connections that
    /// said nothing kept `/metrics` from being read for half a minute. Here all of them stay until
    /// the request behind them was answered.
    #[test]
    fn connections_that_say_nothing_keep_nobody_waiting() {
        let address = served(|_| Answer::text(200, "fine\n"));
        let idle: Vec<TcpStream> = (0..137).map(|_| TcpStream::connect(address).unwrap()).collect();
        let begun = Instant::now();
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n", false).ends_with("fine\n"));
        // Not how fast: that no idle connection was given up for it.
        let patience_was_enough = begun.elapsed() < PATIENCE;
        for mut stream in idle.into_iter().filter(|_| patience_was_enough) {
            stream.set_nonblocking(true).unwrap();
            let waits = stream.read(&mut [0]).map_err(|error| error.kind());
            assert_eq!(waits, Err(io::ErrorKind::WouldBlock));
        }
        // More than there are slots: the oldest make room.
        let many: Vec<_> = (0..MOST_CONNECTIONS + 50).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n", false).ends_with("fine\n"));
        drop(many);
    }

    #[test]
    fn a_panic_is_an_answer_and_the_end_of_nothing() {
        let address =
            served(
                |path| {
                    if path == "/panic" { panic!("as the test wants") } else { Answer::text(200, "fine\n") }
                },
            );
        assert!(ask(address, b"GET /panic HTTP/1.1\r\n\r\n", false).starts_with("HTTP/1.1 500 "));
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n", false).ends_with("fine\n"));
    }

    /// It has to be written in many pieces, while others are answered.
    #[test]
    fn a_large_answer_waits_for_its_reader_alone() {
        let body = "x".repeat(32 << 20);
        let address = served(move |path| Answer::text(200, if path == "/large" { &body } else { "fine\n" }));
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(b"GET /large HTTP/1.1\r\n\r\n").unwrap();
        let mut first = [0; 15];
        slow.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200 OK");
        assert!(ask(address, b"GET / HTTP/1.1\r\n\r\n", false).ends_with("fine\n"));
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > 32 << 20 && rest.ends_with(b"xx"));
    }
}
