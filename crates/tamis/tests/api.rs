//! What the public types promise as types: errors have their causes, handles cross threads.

use std::error::Error as _;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tamis::{
    AdminError, Db, Error, ExternalTableError, IoFailure, OpenError, Options, ReadError, StorageError,
    WriteError,
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
