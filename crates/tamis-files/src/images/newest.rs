//! Determines which image applies at which key.

use std::collections::BTreeSet;

use tamis_base::ids::FilterFileId;
use tamis_base::key::KeyBytes;

use super::format::{Image, ImageKind};

/// A key range and its newest image.
#[derive(Debug, PartialEq, Eq)]
pub struct Newest<'i> {
    pub start: KeyBytes,
    pub end: Option<KeyBytes>,
    /// The image's index in the list.
    pub at: usize,
    pub image: &'i Image,
}

/// Returns disjoint key ranges in key order, each with the newest image of `kind` over it. Each
/// range is as long as possible and within its image's range. An image of that kind that appears in
/// no range is superseded. Images of other kinds are ignored.
///
/// Cost: O(n log n) for n images, however their ranges overlap.
pub fn newest(images: &[Image], kind: ImageKind) -> Vec<Newest<'_>> {
    /// What happens at a key. Ends sort before starts.
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Border {
        End,
        Start,
    }
    let of_kind = || images.iter().enumerate().filter(|(_, image)| image.kind == kind);
    let mut borders: Vec<(&KeyBytes, Border, usize)> = Vec::new();
    for (at, image) in of_kind() {
        borders.push((&image.start, Border::Start, at));
        borders.extend(image.end.iter().map(|end| (end, Border::End, at)));
    }
    borders.sort_unstable();
    // The images over the current key, the newest last.
    let mut over: BTreeSet<((FilterFileId, u32), usize)> = BTreeSet::new();
    let mut found: Vec<Newest<'_>> = Vec::new();
    let mut borders = borders.into_iter().peekable();
    while let Some((key, border, at)) = borders.next() {
        match border {
            Border::Start => over.insert((images[at].age(), at)),
            Border::End => over.remove(&(images[at].age(), at)),
        };
        let next = borders.peek().map(|next| next.0);
        if next == Some(key) {
            continue;
        }
        let Some(&(_, at)) = over.last() else { continue };
        let end = next.cloned();
        match found.last_mut() {
            Some(last) if last.at == at && last.end.as_ref() == Some(key) => last.end = end,
            _ => found.push(Newest { start: key.clone(), end, at, image: &images[at] }),
        }
    }
    found
}
