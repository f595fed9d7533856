//! The protocol under every interleaving and every value that the memory model lets a load return.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis --lib gaps::model
//! ```
//! One key, which a writer gives a value while readers look for it and learn that it has none. The
//! steps of the writer are in the order of [`commit`](crate::write::commit): the number under the
//! log's lock, the gaps, the insertion, the visible number. Those of a reader: the visible number,
//! the key, the gaps. The claim: no reader jumps over a value that it must see. Each [`Mistake`]
//! must be found to break it.

use loom::sync::Mutex;
use loom::thread;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// The writer tells of the key after its number is visible.
    TellLast,
    /// The writer tells of the key before it has a number.
    TellFirst,
    /// Who learns takes the last number without the lock under which numbers are assigned.
    Unheld,
    /// Who learns takes what is visible for the last number.
    Visible,
}

#[derive(Debug)]
struct Log {
    mistake: Mistake,
    last: Mutex<u64>,
    unheld: AtomicU64,
    visible: AtomicU64,
}

impl LastNumber for Log {
    fn held(&self, then: &mut dyn FnMut(SeqNo)) -> bool {
        match self.mistake {
            Mistake::Unheld => then(self.unheld.load(Ordering::Acquire)),
            Mistake::Visible => then(self.visible.load(Ordering::Acquire)),
            _ => {
                let Ok(last) = self.last.try_lock() else { return false };
                then(*last);
            }
        }
        true
    }
}

struct Db {
    log: Arc<Log>,
    gaps: Gaps,
    /// The number of the value; 0: none.
    value: AtomicU64,
}

const KEY: &[u8] = b"k";

impl Db {
    fn put(&self) {
        let tell = || self.gaps.written([KEY].into_iter());
        let mistake = self.log.mistake;
        if mistake == Mistake::TellFirst {
            tell();
        }
        let seq = {
            let mut last = self.log.last.lock().unwrap();
            *last += 1;
            self.log.unheld.store(*last, Ordering::Release);
            *last
        };
        if !matches!(mistake, Mistake::TellFirst | Mistake::TellLast) {
            tell();
        }
        self.value.store(seq, Ordering::Release);
        self.log.visible.store(seq, Ordering::SeqCst);
        if mistake == Mistake::TellLast {
            tell();
        }
    }

    fn read(&self) {
        let seq = self.log.visible.load(Ordering::Acquire);
        let is_live = |at: u64| at > 0 && at <= seq;
        if !self.gaps.is_empty() && self.gaps.jump(KEY, seq).is_some() {
            assert!(!is_live(self.value.load(Ordering::Acquire)), "a reader jumps over a value");
        } else if !is_live(self.value.load(Ordering::Acquire)) {
            self.gaps.learn(b"a", Some(b"z"), seq, 1);
        }
    }
}

fn check(mistake: Mistake) {
    loom::model(move || {
        let log = Log { mistake, last: Mutex::new(0), unheld: AtomicU64::new(0), visible: AtomicU64::new(0) };
        let log = Arc::new(log);
        let numbers = Numbering::new();
        numbers.set(Arc::<Log>::downgrade(&log)).expect("set once");
        let db =
            loom::sync::Arc::new(Db { log, gaps: Gaps::new(Arc::new(numbers)), value: AtomicU64::new(0) });
        let writer = thread::spawn({
            let db = db.clone();
            move || db.put()
        });
        db.read();
        db.read();
        writer.join().unwrap();
        db.read();
        db.read();
    });
}

#[test]
fn no_reader_jumps_over_a_value() {
    check(Mistake::None);
}

#[test]
#[should_panic(expected = "a reader jumps over a value")]
fn telling_after_the_number_is_visible_is_found() {
    check(Mistake::TellLast);
}

#[test]
#[should_panic(expected = "a reader jumps over a value")]
fn telling_before_there_is_a_number_is_found() {
    check(Mistake::TellFirst);
}

#[test]
#[should_panic(expected = "a reader jumps over a value")]
fn a_last_number_without_the_lock_is_found() {
    check(Mistake::Unheld);
}

#[test]
#[should_panic(expected = "a reader jumps over a value")]
fn the_visible_number_in_place_of_the_last_is_found() {
    check(Mistake::Visible);
}
