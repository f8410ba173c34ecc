//! How long delivery took, in buckets fine enough for a percentile that people read.

use std::sync::atomic::{AtomicU64, Ordering};

/// From 100 µs on, each 2^¼ times the last: the last one begins beyond an hour.
const BUCKETS: usize = 102;
const FIRST: f64 = 100e-6;
const STEPS: f64 = 4.0;

/// Counts since the process started.
#[derive(Debug)]
pub struct Latency([AtomicU64; BUCKETS]);

/// The counts of a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts([u64; BUCKETS]);

impl Latency {
    pub fn observe(&self, seconds: f64) {
        let bucket = ((seconds.max(FIRST) / FIRST).log2() * STEPS) as usize;
        self.0[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Counts {
        Counts(std::array::from_fn(|bucket| self.0[bucket].load(Ordering::Relaxed)))
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Counts {
    /// What was counted since an earlier moment.
    pub fn since(&self, earlier: &Counts) -> Counts {
        Counts(std::array::from_fn(|bucket| self.0[bucket].saturating_sub(earlier.0[bucket])))
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Seconds that this part of all took at most, to 9 %; none of nothing.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let total = self.total();
        let rank = ((total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        // The middle of the bucket.
        Some(FIRST * ((bucket as f64 + 0.5) / STEPS).exp2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_near() {
        let latency = Latency::default();
        assert_eq!(latency.counts().quantile(0.5), None);
        let before = latency.counts();
        for ms in 1..=1000 {
            latency.observe(f64::from(ms) / 1000.0);
        }
        let counts = latency.counts().since(&before);
        assert_eq!(counts.total(), 1000);
        for (part, exact) in [(0.5, 0.5), (0.95, 0.95), (0.001, 0.001)] {
            let near = counts.quantile(part).unwrap();
            assert!((near / exact - 1.0).abs() < 0.1, "{part}: {near}");
        }
    }

    #[test]
    fn any_time_has_a_bucket() {
        let latency = Latency::default();
        for seconds in [-1.0, 0.0, f64::NAN, 1e9, f64::INFINITY] {
            latency.observe(seconds);
        }
        assert_eq!(latency.counts().total(), 5);
    }
}
