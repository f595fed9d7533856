//! Who leads, who waits for whom, and who is woken.

use super::*;
use crate::catalogue::tests::session;
use crate::options::KeyspaceOptions;

/// Waits until something is so, for longer than it takes any machine. Returns whether it is.
fn comes_true(is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() && Instant::now() < deadline {
        sync::thread::sleep(Duration::from_millis(1));
    }
    is_so()
}

fn queue(committer: &Committer, batch: WriteBatch) -> Arc<Waiter> {
    committer.queue.lock().push(batch, true, None)
}

/// A group of a leader that has ended well.
fn ended(committer: &Committer) -> CommitGroup<'_> {
    CommitGroup { committer, followers: SmallVec::new(), result: Some(Ok(())) }
}

#[test]
fn the_next_leader_sleeps_alone_and_the_members_of_its_group_together() {
    let committer = Committer::new(0);
    let bells = [(); 3].map(|()| {
        let [heir, first, second] = [(); 3].map(|()| queue(&committer, WriteBatch::new()).bell);
        assert_eq!((heir, first), (HEIR, second));
        ended(&committer).gather(0);
        first
    });
    // Those of the next group sleep on.
    assert!(!bells.contains(&HEIR) && bells[0] != bells[1] && bells[0] == bells[2], "{bells:?}");
}

#[test]
fn a_group_is_full_at_its_limit_and_the_next_in_the_queue_leads_after_it() {
    for (beyond, taken) in [(0, 2), (1, 1)] {
        let committer = Committer::new(0);
        let batches = [100, 200, 1].map(|len| {
            let mut batch = WriteBatch::new();
            batch.put("key", vec![0; len]);
            batch
        });
        let bytes = batches[0].byte_len() + batches[1].byte_len();
        let waiters = batches.map(|batch| queue(&committer, batch));
        let mut group = ended(&committer);
        group.gather(MAX_GROUP_BYTES - bytes + beyond);
        assert_eq!(group.followers.len(), taken);
        drop(group);
        for waiter in &waiters[..taken] {
            assert!(matches!(waiter.turn.lock().take(), Some(Turn::Done(Ok(())))));
        }
        let lead = match waiters[taken].turn.lock().take() {
            Some(Turn::Lead(Lead { returning, waiting, .. })) => (returning, waiting),
            turn => panic!("{turn:?}"),
        };
        assert_eq!(lead, (taken + 1, 2 - taken), "all members return, and the rest waits");
        let queue = committer.queue.lock();
        assert_eq!(
            (queue.pending.len(), queue.last.map(|(members, _)| members)),
            (2 - taken, Some(taken + 1))
        );
    }
}

#[test]
fn a_writer_sleeps_until_it_gets_its_turn() {
    for sync in [false, true] {
        let committer = Committer::new(0);
        let waiter = queue(&committer, WriteBatch::new());
        let bell = &committer.bells[waiter.bell];
        sync::thread::scope(|scope| {
            let writer = scope.spawn("writer".to_owned(), || waiter.wait(&committer.bells, sync)).unwrap();
            let slept = comes_true(|| bell.sleepers() == 1);
            // The bell rings for others, too.
            bell.ring();
            waiter.give(Turn::Done(Ok(())));
            bell.ring();
            assert!(matches!(writer.join().unwrap(), Turn::Done(Ok(()))) && slept);
        });
    }
}

/// Whether two synced batches, each submitted after the last group was noted as `last` and with
/// so many others in the queue, leave leaders willing to wait. They are not after two groups in a
/// row that waited in vain.
fn waited_in_vain(
    sync_takes: Duration,
    sync: bool,
    last: Option<usize>,
    pause: Duration,
    queued: usize,
) -> bool {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let committer = Committer::new(0);
    committer.gathering.note_group(sync_takes);
    for _ in 0..2 {
        if let Some(members) = last {
            committer.queue.lock().last = Some((members, sync::now()));
        }
        (0..queued).for_each(|_| drop(queue(&committer, WriteBatch::new())));
        sync::thread::sleep(pause);
        committer.submit(WriteBatch::new(), sync, None, || db.lock_log(), |_, _, _| Ok(())).unwrap();
    }
    committer.gathering.limit(1).is_none()
}

#[test]
fn the_first_to_come_back_waits_for_the_others_of_its_group() {
    const HOUR: Duration = Duration::from_secs(3600);
    const NO: Duration = Duration::ZERO;
    assert!(waited_in_vain(HOUR, true, Some(3), NO, 0), "nobody came");
    assert!(!waited_in_vain(HOUR, true, None, NO, 0), "there was no other");
    assert!(!waited_in_vain(HOUR, true, Some(2), NO, 1), "the other one came");
    assert!(!waited_in_vain(HOUR, false, Some(3), NO, 0), "a group that is not synced has no time");
    let (short, long) = (Duration::from_micros(100), Duration::from_millis(2));
    assert!(!waited_in_vain(short, true, Some(3), long, 0), "they have had time to come");
}

#[test]
fn a_leader_waits_for_as_long_as_one_is_missing_but_not_beyond_the_limit() {
    const MEMBERS: usize = 200;
    for missing in [1, MEMBERS] {
        let committer = Committer::new(0);
        committer.gathering.note_group(Duration::from_secs(1));
        let limit = committer.gathering.limit(MEMBERS).unwrap();
        // Three wait who are no members.
        (missing..MEMBERS + 3).for_each(|_| drop(queue(&committer, WriteBatch::new())));
        let started = Instant::now();
        committer.await_members(MEMBERS, 3);
        assert!(started.elapsed() >= limit, "{missing} missing");
    }
}

#[test]
fn the_time_of_a_group_counts_if_it_was_synced() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    let committer = Committer::new(0);
    for sync in [false, true] {
        let commit = |_: &mut Current, _: Members<'_>, _| {
            sync::thread::sleep(Duration::from_millis(1));
            Ok(())
        };
        committer.submit(WriteBatch::new(), sync, None, || db.lock_log(), commit).unwrap();
        assert_eq!(committer.gathering.limit(1).is_some(), sync);
    }
}

#[test]
fn whoever_waits_for_a_number_sleeps_until_it_is_visible_or_never_will_be() {
    for gives_up in [false, true] {
        let committer = Committer::new(4);
        sync::thread::scope(|scope| {
            let waiter = scope.spawn("waiter".to_owned(), || committer.wait_for(6)).unwrap();
            // Whoever sleeps does not hold the lock.
            let sleeps = || {
                committer.asleep.try_lock().is_some_and(|_| committer.sleeping.load(Ordering::SeqCst) == 1)
            };
            let slept = comes_true(sleeps);
            committer.publish(5);
            let slept_on = comes_true(sleeps);
            if gives_up {
                committer.give_up()
            } else {
                committer.publish(6)
            }
            assert_eq!(waiter.join().unwrap(), !gives_up);
            assert!(slept && slept_on);
        });
        assert_eq!(committer.sleeping.load(Ordering::SeqCst), 0);
    }
}

/// Between its last look and its sleep, a thread holds the lock. A publisher that did not take it
/// would not wake that thread.
#[test]
fn the_lock_of_sleepers_is_taken_if_there_are_any() {
    for sleepers in [0, 1] {
        let committer = Committer::new(4);
        let asleep = committer.asleep.lock();
        committer.sleeping.store(sleepers, Ordering::SeqCst);
        let done = AtomicBool::new(false);
        sync::thread::scope(|scope| {
            let publisher = scope.spawn("publisher".to_owned(), || {
                committer.wait_for(4);
                committer.publish(5);
                done.store(true, Ordering::SeqCst);
            });
            let publisher = publisher.unwrap();
            let is_done = || done.load(Ordering::SeqCst);
            let was_done = if sleepers == 0 {
                comes_true(is_done)
            } else {
                comes_true(|| committer.visible() == 5);
                sync::thread::sleep(Duration::from_millis(20));
                is_done()
            };
            drop(asleep);
            publisher.join().unwrap();
            assert_eq!((was_done, committer.visible()), (sleepers == 0, 5));
        });
    }
}

/// The leader of a group that is not synced waited for others.
#[test]
fn only_a_leader_that_syncs_waits_and_only_for_those_who_may_return() {
    let db = session(1, &KeyspaceOptions::default(), |_| ());
    for others in [1, 8] {
        let committer = Committer::new(0);
        committer.gathering.note_group(Duration::from_secs(1));
        let lead = |sync, returning| {
            let batch = WriteBatch::new();
            let lead = Lead { batch, sync, condition: None, returning, waiting: 0 };
            committer.lead(lead, || db.lock_log(), |_, _, _| Ok(())).unwrap();
        };
        let waits = || committer.gathering.limit(1).is_some();
        // Two in a row that waited in vain would keep the next one from waiting.
        lead(false, others);
        lead(false, others);
        assert!(waits());
        lead(true, others);
        // One that has nobody to wait for is no success either.
        lead(true, 0);
        lead(true, others);
        assert!(!waits());
        assert!(waits());
    }
}

/// A reader that nobody woke slept for as long as it was willing to.
#[test]
fn a_sleeper_is_woken_by_the_number_that_it_waits_for() {
    const HOUR: Duration = Duration::from_secs(3600);
    for gives_up in [false, true] {
        let committer = Committer::new(4);
        committer.sleep_until(4, HOUR);
        let naps = AtomicUsize::new(0);
        sync::thread::scope(|scope| {
            let sleeper = scope.spawn("sleeper".to_owned(), || {
                let is_over = || committer.visible() >= 6 || committer.broken.load(Ordering::SeqCst);
                while !is_over() {
                    committer.sleep_until(6, HOUR);
                    naps.fetch_add(1, Ordering::SeqCst);
                }
            });
            let sleeper = sleeper.unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            let sleeps = || committer.sleeping.load(Ordering::SeqCst) == 1;
            while !sleeps() && Instant::now() < deadline {
                sync::thread::sleep(Duration::from_millis(1));
            }
            let fell_asleep = sleeps();
            // It sleeps on, and does not look again and again.
            sync::thread::sleep(Duration::from_millis(20));
            let before = naps.load(Ordering::SeqCst);
            if gives_up || !fell_asleep {
                committer.give_up()
            } else {
                committer.publish(6)
            }
            sleeper.join().unwrap();
            assert!(fell_asleep && before < 10, "{before} naps");
        });
        assert_eq!(committer.sleeping.load(Ordering::SeqCst), 0);
        assert_eq!(committer.wait_for(6), !gives_up);
    }
}
