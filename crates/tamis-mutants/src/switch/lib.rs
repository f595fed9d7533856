//! The switch of mutants: every mutated crate of the copy depends on this one.
//!
//! `TAMIS_MUTANT` is the number of the mutant that is on in this process. Without it, none is.
//! `TAMIS_MUTANT_COVER` names a file of two bit maps of equal length: which mutants the process
//! reached, and which of them made a difference there. It is mapped, so nothing is lost when the
//! process is killed, and several processes can share it.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};

/// The environment was not read yet.
const UNKNOWN: u32 = u32::MAX;
/// No mutant is on; what is reached is recorded.
const COVER: u32 = u32::MAX - 1;

/// The number of the mutant that is on, 0 for none.
static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static MAPS: OnceLock<Option<&'static [AtomicU8]>> = OnceLock::new();

/// Reports whether the mutant is on.
#[inline(always)]
pub fn on(mutant: u32) -> bool {
    let active = ACTIVE.load(Relaxed);
    if active < COVER { active == mutant } else { first(mutant) }
}

/// Reports whether the caller should compute what the mutant would say, and call [`seen`].
#[inline(always)]
pub fn probe(mutant: u32) -> bool {
    let active = ACTIVE.load(Relaxed);
    if active < COVER { active == mutant } else { first_probe(mutant) }
}

/// Chooses between what the source and what the mutant says.
#[cold]
pub fn seen(mutant: u32, original: bool, mutated: bool) -> bool {
    if ACTIVE.load(Relaxed) == mutant {
        return mutated;
    }
    mark(mutant, original != mutated);
    original
}

#[cold]
fn first(mutant: u32) -> bool {
    match settle() {
        COVER => {
            mark(mutant, true);
            false
        }
        active => active == mutant,
    }
}

#[cold]
fn first_probe(mutant: u32) -> bool {
    let active = settle();
    active == COVER || active == mutant
}

/// Reads the environment, once.
fn settle() -> u32 {
    let active = ACTIVE.load(Relaxed);
    if active != UNKNOWN {
        return active;
    }
    let active = if std::env::var_os("TAMIS_MUTANT_COVER").is_some() {
        COVER
    } else {
        std::env::var("TAMIS_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    ACTIVE.store(active, Relaxed);
    active
}

fn mark(mutant: u32, differs: bool) {
    let Some(maps) = *MAPS.get_or_init(map) else { return };
    let (byte, bit) = (mutant as usize / 8, 1 << (mutant % 8));
    for at in [Some(byte), differs.then_some(maps.len() / 2 + byte)].into_iter().flatten() {
        // Most are marked already; the line is not written again then.
        if maps[at].load(Relaxed) & bit == 0 {
            maps[at].fetch_or(bit, Relaxed);
        }
    }
}

fn map() -> Option<&'static [AtomicU8]> {
    let path = std::env::var_os("TAMIS_MUTANT_COVER")?;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).ok()?;
    // SAFETY: nobody shortens the file while processes run. Its bytes are accessed as atomics alone,
    // here and in every other process.
    let map = unsafe { memmap2::MmapMut::map_mut(&file) }.ok()?;
    let map: &'static mut [u8] = &mut *Box::leak(Box::new(map));
    // SAFETY: `AtomicU8` has the size and alignment of `u8`, and this is the only reference to the
    // bytes, which are mapped for good.
    Some(unsafe { &*(std::ptr::from_mut(map) as *const [AtomicU8]) })
}
