//! The contents of a disk in memory. Copies share pages until one of them writes, so that a copy
//! costs little.

use std::fs::File;
use std::io::{Read as _, Result};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;

type Page = [u8; PAGE];

/// The contents of a disk. A page that was never written holds zeros and takes no space.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pages: Vec<Option<Arc<Page>>>,
}

impl Image {
    /// Creates an empty disk of whole pages.
    pub(crate) fn new(bytes: u64) -> Image {
        Image { pages: vec![None; bytes as usize / PAGE] }
    }

    /// Reads the contents of a file of whole pages.
    pub(crate) fn load(path: &Path) -> Result<Image> {
        let mut file = File::open(path)?;
        let mut image = Image::new(file.metadata()?.len());
        let mut page = [0; PAGE];
        for at in 0..image.pages.len() {
            file.read_exact(&mut page)?;
            image.write((at * PAGE) as u64, &page);
        }
        Ok(image)
    }

    /// Writes the contents to a new sparse file.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let file = File::create(path)?;
        file.set_len(self.bytes())?;
        for (at, page) in self.pages.iter().enumerate() {
            if let Some(page) = page {
                file.write_all_at(&page[..], (at * PAGE) as u64)?;
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.pages.len() * PAGE) as u64
    }

    /// Reads as much of `into` as there is from `at` on, and returns its length.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) -> usize {
        let len = into.len().min(self.bytes().saturating_sub(at) as usize);
        let mut done = 0;
        while done < len {
            let (page, within) = place(at, done);
            let part = &mut into[done..len.min(done + PAGE - within)];
            match &self.pages[page] {
                Some(page) => part.copy_from_slice(&page[within..within + part.len()]),
                None => part.fill(0),
            }
            done += part.len();
        }
        len
    }

    /// Writes as much of `data` as there is space from `at` on, and returns its length.
    pub(crate) fn write(&mut self, at: u64, data: &[u8]) -> usize {
        let len = data.len().min(self.bytes().saturating_sub(at) as usize);
        let mut done = 0;
        while done < len {
            let (page, within) = place(at, done);
            let part = &data[done..len.min(done + PAGE - within)];
            let page = &mut self.pages[page];
            if page.is_some() || part.iter().any(|byte| *byte != 0) {
                let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE])));
                page[within..within + part.len()].copy_from_slice(part);
            }
            done += part.len();
        }
        len
    }
}

/// Returns the page of a byte, and its place within that page.
fn place(at: u64, done: usize) -> (usize, usize) {
    let byte = at as usize + done;
    (byte / PAGE, byte % PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(image: &Image, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![9; len];
        let done = image.read(at, &mut bytes);
        bytes.truncate(done);
        bytes
    }

    #[test]
    fn bytes_are_read_as_written_across_pages_and_up_to_the_end() {
        let mut image = Image::new(4 * PAGE as u64);
        let data: Vec<u8> = (0..2 * PAGE).map(|n| (n % 251) as u8).collect();
        assert_eq!(image.write(PAGE as u64 - 512, &data), data.len());
        assert_eq!(read(&image, PAGE as u64 - 512, data.len()), data);
        assert_eq!(read(&image, 0, 512), [0; 512]);
        assert_eq!(image.write(image.bytes() - 512, &data), 512);
        assert_eq!(read(&image, image.bytes() - 512, 4096), &data[..512]);
        assert_eq!(image.write(image.bytes(), &data), 0);
    }

    #[test]
    fn a_copy_keeps_its_contents() {
        let mut image = Image::new(PAGE as u64);
        image.write(512, &[1; 512]);
        let copy = image.clone();
        image.write(512, &[2; 1024]);
        assert_eq!(read(&copy, 512, 1024), [[1; 512], [0; 512]].concat());
        image.write(512, &[0; 1024]);
        assert_eq!(read(&image, 0, PAGE), [0; PAGE]);
    }

    #[test]
    fn files_hold_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let mut image = Image::new(3 * PAGE as u64);
        image.write(PAGE as u64 + 512, b"words");
        image.save(&dir.path().join("image")).unwrap();
        let again = Image::load(&dir.path().join("image")).unwrap();
        assert_eq!(again.bytes(), image.bytes());
        assert_eq!(read(&again, 0, 3 * PAGE), read(&image, 0, 3 * PAGE));
        assert!(again.pages[0].is_none());
    }
}
