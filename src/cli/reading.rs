//! How far the tables are read before the stream: a bar on a terminal, a line in the log now and then elsewhere.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::bars;
use crate::status::{Reading, Status};

/// How often the status is looked at.
const LOOK: Duration = Duration::from_millis(200);
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Shows each reading of the tables that the status knows of, for as long as the process lives.
pub(super) fn watch(status: Arc<Status>) {
    tokio::spawn(async move {
        let mut meter: Option<Meter> = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let reading = status.now().reading;
            match reading {
                Some(reading) => meter.get_or_insert_with(|| Meter::new(&reading)).show(&reading),
                None => meter = None,
            }
        }
    });
}

struct Meter {
    bar: Option<ProgressBar>,
    begun: Instant,
    /// Rows that were sent before it began.
    before: u64,
    told: Instant,
}

impl Meter {
    fn new(reading: &Reading) -> Meter {
        let template = match reading.rows_estimated {
            Some(_) => "rows {pos} of about {len} [{bar:40}] {per_sec}, {eta_precise} left",
            None => "rows {pos} {per_sec}, {elapsed_precise}",
        };
        let style = ProgressStyle::with_template(template).expect("the template is right");
        let bar = ProgressBar::new(reading.rows_estimated.unwrap_or(0)).with_position(reading.rows).with_style(style);
        bar.reset_eta();
        let now = Instant::now();
        Meter { bar: bars::show(bar), begun: now, before: reading.rows, told: now }
    }

    fn show(&mut self, reading: &Reading) {
        match &self.bar {
            Some(bar) => {
                // The server only estimates.
                bar.set_length(reading.rows_estimated.unwrap_or(0).max(reading.rows));
                bar.set_position(reading.rows);
            }
            None if self.told.elapsed() >= TOLD_EVERY => {
                self.told = Instant::now();
                tracing::info!("{}", text(reading, self.before, self.begun.elapsed()));
            }
            None => {}
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

fn text(Reading { kind, rows, rows_estimated }: &Reading, before: u64, elapsed: Duration) -> String {
    let rate = (rows - before) as f64 / elapsed.as_secs_f64().max(0.001);
    let of = rows_estimated.map_or_else(String::new, |total| format!(" of about {total}"));
    let left = rows_estimated.filter(|_| rate >= 1.0).map_or_else(String::new, |total| {
        let left = Duration::from_secs((total.saturating_sub(*rows) as f64 / rate) as u64);
        format!(", {} left", humantime::format_duration(left))
    });
    format!("reading ({kind}): {rows}{of} rows sent, {rate:.0}/s{left}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_is_known() {
        let reading = |rows, rows_estimated| Reading { kind: "initial", rows, rows_estimated };
        let ten = Duration::from_secs(10);
        assert_eq!(
            text(&reading(3_000, Some(9_000)), 1_000, ten),
            "reading (initial): 3000 of about 9000 rows sent, 200/s, 30s left"
        );
        assert_eq!(text(&reading(3_000, None), 0, ten), "reading (initial): 3000 rows sent, 300/s");
        assert_eq!(text(&reading(7, Some(9)), 7, ten), "reading (initial): 7 of about 9 rows sent, 0/s");
    }
}
