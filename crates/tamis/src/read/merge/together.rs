//! Reads the blocks of several runs together.
//!
//! Where tables are not mapped, or memory is too scarce for their pages to stay, a merge waits for
//! blocks, and waiting once for many costs little more than waiting for one. (In a mapped table,
//! blocks are announced to the system, and the first touch waits.) So it reads ahead in all of its
//! runs at once, in the order in which it will need the blocks. That order is known without reading
//! any: a run needs its next block when the merge passes the separator of the one it is in
//! (*forecasting*, Knuth, The Art of Computer Programming, vol. 3, 5.4.6).
//!
//! * A seek is prepared in every run before it is made in any. The blocks that it needs are one
//!   batch, together with those that scans of this keyspace usually go on to
//!   ([`ReadHabits`](crate::read::habits::ReadHabits)).
//! * A run stops at the edge of a block, at a lazy position. When the merge gets there, the next
//!   batch is read: twice as many blocks each time, up to the queue depth for each run and 1 MiB
//!   for all.
//!
//! # Invariants
//! * No block is read in which every key lies beyond the bounds of the iteration.
//! * A batch is a hint. What it could not read is read by its run once the merge gets there, and an
//!   error is reported then: a scan does not fail because of a block that it does not need.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use smallvec::SmallVec;
use tamis_files::table::{Coming, MOST_BYTES, TouchCounts, announce_coming, read_coming};

use super::source::MergeSource;
use crate::read::run_cursor::RunContext;

/// Reads the blocks for which prepared seeks wait, and those that the scan will probably need.
pub(super) fn fetch_prepared(context: &mut RunContext, sources: &mut [MergeSource], backward: bool) {
    let Some(ahead) = &mut context.ahead else { return };
    ahead.window = ahead.habits.as_ref().map_or(0, |habits| habits.blocks_per_scan()).min(ahead.depth);
    let most = ahead.window;
    read(context, sources, backward, None, most);
}

/// Reads what the lazy position of source `top` will load, and what else the scan will need soon.
pub(super) fn fetch_next(context: &mut RunContext, sources: &mut [MergeSource], backward: bool, top: usize) {
    let Some(ahead) = &mut context.ahead else { return };
    ahead.needed = ahead.needed.map(|needed| needed.saturating_add(1));
    let Some(coming) = coming(context, &mut sources[top], backward) else { return };
    if !coming.starts_with_a_read() {
        return;
    }
    let open = sources.iter().filter(|source| matches!(source, MergeSource::Run(_))).count();
    let Some(ahead) = &mut context.ahead else { return };
    let most = ahead.depth.saturating_mul(open.max(1));
    ahead.window = ahead.window.saturating_mul(2).clamp(2, most.max(2));
    let window = ahead.window;
    read(context, sources, backward, Some(top), window);
}

/// Returns the blocks that a source will load next. A lazy position in a table that is not open is
/// prepared.
fn coming(context: &RunContext, source: &mut MergeSource, backward: bool) -> Option<Coming> {
    let MergeSource::Run(run) = source else { return None };
    // An error is left to the move for which this prepares.
    run.prepare_lazy(context, backward).ok()?;
    run.reading()?.coming(backward)
}

/// A source and the key whose passing makes its next block necessary.
#[derive(PartialEq, Eq)]
struct Need {
    key: Vec<u8>,
    backward: bool,
    source: usize,
}

impl Ord for Need {
    fn cmp(&self, other: &Need) -> Ordering {
        let order = self.key.cmp(&other.key);
        let order = if self.backward { order.reverse() } else { order };
        order.then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Need {
    fn partial_cmp(&self, other: &Need) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reads up to `most` blocks, beyond those for which a seek waits: all sources' in the order in
/// which the merge will need them. With `top`, a source with a lazy position, those that are needed
/// at the same key are read in any case.
fn read(
    context: &mut RunContext,
    sources: &mut [MergeSource],
    backward: bool,
    top: Option<usize>,
    most: usize,
) {
    let mut all: SmallVec<[Option<Coming>; 24]> = SmallVec::new();
    all.extend((0..sources.len()).map(|_| None));
    let mut needs = BinaryHeap::new();
    let mut bytes = MOST_BYTES;
    let need = |coming: &Coming, source: usize| {
        let key = coming.needed_at()?;
        let beyond = if backward { key < context.start } else { context.ends_before(&key) };
        (!beyond).then_some(Reverse(Need { key, backward, source }))
    };
    let mut first = None;
    for (i, source) in sources.iter_mut().enumerate() {
        let MergeSource::Run(run) = source else { continue };
        if run.is_elsewhere() {
            let key = run.key();
            // No more than what is certainly needed is opened here.
            if Some(i) != top && !(most > 0 && reaches(context, key, backward)) {
                continue;
            }
            needs.push(Reverse(Need { key: key.to_vec(), backward, source: i }));
        } else if let Some(mut coming) = run.reading().and_then(|cursor| cursor.coming(backward)) {
            if coming.is_sought() {
                bytes = bytes.saturating_sub(coming.take(bytes));
            }
            if most > 0 {
                needs.extend(need(&coming, i));
            }
            all[i] = Some(coming);
        }
        if Some(i) == top {
            first = Some(run.key().to_vec());
        }
    }
    let mut left = most;
    // Passing over blocks that are in the cache ends, too.
    let mut passes = 4 * most + sources.len();
    while let Some(Reverse(Need { key, source, .. })) = needs.pop() {
        let at_once = first.as_ref() == Some(&key);
        if passes == 0 || bytes == 0 || (left == 0 && !at_once) {
            break;
        }
        passes -= 1;
        if all[source].is_none() {
            all[source] = coming(context, &mut sources[source], backward);
        }
        let Some(coming) = &mut all[source] else { continue };
        let taken = coming.take(bytes);
        bytes = bytes.saturating_sub(taken);
        left = left.saturating_sub(usize::from(taken > 0));
        needs.extend(need(coming, source));
    }
    let mut counts = TouchCounts::default();
    let mut taken: SmallVec<[&mut Coming; 24]> =
        all.iter_mut().flatten().filter(|coming| coming.blocks() > 0).collect();
    // A cursor reads a single block just as well.
    let worth = taken.iter().map(|coming| coming.blocks()).sum::<usize>() > 1;
    let Some(first) = context.all().first().filter(|_| worth) else { return };
    match first.table.overlap() {
        Some(reads) => read_coming(reads, &mut taken, &mut counts),
        None => announce_coming(&mut taken),
    }
    drop(taken);
    for (source, coming) in sources.iter_mut().zip(all) {
        if let (MergeSource::Run(run), Some(coming)) = (source, coming)
            && coming.blocks() > 0
            && let Some(cursor) = run.reading()
        {
            cursor.add_counts(&std::mem::take(&mut counts));
            cursor.accept(coming);
        }
    }
}

/// Reports whether `key` is within the bounds of the iteration, in its direction.
fn reaches(context: &RunContext, key: &[u8], backward: bool) -> bool {
    if backward { *key >= context.start[..] } else { !context.ends_before(key) }
}
