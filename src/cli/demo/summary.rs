//! What the demo claims, and whether it held.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use super::shop::Placed;
use crate::{
    bench::percentile,
    trial::{comparison::Verdict, reader::Received},
};

#[derive(Clone, Debug)]
pub(super) struct Summary {
    /// Rows of the application's table.
    orders: u64,
    /// Orders whose OrderPlaced a consumer got.
    orders_received: usize,
    /// Rows of the outbox.
    events: u64,
    records: usize,
    verdict: Verdict,
    /// Most events that a crash may send again.
    duplicates_max: usize,
    /// The order that was rolled back.
    rolled_back: String,
    rolled_back_received: bool,
    /// Milliseconds from COMMIT to consumer, in rising order.
    latencies: Vec<f64>,
    stopped_cleanly: bool,
}

impl Summary {
    pub(super) fn new(
        received: &[Received],
        quiet: &[Placed],
        verdict: Verdict,
        (orders, events): (u64, u64),
        rolled_back: i32,
        duplicates_max: usize,
        stopped_cleanly: bool,
    ) -> Summary {
        let rolled_back = format!("order-{rolled_back}");
        let placed = received.iter().filter(|record| record.event_type == b"OrderPlaced");
        let orders_received = placed.map(|record| record.key.as_slice()).collect::<HashSet<_>>().len();
        let mut arrivals = HashMap::new();
        for record in received {
            arrivals.entry(record.id).or_insert(record.at);
        }
        let latency = |placed: &Placed| Some((*arrivals.get(&Some(placed.id))? - placed.at).as_secs_f64() * 1000.0);
        let mut latencies: Vec<f64> = quiet.iter().filter_map(latency).collect();
        latencies.sort_by(f64::total_cmp);
        Summary {
            orders,
            orders_received,
            events,
            records: received.len(),
            verdict,
            duplicates_max,
            rolled_back_received: received.iter().any(|record| record.key == rolled_back.as_bytes()),
            rolled_back,
            latencies,
            stopped_cleanly,
        }
    }

    /// What did not hold; nothing when all did.
    pub(super) fn broken(&self) -> Vec<String> {
        let Verdict { missing, duplicates, reordered, unexpected } = self.verdict;
        let claims = [
            (missing > 0, format!("{missing} committed events were not received")),
            (reordered > 0, format!("{reordered} events came after a later one of their order")),
            (unexpected > 0, format!("{unexpected} records are of no committed event")),
            (
                duplicates > self.duplicates_max,
                format!("{duplicates} events came twice, more than the {} in flight", self.duplicates_max),
            ),
            (
                self.orders != self.orders_received as u64,
                format!("{} orders were committed, {} received", self.orders, self.orders_received),
            ),
            (self.rolled_back_received, format!("{} was rolled back and received", self.rolled_back)),
            (!self.stopped_cleanly, "walpost did not stop cleanly".to_owned()),
        ];
        claims.into_iter().filter_map(|(broken, claim)| broken.then_some(claim)).collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { orders, events, records, verdict, rolled_back, latencies, .. } = self;
        let [p50, p95] = [0.50, 0.95].map(|share| percentile(latencies, share));
        writeln!(f, "   {orders:>6} orders in the table, {} of them received", self.orders_received)?;
        writeln!(f, "   {events:>6} events committed, {} missing", verdict.missing)?;
        writeln!(
            f,
            "   {records:>6} records, {} of them twice: not yet confirmed when walpost was killed",
            verdict.duplicates
        )?;
        writeln!(f, "   {:>6} events out of order within their order", verdict.reordered)?;
        writeln!(
            f,
            "   {:>6} records of {rolled_back}, which was rolled back",
            usize::from(self.rolled_back_received)
        )?;
        writeln!(f, "   {p50:>6.1} ms from COMMIT to consumer (p50; p95 {p95:.1}), before the rush")
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn summary(keys: &[&str], verdict: Verdict, stopped_cleanly: bool) -> Summary {
        let at = Instant::now();
        let received: Vec<Received> = keys
            .iter()
            .map(|key| Received {
                at: at + Duration::from_millis(4),
                id: Some(key.len() as u128),
                key: key.as_bytes().to_vec(),
                event_type: b"OrderPlaced".to_vec(),
                value: Vec::new(),
                partition: 0,
                offset: 0,
            })
            .collect();
        Summary::new(&received, &[Placed { id: 7, at }], verdict, (2, 2), 9, 1, stopped_cleanly)
    }

    #[test]
    fn nothing_is_broken_when_all_is_there() {
        let held = summary(&["order-1", "order-22", "order-22"], Verdict { duplicates: 1, ..Verdict::default() }, true);
        assert_eq!(held.broken(), [""; 0]);
        let text = held.to_string();
        assert!(text.contains("2 orders in the table, 2 of them received") && text.contains("4.0 ms"), "{text}");
    }

    #[test]
    fn each_claim_can_break() {
        let clean = Verdict::default();
        for (summary, claim) in [
            (summary(&["order-1", "order-2"], Verdict { missing: 3, ..clean }, true), "3 committed events"),
            (summary(&["order-1", "order-2"], Verdict { reordered: 1, ..clean }, true), "after a later one"),
            (summary(&["order-1", "order-2"], Verdict { unexpected: 1, ..clean }, true), "no committed event"),
            (summary(&["order-1", "order-2"], Verdict { duplicates: 2, ..clean }, true), "more than the 1 in flight"),
            (summary(&["order-1"], clean, true), "2 orders were committed, 1 received"),
            (summary(&["order-1", "order-9"], clean, true), "order-9 was rolled back and received"),
            (summary(&["order-1", "order-2"], clean, false), "stop cleanly"),
        ] {
            assert!(matches!(&summary.broken()[..], [one] if one.contains(claim)), "{claim}: {:?}", summary.broken());
        }
    }
}
