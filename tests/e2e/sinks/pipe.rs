//! Whoever reads the standard output of walpost, through a pipe.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::receiver::{Arrival, Receiver};
use crate::support::{
    eventually,
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    process::run,
    scratch,
    walpost::Walpost,
};

/// Lines are read by a thread, one run of walpost after the other, whole lines only.
pub(super) struct Pipe {
    fifo: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
    paused: Arc<Mutex<()>>,
    pause: Mutex<Option<mpsc::Sender<()>>>,
}

impl Pipe {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        lock(&self.lines)
    }
}

impl Receiver for Pipe {
    const BATCH: u32 = 10_000;
    // A pipe holds 64 KiB.
    const UNTAKEN: usize = 200_000;

    fn start(_outbox: &Outbox<'_>) -> Pipe {
        let fifo = scratch::folder("pipe").join("fifo");
        run("mkfifo", [&fifo]);
        Pipe { fifo, lines: Arc::default(), paused: Arc::default(), pause: Mutex::default() }
    }

    fn configuration(&self, outbox: &Outbox<'_>) -> String {
        format!(
            "database_url = '{}'\nslot = '{}'\nsink.kind = 'stdout'\nroute.topic = '{}'\n",
            outbox.database.url(),
            outbox.slot(),
            outbox.topic("${aggregate_type}")
        )
    }

    fn run(&self, configuration: &str) -> Walpost {
        let (fifo, lines, paused) = (self.fifo.clone(), Arc::clone(&self.lines), Arc::clone(&self.paused));
        thread::spawn(move || {
            // It opens when walpost has opened its end, and ends when walpost does.
            let mut reader = BufReader::new(File::open(fifo).expect("the pipe is there"));
            let mut line = String::new();
            loop {
                drop(lock(&paused));
                if reader.read_line(&mut line).is_ok_and(|bytes| bytes == 0) {
                    break;
                }
                // The last one of a process that was killed may be torn.
                if line.ends_with('\n') {
                    lock(&lines).push(std::mem::take(&mut line));
                }
                line.clear();
            }
        });
        Walpost::start_into(&self.fifo, configuration)
    }

    fn stop(&self) {
        self.pause();
    }

    fn start_again(&self) {
        self.resume();
    }

    fn pause(&self) {
        let (resume, resumed) = mpsc::channel::<()>();
        let (locked, is_locked) = mpsc::channel();
        let paused = Arc::clone(&self.paused);
        thread::spawn(move || {
            let _held = lock(&paused);
            locked.send(()).expect("it is waited for");
            // Until the sender is gone.
            let _ = resumed.recv();
        });
        is_locked.recv().expect("the lock is had soon");
        *lock(&self.pause) = Some(resume);
    }

    fn resume(&self) {
        lock(&self.pause).take();
    }

    fn mend(&self, _outbox: &Outbox<'_>) {}

    fn arrivals(&self) -> Vec<Arrival> {
        let arrival = |line: &String| {
            let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            let header = |name: &str| {
                let headers = object["headers"].as_array().expect("a list");
                let header = headers.iter().find(|header| header["name"] == name).expect("it is there");
                header["value"].as_str().expect("a text").to_owned()
            };
            Arrival {
                destination: object["topic"].as_str().expect("a text").to_owned(),
                id: header("id"),
                position: header("position"),
                value: object["value"].as_str().expect("a text").as_bytes().to_vec(),
            }
        };
        self.lines().iter().map(arrival).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_reader_that_has_seen_enough_is_a_clean_stop() {
    const WITHIN: Duration = Duration::from_secs(60);
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let pipe = Pipe::start(&outbox);
    let configuration = pipe.configuration(&outbox);
    let mut writer = outbox.writer();
    writer.bulk(Bulk { transactions: 100, rows: 10, aggregates: 3, padding: 2_000 });
    let fifo = pipe.fifo.clone();
    let reader = thread::spawn(move || {
        let mut lines = BufReader::new(File::open(fifo).expect("the pipe is there")).lines();
        (0..10).map(|_| lines.next().expect("ten lines").expect("they are UTF-8")).collect::<Vec<_>>()
    });
    let walpost = Walpost::start_into(&pipe.fifo, &configuration);
    let seen = reader.join().expect("it reads");
    assert_eq!(walpost.wait_exit(WITHIN), 0);
    walpost.says("standard output was closed by its reader", WITHIN);
    assert!(outbox.walsender().is_none());
    // What the reader had is not the end of the story.
    *pipe.lines() = seen.into_iter().map(|line| line + "\n").collect();
    let walpost = pipe.run(&configuration);
    eventually(WITHIN, "all has arrived", || pipe.report(&outbox.committed()).missing.is_empty().then_some(()));
    pipe.report(&outbox.committed()).assert_complete();
    assert_eq!(walpost.terminate(WITHIN), 0);
}
