//! The whole story of a webhook, with the receiver that users are given: taken, refused until it is a dead letter, replayed,
//! and sent once more without a second effect.

use std::{
    ffi::OsString,
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use serde_json::Value;

use super::WITHIN;
use crate::support::{
    eventually,
    examples::example,
    letters::{command, letter, letters},
    outbox::Outbox,
    postgres::{MAIN, Postgres},
    process::{Launch, Process, Signal},
    scratch,
    walpost::{Walpost, walpost},
};

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The example's receiver, and its log.
struct Receiver {
    address: SocketAddr,
    process: Process,
}

impl Receiver {
    fn start() -> Receiver {
        let folder = scratch::folder("receiver");
        let (address, secrets) = (SocketAddr::from(([127, 0, 0, 1], scratch::port())), folder.join("secrets"));
        fs::write(&secrets, format!("{SECRET}\n")).expect("the folder is ours");
        let listen = ["--listen".into(), address.to_string().into(), "--secret-file".into(), secrets.into_os_string()];
        let process = Process::start(&Launch {
            name: "the receiver".to_owned(),
            command: std::iter::once(example("webhook_receiver").into()).chain(listen).collect::<Vec<OsString>>(),
            environment: Vec::new(),
            log: folder.join("log"),
            folder,
            last_signal: Signal::Kill,
        });
        eventually(WITHIN, "the receiver listens", || TcpStream::connect(address).ok());
        Receiver { address, process }
    }

    fn call(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).expect("it listens");
        write!(stream, "{method} {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n").expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers in UTF-8");
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        answer.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    }

    /// Events that it did its work for, and those that came again.
    fn stats(&self) -> (u64, u64) {
        let stats: Value = serde_json::from_str(&self.call("GET", "/stats")).expect("it is JSON");
        let count = |name: &str| stats[name].as_u64().unwrap_or_else(|| panic!("{name} in {stats}"));
        (count("new"), count("again"))
    }
}

#[test]
fn an_event_that_fails_is_quarantined_replayed_and_takes_effect_once() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    let receiver = Receiver::start();
    let configuration = format!(
        "database_url = '{}'\nslot = '{}'\nsink.kind = 'webhook'\n[webhook]\nurl = 'http://{}/events'\nallow_private = true\n\
         secret = '{SECRET}'\nattempts_max = 3\nbackoff = '50ms'\n",
        database.url(),
        database.name,
        receiver.address
    );
    let file = scratch::folder("configuration").join("walpost.toml");
    fs::write(&file, &configuration).expect("the folder is ours");
    let file = file.to_str().expect("the folder's name is UTF-8");
    let done = walpost(&["setup", "--yes", "-c", file]);
    assert_eq!(done.code, 0, "{done:?}");
    let outbox = Outbox::unmade(&database);
    let running = Walpost::start(&configuration);
    let mut writer = outbox.writer();
    writer.one("order", "a");
    eventually(WITHIN, "the first is taken", || (receiver.stats() == (1, 0)).then_some(()));

    receiver.call("POST", "/fail?times=3&status=503");
    writer.one("order", "a");
    writer.one("order", "a");
    eventually(WITHIN, "it is quarantined with the one behind it", || (letters(&outbox).len() == 2).then_some(()));
    let ids: Vec<_> = outbox.committed().into_iter().map(|event| event.id).collect();
    assert_eq!(letters(&outbox), [letter("parked", "rejected", &ids[1]), letter("parked", "parked", &ids[2])]);
    writer.one("order", "b");
    eventually(WITHIN, "others go on", || (receiver.stats() == (2, 0)).then_some(()));

    command(&outbox, &["replay", "--all"]);
    eventually(WITHIN, "both are taken", || (receiver.stats() == (4, 0)).then_some(()));
    assert_eq!(running.terminate(WITHIN), 0);

    let again = walpost(&["replay", "-c", file, "--id", &ids[1]]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(receiver.stats(), (4, 1), "the same event has one effect");
    assert!(receiver.process.exit_code().is_none());
}
