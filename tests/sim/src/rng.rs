//! The simulator's own random numbers: a seed must mean the same run on every
//! machine and after every update of dependencies, so the generator lives here.

/// xoshiro256**, seeded through splitmix64.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([0; 4].map(|_: u64| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    pub fn draw(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// In `0..n`; `n` must not be zero.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of a plain remainder is far below what a simulation notices.
        self.draw() % n
    }

    /// In `low..high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).max(1))
    }

    pub fn permille(&mut self, p: u64) -> bool {
        self.below(1000) < p
    }

    pub fn percent(&mut self, p: u64) -> bool {
        self.below(100) < p
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() {
            return None;
        }
        let i = self.below(from.len() as u64) as usize;
        from.get(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_these_numbers_for_ever() {
        let mut rng = Rng::new(42);
        assert_eq!(
            [rng.draw(), rng.draw(), rng.draw()],
            [1_546_998_764_402_558_742, 6_990_951_692_964_543_102, 12_544_586_762_248_559_009]
        );
    }

    #[test]
    fn ranges_are_kept() {
        let mut rng = Rng::new(7);
        for _ in 0..10_000 {
            assert!((5..9).contains(&rng.range(5, 9)));
        }
        assert_eq!(rng.range(3, 3), 3);
    }
}
