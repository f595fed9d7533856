//! `tamis top`: what a database does, live.

mod frame;

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use console::{Key, Term};

use crate::failure::{Failure, Outcome};
use crate::output::Out;
use crate::watch::{Samples, Watch, WatchArgs};
use frame::{Frame, Reading};

/// Watch a database: rates, latencies, stalls, levels, memory
#[derive(Args)]
#[command(
    after_help = "Shows what the process that writes publishes (`--publish`); without that, the tree as a\n\
                  follower sees it. Rates are those between two readings, latencies those since the\n\
                  opening. In a terminal q quits; elsewhere it prints a page every interval.\n\nExample:\n  \
                  tamis top --db ./tamis-demo"
)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    watch: WatchArgs,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one page and end; with rates if the writer publishes, after two readings
    #[arg(long)]
    once: bool,
    /// Print one JSON object per reading instead of a page: every metric, and what counters grew by
    /// in a second since the reading before
    #[arg(long)]
    json: bool,
}

/// The size of a page where there is no terminal.
const PAGE: (usize, usize) = (200, 1000);

pub(crate) fn run(args: &TopArgs, out: &mut Out) -> Result<Outcome, Failure> {
    let db = args.watch.db();
    let name = db.db.display().to_string();
    let mut watched = Watched { name, watch: Watch::others(db), before: None };
    let interval = Duration::from_secs(args.interval);
    let first = watched.read()?;
    if args.once {
        let mut reading = first;
        // Until the writer has published again.
        let patience =
            reading.interval().map_or(0, |published| (published.clamp(1.0, 3600.0) * 4.0) as u64 + 1);
        for _ in 0..patience * 4 {
            if reading.has_rates() {
                break;
            }
            std::thread::sleep(Duration::from_millis(250));
            reading = watched.read()?;
        }
        return args.print(out, &reading).map(|()| Outcome::Done);
    }
    let terminal = Term::stdout();
    if !args.json && terminal.is_term() && std::io::stdin().is_terminal() {
        live(&terminal, &mut watched, first, interval)?;
        return Ok(Outcome::Done);
    }
    let mut reading = first;
    loop {
        args.print(out, &reading)?;
        if !args.json {
            writeln!(out)?;
        }
        out.flush()?;
        std::thread::sleep(interval);
        reading = watched.read()?;
    }
}

/// A database, and the last readings that differ.
struct Watched {
    name: String,
    watch: Watch,
    before: Option<Samples>,
}

impl Watched {
    fn read(&mut self) -> Result<Reading, Failure> {
        let (text, origin) = self.watch.read()?;
        let now = Samples::parse(&text);
        let reading = Reading::new(&self.name, origin, now, self.before.as_ref());
        if reading.is_newer() {
            self.before = Some(reading.now().clone());
        }
        Ok(reading)
    }
}

impl TopArgs {
    fn print(&self, out: &mut Out, reading: &Reading) -> Result<(), Failure> {
        if self.json {
            return Ok(out.json(&reading.to_json())?);
        }
        for line in Frame::of(reading).lines(out.width().min(PAGE.0), PAGE.1) {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Draws until a key says to quit. A failed reading is shown and tried again: only the keys end
/// this, so that the terminal is left as it was.
fn live(terminal: &Term, watched: &mut Watched, first: Reading, interval: Duration) -> Result<(), Failure> {
    let (sender, keys) = channel();
    let input = terminal.clone();
    std::thread::spawn(move || {
        while let Ok(key) = input.read_key() {
            let quits = matches!(key, Key::Char('q' | 'Q') | Key::Escape);
            if sender.send(quits).is_err() || quits {
                return;
            }
        }
    });
    terminal.clear_screen()?;
    let mut frame = Frame::of(&first);
    loop {
        let (height, width) = terminal.size();
        terminal.move_cursor_to(0, 0)?;
        let lines = frame.lines(width.into(), usize::from(height).saturating_sub(1));
        terminal.write_str(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        terminal.clear_to_end_of_screen()?;
        match keys.recv_timeout(interval) {
            Ok(true) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Ok(false) | Err(RecvTimeoutError::Timeout) => {}
        }
        frame = match watched.read() {
            Ok(reading) => Frame::of(&reading),
            Err(failure) => Frame::failed(&watched.name, &failure.to_string()),
        };
    }
}
