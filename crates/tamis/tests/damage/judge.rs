//! Decides what is right: every answer is that of one state, the same for all answers of one
//! opening, and no earlier than the last sync; or it is an error, and then `verify` reports a
//! problem.

use std::fmt;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tamis::options::{OnDamage, ReadMode};
use tamis::{Db, Options, ReadError, Slice};

use crate::cases::Case;
use crate::specimen::{DIR, SECOND, Specimen, State, options, restored};

/// The outcomes of cases.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ends {
    /// The database could not be opened.
    pub(crate) refused: u64,
    /// Some read returned an error.
    pub(crate) failed: u64,
    /// Everything could be read, and was right.
    pub(crate) right: u64,
}

impl Ends {
    pub(crate) fn cases(&self) -> u64 {
        self.refused + self.failed + self.right
    }
}

impl AddAssign for Ends {
    fn add_assign(&mut self, other: Ends) {
        self.refused += other.refused;
        self.failed += other.failed;
        self.right += other.right;
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ends { refused, failed, right } = self;
        write!(f, "{} cases: {refused} refused, {failed} with errors, {right} right", self.cases())
    }
}

/// Opens read-only, which is fast, and every fourth time (and whenever the change affects more than
/// one position in a file) writable. Returns an error that describes what is wrong.
pub(crate) fn judge(specimen: &Specimen, case: &Case, number: usize) -> Result<Ends, String> {
    let judged = catch_unwind(AssertUnwindSafe(|| {
        let ends = read_only(specimen, case, number);
        if number.is_multiple_of(4) || !case.what.contains("byte") {
            writable(specimen, case, number);
        }
        ends
    }));
    judged.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        format!("{}: {text}", case.what)
    })
}

fn states<'a>(specimen: &'a Specimen, case: &Case) -> Vec<&'a State> {
    let first = if case.end_is_gone { 0 } else { specimen.synced };
    specimen.states[first..].iter().collect()
}

/// Quarantines damaged tables in every third case.
fn on_damage(number: usize) -> OnDamage {
    if number.is_multiple_of(3) { OnDamage::Quarantine } else { OnDamage::Refuse }
}

fn read_only(specimen: &Specimen, case: &Case, number: usize) -> Ends {
    let fs = restored(&case.files);
    let read_mode = if number.is_multiple_of(2) { ReadMode::Mapped } else { ReadMode::Buffered };
    let options = Options { read_mode, on_damage: on_damage(number), ..options(specimen.filter, &fs) };
    let Ok(db) = options.open_read_only(DIR) else {
        return Ends { refused: 1, ..Ends::default() };
    };
    let sound = examine(&db, states(specimen, case)).1;
    Ends { failed: u64::from(!sound), right: u64::from(sound), refused: 0 }
}

/// A database that opens takes a write, and the next opening shows it.
fn writable(specimen: &Specimen, case: &Case, number: usize) {
    let fs = restored(&case.files);
    let options = || Options { on_damage: on_damage(number / 4), ..options(specimen.filter, &fs) };
    let Ok(db) = options().open(DIR) else { return };
    // So that global filters are used.
    let _ = db.wait_for_filters();
    let (mut states, sound) = examine(&db, states(specimen, case));
    if db.put("new", "value").is_err() || db.close().is_err() {
        return;
    }
    let db = options().open(DIR).expect("a database that was opened and closed opens again");
    let mut with_new: Vec<State> = states.drain(..).cloned().collect();
    with_new.iter_mut().for_each(|state| _ = state[0].insert(b"new".to_vec(), b"value".to_vec()));
    let sound_again = examine(&db, with_new.iter().collect()).1;
    assert!(sound_again || !sound, "a sound database is not sound after a close");
}

/// Reads everything, in every way. Returns the states that agree with all answers, and whether
/// there was no error.
fn examine<'a>(db: &Db, mut states: Vec<&'a State>) -> (Vec<&'a State>, bool) {
    let mut sound = true;
    let all: Vec<Vec<u8>> = {
        let keys = (0..76).map(|i| format!("key {i:03}").into_bytes());
        keys.chain([&b""[..], b"key 0", b"none"].map(<[u8]>::to_vec)).collect()
    };
    for n in 0..2 {
        let keyspace = match n {
            0 => db.default_keyspace().clone(),
            _ => match db.keyspace(SECOND) {
                Ok(keyspace) => keyspace,
                Err(_) => {
                    states.retain(|state| state[1].is_empty());
                    continue;
                }
            },
        };
        for key in &all {
            match keyspace.get(key) {
                Ok(value) => states.retain(|state| state[n].get(key).map(|v| &v[..]) == value.as_deref()),
                Err(_) => sound = false,
            }
            assert!(!states.is_empty(), "keyspace {n}: {} is wrong", key.escape_ascii());
        }
        match keyspace.multi_get(&all) {
            Ok(values) => states.retain(|state| {
                let mut pairs = all.iter().zip(&values);
                pairs.all(|(key, value)| state[n].get(key).map(|v| &v[..]) == value.as_deref())
            }),
            Err(_) => sound = false,
        }
        assert!(!states.is_empty(), "keyspace {n}: a multi_get is wrong");
        let (pairs, whole) = scanned(keyspace.iter());
        states.retain(|state| agrees(state[n].iter(), &pairs, whole));
        assert!(!states.is_empty(), "keyspace {n}: a scan is wrong");
        let (back, whole_back) = scanned(keyspace.iter().rev());
        states.retain(|state| agrees(state[n].iter().rev(), &back, whole_back));
        assert!(!states.is_empty(), "keyspace {n}: a backward scan is wrong");
        let (range, whole_range) = scanned(keyspace.range("key 015".."key 045"));
        let bounds = b"key 015".to_vec()..b"key 045".to_vec();
        states.retain(|state| agrees(state[n].range(bounds.clone()), &range, whole_range));
        assert!(!states.is_empty(), "keyspace {n}: a range is wrong");
        sound &= whole && whole_back && whole_range;
    }
    let verified = db.verify().is_ok_and(|report| report.problems.is_empty());
    assert!(sound || !verified, "a read failed, but `verify` found nothing");
    (states, sound)
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The pairs up to the first error, and whether there was none.
fn scanned(iter: impl Iterator<Item = Result<(Slice, Slice), ReadError>>) -> (Pairs, bool) {
    let mut pairs = Pairs::new();
    for item in iter {
        match item {
            Ok((key, value)) => pairs.push((key.to_vec(), value.to_vec())),
            Err(_) => return (pairs, false),
        }
        assert!(pairs.len() < 1000, "an endless iteration");
    }
    (pairs, true)
}

fn agrees<'a>(
    mut state: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    pairs: &Pairs,
    whole: bool,
) -> bool {
    pairs.iter().all(|(key, value)| state.next() == Some((key, value))) && (!whole || state.next().is_none())
}
