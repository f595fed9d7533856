//! Checks sizes against trees in which the code of every key is written out, and against codes that
//! are actually built.

use proptest::prelude::*;

use super::*;

const POLICIES: [Policy; 3] = [Policy::Leveling, Policy::Tiering, Policy::TieringAtRest];

fn small_trees() -> impl Iterator<Item = Tree> {
    [2, 3, 4, 10].into_iter().flat_map(|size_ratio| (1..=5).map(move |levels| Tree { levels, size_ratio }))
}

/// Returns the lengths of a Huffman code, by merging sets of symbols: slow and simple.
fn huffman_lengths(shares: &[f64]) -> Vec<u32> {
    let mut lengths = vec![0; shares.len()];
    let mut sets: Vec<(f64, Vec<usize>)> =
        shares.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(i, &p)| (p, vec![i])).collect();
    while sets.len() > 1 {
        sets.sort_by(|a, b| b.0.total_cmp(&a.0));
        let ((p, a), (q, b)) = (sets.pop().unwrap(), sets.pop().unwrap());
        let both: Vec<usize> = a.into_iter().chain(b).collect();
        both.iter().for_each(|&symbol| lengths[symbol] += 1);
        sets.push((p + q, both));
    }
    lengths
}

fn mean(shares: &[f64], lengths: &[u32]) -> f64 {
    let sum: f64 = shares.iter().sum();
    shares.iter().zip(lengths).map(|(p, &bits)| p / sum * f64::from(bits)).sum()
}

#[test]
fn published_rates() {
    // Section 4: 2^-(b-3), 2^-(b-5).
    assert_eq!((snarf_rate(10.0), rate(10.0)), (1.0 / 128.0, 1.0 / 32.0));
    assert_eq!((rate(5.0), rate(0.0), rate(f64::NAN)), (1.0, 1.0, 1.0));
    // 1.12 is the logarithm's value; the sum is 1.16.
    assert!((paper_average_factor(10) - 1.12).abs() < 0.005);
    assert!((average_factor(10) - 1.157).abs() < 0.0005);
    assert_eq!((average_factor(2), paper_average_factor(2)), (1.5, 1.0));
    assert!((break_even_runs(10) - 4.63).abs() < 0.005 && 4.0 * paper_average_factor(10) < 5.0);
    // The page on global filters: 1.56 % and 0.10 % for 6 and 10 bits of position.
    assert!((position_rate(6.0) - 0.0156).abs() < 1e-4 && (position_rate(10.0) - 0.001).abs() < 3e-5);
}

/// One partition of 65,536 uniform keys, mapped by their digests, whose runs of equal size were
/// inserted one by one: matches of absent keys.
#[test]
fn the_rate_of_a_partition_is_at_most_a_bit_above_that_of_ideal_codes() {
    for (bits, runs, seen) in [
        (10.0, 1, 0.0053),
        (10.0, 4, 0.0335),
        (10.0, 19, 0.1750),
        (10.0, 74, 0.7269),
        (14.0, 1, 0.0003),
        (14.0, 4, 0.0020),
        (14.0, 19, 0.0109),
        (14.0, 74, 0.0468),
    ] {
        let times = seen / global_rate(bits, &vec![1.0; runs]);
        assert!((0.9..2.0).contains(&times), "{bits} bits, {runs} runs: {times}");
    }
    // One run has no codes; two equal ones take a bit, with any unit of shares.
    assert_eq!(global_rate(12.4, &[7.0]), global_rate(13.4, &[3.0, 3.0]));
    assert!((global_rate(12.4, &[1.0]) / 2f64.powi(-10) - 1.0).abs() < 1e-9);
    assert_eq!((global_rate(0.0, &[0.5; 2]), global_rate(f64::NAN, &[])), (2.0, 1.0), "at most every run");
}

/// Simulates rounds: B keys per flush, a filter of M slots made at each last-level merge, the rate
/// N/M after each flush.
#[test]
fn the_average_rate_matches_all_flushes_of_all_rounds() {
    for t in [2u32, 3, 4, 10] {
        // Flushes per round; many, so that the mean over them is the mean over time.
        let flushes = 10_000u32;
        let mut factors = Vec::new();
        for z in 1..t {
            let last = f64::from(z) * f64::from(flushes);
            // Relative to the rate at the beginning, with `last` keys; taken at the middle of each
            // flush.
            let sum: f64 = (0..flushes).map(|f| (last + f64::from(f) + 0.5) / last).sum();
            factors.push(sum / f64::from(flushes));
            assert!((factors[factors.len() - 1] - round_factor(z)).abs() < 1e-9);
        }
        let mean = factors.iter().sum::<f64>() / factors.len() as f64;
        assert!((mean - average_factor(t)).abs() < 1e-9, "{t}");
        let below = average_factor(t) - paper_average_factor(t);
        assert!(below > 0.0 && below <= 0.5 / f64::from(t - 1), "{t}: {below}");
    }
    // Where the sum is replaced by the series.
    for t in 995u32..1010 {
        let sum: f64 = (1..t).rev().map(round_factor).sum::<f64>() / f64::from(t - 1);
        assert!((average_factor(t) - sum).abs() < 1e-14, "{t}");
    }
}

#[test]
fn published_sizes() {
    let tree = |levels| Tree { levels, size_ratio: 10 };
    let log = 10f64.log2();
    // "approximately 1.6 bits": with shares that sum to 1; the formula as printed gives 1.77.
    assert!((limit_code_bits(10, log) - 1.591).abs() < 0.001);
    assert!((paper_code_bits(10, log) - 1.768).abs() < 0.001);
    assert!((mean_code_bits(tree(4), Policy::TieringAtRest, Digits::Fractional) - 1.6).abs() < 0.02);
    assert!((limit_code_bits(10, 4.0) - 1.667).abs() < 0.001);
    // "less than 0.2 bit": up to four levels.
    assert!(paper_uncollected_bits(tree(4), log) < 0.2 && paper_uncollected_bits(tree(5), log) > 0.2);
    assert!((uncollected_bits(tree(5), Policy::TieringAtRest, Digits::Fractional) - 0.1).abs() < 0.005);
    // Less than 2 bits more for both.
    let both = mean_code_bits(tree(5), Policy::TieringAtRest, Digits::Whole)
        + uncollected_bits(tree(5), Policy::TieringAtRest, Digits::Whole);
    assert!(both < 2.0, "{both}");
    assert!((waiting_buffer_bits(10, 64.0) - 0.64).abs() < 1e-12);
    assert!((waiting_buffer_bits(10, 80.0) - 0.8).abs() < 1e-12);
    assert!((shrunk_share(tree(5)) - 0.1).abs() < 1e-4);
    // Section 2: Chucky's run numbers take less than a bit per key.
    for policy in [Policy::Leveling, Policy::TieringAtRest] {
        assert!(entropy_bits(&run_shares(tree(5), policy)) < 1.0);
    }
}

/// A full tree, flush by flush: each flush's keys have the digits of its number, except the last
/// level's, which needs none.
#[test]
fn mean_sizes_match_every_key_of_a_full_tree() {
    for tree in small_trees() {
        let (t, levels) = (u64::from(tree.size_ratio), tree.levels);
        for policy in POLICIES {
            for digits in [Digits::Fractional, Digits::Whole] {
                let digit = digits.bits(radix(tree, policy));
                // T^L - 1 flushes: all levels as full as possible. Flush f is in the level of the
                // highest digit in which f and their number differ; as the number has all digits T
                // - 1, that is the highest digit that is not T - 1.
                let flushes = t.pow(levels) - 1;
                let (mut sum, mut uncollected, mut counts) = (0.0, 0.0, vec![0u64; levels as usize]);
                for f in 0..flushes {
                    let level = (0..levels).rev().find(|&level| f / t.pow(level) % t != t - 1).unwrap();
                    let above = levels - 1 - level;
                    // Written out: an indicator for each level above the last and one to end them,
                    // digits, extra bits.
                    let bits = |above: u32| (0..above).map(|_| 1.0 + digit + 1.0).sum::<f64>() + 1.0;
                    sum += bits(above);
                    uncollected += if above >= 2 { bits(levels - 1) } else { bits(above) };
                    counts[level as usize] += 1;
                }
                let mean = sum / flushes as f64;
                assert!((mean_code_bits(tree, policy, digits) - mean).abs() < 1e-9, "{tree:?} {policy:?}");
                let more = uncollected / flushes as f64 - mean;
                assert!((uncollected_bits(tree, policy, digits) - more).abs() < 1e-9, "{tree:?}");
                assert!(more <= paper_uncollected_bits(tree, digit) + 1e-12, "{tree:?}");
                for (share, count) in tree.level_shares().iter().zip(counts) {
                    assert!((share - count as f64 / flushes as f64).abs() < 1e-12);
                }
                assert!(mean <= limit_code_bits(tree.size_ratio, digit));
                let high = paper_code_bits(tree.size_ratio, digit) / limit_code_bits(tree.size_ratio, digit);
                assert!((high - t as f64 / (t - 1) as f64).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn the_number_of_shapes_matches_an_enumeration() {
    for tree in small_trees() {
        let (levels, t) = (tree.levels - 1, tree.size_ratio);
        // All trees of a round, by simulation: tiering, merged as soon as there are T runs.
        let mut seen = std::collections::BTreeSet::new();
        let mut shape = vec![0; levels as usize];
        'round: loop {
            seen.insert(shape.clone());
            for at in 0..=levels as usize {
                match shape.get_mut(at) {
                    None => break 'round,
                    Some(runs) if *runs + 1 == t => *runs = 0,
                    Some(runs) => {
                        *runs += 1;
                        break;
                    }
                }
            }
        }
        assert_eq!(shapes(tree, Policy::TieringAtRest), seen.len() as f64);
        assert_eq!(shapes(tree, Policy::Leveling), seen.len() as f64);
        assert_eq!(shapes_of(&vec![t; levels as usize]), seen.len() as f64);
        assert_eq!(shapes(tree, Policy::Tiering), f64::from((t + 1).pow(levels)));
        for policy in POLICIES {
            let of = |digits| full_shape_bits(tree, policy, digits);
            assert!((of(Digits::Fractional) - shapes(tree, policy).log2()).abs() < 1e-9);
            assert!(of(Digits::Whole) >= of(Digits::Fractional));
        }
    }
    assert_eq!(shapes_of(&[4, 3, 0]), 12.0);
    assert_eq!(
        [1, 2, 3, 4, 5, 10, 16, 17].map(|radix| Digits::Whole.bits(radix)),
        [0., 1., 2., 2., 3., 4., 4., 5.]
    );
    assert_eq!([0, 1, 2, 3, 45, 64, 65].map(fixed_bits), [0, 0, 1, 2, 6, 6, 7]);
}

#[test]
fn huffman_sizes_match_those_of_built_codes() {
    for tree in small_trees() {
        for policy in POLICIES {
            let shares = run_shares(tree, policy);
            let lengths = huffman_lengths(&shares);
            if shares.len() > 1 {
                let kraft: f64 = lengths.iter().map(|&bits| 0.5f64.powi(bits as i32)).sum();
                assert_eq!(kraft, 1.0, "a complete prefix code");
            }
            let bits = huffman_bits(&shares);
            assert!((bits - mean(&shares, &lengths)).abs() < 1e-9, "{tree:?} {policy:?}");
            let entropy = entropy_bits(&shares);
            assert!(entropy <= bits + 1e-12 && bits < entropy + 1.0);
            assert!(bits <= f64::from(fixed_bits(shares.len() as u64)) + 1e-12);
            // As GRF_H writes it: a bit for the most frequent run, the last; a code of the others
            // after it.
            if shares.len() > 1 {
                let (last, others) = shares.split_last().unwrap();
                let flagged = 1.0 + (1.0 - last) * huffman_bits(others);
                assert!((flagged - bits).abs() < 1e-9, "{tree:?} {policy:?}: {flagged} {bits}");
            }
        }
    }
    assert_eq!((huffman_bits(&[]), huffman_bits(&[3.0]), huffman_bits(&[1.0, 1.0])), (0.0, 0.0, 1.0));
    assert_eq!(huffman_bits(&[4.0, 2.0, 1.0, 1.0]), 1.75);
}

/// Chucky: codes of combinations of four keys get below the one bit that each key takes by itself.
#[test]
fn combinations_come_close_to_the_entropy() {
    let shares = run_shares(Tree { levels: 4, size_ratio: 10 }, Policy::Leveling);
    let four: Vec<f64> = (0..shares.len().pow(4))
        .map(|n| (0..4).map(|at| shares[n / shares.len().pow(at) % shares.len()]).product())
        .collect();
    let (entropy, single, block) = (entropy_bits(&shares), huffman_bits(&shares), huffman_bits(&four) / 4.0);
    assert!((entropy_bits(&four) / 4.0 - entropy).abs() < 1e-9);
    assert!(single > 1.0 && block < 1.0, "{single} {block}");
    assert!(entropy <= block && block < entropy + 0.25, "{entropy} {block}");
}

/// Without the deterministic schedule of a round, a digit may have a level's merge in progress: a
/// key's code still names the level by the highest digit in which key and tree differ. The
/// definition of "above" relies on this.
#[test]
fn the_level_of_a_key_is_its_highest_differing_digit() {
    let (t, levels) = (3u64, 3u32);
    // Simulate tiering: runs of each level as lists of flush numbers.
    let mut tree: Vec<Vec<Vec<u64>>> = vec![vec![]; levels as usize + 1];
    for now in 0..t.pow(levels) {
        for level in 0..levels {
            for (run, flushes) in tree[level as usize].iter().enumerate() {
                for &f in flushes {
                    let differing =
                        (0..levels).rev().find(|&l| f / t.pow(l) % t != now / t.pow(l) % t).unwrap();
                    assert_eq!((differing, f / t.pow(level) % t), (level, run as u64), "flush {f} at {now}");
                }
            }
        }
        tree[0].push(vec![now]);
        for level in 0..levels as usize {
            if tree[level].len() as u64 == t {
                let merged = tree[level].drain(..).flatten().collect();
                tree[level + 1].push(merged);
            }
        }
    }
    assert_eq!(tree[levels as usize].len(), 1, "the round ends in one run");
}

proptest! {
    #[test]
    fn huffman_is_within_a_bit_of_the_entropy(shares in prop::collection::vec(0.0..1.0f64, 0..20)) {
        let (bits, entropy) = (huffman_bits(&shares), entropy_bits(&shares));
        let sum: f64 = shares.iter().sum();
        if sum > 0.0 {
            prop_assert!((bits - mean(&shares, &huffman_lengths(&shares))).abs() < 1e-9);
        }
        prop_assert!(entropy <= bits + 1e-9 && bits <= entropy + 1.0);
    }

    #[test]
    fn no_nan(x in any::<f64>(), y in any::<f64>(), levels in any::<u32>(), ratio in any::<u32>()) {
        let tree = Tree { levels, size_ratio: ratio.min(2000) };
        for rate in [position_rate(x), snarf_rate(x), rate(x), average_rate(x, ratio), shrunk_share(tree)] {
            prop_assert!((0.0..=1.0).contains(&rate));
        }
        prop_assert!((0.0..=2.0).contains(&global_rate(x, &[y, 1.0])));
        for policy in POLICIES {
            for digits in [Digits::Fractional, Digits::Whole] {
                prop_assert!(mean_code_bits(tree, policy, digits).is_finite());
                prop_assert!(uncollected_bits(tree, policy, digits).is_finite());
                prop_assert!(full_shape_bits(tree, policy, digits).is_finite());
            }
            prop_assert!(shapes(tree, policy).is_finite());
        }
        let sizes = [
            golomb_bits(x), code_bits(levels, x), limit_code_bits(ratio, x), paper_code_bits(ratio, x),
            paper_uncollected_bits(tree, x), waiting_buffer_bits(ratio, x), entropy_bits(&[x, y]),
            huffman_bits(&[x, y, 1.0]),
            paper_average_factor(ratio), round_factor(ratio),
        ];
        prop_assert!(sizes.iter().all(|size| size.is_finite() && *size >= 0.0), "{sizes:?}");
    }
}
