//! Iterators over keys with many versions that snapshots keep, in every read mode.
//!
//! Regression: with `read_mode` `buffered` or `direct` an iteration never ended, where the versions
//! of one key began in one block and ended in the next one. To pass those newer than it shows, an
//! iterator sought within the table. The seek began at the first block with versions of the key,
//! and stopped at its edge, since every version there was too new. The next block was then read
//! from its first version on, which was too new as well: the iterator sought once more, and came to
//! the same edge.
//!
//! A seek within a table now begins where the cursor is, and stops at an edge only if the block
//! does not end with a version of the key. Debug builds see to it that every move leads on.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tamis::options::ReadMode;
use tamis::{Db, Iter, Options, Slice, Snapshot};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn items(iter: impl Iterator<Item = Result<(Slice, Slice), tamis::ReadError>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    iter.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).expect("an item")).collect()
}

fn check(what: &str, make: impl Fn() -> Iter, content: &Content) {
    let mut expected: Vec<_> = content.clone().into_iter().collect();
    assert_eq!(items(make()), expected, "{what}");
    expected.reverse();
    assert_eq!(items(make().rev()), expected, "{what}, backwards");
}

/// One key with a snapshot for each of its versions, and another key behind it.
#[test]
fn an_iteration_over_many_kept_versions_of_a_key_ends() {
    for &mode in ReadMode::available() {
        for (versions, len) in [(45, 100), (7, 1000), (45, 1000), (200, 0)] {
            let dir = tempfile::tempdir().expect("a directory");
            let db = Options { read_mode: mode, ..Options::default() }.open(dir.path()).expect("opening");
            let mut content = Content::new();
            let mut snapshots = vec![(db.snapshot(), content.clone())];
            for version in 0..versions {
                let value = vec![version as u8; len];
                db.put("key", &value).expect("a write");
                content.insert(b"key".to_vec(), value);
                snapshots.push((db.snapshot(), content.clone()));
            }
            db.put("later", "value").expect("a write");
            content.insert(b"later".to_vec(), b"value".to_vec());
            let check_all = |when: &str| {
                let what = format!("{mode:?}, {versions} versions of {len} bytes, {when}");
                assert_eq!(db.iter().count(), 2, "{what}");
                check(&what, || db.iter(), &content);
                for (snapshot, content) in &snapshots {
                    check(&what, || snapshot.keyspace(db.default_keyspace()).iter(), content);
                }
            };
            check_all("in memory");
            db.flush().expect("a flush");
            check_all("flushed");
            db.compact().expect("a compaction");
            check_all("compacted");
        }
    }
}

/// The history that a comparison with a model found, line by line: `put KEY LENGTH`, `del KEY`,
/// `snap`, `flush`, `range FROM TO`, and `both FROM MOVES` (`f` from the front, `b` from the back
/// of one iterator).
#[test]
fn a_double_ended_iterator_over_versions_in_two_blocks_ends() {
    for &mode in ReadMode::available() {
        for (blob_threshold, block_bytes) in [(100, 512), (0, 512), (0, 128), (100, 4096)] {
            let dir = tempfile::tempdir().expect("a directory");
            let mut options = Options { read_mode: mode, ..Options::default() };
            options.keyspace.blob_threshold = blob_threshold;
            options.keyspace.block_bytes = block_bytes;
            let mut history = History {
                db: options.open(dir.path()).expect("opening"),
                content: Content::new(),
                snapshots: VecDeque::new(),
            };
            for line in include_str!("../fixtures/endless-scan.ops").lines() {
                history.step(line);
            }
            for (snapshot, content) in &history.snapshots {
                check("a snapshot", || snapshot.keyspace(history.db.default_keyspace()).iter(), content);
            }
        }
    }
}

struct History {
    db: Db,
    content: Content,
    snapshots: VecDeque<(Snapshot, Content)>,
}

impl History {
    fn step(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["put", key, len] => {
                // Each value is another.
                let len: usize = len.parse().expect("a length");
                let value: Vec<u8> =
                    self.snapshots.len().to_string().into_bytes().into_iter().cycle().take(len).collect();
                self.db.put(key, &value).expect("a write");
                self.content.insert(key.into(), value);
            }
            ["del", key] => {
                self.db.delete(key).expect("a write");
                self.content.remove(key.as_bytes());
            }
            ["snap"] => self.snapshots.push_back((self.db.snapshot(), self.content.clone())),
            ["flush"] => self.db.flush().expect("a flush"),
            ["range", from, to] => {
                let expected = self.within(from.into()..to.into());
                let found = items(self.db.range(from..to).take(30));
                assert_eq!(found, expected[..expected.len().min(30)], "{line}");
            }
            ["both", from, moves] => {
                let mut left: VecDeque<_> =
                    self.content.clone().into_iter().filter(|(key, _)| &key[..] >= from.as_bytes()).collect();
                let mut iter = self.db.range(from..);
                for step in moves.chars() {
                    let (found, expected) = match step {
                        'f' => (iter.next(), left.pop_front()),
                        _ => (iter.next_back(), left.pop_back()),
                    };
                    assert_eq!(items(found.into_iter()).pop(), expected, "{line}");
                }
            }
            _ => unreachable!("{line}"),
        }
    }

    fn within(&self, range: Range<Vec<u8>>) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.content.range(range).map(|(key, value)| (key.clone(), value.clone())).collect()
    }
}
