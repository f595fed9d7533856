use super::*;

const TOTAL: u64 = 256 << 20;
const STEP: u64 = TOTAL / STEPS;
const BLOCK: f64 = 4096.0;
/// All owners' gets per turn.
const GETS: u64 = 20_000;

/// The block reads per get of its owner that remain with this much memory.
type Curve = fn(f64) -> f64;

/// A small generator.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A Poisson sample: exact for small means, a normal approximation for large ones.
    fn poisson(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            let (a, b) = (self.uniform().max(1e-300), self.uniform());
            let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
            return (mean + mean.sqrt() * normal).round().max(0.0) as u64;
        }
        let (floor, mut product, mut n) = ((-mean).exp(), self.uniform(), 0);
        while product > floor {
            product *= self.uniform();
            n += 1;
        }
        n
    }
}

/// How a use is measured, and what memory does for it.
#[derive(Clone, Copy)]
enum Kind {
    Cache(Curve),
    Filters(Curve),
}
use Kind::{Cache, Filters};

impl Kind {
    fn curve(&self) -> Curve {
        let (Cache(curve) | Filters(curve)) = *self;
        curve
    }

    /// Reads per get of the owner that one more byte saves.
    fn slope(&self, bytes: f64) -> f64 {
        ((self.curve())(bytes) - (self.curve())(bytes + STEP as f64)) / STEP as f64
    }
}

struct Database {
    /// Its part of all gets.
    part: f64,
    gets: u64,
    uses: Vec<(&'static str, Kind, Ghosts)>,
}

struct World {
    market: Market<&'static str>,
    databases: BTreeMap<u64, Database>,
    random: Random,
}

impl World {
    fn new(seed: u64) -> World {
        World { market: Market::new(TOTAL), databases: BTreeMap::new(), random: Random(seed) }
    }

    /// One database with a cache and filters.
    fn pair(seed: u64, cache: Curve, filters: Curve) -> World {
        let mut world = World::new(seed);
        world.join(0, 1.0, &[("cache", Cache(cache)), ("filters", Filters(filters))]);
        world
    }

    fn join(&mut self, id: u64, part: f64, uses: &[(&'static str, Kind)]) {
        let ghosts = Ghosts { sampling: 4, step_bytes: STEP, ..Ghosts::default() };
        let of = uses.iter().map(|&(name, kind)| (name, kind, ghosts)).collect();
        self.databases.insert(id, Database { part, gets: 0, uses: of });
        self.market.join(id, &uses.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        self.check();
    }

    fn leave(&mut self, id: u64) {
        self.databases.remove(&id);
        self.market.leave(id);
        self.check();
    }

    fn set(&mut self, id: u64, part: f64, kinds: &[Kind]) {
        let database = self.databases.get_mut(&id).expect("a database");
        database.part = part;
        database.uses.iter_mut().zip(kinds).for_each(|(of, &kind)| of.1 = kind);
    }

    fn consumer(&self, id: u64, name: &'static str) -> u64 {
        self.market.bytes_of(id, name)
    }

    fn cache(&self) -> u64 {
        self.consumer(0, "cache") / STEP
    }

    fn share(&self, id: u64) -> u64 {
        self.market.bytes().filter(|((of, _), _)| *of == id).map(|(_, bytes)| bytes).sum()
    }

    fn check(&self) {
        let bytes: Vec<u64> = self.market.bytes().map(|(_, bytes)| bytes).collect();
        assert!(bytes.is_empty() || bytes.iter().sum::<u64>() == self.market.total(), "{bytes:?}");
        let least = self.market.least();
        assert_eq!(least, self.market.total() / 32 / self.databases.len().max(1) as u64);
        assert!(bytes.iter().all(|&bytes| bytes >= least), "{bytes:?}");
    }

    /// Lets all databases read `gets` together, then report. Returns the number of steps.
    fn turn(&mut self, gets: u64) -> u64 {
        let sum = self.databases.values().map(|database| database.part).sum::<f64>().max(1e-9);
        let mut moves = 0;
        let ids: Vec<u64> = self.databases.keys().copied().collect();
        for id in ids {
            let bytes: BTreeMap<_, _> = self.market.bytes().collect();
            let database = self.databases.get_mut(&id).expect("a database");
            let gets = gets as f64 * database.part / sum;
            database.gets += gets.round() as u64;
            let mut readings = Vec::new();
            for (name, kind, ghosts) in &mut database.uses {
                let bytes = bytes[&(id, *name)] as f64;
                let slope = kind.slope(bytes);
                let reading = match kind {
                    Cache(curve) => {
                        let hits = self.random.poisson(slope * STEP as f64 * gets / ghosts.sampling as f64);
                        ghosts.ghost_hits += hits * ghosts.sampling;
                        ghosts.evicted_bytes += (curve(bytes) * gets * BLOCK) as u64;
                        Reading::Counted(*ghosts)
                    }
                    Filters(_) => {
                        let loss = kind.slope(bytes - STEP as f64);
                        Reading::Expected(Marginal { gain: slope, loss })
                    }
                };
                readings.push((*name, reading));
            }
            let before: Vec<_> = self.market.bytes().collect();
            let moved = self.market.report(id, database.gets, readings);
            assert_eq!(moved, before != self.market.bytes().collect::<Vec<_>>(), "what it says it did");
            moves += u64::from(moved);
            self.check();
        }
        moves
    }

    fn run(&mut self, turns: u64) -> u64 {
        (0..turns).map(|_| self.turn(GETS)).sum()
    }

    /// Returns the largest worth of one byte more, and the smallest.
    fn worths(&self) -> (f64, f64) {
        let bytes: BTreeMap<_, _> = self.market.bytes().collect();
        let all = self.databases.iter().flat_map(|(id, database)| {
            let worth = |(name, kind, _): &(_, Kind, _)| kind.slope(bytes[&(*id, *name)] as f64);
            database.uses.iter().map(move |of| database.part * worth(of)).collect::<Vec<_>>()
        });
        all.fold((0.0, f64::INFINITY), |(most, least), worth| (worth.max(most), worth.min(least)))
    }

    fn is_even(&self, margin: f64) -> bool {
        let (most, least) = self.worths();
        most <= least * margin
    }

    /// Returns the steps of the one database's cache at which a byte is worth the same on both
    /// sides, by exhaustive search.
    fn balance(&self) -> u64 {
        let uses = &self.databases[&0].uses;
        let worth = |steps: &u64| {
            let (cache, filters) = ((steps * STEP) as f64, (TOTAL - steps * STEP) as f64);
            (uses[0].1.slope(cache) / uses[1].1.slope(filters)).ln().abs()
        };
        (2..=62).min_by(|a, b| worth(a).total_cmp(&worth(b))).unwrap()
    }
}

/// Cache misses: hits with a long tail.
fn hits(bytes: f64) -> f64 {
    0.8 * (-bytes / 64e6).exp() + 0.2 * (1.0 - (bytes / 4e9).sqrt())
}

/// False positives of filters over keys with uneven popularity.
fn few_keys(bytes: f64) -> f64 {
    0.3 * (-bytes * 8.0 / 20e6 * 0.48).exp() + 0.4 * (-bytes * 8.0 / 120e6 * 0.48).exp()
}

fn many_keys(bytes: f64) -> f64 {
    0.3 * (-bytes * 8.0 / 100e6 * 0.48).exp() + 0.4 * (-bytes * 8.0 / 600e6 * 0.48).exp()
}

/// Memory saves nothing.
fn flat(_: f64) -> f64 {
    0.5
}

/// Each byte saves the same, and little: few hits per turn.
fn line(bytes: f64) -> f64 {
    0.9 - 1e-10 * bytes
}

/// The data just fits 24.5 steps.
fn cliff(bytes: f64) -> f64 {
    0.5 * (1.0 - bytes / (24.5 * STEP as f64)).max(0.0)
}

#[test]
fn one_database_converges_from_both_ends_and_stays_there() {
    for seed in 1..=5 {
        for first in [[Cache(hits), Filters(flat)], [Cache(flat), Filters(few_keys)]] {
            let mut world = World::pair(seed, hits, few_keys);
            world.set(0, 1.0, &first);
            world.run(3000);
            assert!([2, 62].contains(&world.cache()), "all but the least is where it is worth something");
            world.set(0, 1.0, &[Cache(hits), Filters(few_keys)]);
            world.run(4000);
            let (came, balance) = (world.cache(), world.balance());
            assert!((8..=56).contains(&balance), "a balance at the end proves nothing: {balance}");
            // If the step between is worth less than the margin, both sides of it are equally good.
            assert!(world.is_even(1.5), "{came} for {balance}: {:?}", world.worths());
            assert!(came.abs_diff(balance) <= 4, "{came} for {balance}");
            // 80 million more gets.
            let moves = world.run(4000);
            assert!(moves <= 2, "noise moved it {moves} times");
        }
    }
}

/// The result must not depend on how often reports come.
#[test]
fn reports_may_be_frequent_or_rare() {
    for gets in [100, 5_000, 200_000] {
        let mut world = World::pair(3, hits, few_keys);
        let moves: u64 = (0..80_000_000 / gets).map(|_| world.turn(gets)).sum();
        assert!(moves < 60, "{moves}");
        let (came, balance) = (world.cache(), world.balance());
        assert!(came.abs_diff(balance) <= 4, "turns of {gets} gets: {came} for {balance}");
    }
}

#[test]
fn databases_converge_to_equal_worth_and_stay_there() {
    for seed in 1..=5 {
        for (kinds, parts) in [
            ([Cache(hits), Cache(hits)], [4.0, 1.0]),
            ([Cache(hits), Filters(many_keys)], [1.0, 1.0]),
            ([Filters(many_keys), Filters(many_keys)], [1.0, 3.0]),
        ] {
            let mut world = World::new(seed);
            (0..2).for_each(|i| world.join(i, parts[i as usize], &[("it", kinds[i as usize])]));
            world.run(4000);
            let share = world.share(0) / STEP;
            assert!((4..=60).contains(&share), "at an end it proves nothing: {share}");
            assert!(world.is_even(1.6), "{share}: {:?}", world.worths());
            let moves = world.run(8000);
            assert!(moves <= 3, "noise moved it {moves} times");
        }
    }
}

/// Steps within a database and between databases, and a use that nothing here was written for.
#[test]
fn all_uses_of_all_databases_converge_to_equal_worth() {
    for seed in 1..=3 {
        let mut world = World::new(seed);
        let uses = [("cache", Cache(hits)), ("filters", Filters(many_keys)), ("records", Cache(hits))];
        world.join(0, 5.0, &uses);
        world.join(1, 2.0, &uses[..2]);
        world.join(2, 1.0, &uses[1..]);
        world.run(8000);
        assert!(world.is_even(1.8), "{:?} {:?}", world.worths(), world.market.bytes().collect::<Vec<_>>());
        assert!(world.share(0) > world.share(1) && world.share(1) > world.share(2));
        assert!(world.market.steps_of(0) > 10);
        let moves = world.run(8000);
        assert!(moves <= 6, "{moves}");
    }
}

#[test]
fn noise_about_equal_worths_moves_little() {
    let moves = World::pair(11, line, line).run(10_000);
    assert!(moves <= 2, "{moves}");
    let mut world = World::new(11);
    (0..4).for_each(|i| world.join(i, 1.0, &[("cache", Cache(line))]));
    let moves = world.run(10_000);
    assert!(moves <= 6, "{moves}");
}

#[test]
fn who_saves_nothing_keeps_the_least() {
    let mut world = World::pair(1, flat, line);
    world.run(2000);
    assert_eq!(world.cache(), 2);
    let mut world = World::pair(1, hits, flat);
    world.run(2000);
    assert_eq!(world.cache(), 62);
    let mut world = World::new(3);
    world.join(1, 50.0, &[("cache", Cache(flat)), ("filters", Filters(flat))]);
    world.join(2, 1.0, &[("filters", Filters(many_keys))]);
    world.run(20_000);
    assert_eq!(world.share(1), TOTAL / 32);
    assert_eq!(World::pair(1, flat, flat).run(2000), 0, "nobody gains anything");
}

#[test]
fn without_gets_nothing_moves() {
    let mut world = World::pair(1, hits, flat);
    world.turn(1000);
    assert_eq!((0..1000).map(|_| world.turn(0)).sum::<u64>(), 0);
    // The wait itself is no evidence.
    assert_eq!((0..3).map(|_| world.turn(1000)).sum::<u64>(), 0);
}

/// A step more gains nothing, and a step less loses much. Each turn by itself would take the step
/// away, see the hits, and reverse it, forever.
#[test]
fn at_a_cliff_it_does_not_oscillate_forever() {
    let one = World::pair(5, cliff, line);
    let mut two = World::new(5);
    two.join(0, 1.0, &[("cache", Cache(cliff))]);
    two.join(1, 1.0, &[("cache", Cache(line))]);
    for mut world in [one, two] {
        world.run(10_000);
        // 200 million gets.
        let later = world.run(10_000);
        assert!(later <= 200_000_000 / MOST_PATIENCE + 1, "{later}");
        assert!((23..=26).contains(&world.cache()), "{}", world.cache());
    }
}

#[test]
fn an_idle_database_gives_and_gets_more_when_it_wakes_up() {
    let mut world = World::new(2);
    let uses = [("cache", Cache(hits)), ("filters", Filters(many_keys))];
    (7..9).for_each(|id| world.join(id, f64::from(u32::from(id == 7)), &uses));
    for (busy, idle) in [(7, 8), (8, 7)] {
        let kinds = uses.map(|(_, kind)| kind);
        world.set(busy, 1.0, &kinds);
        world.set(idle, 0.0, &kinds);
        world.run(3000);
        assert_eq!(world.share(idle), TOTAL / 32);
    }
}

#[test]
fn databases_come_and_go_and_the_total_changes() {
    let uses = [("cache", Cache(hits)), ("filters", Filters(flat))];
    let mut world = World::new(4);
    world.join(1, 400.0, &uses);
    assert_eq!((world.consumer(1, "cache"), world.consumer(1, "filters")), (TOTAL / 2, TOTAL / 2));
    world.join(2, 1.0, &uses);
    assert_eq!((world.share(1), world.consumer(2, "cache")), (TOTAL / 2, TOTAL / 4));
    world.run(2000);
    assert!(world.share(1) > 4 * world.share(2));
    assert!(world.consumer(1, "cache") > 20 * world.consumer(1, "filters"));
    world.join(3, 0.0, &uses);
    assert!(world.share(3).abs_diff(TOTAL / 3) < 8, "an equal share: {}", world.share(3));
    let are_kept = |world: &World| {
        world.share(1) > 4 * world.share(2) && world.consumer(1, "cache") > 20 * world.consumer(1, "filters")
    };
    assert!(are_kept(&world), "the others keep their proportions");
    world.market.resize(TOTAL / 4);
    world.check();
    world.run(100);
    world.market.resize(TOTAL);
    world.check();
    world.leave(3);
    assert!(are_kept(&world));
    world.leave(2);
    assert_eq!(world.share(1), TOTAL);
    world.leave(1);
    world.join(4, 1.0, &uses);
    assert_eq!(world.share(4), TOTAL);
}

/// Filters with almost a step of free bytes gain most and lose least. They give if they cannot
/// take.
#[test]
fn who_is_first_at_both_gives_to_the_second() {
    let mut market = Market::new(TOTAL);
    market.join(0, &["cache", "filters"]);
    let mut ghosts = Ghosts { sampling: 1, step_bytes: STEP, ..Ghosts::default() };
    let mut moved = false;
    for turn in 0..10 {
        ghosts.ghost_hits += 1000;
        ghosts.evicted_bytes += 2 * STEP;
        let gain = 1000.0 / (GETS * STEP) as f64;
        let filters = Reading::Expected(Marginal { gain, loss: gain / 100.0 });
        moved |= market.report(0, turn * GETS, [("cache", Reading::Counted(ghosts)), ("filters", filters)]);
    }
    assert!(moved && market.bytes().all(|((_, of), bytes)| (bytes > TOTAL / 2) == (of == "cache")));
}

#[test]
fn hostile_numbers_do_no_harm() {
    const USES: [u8; 2] = [0, 1];
    for total in [0, 1, 63, 1 << 20, u64::MAX] {
        let mut market = Market::new(total);
        (0..5).for_each(|id| market.join(id, &USES));
        let sum = |market: &Market<u8>| market.bytes().map(|(_, bytes)| bytes).sum::<u64>();
        let mut turn = 0;
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e300] {
            for count in [0, u64::MAX, 7] {
                for sampling in [0, 1, u64::MAX] {
                    turn += 1;
                    let ghosts =
                        Ghosts { ghost_hits: count, evicted_bytes: count, sampling, step_bytes: count };
                    let expected = Reading::Expected(Marginal { gain: value, loss: value });
                    // Uses that change their kind, unknown ones, and owners that do not exist.
                    let readings = [(turn as u8 % 3, Reading::Counted(ghosts)), (1, expected)];
                    market.report(turn % 7, count.wrapping_add(turn << 14), readings);
                    assert_eq!(sum(&market), total);
                }
            }
        }
        for change in [total / 3, 0, u64::MAX] {
            market.resize(change);
            assert_eq!(sum(&market), change);
        }
        market.leave(9);
        (0..5).for_each(|id| market.leave(id));
        assert_eq!((sum(&market), market.steps_of(1)), (0, 0));
    }
}

/// The two bounds of a Poisson count contain the mean in all but a few of many draws.
#[test]
fn the_bounds_contain_the_mean() {
    let mut random = Random(9);
    for mean in [0.5, 3.0, 20.0, 400.0] {
        let missed = (0..10_000).filter(|_| {
            let (low, high) = bounds(random.poisson(mean) as f64);
            !(low..=high).contains(&mean)
        });
        let missed = missed.count();
        assert!(missed < 300, "{missed} of 10000 about {mean}");
    }
}
