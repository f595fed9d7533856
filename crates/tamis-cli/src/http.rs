//! As much HTTP as a scraper needs: `GET` and `HEAD` of a path, one request for each connection.
//!
//! The limits are the point, and the servers that are small enough to be a dependency here have none: a request's head has a size and a
//! time to arrive in, an answer has a time to be taken in, and connections are as many as there are threads. Whoever holds all of them holds them
//! for that time. Nothing of a request is kept, and its body, if it has one, is not read.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The most bytes of a request's line and headers.
const MOST_HEAD: usize = 8 << 10;

/// How long a request may take to arrive, and its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections served at a time.
const THREADS: usize = 8;

/// An answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: u16,
    content: &'static str,
    body: String,
}

impl Answer {
    pub(crate) fn text(status: u16, body: &str) -> Answer {
        Answer { status, content: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    pub(crate) fn metrics(body: String) -> Answer {
        Answer { status: 200, content: "text/plain; version=0.0.4; charset=utf-8", body }
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
            _ => "Service Unavailable",
        };
        let Answer { status, content, body } = self;
        let allow = if *status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: {content}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), if with_body { body.as_bytes() } else { b"" }].concat()
    }
}

/// Serves until the listener fails.
pub(crate) fn serve(listener: &TcpListener, answer: &(dyn Fn(&str) -> Answer + Sync)) -> io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| accept(listener, answer))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that serves panicked")))
        })
    })
}

fn accept(listener: &TcpListener, answer: &(dyn Fn(&str) -> Answer + Sync)) -> io::Result<()> {
    loop {
        match listener.accept() {
            // A client that goes away, or takes too long, is its own concern.
            Ok((stream, _)) => {
                // Nor is a panic that of the others.
                let conversed = catch_unwind(AssertUnwindSafe(|| converse(stream, answer)));
                drop(conversed);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
            // Too many open files, say: for a while.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn converse(mut stream: TcpStream, answer: &dyn Fn(&str) -> Answer) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let (answer, with_body) = match head(&mut stream, deadline)? {
        Ok(head) => respond(&head, answer),
        Err(refusal) => (refusal, true),
    };
    write(&mut stream, &answer.bytes(with_body), Instant::now() + PATIENCE)?;
    stream.shutdown(std::net::Shutdown::Write)
}

/// Reads a request up to the empty line behind its headers.
fn head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Result<Vec<u8>, Answer>> {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(Answer::text(408, "the request did not arrive in time\n")));
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(Err(Answer::text(400, "the request is not whole\n"))),
            Ok(count) => head.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(Ok(head));
        }
        if head.len() > MOST_HEAD {
            return Ok(Err(Answer::text(431, "the request's head is too large\n")));
        }
    }
}

/// Returns the answer to a request, and whether its body is wanted.
fn respond(head: &[u8], answer: &dyn Fn(&str) -> Answer) -> (Answer, bool) {
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
        "GET" | "HEAD" => (answer(target.split('?').next().unwrap_or_default()), method == "GET"),
        _ => (Answer::text(405, "only GET and HEAD\n"), true),
    }
}

fn write(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &[u8]) -> u16 {
        respond(request, &|path| Answer::text(if path == "/metrics" { 200 } else { 404 }, path)).0.status
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

    /// Over a socket: requests that never end or are too large, and connections that are closed at once, leave the others served.
    #[test]
    fn hostile_connections_are_refused_and_others_served() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener, &|_| Answer::text(200, "fine\n")));
        let ask = |request: &[u8], ends: bool| {
            let mut stream = TcpStream::connect(address).unwrap();
            // The server may have answered and gone before it has read all.
            let _ = stream.write_all(request);
            if ends {
                let _ = stream.shutdown(std::net::Shutdown::Write);
            }
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        };
        let held: Vec<TcpStream> = (0..THREADS - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(b"GET / HTTP/1.1\r\n\r\n", false).ends_with("\r\n\r\nfine\n"));
        assert!(ask(b"HEAD / HTTP/1.1\r\n\r\n", false).ends_with("\r\n\r\n"));
        assert!(ask(b"GET / HT", true).starts_with("HTTP/1.1 400 "));
        assert!(ask(b"\x16\x03\x01\x02\x00\x01\x00", true).starts_with("HTTP/1.1 400 "));
        drop(TcpStream::connect(address).unwrap());
        let mut large = b"GET / HTTP/1.1\r\n".to_vec();
        large.resize(MOST_HEAD + 1, b'x');
        assert!(ask(&large, false).starts_with("HTTP/1.1 431 "));
        assert!(ask(b"GET /metrics HTTP/1.1\r\n\r\n", false).ends_with("fine\n"));
        // And after those that only connect have been given up.
        for mut silent in held {
            let mut answer = String::new();
            silent.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
    }
}
