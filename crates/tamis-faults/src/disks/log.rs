//! The log of a device, and the disks at each of its positions.

use std::collections::BTreeSet;

use super::SECTOR;
use super::image::Image;
use super::survival::Survival;
use crate::wire::Message;

/// One entry of the log.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// Bytes were written to the device: whole sectors.
    Write { at: u64, data: Vec<u8> },
    /// The device answered a flush.
    Flush,
    /// A worker's message was received.
    Told(Message),
}

/// Draws positions at which the power is cut, in order. Only what comes before a position has
/// happened.
///
/// A third is right after a flush, a third anywhere, and a third where much is in the cache, since
/// most writes are flushed at once. Each is right before a write or a flush, or at the end: of the
/// positions with the same disk, it is the one where the most was promised.
pub(crate) fn cuts(entries: &[Entry], count: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
    /// The position with the fullest cache of so many is taken.
    const RIVALS: usize = 12;
    // Each with the number of writes in the cache.
    let mut all = Vec::new();
    let mut after_flush = Vec::new();
    let mut cached = 0;
    let mut flushed = false;
    for (at, entry) in entries.iter().enumerate() {
        if matches!(entry, Entry::Told(_)) {
            continue;
        }
        all.push((cached, at));
        if flushed {
            after_flush.push((cached, at));
        }
        flushed = matches!(entry, Entry::Flush);
        cached = if flushed { 0 } else { cached + 1 };
    }
    all.push((cached, entries.len()));
    let mut chosen = BTreeSet::new();
    // Positions may be drawn twice, or there may be fewer than wanted.
    for _ in 0..count * 4 {
        let (places, rivals) = match rng.u32(..3) {
            0 if !after_flush.is_empty() => (&after_flush, 1),
            1 => (&all, RIVALS),
            _ => (&all, 1),
        };
        let rivals = (0..rivals).map(|_| places[rng.usize(..places.len())]);
        chosen.extend(rivals.max().map(|(_, at)| at));
        if chosen.len() == count {
            break;
        }
    }
    chosen.into_iter().collect()
}

/// The disks of a log, in the order of its positions.
#[derive(Debug)]
pub(crate) struct Replay<'a> {
    entries: &'a [Entry],
    position: usize,
    /// Everything before the last flush.
    durable: Image,
    /// The writes since then.
    cached: Vec<(u64, &'a [u8])>,
}

impl<'a> Replay<'a> {
    /// Begins before the first entry, with what was on the disk then.
    pub(crate) fn new(base: Image, entries: &'a [Entry]) -> Replay<'a> {
        Replay { entries, position: 0, durable: base, cached: Vec::new() }
    }

    /// Goes on to a later position, and passes the messages before it to `hear`.
    pub(crate) fn advance(&mut self, position: usize, mut hear: impl FnMut(&Message)) {
        for entry in &self.entries[self.position..position] {
            match entry {
                Entry::Write { at, data } => self.cached.push((*at, data)),
                Entry::Flush => {
                    for (at, data) in self.cached.drain(..) {
                        self.durable.write(at, data);
                    }
                }
                Entry::Told(message) => hear(message),
            }
        }
        self.position = position;
    }

    /// Reports whether nothing was written since the last flush.
    pub(crate) fn is_flushed(&self) -> bool {
        self.cached.is_empty()
    }

    /// Returns the disk if the power is cut here.
    pub(crate) fn disk(&self, survival: Survival, rng: &mut fastrand::Rng) -> Rebuilt {
        let mut rebuilt = Rebuilt { disk: self.durable.clone(), whole: 0, torn: 0, gone: 0 };
        let sectors: Vec<usize> = self.cached.iter().map(|(_, data)| data.len().div_ceil(SECTOR)).collect();
        let kept = survival.choose(&sectors, rng);
        for ((at, data), kept) in self.cached.iter().zip(kept) {
            let survivors = kept.iter().filter(|kept| **kept).count();
            match survivors {
                0 => rebuilt.gone += 1,
                _ if survivors < kept.len() => rebuilt.torn += 1,
                _ => rebuilt.whole += 1,
            }
            for (number, sector) in data.chunks(SECTOR).enumerate().filter(|(number, _)| kept[*number]) {
                rebuilt.disk.write(at + (number * SECTOR) as u64, sector);
            }
        }
        rebuilt
    }
}

/// A disk after a cut, and what became of the writes since the last flush.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) disk: Image,
    whole: usize,
    pub(crate) torn: usize,
    gone: usize,
}

impl Rebuilt {
    /// Reports whether some of those writes survived, but not all.
    pub(crate) fn is_partial(&self) -> bool {
        self.torn > 0 || (self.whole > 0 && self.gone > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(sector: u64, with: u8, sectors: usize) -> Entry {
        Entry::Write { at: sector * SECTOR as u64, data: vec![with; sectors * SECTOR] }
    }

    fn told(number: u64) -> Entry {
        Entry::Told(Message::Done(number))
    }

    /// Two writes, of which the second is acknowledged after its flush; then one that is cached.
    fn log() -> Vec<Entry> {
        vec![
            write(0, 1, 2),
            told(1),
            Entry::Flush,
            write(1, 2, 2),
            Entry::Flush,
            told(2),
            write(0, 3, 4),
            write(1, 4, 1),
        ]
    }

    /// Returns the first byte of each of four sectors.
    fn sectors(image: &Image) -> Vec<u8> {
        let mut bytes = vec![0; 4 * SECTOR];
        image.read(0, &mut bytes);
        bytes.chunks(SECTOR).map(|sector| sector[0]).collect()
    }

    #[test]
    fn flushed_writes_stay_and_later_ones_may() {
        let (log, mut rng) = (log(), fastrand::Rng::with_seed(1));
        let at = |position, survival| {
            let mut replay = Replay::new(Image::new(4096), &log);
            replay.advance(position, |_| {});
            sectors(&replay.disk(survival, &mut rng.clone()).disk)
        };
        assert_eq!(at(0, Survival::All), [0, 0, 0, 0]);
        assert_eq!(at(2, Survival::Nothing), [0, 0, 0, 0]);
        assert_eq!(at(2, Survival::All), [1, 1, 0, 0]);
        assert_eq!(at(4, Survival::Nothing), [1, 1, 0, 0]);
        for survival in [Survival::All, Survival::Nothing] {
            assert_eq!(at(6, survival), [1, 2, 2, 0]);
        }
        assert_eq!(at(8, Survival::All), [3, 4, 3, 3]);
        let mut replay = Replay::new(Image::new(4096), &log);
        replay.advance(8, |_| {});
        let mut torn = BTreeSet::new();
        for _ in 0..2000 {
            let rebuilt = replay.disk(Survival::Torn { atom: 1 }, &mut rng);
            assert_eq!(rebuilt.whole + rebuilt.torn + rebuilt.gone, 2);
            torn.insert(sectors(&rebuilt.disk));
        }
        // Sector 1 has three possible contents, the others have two.
        assert_eq!(torn.len(), 3 * 2 * 2 * 2);
        assert!(torn.iter().all(|found| [1, 3].contains(&found[0]) && [0, 3].contains(&found[3])));
    }

    #[test]
    fn messages_are_heard_up_to_the_cut() {
        let log = log();
        let mut replay = Replay::new(Image::new(4096), &log);
        let mut heard = Vec::new();
        replay.advance(2, |message| heard.push(message.clone()));
        assert_eq!(heard, [Message::Done(1)]);
        assert!(!replay.is_flushed());
        replay.advance(6, |message| heard.push(message.clone()));
        assert_eq!(heard, [Message::Done(1), Message::Done(2)]);
        assert!(replay.is_flushed());
    }

    #[test]
    fn cuts_come_after_what_was_told() {
        let (log, mut rng) = (log(), fastrand::Rng::with_seed(1));
        assert_eq!(cuts(&log, 100, &mut rng), [0, 2, 3, 4, 6, 7, 8]);
        assert_eq!(cuts(&log, 3, &mut rng).len(), 3);
        assert_eq!(cuts(&[], 3, &mut rng), [0]);
    }
}
