//! Insertion, garbage collection, and the snapshot kept of a partition after its successor was
//! built.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::global::{Batch, Cuts, Epoch, Epochs};
use crate::keys::Place;

use super::book::Book;
use super::build::{budget, fixed_bytes, most_fixed, order, planned, symbol_bits, write};
use super::layout::{BUCKETS, Layout, after_cut};
use super::map::{Kind, Map};
use super::set::{Entry, Set, Writer};
use super::walk::met_by_a_walk;
use super::{Crowd, Inner, Partition};

/// A partition that takes more than this share of its budget is encoded anew.
const MOST: f64 = 1.02;
/// Entries per bucket from which on more buckets pay.
const CROWDED: f64 = 1.25;
/// With more than one in this many entries of epochs that were to come, shorter codes pay.
const YOUNG: u64 = 16;
/// The share of positions that are taken above which their number of keys is not told from it.
const FULLEST: f64 = 0.98;
/// A batch of more than this share of the entries is inserted while the whole partition is encoded
/// anew.
const LARGE: usize = 4;

impl Partition {
    /// Returns the partition with the entries of `batch` added. If it would outgrow its memory, all
    /// of it is encoded anew: codes are garbage-collected by `cuts` and as many bits cut from
    /// positions as necessary.
    ///
    /// Valid for the version that has the tables of the batch, and later ones. `cuts` cover all
    /// versions that can still be read with the result; whether they include the batch's own tables
    /// makes no difference. They must not be blind (see the module documentation) to tables that
    /// were inserted before.
    ///
    /// Cost: a position per key, a copy of the partition, and encoding the blocks with new entries.
    pub fn insert(&self, batch: &Batch, cuts: &Cuts) -> Partition {
        let inner = &*self.inner;
        let (map, shift) = self.map_for(batch);
        let mut new: Vec<(u64, Epochs)> =
            batch.iter().map(|(key, digest, table)| (map.position(key, digest), table)).collect();
        if inner.last_is_unknown {
            new.retain(|(_, table)| table.lo >= inner.book.base);
        }
        let joined = new.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        let added = new.len() as u64;
        let is_stray = |key: &&[u8]| !matches!(inner.map.keys.place(key), Place::At(_));
        let keys = batch.keys();
        let strays =
            keys.iter().take_while(is_stray).count() + keys.iter().rev().take_while(is_stray).count();
        let mut made = match self.with_symbols(&new, &map).filter(|_| shift == 0) {
            Some(entries) => self.insert_into_blocks(map, &entries, added),
            None => {
                new.sort_unstable();
                self.encode_anew(map, shift, &new, (inner.book.base, cuts), false)
            }
        };
        let crowd = &mut Arc::get_mut(&mut made.inner).expect("not shared yet").crowd;
        crowd.added += added;
        crowd.joined += joined;
        // If all keys are strays, both counts have them.
        crowd.strays += (strays as u64).min(added);
        made
    }

    /// Returns the partition after garbage collection by `cuts`, which are as for
    /// [`Partition::insert`]. Epochs before `base` become those of the last level; a base below the
    /// partition's own changes nothing.
    ///
    /// Reads no key: versions of a key that are in one table become one entry.
    pub fn collect(&self, base: Epoch, cuts: &Cuts) -> Partition {
        let base = base.max(self.inner.book.base);
        self.encode_anew(self.inner.map.clone(), 0, &[], (base, cuts), false)
    }

    /// Returns what readers of older versions need in addition to the next partition (section 4.2,
    /// cross-round snapshots): the entries outside the last level. The result knows nothing about
    /// the last level: any key may be there.
    pub fn shrink(&self) -> Partition {
        let base = self.inner.book.base;
        self.encode_anew(self.inner.map.clone(), 0, &[], (base, &Cuts::default()), true)
    }

    /// Returns the entries, sorted, if they can be inserted block by block.
    fn with_symbols(&self, new: &[(u64, Epochs)], map: &Map) -> Option<Vec<Entry>> {
        let inner = &*self.inner;
        let (book, layout) = (&*inner.book, inner.layout_for(map));
        let (mut known, mut bits) = ((Epochs::ALL, 0, 0.0), 0.0);
        let mut entries = Vec::with_capacity(new.len());
        for &(position, table) in new {
            if known.0 != table {
                let symbol = book.symbol(table)?;
                known = (table, symbol, book.names.bits(symbol) + f64::from(layout.width + 1));
            }
            bits += known.2;
            entries.push(Entry { position: layout.kept(position >> inner.cut), symbol: known.1 });
        }
        let all = planned(inner.set.entries() + entries.len() as u64) as f64;
        let keys = planned(inner.keys + entries.len() as u64) as f64;
        let knots = map.heap_bytes();
        let fixed = ((fixed_bytes(map, book) - knots) * 8) as f64;
        let fixed = fixed.min(most_fixed(inner.built) * keys);
        let after = ((inner.set.heap_bytes() + knots) * 8) as f64 + fixed + bits;
        let crowded = all / (layout.blocks() * BUCKETS) as f64 > CROWDED && layout.width > 0;
        // Below a bit or so per entry no encoding keeps the budget.
        let over = after > inner.bits_per_key * MOST * keys;
        // Otherwise there is nothing to gain.
        let helps = inner.can_shrink() || (inner.young + entries.len() as u64) * YOUNG > all as u64;
        if crowded || over && helps || entries.len() * LARGE > inner.set.entries() as usize {
            return None;
        }
        // A learned map has them in order already.
        entries.sort_unstable();
        entries.dedup();
        Some(entries)
    }

    /// Inserts entries of so many keys, which ascend and are all different: blocks that get none
    /// are copied.
    fn insert_into_blocks(&self, map: Arc<Map>, new: &[Entry], added: u64) -> Partition {
        let inner = &*self.inner;
        let (set, names) = (&inner.set, &inner.book.names);
        let layout = inner.layout_for(&map);
        let bytes = set.heap_bytes() + new.len() * 4;
        let mut writer = Writer::new(layout, names, bytes);
        let mut last = inner.last;
        let mut rest = new;
        while let Some(first) = rest.first() {
            let block = layout.block(first.position) as usize;
            self.copy_up_to(block, &mut writer);
            let count =
                rest.iter().take_while(|entry| layout.block(entry.position) as usize == block).count();
            let (head, tail) = rest.split_at(count);
            rest = tail;
            let counted = inner.book.last;
            if block < set.blocks() && set.count(block) > 0 {
                last += writer.block_with(set, head, counted);
            } else {
                last += head.iter().filter(|entry| Some(entry.symbol) == counted).count() as u64;
                writer.block(head);
            }
        }
        self.copy_up_to(layout.blocks() as usize, &mut writer);
        let young = inner.young + new.len() as u64;
        let mut made = self.with(map, inner.book.clone(), writer.finish(), inner.cut, last, young);
        let unknown = made.entries() - set.entries();
        let inner = Arc::get_mut(&mut made.inner).expect("not shared yet");
        inner.keys += new_keys(added, unknown, new.len());
        made
    }

    /// Copies blocks up to `block` (excluded); those that the set does not have are empty.
    fn copy_up_to(&self, block: usize, writer: &mut Writer<'_>) {
        let set = &self.inner.set;
        let from = writer.written();
        writer.copy(set, from.min(set.blocks())..block.min(set.blocks()));
        while writer.written() < block {
            writer.block(&[]);
        }
    }

    /// Encodes all entries with a new book and a new layout, together with `new` ones (ascending).
    /// Existing ones move by `shift` positions of the map. The base does not decrease.
    fn encode_anew(
        &self,
        map: Arc<Map>,
        shift: u64,
        new: &[(u64, Epochs)],
        (base, cuts): (Epoch, &Cuts),
        without_last: bool,
    ) -> Partition {
        let inner = &*self.inner;
        let last_is_unknown = inner.last_is_unknown || without_last;
        let collected = inner.book.collect(base, cuts);
        let is_kept = |epochs: &Epochs| !(last_is_unknown && epochs.hi <= base);
        let old: Vec<Option<Epochs>> = collected.into_iter().map(|epochs| epochs.filter(is_kept)).collect();
        let mut entries: Vec<Entry> = Vec::with_capacity(inner.set.entries() as usize + new.len());
        let mut by_symbol = vec![0u64; old.len()];
        // The map's positions, with zeros for the bits that were cut. A shift does not touch these.
        inner.set.each_from(&inner.book.names, 0, |position, symbol| {
            // A number that no book assigns stands for everything. This crate writes none.
            if let Some(count) = by_symbol.get_mut(symbol as usize) {
                *count += 1;
                entries.push(Entry { position: (position << inner.cut) + shift, symbol: symbol as u16 });
            }
            true
        });
        let mut counts: BTreeMap<Epochs, u64> = BTreeMap::new();
        for (epochs, count) in old.iter().zip(&by_symbol) {
            if let Some(epochs) = epochs.filter(|_| *count > 0) {
                *counts.entry(epochs).or_default() += count;
            }
        }
        let mut tables: Vec<(Epochs, u64)> = Vec::new();
        for &(_, table) in new {
            match tables.iter_mut().find(|(known, _)| *known == table) {
                Some((_, count)) => *count += 1,
                None => tables.push((table, 1)),
            }
        }
        let interval = |table| Book::interval(base, table, cuts);
        tables.iter().for_each(|&(table, count)| *counts.entry(interval(table)).or_default() += count);
        let grows = !without_last && !new.is_empty();
        let book = Book::new(base, &counts, inner.book.future(), grows);
        let symbol_of_old = |(epochs, count): (&Option<Epochs>, &u64)| {
            epochs.filter(|_| *count > 0).map(|epochs| book.exact(epochs))
        };
        let symbols: Vec<Option<u16>> = old.iter().zip(&by_symbol).map(symbol_of_old).collect();
        let new_symbols: Vec<(Epochs, u16)> =
            tables.into_iter().map(|(table, _)| (table, book.exact(interval(table)))).collect();
        let symbol_of = |table: Epochs| {
            let known = new_symbols.iter().find(|(known, _)| *known == table);
            known.expect("each table of the batch is listed").1
        };
        entries.retain_mut(|entry| {
            let symbol = symbols[usize::from(entry.symbol)];
            symbol.is_some_and(|symbol| {
                entry.symbol = symbol;
                true
            })
        });
        order(&mut entries);
        let lost = inner.set.layout.lost(inner.cut, shift);
        let mut keys = inner.keys_after(&by_symbol, &symbols, &entries);
        if !new.is_empty() {
            let of_key = |&(position, table): &(u64, Epochs)| Entry { position, symbol: symbol_of(table) };
            let mut added: Vec<Entry> = new.iter().map(of_key).collect();
            added.sort_unstable();
            added.dedup();
            let is_unknown = |entry: &&Entry| {
                let known = Entry { position: lost.kept(entry.position), ..**entry };
                entries.binary_search(&known).is_err()
            };
            let unknown = added.iter().filter(is_unknown).count() as u64;
            keys += new_keys(new.len() as u64, unknown, added.len());
            entries.extend(added);
            // Two ascending parts are merged.
            entries.sort();
            entries.dedup();
        }
        let (bits, count) = (symbol_bits(&book, &entries), entries.len() as u64);
        let budget = budget(inner.bits_per_key, keys, &map, &book, bits, most_fixed(inner.built));
        let (layout, cut) = Layout::refit(map.positions(), planned(count), budget, lost);
        let set = write(layout, cut, &mut entries, &book);
        let last = entries.iter().filter(|entry| Some(entry.symbol) == book.last).count() as u64;
        let met_by_a_walk = met_by_a_walk(&map, &set, &book);
        let mut made = self.with(map, Arc::new(book), set, cut, last, 0);
        let inner = Arc::get_mut(&mut made.inner).expect("not shared yet");
        inner.keys = keys;
        inner.met_by_a_walk = met_by_a_walk;
        inner.last_is_unknown |= without_last;
        made
    }

    fn with(&self, map: Arc<Map>, book: Arc<Book>, set: Set, cut: u32, last: u64, young: u64) -> Partition {
        let Inner { bits_per_key, built, keys, crowd, reason, last_is_unknown, met_by_a_walk, .. } =
            *self.inner;
        let crowd = Crowd { largest: set.largest(), ..crowd };
        let inner = Inner {
            map,
            book,
            set,
            cut,
            bits_per_key,
            last,
            built,
            keys,
            young,
            crowd,
            reason,
            last_is_unknown,
            met_by_a_walk,
        };
        Partition { inner: Arc::new(inner) }
    }

    /// Extends the map with new segments if keys arrive in an empty edge; also returns by how many
    /// positions the existing ones move.
    fn map_for(&self, batch: &Batch) -> (Arc<Map>, u64) {
        let inner = &*self.inner;
        let keys = batch.keys();
        let (Some(first), Some(last), false) = (keys.first(), keys.last(), inner.map.kind == Kind::Digest)
        else {
            return (inner.map.clone(), 0);
        };
        let within =
            |key| (1..inner.map.segments() - 1).contains(&inner.map.segment(inner.map.keys.clamped(key)));
        if inner.map.segments() > 2 && within(first) && within(last) {
            return (inner.map.clone(), 0);
        }
        let numbers: Vec<u64> = keys.iter().map(|key| inner.map.keys.clamped(key)).collect();
        let is_empty = |positions| inner.set.is_empty(positions, inner.cut);
        // A shift must move all positions that share their known bits to such that do, too.
        match inner.map.extend(&numbers, is_empty, 2 << inner.cut) {
            Some((map, shift)) => (Arc::new(map), shift),
            None => (inner.map.clone(), 0),
        }
    }
}

impl Inner {
    /// Returns the layout for a map that may have more positions than the one so far.
    fn layout_for(&self, map: &Map) -> Layout {
        Layout { positions: after_cut(map.positions(), self.cut), ..self.set.layout }
    }

    /// Returns how many keys are left of those that the entries stand for, once codes were
    /// collected: `counts` are the entries by symbol, `symbols` what becomes of these, and `left`
    /// the entries that remain.
    ///
    /// Entries at one position that get the same symbol are one from then on. Some were versions of
    /// a key, others different keys. So many entries of a symbol, in so many positions, are of so
    /// many keys if these are spread evenly; what is more than that was versions.
    fn keys_after(&self, counts: &[u64], symbols: &[Option<u16>], left: &[Entry]) -> u64 {
        // As few as entries have about them: some blocks are coarse, and edges have none.
        let positions = (self.set.entries() as f64 / self.set.rate()).max(1.0);
        // Once nearly all positions are taken, entries say nothing about keys.
        let keys_of = |entries: u64| -positions * (-(entries as f64 / positions).min(FULLEST)).ln_1p();
        let made = symbols.iter().flatten().max().map_or(0, |last| usize::from(*last) + 1);
        let mut by_symbol = vec![(0.0, 0u64); made];
        let mut all = 0.0;
        for (&count, symbol) in counts.iter().zip(symbols) {
            all += keys_of(count);
            if let Some(symbol) = symbol {
                by_symbol[usize::from(*symbol)].0 += keys_of(count);
            }
        }
        left.iter().for_each(|entry| by_symbol[usize::from(entry.symbol)].1 += 1);
        let kept: f64 = by_symbol.iter().map(|&(before, entries)| before.min(keys_of(entries))).sum();
        let keys = self.keys as f64 * (kept / all.max(1.0)).min(1.0);
        (keys.round() as u64).max(left.len() as u64)
    }

    /// Returns whether encoding anew can take less memory: positions have bits that can be cut.
    fn can_shrink(&self) -> bool {
        self.set.layout.positions > self.set.entries() / 2
    }
}

/// Returns how many of the keys of a batch were not there before: those of the entries that were
/// not, by their share. Tables may be inserted again, as after a crash; the entries of a new one
/// have an epoch that no other has.
fn new_keys(batch: u64, unknown: u64, entries: usize) -> u64 {
    (batch as f64 * unknown as f64 / entries.max(1) as f64).round() as u64
}
