#![allow(clippy::all, missing_docs)]
use super::support::*;
use crate::io::*;
use crate::key::*;
use crate::table::*;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tamis_filter::Digest;

#[derive(Debug)]
struct W(std::fs::File);
impl WriteFile for W {
    fn append(&mut self, b: &[u8]) -> io::Result<()> { self.0.write_all(b) }
    fn sync(&mut self) -> io::Result<()> { Ok(()) }
    fn preallocate(&mut self, _: u64) -> io::Result<()> { Ok(()) }
    fn truncate_to_written(&mut self) -> io::Result<()> { Ok(()) }
}
#[derive(Debug)]
struct R(std::fs::File);
impl ReadFile for R {
    fn read_exact_at(&self, buf: &mut [u8], o: u64) -> io::Result<()> { std::os::unix::fs::FileExt::read_exact_at(&self.0, buf, o) }
    fn len(&self) -> io::Result<u64> { Ok(self.0.metadata()?.len()) }
    fn map(&self) -> io::Result<Option<Mapping>> {
        let m = unsafe { memmap2::Mmap::map(&self.0)? };
        let _ = m.advise(memmap2::Advice::Random);
        Ok(Some(Mapping::new(Arc::new(m))))
    }
}
#[derive(Debug)]
struct Fs;
impl FileSystem for Fs {
    fn create(&self, p: &Path, _: Usage) -> io::Result<Box<dyn WriteFile>> { Ok(Box::new(W(std::fs::File::create(p)?))) }
    fn open(&self, p: &Path, _: Access) -> io::Result<Arc<dyn ReadFile>> { Ok(Arc::new(R(std::fs::File::open(p)?))) }
    fn reuse(&self, _: &Path, _: &Path) -> io::Result<Box<dyn WriteFile>> { todo() }
    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> { todo() }
    fn remove(&self, _: &Path) -> io::Result<()> { todo() }
    fn remove_dir_all(&self, _: &Path) -> io::Result<()> { todo() }
    fn link_or_copy(&self, _: &Path, _: &Path) -> io::Result<()> { todo() }
    fn create_dir_all(&self, _: &Path) -> io::Result<()> { todo() }
    fn list(&self, _: &Path) -> io::Result<Vec<String>> { todo() }
    fn sync_dir(&self, _: &Path) -> io::Result<()> { todo() }
    fn exists(&self, _: &Path) -> io::Result<bool> { todo() }
    fn file_len(&self, _: &Path) -> io::Result<u64> { todo() }
    fn lock(&self, _: &Path) -> io::Result<Option<Box<dyn DirLock>>> { todo() }
    fn available_space(&self, _: &Path) -> io::Result<Option<u64>> { todo() }
}
fn todo<T>() -> io::Result<T> { Err(io::ErrorKind::Unsupported.into()) }
struct Rng(u64);
impl Rng { fn next(&mut self) -> u64 { self.0 = self.0.wrapping_add(0x9E3779B97F4A7C15); let mut z = self.0; z = (z ^ (z >> 30)).wrapping_mul(0xBF58476D1CE4E5B9); z = (z ^ (z >> 27)).wrapping_mul(0x94D049BB133111EB); z ^ (z >> 31) } }

#[test]
#[ignore]
fn bench() {
    let n: usize = std::env::var("N").ok().and_then(|v| v.parse().ok()).unwrap_or(4_000_000);
    let tables_n = 16;
    let mut rng = Rng(1);
    let mut keys: Vec<u64> = (0..n).map(|_| rng.next()).collect();
    keys.sort(); keys.dedup();
    let dir = PathBuf::from("/tmp/wt/table/target/benchdata"); std::fs::create_dir_all(&dir).unwrap();
    let value = [7u8; 256];
    for (label, options) in [("4k hash", TableOptions::default()), ("4k nohash", TableOptions { hash_index: false, ..TableOptions::default() }), ("16k hash", TableOptions { block_bytes: 16384, ..TableOptions::default() }), ("16k nohash", TableOptions { block_bytes: 16384, hash_index: false, ..TableOptions::default() })] {
        let t0 = Instant::now();
        let per = keys.len() / tables_n + 1;
        let mut bounds = vec![]; let mut tables = vec![];
        for (i, chunk) in keys.chunks(per).enumerate() {
            let p = dir.join(format!("{i}.tam"));
            let mut b = TableBuilder::new(Fs.create(&p, Usage::Table).unwrap(), &p, options.clone());
            for k in chunk { let kb = k.to_be_bytes(); b.add(&kb, Digest::of(&kb), k % 65536, Kind::Put, &value).unwrap(); }
            b.finish(None, None, ExtraProperties::default()).unwrap();
            bounds.push(chunk[0]);
        }
        let build = t0.elapsed();
        for i in 0..bounds.len() { tables.push(Table::open(&Fs, &dir.join(format!("{i}.tam")), i as u64, ReaderConfig { map: true, pin_metadata: true, ..Default::default() }).unwrap()); }
        let t0 = Instant::now();
        for t in &tables { let mut c = TableCursor::new(t.clone(), CursorOptions::default()); c.seek_to_first().unwrap(); while c.valid() { c.next().unwrap(); } }
        let scan = t0.elapsed();
        let t0 = Instant::now();
        let mut sum = 0u64;
        for t in &tables { let mut c = TableCursor::new(t.clone(), CursorOptions::default()); c.seek_to_first().unwrap(); while c.valid() { sum += u64::from(c.key()[7]) + u64::from(c.value()[0]); c.next().unwrap(); } }
        let scan2 = t0.elapsed();
        let q = 1_000_000;
        let mem: usize = tables.iter().map(|t| t.memory_bytes()).sum();
        println!("{label}: build {:?} ns/entry, first scan {} ns, scan {} ns/entry, mem {} MB", build.as_nanos() as usize / n, scan.as_nanos() as usize / n, scan2.as_nanos() as usize / n, mem >> 20);
        for round in 0..3 {
            let ks: Vec<u64> = (0..q).map(|_| keys[(rng.next() % keys.len() as u64) as usize]).collect();
            let t0 = Instant::now();
            for k in &ks { let kb = k.to_be_bytes(); let i = bounds.partition_point(|b| b <= k) - 1; let at = tables[i].locate(&kb, &mut ()).unwrap().unwrap(); sum += at.offset; }
            let locate = t0.elapsed().as_nanos() as usize / q;
            let t0 = Instant::now();
            for k in &ks { let kb = k.to_be_bytes(); let i = bounds.partition_point(|b| b <= k) - 1;
                let TableLookup::Found { seq, .. } = tables[i].get(&kb, Some(Digest::of(&kb)), MAX_SEQNO, &mut ()).unwrap() else { panic!() }; sum += seq; }
            let get = t0.elapsed().as_nanos() as usize / q;
            let ks: Vec<u64> = (0..q).map(|_| keys[(rng.next() % keys.len() as u64) as usize]).collect();
            let t0 = Instant::now();
            for k in &ks { let kb = k.to_be_bytes(); let i = bounds.partition_point(|b| b <= k) - 1;
                let TableLookup::Found { value, .. } = tables[i].get(&kb, Some(Digest::of(&kb)), MAX_SEQNO, &mut ()).unwrap() else { panic!() }; sum += value.chunks(64).map(|c| c[0] as u64).sum::<u64>(); }
            let getv = t0.elapsed().as_nanos() as usize / q;
            let ks: Vec<u64> = (0..q).map(|_| rng.next().max(bounds[0])).collect();
            let t0 = Instant::now();
            for k in &ks { let kb = k.to_be_bytes(); let i = bounds.partition_point(|b| b <= k) - 1;
                if let TableLookup::Found { seq, .. } = tables[i].get(&kb, Some(Digest::of(&kb)), MAX_SEQNO, &mut ()).unwrap() { sum += seq; } }
            let absent = t0.elapsed().as_nanos() as usize / q;
            let ks: Vec<u64> = (0..q).map(|_| keys[(rng.next() % keys.len() as u64) as usize]).collect();
            let t0 = Instant::now();
            for batch in ks.chunks(32) {
                let mut ats = [None; 32];
                for (k, at) in batch.iter().zip(&mut ats) { let kb = k.to_be_bytes(); let i = bounds.partition_point(|b| b <= k) - 1; let a = tables[i].locate(&kb, &mut ()).unwrap().unwrap(); tables[i].prefetch_block(a); *at = Some((i, a)); }
                for (k, at) in batch.iter().zip(&ats) { let kb = k.to_be_bytes(); let (i, a) = at.unwrap();
                    let TableLookup::Found { seq, .. } = tables[i].get_in_block(a, &kb, Some(Digest::of(&kb)), MAX_SEQNO, &mut ()).unwrap() else { panic!() }; sum += seq; }
            }
            let batch = t0.elapsed().as_nanos() as usize / q;
            let hot: Vec<u64> = ks[..1000].to_vec();
            let t0 = Instant::now();
            for _ in 0..200 { for k in &hot { let kb = k.to_be_bytes(); let i = bounds.partition_point(|b| b <= k) - 1;
                let TableLookup::Found { seq, .. } = tables[i].get(&kb, Some(Digest::of(&kb)), MAX_SEQNO, &mut ()).unwrap() else { panic!() }; sum += seq; } }
            let hot = t0.elapsed().as_nanos() as usize / 200_000;
            println!("  round {round}: locate {locate} get {get} get+value {getv} absent {absent} batch32 {batch} hot {hot}   {}", sum & 1);
        }
    }
}
