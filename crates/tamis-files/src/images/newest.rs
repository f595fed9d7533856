//! Which image counts at which key.

use std::collections::BTreeSet;

use tamis_base::ids::FilterFileId;
use tamis_base::key::KeyBytes;

use super::format::{Image, ImageKind};

/// A key range and the newest image of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Newest<'i> {
    pub start: KeyBytes,
    pub end: Option<KeyBytes>,
    /// The number of the image in the list.
    pub at: usize,
    pub image: &'i Image,
}

/// Divides the key ranges of the images of one kind among the newest ones: returns disjoint ranges
/// in key order, each as long as possible and within its image's. An image that occurs in none of
/// them is superseded. Images of other kinds do not count.
///
/// Cost: O(n log n) for n images, whatever their ranges.
pub fn newest(images: &[Image], kind: ImageKind) -> Vec<Newest<'_>> {
    /// What happens at a key: ranges end before others begin.
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
