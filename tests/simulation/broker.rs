//! Kafka as far as a transactional producer and a `read_committed` consumer can tell.
//!
//! Whoever fences is the newest producer of the transactional id: what older ones have open is aborted, and what of
//! theirs is still on its way is refused, be it a record or a commit. The newest has one transaction open at a time,
//! so the consumer sees whole transactions, in the order of their commits, each with the position that came with it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use walpost::pipeline::{Ticket, resume::Stored};

use crate::{random::Random, relay::Outgoing, sabotage::Sabotage, story::Story};

const PARTITIONS: usize = 3;
const BATCH_MAX: usize = 8;
const LATENCY_MAX_US: usize = 30_000;

/// One initialised producer: what its epoch is to Kafka.
pub(crate) type ProducerId = u32;

/// What a producer learns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// The record is written, or without a ticket the position.
    Written(Option<Ticket>),
    Committed,
    /// Another producer is newer, or the broker gave the transaction up.
    Refused,
}

enum Message {
    Record(Outgoing),
    Position(Stored),
}

type Place = (String, usize);

/// What a producer has under way. It may be gone, or frozen.
#[derive(Default)]
struct Producer {
    queues: BTreeMap<Place, VecDeque<Message>>,
    commits: bool,
    answers: Vec<(Duration, Answer)>,
}

pub(crate) struct Broker {
    sabotage: Option<Sabotage>,
    born: ProducerId,
    /// The only one that may write; none after the broker gave a transaction up.
    newest: Option<ProducerId>,
    producers: BTreeMap<ProducerId, Producer>,
    /// What is written and not committed: hidden.
    open: Vec<Message>,
    stored: Option<Stored>,
    stuck: Option<Place>,
    /// What a saboteur stores later than its records.
    late: Option<Stored>,
    /// Times that a producer was refused that is not the newest any more.
    pub(crate) refused: usize,
}

impl Broker {
    pub(crate) fn new(sabotage: Option<Sabotage>) -> Broker {
        Broker {
            sabotage,
            born: 0,
            newest: None,
            producers: BTreeMap::new(),
            open: Vec::new(),
            stored: None,
            stuck: None,
            late: None,
            refused: 0,
        }
    }

    /// Makes a producer, the newest.
    pub(crate) fn fence(&mut self) -> ProducerId {
        self.born += 1;
        self.newest = Some(self.born);
        self.open.clear();
        self.producers.insert(self.born, Producer::default());
        self.born
    }

    /// The position that is committed.
    pub(crate) fn stored(&self) -> Option<Stored> {
        self.stored.clone()
    }

    fn producer(&mut self, id: ProducerId) -> &mut Producer {
        self.producers.get_mut(&id).expect("it was made when it fenced")
    }

    pub(crate) fn send(&mut self, id: ProducerId, record: Outgoing, random: &mut Random) {
        let partition = match &record.key {
            Some(key) => key.iter().map(|b| usize::from(*b)).sum::<usize>() % PARTITIONS,
            None => random.below(PARTITIONS),
        };
        let place = (record.topic.clone(), partition);
        self.producer(id).queues.entry(place).or_default().push_back(Message::Record(record));
    }

    pub(crate) fn send_position(&mut self, id: ProducerId, stored: Stored) {
        if self.sabotage == Some(Sabotage::StoresBeforeTheCommit) {
            self.stored = Some(stored.clone());
        }
        let place = ("walpost.positions".to_owned(), 0);
        self.producer(id).queues.entry(place).or_default().push_back(Message::Position(stored));
    }

    pub(crate) fn commit(&mut self, id: ProducerId) {
        self.producer(id).commits = true;
    }

    /// Lets something of some producer happen; gives what a `read_committed` consumer sees because of it, in order.
    pub(crate) fn write(&mut self, now: Duration, random: &mut Random, story: &mut Story) -> Vec<Outgoing> {
        if self.late.is_some() && random.one_in(4) {
            self.stored = self.late.take();
        }
        let mut ready: Vec<(ProducerId, Option<Place>)> = Vec::new();
        for (id, producer) in &self.producers {
            let places = producer.queues.keys().filter(|place| self.stuck.as_ref() != Some(place));
            ready.extend(places.map(|place| (*id, Some(place.clone()))));
            ready.extend(producer.commits.then_some((*id, None)));
        }
        if ready.is_empty() {
            return Vec::new();
        }
        let (id, place) = ready.swap_remove(random.below(ready.len()));
        if self.newest != Some(id) {
            story.tell("kafka", || format!("refuses producer {id}"));
            self.refused += 1;
            *self.producer(id) = Producer { answers: vec![(now, Answer::Refused)], ..Producer::default() };
            return Vec::new();
        }
        match place {
            Some(place) => {
                self.append(id, &place, now, random);
                Vec::new()
            }
            None => self.committed(id, now, random, story),
        }
    }

    fn append(&mut self, id: ProducerId, place: &Place, now: Duration, random: &mut Random) {
        let producer = self.producers.get_mut(&id).expect("it has something ready");
        let queue = producer.queues.get_mut(place).expect("it has something there");
        for message in queue.drain(..random.between(1, BATCH_MAX).min(queue.len())) {
            let ticket = match &message {
                Message::Record(record) => Some(record.ticket),
                Message::Position(_) => None,
            };
            producer.answers.push((now + latency(random), Answer::Written(ticket)));
            self.open.push(message);
        }
        if queue.is_empty() {
            producer.queues.remove(place);
        }
    }

    fn committed(&mut self, id: ProducerId, now: Duration, random: &mut Random, story: &mut Story) -> Vec<Outgoing> {
        let answer = (now + latency(random), Answer::Committed);
        let producer = self.producer(id);
        producer.commits = false;
        producer.answers.push(answer);
        let mut records = Vec::new();
        for message in std::mem::take(&mut self.open) {
            match message {
                Message::Record(record) => records.push(record),
                Message::Position(stored) if self.sabotage == Some(Sabotage::StoresAfterTheCommit) => {
                    self.late = Some(stored);
                }
                Message::Position(stored) => self.stored = Some(stored),
            }
        }
        story.tell("kafka", || {
            let events: Vec<_> = records.iter().filter_map(|record| record.event).collect();
            format!("commits producer {id}'s events {events:?}")
        });
        records
    }

    /// Answers that have arrived, shuffled.
    pub(crate) fn answers(&mut self, id: ProducerId, now: Duration, random: &mut Random) -> Vec<Answer> {
        let answers = &mut self.producer(id).answers;
        let (mut arrived, travelling): (Vec<_>, Vec<_>) = answers.drain(..).partition(|(at, _)| *at <= now);
        *answers = travelling;
        random.shuffle(&mut arrived);
        arrived.into_iter().map(|(_, answer)| answer).collect()
    }

    /// A producer is gone. Of what it had sent, some first records of each partition may arrive yet, or its commit.
    pub(crate) fn abandon(&mut self, id: ProducerId, random: &mut Random) {
        self.late = None;
        let producer = self.producer(id);
        producer.answers.clear();
        for queue in producer.queues.values_mut() {
            queue.truncate(random.below(queue.len() + 1));
        }
        producer.queues.retain(|_, queue| !queue.is_empty());
        producer.commits &= random.one_in(2);
    }

    /// The transaction took too long: the broker aborts it and takes nothing more from its producer.
    pub(crate) fn time_out(&mut self, story: &mut Story) {
        if !self.open.is_empty() {
            story.tell("kafka", || "gives the open transaction up");
            self.open.clear();
            self.newest = None;
        }
    }

    /// Makes some partition stop writing, or lets all go on.
    pub(crate) fn stick(&mut self, random: &mut Random) {
        let places: Vec<_> = self.producers.values().flat_map(|producer| producer.queues.keys()).collect();
        self.stuck = match self.stuck.is_none() && !places.is_empty() {
            true => Some(places[random.below(places.len())].clone()),
            false => None,
        };
    }

    pub(crate) fn free(&mut self) {
        self.stuck = None;
    }
}

fn latency(random: &mut Random) -> Duration {
    Duration::from_micros(random.below(LATENCY_MAX_US) as u64)
}
