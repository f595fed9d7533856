use super::*;

fn stream(epoch: u64, thread: u32) -> Stream {
    Stream { epoch, thread, ..Stream::plain(7) }
}

/// Returns the contents of a database after writes `1..=number` of each thread, all of epoch 1.
fn state_of(numbers: &[u64]) -> State {
    let mut state = State::default();
    for (thread, &number) in numbers.iter().enumerate() {
        let mut counter = vec![number];
        counter.resize(1 + numbers.len(), 0);
        state.counters.insert(thread as u32, counter);
        (1..=number).for_each(|n| state.model.apply(&stream(1, thread as u32).write(n)));
    }
    state
}

/// Returns an account of two threads with ten acknowledged writes each; the first four of the first
/// thread are synced.
fn account() -> Cuts {
    let mut cuts = Cuts::new(stream(0, 0), 2);
    cuts.judge(&State::default(), 1).unwrap();
    for number in 1..=10 {
        cuts.acknowledged(0, number, number <= 4).unwrap();
        cuts.acknowledged(1, number, false).unwrap();
    }
    cuts.freeze();
    cuts
}

#[test]
fn a_number_means_one_write_and_another_epoch_another_one() {
    assert_eq!(stream(1, 0).write(5), stream(1, 0).write(5));
    assert_ne!(stream(1, 0).write(5), stream(2, 0).write(5));
    assert_ne!(stream(1, 0).write(5), stream(1, 1).write(5));
    let all: Vec<Write> = (0..2000).map(|n| stream(1, 0).write(n)).collect();
    assert!(all.iter().any(|w| w.way == Way::Ingestion && w.synced));
    assert!(all.iter().any(|w| w.way == Way::Batch && w.synced) && all.iter().any(|w| !w.synced));
    let ops = || all.iter().flat_map(|w| &w.ops);
    assert!(ops().any(|op| matches!(op, Op::Add(..))) && ops().any(|op| matches!(op, Op::DeleteRange(..))));
    let ingested = all.iter().filter(|w| w.way == Way::Ingestion).flat_map(|w| &w.ops);
    assert!(ingested.into_iter().all(|op| !matches!(op, Op::Add(..))), "external tables hold no operands");
}

#[test]
fn unpromised_writes_may_be_lost_from_the_end() {
    for (first, second) in [(4, 0), (10, 10), (11, 3), (7, 11)] {
        let judged = account().judge(&state_of(&[first, second]), 2).unwrap();
        assert_eq!(judged.safe, 4);
        assert_eq!(judged.lost_buffered, 10u64.saturating_sub(first) + 10u64.saturating_sub(second));
    }
}

#[test]
fn broken_promises_are_detected() {
    let error = account().judge(&state_of(&[3, 10]), 2).unwrap_err();
    assert!(error.contains("LOST") && error.contains("thread 0"), "{error}");
}

#[test]
fn only_writes_before_the_cut_are_promised() {
    let mut cuts = account();
    cuts.acknowledged(0, 11, true).unwrap();
    let judged = cuts.judge(&state_of(&[8, 10]), 2).unwrap();
    assert_eq!((judged.in_flight, judged.in_flight_lost), (7, 3));
}

#[test]
fn invented_writes_are_detected() {
    assert!(account().judge(&state_of(&[12, 10]), 2).unwrap_err().contains("only 10 was acknowledged"));
}

#[test]
fn partial_writes_are_detected() {
    let mut found = state_of(&[10, 10]);
    let number = (1..=10).rev().find(|n| {
        let write = stream(1, 0).write(*n);
        matches!(write.ops.last(), Some(Op::Put(Space::Default, ..)))
    });
    let Some(Op::Put(_, key, _)) = stream(1, 0).write(number.unwrap()).ops.pop() else { unreachable!() };
    found.model.insert(Space::Default, key, 1);
    assert!(account().judge(&found, 2).unwrap_err().contains("1 keys differ"));
}

#[test]
fn an_effect_without_its_cause_is_no_prefix() {
    let mut found = state_of(&[6, 8]);
    found.counters.insert(1, vec![8, 7, 0]);
    let error = account().judge(&found, 2).unwrap_err();
    assert!(error.contains("no prefix"), "{error}");
    found.counters.insert(1, vec![8, 6, 0]);
    account().judge(&found, 2).unwrap();
}

#[test]
fn found_writes_are_promised_from_then_on() {
    let mut cuts = account();
    cuts.judge(&state_of(&[8, 10]), 2).unwrap();
    cuts.freeze();
    assert!(cuts.judge(&state_of(&[7, 10]), 3).unwrap_err().contains("LOST"));
}

#[test]
fn a_copy_contains_the_writes_acknowledged_when_it_began() {
    let cuts = account();
    cuts.judge_copy(&state_of(&[5, 2]), &[5, 2]).unwrap();
    assert!(cuts.judge_copy(&state_of(&[5, 2]), &[5, 3]).unwrap_err().contains("LOST"));
}

fn journalled(numbers: &[u64]) -> State {
    let mut state = State { done: numbers.iter().copied().collect(), ..State::default() };
    numbers.iter().for_each(|n| state.model.apply(&stream(1, 0).write(*n)));
    state
}

#[test]
fn a_failed_write_may_be_present_after_reopening_but_not_before() {
    let mut journal = Journal::new(stream(1, 0));
    for number in 1..=3 {
        journal.begin(number, Way::Batch);
        journal.acknowledge(number);
    }
    journal.begin(4, Way::Batch);
    journal.judge_open(&journalled(&[1, 2, 3])).unwrap();
    assert!(journal.judge_open(&journalled(&[1, 2, 3, 4])).is_err());
    journal.clone().judge_reopened(&journalled(&[1, 2, 3])).unwrap();
    journal.judge_reopened(&journalled(&[1, 2, 3, 4])).unwrap();
    assert_eq!(journal.held(), 4);
}

#[test]
fn a_failed_write_does_not_reappear_after_a_later_one_was_acknowledged() {
    let mut journal = Journal::new(stream(1, 0));
    journal.begin(1, Way::Batch);
    journal.begin(2, Way::Batch);
    journal.acknowledge(2);
    journal.clone().judge_reopened(&journalled(&[2])).unwrap();
    assert!(
        journal.clone().judge_reopened(&journalled(&[1, 2])).unwrap_err().contains("should not be present")
    );
    assert!(journal.judge_reopened(&journalled(&[])).unwrap_err().contains("LOST: [2]"));
}
