//! The output of the program. A reader that closes the pipe (`tamis scan … | head`) ends the program silently, so
//! no write may panic; hence there is no `println!` anywhere.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// Buffered standard output.
pub struct Out {
    inner: BufWriter<Stdout>,
    /// Whether the output is a terminal: then each line is flushed as it is written.
    interactive: bool,
}

impl Out {
    /// Returns the standard output of this process.
    pub fn stdout() -> Out {
        let stdout = io::stdout();
        let interactive = stdout.is_terminal();
        Out { inner: BufWriter::with_capacity(64 << 10, stdout), interactive }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        if self.interactive && bytes.contains(&b'\n') {
            self.inner.flush()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Prints one line on standard error; a failed write is ignored.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
