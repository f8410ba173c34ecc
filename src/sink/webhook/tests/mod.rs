//! Records against receivers that listen on this host.

mod server;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::http::Version;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use self::server::{Certificate, Receiver};
use super::Courier;
use crate::{
    config::{SigningKey, Webhook},
    pipeline::{Event, Headers, Lsn, Position, Record, Ticket},
    postgres::dead_letter::ReasonClass,
    sink::{courier::Outcome, owned::OwnedRecord},
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const NEXT: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const HTTP_1: &[u8] = b"\x08http/1.1";
const HTTP_2: &[u8] = b"\x02h2\x08http/1.1";

fn webhook() -> Webhook {
    Webhook {
        timeout: Duration::from_secs(10),
        attempts_max: 10,
        backoff: Duration::from_secs(1),
        backoff_max: Duration::from_secs(300),
        lanes: 64,
        headers: ["x-tenant", "occurred_at"].map(|name| name.parse().unwrap()).to_vec(),
        allow_private: true,
        authorities: Vec::new(),
        secrets: Vec::new(),
    }
}

fn record(url: &str, value: Option<&[u8]>, headers: &[(&str, &str)]) -> Arc<OwnedRecord> {
    let position = ("position", "00000016B374D848-0000001A");
    let headers = std::iter::once(&position).chain(headers);
    let own: Vec<_> = headers.map(|(name, value)| ((*name).to_owned(), Some(value.as_bytes().to_vec()))).collect();
    Arc::new(OwnedRecord::new(&Record {
        ticket: Ticket(1),
        position: Position { commit_lsn: Lsn(0x16_B374_D848), ordinal: 26 },
        xid: 7,
        table: &"walpost.outbox".parse().unwrap(),
        event: Event { id: b"e-1", event_type: Some(b"OrderPlaced"), ..Event::default() },
        topic: url,
        partition: None,
        key: Some(b"o-812"),
        value,
        timestamp_ms: 0,
        headers: Headers::new(&own),
    }))
}

async fn deliver(webhook: &Webhook, url: &str) -> Outcome {
    Courier::open(webhook).unwrap().deliver(record(url, Some(b"{}"), &[])).await
}

fn reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed { reason, counts: true, .. } | Outcome::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { counts: true, .. })
}

#[tokio::test]
async fn a_record_arrives_with_what_its_receiver_needs() {
    let mut receiver = Receiver::plain().await;
    let secrets = [SECRET, NEXT].map(|secret| SigningKey::parse(secret).unwrap()).to_vec();
    let courier = Courier::open(&Webhook { secrets, ..webhook() }).unwrap();
    let headers = [
        ("idempotency_key", "order.812"),
        ("occurred_at", "2026-11-30T10:00:00Z"),
        ("traceparent", "00-1-2-01"),
        ("X-Tenant", "grün"),
        ("x-inner", "not\r\nallowed"),
    ];
    let order = record(&receiver.url("/orders?v=1"), Some(b" {\"total\": 5}\n"), &headers);
    assert_eq!(courier.deliver(Arc::clone(&order)).await, Outcome::Delivered);
    let taken = receiver.taken.recv().await.unwrap();
    assert_eq!(
        (taken.version, taken.path.as_str(), taken.body.as_slice()),
        (Version::HTTP_11, "/orders", &b" {\"total\": 5}\n"[..])
    );
    for (name, value) in [
        ("content-type", "application/json"),
        ("idempotency-key", "order.812"),
        ("x-event-id", "e-1"),
        ("x-event-type", "OrderPlaced"),
        ("x-event-position", "00000016B374D848-0000001A"),
        ("occurred_at", "2026-11-30T10:00:00Z"),
        ("traceparent", "00-1-2-01"),
        ("x-tenant", "grün"),
        ("webhook-id", "order%2E812"),
        ("host", &receiver.address.to_string()),
        ("content-length", "14"),
    ] {
        assert_eq!(taken.header(name), value, "{name}");
    }
    assert!(!taken.headers.contains_key("x-inner"));
    assert!(taken.is_signed_with(SECRET) && taken.is_signed_with(NEXT));
    assert!(!taken.is_signed_with("whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="));

    assert_eq!(courier.deliver(order).await, Outcome::Delivered);
    let again = receiver.taken.recv().await.unwrap();
    assert_eq!(again.header("webhook-id"), "order%2E812");
    assert!(again.is_signed_with(SECRET));
}

#[tokio::test]
async fn the_content_type_is_the_row_s_or_told_by_the_payload() {
    let mut receiver = Receiver::plain().await;
    let courier = Courier::open(&webhook()).unwrap();
    let own = [("Content-Type", "application/cloudevents+json; charset=utf-8")];
    let cases: [(Option<&[u8]>, &[_], &str); 4] = [
        (None, &[], "absent"),
        (Some(b""), &[], "application/octet-stream"),
        (Some(b"{\xff\xfe}"), &[], "application/octet-stream"),
        (Some(b"{}"), &own, own[0].1),
    ];
    for (value, headers, content_type) in cases {
        let record = record(&receiver.url("/"), value, headers);
        assert_eq!(courier.deliver(record).await, Outcome::Delivered);
        let taken = receiver.taken.recv().await.unwrap();
        assert_eq!(taken.header("content-type"), content_type);
        assert_eq!(taken.body, value.unwrap_or_default());
        assert_eq!((taken.header("idempotency-key"), taken.header("webhook-id")), ("e-1", "absent"));
    }
}

#[tokio::test]
async fn bodies_of_every_size_arrive_whole() {
    let mut receiver = Receiver::plain().await;
    let courier = Courier::open(&webhook()).unwrap();
    for size in [0, 1, 65_536, 1 << 20, 20 << 20] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        assert_eq!(courier.deliver(record(&receiver.url("/"), Some(&body), &[])).await, Outcome::Delivered);
        assert!(receiver.taken.recv().await.unwrap().body == body, "{size}");
    }
}

#[tokio::test]
async fn answers_with_and_without_bodies_keep_their_connection() {
    let receiver = Receiver::plain().await;
    let courier = Courier::open(&webhook()).unwrap();
    for path in ["/long", "/status/500", "/", "/redirect/307/long", "/status/413"].repeat(4) {
        courier.deliver(record(&receiver.url(path), Some(b"{}"), &[])).await;
    }
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_receiver_s_status_says_whether_another_try_may_help() {
    let receiver = Receiver::plain().await;
    let answered = |code| format!("{} answered {code}", receiver.url(""));
    for code in [408, 425, 429, 500, 503, 599] {
        let outcome = deliver(&webhook(), &receiver.url(&format!("/status/{code}"))).await;
        let after = [429, 503].contains(&code).then_some(Duration::from_secs(7));
        assert_eq!(outcome, Outcome::Failed { reason: answered(code), after, counts: true });
    }
    for code in [400, 401, 404, 410, 422] {
        let outcome = deliver(&webhook(), &receiver.url(&format!("/status/{code}"))).await;
        assert_eq!(outcome, Outcome::Refused { class: ReasonClass::Rejected, reason: answered(code) });
    }
    let outcome = deliver(&webhook(), &receiver.url("/status/413")).await;
    assert!(matches!(outcome, Outcome::Refused { class: ReasonClass::TooLarge, .. }), "{outcome:?}");
}

#[tokio::test]
async fn redirects_are_followed_inside_their_origin_only() {
    let mut receiver = Receiver::plain().await;
    let secrets = vec![SigningKey::parse(SECRET).unwrap()];
    let signed = Webhook { secrets, ..webhook() };
    for code in [307, 308] {
        assert_eq!(deliver(&signed, &receiver.url(&format!("/redirect/{code}/there"))).await, Outcome::Delivered);
        receiver.taken.recv().await.unwrap();
        let taken = receiver.taken.recv().await.unwrap();
        assert_eq!((taken.path.as_str(), taken.body.as_slice()), ("/there", &b"{}"[..]));
        assert!(taken.is_signed_with(SECRET));
    }
    for code in [301, 302, 303] {
        let outcome = deliver(&signed, &receiver.url(&format!("/redirect/{code}/there"))).await;
        assert!(matches!(outcome, Outcome::Refused { class: ReasonClass::Rejected, .. }), "{outcome:?}");
    }
    let elsewhere = reason(deliver(&signed, &receiver.url("/elsewhere/307")).await);
    assert!(elsewhere.contains("points to http://localhost:9;"), "{elsewhere}");
    assert!(reason(deliver(&signed, &receiver.url("/loop")).await).ends_with("redirects more than 3 times"));
}

#[tokio::test]
async fn no_value_gets_into_another_header() {
    let mut receiver = Receiver::plain().await;
    let courier = Courier::open(&webhook()).unwrap();
    for (name, shown) in [
        ("x-tenant", "x-tenant"),
        ("idempotency_key", "idempotency-key"),
        ("traceparent", "traceparent"),
        ("content-type", "content-type"),
    ] {
        for value in ["a\r\nx-admin: 1", "a\nb", "a\0b", "\x7f"] {
            let outcome = courier.deliver(record(&receiver.url("/"), Some(b"{}"), &[(name, value)])).await;
            assert!(matches!(outcome, Outcome::Refused { class: ReasonClass::Unroutable, .. }), "{outcome:?}");
            assert!(reason(outcome).starts_with(&format!("the value of {shown} holds")));
        }
    }
    assert!(receiver.taken.try_recv().is_err());
}

#[tokio::test]
async fn private_addresses_are_reached_only_where_allowed() {
    let receiver = Receiver::plain().await;
    let port = receiver.address.port();
    let guarded = Webhook { allow_private: false, ..webhook() };
    let addresses = ["127.0.0.1", "0.0.0.0", "10.0.0.1", "169.254.169.254", "[::1]", "[::]", "[::ffff:127.0.0.1]"];
    let addresses = addresses.into_iter().chain(["[fe80::1]", "[64:ff9b::7f00:1]"]).map(|host| (host, false));
    // What a name resolves to may be another address the next time.
    let names = ["localhost", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "0"].map(|host| (host, true));
    for (host, may_pass) in addresses.chain(names) {
        for scheme in ["http", "https"] {
            let outcome = deliver(&guarded, &format!("{scheme}://{host}:{port}/hook")).await;
            let is_refused = matches!(outcome, Outcome::Refused { class: ReasonClass::Unroutable, .. });
            assert_eq!((is_failed(&outcome), is_refused), (may_pass, !may_pass), "{host}: {outcome:?}");
            assert!(reason(outcome).ends_with("is a private address; webhook.allow_private = true allows it"));
        }
    }
    assert_eq!(receiver.connections(), 0);
    assert_eq!(deliver(&webhook(), &format!("http://localhost:{port}/")).await, Outcome::Delivered);

    for allow_private in [false, true] {
        let outcome = deliver(&Webhook { allow_private, ..webhook() }, "http://1.1.1.1:9/").await;
        assert!(matches!(outcome, Outcome::Refused { class: ReasonClass::Unroutable, .. }), "{outcome:?}");
        assert!(reason(outcome).ends_with("nothing is sent without TLS; write https"));
    }
}

#[tokio::test]
async fn a_destination_that_is_no_url_is_refused() {
    for url in ["", "orders", "ftp://127.0.0.1/", "https://user:pass@127.0.0.1/"] {
        let outcome = deliver(&webhook(), url).await;
        assert!(matches!(outcome, Outcome::Refused { class: ReasonClass::Unroutable, .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn http_2_and_1_are_spoken_over_tls_that_is_verified() {
    let certificate = Certificate::of(&["localhost", "127.0.0.1", "::1"]);
    let trusting = Webhook { authorities: vec![certificate.authority.clone()], ..webhook() };
    for (at, host) in [("127.0.0.1:0", "localhost"), ("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]")] {
        for (protocols, version) in [(HTTP_2, Version::HTTP_2), (HTTP_1, Version::HTTP_11)] {
            let mut receiver = Receiver::tls(at, &certificate, protocols).await;
            let url = format!("https://{host}:{}/hook", receiver.address.port());
            let courier = Courier::open(&trusting).unwrap();
            for _ in 0..3 {
                let outcome = courier.deliver(record(&url, Some(b"{}"), &[("x-tenant", "t")])).await;
                assert_eq!(outcome, Outcome::Delivered, "{url}");
                let taken = receiver.taken.recv().await.unwrap();
                assert_eq!((taken.version, taken.header("x-tenant")), (version, "t"));
            }
            assert_eq!(receiver.connections(), 1);

            let unknown = deliver(&webhook(), &url).await;
            assert!(is_failed(&unknown), "{unknown:?}");
            let unknown = reason(unknown);
            assert!(unknown.contains("self-signed certificate"), "{unknown}");
            assert!(unknown.ends_with("webhook.ca_file adds an authority"), "{unknown}");
            assert!(receiver.taken.try_recv().is_err());
        }
    }
    let other = Certificate::of(&["other.example"]);
    let trusting = Webhook { authorities: vec![other.authority.clone()], ..webhook() };
    for (at, host) in [("127.0.0.1:0", "localhost"), ("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "[::1]")] {
        let mut receiver = Receiver::tls(at, &other, HTTP_2).await;
        let outcome = deliver(&trusting, &format!("https://{host}:{}/", receiver.address.port())).await;
        assert!(is_failed(&outcome), "{outcome:?}");
        let reason = reason(outcome);
        assert!(reason.contains("mismatch"), "{reason}");
        assert!(receiver.taken.try_recv().is_err());
    }
}

#[tokio::test]
async fn many_records_share_a_connection_of_http_2() {
    let certificate = Certificate::of(&["localhost"]);
    let mut receiver = Receiver::tls("127.0.0.1:0", &certificate, HTTP_2).await;
    let courier = Courier::open(&Webhook { authorities: vec![certificate.authority.clone()], ..webhook() }).unwrap();
    let url = format!("https://localhost:{}/", receiver.address.port());
    assert_eq!(courier.deliver(record(&url, None, &[])).await, Outcome::Delivered);
    let tries = (0..200).map(|n: u32| {
        let key = n.to_string();
        courier.deliver(record(&url, Some(key.as_bytes()), &[("idempotency_key", &key)]))
    });
    assert!(futures_util::future::join_all(tries).await.iter().all(|outcome| *outcome == Outcome::Delivered));
    receiver.taken.close();
    let mut keys = BTreeSet::new();
    while let Some(taken) = receiver.taken.recv().await {
        keys.insert(taken.header("idempotency-key").to_owned());
    }
    assert_eq!((keys.len(), receiver.connections()), (201, 1));
}

#[tokio::test]
async fn a_receiver_that_neither_reads_nor_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let hasty = Webhook { timeout: Duration::from_millis(300), ..webhook() };
    let courier = Courier::open(&hasty).unwrap();
    // The system takes the connections, nobody reads.
    for size in [2, 32 << 20] {
        let outcome = courier.deliver(record(&url, Some(&vec![b'a'; size]), &[])).await;
        assert_eq!(
            reason(outcome),
            format!("{} gave no answer within webhook.timeout, 300ms", url.trim_end_matches('/'))
        );
    }
}

#[tokio::test]
async fn an_answer_counts_whatever_becomes_of_its_body() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut open = Vec::new();
        for (head, rest) in
            [("Content-Length: 1000", ""), ("Transfer-Encoding: chunked", "zz\r\n"), ("X: y", "endless")]
        {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            assert!(stream.read(&mut request).await.unwrap() > 0);
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{rest}").as_bytes()).await.unwrap();
            open.push(stream);
        }
        std::future::pending::<()>().await;
    });
    let courier = Courier::open(&webhook()).unwrap();
    for _ in 0..3 {
        assert_eq!(courier.deliver(record(&url, Some(b"{}"), &[])).await, Outcome::Delivered);
    }
}

#[tokio::test]
async fn a_connection_that_the_receiver_closed_costs_one_more_try_at_most() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            if stream.read(&mut request).await.unwrap() > 0 {
                // It promises to keep the connection, and does not.
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
        }
    });
    let courier = Courier::open(&webhook()).unwrap();
    for _ in 0..10 {
        let outcome = courier.deliver(record(&url, Some(b"{}"), &[])).await;
        if is_failed(&outcome) {
            assert_eq!(courier.deliver(record(&url, Some(b"{}"), &[])).await, Outcome::Delivered);
        }
    }
}

#[tokio::test]
async fn faults_below_http_may_pass() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = deliver(&webhook(), &format!("http://{free}/secret-path")).await;
    assert!(is_failed(&refused), "{refused:?}");
    assert_eq!(reason(refused), format!("http://{free}: tcp connect error: Connection refused (os error 111)"));

    let receiver = Receiver::plain().await;
    let outcome = deliver(&webhook(), &receiver.url("/").replace("http", "https")).await;
    assert!(is_failed(&outcome), "{outcome:?}");

    let hasty = Webhook { timeout: Duration::from_secs(3), ..webhook() };
    let outcome = deliver(&hasty, "https://nowhere.invalid/").await;
    assert!(is_failed(&outcome), "{outcome:?}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await.unwrap();
        std::future::pending::<()>().await;
    });
    let outcome = deliver(&webhook(), &url).await;
    assert!(is_failed(&outcome), "{outcome:?}");
    assert!(!reason(outcome).contains("SSH"));
}
