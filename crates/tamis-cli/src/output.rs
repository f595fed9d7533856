//! Where all output goes. A reader that goes away (`tamis scan … | head`) ends the program quietly, so nothing
//! here or elsewhere may panic on a failed write: hence no `println!` anywhere.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

/// The standard output, buffered.
pub struct Out {
    inner: BufWriter<Stdout>,
    /// A person is watching: each line should be there when it is written.
    interactive: bool,
}

impl Out {
    /// The standard output of this process.
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

/// One line for people on the standard error; lost if nobody can read it.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
