//! Writes the seeds of the fuzzing corpus, `fuzz/corpus/<target>/<name>`, through the public API.
//!
//! Run `cargo run -p tamis-fuzzing --example make_corpus` after a change of a format. The names of
//! the seeds describe their contents. Seeds from findings (`finding-…`) are not made here and are
//! left alone.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tamis::ingest::ExternalTableBuilder;
use tamis::io::{FileSystem, MemFs, read_file};
use tamis::options::{BloomHashing, Compression, CompressionPerLevel, FilterChoice, FilterPolicy};
use tamis::{Db, KeyspaceOptions, Options, WriteBatch};
use tamis_filter::{
    BloomScheme, Digest, ElasticGroup, ElasticLayout, ElasticSpec, KeyList, PointFilter, PointSpec,
    RangeFilter, RangeSpec, SurfSuffix, Verify,
};
use tamis_fuzzing::{TableParts, batch_bytes, blob_file, filter_file, logged, table_parts};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");

fn main() -> Done {
    tables()?;
    for (which, name) in ["large", "small", "empty", "last"].into_iter().enumerate() {
        seed("blobs", name, &blob_file(which, false))?;
    }
    seed("blobs", "compressed", &blob_file(0, true))?;
    seed("blobs", "log", &logged())?;
    seed("filter_images", "one", &filter_file(1))?;
    seed("filter_images", "several", &filter_file(6))?;
    logs()?;
    externals()?;
    manifests()?;
    batches()?;
    options()?;
    filters()?;
    histories()
}

fn seed(target: &str, name: &str, bytes: &[u8]) -> Done {
    let path = PathBuf::from(CORPUS).join(target).join(name);
    std::fs::create_dir_all(path.parent().ok_or("a seed lies in a directory")?)?;
    Ok(std::fs::write(path, bytes)?)
}

/// Opens an in-memory database without automatic compactions.
fn open(fs: &MemFs, keyspace: KeyspaceOptions) -> Done<Db> {
    let mut options = Options::default().background_threads(1).keyspace(keyspace);
    options.file_system = Some(Arc::new(fs.clone()));
    Ok(options.open("db")?)
}

fn small() -> KeyspaceOptions {
    KeyspaceOptions::default()
        .memtable_bytes(64 << 10)
        .block_bytes(256)
        .auto_compaction(false)
        .compression(CompressionPerLevel::uniform(Compression::None))
}

/// Sets an elastic filter with segments of 32 keys.
fn elastic(options: &mut KeyspaceOptions, hashing: BloomHashing) {
    options.filter = FilterChoice::Elastic(hashing).into();
    (options.filter_units, options.filter_unit_bits, options.filter_unit_bytes) = (2, 16.0, 128);
}

/// Returns the contents of the database's files with wanted names, the latest last.
fn files(fs: &MemFs, wanted: impl Fn(&str) -> bool) -> Done<Vec<Vec<u8>>> {
    let mut names = fs.list(Path::new("db"))?;
    names.retain(|name| wanted(name));
    names.sort();
    Ok(names.iter().map(|name| read_file(fs, &Path::new("db").join(name))).collect::<Result<_, _>>()?)
}

fn latest(fs: &MemFs, wanted: impl Fn(&str) -> bool) -> Done<Vec<u8>> {
    Ok(files(fs, wanted)?.pop().ok_or("there is no such file")?)
}

fn is_table(name: &str) -> bool {
    name.ends_with(".tam")
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log")
}

fn is_manifest(name: &str) -> bool {
    name.starts_with("MANIFEST")
}

/// Writes tables, and the blocks, filters and range tombstones in them.
fn tables() -> Done {
    type Fill = fn(&Db) -> Done;
    let cities: Fill = |db| {
        for i in 0..30 {
            db.put(format!("city/{i:02}"), format!("population {}", i * i * 1000))?;
        }
        Ok(())
    };
    let versions: Fill = |db| {
        let mut snapshots = Vec::new();
        for round in 0..12 {
            for key in ["hot", "warm"] {
                match round % 4 {
                    3 => db.delete(key)?,
                    _ => db.put(key, format!("{key} in round {round}"))?,
                }
            }
            snapshots.push(db.snapshot());
        }
        db.flush()?;
        Ok(())
    };
    let ranges: Fill = |db| {
        let held = db.snapshot();
        db.put("b", "deleted by two")?;
        db.delete_range("a".."m")?;
        db.put("c", "alive")?;
        let between = db.snapshot();
        db.delete_range("f".."t")?;
        db.delete_range("x"..)?;
        db.put("z", "alive")?;
        db.flush()?;
        drop((held, between));
        Ok(())
    };
    let only_ranges: Fill = |db| {
        db.delete_range("k".."n")?;
        Ok(())
    };
    let odd_keys: Fill = |db| {
        db.put("", "the empty key")?;
        db.put([0xFF; 300], [0xEE; 300])?;
        db.put("deleted", "")?;
        db.delete("deleted")?;
        db.put(vec![b'k'; 1000], "a long key")?;
        Ok(())
    };
    let with = |change: fn(&mut KeyspaceOptions)| {
        let mut options = small();
        change(&mut options);
        options
    };
    let kinds: [(&str, KeyspaceOptions, Fill); 14] = [
        ("plain", small(), cities),
        ("lz4", with(|o| o.compression = CompressionPerLevel::uniform(Compression::Lz4)), cities),
        ("no-filter", with(|o| o.filter = FilterChoice::None.into()), cities),
        ("bloom-rotation", with(|o| o.filter = FilterChoice::Bloom(BloomHashing::Rotation).into()), cities),
        ("bloom-double", with(|o| o.filter = FilterChoice::Bloom(BloomHashing::Double).into()), cities),
        (
            "bloom-independent",
            with(|o| o.filter = FilterChoice::Bloom(BloomHashing::Independent).into()),
            cities,
        ),
        ("versions", with(|o| o.restart_interval = 2), versions),
        ("range-tombstones", small(), ranges),
        ("odd-keys", with(|o| o.restart_interval = 1), odd_keys),
        ("key-list", with(|o| o.filter = FilterPolicy::grf()), cities),
        ("key-list-odd-keys", with(|o| o.filter = FilterPolicy::grf()), odd_keys),
        ("elastic", with(|o| elastic(o, BloomHashing::Rotation)), cities),
        ("elastic-double-odd-keys", with(|o| elastic(o, BloomHashing::Double)), odd_keys),
        ("elastic-independent", with(|o| elastic(o, BloomHashing::Independent)), cities),
    ];
    for (name, options, fill) in kinds.into_iter().chain([("only-range-tombstones", small(), only_ranges)]) {
        let fs = MemFs::new();
        let db = open(&fs, options)?;
        fill(&db)?;
        db.flush()?;
        let file = latest(&fs, is_table)?;
        seed("table", name, &file)?;
        let TableParts { blocks, filter, tombstones } = table_parts(&file);
        if let Some(block) = blocks.first() {
            seed("data_block", name, block)?;
        }
        if let Some(list) = filter.as_ref().filter(|_| name.starts_with("key-list")) {
            seed("key_list", name, list)?;
        }
        if let Some(units) = filter.as_ref().filter(|_| name.starts_with("elastic")) {
            seed("elastic", name, units)?;
        }
        if let Some(filter) = filter.filter(|_| name == "plain" || name.starts_with("bloom")) {
            seed("filter", if name == "plain" { "blocked-bloom" } else { name }, &filter)?;
        }
        if let Some(tombstones) = tombstones {
            seed("tombstones", name, &tombstones)?;
        }
    }
    Ok(())
}

fn write_a_little(db: &Db) -> Done {
    let second = db.create_keyspace("second", small())?;
    db.put("one", "1")?;
    let mut batch = WriteBatch::new();
    batch.put("two", "2").delete("one").put_in(&second, "three", "3").delete_range("t".."u");
    db.write(batch)?;
    db.sync()?;
    db.put("four", "4")?;
    Ok(())
}

fn logs() -> Done {
    let fs = MemFs::new();
    let db = open(&fs, small())?;
    seed("log", "no-record", &trimmed(&latest(&fs, is_log)?))?;
    write_a_little(&db)?;
    seed("log", "unfinished", &trimmed(&latest(&fs, is_log)?))?;
    db.close()?;
    seed("log", "closed", &trimmed(&latest(&fs, is_log)?))?;

    // A log written over an older one, whose bytes follow its end.
    let fs = MemFs::new();
    let db = open(&fs, small())?;
    for round in 0..3 {
        for i in 0..6 - round {
            db.put(format!("key {i}"), format!("round {round}"))?;
        }
        db.flush()?;
    }
    db.put("last", "round")?;
    seed("log", "reused", &trimmed(&latest(&fs, is_log)?))
}

/// Removes most of the zeros of a preallocated tail.
fn trimmed(log: &[u8]) -> Vec<u8> {
    let used = log.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    log[..log.len().min(used + 40)].to_vec()
}

fn externals() -> Done {
    let build = |name: &str, options: &KeyspaceOptions, fill: &dyn Fn(&mut ExternalTableBuilder) -> Done| {
        let fs = MemFs::new();
        let mut table = ExternalTableBuilder::create_on(Arc::new(fs.clone()), "a.tam", options)?;
        fill(&mut table)?;
        table.finish()?;
        seed("external", name, &read_file(&fs, Path::new("a.tam"))?)
    };
    let plain = KeyspaceOptions { filter: FilterChoice::None.into(), ..small() };
    build("plain", &plain, &|table| {
        (0..20).try_for_each(|i| Ok(table.put(format!("key {i:02}"), format!("value {i}"))?))
    })?;
    build("filter", &small(), &|table| {
        table.put("key 1", "new")?;
        table.delete("key 2")?;
        Ok(table.put("key 9", "")?)
    })?;
    build("range", &plain, &|table| {
        table.put("key 2", "new")?;
        Ok(table.delete_range("key 0".."key 2")?)
    })
}

fn manifests() -> Done {
    let fs = MemFs::new();
    let db = open(&fs, small())?;
    seed("manifest", "new-database", &latest(&fs, is_manifest)?)?;
    write_a_little(&db)?;
    db.drop_keyspace("second")?;
    seed("manifest", "keyspace-made-and-dropped", &latest(&fs, is_manifest)?)?;
    db.close()?;
    seed("manifest", "closed", &latest(&fs, is_manifest)?)?;

    let fs = MemFs::new();
    let db = open(&fs, small())?;
    write_a_little(&db)?;
    db.flush()?;
    db.put("five", "5")?;
    db.delete_range("m"..)?;
    db.flush()?;
    db.compact()?;
    seed("manifest", "flushes-and-a-compaction", &latest(&fs, is_manifest)?)?;
    db.close()?;
    // Reopening creates a new manifest, whose first record holds tables.
    let _db = open(&fs, small())?;
    seed("manifest", "tables-in-the-first-record", &latest(&fs, is_manifest)?)
}

fn batches() -> Done {
    let fs = MemFs::new();
    let db = open(&fs, small())?;
    let second = db.create_keyspace("second", small())?;
    let mut all = WriteBatch::new();
    all.put("key", "value").delete("key").delete_range("a".."b").delete_range("c"..).delete_range(.."d");
    all.put_in(&second, "", "").delete_range_in(&second, "e"..="f");
    let mut long = WriteBatch::new();
    long.put(vec![b'k'; 300], vec![b'v'; 300]);
    for (name, batch) in [("all-operations", &all), ("long", &long), ("nothing", &WriteBatch::new())] {
        let (record, operations) = batch_bytes(batch);
        seed("batch", &format!("{name}-as-a-record"), &record)?;
        seed("batch", name, &operations)?;
    }
    Ok(())
}

fn options() -> Done {
    seed("options", "defaults", Options::default().to_text().as_bytes())?;
    seed("options", "keyspace-defaults", KeyspaceOptions::default().to_text().as_bytes())?;
    let spellings = "# a comment\n\ncache_bytes=1GiB\nkeyspace.memtable_bytes = 64 kib # another\n\
                     durability = every 100 ms\nkeyspace.compression = none, lz4 ,none\n\
                     keyspace.bits_per_key = 1e1\nkeyspace.filter = bloom\ncache_bytes = 0\r\n";
    seed("options", "spellings", spellings.as_bytes())?;
    let refused = "keyspace.level0_runs = 30\nkeyspace.bits_per_key = nan\nlevels = 7\ncache_bytes = 16777216 TiB\n\
                   durability = every 1 h\nno equals sign\n= no name\nread_mode = \n";
    seed("options", "refused", refused.as_bytes())
}

/// Writes choices for the targets that generate their own input: damage to a database, and
/// histories of operations.
fn histories() -> Done {
    seed("database", "no-damage", &[0])?;
    // Each edit: file, action, place (two bytes), byte.
    seed("database", "flips", &[0, 0, 0, 9, 0, 1, 1, 1, 40, 0, 1, 2, 0, 100, 0, 2, 3, 1, 0, 1, 4])?;
    seed("database", "flips-resealed", &[1, 0, 0, 9, 0, 1, 1, 1, 40, 0, 1, 2, 0, 100, 0, 2, 3, 1, 0, 1, 4])?;
    for file in 0..8u8 {
        seed("database", &format!("file-{file}-cut"), &[0, file, 4, 90, 0, 0])?;
        seed("database", &format!("file-{file}-missing"), &[0, file, 7, 0, 0, 0])?;
        seed(
            "database",
            &format!("file-{file}-hurt-and-resealed"),
            &[1, file, 0, 60, 0, 3, file, 3, 130, 0, 255],
        )?;
    }
    let mut state = 0x7461_6d69_7331_u64;
    for i in 0..8 {
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        });
        seed("differential", &format!("history-{i}"), &bytes.take(150 + 60 * i).collect::<Vec<u8>>())?;
    }
    Ok(())
}

/// Writes a filter of each kind, and keys and probes for range filters.
fn filters() -> Done {
    let keys: Vec<Vec<u8>> = (1..60u64).map(|i| (i * i * 0x1234_5678_9abc).to_be_bytes().to_vec()).collect();
    let digests: Vec<Digest> = keys.iter().map(|key| Digest::of(key)).collect();
    for spec in [PointSpec::Ribbon, PointSpec::BinaryFuse, PointSpec::Xor, PointSpec::Cuckoo] {
        let filter = PointFilter::build(spec, &digests, 10.0, 7, Verify::Yes)?;
        seed("filter", filter.kind().name(), &filter.to_bytes())?;
    }
    let list: KeyList = keys.iter().map(|key| &key[..]).collect();
    let (kinds, suffixes) = (
        [RangeSpec::Snarf, RangeSpec::Rosetta { max_range: 64 }, RangeSpec::REncoder, RangeSpec::Grafite],
        [SurfSuffix::None, SurfSuffix::Hash, SurfSuffix::Real, SurfSuffix::Mixed],
    );
    for spec in kinds.into_iter().chain(suffixes.map(RangeSpec::Surf)) {
        let filter = RangeFilter::build(spec, &list, 14.0, 7, Verify::Yes)?;
        let name = match spec {
            RangeSpec::Surf(suffix) => format!("surf-{suffix:?}").to_lowercase(),
            _ => filter.kind().name().to_owned(),
        };
        seed("filter", &name, &filter.to_bytes())?;
    }
    for (name, layout) in
        [("elastic-standard", ElasticLayout::Standard), ("elastic-blocked", ElasticLayout::Blocked)]
    {
        let spec = ElasticSpec { units: 3, bits_per_key: 4.0, scheme: BloomScheme::Rotation, layout };
        let group = ElasticGroup::build(spec, &digests, 7, Verify::Yes)?;
        seed("filter", name, &group.units()[1].to_bytes())?;
    }
    // Kind, bits, salt, prefix and type of the keys, their number; then keys and bounds, as
    // `tamis_fuzzing::range_filter` reads them.
    let mut state = 0x7461_6d69_7332_u64;
    for (i, shape) in (0..20u8).map(|i| (i, i * 3)) {
        let bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        });
        let head = [i, [7, 39, 63, 255][usize::from(i % 4)], i * 13, shape, i * 8];
        let seed_bytes: Vec<u8> = head.into_iter().chain(bytes.take(40 + 40 * usize::from(i))).collect();
        seed("range_filter", &format!("keys-{i}"), &seed_bytes)?;
    }
    Ok(())
}
