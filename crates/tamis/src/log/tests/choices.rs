//! What the log makes, reserves and gives back, and when.

use super::*;

/// Options that let a log be half as long as expected as soon as it has its header.
fn tiny() -> Options {
    let keyspace = KeyspaceOptions { memtable_bytes: 57, ..KeyspaceOptions::default() };
    Options { keyspace, ..options() }
}

impl Rig {
    /// Makes an obsolete log that is kept to be overwritten.
    fn recyclable(&self) -> LogId {
        for _ in 0..6 {
            self.append(50_000);
            self.sync();
        }
        let id = self.roll();
        self.sync();
        let floor = self.log.lock().id();
        self.release(floor);
        assert!(self.monitor.lock().logs.recyclable.iter().any(|log| log.id == id));
        id
    }

    fn next(&self) -> Option<LogId> {
        self.log.next.lock().as_ref().map(|next| next.id)
    }

    fn used(&self) -> u64 {
        self.fs.files().iter().map(|file| file.1).sum()
    }
}

#[test]
fn the_next_log_is_made_once_the_current_one_is_half_as_long_as_expected() {
    let rig = Rig::begun(&tiny());
    rig.log.prepare(false);
    rig.check();
    assert_eq!(rig.next(), Some(10), "the header is half of it");

    let rig = Rig::begun(&options());
    rig.log.prepare(false);
    assert_eq!(rig.next(), None);
    rig.log.prepare(true);
    rig.check();
    assert_eq!(rig.next(), Some(10));
    // Its length is durable as well, so that a synced append changes nothing but data.
    assert!(rig.size(10) > FIRST_STEP && rig.is_durable(10, rig.size(10)));
    assert_eq!(rig.operations(|| rig.log.prepare(true)), 0, "that is done");
    rig.append(10);
    assert_eq!(rig.operations(|| rig.log.roll(&mut rig.log.lock()).unwrap()), 1, "the closing record");
    rig.check();
    assert_eq!((rig.next(), rig.log.lock().id()), (None, 10));
}

#[test]
fn no_log_is_made_ahead_near_the_limit() {
    let rig = Rig::begun(&Options { max_log_bytes: 40_000, ..options() });
    rig.log.prepare(true);
    assert_eq!(rig.next(), Some(10));
    rig.append(10);
    rig.roll();
    rig.append(25_000);
    assert!(rig.log.is_near_limit(5000));
    rig.log.prepare(true);
    assert_eq!(rig.next(), None);
}

/// The space of a reused file was counted twice, or not at all, whenever one of the sizes was not
/// brought up to date.
#[test]
fn a_log_in_a_reused_file_takes_the_space_of_that_file() {
    for ahead in [true, false] {
        let rig = Rig::begun(&options());
        let old = rig.recyclable();
        let size = rig.size(old);
        assert!(size > FIRST_STEP + 10_000, "more than a log reserves at first");
        if ahead {
            rig.log.prepare(true);
            rig.check();
            assert_eq!(rig.next(), Some(11));
        } else {
            rig.append(10);
            rig.roll();
        }
        assert!(!rig.exists(old) && rig.monitor.lock().logs.recyclable.is_empty());
        assert_eq!(rig.size(11), size);
    }
}

#[test]
fn a_log_that_could_not_be_made_takes_nothing_and_its_file_is_removed_later() {
    let rig = Rig::begun(&options());
    let old = rig.recyclable();
    rig.append(10);
    rig.fail(OpClass::Name, ErrorKind::Other, false);
    rig.log.roll(&mut rig.log.lock()).unwrap_err();
    rig.check();
    assert!(rig.gate.suspended().is_none() && rig.next().is_none());
    assert_eq!(rig.monitor.lock().logs.obsolete[0].id, old);
    assert!(rig.log.remove_obsolete());
    rig.check();
    rig.append(10);
    // Without a file to overwrite.
    rig.fail(OpClass::Name, ErrorKind::Other, false);
    rig.log.roll(&mut rig.log.lock()).unwrap_err();
    rig.check();
    rig.roll();
}

/// A second log that nothing names would look like damage.
#[test]
fn a_log_whose_name_could_not_be_synced_is_kept_for_the_next_attempt() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.fail(OpClass::Sync, ErrorKind::Other, false);
    rig.log.roll(&mut rig.log.lock()).unwrap_err();
    rig.check();
    assert_eq!(rig.next(), Some(10));
    assert_eq!(rig.operations(|| rig.log.prepare(true)), 1, "the directory is synced");
    assert_eq!(rig.operations(|| rig.log.prepare(true)), 0);
    rig.roll();
    assert_eq!(rig.log.lock().id(), 10);
}

/// The second attempt reserved less than the record takes: the first one had given up all space
/// after the last record, and the growth was counted from there.
#[test]
fn a_full_disk_gets_obsolete_logs_back_for_the_next_reservation() {
    let rig = Rig::begun(&options());
    let old = rig.recyclable();
    rig.fs.set_capacity(Some(rig.used() + 1000));
    assert_eq!(rig.room.ask(&rig.fs, dir()), Some(1000));
    rig.append(200_000);
    assert!(!rig.exists(old) && rig.size(10) > 200_000 + FIRST_STEP);
    // What was known is out of date.
    rig.room.refresh(&rig.fs, dir());
    assert_ne!(rig.room.free(), Some(1000));

    // There is nothing to give back: the append takes what is free, and reserves nothing.
    let left = rig.size(10) - rig.log.lock().len();
    rig.fs.set_capacity(Some(rig.used() + 100_000));
    rig.try_append(left as usize + 10_000).unwrap();
    rig.check();
    assert_eq!(rig.size(10), rig.log.lock().len());
    assert_eq!(rig.operations(|| _ = rig.try_append(10).unwrap()), 1, "that is not tried again");
    rig.check();
}

#[test]
fn what_is_given_back_is_reported() {
    let rig = Rig::begun(&options());
    assert!(!rig.log.give_back() && !rig.log.release_recyclable() && !rig.log.shrink_next());
    let old = rig.recyclable();
    assert!(rig.log.give_back());
    rig.check();
    assert!(!rig.exists(old) && !rig.log.give_back());

    rig.log.prepare(true);
    assert!(rig.log.give_back());
    rig.check();
    assert_eq!(rig.size(11), HEADER);
    assert!(!rig.log.give_back(), "it has no space to give back");

    let rig = Rig::begun(&options());
    rig.recyclable();
    assert!(rig.log.release_recyclable());
    rig.check();
    assert!(!rig.log.release_recyclable());
    rig.log.prepare(true);
    assert!(rig.log.shrink_next());
    rig.check();
    assert!(!rig.log.shrink_next());
}

#[test]
fn after_idle_seconds_space_is_given_back() {
    let rig = Rig::begun(&options());
    rig.append(10);
    rig.sync();
    let old = rig.roll();
    rig.log.prepare(true);
    rig.release(10);
    assert_eq!(rig.monitor.lock().logs.recyclable[0].id, old);
    let (next, start) = (rig.next().unwrap(), Instant::now());
    let size = rig.size(next);
    assert!(size > HEADER);
    let is_as_before = || rig.exists(old) && rig.size(next) == size;
    rig.log.release_if_idle(start);
    rig.log.release_if_idle(start + IDLE - Duration::from_nanos(1));
    assert!(is_as_before());
    rig.append(10);
    rig.log.release_if_idle(start + IDLE);
    assert!(is_as_before(), "a record was appended meanwhile");
    rig.log.release_if_idle(start + IDLE + IDLE);
    rig.check();
    assert!(!rig.exists(old) && rig.size(next) == HEADER);
}

#[test]
fn a_file_that_cannot_be_removed_counts_and_is_tried_again() {
    let rig = Rig::begun(&options());
    for _ in 0..2 {
        rig.append(10);
        rig.roll();
    }
    rig.release(11);
    rig.fail(OpClass::Name, ErrorKind::PermissionDenied, true);
    assert!(!rig.log.remove_obsolete());
    rig.check();
    rig.fail(OpClass::Name, ErrorKind::PermissionDenied, false);
    assert!(rig.log.remove_obsolete());
    rig.check();
    assert!(rig.exists(9) && !rig.exists(10), "only the first attempt failed");
    // Somebody else may have removed it.
    rig.fs.remove(&path(9)).unwrap();
    assert!(rig.log.remove_obsolete());
    rig.check();
    assert!(!rig.log.remove_obsolete());
}

#[test]
fn the_limits_are_reached_at_the_stated_sizes() {
    let keyspace = KeyspaceOptions { memtable_bytes: 1000, ..KeyspaceOptions::default() };
    let rig = Rig::begun(&Options { keyspace, max_log_bytes: 10_000, ..options() });
    let check = |most: u64| {
        assert_eq!(rig.log.needed(), HEADER);
        let (near, over) = (most - most / 4 - HEADER, most - HEADER);
        assert!(!rig.log.is_near_limit(near) && rig.log.is_near_limit(near + 1));
        let state = rig.monitor.lock();
        assert_eq!(rig.log.oldest_if_near_limit(&state.logs, near), None);
        assert_eq!(rig.log.oldest_if_near_limit(&state.logs, near + 1), Some(9));
        assert!(!rig.log.is_over(over) && rig.log.is_over(over + 1));
    };
    check(10_000);
    // All logs take at most a quarter of what could be free.
    rig.log.note_free(Some(32_000 - HEADER));
    check(8000);
    rig.log.note_free(None);
    check(10_000);
    let rig = Rig::begun(&options());
    rig.log.note_free(Some(0));
    assert!(!rig.log.is_over(LEAST_LOGS - HEADER) && rig.log.is_over(LEAST_LOGS - HEADER + 1));
}

#[test]
fn obsolete_logs_go_before_all_logs_exceed_their_limit() {
    let rig = Rig::begun(&options());
    let old = rig.recyclable();
    let taken = rig.log.allocated(&rig.monitor.lock().logs);
    assert_eq!(taken, rig.used());
    let left = (64 << 20) - taken;
    rig.log.shed(left);
    assert!(rig.exists(old));
    rig.log.shed(left + 1);
    rig.check();
    assert!(!rig.exists(old));
}
