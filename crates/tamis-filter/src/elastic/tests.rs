use super::*;
#[test]
fn probe() {
    let n = 100_000u64;
    let digests: Vec<Digest> = (0..n).map(|i| Digest::of(&i.to_le_bytes())).collect();
    for (units, bits) in [(6u32, 4.0), (7, 10.0 / 7.0)] {
        for layout in [ElasticLayout::Standard, ElasticLayout::Blocked] {
            for scheme in [BloomScheme::Rotation, BloomScheme::DoubleHashing] {
                let t = std::time::Instant::now();
                let spec = ElasticSpec { units, bits_per_key: bits, scheme, layout };
                let g = ElasticGroup::build(spec, &digests, 42, Verify::Yes).unwrap();
                let mut hits = [0u64; 8];
                let q = 20_000_000u64;
                for i in 0..q {
                    let x = (i + 1).wrapping_mul(0x6eed_0e9d_a4d9_4a4f);
                    let x = (x ^ (x >> 32)).wrapping_mul(0x6eed_0e9d_a4d9_4a4f);
                    let d = Digest::from_u64(x ^ (x >> 29));
                    let s = g.units[0].shape().sequence(d);
                    let n = g.units.iter().take_while(|u| u.holds(s)).count();
                    hits[n] += 1;
                }
                let mut line = format!("{units} {layout:?} {scheme:?} ");
                for j in 1..=units as usize {
                    let h: u64 = hits[j..].iter().sum();
                    line += &format!("{:.3} ({h}) ", h as f64 / q as f64 / g.expected_rate(j as u32));
                }
                println!("{line} {:?}", t.elapsed());
            }
        }
    }
}
