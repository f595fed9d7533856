//! A bounded cache of stretches of objects, in local files that survive restarts.
//!
//! # Bytes
//!
//! Segments, `blocks-<number>`, to the newest of which entries are appended: magic (4 bytes, little
//! endian as all of it), hash of the object (16), offset in it (8), length (4), XXH3-64 of these
//! fields and the bytes (8), the bytes. Segments are a sixteenth of the limit; when all are full,
//! the oldest goes as a whole. An entry of the oldest that is read moves to the newest, so what is
//! read stays.
//!
//! # Invariants
//!
//! An entry is used only if its checksum is right when it is read. Nothing is synced: what a crash
//! loses or damages is fetched again. Failures of the disk are misses.
//!
//! # Threads
//!
//! Any number. The mutex covers the index and appends; reads of segments are outside.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use tamis::io::{Access, FileSystem, ReadFile, Usage, WriteFile};
use xxhash_rust::xxh3::Xxh3;

use crate::error::Error;
use crate::parallel::locked;

const MAGIC: u32 = 0x7462_6c31;
const HEADER: usize = 40;

/// Longer stretches are not kept: scans would push out everything else.
const LONGEST: usize = 1 << 20;

const SEGMENTS: u64 = 16;

/// Hash of the object, offset, length.
pub(crate) type Key = (u128, u64, u32);

#[derive(Debug)]
pub(crate) struct Blocks {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    limit: u64,
    inner: Mutex<Inner>,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// Oldest first.
    segments: VecDeque<Segment>,
    entries: HashMap<Key, At>,
    /// Of the newest segment, if it takes more.
    out: Option<Box<dyn WriteFile>>,
    bytes: u64,
    next: u64,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    file: Arc<dyn ReadFile>,
    bytes: u64,
    keys: Vec<Key>,
}

#[derive(Clone, Copy, Debug)]
struct At {
    segment: u64,
    /// Where its header is.
    offset: u64,
}

impl Blocks {
    /// Opens the cache, with what an earlier process has left.
    pub(crate) fn open(fs: Arc<dyn FileSystem>, dir: &Path, limit: u64) -> Result<Blocks, Error> {
        let mut numbers: Vec<u64> = fs
            .list(dir)
            .map_err(Error::io(dir.display()))?
            .iter()
            .filter_map(|name| name.strip_prefix("blocks-")?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let mut inner = Inner::default();
        for number in numbers {
            inner.next = number + 1;
            match scan(&*fs, &path_of(dir, number)) {
                Ok((file, bytes, found)) if !found.is_empty() => {
                    let keys = found.iter().map(|(key, _)| *key).collect();
                    for (key, offset) in found {
                        inner.entries.insert(key, At { segment: number, offset });
                    }
                    inner.bytes += bytes;
                    inner.segments.push_back(Segment { number, file, bytes, keys });
                }
                _ => drop(fs.remove(&path_of(dir, number))),
            }
        }
        let dir = dir.to_owned();
        let (hits, misses) = Default::default();
        Ok(Blocks { fs, dir, limit, inner: Mutex::new(inner), hits, misses })
    }

    /// Fills `buf` if the stretch is here.
    pub(crate) fn get(&self, object: u128, offset: u64, buf: &mut [u8]) -> bool {
        let found = self.look(object, offset, buf);
        let counter = if found { &self.hits } else { &self.misses };
        counter.fetch_add(1, Relaxed);
        found
    }

    fn look(&self, object: u128, offset: u64, buf: &mut [u8]) -> bool {
        let Some(key) = key(object, offset, buf) else { return false };
        let (at, file, oldest) = {
            let inner = locked(&self.inner);
            let Some(at) = inner.entries.get(&key).copied() else { return false };
            let Some(segment) = inner.segments.iter().find(|segment| segment.number == at.segment) else {
                return false;
            };
            let full = inner.segments.len() as u64 >= SEGMENTS / 2;
            let oldest = full && inner.segments.front().is_some_and(|first| first.number == at.segment);
            (at, segment.file.clone(), oldest)
        };
        let mut header = [0; HEADER];
        let read = file.read_exact_at(&mut header, at.offset);
        let read = read.and_then(|()| file.read_exact_at(buf, at.offset + HEADER as u64));
        if read.is_err() || header != header_of(key, buf) {
            log::info!("a cached block of {} is damaged, and fetched again", self.dir.display());
            locked(&self.inner).entries.remove(&key);
            return false;
        }
        if oldest {
            self.put(object, offset, buf);
        }
        true
    }

    /// Keeps a stretch.
    pub(crate) fn put(&self, object: u128, offset: u64, bytes: &[u8]) {
        let Some(key) = key(object, offset, bytes) else { return };
        let len = (HEADER + bytes.len()) as u64;
        if len > self.limit / SEGMENTS {
            return;
        }
        let mut inner = locked(&self.inner);
        if let Err(error) = self.append(&mut inner, key, bytes, len) {
            // The next entry begins a new segment.
            log::info!("a block could not be cached in {}: {error}", self.dir.display());
            inner.out = None;
        }
    }

    fn append(&self, inner: &mut Inner, key: Key, bytes: &[u8], len: u64) -> std::io::Result<()> {
        let full = inner.segments.back().is_none_or(|segment| segment.bytes + len > self.limit / SEGMENTS);
        if full || inner.out.is_none() {
            let number = inner.next;
            let path = path_of(&self.dir, number);
            inner.next += 1;
            let out = self.fs.create(&path, Usage::Table)?;
            let file = self.fs.open(&path, Access::Random)?;
            inner.out = Some(out);
            inner.segments.push_back(Segment { number, file, bytes: 0, keys: Vec::new() });
        }
        while inner.bytes + len > self.limit && inner.segments.len() > 1 {
            self.drop_oldest(inner);
        }
        let (Some(out), Some(segment)) = (&mut inner.out, inner.segments.back_mut()) else { return Ok(()) };
        let mut entry = Vec::with_capacity(len as usize);
        entry.extend(header_of(key, bytes));
        entry.extend(bytes);
        out.append(&entry)?;
        inner.entries.insert(key, At { segment: segment.number, offset: segment.bytes });
        segment.keys.push(key);
        segment.bytes += len;
        inner.bytes += len;
        Ok(())
    }

    fn drop_oldest(&self, inner: &mut Inner) {
        let Some(oldest) = inner.segments.pop_front() else { return };
        for key in &oldest.keys {
            if inner.entries.get(key).is_some_and(|at| at.segment == oldest.number) {
                inner.entries.remove(key);
            }
        }
        inner.bytes -= oldest.bytes;
        // A file that stays is found by the next opening.
        let _ = self.fs.remove(&path_of(&self.dir, oldest.number));
    }

    /// Removes everything.
    pub(crate) fn clear(&self) {
        let mut inner = locked(&self.inner);
        inner.out = None;
        while !inner.segments.is_empty() {
            self.drop_oldest(&mut inner);
        }
    }

    /// Returns hits, misses and the bytes of all entries.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed), locked(&self.inner).bytes)
    }
}

fn key(object: u128, offset: u64, bytes: &[u8]) -> Option<Key> {
    let len = u32::try_from(bytes.len()).ok().filter(|_| !bytes.is_empty() && bytes.len() <= LONGEST)?;
    Some((object, offset, len))
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("blocks-{number}"))
}

fn header_of((object, offset, len): Key, bytes: &[u8]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..20].copy_from_slice(&object.to_le_bytes());
    header[20..28].copy_from_slice(&offset.to_le_bytes());
    header[28..32].copy_from_slice(&len.to_le_bytes());
    let mut hasher = Xxh3::new();
    hasher.update(&header[..32]);
    hasher.update(bytes);
    header[32..].copy_from_slice(&hasher.digest().to_le_bytes());
    header
}

type Scanned = (Arc<dyn ReadFile>, u64, Vec<(Key, u64)>);

/// Reads the headers of a segment, up to the first that is none. What they say is checked when an
/// entry is read.
fn scan(fs: &dyn FileSystem, path: &Path) -> std::io::Result<Scanned> {
    let file = fs.open(path, Access::Random)?;
    let len = file.len()?;
    let (mut offset, mut found) = (0u64, Vec::new());
    while len - offset > HEADER as u64 {
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, offset)?;
        let field = |at: usize, bytes: usize| {
            header[at..at + bytes].iter().rev().fold(0u128, |value, byte| value << 8 | u128::from(*byte))
        };
        let (object, at, bytes) = (field(4, 16), field(20, 8) as u64, field(28, 4) as u64);
        if field(0, 4) as u32 != MAGIC || bytes == 0 || bytes > len - offset - HEADER as u64 {
            break;
        }
        found.push(((object, at, bytes as u32), offset));
        offset += HEADER as u64 + bytes;
    }
    Ok((file, offset, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tamis::io::MemFs;
    use tamis_testkit::Rng;

    const DIR: &str = "/cache";

    fn opened(fs: &MemFs, limit: u64) -> Blocks {
        fs.create_dir_all(DIR.as_ref()).unwrap();
        Blocks::open(Arc::new(fs.clone()), DIR.as_ref(), limit).unwrap()
    }

    fn bytes_of(object: u128, offset: u64, len: usize) -> Vec<u8> {
        let mut rng = Rng::new(object as u64 ^ offset << 20 ^ len as u64);
        (0..len).map(|_| rng.next_u64() as u8).collect()
    }

    #[test]
    fn what_is_returned_is_what_was_kept_and_the_limit_holds() {
        let fs = MemFs::new();
        let limit = 64 << 10;
        let mut blocks = opened(&fs, limit);
        let mut rng = Rng::new(1);
        let mut hits = 0;
        for round in 0..20_000 {
            let (object, offset) = (u128::from(rng.below(4)), rng.below(64) * 4096);
            // Blocks of a file are read as they lie in it.
            let len = 1 + (offset / 4096 * 97 % 600) as usize;
            let mut buf = vec![0; len];
            if blocks.get(object, offset, &mut buf) {
                assert_eq!(buf, bytes_of(object, offset, len));
                hits += 1;
            } else {
                blocks.put(object, offset, &bytes_of(object, offset, len));
            }
            if round % 1000 == 999 {
                let before = blocks.counts().2;
                blocks = opened(&fs, limit);
                assert_eq!(blocks.counts().2, before, "a restart loses nothing");
            }
            assert!(blocks.counts().2 <= limit);
        }
        assert!(hits > 100, "{hits}");
        let on_disk: u64 = fs
            .list(DIR.as_ref())
            .unwrap()
            .iter()
            .map(|name| fs.file_len(&Path::new(DIR).join(name)).unwrap())
            .sum();
        assert!(on_disk <= limit);
    }

    #[test]
    fn what_is_read_often_stays() {
        let fs = MemFs::new();
        let blocks = opened(&fs, 64 << 10);
        blocks.put(7, 0, &bytes_of(7, 0, 500));
        for offset in 0..2000 {
            blocks.put(8, offset, &bytes_of(8, offset, 500));
            if offset % 4 == 0 {
                assert!(blocks.get(7, 0, &mut [0; 500]), "after {offset} others");
            }
        }
        assert!(!blocks.get(8, 0, &mut [0; 500]));
    }

    #[test]
    fn damage_is_a_miss() {
        let fs = tamis_testkit::FaultyFs::new(1);
        fs.create_dir_all(DIR.as_ref()).unwrap();
        let open = || Blocks::open(Arc::new(fs.clone()), DIR.as_ref(), 1 << 20).unwrap();
        let blocks = open();
        for offset in 0..10 {
            blocks.put(1, offset, &bytes_of(1, offset, 100));
        }
        drop(blocks);
        let path = Path::new(DIR).join("blocks-0");
        for at in 0..fs.file_len(&path).unwrap() {
            fs.corrupt(&path, at, 0x40).unwrap();
            let blocks = open();
            let found = (0..10u64).filter(|&offset| {
                let mut buf = [0; 100];
                let found = blocks.get(1, offset, &mut buf);
                assert!(!found || buf[..] == bytes_of(1, offset, 100), "byte {at}");
                found
            });
            assert!(found.count() < 10, "byte {at}");
            drop(blocks);
            if !fs.exists(&path).unwrap() {
                // The first header was damaged, and the segment went.
                let blocks = open();
                for offset in 0..10 {
                    blocks.put(1, offset, &bytes_of(1, offset, 100));
                }
                drop(blocks);
                let written = fs.list(DIR.as_ref()).unwrap();
                fs.rename(&Path::new(DIR).join(&written[0]), &path).unwrap();
            } else {
                fs.corrupt(&path, at, 0x40).unwrap();
            }
        }
    }
}
