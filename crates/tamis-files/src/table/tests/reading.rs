//! Tests of particular tables: extreme sizes, many versions, and the cost of reads.

use crate::settings::{ChecksumMode, Compression};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tamis_base::key::{Entry, MAX_SEQNO};
use tamis_filter::Digest;

use super::support::*;
use crate::table::block::{BlockView, HashAnswer};
use crate::table::cache::BlockCache;
use crate::table::*;

fn numbered(count: u64, value_bytes: usize) -> Vec<Version> {
    (0..count)
        .map(|i| put(i.wrapping_mul(0x10001).to_be_bytes(), i % 100, vec![i as u8; value_bytes]))
        .collect()
}

/// Records every event.
#[derive(Debug, Default)]
struct Log {
    touches: Vec<BlockTouch>,
    answers: Vec<HashAnswer>,
    searches: usize,
    checksums: usize,
    metadata: Vec<BlockSource>,
}

impl ReadTrace for Log {
    fn index_searched(&mut self) {
        self.searches += 1;
    }
    fn block_touched(&mut self, touch: BlockTouch) {
        self.touches.push(touch);
    }
    fn hash_index_answered(&mut self, answer: HashAnswer) {
        self.answers.push(answer);
    }
    fn metadata_touched(&mut self, touch: BlockTouch) {
        self.metadata.push(touch.source);
    }
    fn checksum_verified(&mut self) {
        self.checksums += 1;
    }
}

fn traced(table: &Table, key: &[u8]) -> Log {
    let mut log = Log::default();
    table.get(key, Some(Digest::of(key)), MAX_SEQNO, &mut log).unwrap();
    log
}

#[test]
fn blocks_of_usual_entries_stay_within_their_size_and_are_well_filled() {
    let fs = TestFs::default();
    let finished = write(&fs, &numbered(20_000, 256), &TableOptions::default(), None, None);
    let table = open(&fs, mapped()).unwrap();
    let index = table.index(&mut ()).unwrap();
    let spans: Vec<u64> = (0..index.len()).map(|i| index.block(i).unwrap().span).collect();
    assert!(spans.iter().all(|&span| span <= 4096), "a block exceeds its size");
    assert!(finished.properties.entries as f64 / spans.len() as f64 >= 14.0);
    assert!(index.memory_bytes() < 40 * index.len(), "{} bytes for {}", index.memory_bytes(), index.len());
}

/// Nearly every block lay in two pages: a get read both, and the page cache held half as many.
#[test]
fn a_block_lies_in_one_page_if_that_is_cheap() {
    let mut random = 7u64;
    let mut noise = move |len: usize| {
        let bytes = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 56) as u8
        });
        bytes.take(len).collect::<Vec<u8>>()
    };
    let model: Vec<_> = (0..5000u64).map(|i| put(i.to_be_bytes(), i, noise(200))).collect();
    // Entries of which three and a half fill a block.
    let large: Vec<_> = (0..2000u64).map(|i| put(i.to_be_bytes(), i, noise(1130))).collect();
    for compression in [Compression::None, Compression::Lz4] {
        let options = TableOptions { compression, ..TableOptions::default() };
        let blocks = |model: &[Version]| {
            let fs = TestFs::default();
            write(&fs, model, &options, None, None);
            let table = open(&fs, mapped()).unwrap();
            assert_eq!(scan(&table, CursorOptions::default()).unwrap(), model);
            assert_eq!(table.check().problems, vec![]);
            let index = table.index(&mut ()).unwrap();
            (0..index.len()).map(|i| index.block(i).unwrap()).collect::<Vec<_>>()
        };
        let (all, raw) = (blocks(&model), (model.len() * 208) as u64);
        assert!(all.iter().all(|at| at.offset % 4096 == 0 && at.span <= 4096), "{compression:?}");
        assert!(all.len() as u64 * 4096 < raw + raw / 10, "{} blocks", all.len());
        // Half a block of padding would be too much.
        let (few, raw) = (blocks(&large), (large.len() * 1138) as u64);
        assert!(few.iter().map(|at| at.span).sum::<u64>() < raw + raw / 20, "{} blocks", few.len());
    }
    // Compressed blocks have any length.
    let (fs, model) = (TestFs::default(), numbered(5000, 200));
    let options = TableOptions { compression: Compression::Lz4, ..TableOptions::default() };
    write(&fs, &model, &options, None, None);
    assert!(open(&fs, mapped()).unwrap().file_bytes() < 5000 * 100);
}

#[test]
fn appends_end_where_huge_pages_do() {
    let fs = TestFs::default();
    write(&fs, &numbered(20_000, 256), &TableOptions::default(), Some(vec![0; 5000]), None);
    let appends = fs.appends.lock();
    let (_, but_last) = appends.split_last().unwrap();
    assert!(but_last.len() >= 2 && but_last.iter().all(|&len| len == 2 << 20), "{appends:?}");
}

#[test]
fn a_filter_of_some_size_begins_on_a_cache_line_and_a_small_one_costs_no_padding() {
    for compression in [Compression::None, Compression::Lz4] {
        for (entries, filter_bytes) in
            [(1, 4096), (40, 4095), (41, 20_000), (42, 20_001), (43, 70_000), (5000, 20_000)]
        {
            let fs = TestFs::default();
            let model = numbered(entries, 97);
            let options = TableOptions { compression, ..TableOptions::default() };
            let mut lengths = [Some(vec![7; filter_bytes]), Some(vec![7; 100])].map(|filter| {
                let len = filter.as_ref().map_or(0, Vec::len) as u64;
                write(&fs, &model, &options, filter, None);
                let table = open(&fs, mapped()).unwrap();
                let aligned = table.footer().filter.offset.is_multiple_of(64);
                assert!(aligned || len < 4096, "{entries} entries, {compression:?}");
                assert_eq!(table.check().problems, vec![]);
                assert_eq!(scan(&table, CursorOptions::default()).unwrap(), model);
                table.file_bytes() - len
            });
            lengths.reverse();
            let padding = lengths[1] - lengths[0];
            // Uncompressed, the last block is at most as long as its limit.
            let most = if compression == Compression::None { 63 } else { 4096 };
            assert!(if filter_bytes < 4096 { padding == 0 } else { padding <= most }, "{padding}");
        }
    }
}

#[test]
fn keys_may_be_empty_or_of_the_largest_size() {
    let long = |last: u8| {
        let mut key = vec![b'x'; 64 << 10];
        key[(64 << 10) - 1] = last;
        key
    };
    let model = vec![
        put(b"", 9, b"empty"),
        put(long(1), 5, b"one"),
        put(long(2), 6, b"two"),
        put(long(2), 3, b"old"),
    ];
    for hash_index in [false, true] {
        for block_bytes in [4096, 1 << 20] {
            let fs = TestFs::default();
            let options = TableOptions { hash_index, block_bytes, ..TableOptions::default() };
            write(&fs, &model, &options, None, None);
            let table = open(&fs, mapped()).unwrap();
            assert_eq!(scan(&table, CursorOptions::default()).unwrap(), model);
            for v in &model {
                let digest = Some(Digest::of(&v.key));
                assert_eq!(get(&table, &v.key, digest, v.seq).unwrap().as_ref(), Some(v));
            }
            assert_eq!(get(&table, &long(3), None, MAX_SEQNO).unwrap(), None);
            assert_eq!(get(&table, &long(0), None, MAX_SEQNO).unwrap(), None);
            assert_eq!(table.check().problems, vec![]);
        }
    }
}

#[test]
fn thousands_of_versions_of_one_key_fill_many_blocks() {
    let mut model = vec![put(b"a", 1, b"first")];
    model.extend((1..=5000u64).rev().map(|seq| put(b"k", seq * 2, seq.to_le_bytes())));
    model.push(put(b"l", 1, b"last"));
    let fs = TestFs::default();
    write(&fs, &model, &TableOptions { block_bytes: 1000, ..TableOptions::default() }, None, None);
    let table = open(&fs, mapped()).unwrap();
    assert!(table.properties().data_blocks > 20);
    for snapshot in [0, 1, 2, 3, 777, 5000, 9999, 10_000, MAX_SEQNO] {
        let expected = model.iter().find(|v| v.key == b"k" && v.seq <= snapshot).cloned();
        let digest = Some(Digest::of(b"k"));
        assert_eq!(get(&table, b"k", digest, snapshot).unwrap(), expected, "at {snapshot}");
        assert_eq!(get(&table, b"k", None, snapshot).unwrap(), expected, "at {snapshot}");
    }
    let mut cursor = TableCursor::new(table, CursorOptions::default());
    cursor.seek(b"k", 1).unwrap();
    assert_eq!(cursor.key(), b"l");
    cursor.seek_before(b"k").unwrap();
    assert_eq!(cursor.key(), b"a");
    cursor.seek_before(b"l").unwrap();
    assert_eq!((cursor.key(), cursor.seq()), (&b"k"[..], 2));
}

#[test]
fn blocks_with_too_many_entries_have_no_hash_index() {
    let model: Vec<Version> = (0..2000u32).map(|i| put(i.to_be_bytes(), 7, b"")).collect();
    let fs = TestFs::default();
    write(&fs, &model, &TableOptions { block_bytes: 1 << 16, ..TableOptions::default() }, None, None);
    let table = open(&fs, mapped()).unwrap();
    let log = traced(&table, &77u32.to_be_bytes());
    assert_eq!(log.answers, [HashAnswer::NotAsked]);
    let block = table.fresh_block(table.index(&mut ()).unwrap().block(0).unwrap()).unwrap();
    assert!(BlockView::parse(&block).unwrap().len() > 254);
    for v in &model {
        assert_eq!(get(&table, &v.key, Some(Digest::of(&v.key)), 7).unwrap().as_ref(), Some(v));
    }
}

#[test]
fn huge_values_are_written_in_one_append_and_read_back() {
    let huge: Vec<u8> = (0..3u32 << 20).map(|i| ((i * 7) >> 3) as u8).collect();
    let model =
        vec![put(b"a", 1, b"small"), put(b"b", 2, &huge), put(b"c", 3, b"small"), put(b"d", 4, &huge)];
    for compression in [Compression::None, Compression::Lz4] {
        let fs = TestFs::default();
        write(&fs, &model, &TableOptions { compression, ..TableOptions::default() }, None, None);
        if compression == Compression::None {
            assert!(fs.appends.lock().contains(&huge.len()));
        }
        for config in [mapped(), cached(64 << 20)] {
            let table = open(&fs, config).unwrap();
            assert_eq!(scan(&table, CursorOptions { fill_cache: true, read_ahead: 1 }).unwrap(), model);
            assert_eq!(get(&table, b"b", Some(Digest::of(b"b")), 9).unwrap().as_ref(), Some(&model[1]));
            assert_eq!(table.check().problems, vec![]);
        }
    }
}

#[test]
fn a_mapped_get_touches_one_block_verifies_it_once_and_reads_nothing() {
    let fs = TestFs::default();
    let model = numbered(5000, 100);
    write(&fs, &model, &TableOptions::default(), None, None);
    let table = open(&fs, mapped()).unwrap();
    let first = traced(&table, &model[1234].key);
    assert_eq!((first.searches, first.touches.len(), first.checksums), (1, 1, 1));
    assert_eq!(first.touches[0].source, BlockSource::Mapped);
    let second = traced(&table, &model[1234].key);
    assert_eq!((second.touches.len(), second.checksums), (1, 0));
    assert_eq!(fs.reads.load(Ordering::Relaxed), 0);

    let table = open(&fs, ReaderConfig { verify: ChecksumMode::Always, ..mapped() }).unwrap();
    for _ in 0..2 {
        assert_eq!(traced(&table, &model[1234].key).checksums, 1);
    }
}

/// A mapped block on a device took a page fault for each of its pages, of as many bytes as the
/// system reads ahead: 8 MiB on some.
#[test]
fn what_a_mapped_table_touches_for_the_first_time_is_announced() {
    let fs = TestFs::default();
    let model = numbered(5000, 100);
    let filter = vec![7; 3000];
    write(&fs, &model, &TableOptions::default(), Some(filter), None);
    for (verify, is_scarce) in
        [(ChecksumMode::Once, false), (ChecksumMode::Always, false), (ChecksumMode::Once, true)]
    {
        // Where memory is scarce a block that was touched before may be on the device again.
        fs.scarce.store(is_scarce, Ordering::Relaxed);
        fs.announced.lock().clear();
        let table = open(&fs, ReaderConfig { verify, ..mapped() }).unwrap();
        let parts = std::mem::take(&mut *fs.announced.lock());
        assert_eq!(parts.len(), 3, "footer, properties and index: {parts:?}");
        table.filter_bytes().unwrap();
        let filter = table.footer().filter;
        let whole = filter.offset as usize..(filter.offset + filter.span) as usize;
        assert_eq!(std::mem::take(&mut *fs.announced.lock()), vec![whole]);

        let touched = traced(&table, &model[1234].key).touches[0];
        let block = touched.offset as usize..(touched.offset + touched.stored_bytes) as usize;
        assert_eq!(std::mem::take(&mut *fs.announced.lock()), vec![block]);
        traced(&table, &model[1234].key);
        assert_eq!(std::mem::take(&mut *fs.announced.lock()).len(), usize::from(is_scarce), "touched before");

        scan(&table, CursorOptions { fill_cache: true, read_ahead: 1 }).unwrap();
        let parts = std::mem::take(&mut *fs.announced.lock());
        let before = u64::from(!is_scarce);
        assert_eq!(
            parts.len() as u64,
            table.properties().data_blocks - before,
            "every block, or every other one"
        );

        let mut bytes = [0; 100];
        table.read_stored(&mut bytes, 50).unwrap();
        assert_eq!(std::mem::take(&mut *fs.announced.lock()), vec![50..150], "a copy of the file");
        table.read_stored(&mut bytes, table.file_bytes() - 50).unwrap_err();
    }
}

/// A scan of a mapped table waited for one block after another.
#[test]
fn what_a_scan_will_need_is_announced_together_and_once() {
    let fs = TestFs::default();
    let model = numbered(5000, 100);
    write(&fs, &model, &TableOptions::default(), None, None);
    fs.scarce.store(true, Ordering::Relaxed);
    let table = open(&fs, mapped()).unwrap();
    let index = table.index(&mut ()).unwrap();
    let range = |first: usize, count: usize| {
        let (first, last) = (index.block(first).unwrap(), index.block(first + count - 1).unwrap());
        first.offset as usize..(last.offset + last.span) as usize
    };
    let announced = || std::mem::take(&mut *fs.announced.lock());
    announced();
    let mut cursor = TableCursor::new(table.clone(), CursorOptions::default());
    cursor.defer();
    cursor.prepare(&model[1000].key).unwrap();
    let mut coming = cursor.coming(false).unwrap();
    let sought = index.find(&model[1000].key).unwrap();
    assert!(coming.is_sought());
    (0..4).for_each(|_| assert!(coming.take(MOST_BYTES) > 0));
    announce_coming(&mut [&mut coming]);
    cursor.accept(coming);
    assert_eq!(announced(), [range(sought, 4)]);
    cursor.seek(&model[1000].key, MAX_SEQNO).unwrap();
    let mut passed = 0;
    // Each time at the edge of a block.
    for block in 0..4 {
        while cursor.valid() {
            assert_eq!(*cursor.key(), *model[1000 + passed].key);
            passed += 1;
            cursor.next().unwrap();
        }
        if block < 3 {
            cursor.resume().unwrap();
        }
    }
    assert_eq!(announced(), []);
    // Beyond, there is more to announce; if nobody does, the cursor announces what it touches.
    assert!(cursor.coming(false).is_some());
    cursor.resume().unwrap();
    assert_eq!(announced(), [range(sought + 4, 1)]);
    // Backwards, and where memory is no longer scarce.
    cursor.prepare_before(Some(&model[3000].key)).unwrap();
    let mut coming = cursor.coming(true).unwrap();
    (0..3).for_each(|_| assert!(coming.take(MOST_BYTES) > 0));
    announce_coming(&mut [&mut coming]);
    cursor.accept(coming);
    let sought = index.find(&model[3000].key).unwrap();
    assert_eq!(announced(), [range(sought - 2, 3)]);
    fs.scarce.store(false, Ordering::Relaxed);
    cursor.seek_before(&model[3000].key).unwrap();
    cursor.resume().unwrap();
    assert_eq!(*cursor.key(), *model[2999].key);
    table.announce_blocks(index.block(7).unwrap());
    assert_eq!(announced(), []);
}

#[test]
fn an_unmapped_get_reads_once_and_then_hits_the_cache() {
    let fs = TestFs::default();
    let model = numbered(5000, 100);
    write(&fs, &model, &TableOptions::default(), None, None);
    let table = open(&fs, cached(1 << 20)).unwrap();
    let before = fs.reads.load(Ordering::Relaxed);
    let miss = traced(&table, &model[99].key);
    assert!(matches!(miss.touches[0].source, BlockSource::File { read_bytes } if read_bytes <= 4096));
    assert_eq!(traced(&table, &model[99].key).touches[0].source, BlockSource::Cache);
    assert_eq!(fs.reads.load(Ordering::Relaxed), before + 1);

    let unpinned = open(&fs, ReaderConfig { pin_metadata: false, ..cached(1 << 20) }).unwrap();
    let first = traced(&unpinned, &model[99].key);
    assert!(matches!(first.metadata[..], [BlockSource::File { .. }]));
    assert_eq!(traced(&unpinned, &model[99].key).metadata, [BlockSource::Cache]);
}

#[test]
fn a_compressed_mapped_block_is_decompressed_once() {
    let fs = TestFs::default();
    let model = numbered(5000, 100);
    let options = TableOptions { compression: Compression::Lz4, ..TableOptions::default() };
    write(&fs, &model, &options, None, None);
    let config = ReaderConfig { map: true, ..cached(1 << 20) };
    let table = open(&fs, config).unwrap();
    assert_eq!(traced(&table, &model[99].key).touches[0].source, BlockSource::Decompressed);
    assert_eq!(traced(&table, &model[99].key).touches[0].source, BlockSource::Cache);
}

#[test]
fn readahead_takes_few_reads_both_ways_and_bypasses_the_cache() {
    let fs = TestFs::default();
    let model = numbered(20_000, 100);
    let finished = write(&fs, &model, &TableOptions::default(), None, None);
    let cache = Arc::new(BlockCache::new(8 << 20, 4096));
    let config = ReaderConfig { cache: Some(cache.clone()), pin_metadata: true, ..ReaderConfig::default() };
    let table = open(&fs, config).unwrap();
    let before = fs.reads.load(Ordering::Relaxed);
    let options = CursorOptions { fill_cache: true, read_ahead: 1 << 20 };
    assert_eq!(scan(&table, options).unwrap(), model);
    let mut cursor = TableCursor::new(table, options);
    cursor.seek_to_last().unwrap();
    let mut seen = 0;
    while cursor.valid() {
        seen += 1;
        cursor.prev().unwrap();
    }
    assert_eq!(seen, model.len());
    let reads = fs.reads.load(Ordering::Relaxed) - before;
    assert!(reads <= 2 * (finished.file_bytes >> 20) + 6, "{reads} reads");
    assert_eq!(cache.used_bytes(), 0);
    let counts = cursor.take_counts();
    assert_eq!(counts.blocks, finished.properties.data_blocks);
    assert!(counts.io_reads > 0 && counts.io_reads <= reads);
}

#[test]
fn the_hash_index_answers_for_present_keys_and_most_absent_ones() {
    let fs = TestFs::default();
    let model = numbered(20_000, 256);
    write(&fs, &model, &TableOptions::default(), None, None);
    let table = open(&fs, mapped()).unwrap();
    let count = |keys: &mut dyn Iterator<Item = Vec<u8>>, wanted: HashAnswer| {
        keys.filter(|key| traced(&table, key).answers == [wanted]).count()
    };
    let hits = count(&mut model.iter().map(|v| v.key.clone()), HashAnswer::Hit);
    assert!(hits > 8_000, "{hits} hits");
    let absent = |v: &Version| [&v.key[..], b"x"].concat();
    let absences = count(&mut model.iter().map(absent), HashAnswer::Absent);
    assert!(absences > 12_000, "{absences} absences");
}

#[test]
fn values_outlive_table_and_cursor() {
    let fs = TestFs::default();
    let model = numbered(100, 50);
    write(&fs, &model, &TableOptions::default(), None, None);
    for config in [mapped(), cached(0)] {
        let table = open(&fs, config).unwrap();
        let Some(Entry { value, .. }) = table.get(&model[7].key, None, MAX_SEQNO, &mut ()).unwrap() else {
            panic!("the key is there");
        };
        let mut cursor = TableCursor::new(table, CursorOptions::default());
        cursor.seek_to_last().unwrap();
        let last = cursor.pinned_value();
        drop(cursor);
        assert_eq!((&value[..], &last[..]), (&model[7].value[..], &model[99].value[..]));
    }
}

#[test]
fn batched_lookups_answer_as_single_ones() {
    let fs = TestFs::default();
    let model = numbered(5000, 30);
    write(&fs, &model, &TableOptions::default(), None, None);
    let table = open(&fs, mapped()).unwrap();
    let located: Vec<_> = model.iter().map(|v| table.locate(&v.key, &mut ()).unwrap().unwrap()).collect();
    located.iter().for_each(|&at| table.prefetch_block(at));
    for (v, at) in model.iter().zip(located) {
        let found = table.get_in_block(at, &v.key, Some(Digest::of(&v.key)), MAX_SEQNO, &mut ()).unwrap();
        assert!(matches!(found, Some(Entry { value, .. }) if value[..] == v.value[..]));
    }
}

#[test]
fn a_table_of_tombstones_only_has_no_data() {
    let fs = TestFs::default();
    let finished = write(&fs, &[], &TableOptions::default(), None, Some(b"t".to_vec()));
    assert_eq!((finished.properties.min_seq, finished.properties.max_seq), (0, 0));
    let table = open(&fs, mapped()).unwrap();
    assert_eq!(get(&table, b"", None, MAX_SEQNO).unwrap(), None);
    assert_eq!(scan(&table, CursorOptions::default()).unwrap(), vec![]);
    assert_eq!(&table.tombstone_bytes().unwrap().unwrap()[..], b"t");
    assert_eq!(table.check(), crate::table::check::TableCheck::default());
}
