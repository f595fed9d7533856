//! Which obsolete logs are kept, to be overwritten or for readers of changes.

use super::*;

fn closed(id: LogId, bytes: u64) -> ClosedLog {
    ClosedLog { keep: false, syncs: 1000, ..ClosedLog::found(id, Some(10 * id), bytes) }
}

#[test]
fn a_log_is_overwritten_only_within_all_limits() {
    let keyspace = KeyspaceOptions { memtable_bytes: 1000, ..KeyspaceOptions::default() };
    let options = Options { keyspace, max_log_bytes: 10_000, recycled_logs: 3, ..Options::default() };
    let rig = Rig::begun(&options);
    // Kept so far, and the log in question.
    let may = |kept: &[u64], log: ClosedLog| {
        let recyclable = kept.iter().map(|&bytes| closed(1, bytes)).collect();
        rig.log.may_recycle(&LogFiles { recyclable, ..LogFiles::default() }, &log)
    };
    assert!(may(&[], closed(2, 1000)));
    assert!(!may(&[], ClosedLog { syncs: 0, ..closed(2, 1000) }), "it was never synced");
    assert!(!may(&[], ClosedLog { has_values: true, ..closed(2, 1000) }), "it is read");
    assert!(may(&[1, 1], closed(2, 1000)) && !may(&[1, 1, 1], closed(2, 1000)), "enough are kept");
    // Twice the expected size, which is an eighth more than a memtable.
    assert!(may(&[], closed(2, 2250)) && !may(&[], closed(2, 2251)));
    // Three quarters of what all logs may take.
    let left = 7500 - rig.log.needed();
    assert!(may(&[left - 1000], closed(2, 1000)) && !may(&[left - 999], closed(2, 1000)));
    // An eighth of what is free.
    let used: u64 = rig.fs.files().iter().map(|file| file.1).sum();
    for (free, expected) in [(8 * 1500, true), (8 * 1500 - 1, false)] {
        rig.fs.set_capacity(Some(used + free));
        assert_eq!(rig.room.ask(&rig.fs, dir()), Some(free));
        assert_eq!(may(&[500], closed(2, 1000)), expected, "{free}");
    }
}

/// Logs 1 to 3 are retained since 100, 200 and 300 s, and take a thousand bytes each. Returns what
/// is left at 400 s.
fn left(change: impl FnOnce(&mut LogFiles)) -> (Vec<LogId>, bool) {
    let rig = Rig::begun(&Options { recycled_logs: 0, ..options() });
    let mut files = LogFiles::new(&options());
    (files.current, files.current_first) = (9, 40);
    files.retained.logs = (1..=3).map(|id| (closed(id, 1000), 100 * id)).collect();
    change(&mut files);
    let any = rig.log.expire(&mut files, 400);
    let left: Vec<_> = files.retained.logs.iter().map(|(log, _)| log.id).collect();
    let gone: Vec<_> = files.obsolete.iter().chain(&files.recyclable).map(|log| log.id).collect();
    assert_eq!(any, !gone.is_empty());
    let mut all = [left.clone(), gone].concat();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3]);
    (left, any)
}

#[test]
fn retained_logs_go_as_soon_as_nothing_needs_them() {
    assert_eq!(left(|_| ()), (vec![], true));
    // The session has not begun, or has just begun with the first number.
    assert_eq!(left(|files| files.current_first = 0), (vec![1, 2, 3], false));
    assert_eq!(left(|files| files.current_first = 1), (vec![], true));
    for (keep_bytes, kept) in [(3000, vec![1, 2, 3]), (2999, vec![2, 3]), (1000, vec![3]), (999, vec![])] {
        let any = kept.len() < 3;
        assert_eq!(left(|files| files.retained.keep_bytes = keep_bytes), (kept, any), "{keep_bytes}");
    }
    for (keep_time, kept) in [(301, vec![1, 2, 3]), (300, vec![2, 3]), (101, vec![3]), (100, vec![])] {
        let any = kept.len() < 3;
        assert_eq!(left(|files| files.retained.keep_time = Some(keep_time)), (kept, any), "{keep_time}");
    }
}

/// Log 1 holds the numbers 10 to 19, and so on.
#[test]
fn a_consumer_needs_the_logs_that_it_has_not_acknowledged() {
    for (position, kept) in
        [(18, vec![1, 2, 3]), (19, vec![2, 3]), (28, vec![2, 3]), (38, vec![3]), (39, vec![])]
    {
        let any = kept.len() < 3;
        assert_eq!(left(|files| files.add_consumer("consumer", position)), (kept, any), "{position}");
    }
}

#[test]
fn needed_logs_go_beyond_the_most_that_may_be_kept() {
    for (most_bytes, kept) in [(3000, vec![1, 2, 3]), (2999, vec![2, 3]), (1999, vec![3]), (999, vec![])] {
        let any = kept.len() < 3;
        let change = |files: &mut LogFiles| {
            (files.retained.keep_time, files.retained.most_bytes) = (Some(1000), most_bytes);
        };
        assert_eq!(left(change), (kept, any), "{most_bytes}");
    }
}

/// Nobody reads them, whatever is kept.
#[test]
fn abandoned_logs_are_not_kept() {
    let change = |keep_bytes| {
        move |files: &mut LogFiles| {
            files.retained.keep_bytes = keep_bytes;
            files.retained.logs[1].0.abandoned = true;
        }
    };
    assert_eq!(left(change(3000)), (vec![1, 3], true));
    assert_eq!(left(change(2999)), (vec![3], true));
}

/// A log without a first number says nothing of where the one before it ends.
#[test]
fn the_end_of_a_log_is_the_next_number_that_is_known() {
    let change = |position| {
        move |files: &mut LogFiles| {
            files.add_consumer("consumer", position);
            files.retained.logs[1].0.first_seq = None;
        }
    };
    assert_eq!(left(change(28)), (vec![1, 2, 3], false));
    assert_eq!(left(change(29)), (vec![3], true));
}
