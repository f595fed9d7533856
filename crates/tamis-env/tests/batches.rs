//! Batches of reads on a failing file system. An integration test, because the test kit uses this
//! crate's public API.

#![cfg(unix)]

use std::path::Path;

use tamis_env::io::batch::{BatchReader, Stretch};
use tamis_env::io::{Access, FileSystem, Usage};
use tamis_testkit::{FaultPlan, FaultyFs, OpClass};

#[test]
fn the_planned_read_of_a_batch_fails_and_no_other() {
    let fs = FaultyFs::new(1);
    let path = Path::new("f");
    let mut file = fs.create(path, Usage::Table).unwrap();
    file.append(&[7; 50_000]).unwrap();
    file.sync().unwrap();
    drop(file);
    let file = fs.open(path, Access::Random).unwrap();
    // In threads and, where the system has it and allows it, through io_uring.
    for reader in
        [(2, false), (8, false), (3, true), (32, true)].map(|(depth, uring)| BatchReader::new(depth, uring))
    {
        for failing in 0..9 {
            let before = fs.operations();
            let plan = FaultPlan { fail_at: Some(before + failing), ..FaultPlan::none() };
            fs.plan(FaultPlan { only: Some(OpClass::Read), ..plan });
            let offsets: Vec<u64> = (0..9).map(|i| i * 5000).collect();
            let stretches: Vec<_> =
                offsets.iter().map(|&offset| Stretch { file: file.clone(), offset, len: 10 }).collect();
            let read = reader.read(&stretches);
            assert_eq!(fs.operations() - before, 9);
            for (i, read) in read.iter().enumerate() {
                assert_eq!(read.is_err(), i as u64 == failing);
            }
        }
    }
}
