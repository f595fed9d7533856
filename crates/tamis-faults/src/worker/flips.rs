//! The job in which bits are flipped: writes, flushes, compactions, and builds of filters, each in
//! a segment of its own that the parent can see.
//!
//! Flips are meant for the engine, so the job keeps its own data where none occur: on the main
//! thread's stack, and on the [`Desk`]. It computes each record just before the engine gets it, and
//! again afterwards. It reports what it reads only if it is wrong, and leaves the judgement to the
//! parent, which was not hit.

use std::path::PathBuf;

use tamis::{Db, Keyspace, KeyspaceOptions, Options, WriteBatch};

use super::Place;
use crate::desk::Desk;
use crate::oracle::{Record, Records, STEPS, Shelf, Step};
use crate::turns::{self, Sizes};
use crate::wire::{Live, Message, tell};

/// The worker's arguments.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The file shared with the parent
    #[arg(long)]
    desk: PathBuf,
    /// Whether the engine protects records from end to end
    #[arg(long, value_enum, default_value_t = Protect::Off)]
    protect: Protect,
}

/// Whether the engine protects records from end to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protect {
    On,
    #[default]
    Off,
}

impl Protect {
    pub(crate) fn word(self) -> &'static str {
        if self == Protect::On { "on" } else { "off" }
    }

    /// Sets the engine's option.
    fn apply(self, options: &mut Options) {
        options.protect_writes = self == Protect::On;
    }

    /// Returns an empty batch.
    fn batch(self) -> WriteBatch {
        if self == Protect::On { WriteBatch::protected() } else { WriteBatch::new() }
    }
}

/// The largest number of keys of a keyspace.
const MOST_KEYS: usize = 7000;
const _: () = assert!(MOST_KEYS >= Shelf::Wide.keys() as usize && MOST_KEYS >= Shelf::Small.keys() as usize);
/// Of this many keys, one is read after every step.
const SAMPLE: u32 = 32;
/// No more wrong reads than this are reported.
const MOST_WRONG: u32 = 8;
/// No record has written the key.
const NONE: u32 = u32::MAX;

/// Returns the options of the database. Nothing is flushed or compacted unless it is a step's work.
pub(super) fn options(turn: u64, protect: Protect) -> Options {
    let mut options = turns::database(turn, Sizes::FLIPS);
    options.keyspace.auto_compaction = false;
    protect.apply(&mut options);
    options
}

fn shelf_options(turn: u64, shelf: Shelf) -> KeyspaceOptions {
    let mut options = turns::keyspace(turn, Sizes::FLIPS);
    options.auto_compaction = false;
    if shelf == Shelf::Small {
        options.bits_per_key = 32.0;
        if options.check().is_err() {
            options.bits_per_key = KeyspaceOptions::default().bits_per_key;
        }
    }
    options
}

struct Job<'d> {
    desk: &'d Desk,
    protect: Protect,
    db: Db,
    spaces: [Keyspace; 2],
    record: Record,
    again: Record,
    /// The number of the last acknowledged record of each key, by the key's index.
    last: [[u32; MOST_KEYS]; 2],
    /// The indexes of all keys, in the order of the keys.
    order: [[u32; MOST_KEYS]; 2],
    wrong: u32,
}

pub(super) fn run(args: &Args) {
    let desk = match Desk::open(&args.desk) {
        Ok(desk) => desk,
        Err(error) => return tell(&Message::Failed(format!("the desk: {error}"))),
    };
    let failed =
        |what: &str, error: &dyn std::fmt::Display| tell(&Message::Failed(format!("{what}: {error}")));
    let db = match options(args.place.turn, args.protect).open(&args.place.dir) {
        Ok(db) => db,
        Err(error) => return failed("open", &error),
    };
    let space = |shelf: Shelf| db.get_or_create_keyspace(shelf.name(), shelf_options(args.place.turn, shelf));
    let spaces = match (space(Shelf::Wide), space(Shelf::Small)) {
        (Ok(wide), Ok(small)) => [wide, small],
        (Err(error), _) | (_, Err(error)) => return failed("create_keyspace", &error),
    };
    let mut job = Job {
        desk: &desk,
        protect: args.protect,
        db,
        spaces,
        record: Record::new(),
        again: Record::new(),
        last: [[NONE; MOST_KEYS]; 2],
        order: [[0; MOST_KEYS]; 2],
        wrong: 0,
    };
    job.put_keys_in_order();
    let mut went_well = true;
    for (segment, step) in STEPS.into_iter().enumerate() {
        desk.begin(segment);
        tell(&Message::Phase(segment.to_string()));
        let result = job.step(step);
        desk.end(segment);
        if let Err(error) = result {
            failed(step.phase().name(), &error);
            went_well = false;
            break;
        }
        let (Step::Write(shelf, _) | Step::Flush(shelf) | Step::Compact(shelf)) = step;
        job.get(shelf, SAMPLE);
    }
    if went_well {
        for shelf in Shelf::ALL {
            job.scan(shelf);
            job.get(shelf, 1);
        }
    }
    let Job { db, spaces, .. } = job;
    drop(spaces);
    db.close().unwrap_or_else(|error| failed("close", &error));
}

impl Job<'_> {
    fn put_keys_in_order(&mut self) {
        for shelf in Shelf::ALL {
            let records = self.desk.records();
            let order = &mut self.order[shelf as usize][..shelf.keys() as usize];
            (0..).zip(order.iter_mut()).for_each(|(index, place)| *place = index);
            let (mut a, mut b) = (Record::new(), Record::new());
            order.sort_unstable_by(|x, y| {
                records.key_into(shelf, *x, &mut a);
                records.key_into(shelf, *y, &mut b);
                a.key().cmp(b.key())
            });
        }
    }

    fn step(&mut self, step: Step) -> Result<(), tamis::Error> {
        match step {
            Step::Write(shelf, count) => (0..count).try_for_each(|_| self.write(shelf))?,
            Step::Flush(shelf) => {
                let space = &self.spaces[shelf as usize];
                self.desk.inside(|| space.flush())?;
            }
            Step::Compact(shelf) => {
                let space = &self.spaces[shelf as usize];
                self.desk.inside(|| space.compact())?;
            }
        }
        Ok(())
    }

    /// Writes the next batch.
    fn write(&mut self, shelf: Shelf) -> Result<(), tamis::Error> {
        let space = &self.spaces[shelf as usize];
        let mut batch = self.desk.inside(|| self.protect.batch());
        let (_, numbers) = Records::batch(self.desk.position().0);
        for _ in numbers {
            generate(self.desk, &mut self.record);
            let record = &self.record;
            self.desk.inside(|| {
                match record.deletes {
                    true => batch.delete_in(space, record.key()),
                    false => batch.put_in(space, record.key(), record.value()),
                };
            });
            generate(self.desk, &mut self.again);
            let (given, again) = (&self.record, &self.again);
            if given.key() != again.key() || given.value() != again.value() || given.deletes != again.deletes
            {
                let (batch, cursor) = self.desk.position();
                tell(&Message::Damaged(format!("record {cursor} of batch {batch}")));
            }
            self.desk.next_record();
        }
        let (number, cursor) = self.desk.position();
        if cursor as usize != Records::batch(number).1.len() {
            tell(&Message::Damaged(format!("batch {number} got {cursor} records")));
        }
        let db = &self.db;
        self.desk.inside(|| db.write(batch))?;
        let (_, numbers) = Records::batch(self.desk.position().0);
        let records = self.desk.records();
        for number in numbers {
            self.last[shelf as usize][records.index(shelf, number) as usize] = number;
        }
        self.desk.acknowledge();
        Ok(())
    }

    /// Generates the record that a key must have. Reports whether it must have one.
    fn expect(&mut self, shelf: Shelf, index: u32) -> bool {
        let records = self.desk.records();
        let number = self.last[shelf as usize][index as usize];
        records.key_into(shelf, index, &mut self.record);
        if number == NONE || records.deletes(shelf, number) {
            return false;
        }
        records.record_into(shelf, number, &mut self.record);
        true
    }

    /// Gets one of every `every` keys.
    fn get(&mut self, shelf: Shelf, every: u32) {
        for index in (0..shelf.keys()).step_by(every as usize) {
            let is_there = self.expect(shelf, index);
            match self.spaces[shelf as usize].get(self.record.key()) {
                Ok(found) => {
                    let expected = is_there.then_some(self.record.value());
                    if found.as_deref() != expected {
                        self.report(shelf, None, index, found.as_deref().map(|value| (&[][..], value)));
                    }
                }
                Err(error) => tell(&Message::Failed(format!("get: {error}"))),
            }
        }
    }

    /// Reads a keyspace from its first to its last key.
    fn scan(&mut self, shelf: Shelf) {
        let mut iter = self.spaces[shelf as usize].iter();
        let mut place = 0;
        for position in 0.. {
            // The next key that must be there.
            while place < shelf.keys() && !self.expect(shelf, self.order[shelf as usize][place as usize]) {
                place += 1;
            }
            let expected = (place < shelf.keys()).then(|| (self.record.key(), self.record.value()));
            let found = match iter.next().transpose() {
                Ok(found) => found,
                Err(error) => return tell(&Message::Failed(format!("scan: {error}"))),
            };
            let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
            if found != expected {
                return self.report(shelf, Some(position), 0, found);
            }
            if found.is_none() {
                return;
            }
            place += 1;
        }
    }

    fn report(&mut self, shelf: Shelf, position: Option<u32>, index: u32, found: Option<(&[u8], &[u8])>) {
        self.wrong += 1;
        if self.wrong > MOST_WRONG {
            return;
        }
        let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
        let batches = self.desk.position().0;
        tell(&Message::Live(Live { shelf, batches, position, index, found }));
    }
}

/// Generates the record at the desk's position. Not inlined, so that nothing is taken over from the
/// first computation of a record into the second.
#[inline(never)]
fn generate(desk: &Desk, record: &mut Record) {
    let (batch, cursor) = desk.position();
    let (shelf, numbers) = Records::batch(batch);
    desk.records().record_into(shelf, numbers.start + cursor, record);
}
