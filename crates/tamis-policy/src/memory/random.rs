//! Random counts for tests of rules that go by counts.

/// A small generator.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A Poisson sample: exact for small means, a normal approximation for large ones.
    pub(super) fn poisson(&mut self, mean: f64) -> u64 {
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
