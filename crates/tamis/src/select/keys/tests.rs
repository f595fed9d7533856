use std::path::Path;
use std::sync::Arc;

use tamis_base::epochs::EpochMap;
use tamis_base::key::{KeyEnd, Kind};
use tamis_base::meta::TableMeta;
use tamis_files::table::cache::BlockCache;
use tamis_files::table::{
    ExtraProperties, GLOBAL, KEY_LIST, KeyListBuilder, ReaderConfig, TableBuilder, TableOptions,
};
use tamis_files::tree::files::table_path;
use tamis_filter::Digest;

use super::*;
use crate::compaction::{FilterBuilder, NewKeys};
use crate::io::{FileSystem, MemFs, Usage, read_file};
use crate::options::{FilterChoice, KeyspaceOptions};
use crate::tree::open_table::TableFilter;

/// A table of several versions of keys, some of them deletes, with a given block in place of its
/// filter.
struct Sample {
    file: Vec<u8>,
    /// The location of the block in place of the filter.
    block: std::ops::Range<usize>,
    meta: TableMeta,
    keys: Vec<Vec<u8>>,
}

fn keys(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|i| format!("key{:05}{}", i * 3, "x".repeat(i as usize % 40)).into_bytes()).collect()
}

fn list_of(keys: &[Vec<u8>]) -> Vec<u8> {
    let mut list = KeyListBuilder::new();
    keys.iter().for_each(|key| assert!(list.add(key)));
    list.finish()
}

impl Sample {
    fn new(keys: Vec<Vec<u8>>, filter: Option<(&str, Vec<u8>)>) -> Sample {
        let kind = filter.as_ref().map_or("", |(kind, _)| *kind);
        Sample::of_kind(keys, kind, filter.as_ref().map(|(_, bytes)| bytes.clone()))
    }

    fn of_kind(keys: Vec<Vec<u8>>, kind: &str, bytes: Option<Vec<u8>>) -> Sample {
        let (fs, path) = (fs(), table_path(Path::new("/t"), 1));
        let options = TableOptions { block_bytes: 512, ..TableOptions::default() };
        let file = fs.create(&path, Usage::Table).unwrap();
        let mut builder = TableBuilder::new(file, path.clone(), options);
        for (i, key) in keys.iter().enumerate() {
            let digest = Digest::of(key);
            for seq in (1..=1 + i as u64 % 3).rev() {
                let kind = if (i as u64 + seq).is_multiple_of(4) { Kind::Delete } else { Kind::Put };
                let value: &[u8] = if kind == Kind::Put { b"some value" } else { b"" };
                builder.add(key, digest, seq, kind, value).unwrap();
            }
        }
        assert!(builder.entries() > keys.len() as u64, "some have several versions");
        let extra = ExtraProperties { filter_kind: kind.to_owned(), ..ExtraProperties::default() };
        let finished = builder.finish(bytes.clone(), None, extra).unwrap();
        let file = read_file(&fs, &path).unwrap();
        let block = bytes.map_or(0..0, |bytes| {
            let at = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
            at..at + bytes.len() + 9
        });
        let p = &finished.properties;
        let meta = TableMeta {
            id: 1,
            file_bytes: finished.file_bytes,
            smallest: p.smallest[..].into(),
            largest: KeyEnd::Included(p.largest[..].into()),
            entries: p.entries,
            deletes: p.deletes,
            range_tombstones: 0,
            raw_bytes: 8,
            min_seq: 1,
            max_seq: 3,
            epochs: EpochMap::flush(p.smallest[..].into(), 1),
            extra: Default::default(),
        };
        Sample { file, block, meta, keys }
    }

    fn with_list(count: u32) -> Sample {
        let keys = keys(count);
        let list = list_of(&keys);
        Sample::new(keys, Some((KEY_LIST, list)))
    }

    fn open(&self, config: &ReaderConfig) -> Arc<OpenTable> {
        let fs = fs();
        let path = table_path(Path::new("/t"), 1);
        fs.create(&path, Usage::Table).unwrap().append(&self.file).unwrap();
        OpenTable::open(&fs, Path::new("/t"), Arc::new(self.meta.clone()), config, &Arc::default()).unwrap()
    }
}

fn fs() -> MemFs {
    let fs = MemFs::new();
    fs.create_dir_all(Path::new("/t")).unwrap();
    fs
}

fn collect(table: &OpenTable, start: &[u8], end: Option<&[u8]>) -> (Vec<Vec<u8>>, KeySource) {
    let mut found = Vec::new();
    let source = for_each_key(table, start, end, &mut |key| found.push(key.to_vec())).unwrap();
    (found, source)
}

/// Checks ranges that start and end at keys, just behind keys, and before and behind all keys.
fn check_ranges(sample: &Sample, table: &OpenTable, source: KeySource) {
    let mut borders: Vec<Vec<u8>> = vec![Vec::new(), b"zzz".to_vec()];
    for key in sample.keys.iter().step_by(1 + sample.keys.len() / 5).chain(sample.keys.last()) {
        borders.extend([key.clone(), [key, &[0][..]].concat()]);
    }
    for start in &borders {
        for end in borders.iter().map(|end| Some(&end[..])).chain([None]) {
            let inside = |key: &&Vec<u8>| *key >= start && end.is_none_or(|end| &key[..] < end);
            let expected: Vec<_> = sample.keys.iter().filter(inside).cloned().collect();
            assert_eq!(collect(table, start, end), (expected, source), "{start:?} to {end:?}");
        }
    }
}

#[test]
fn keys_are_read_from_the_list_or_else_from_the_data() {
    for pin_metadata in [true, false] {
        let cache = Arc::new(BlockCache::new(1 << 20, 4096));
        let config = ReaderConfig { cache: Some(cache), pin_metadata, ..ReaderConfig::default() };
        let sample = Sample::with_list(300);
        let table = sample.open(&config);
        check_ranges(&sample, &table, KeySource::List);
        assert!(!table.filter_is_unusable(), "a key list is not an unusable filter");
        assert_eq!(table.with_filter(|_| ()), None);
        assert_eq!((table.filter_memory(), table.range_filter), (0, None));

        let sample = Sample::new(keys(300), None);
        let table = sample.open(&config);
        assert!(table.key_list().unwrap().is_none());
        check_ranges(&sample, &table, KeySource::Data);
    }
}

/// The filters of tables written before the tree had a global one are not key lists.
#[test]
fn the_data_of_a_table_with_its_own_filter_is_read() {
    let options = KeyspaceOptions { filter: FilterChoice::Ribbon.into(), ..KeyspaceOptions::default() };
    let mut builder = FilterBuilder::new(&options, options.filter.at(0), 10.0, NewKeys::All);
    let keys = keys(50);
    keys.iter().for_each(|key| builder.add(key, Digest::of(key)));
    let filter = builder.finish(&options, 1).unwrap().unwrap();
    let sample = Sample::new(keys, filter.bytes.map(|bytes| (filter.kind, bytes)));
    check_ranges(&sample, &sample.open(&ReaderConfig::default()), KeySource::Data);
}

#[test]
fn with_a_global_filter_the_builder_lists_the_distinct_keys() {
    for filter in FilterChoice::all().filter(|filter| filter.is_global()) {
        let options = KeyspaceOptions { filter: filter.into(), ..KeyspaceOptions::default() };
        // Too few bits for a table to get its own filter.
        let mut builder = FilterBuilder::new(&options, options.filter.at(3), 0.01, NewKeys::All);
        for key in &keys(200) {
            (0..3).for_each(|_| builder.add(key, Digest::of(key)));
        }
        let block = builder.finish(&options, 1).unwrap().unwrap();
        assert_eq!((block.kind, block.bytes), (KEY_LIST, Some(list_of(&keys(200)))));
        let empty = FilterBuilder::new(&options, options.filter.at(0), 10.0, NewKeys::All)
            .finish(&options, 1)
            .unwrap()
            .unwrap();
        assert_eq!(empty.bytes, Some(list_of(&[])));
    }
}

/// A merge's output has no list under the engine's own global filter, and says that it has no
/// filter of its own. Per-table filters do not depend on it, nor do filters that the program
/// supplies: these read the keys of every new table.
#[test]
fn a_table_that_brings_no_keys_has_no_list() {
    #[cfg(feature = "unstable-selector")]
    let external = FilterChoice::external("test");
    #[cfg(not(feature = "unstable-selector"))]
    let external = None;
    for filter in FilterChoice::all().chain(external) {
        let options = KeyspaceOptions { filter: filter.into(), ..KeyspaceOptions::default() };
        let block = |new_keys| {
            let mut builder = FilterBuilder::new(&options, options.filter.at(3), 10.0, new_keys).with_salt(1);
            keys(200).iter().for_each(|key| builder.add(key, Digest::of(key)));
            builder.finish(&options, 1).unwrap().map(|block| (block.kind, block.bytes))
        };
        let without = if filter == FilterChoice::Grf { Some((GLOBAL, None)) } else { block(NewKeys::All) };
        assert_eq!(block(NewKeys::None), without, "{filter:?}");
    }
}

/// A table without a list or a filter is not one whose filter is missing.
#[test]
fn a_table_written_for_a_global_filter_is_told_from_one_without_a_filter() {
    let sample = Sample::of_kind(keys(300), GLOBAL, None);
    let table = sample.open(&ReaderConfig::default());
    assert!(matches!(table.filter, TableFilter::Global) && !table.filter_is_unusable());
    check_ranges(&sample, &table, KeySource::Data);
    let table = Sample::new(keys(300), None).open(&ReaderConfig::default());
    assert!(matches!(table.filter, TableFilter::None));
}

/// Blocks whose checksums are right and whose keys do not ascend: no key is passed out of order, or
/// outside the range.
#[test]
fn data_whose_keys_do_not_ascend_is_damaged() {
    let sample = Sample::of_kind(keys(60), GLOBAL, None);
    // A block ends with a byte and its checksum, which is seeded with its offset.
    let sum = |file: &[u8], start: usize, end: usize| {
        xxhash_rust::xxh3::xxh3_64_with_seed(&file[start..=end], start as u64).to_le_bytes()
    };
    let file = &sample.file;
    let end = (1..file.len() - 9).find(|end| file[end + 1..end + 9] == sum(file, 0, *end)).unwrap();
    let (mut refused, mut read) = (0, 0);
    for at in 0..end {
        let mut bad = Sample { file: file.clone(), block: 0..0, meta: sample.meta.clone(), keys: Vec::new() };
        bad.file[at] ^= 0x11;
        let seal = sum(&bad.file, 0, end);
        bad.file[end + 1..end + 9].copy_from_slice(&seal);
        let table = bad.open(&ReaderConfig::default());
        for (start, end) in [(&b""[..], None), (b"key00009", Some(&b"key00099"[..]))] {
            let mut found: Vec<Vec<u8>> = Vec::new();
            let source = for_each_key(&table, start, end, &mut |key| found.push(key.to_vec()));
            assert!(found.is_sorted_by(|a, b| a < b), "byte {at}");
            assert!(
                found.iter().all(|key| &key[..] >= start && end.is_none_or(|end| &key[..] < end)),
                "byte {at}"
            );
            match &source {
                Ok(source) => assert_eq!(*source, KeySource::Data),
                Err(why) => assert!(matches!(why, StorageError::Corrupt(_)), "byte {at}: {why}"),
            }
            refused += u64::from(source.is_err());
            read += u64::from(source.is_ok());
        }
    }
    assert!(refused > 20 && read > 20, "{refused} refused, {read} read");
}

/// A range is read in pieces that end with it, whatever the readahead is.
#[test]
fn the_data_of_a_range_is_read_and_no_more() {
    let keys: Vec<Vec<u8>> = (0..200_000u32).map(|i| format!("{i:020}").into_bytes()).collect();
    let sample = Sample::of_kind(keys, GLOBAL, None);
    assert!(sample.file.len() as u64 > 4 * READ_AHEAD);
    let table = sample.open(&ReaderConfig::default());
    let (start, end) = (&sample.keys[100_000], &sample.keys[100_500]);
    let mut cursor =
        TableCursor::new(table.table.clone(), CursorOptions { fill_cache: false, read_ahead: READ_AHEAD });
    cursor.within(start, Some(end));
    cursor.seek(start, MAX_SEQNO).unwrap();
    while cursor.valid() && cursor.key() < &end[..] {
        cursor.next().unwrap();
    }
    let counts = cursor.take_counts();
    // The index, and one piece.
    assert!(counts.io_reads == 2 && counts.io_bytes < READ_AHEAD / 2, "{counts:?}");
    let expected = sample.keys[100_000..100_500].to_vec();
    assert!(collect(&table, start, Some(end)) == (expected, KeySource::Data));
}

/// The writer compares the list it reads back with its input, which reveals a key that changed on
/// the way.
#[test]
fn a_list_of_other_keys_is_not_written() {
    let options = KeyspaceOptions { filter: FilterChoice::Grf.into(), ..KeyspaceOptions::default() };
    let mut builder = FilterBuilder::new(&options, options.filter.at(0), 10.0, NewKeys::All);
    builder.add(b"a", Digest::of(b"a"));
    builder.add(b"b", Digest::of(b"c"));
    assert!(builder.finish(&options, 1).is_err());
}

/// Changes every byte of the list, its trailer and the trailer of its block: the keys are then
/// those of the data. Does the same with the block's checksum corrected, so that only the list's
/// own is wrong, and with both corrected.
#[test]
fn a_damaged_list_is_replaced_by_the_data() {
    let sample = Sample::with_list(40);
    let (start, end) = (sample.keys[7].clone(), sample.keys[33].clone());
    let expected = sample.keys[7..33].to_vec();
    let list = sample.block.start..sample.block.end - 9;
    for at in sample.block.clone() {
        for bit in [0, 3, 7] {
            let mut bad = Sample {
                file: sample.file.clone(),
                block: sample.block.clone(),
                meta: sample.meta.clone(),
                keys: Vec::new(),
            };
            bad.file[at] ^= 1 << bit;
            for resealed in 0..3 {
                if resealed == 2 {
                    let sum = xxhash_rust::xxh3::xxh3_64(&bad.file[list.start..list.end - 16]);
                    bad.file[list.end - 16..list.end - 8].copy_from_slice(&sum.to_le_bytes());
                }
                if resealed > 0 {
                    let body = &bad.file[list.start..list.end + 1];
                    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(body, list.start as u64);
                    bad.file[list.end + 1..list.end + 9].copy_from_slice(&sum.to_le_bytes());
                }
                let table = bad.open(&ReaderConfig::default());
                let (all, source) = collect(&table, &[], None);
                let (some, some_source) = collect(&table, &start, Some(&end));
                let undone = resealed == 1 && at > list.end
                    || resealed == 2 && (at >= list.end - 16 && at < list.end - 8 || at > list.end);
                match resealed {
                    // A list with correct checksums cannot be told from that of a table with other
                    // keys; it is only certain that keys ascend, and are in the range.
                    2 if source == KeySource::List => assert!(all.is_sorted() && some.is_sorted()),
                    _ if undone => assert_eq!((source, some_source), (KeySource::List, KeySource::List)),
                    0 | 1 => {
                        assert_eq!(
                            (source, some_source),
                            (KeySource::DamagedList, KeySource::DamagedList),
                            "{at}"
                        )
                    }
                    _ => {}
                }
                if resealed < 2 || undone {
                    assert_eq!((&all, &some), (&sample.keys, &expected), "byte {at}, bit {bit}");
                }
                assert!(some.iter().all(|key| *key >= start && *key < end));
            }
        }
    }
}

/// Damage under correct checksums shows only after some keys were returned: the rest comes from the
/// data, without gaps or duplicates.
#[test]
fn keys_continue_from_the_data_where_the_list_is_damaged() {
    let keys: Vec<Vec<u8>> = (0..9000u32).map(|i| (i * 3).to_be_bytes().to_vec()).collect();
    let list = list_of(&keys);
    let (early, late) = (&keys[10], &keys[8500]);
    for broken in [1, 20, 3000, 4095, 4097, 8200, 8999] {
        let before = list_of(&keys[..broken]);
        let directory =
            before[before.len() - 32..].first_chunk().map(|len| u64::from_le_bytes(*len)).unwrap();
        // The location of this key's entry.
        let at = before.len() - 40 - directory as usize;
        let mut bytes = list.clone();
        // No key shares this many bytes with the previous one.
        bytes[at..at + 2].copy_from_slice(&[0xFF, 0x7F]);
        let end = bytes.len() - 16;
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes[..end]);
        bytes[end..end + 8].copy_from_slice(&sum.to_le_bytes());
        let table = Sample::new(keys.clone(), Some((KEY_LIST, bytes))).open(&ReaderConfig::default());
        assert!(collect(&table, &[], None) == (keys.clone(), KeySource::DamagedList), "{broken}");
        // A range does not read the chunks outside it.
        let met = if (4097..8192).contains(&broken) { KeySource::DamagedList } else { KeySource::List };
        assert!(
            collect(&table, &keys[4096], Some(&keys[8192])) == (keys[4096..8192].to_vec(), met),
            "{broken}"
        );
        let (first, last) = (collect(&table, &[], Some(early)), collect(&table, late, None));
        assert!(first.0 == keys[..10] && last.0 == keys[8500..], "{broken}");
    }
}

#[test]
fn a_list_of_another_table_is_not_used() {
    let own = keys(100);
    let others = [own[1..].to_vec(), own[..99].to_vec(), keys(1000), Vec::new()];
    for other in others {
        let sample = Sample::new(own.clone(), Some((KEY_LIST, list_of(&other))));
        check_ranges(&sample, &sample.open(&ReaderConfig::default()), KeySource::DamagedList);
    }
    let sample = Sample::new(own, Some((KEY_LIST, b"no list".to_vec())));
    check_ranges(&sample, &sample.open(&ReaderConfig::default()), KeySource::DamagedList);
}

/// A list with correct ends and checksums but a wrong middle passes for the table's own until all
/// of it is compared.
#[test]
fn a_comparison_with_the_data_finds_missing_changed_and_extra_keys() {
    let own = keys(100);
    let mut fewer = own.clone();
    fewer.remove(50);
    let mut other = own.clone();
    other[50].push(b'y');
    let mut more = own.clone();
    more.insert(51, [&own[50][..], b"y"].concat());
    for (list, right) in [(&own, true), (&fewer, false), (&other, false), (&more, false)] {
        let table = Sample::new(own.clone(), Some((KEY_LIST, list_of(list)))).open(&ReaderConfig::default());
        assert_eq!(collect(&table, &[], None).1, KeySource::List);
        assert_eq!(key_list_problem(&table).is_none(), right);
    }
    let table = Sample::new(own, Some((KEY_LIST, b"no list".to_vec()))).open(&ReaderConfig::default());
    assert_eq!(key_list_problem(&table), Some("is damaged"));
}
