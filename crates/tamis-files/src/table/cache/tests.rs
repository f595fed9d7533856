use super::*;
use std::hash::BuildHasher as _;

fn block(len: usize) -> CacheEntry {
    CacheEntry::Block(HeapBlock { bytes: vec![7; len].into(), start: 0, len })
}

#[test]
fn a_cache_stays_within_its_capacity_and_returns_its_entries() {
    let cache = BlockCache::new(1 << 20, 4096);
    for offset in 0..1000 {
        cache.insert(CacheKey { table: 1, offset }, block(4096));
    }
    assert!(cache.used_bytes() <= 1 << 20);
    assert!(cache.used_bytes() > 1 << 19);
    let held = (0..1000).filter(|&offset| cache.get(CacheKey { table: 1, offset }).is_some()).count();
    assert!(held > 100, "{held}");
    assert!(cache.get(CacheKey { table: 2, offset: 999 }).is_none());
}

#[test]
fn without_capacity_nothing_is_held() {
    let cache = BlockCache::new(0, 4096);
    let key = CacheKey { table: 1, offset: 0 };
    cache.insert(key, block(1));
    assert!(cache.get(key).is_none());
    assert_eq!((cache.used_bytes(), cache.capacity_bytes()), (0, 0));
}

#[test]
fn neighbouring_offsets_spread_over_all_bits() {
    let mut seen = [0u64; 64];
    for i in 0..4096u64 {
        let hash = Mix.hash_one(CacheKey { table: 3, offset: i * 4096 });
        (0..64).for_each(|bit| seen[bit] += hash >> bit & 1);
    }
    assert!(seen.iter().all(|&ones| (1700..2400).contains(&ones)), "{seen:?}");
}

/// An entry that weighs 4 KiB, overhead included.
fn four_kib(any: &Arc<dyn Any + Send + Sync>) -> CacheEntry {
    CacheEntry::Filter(Arc::clone(any), 4096 - ENTRY_OVERHEAD)
}

/// Draws numbers below `n`, the i-th with a probability proportional to `i^-exponent`.
struct Zipf {
    sums: Vec<f64>,
    state: u64,
}

impl Zipf {
    fn new(n: usize, exponent: f64, seed: u64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=n).map(|i| (sum += (i as f64).powf(-exponent), sum).1).collect();
        Zipf { sums, state: seed }
    }

    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        (Mix.hash_one(self.state) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn draw(&mut self) -> u64 {
        let at = self.uniform() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|&sum| sum <= at) as u64
    }
}

/// Reads the block at `offset` as a table does; returns whether it was cached.
fn read_through(cache: &BlockCache, offset: u64, any: &Arc<dyn Any + Send + Sync>) -> bool {
    let key = CacheKey { table: 1, offset };
    let hit = cache.get(key).is_some();
    if !hit {
        cache.insert(key, four_kib(any));
    }
    hit
}

/// Hits of a cache of `a` bytes and one of `b` on the same trace, and the ghost hits of the first;
/// all after both are full.
fn side_by_side(
    a: &BlockCache,
    b: &BlockCache,
    mut trace: impl FnMut(u64) -> u64,
    reads: u64,
) -> (u64, u64, u64) {
    let any: Arc<dyn Any + Send + Sync> = Arc::new(());
    let (mut hits, mut before) = ((0, 0), 0);
    for i in 0..reads {
        let offset = trace(i);
        let hit = (read_through(a, offset, &any), read_through(b, offset, &any));
        if i >= reads / 3 {
            hits = (hits.0 + u64::from(hit.0), hits.1 + u64::from(hit.1));
        } else {
            before = a.ghost_report().unwrap().ghost_hits;
        }
    }
    (hits.0, hits.1, a.ghost_report().unwrap().ghost_hits - before)
}

fn followed(capacity: u64, step: u64, sampling_bits: u32) -> BlockCache {
    BlockCache::build(capacity, 4000, 1, Some(Ghost::sampled(step, sampling_bits)))
}

/// The step is a sixteenth: a trace of this length does not measure smaller ones well. The allowed
/// error: between half of the truth and a quarter more.
#[test]
fn ghost_hits_approximate_the_extra_hits_of_a_larger_cache() {
    for (exponent, once, mebibytes, bits) in [
        (0.0, 0.0, 8, 2),
        (0.6, 0.0, 8, 2),
        (0.8, 0.0, 8, 0),
        (0.8, 0.0, 32, 4),
        (0.99, 0.0, 32, 2),
        (0.99, 0.3, 8, 0),
    ] {
        let capacity = mebibytes << 20;
        let step = capacity / 16;
        let (small, large) = (followed(capacity, step, bits), followed(capacity + step, step, bits));
        let mut zipf = Zipf::new(30_000, exponent, 7);
        let trace = |i| if zipf.uniform() < once { 1_000_000 + i } else { zipf.draw() };
        let (less, more, ghost) = side_by_side(&small, &large, trace, 600_000);
        let ratio = ghost as f64 / more.saturating_sub(less) as f64;
        assert!(
            (0.5..1.25).contains(&ratio),
            "s = {exponent}, {once} once, {mebibytes} MiB: {less} {more} {ghost}"
        );
    }
}

#[test]
fn if_everything_fits_a_larger_cache_gains_nothing() {
    let (small, large) = (followed(8 << 20, 1 << 20, 0), followed(9 << 20, 1 << 20, 0));
    let mut zipf = Zipf::new(1000, 0.5, 1);
    let (less, more, ghost) = side_by_side(&small, &large, |_| zipf.draw(), 100_000);
    assert_eq!((more - less, ghost), (0, 0));
    assert!(less > 60_000);
}

#[test]
fn no_miss_is_lost_with_many_readers() {
    let cache = followed(1 << 20, 1 << 18, 0);
    let any: Arc<dyn Any + Send + Sync> = Arc::new(());
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (cache, any, hits) = (&cache, &any, &hits);
            scope.spawn(move || {
                let mut zipf = Zipf::new(1000, 0.8, thread);
                let hit = (0..10_000).filter(|_| read_through(cache, zipf.draw(), any)).count();
                hits.fetch_add(hit as u64, Relaxed);
            });
        }
    });
    let report = cache.ghost_report().unwrap();
    assert_eq!(hits.into_inner() + report.misses, 40_000);
    assert!(report.ghost_hits > 0 && report.ghost_hits <= report.misses, "{report:?}");
    assert!(BlockCache::new(1 << 20, 4096).ghost_report().is_none());
}

#[test]
fn the_capacity_falls_to_nothing_and_rises_again() {
    let cache =
        BlockCache::with_ghost(64 << 20, 4000, Resizing { least_bytes: 2 << 20, step_bytes: 1 << 20 });
    let any: Arc<dyn Any + Send + Sync> = Arc::new(());
    let fill = || (0..40_000).filter(|&offset| read_through(&cache, offset, &any)).count();
    let mut up_and_down = vec![64u64 << 20, 16 << 20, 2 << 20, 40_000, 0, 1, 30 << 20, 0, 200 << 20];
    up_and_down.extend((0..64).map(|i| i << 20));
    for bytes in up_and_down {
        cache.set_capacity(bytes);
        assert!(cache.used_bytes() <= bytes, "at once: {} of {bytes}", cache.used_bytes());
        fill();
        let used = cache.used_bytes();
        assert!(used <= bytes, "{used} of {bytes}");
        let all = 40_000 * 4096;
        assert!(used + used / 8 >= bytes.min(all) || bytes < 1 << 20, "{used} of {bytes}");
        assert_eq!(cache.capacity_bytes(), bytes);
    }
    cache.set_capacity(0);
    fill();
    assert_eq!(cache.used_bytes(), 0);
}

/// The cache scales the number of evicted keys that it remembers at each change of its capacity and
/// truncates it. After a few hundred changes, or one to 0, none were left, and with them went its
/// scan resistance: recurring blocks were never again recognised.
#[test]
fn a_cache_that_was_resized_often_is_as_good_as_a_new_one() {
    let (worn, new) = (followed(8 << 20, 1 << 20, 0), followed(8 << 20, 1 << 20, 0));
    for i in 0..2000u64 {
        worn.set_capacity((1 + i * 7919 % 64) << 17);
    }
    worn.set_capacity(0);
    worn.set_capacity(8 << 20);
    let mut zipf = Zipf::new(30_000, 0.99, 3);
    let trace = |i| if zipf.uniform() < 0.3 { 1_000_000 + i } else { zipf.draw() };
    let (worn, new, _) = side_by_side(&worn, &new, trace, 300_000);
    assert!(worn.abs_diff(new) < new / 100, "{worn} of {new}");
}

#[test]
fn a_shard_keeps_its_memory_through_changes_of_size() {
    let mut shard = ShardSize { bytes: (4 << 20) + 1, remembered: 512 };
    let per_key = shard.bytes as f64 / shard.remembered as f64;
    // What the cache library does with the numbers.
    let mut memory = shard.remembered;
    let mut zipf = Zipf::new(2, 0.0, 5);
    for _ in 0..10_000 {
        let wanted = (zipf.uniform() * (8 << 20) as f64) as u64;
        let before = shard.bytes;
        let on = shard.resize(wanted);
        memory = (memory as f64 * (shard.bytes as f64 / before as f64)) as u64;
        assert_eq!(memory, shard.remembered);
        assert!(
            !on || shard.bytes <= wanted && wanted - shard.bytes < 3 * per_key as u64,
            "{shard:?} of {wanted}"
        );
        assert!(on || wanted < 2 * per_key as u64);
    }
    let now = shard.bytes as f64 / shard.remembered as f64;
    assert!((0.99..1.1).contains(&(now / per_key)), "{per_key} to {now}");
}
