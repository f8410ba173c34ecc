//! Chance that is the same for the same seed (SplitMix64).

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to and without `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing lies below 0");
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// From `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// An index, by weight.
    pub(crate) fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut point = self.below(weights.iter().sum());
        weights
            .iter()
            .position(|&weight| match point.checked_sub(weight) {
                Some(rest) => {
                    point = rest;
                    false
                }
                None => true,
            })
            .expect("the point lies below the sum")
    }
}
