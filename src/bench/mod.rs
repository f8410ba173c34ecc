//! `walpost bench`: what walpost costs and reaches on given servers.
//!
//! Two measurements, each against the real binary as a child process and each with a comparison of what was committed
//! and what a consumer got, since a rate at which events are lost is worth nothing:
//! - [`drain`]: a prepared backlog, with the [`floors`] of the same run beside it: how fast the server sends when nobody
//!   does anything with it, and how fast the broker takes the same records from a bare producer;
//! - [`latency`]: a steady rate of small transactions, from INSERT to consumer.
//!
//! Machines differ and are noisy: compare within one run, by CPU time and by the floors.

pub mod backlog;
pub mod drain;
pub mod floors;
pub mod latency;

/// The middle of the values; the mean of the two middle ones where their number is even. NaN without any.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => f64::NAN,
        (len, middle) if len % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The value below or at which this share of the sorted values lies (nearest rank). NaN without any.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_those_of_the_textbook() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan() && percentile(&[], 0.5).is_nan());
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([0.5, 0.95, 0.99, 1.0].map(|share| percentile(&hundred, share)), [50.0, 95.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 0.01), 7.0);
    }
}
