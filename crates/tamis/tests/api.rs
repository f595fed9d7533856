//! What the public types promise as types: errors have their causes, options compare and change as values.

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tamis::clock::ManualClock;
use tamis::io::MemFs;
use tamis::operators::{MergeError, MergeOperator, Operators};
use tamis::options::{CompactionChoice, FilterChoice};
use tamis::{
    AdminError, Db, Error, ExternalTableError, IoFailure, OpenError, Options, OptionsError, ReadError,
    StorageError, WriteError,
};
use tamis_testkit::{FaultPlan, FaultyFs};

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
    let error = Error::from(Db::open("db", options).expect_err("nothing can be read"));
    let cause = root_cause(&error).downcast_ref::<io::Error>().expect("the chain ends at the system call");
    assert_eq!(cause.kind(), io::ErrorKind::PermissionDenied);
    assert!(cause.to_string().contains("was planned to fail"), "{cause}");
    assert!(error.to_string().contains(&cause.to_string()), "the message alone says why: {error}");
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
    Db::open("db", options).expect("an empty database")
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

/// The closure is the program's code: it may use the keyspace, and what it does not change, others may.
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
    let db = Db::open("db", options).expect("an empty database");
    db.put("key", "value").expect("a put");
    db.flush().expect("a flush");
    let keyspace = db.default_keyspace();
    keyspace.change_options(|options| options.level0_runs = 6).expect("a change");
    assert_eq!(keyspace.options().level0_runs, 4, "it waits");
    keyspace.change_options(|options| options.table_bytes = 1 << 20).expect("another");
    keyspace.compact().expect("the end of the round");
    assert_eq!((keyspace.options().level0_runs, keyspace.options().table_bytes), (6, 1 << 20));
}
