//! Which filter files go when images are saved: a pure function.

use std::cmp::Reverse;

use tamis_base::collections::HashSet;
use tamis_base::ids::FilterFileId;
use tamis_files::images::{Image, ImageKind, newest};

use crate::catalogue::filter_files::NewImage;

/// Files of a keyspace of this many bytes together are left as they are, however little of them
/// counts.
pub(super) const FREE_BYTES: u64 = 1 << 20;

/// With more files than this, the smallest are joined.
pub(super) const MOST_FILES: usize = 64;

/// A filter file: its length, and its usable images with their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    pub(super) bytes: u64,
    pub(super) images: Vec<(usize, Image)>,
}

/// What becomes of the files of a keyspace. Files are given by their place in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReclaimPlan {
    /// Files that go.
    pub(super) dropped: Vec<usize>,
    /// Images of these that are copied into the new file: file, number.
    pub(super) copied: Vec<(usize, usize)>,
}

/// Plans a save. A file of which no image counts beside the new ones goes. If less than two thirds
/// of what remains counts, and it is more than [`FREE_BYTES`], files go and what counts of them is
/// copied, those with the smallest part that counts first, until two thirds of the rest count.
pub(super) fn plan(files: &[Stored], new: &[NewImage]) -> ReclaimPlan {
    let mut all: Vec<Image> = Vec::new();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (file, stored) in files.iter().enumerate() {
        all.extend(stored.images.iter().map(|(_, image)| image.clone()));
        places.extend(stored.images.iter().map(|&(at, _)| (file, at)));
    }
    all.extend(new.iter().enumerate().map(|(place, image)| {
        // Newer than everything stored.
        let age = (FilterFileId::MAX, place as u32);
        Image::new(
            image.kind,
            (image.span.start.clone(), image.span.end.clone()),
            image.until,
            age,
            image.bytes.len() as u64,
        )
    }));
    let live: HashSet<usize> =
        ImageKind::ALL.iter().flat_map(|kind| newest(&all, *kind)).map(|newest| newest.at).collect();
    let mut live_of: Vec<Vec<usize>> = vec![Vec::new(); files.len()];
    let mut counts = vec![0u64; files.len()];
    for (place, (file, at)) in places.iter().enumerate().filter(|(place, _)| live.contains(place)) {
        live_of[*file].push(*at);
        // Without bytes of its own an image would still take a place in an index.
        counts[*file] += all[place].bytes.max(1);
    }
    let mut plan = ReclaimPlan::default();
    let (mut kept, mut total, mut counting) = (Vec::new(), 0u64, 0u64);
    let added: u64 = new.iter().map(|image| image.bytes.len() as u64).sum();
    for (file, stored) in files.iter().enumerate() {
        if live_of[file].is_empty() {
            plan.dropped.push(file);
        } else {
            kept.push(file);
            total = total.saturating_add(stored.bytes);
            counting = counting.saturating_add(counts[file]);
        }
    }
    (total, counting) = (total.saturating_add(added), counting.saturating_add(added));
    // In thousandths, the smallest part last.
    let part = |file: usize| counts[file].saturating_mul(1000) / files[file].bytes.max(1);
    kept.sort_by_key(|&file| (Reverse(part(file)), file));
    let mut going = Vec::new();
    while total > FREE_BYTES && counting.saturating_mul(3) < total.saturating_mul(2) {
        let Some(file) = kept.pop() else { break };
        total = total.saturating_sub(files[file].bytes).saturating_add(counts[file]);
        going.push(file);
    }
    if kept.len() + 1 > MOST_FILES {
        // Half of them, so that this is seldom: a byte is copied about as often as the number of
        // files doubles.
        kept.sort_by_key(|&file| (Reverse(files[file].bytes), file));
        going.extend(kept.split_off(MOST_FILES / 2));
    }
    for file in going {
        plan.dropped.push(file);
        plan.copied.extend(live_of[file].iter().map(|&at| (file, at)));
    }
    plan.dropped.sort_unstable();
    plan.copied.sort_unstable();
    plan
}
