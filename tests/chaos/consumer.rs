//! The consumer that reads along, so that what a deleted topic had in it was seen before.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, SyncSender, TryRecvError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    oracle::Journal,
    support::{
        kafka::Kafka,
        records::{Isolation, Reader},
    },
};

const WITHIN: Duration = Duration::from_secs(60);

enum Order {
    /// The topic that may be deleted: a reader that outlived it would read the next one from anywhere.
    Leave,
    Return,
    /// Tell what was not read, and read all from the beginning with new clients.
    Anew,
    /// Read all that is there, and end.
    Finish,
}

pub struct Consumer {
    journal: Arc<Mutex<Journal>>,
    /// Dropping it ends the thread.
    orders: Option<SyncSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Consumer {
    /// Reads `topics` from their beginning on; those that may be deleted have a connection of their own.
    pub fn start(kafka: Arc<Kafka>, steady: &[String], fleeting: String, isolation: Isolation) -> Consumer {
        let journal = Arc::new(Mutex::new(Journal::default()));
        // An order that was given is taken already.
        let (order, orders) = mpsc::sync_channel(0);
        let (shared, steady) = (Arc::clone(&journal), steady.to_vec());
        let thread = thread::spawn(move || {
            let steady: Vec<&str> = steady.iter().map(String::as_str).collect();
            read(&kafka, &steady, &fleeting, isolation, &shared, &orders);
        });
        Consumer { journal, orders: Some(order), thread: Some(thread) }
    }

    pub fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All was read of the topic that may be deleted: now it may.
    pub fn leave(&self) {
        self.order(Order::Leave);
    }

    /// It is there again.
    pub fn comes_back(&self) {
        self.order(Order::Return);
    }

    /// It may be stuck rather than the stream.
    pub fn begin_anew(&self) {
        self.order(Order::Anew);
    }

    fn order(&self, order: Order) {
        self.orders.as_ref().expect("it runs").send(order).expect("the consumer reads on");
    }

    /// Gives what it has; `all` that is there now, where Kafka is known to answer.
    pub fn finish(mut self, all: bool) -> Journal {
        if all {
            self.order(Order::Finish);
        }
        self.end();
        std::mem::take(&mut self.journal())
    }

    fn end(&mut self) {
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || thread::panicking(), "the consumer has panicked");
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A reader, and how many of its records are in the journal.
struct Source {
    reader: Reader,
    taken: usize,
}

impl Source {
    fn new(reader: Reader) -> Source {
        Source { reader, taken: 0 }
    }
}

fn read(
    kafka: &Kafka,
    steady: &[&str],
    fleeting: &str,
    isolation: Isolation,
    journal: &Mutex<Journal>,
    orders: &Receiver<Order>,
) {
    let beginning = |topics: &[&str]| Source::new(kafka.reader(topics, isolation, WITHIN));
    let mut sources = vec![beginning(steady), beginning(&[fleeting])];
    let mut last = false;
    while !last {
        match orders.try_recv() {
            Ok(Order::Leave) => sources.truncate(1),
            Ok(Order::Return) => {
                journal.lock().unwrap_or_else(PoisonError::into_inner).made_anew(fleeting);
                sources.push(beginning(&[fleeting]));
            }
            Ok(Order::Anew) => {
                for source in &sources {
                    println!("   not read: {}", source.reader.behind(WITHIN).join(", "));
                }
                let all = [steady, &[fleeting]];
                sources = all.iter().take(sources.len()).map(|topics| beginning(topics)).collect();
            }
            Ok(Order::Finish) => last = true,
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return,
        }
        for Source { reader, taken } in &mut sources {
            let mut polled = false;
            let records = match last {
                true => reader.until_end(WITHIN),
                false => reader.until(WITHIN, "a poll", |_| std::mem::replace(&mut polled, true)),
            };
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            records[*taken..].iter().for_each(|record| journal.take(record.clone()));
            *taken = records.len();
        }
    }
}
