//! Checks the publish protocol under every interleaving and every value that the memory model lets
//! a load return.
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tamis --lib memtable::model
//! ```
//! Node headers are tracked cells here (see `sync`): a reader that reaches a node before its writes
//! happened fails the model even if the bytes happen to be right. Without the bound on preemptions,
//! the model is complete and takes a minute unoptimised.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use tamis_base::key::{Kind, MAX_SEQNO};

use super::node::{NewEntry, NodeRef, Target};
use super::skiplist::SkipList;

fn insert(list: &SkipList, key: &[u8], seq: u64, height: usize) {
    list.writer().insert_with_height(&NewEntry { key, seq, kind: Kind::Put, value: key }, height);
}

fn check(node: NodeRef<'_>) {
    assert_eq!((node.value(), node.kind()), (node.key(), Kind::Put));
}

#[test]
fn a_reader_finds_whole_versions_in_order_and_all_published_ones() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(4096, &std::sync::Arc::default()));
        let visible = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (list, visible) = (list.clone(), visible.clone());
            move || {
                insert(&list, b"m", 1, 2);
                visible.store(1, Ordering::Release);
                insert(&list, b"a", 2, 1);
                visible.store(2, Ordering::Release);
            }
        });
        let published = visible.load(Ordering::Acquire);
        let mut seen = 0;
        let mut at = list.first();
        while let Some(node) = at {
            check(node);
            seen += u64::from(node.seq() <= published);
            at = node.next(0);
            assert!(at.is_none_or(|next| node.key() < next.key()));
        }
        assert_eq!(seen, published);
        writer.join().unwrap();
    });
}

#[test]
fn a_search_finds_its_target_during_insertions_around_it() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(4096, &std::sync::Arc::default()));
        insert(&list, b"m", 1, 1);
        let writer = thread::spawn({
            let list = list.clone();
            move || {
                insert(&list, b"k", 2, 2);
                insert(&list, b"m", 3, 3);
            }
        });
        let node = list.get(b"m", 1).expect("inserted before");
        check(node);
        assert_eq!(node.seq(), 1);
        let newest = list.get(b"m", MAX_SEQNO).expect("inserted before");
        check(newest);
        let before = list.seek_before(&Target::new(b"m", MAX_SEQNO));
        assert!(before.is_none_or(|node| node.key() == b"k"));
        writer.join().unwrap();
        assert_eq!(list.get(b"m", MAX_SEQNO).map(NodeRef::seq), Some(3));
    });
}

#[test]
fn two_writers_link_everything_in_order_on_every_level() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(4096, &std::sync::Arc::default()));
        insert(&list, b"m", 1, 1);
        let other = thread::spawn({
            let list = list.clone();
            move || {
                insert(&list, b"c", 2, 2);
                insert(&list, b"b", 3, 1);
            }
        });
        insert(&list, b"a", 4, 2);
        insert(&list, b"n", 5, 1);
        if let Some(node) = list.last() {
            check(node);
        }
        other.join().unwrap();
        let on = |level| {
            let first = list.first_on(level);
            std::iter::successors(first, move |n| n.next(level)).map(NodeRef::key).collect::<Vec<_>>()
        };
        assert_eq!(on(0), [b"a", b"b", b"c", b"m", b"n"]);
        assert_eq!(on(1), [b"a", b"c"]);
    });
}

#[test]
fn an_overtaken_writer_finds_its_place_again() {
    loom::model(|| {
        let list = Arc::new(SkipList::new(4096, &std::sync::Arc::default()));
        // Both begin between the head and the end.
        let other = thread::spawn({
            let list = list.clone();
            move || insert(&list, b"b", 1, 2)
        });
        insert(&list, b"a", 2, 2);
        insert(&list, b"c", 3, 2);
        other.join().unwrap();
        let keys = |level| {
            let first = list.first_on(level);
            std::iter::successors(first, move |n| n.next(level)).map(NodeRef::key).collect::<Vec<_>>()
        };
        assert_eq!((keys(0), keys(1)), (vec![&b"a"[..], b"b", b"c"], vec![&b"a"[..], b"b", b"c"]));
    });
}
