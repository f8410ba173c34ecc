//! An endpoint of webhooks, and what only webhooks promise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use super::{
    WITHIN, arrived,
    endpoint::{Answer, Request, Server},
    receiver::{Arrival, Receiver},
};
use crate::support::{
    eventually,
    letters::{command, letter, letters, with_letters},
    outbox::{Bulk, Outbox},
    postgres::{MAIN, Postgres},
    walpost::Walpost,
};

pub(super) struct Endpoint {
    server: Server,
    refuses: Arc<AtomicBool>,
}

/// Quick in everything that a story waits for.
fn configuration(outbox: &Outbox<'_>, server: &Server, more: &str) -> String {
    format!(
        "database_url = '{}'\nslot = '{}'\nsink.kind = 'webhook'\n{more}\n[webhook]\nurl = '{}/{}'\nallow_private = true\n\
         backoff = '50ms'\nbackoff_max = '1s'\n",
        outbox.database.url(),
        outbox.slot(),
        server.url(),
        outbox.topic("${aggregate_type}")
    )
}

/// What was taken: requests that were answered well.
fn taken(server: &Server) -> Vec<Request> {
    server.requests().into_iter().filter(|request| request.status == 204).collect()
}

impl Receiver for Endpoint {
    const BATCH: u32 = 4_000;

    fn start(_outbox: &Outbox<'_>) -> Endpoint {
        let refuses = Arc::new(AtomicBool::new(true));
        let (server, asked) = (Server::start(), Arc::clone(&refuses));
        server.answers(move |request| {
            let is_refused = request.path.ends_with(Endpoint::REFUSED) && asked.load(Ordering::Relaxed);
            Answer::status(if is_refused { 422 } else { 204 })
        });
        Endpoint { server, refuses }
    }

    fn configuration(&self, outbox: &Outbox<'_>) -> String {
        configuration(outbox, &self.server, "") + "attempts_max = 1000\n"
    }

    fn stop(&self) {
        self.server.stop();
    }

    fn start_again(&self) {
        self.server.start_again();
    }

    fn pause(&self) {
        self.server.pause(true);
    }

    fn resume(&self) {
        self.server.pause(false);
    }

    fn mend(&self, _outbox: &Outbox<'_>) {
        self.refuses.store(false, Ordering::Relaxed);
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let arrival = |request: Request| Arrival {
            destination: request.path.trim_start_matches('/').to_owned(),
            id: request.header("x-event-id").to_owned(),
            position: request.header("x-event-position").to_owned(),
            value: request.body,
        };
        taken(&self.server).into_iter().map(arrival).collect()
    }
}

fn ids(requests: &[Request]) -> Vec<&str> {
    requests.iter().map(|request| request.header("x-event-id")).collect()
}

/// An endpoint that answers 500 once for the second of four events, then 429 with a wait, then hangs.
#[test]
fn a_later_event_of_an_aggregate_waits_until_the_earlier_one_is_taken() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let server = Server::start();
    let tries = AtomicU32::new(0);
    server.answers(move |request| match request.body.starts_with(br#"{"n": 2,"#) {
        false => Answer::status(204),
        true => match tries.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::status(500),
            1 => Answer { headers: vec![("retry-after", "2".to_owned())], ..Answer::status(429) },
            2 => Answer { hangs: true, ..Answer::status(504) },
            _ => Answer::status(204),
        },
    });
    let walpost = Walpost::start(&(configuration(&outbox, &server, "") + "timeout = '1s'\n"));
    let mut writer = outbox.writer();
    (0..4).for_each(|_| writer.one("bulk", "a"));
    // Others go on meanwhile.
    writer.bulk(Bulk { transactions: 1, rows: 20, aggregates: 5, padding: 0 });
    let committed = outbox.committed();
    let of_a: Vec<_> = committed[..4].iter().map(|event| &*event.id).collect();
    eventually(WITHIN, "all are taken", || (taken(&server).len() == committed.len()).then_some(()));
    let requests = server.requests();
    let first_of_a: Vec<_> =
        taken(&server).into_iter().filter(|request| of_a.contains(&request.header("x-event-id"))).collect();
    assert_eq!(ids(&first_of_a), of_a);
    let tried: Vec<_> = requests.iter().filter(|request| request.header("x-event-id") == of_a[1]).collect();
    assert_eq!(tried.iter().map(|request| request.status).collect::<Vec<_>>(), [500, 429, 504, 204]);
    assert!(tried[2].at - tried[1].at >= Duration::from_secs(2), "it was asked to wait");
    // One identity, whichever try.
    assert!(tried.iter().all(|request| request.header("idempotency-key") == of_a[1]));
    let last_other = requests.iter().position(|request| request.header("x-event-id") == committed[23].id);
    let last_of_a = requests.iter().position(|request| request.header("x-event-id") == of_a[3]);
    assert!(last_other < last_of_a, "the others did not wait");
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// The whole story: a success, attempts that run out, a replay, and the same event once more with one effect.
#[test]
fn attempts_run_out_and_go_on_counting_after_a_restart() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    database.sql(include_str!("../../../sql/attempt.sql"));
    let server = Server::start();
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    server.answers(move |_| Answer::status(if is_down.load(Ordering::Relaxed) { 503 } else { 204 }));
    // Long enough that the restart comes between two tries.
    let configuration = configuration(&outbox, &server, "") + "attempts_max = 3\n";
    let slow = configuration.replace("'50ms'", "'1s'");
    let walpost = Walpost::start(&slow);
    let mut writer = outbox.writer();
    writer.one("bulk", "a");
    eventually(WITHIN, "the first is taken", || (taken(&server).len() == 1).then_some(()));
    outbox.drained(WITHIN);

    down.store(true, Ordering::Relaxed);
    writer.one("bulk", "a");
    writer.one("bulk", "a");
    let counted = || database.session().rows("SELECT event_id, attempts FROM walpost.attempt");
    let id = outbox.committed()[1].id.clone();
    eventually(WITHIN, "the second was tried", || {
        (counted() == [[Some(id.clone()), Some("1".to_owned())]]).then_some(())
    });
    walpost.kill();
    let walpost = Walpost::start(&configuration);
    eventually(WITHIN, "it is a dead letter", || (letters(&outbox).len() == 2).then_some(()));
    let committed = outbox.committed();
    assert_eq!(
        letters(&outbox),
        [letter("parked", "rejected", &committed[1].id), letter("parked", "parked", &committed[2].id)]
    );
    let attempts: Vec<i32> = vec![database.session().get("SELECT max(attempts) FROM walpost.dead_letter")];
    assert_eq!(attempts, [3]);
    let tried = server.requests().into_iter().filter(|request| request.header("x-event-id") == id).count();
    assert_eq!(tried, 3, "the restart began to count anew");
    eventually(WITHIN, "nothing is counted any more", || counted().is_empty().then_some(()));

    down.store(false, Ordering::Relaxed);
    command(&outbox, &["replay", "--all"]);
    eventually(WITHIN, "the rest is taken", || (taken(&server).len() == 3).then_some(()));
    assert_eq!(ids(&taken(&server)), committed.iter().map(|event| &*event.id).collect::<Vec<_>>());
    let keys = |requests: &[Request]| -> Vec<String> {
        requests.iter().map(|request| request.header("idempotency-key").to_owned()).collect()
    };
    assert_eq!(keys(&taken(&server)), committed.iter().map(|event| event.id.clone()).collect::<Vec<_>>());
    assert_eq!(walpost.terminate(WITHIN), 0);
}

#[test]
fn without_a_place_for_dead_letters_the_stream_halts_and_loses_nothing() {
    let database = Postgres::shared(MAIN).database();
    let outbox = Outbox::create(&database);
    let endpoint = Endpoint::start(&outbox);
    let walpost = Walpost::start(&endpoint.configuration(&outbox));
    let mut writer = outbox.writer();
    writer.one("bulk", "b");
    writer.one(Endpoint::REFUSED, "a");
    writer.one(Endpoint::REFUSED, "a");
    assert_eq!(walpost.wait_exit(WITHIN), 1);
    let log = walpost.log();
    assert!(log.contains(&outbox.committed()[1].id) && log.contains("422"), "{log}");
    endpoint.mend(&outbox);
    let walpost = Walpost::start(&endpoint.configuration(&outbox));
    arrived(&endpoint, &outbox).assert_exactly_once();
    assert_eq!(walpost.terminate(WITHIN), 0);
}

/// By table, by the event's type, and by the row.
#[test]
fn an_event_goes_where_its_table_its_type_or_its_row_says() {
    let database = Postgres::shared(MAIN).database();
    let outbox = with_letters(&database);
    let (server, other) = (Server::start(), Server::start());
    let more = format!("[webhook_urls]\nspecial = '{}/by-type'\n", other.url());
    let allowed = format!("allow_hosts = '{}'\n", other.address());
    let walpost = Walpost::start(&(configuration(&outbox, &server, &more) + &allowed));
    let row = |event_type: &str, destination: &str| {
        let destination = if destination.is_empty() { "NULL".to_owned() } else { format!("'{destination}'") };
        database.sql(&format!(
            "INSERT INTO walpost.outbox (aggregate_type, aggregate_id, event_type, payload, destination)
             VALUES ('a/b?c', 'x', '{event_type}', '{{}}', {destination})"
        ));
    };
    row("plain", "");
    row("special", "");
    row("special", &format!("{}/by-row?q=1", other.url()));
    row("plain", "http://127.0.0.1:1/elsewhere");
    row("plain", "http://169.254.169.254/latest/meta-data");
    row("plain", "no url");
    eventually(WITHIN, "three go and three do not", || {
        (letters(&outbox).len() == 3 && taken(&server).len() + taken(&other).len() == 3).then_some(())
    });
    let paths = |server: &Server| taken(server).into_iter().map(|request| request.path).collect::<Vec<_>>();
    assert_eq!(paths(&server), [format!("/{}.a%2Fb%3Fc", database.name)]);
    assert_eq!(paths(&other), ["/by-type", "/by-row?q=1"]);
    assert!(letters(&outbox).iter().all(|[state, class, _]| state == "parked" && class == "unroutable"));
    assert_eq!(walpost.terminate(WITHIN), 0);
}
