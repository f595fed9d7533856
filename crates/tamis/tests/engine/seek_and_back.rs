//! Iterators whose front is moved by `seek` while their back is in use.

use tamis::{Db, Iter};

fn abcd() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path()).unwrap();
    for key in ["a", "b", "c", "d"] {
        db.put(key, "value").unwrap();
    }
    (dir, db)
}

fn back(iter: &mut Iter) -> Option<String> {
    iter.next_back().map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap())
}

/// Regression: `seek` forgot the last key returned from the front, which was also all that kept the
/// back from passing the front: after `seek("c")` an iteration from the back continued with "b" and
/// "a". The sought position is now a separate bound.
#[test]
fn the_back_does_not_pass_a_front_moved_by_seek() {
    let (_dir, db) = abcd();
    for flushed in [false, true] {
        let mut iter = db.iter();
        iter.seek("c").unwrap();
        let keys: Vec<_> = std::iter::from_fn(|| back(&mut iter)).collect();
        assert_eq!(keys, ["d", "c"], "flushed: {flushed}");
        db.flush().unwrap();
    }
}

/// Regression: a back that ended because it met the front stayed at its end when the front was
/// moved away.
#[test]
fn a_back_that_met_the_front_continues_when_the_front_moves_away() {
    let (_dir, db) = abcd();
    let mut iter = db.iter();
    iter.seek("c").unwrap();
    assert_eq!(
        [back(&mut iter), back(&mut iter), back(&mut iter)],
        [Some("d".into()), Some("c".into()), None]
    );
    iter.seek("b").unwrap();
    assert_eq!([back(&mut iter), back(&mut iter)], [Some("b".into()), None]);
    iter.seek("").unwrap();
    assert_eq!(iter.next().unwrap().unwrap().0, "a");
    assert_eq!(back(&mut iter), None);
}
