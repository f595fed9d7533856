//! Extracts corpus seeds from the output of the public API.

use std::path::Path;

use tamis_base::key::KeyBytes;
use tamis_files::images::{ImageKind, ImageWriter};

use crate::reseal;
use tamis::io::{MemFs, read_file};

/// The parts of a table file with formats of their own.
#[derive(Debug, Default)]
pub struct TableParts {
    /// The decompressed content of the data blocks.
    pub blocks: Vec<Vec<u8>>,
    /// The filter, if there is one.
    pub filter: Option<Vec<u8>>,
    /// The range tombstones, if there are any.
    pub tombstones: Option<Vec<u8>>,
}

/// Splits a table file. Returns nothing for a file that makes no sense.
pub fn table_parts(file: &[u8]) -> TableParts {
    let Some([_, filter, tombstones, _, _]) = reseal::table_layout(file) else {
        return TableParts::default();
    };
    let part = |(at, span): (usize, usize)| reseal::block_content(&file[at..at + span]);
    let blocks = reseal::table_blocks(file).into_iter().filter_map(part).collect();
    TableParts { blocks, filter: part(filter), tombstones: part(tombstones) }
}

/// Returns a filter file of `images` neighbouring key ranges, each with an image of its keys and,
/// every other one, of their prefixes.
pub fn filter_file(images: u8) -> Vec<u8> {
    let (fs, path) = (MemFs::new(), Path::new("000009.flt"));
    let mut writer = ImageWriter::create(&fs, path, 9, 0).expect("a file in memory");
    for n in 0..images {
        let start = if n == 0 { KeyBytes::default() } else { KeyBytes::from([n; 3]) };
        let end = (n + 1 < images).then(|| KeyBytes::from([n + 1; 3]));
        let range = (start, end);
        writer
            .add(ImageKind::Keys, range.clone(), n.into(), &vec![n; usize::from(n) * 7])
            .expect("in memory");
        if n % 2 == 1 {
            writer.add(ImageKind::Prefixes, range, n.into(), b"prefixes").expect("in memory");
        }
    }
    writer.finish().expect("in memory");
    read_file(&fs, path).expect("a file in memory")
}
