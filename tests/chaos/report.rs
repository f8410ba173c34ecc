//! The table of a campaign.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{fault::Kind, oracle::Verdict, world::Delivery};

pub struct Report {
    pub delivery: Delivery,
    pub faults: BTreeMap<Kind, Line>,
    pub verdict: Verdict,
    /// Sessions of the stream that began after the first.
    pub sessions: usize,
    pub took: Duration,
    /// It came to its end: what has not arrived is lost.
    pub whole: bool,
    /// Every promise that did not hold.
    pub broken: Vec<String>,
}

/// All faults of one kind.
#[derive(Default)]
pub struct Line {
    /// From the fault's end until what was committed then had arrived.
    pub recoveries: Vec<Duration>,
    pub duplicates: usize,
    pub recovered: usize,
    /// Why the kind cannot be tried on this machine.
    pub not_run: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.faults.values().map(|line| line.recoveries.len()).sum();
        writeln!(f, "{}: {count} faults in {} s", self.delivery, self.took.as_secs())?;
        writeln!(f, "| fault | count | back after, median | at most | duplicates | sent again from the table |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for (kind, line) in &self.faults {
            let mut times = line.recoveries.clone();
            times.sort_unstable();
            match (times.get(times.len() / 2), times.last(), &line.not_run) {
                (Some(median), Some(most), _) => writeln!(
                    f,
                    "| {kind} | {} | {:.1} s | {:.1} s | {} | {} |",
                    times.len(),
                    median.as_secs_f64(),
                    most.as_secs_f64(),
                    line.duplicates,
                    line.recovered
                )?,
                (_, _, Some(why)) => writeln!(f, "| {kind} | not run: {why} | | | | |")?,
                _ => writeln!(f, "| {kind} | 0 | | | | |")?,
            }
        }
        let Verdict { committed, delivered, duplicates, recovered, lost, reordered, wrong, gone } = &self.verdict;
        writeln!(
            f,
            "\n{committed} events committed, {delivered} delivered, {duplicates} duplicates in {} further sessions, {recovered} \
             sent again from the table, {} reordered, {} {}, {} wrong; {} commits gone with an old primary",
            self.sessions,
            reordered.len(),
            lost.len(),
            if self.whole { "lost" } else { "not arrived yet" },
            wrong.len(),
            gone.len()
        )?;
        for (what, ids) in [("lost", lost), ("reordered", reordered), ("wrong", wrong)] {
            if !ids.is_empty() && (self.whole || what != "lost") {
                writeln!(f, "{what}: {}", ids.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(" "))?;
            }
        }
        for broken in &self.broken {
            writeln!(f, "BROKEN: {broken}")?;
        }
        Ok(())
    }
}
