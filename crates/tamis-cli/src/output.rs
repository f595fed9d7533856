//! The output of the program. A reader that closes the pipe (`tamis scan … | head`) ends the
//! program silently, so no write may panic; hence there is no `println!` anywhere.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use console::Term;
use serde_json::Value;
use tamis_show::text::{folded, harmless};

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

    /// Reports whether a person reads this on a terminal.
    pub fn is_terminal(&self) -> bool {
        self.interactive
    }

    /// Returns the number of columns of the terminal; there is no limit elsewhere.
    pub fn width(&self) -> usize {
        match self.interactive {
            true => usize::from(Term::stdout().size().1).max(20),
            false => usize::MAX,
        }
    }

    /// Writes a page for people: nothing in it reaches the terminal as a command, and lines that
    /// are too long for it go on below, indented by `indent`.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn page(&mut self, text: &str, indent: usize) -> io::Result<()> {
        self.write_all(folded(&harmless(text), self.width(), indent).as_bytes())
    }

    /// Writes a line with one JSON value. Characters that do not show are escaped.
    ///
    /// # Errors
    ///
    /// If the output fails.
    pub fn json(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self, "{}", crate::json::line(value))
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

/// Prints one line on standard error; a failed write is ignored. It may quote what it likes: that
/// is shown, never obeyed by the terminal.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", harmless(text));
}
