//! What the public types promise as types: errors have their causes, options compare and change as
//! values, handles cross threads, and whatever can be read is `Readable`.

use std::error::Error as _;
use std::fmt::{Debug, Display};
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tamis::clock::ManualClock;
use tamis::ingest::ExternalTableBuilder;
use tamis::io::MemFs;
use tamis::maintenance::{CancelToken, CompactionPause};
use tamis::operators::{MergeError, MergeOperator, Operators};
use tamis::options::{
    CompactionChoice, Compression, FilterChoice, FilterPolicy, ParseValueError, PrefixFilter,
};
use tamis::stats::Stats;
use tamis::transactions::{LockTransaction, PreparedTransaction};
use tamis::{
    AdminError, Db, Durability, Error, ExternalTableError, IoFailure, Iter, Keyspace, KeyspaceOptions,
    OpenError, Options, OptionsError, ReadError, Readable, Slice, Snapshot, SnapshotView, StorageError,
    Transaction, TransactionError, WriteBatch, WriteError,
};
use tamis_testkit::{CrashMode, FaultPlan, FaultyFs};

/// Follows the chain of causes to its end.
fn root_cause<'e>(mut error: &'e (dyn std::error::Error + 'static)) -> &'e (dyn std::error::Error + 'static) {
    while let Some(cause) = error.source() {
        error = cause;
    }
    error
}

#[test]
fn a_failed_opening_leads_to_the_error_of_the_file_system() {
    let fs = FaultyFs::new(1);
    let plan = FaultPlan { fail_at: Some(0), sticky: true, ..FaultPlan::none() };
    fs.plan(FaultPlan { error: io::ErrorKind::PermissionDenied, ..plan });
    let options = Options { file_system: Some(Arc::new(fs)), ..Options::default() };
    let error = Error::from(options.open("db").expect_err("nothing can be read"));
    let cause = root_cause(&error).downcast_ref::<io::Error>().expect("the chain ends at the system call");
    assert_eq!(cause.kind(), io::ErrorKind::PermissionDenied);
    assert!(cause.to_string().contains("was planned to fail"), "{cause}");
    assert!(error.to_string().contains(&cause.to_string()), "the message alone says why: {error}");
}

#[test]
fn a_put_may_have_a_durability_of_its_own() {
    let fs = FaultyFs::new(1);
    let options = |fs: &FaultyFs| Options { file_system: Some(Arc::new(fs.clone())), ..Options::default() };
    let db = options(&fs).open("db").unwrap();
    let other = db.create_keyspace("other", KeyspaceOptions::default()).unwrap();
    other.put_with("synced", "value", Durability::Sync).unwrap();
    db.put_with("synced", "value", Durability::Sync).unwrap();
    db.put_with("buffered", "value", Durability::Buffered).unwrap();
    assert!(db.put_with(vec![0; 1 << 17], "value", Durability::Sync).is_err());
    let after = options(&fs.crash(CrashMode::DropUnsynced)).open("db").unwrap();
    assert_eq!(after.get("synced").unwrap().unwrap(), "value");
    assert_eq!(after.keyspace("other").unwrap().get("synced").unwrap().unwrap(), "value");
    assert_eq!(after.get("buffered").unwrap(), None);
}

#[test]
fn every_kind_of_error_leads_to_the_failed_system_call() {
    let storage = || StorageError::io("read", Path::new("db/000009.tam"), io::Error::from_raw_os_error(5));
    let errors: [Error; 7] = [
        storage().into(),
        OpenError::from(storage()).into(),
        ReadError::from(storage()).into(),
        WriteError::from(storage()).into(),
        AdminError::from(storage()).into(),
        AdminError::from(WriteError::from(storage())).into(),
        AdminError::from(ExternalTableError::from(WriteError::from(storage()))).into(),
    ];
    for error in errors {
        let cause = root_cause(&error).downcast_ref::<io::Error>();
        assert_eq!(cause.and_then(io::Error::raw_os_error), Some(5), "{error:?}");
        // A clone has the same cause.
        assert_eq!(root_cause(&error.clone()).to_string(), root_cause(&error).to_string());
    }
}

/// A cause in the program's own file system can be told by its type.
#[test]
fn the_payload_of_an_io_error_survives() {
    #[derive(Debug)]
    struct Quota;
    impl std::fmt::Display for Quota {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("the tenant's quota is used up")
        }
    }
    impl std::error::Error for Quota {}
    let failure = IoFailure::new(
        "write",
        Path::new("db/000012.log"),
        io::Error::new(io::ErrorKind::StorageFull, Quota),
    );
    assert_eq!((failure.kind(), failure.code()), (io::ErrorKind::StorageFull, None));
    assert!(failure.io_error().get_ref().is_some_and(|cause| cause.is::<Quota>()));
    assert!(failure.source().is_some_and(|cause| cause.is::<io::Error>()));
    assert_eq!(failure.to_string(), "could not write db/000012.log: the tenant's quota is used up");
    assert!(StorageError::from(failure).is_out_of_space());
}

#[test]
fn equal_options_have_the_same_file_system_clock_and_operators() {
    let options = Options::default();
    assert_eq!(options, Options::default());
    let with_files = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    assert_ne!(with_files, options);
    assert_eq!(with_files, with_files.clone(), "a clone shares them");
    assert_ne!(with_files, Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() });
    assert_eq!(with_files.to_text(), options.to_text(), "they are not part of the text");
    let with_clock = Options { clock: Some(Arc::new(ManualClock::new(0))), ..Options::default() };
    assert!(with_clock != options && with_clock == with_clock.clone());
    let operators = Operators::new().with_merge(Arc::new(First));
    let with_operators = Options { operators, ..Options::default() };
    assert!(with_operators != options && with_operators == with_operators.clone());
    let mut other = options.clone();
    other.keyspace.bits_per_key = 11.0;
    assert_ne!(other, options);
}

#[derive(Debug)]
struct First;

impl MergeOperator for First {
    fn name(&self) -> &str {
        "first"
    }

    fn merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, MergeError> {
        Ok(base.unwrap_or(operands[0]).to_vec())
    }
}

fn in_memory() -> Db {
    let options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.open("db").expect("an empty database")
}

#[test]
fn options_change_by_their_fields() {
    let db = in_memory();
    let keyspace = db.default_keyspace();
    keyspace
        .change_options(|options| {
            options.compaction = CompactionChoice::Hybrid(2);
            options.filter = FilterChoice::Ribbon.into();
            options.bits_per_key = 12.3;
        })
        .expect("options that may change");
    let options = keyspace.options();
    assert_eq!((options.compaction, options.bits_per_key), (CompactionChoice::Hybrid(2), 12.3));
    assert_eq!(options.filter.at(0), FilterChoice::Ribbon);
    let fixed = keyspace.change_options(|options| {
        options.bits_per_key = 9.0;
        options.block_bytes = 8192;
    });
    assert!(
        matches!(&fixed, Err(AdminError::Options(OptionsError::Fixed { name })) if name == "block_bytes"),
        "{fixed:?}"
    );
    let bad = keyspace.change_options(|options| options.bits_per_key = 1e6);
    assert!(
        matches!(&bad, Err(AdminError::Options(OptionsError::Value { name: "bits_per_key", .. }))),
        "{bad:?}"
    );
    let against_each_other = keyspace.change_options(|options| options.stop_runs = 1);
    assert!(matches!(against_each_other, Err(AdminError::Options(OptionsError::Value { .. }))));
    assert_eq!(keyspace.options(), options, "all or nothing");
}

/// The closure is the program's code: it may use the keyspace, and what it does not change, others
/// may.
#[test]
fn a_change_of_options_leaves_the_others_to_other_threads() {
    let db = in_memory();
    let keyspace = db.default_keyspace();
    keyspace
        .change_options(|options| {
            keyspace.set_options(&[("bits_per_key", "14")]).expect("a change within a change");
            options.level0_runs = 6;
        })
        .expect("options that may change");
    assert_eq!((keyspace.options().bits_per_key, keyspace.options().level0_runs), (14.0, 6));
    keyspace.change_options(|_| ()).expect("nothing changes");
}

/// A deterministic tree keeps its options until a round ends; a change starts from those that wait.
#[test]
fn a_change_starts_from_the_options_that_wait() {
    let mut options = Options { file_system: Some(Arc::new(MemFs::new())), ..Options::default() };
    options.keyspace.deterministic = true;
    let db = options.open("db").expect("an empty database");
    db.put("key", "value").expect("a put");
    db.flush().expect("a flush");
    let keyspace = db.default_keyspace();
    keyspace.change_options(|options| options.level0_runs = 6).expect("a change");
    assert_eq!(keyspace.options().level0_runs, 4, "it waits");
    keyspace.change_options(|options| options.table_bytes = 1 << 20).expect("another");
    keyspace.compact().expect("the end of the round");
    assert_eq!((keyspace.options().level0_runs, keyspace.options().table_bytes), (6, 1 << 20));
}

fn print_and_parse<T: Display + FromStr<Err = ParseValueError> + PartialEq + Debug>(values: &[T]) {
    for value in values {
        assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(value));
    }
    let error = "no such word".parse::<T>().expect_err("not a value");
    assert!(error.to_string().contains("`no such word`") && !error.expected.is_empty(), "{error}");
}

#[test]
fn values_of_options_print_and_parse() {
    print_and_parse(&FilterChoice::all().collect::<Vec<_>>());
    print_and_parse(&[CompactionChoice::Fragmented, CompactionChoice::Hybrid(3)]);
    print_and_parse(&[Durability::Sync, Durability::Every(Duration::from_millis(250))]);
    print_and_parse(&[FilterPolicy::split(2, FilterChoice::BlockedBloom, FilterChoice::None)]);
    print_and_parse(&[PrefixFilter::Delimiter(b'#'), PrefixFilter::default()]);
    print_and_parse(&[Compression::None, Compression::Lz4]);
    assert_eq!(format!("{:>8}|", Compression::Lz4), "     lz4|", "width applies");
}

#[test]
fn handles_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn moved<T: Send + 'static>() {}
    shared::<Db>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Slice>();
    shared::<WriteBatch>();
    shared::<Options>();
    shared::<KeyspaceOptions>();
    shared::<Stats>();
    shared::<CancelToken>();
    shared::<CompactionPause>();
    shared::<Error>();
    shared::<ParseValueError>();
    shared::<PreparedTransaction>();
    shared::<TransactionError>();
    moved::<Iter>();
    moved::<Transaction>();
    moved::<LockTransaction>();
    moved::<ExternalTableBuilder>();
    // Not `'static`: a view borrows its snapshot.
    fn view<'s>(view: SnapshotView<'s>) -> impl Send + Sync + Copy + use<'s> {
        view
    }
    let db = in_memory();
    let snapshot = db.snapshot();
    let _ = view(snapshot.keyspace(db.default_keyspace()));
}

/// Everything that `Readable` offers, as text.
fn read_all(from: impl Readable) -> String {
    let text = |item: Result<(Slice, Slice), ReadError>| {
        let (key, value) = item.expect("an item");
        format!("{}={}", key.escape_ascii(), value.escape_ascii())
    };
    let (a, d) = (from.get("a").expect("a get"), from.contains_key("d").expect("a get"));
    let many = from.multi_get(&["d", "a"]).expect("a batch of gets");
    let all: Vec<String> = from.iter().map(text).collect();
    let range: Vec<String> = from.range("b"..).rev().map(text).collect();
    let prefix: Vec<String> = from.prefix("c").map(text).collect();
    format!("{a:?} {d} {many:?} {all:?} {range:?} {prefix:?}")
}

#[test]
fn whatever_can_be_read_gives_the_same_by_the_trait_and_without() {
    let db = in_memory();
    let other = db.create_keyspace("other", KeyspaceOptions::default()).expect("a keyspace");
    for keyspace in [db.default_keyspace(), &other] {
        for (key, value) in [("a", "1"), ("b", "2"), ("c", "3"), ("ca", "4")] {
            keyspace.put(key, value).expect("a put");
        }
    }
    let before = read_all(&db);
    let snapshot = db.snapshot();
    for keyspace in [db.default_keyspace(), &other] {
        keyspace.put("d", "5").expect("a put");
        keyspace.delete("ca").expect("a delete");
    }
    let after = read_all(&db);
    assert_ne!(before, after);
    assert_eq!([read_all(db.default_keyspace()), read_all(&other)], [after.clone(), after]);
    let views = [snapshot.keyspace(db.default_keyspace()), snapshot.keyspace(&other)];
    assert_eq!(views.map(read_all), [before.clone(), before.clone()]);
    assert_eq!(read_all(snapshot.clone()), before);
    let (mut by_loop, mut keys) = (0, 0);
    for item in &snapshot {
        item.expect("an item");
        by_loop += 1;
    }
    for item in &db {
        item.expect("an item");
        keys += 1;
    }
    assert_eq!((by_loop, keys, snapshot.iter().count()), (4, 4, 4));
}

#[test]
fn a_dropped_keyspace_is_an_error_of_every_get() {
    let db = in_memory();
    let gone = db.create_keyspace("gone", KeyspaceOptions::default()).expect("a keyspace");
    let snapshot = db.snapshot();
    db.drop_keyspace("gone").expect("a drop");
    let dropped = |result: Result<(), ReadError>| matches!(result, Err(ReadError::Dropped { .. }));
    assert!(dropped(gone.get("a").map(drop)) && dropped(snapshot.keyspace(&gone).get("a").map(drop)));
    assert!(
        dropped(gone.contains_key("a").map(drop))
            && dropped(snapshot.keyspace(&gone).contains_key("a").map(drop))
    );
    assert!(dropped(gone.multi_get(&["a"]).map(drop)));
}
