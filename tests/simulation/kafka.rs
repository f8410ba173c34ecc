//! Kafka as far as a producer can tell: partitions that each write what they are sent in order, whenever they get to
//! it, and reports that come back later, in any order across partitions.
//!
//! A record that is rejected for good must not be overtaken by later ones of its partition, or the next session would
//! deliver it after them. So the producer that is modelled writes nothing more to that partition
//! (`enable.gapless.guarantee`); without that, order is lost, which the oracle must notice too.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use walpost::pipeline::Ticket;

use crate::{random::Random, relay::Outgoing, story::Story};

const PARTITIONS: usize = 3;
const BATCH_MAX: usize = 8;
const LATENCY_MAX_US: usize = 30_000;

/// What the producer learns about a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) ticket: Ticket,
    /// False: the record was not written, and the producer will not write it.
    pub(crate) written: bool,
}

#[derive(Default)]
struct Partition {
    /// Sent by the living producer, not yet written.
    queue: VecDeque<Outgoing>,
    /// Sent by producers that are gone, and still on their way.
    astray: VecDeque<Outgoing>,
    stuck: bool,
    /// A record was rejected: the living producer writes nothing after it.
    gap: bool,
}

pub(crate) struct Kafka {
    gapless: bool,
    partitions: BTreeMap<(String, usize), Partition>,
    /// Reports on their way, each with the time at which it arrives.
    reports: Vec<(Duration, Report)>,
}

impl Partition {
    fn can_write(&self) -> bool {
        !(self.stuck || self.gap || self.queue.is_empty())
    }
}

impl Kafka {
    pub(crate) fn new(gapless: bool) -> Kafka {
        Kafka { gapless, partitions: BTreeMap::new(), reports: Vec::new() }
    }

    /// Takes a record into its partition's queue.
    pub(crate) fn send(&mut self, record: Outgoing, random: &mut Random) {
        let partition = match &record.key {
            Some(key) => key.iter().map(|b| usize::from(*b)).sum::<usize>() % PARTITIONS,
            None => random.below(PARTITIONS),
        };
        self.partitions.entry((record.topic.clone(), partition)).or_default().queue.push_back(record);
    }

    /// Writes a batch of some partition; returns what was written, in order.
    pub(crate) fn write(&mut self, now: Duration, random: &mut Random, story: &mut Story) -> Vec<Outgoing> {
        let ready = |partition: &Partition| partition.can_write() || !partition.astray.is_empty();
        let mut ready: Vec<_> = self.partitions.iter_mut().filter(|(_, partition)| ready(partition)).collect();
        if ready.is_empty() {
            return Vec::new();
        }
        let chosen = random.below(ready.len());
        let ((topic, number), partition) = &mut ready[chosen];
        let batch_len = random.between(1, BATCH_MAX);
        if !partition.astray.is_empty() && (!partition.can_write() || random.one_in(2)) {
            let written: Vec<_> = partition.astray.drain(..batch_len.min(partition.astray.len())).collect();
            story.tell("kafka", || format!("writes {} to {topic}/{number}, astray", numbers(&written)));
            return written;
        }
        let written: Vec<_> = partition.queue.drain(..batch_len.min(partition.queue.len())).collect();
        story.tell("kafka", || format!("writes {} to {topic}/{number}", numbers(&written)));
        let together = random.one_in(2);
        let latency = |random: &mut Random| Duration::from_micros(random.below(LATENCY_MAX_US) as u64);
        let batch_latency = latency(random);
        for record in &written {
            let latency = if together { batch_latency } else { latency(random) };
            self.reports.push((now + latency, Report { ticket: record.ticket, written: true }));
        }
        written
    }

    /// Rejects the oldest record of some partition for good.
    pub(crate) fn reject(&mut self, now: Duration, random: &mut Random, story: &mut Story) {
        let mut ready: Vec<_> = self.partitions.values_mut().filter(|partition| partition.can_write()).collect();
        if !ready.is_empty() {
            let chosen = random.below(ready.len());
            let record = ready[chosen].queue.pop_front().expect("it is not empty");
            ready[chosen].gap = self.gapless;
            story.tell("kafka", || format!("rejects {}", numbers(std::slice::from_ref(&record))));
            self.reports.push((now, Report { ticket: record.ticket, written: false }));
        }
    }

    /// Reports that have arrived, shuffled.
    pub(crate) fn reports(&mut self, now: Duration, random: &mut Random) -> Vec<Report> {
        let (mut arrived, travelling): (Vec<_>, Vec<_>) = self.reports.drain(..).partition(|(at, _)| *at <= now);
        self.reports = travelling;
        random.shuffle(&mut arrived);
        arrived.into_iter().map(|(_, report)| report).collect()
    }

    /// The producer is gone. Of what it had sent, some first records of each partition may be written yet; nobody will
    /// hear of them.
    pub(crate) fn abandon(&mut self, random: &mut Random) {
        self.reports.clear();
        for partition in self.partitions.values_mut() {
            let on_their_way = if partition.gap { 0 } else { random.below(partition.queue.len() + 1) };
            partition.gap = false;
            partition.astray.extend(partition.queue.drain(..on_their_way));
            partition.queue.clear();
        }
    }

    /// Makes some partition stop writing, or lets all go on.
    pub(crate) fn stick(&mut self, random: &mut Random, story: &mut Story) {
        if self.partitions.values().any(|partition| partition.stuck) {
            story.tell("kafka", || "writes to all partitions again");
            self.free();
        } else if !self.partitions.is_empty() {
            let chosen = random.below(self.partitions.len());
            let ((topic, number), partition) =
                self.partitions.iter_mut().nth(chosen).expect("the choice lies below the number of partitions");
            story.tell("kafka", || format!("stops writing to {topic}/{number}"));
            partition.stuck = true;
        }
    }

    pub(crate) fn free(&mut self) {
        self.partitions.values_mut().for_each(|partition| partition.stuck = false);
    }
}

fn numbers(records: &[Outgoing]) -> String {
    format!("events {:?}", records.iter().filter_map(|record| record.event).collect::<Vec<_>>())
}
