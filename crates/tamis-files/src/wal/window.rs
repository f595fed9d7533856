//! A bounded view of a log file that moves forward as the log is read.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tamis_env::io::ReadFile;
use xxhash_rust::xxh3::Xxh3;

use crate::error::StorageError;

/// The read size, in bytes. Only a longer record makes the window larger.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// Part of a file in memory. Invariant: `buf` holds the file's bytes from `base` on.
#[derive(Debug)]
pub(super) struct Window {
    file: Arc<dyn ReadFile>,
    pub(super) path: PathBuf,
    /// The file's length when it was opened or refreshed; nothing beyond it is read.
    pub(super) len: u64,
    base: u64,
    buf: Vec<u8>,
}

impl Window {
    pub(super) fn new(file: Arc<dyn ReadFile>, path: PathBuf) -> Result<Window, StorageError> {
        let len = file.len().map_err(|e| StorageError::io("read the length of", &path, e))?;
        Ok(Window { file, path, len, base: 0, buf: Vec::new() })
    }

    /// Forgets the bytes read and updates the file's length.
    pub(super) fn refresh(&mut self) -> Result<(), StorageError> {
        self.buf.clear();
        self.len = self.file.len().map_err(|e| StorageError::io("read the length of", &self.path, e))?;
        Ok(())
    }

    /// Returns up to `max` bytes from `offset` on, fewer only at the end of the file.
    pub(super) fn get(&mut self, offset: u64, max: u64) -> Result<&[u8], StorageError> {
        let available = self.len.saturating_sub(offset);
        let wanted = usize::try_from(max.min(available)).map_err(|_| self.no_memory())?;
        let held = self.base + self.buf.len() as u64;
        if offset < self.base || offset + wanted as u64 > held {
            self.fill(offset, wanted.max(CHUNK_BYTES.min(available as usize)))?;
        }
        let start = (offset - self.base) as usize;
        Ok(&self.buf[start..start + wanted])
    }

    /// Returns all buffered bytes from `offset` on, at least `min` of them (fewer only at the end
    /// of the file).
    pub(super) fn ahead(&mut self, offset: u64, min: u64) -> Result<&[u8], StorageError> {
        self.get(offset, min)?;
        Ok(&self.buf[(offset - self.base) as usize..])
    }

    fn fill(&mut self, offset: u64, len: usize) -> Result<(), StorageError> {
        // On a failure, nothing is held.
        let mut buf = std::mem::take(&mut self.buf);
        buf.clear();
        buf.shrink_to(CHUNK_BYTES);
        buf.try_reserve_exact(len).map_err(|_| self.no_memory())?;
        buf.resize(len, 0);
        self.file.read_exact_at(&mut buf, offset).map_err(|e| StorageError::io("read", &self.path, e))?;
        (self.base, self.buf) = (offset, buf);
        Ok(())
    }

    fn no_memory(&self) -> StorageError {
        StorageError::io("hold a record of", &self.path, io::Error::from(io::ErrorKind::OutOfMemory))
    }

    /// Returns the seeded XXH3-64 of the bytes in `start..end`, read in chunks. `end` must lie
    /// within the file.
    pub(super) fn hash(&mut self, seed: u64, start: u64, end: u64) -> Result<u64, StorageError> {
        debug_assert!(end <= self.len);
        let mut hasher = Xxh3::with_seed(seed);
        let mut at = start;
        while at < end {
            let bytes = self.get(at, (end - at).min(CHUNK_BYTES as u64))?;
            hasher.update(bytes);
            at += bytes.len() as u64;
        }
        Ok(hasher.digest())
    }

    /// Reports whether all bytes from `offset` to the end of the file are zero. Stops reading after
    /// the first chunk with another byte.
    pub(super) fn zeros_from(&mut self, offset: u64) -> Result<bool, StorageError> {
        let mut at = offset;
        while at < self.len {
            let bytes = self.get(at, CHUNK_BYTES as u64)?;
            if bytes.iter().any(|&b| b != 0) {
                return Ok(false);
            }
            at += bytes.len() as u64;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tamis_env::io::{Access, FileSystem, Usage};
    use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

    use super::*;

    const LEN: usize = 3 * CHUNK_BYTES + 100;

    fn content(at: usize) -> u8 {
        (at.wrapping_mul(at) >> 9) as u8
    }

    fn window(fs: &FaultyFs) -> Window {
        let path = Path::new("/file");
        let bytes: Vec<u8> = (0..LEN).map(content).collect();
        fs.create(path, Usage::Log).unwrap().append(&bytes).unwrap();
        Window::new(fs.open(path, Access::Sequential).unwrap(), path.to_owned()).unwrap()
    }

    fn check(window: &mut Window, offset: usize, max: usize) {
        let bytes = window.get(offset as u64, max as u64).unwrap();
        let end = LEN.min(offset.saturating_add(max));
        assert!(bytes.iter().copied().eq((offset..end).map(content)), "{max} bytes at {offset}");
    }

    #[test]
    fn all_bytes_can_be_had_in_any_order() {
        let mut window = window(&FaultyFs::new(1));
        let places = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, LEN - 1, LEN];
        for first in places {
            for second in places {
                for max in [0, 1, 2, CHUNK_BYTES, CHUNK_BYTES + 1, LEN] {
                    check(&mut window, first, 1);
                    check(&mut window, second, max);
                }
            }
        }
    }

    #[test]
    fn a_long_record_does_not_keep_its_memory() {
        let mut window = window(&FaultyFs::new(1));
        check(&mut window, 10, LEN);
        assert!(window.buf.capacity() >= LEN - 10);
        check(&mut window, 0, 1);
        assert!(window.buf.capacity() <= CHUNK_BYTES + 100, "{} bytes are held", window.buf.capacity());
    }

    /// A file that claims to be as long as files can be.
    #[derive(Debug)]
    struct Endless;

    impl ReadFile for Endless {
        fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(u64::MAX)
        }
    }

    #[test]
    fn a_record_that_memory_cannot_hold_is_an_error() {
        let mut window = Window::new(Arc::new(Endless), PathBuf::from("/file")).unwrap();
        let error = window.get(0, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("hold a record of"), "{error}");
        assert_eq!(window.get(1 << 40, 10).unwrap(), [0; 10]);
    }

    /// Otherwise bytes of one place would pass for those of another.
    #[test]
    fn after_a_failed_read_nothing_is_held() {
        let fs = FaultyFs::new(1);
        let mut window = window(&fs);
        for (known, failing) in [(0, 2 * CHUNK_BYTES), (2 * CHUNK_BYTES, 0)] {
            check(&mut window, known, 10);
            fs.plan(FaultPlan { fail_at: Some(0), only: Some(OpClass::Read), ..FaultPlan::none() });
            window.get(failing as u64, 10).unwrap_err();
            fs.plan(FaultPlan::none());
            check(&mut window, failing + 5, 10);
            check(&mut window, known, 10);
        }
    }

    #[test]
    fn a_refreshed_window_has_what_the_file_has_now() {
        let fs = FaultyFs::new(1);
        let mut window = window(&fs);
        for (offset, xor) in [(0, 1), (CHUNK_BYTES as u64, 2)] {
            let before = window.get(offset, 2).unwrap().to_vec();
            fs.corrupt("/file", offset, xor).unwrap();
            fs.truncate("/file", offset + 2).unwrap();
            window.refresh().unwrap();
            assert_eq!(window.len, offset + 2);
            assert_eq!(window.get(offset, 3).unwrap(), [before[0] ^ xor, before[1]]);
            // The next round needs the whole file.
            fs.create(Path::new("/file"), Usage::Log).unwrap();
            window = self::window(&fs);
        }
    }
}
