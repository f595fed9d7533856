//! Write times: samples that pair a sequence number with a time.
//!
//! A sample (t, s) states that every write with a sequence number up to s was made at or before
//! time t. The writes covered by a sample older than the time to live have therefore outlived it.
//! Later writes may be as old as that sample, but must wait until the next one is old enough.
//! Entries never expire early, and expire late by at most the time between two samples.
//!
//! # Invariants
//!
//! * Samples ascend strictly in time and in sequence number. If the clock goes back, a sample still
//!   gets at least the time of the newest one, so the writes made meanwhile count as younger than
//!   they are.
//! * Where there were writes, neighbouring samples are at most the requested distance or 1/128 of
//!   their age apart, whichever is more. A query for an age uses the samples of that age and older,
//!   so the error stays below 1/128 of any time to live (or the distance). The number of samples is
//!   thus logarithmic in the time they span: at most 256 for the youngest, and 256 more each time
//!   the age grows by a factor of e.
//!
//! Plain data; the owner provides locking.

use tamis_base::key::{MAX_SEQNO, SeqNo};

use crate::codec::{Decoder, Encode};
use crate::wal::DecodeError;

/// The reciprocal of the relative error of expiry times.
pub const PRECISION: u64 = 128;

/// All writes up to `seq` were made at or before `time`, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: u64,
    /// Every write up to this number was made by then.
    pub seq: SeqNo,
}

/// The samples of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqTimes(Vec<Sample>);

impl SeqTimes {
    /// Returns the newest sample.
    pub fn newest(&self) -> Option<Sample> {
        self.0.last().copied()
    }

    /// Returns all samples, ascending.
    pub fn samples(&self) -> &[Sample] {
        &self.0
    }

    /// The samples that cover writes after `seq`.
    pub fn after(&self, seq: SeqNo) -> &[Sample] {
        &self.0[self.0.partition_point(|sample| sample.seq <= seq)..]
    }

    /// Forgets the samples that cover writes after `seq`.
    pub fn cut_at(&mut self, seq: SeqNo) {
        self.0.truncate(self.0.partition_point(|sample| sample.seq <= seq));
    }

    /// Returns the last known sequence number whose write, and all writes before it, were made
    /// before `time`; 0 if unknown.
    pub fn made_before(&self, time: u64) -> SeqNo {
        match self.0.partition_point(|sample| sample.time < time) {
            0 => 0,
            n => self.0[n - 1].seq,
        }
    }

    /// Records that all writes up to `seq` were made by `time`. Within one interval of `distance`
    /// seconds (at least 1) only the last sample is kept. O(1), except linear in the samples when a
    /// new interval begins.
    pub fn note(&mut self, sample: Sample, distance: u64, keep: u64) {
        let Sample { mut time, seq } = sample;
        if let Some(newest) = self.0.last_mut() {
            if seq <= newest.seq {
                return;
            }
            time = time.max(newest.time);
            if time / distance == newest.time / distance {
                *newest = Sample { time, seq };
                return;
            }
        }
        self.0.push(Sample { time, seq });
        self.thin(distance, keep);
    }

    /// Adds stored samples, in sequence number order. Linear in both lists.
    pub fn note_all(&mut self, samples: &[Sample]) {
        for &Sample { time, seq } in samples {
            match self.0.last_mut() {
                Some(newest) if seq <= newest.seq => {}
                Some(newest) if time <= newest.time => newest.seq = seq,
                _ => self.0.push(Sample { time, seq }),
            }
        }
        self.thin(1, u64::MAX);
    }

    /// Drops the samples older than `keep` seconds, except the newest of them. Also drops each
    /// sample whose neighbours are close enough together for their age.
    fn thin(&mut self, distance: u64, keep: u64) {
        let Some(newest) = self.newest() else { return };
        let outdated = self.0.partition_point(|sample| sample.time < newest.time.saturating_sub(keep));
        self.0.drain(..outdated.saturating_sub(1));
        let mut kept = 0;
        for i in 0..self.0.len() {
            let dispensable = kept > 0
                && self.0.get(i + 1).is_some_and(|next| {
                    let gap = next.time - self.0[kept - 1].time;
                    gap <= distance.max((newest.time - next.time) / PRECISION)
                });
            if !dispensable {
                self.0[kept] = self.0[i];
                kept += 1;
            }
        }
        self.0.truncate(kept);
    }
}

/// Appends ascending samples: the first one's time and sequence number, then differences.
pub(crate) fn encode(samples: &[Sample], out: &mut Vec<u8>) {
    let mut last = Sample { time: 0, seq: 0 };
    for sample in samples {
        out.put_varint(sample.time - last.time);
        out.put_varint(sample.seq - last.seq);
        last = *sample;
    }
}

/// Decodes samples up to the end of `from`.
pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Vec<Sample>, DecodeError> {
    const CUT: DecodeError = DecodeError("a field is cut short");
    let mut samples: Vec<Sample> = Vec::new();
    while !from.is_empty() {
        let (time, seq) = (from.varint().ok_or(CUT)?, from.varint().ok_or(CUT)?);
        let last = samples.last().copied();
        let Sample { time: last_time, seq: last_seq } = last.unwrap_or(Sample { time: 0, seq: 0 });
        let sum = last_time.checked_add(time).zip(last_seq.checked_add(seq));
        let Some((new_time, new_seq)) = sum.filter(|sum| sum.1 <= MAX_SEQNO) else {
            return Err(DecodeError("a time sample is out of range"));
        };
        if seq == 0 || (time == 0 && last.is_some()) {
            return Err(DecodeError("time samples do not ascend"));
        }
        samples.push(Sample { time: new_time, seq: new_seq });
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const YEAR: u64 = 365 * 86_400;

    fn times(samples: &[(u64, SeqNo)], distance: u64, keep: u64) -> SeqTimes {
        let mut times = SeqTimes::default();
        samples.iter().for_each(|&(time, seq)| times.note(Sample { time, seq }, distance, keep));
        times
    }

    fn pairs(times: &SeqTimes) -> Vec<(u64, SeqNo)> {
        times.samples().iter().map(|sample| (sample.time, sample.seq)).collect()
    }

    #[test]
    fn the_last_sample_of_an_interval_is_kept() {
        let times = times(&[(100, 1), (109, 5), (110, 6), (119, 7), (131, 7), (131, 8)], 10, YEAR);
        assert_eq!(pairs(&times), [(109, 5), (119, 7), (131, 8)]);
        assert_eq!([109, 110, 119, 120, 132].map(|time| times.made_before(time)), [0, 5, 5, 7, 8]);
        assert_eq!(times.after(5), &times.samples()[1..]);
    }

    #[test]
    fn stored_samples_of_numbers_that_are_known_change_nothing() {
        let mut times = times(&[(100, 5)], 1, YEAR);
        let stored = [(100, 5), (110, 5), (120, 7)].map(|(time, seq)| Sample { time, seq });
        times.note_all(&stored);
        assert_eq!(pairs(&times), [(100, 5), (120, 7)]);
    }

    /// If sample times went back, new writes would seem old.
    #[test]
    fn a_clock_that_goes_back_does_not_affect_the_samples() {
        let times = times(&[(100, 1), (50, 2), (60, 3), (101, 4)], 1, YEAR);
        assert_eq!(pairs(&times), [(100, 3), (101, 4)]);
    }

    #[test]
    fn the_newest_outdated_sample_is_kept() {
        let times = times(&[(100, 1), (200, 2), (300, 3), (1000, 4)], 1, 750);
        assert_eq!(pairs(&times), [(200, 2), (300, 3), (1000, 4)]);
    }

    /// Of samples of this age, neighbours are at most seven seconds apart.
    #[test]
    fn a_sample_goes_if_its_neighbours_are_close_enough_for_their_age() {
        let thinned = |samples: &[(u64, SeqNo)]| {
            let samples: Vec<_> = samples.iter().map(|&(time, seq)| Sample { time, seq }).collect();
            let mut times = SeqTimes::default();
            times.note_all(&samples);
            pairs(&times)
        };
        let close = [(97, 1), (100, 2), (104, 3), (1000, 4)];
        assert_eq!(thinned(&close), [(97, 1), (104, 3), (1000, 4)]);
        let apart = [(96, 1), (100, 2), (104, 3), (1000, 4)];
        assert_eq!(thinned(&apart), apart);
        // The first one and the last two stay.
        assert_eq!(thinned(&[(1, 1), (2, 2), (3, 3), (1000, 4)]), [(1, 1), (3, 3), (1000, 4)]);
        assert_eq!(thinned(&[(1, 1), (2, 2), (3, 3)]), [(1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn a_year_of_writes_takes_some_thousand_samples() {
        let mut times = SeqTimes::default();
        // Steps grow with age, as thinning would make them, to shorten the test.
        let (mut time, mut seq) = (0, 0);
        while time < YEAR {
            time += ((YEAR - time) / 1000).max(1);
            seq += 1;
            times.note(Sample { time, seq }, 1, u64::MAX);
        }
        let count = times.samples().len();
        assert!((1000..3500).contains(&count), "{count}");
    }

    #[test]
    fn hostile_samples_are_rejected() {
        let bytes = |numbers: &[u64]| {
            let mut bytes = Vec::new();
            numbers.iter().for_each(|&number| bytes.put_varint(number));
            bytes
        };
        let refused = |numbers: &[u64]| decode(&mut Decoder::new(&bytes(numbers))).is_err();
        assert!(!refused(&[0, 1]) && !refused(&[u64::MAX, MAX_SEQNO]));
        assert!(refused(&[5, 0]), "a sample of no write");
        assert!(refused(&[5, 1, 0, 1]) && refused(&[5, 1, 1, 0]), "samples that stand still");
        assert!(refused(&[u64::MAX, 1, 1, 1]) && refused(&[5, MAX_SEQNO + 1]), "too large");
        assert!(refused(&[1, MAX_SEQNO, 1, u64::MAX]) && refused(&[5]), "too large, too short");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A write never seems older than it is. It seems younger by less than the distance or
        /// 1/128 of its age, whichever is more.
        #[test]
        fn ages_are_never_too_high_and_barely_too_low(
            steps in prop::collection::vec(prop_oneof![8 => 0..3u64, 2 => 0..100u64, 1 => 0..5000u64], 1..400),
            distance in 1..20u64,
            keep in 100..20_000u64,
        ) {
            let mut times = SeqTimes::default();
            let (mut now, mut made) = (1_000_000, Vec::new());
            for (seq, step) in (1..).zip(steps) {
                now += step;
                made.push(now);
                times.note(Sample { time: now, seq }, distance, keep);
                let samples = times.samples();
                let ascend = |pair: &[Sample]| pair[0].time < pair[1].time && pair[0].seq < pair[1].seq;
                prop_assert!(samples.windows(2).all(ascend), "{:?}", samples);
                for age in [1, 10, 128, 1000, keep / 2, keep].into_iter().filter(|&age| age <= keep) {
                    let seq = times.made_before(now - age) as usize;
                    prop_assert!(made[..seq].iter().all(|time| now - time > age));
                    let error = distance.max(age / PRECISION);
                    prop_assert!(made[seq..].iter().all(|time| now - time < age + error), "{age} {now} {times:?}");
                }
            }
        }

        #[test]
        fn samples_round_trip(steps in prop::collection::vec((1..u64::MAX / 300, 1..MAX_SEQNO / 300), 0..200)) {
            let mut samples = Vec::new();
            let (mut time, mut seq) = (0, 0);
            for step in steps {
                (time, seq) = (time + step.0, seq + step.1);
                samples.push(Sample { time, seq });
            }
            let mut bytes = Vec::new();
            encode(&samples, &mut bytes);
            prop_assert_eq!(decode(&mut Decoder::new(&bytes)), Ok(samples));
        }
    }
}
