//! The routes over real sockets, and what the tests beside share.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::{limit::CONNECTIONS_MAX, rate::Bucket, *};
use crate::{
    control::Target,
    pipeline::Lsn,
    status::{Now, ServerSample, State},
};

/// Seconds after 1970.
pub(super) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

pub(super) fn facts() -> Facts {
    Facts {
        database: "app".to_owned(),
        slot: "walpost".to_owned(),
        publication: "events".to_owned(),
        turn_max: Duration::from_secs(60),
    }
}

/// A stream of which all is known at second 100.
pub(super) fn streaming() -> Now {
    let status = Status::new();
    status.enter(State::Streaming, None);
    let mut now = status.now().clone();
    now.since = at(100);
    now.turn(None, at(100));
    now.confirmed = Some(Lsn(1_000));
    now.server = Some(ServerSample {
        taken: at(100),
        wal: Lsn(1_500),
        retained_bytes: 4_096,
        safe_bytes: None,
        lost_in: None,
        wal_status: None,
        bookmarks: Vec::new(),
    });
    now
}

/// Of a worker that runs connector `outbox`, open to programs of this host.
pub(super) fn answers(now: Now) -> Answers {
    let status = Arc::new(Status::new());
    *status.now() = now;
    let config = [("name", "outbox"), ("slot.name", "outbox")];
    let (loggers, filter) = Loggers::start("info").unwrap();
    // Levels are of a filter that lives.
    std::mem::forget(filter);
    Answers {
        status,
        control: Control::new(),
        facts: facts(),
        connector: Connector {
            name: "outbox".to_owned(),
            config: config.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            server: "dbz".to_owned(),
            worker: "127.0.0.1:9464".to_owned(),
        },
        loggers,
        access: Access::of(([127, 0, 0, 1], 9464).into(), None),
        letters: Letters::nowhere(),
        history: History::default(),
        guesses: guesses(),
        costly: costly(),
        asked: asked(),
        clock: || at(103),
    }
}

/// Answers at second 103 until the test ends.
async fn server(now: Now) -> SocketAddr {
    serving(answers(now)).await
}

pub(super) async fn serving(answers: Answers) -> SocketAddr {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router(Arc::new(answers));
    tokio::spawn(serve::serve(Limited::new(listener, Duration::from_millis(100)), router));
    address
}

/// Status code, head and body.
pub(super) async fn ask(address: SocketAddr, method: &str, path: &str, header: &str) -> (u16, String, String) {
    exchange(address, &format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"))
        .await
}

/// With a body. Status code and body.
pub(super) async fn call(address: SocketAddr, method: &str, path: &str, header: &str, body: &str) -> (u16, String) {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
    let (code, _, answer) = exchange(address, &(head + body)).await;
    (code, answer)
}

async fn exchange(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_lowercase(), body.to_owned())
}

#[tokio::test]
async fn every_path_answers() {
    let address = server(streaming()).await;
    let (code, head, body) = ask(address, "GET", "/metrics", "").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nwalpost_lag_bytes 500\n"), "{body}");
    let (_, head, body) = ask(address, "GET", "/metrics", "Accept: application/openmetrics-text\r\n").await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.ends_with("# EOF\n"));
    for path in ["/healthz", "/readyz"] {
        let (code, head, body) = ask(address, "GET", path, "").await;
        assert_eq!((code, &*body), (200, r#"{"ok":true,"state":"streaming","reasons":[]}"#), "{path}");
        assert!(head.contains("content-type: application/json"), "{head}");
    }
    let (code, _, body) = ask(address, "GET", "/status", "").await;
    assert_eq!(code, 200);
    assert!(body.contains(r#""confirmed_lsn":"0/3E8""#), "{body}");
}

#[tokio::test]
async fn what_is_not_ready_is_503_with_reasons() {
    let mut now = streaming();
    (now.state, now.reason) = (State::Connecting, Some("connection refused".to_owned()));
    let address = server(now).await;
    let (code, _, body) = ask(address, "GET", "/readyz", "").await;
    assert_eq!(code, 503);
    assert!(body.contains("connection refused"), "{body}");
    assert_eq!(ask(address, "GET", "/healthz", "").await.0, 200);
}

#[tokio::test]
async fn other_methods_and_paths_are_refused() {
    let address = server(streaming()).await;
    let (code, head, _) = ask(address, "POST", "/metrics", "Content-Length: 0\r\n").await;
    assert_eq!(code, 405);
    assert!(head.contains("allow: get,head"), "{head}");
    let (code, _, body) = ask(address, "GET", "/admin", "").await;
    assert_eq!(code, 404);
    assert!(body.contains("/metrics"), "{body}");
}

#[tokio::test]
async fn a_browser_gets_a_page_and_a_tool_the_workers_version() {
    let mut now = streaming();
    now.delivered.add("orders", 2);
    let address = server(now).await;
    let (code, head, body) = ask(address, "GET", "/", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n").await;
    assert_eq!(code, 200);
    let policy =
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';";
    assert!(head.contains("content-type: text/html") && head.contains(policy), "{head}");
    assert!(body.contains("<noscript>") && !body.contains("orders"), "what changes is not in it: {body}");
    for (path, kind) in [("/page.css", "text/css"), ("/page.js", "text/javascript")] {
        let (code, head, _) = ask(address, "GET", path, "").await;
        assert!(code == 200 && head.contains(&format!("content-type: {kind}; charset=utf-8")), "{head}");
        assert!(body.contains(path), "the page loads it");
    }
    for accept in ["", "Accept: application/json\r\n", "Accept: */*\r\n"] {
        let (code, head, body) = ask(address, "GET", "/", accept).await;
        assert!(code == 200 && head.contains("content-type: application/json"), "{head}");
        assert!(body.starts_with(r#"{"version":"4.1.1-walpost-"#), "{body}");
    }
}

#[tokio::test]
async fn changing_calls_need_the_token_and_reading_ones_do_not() {
    let answers =
        Answers { access: Access::of(([127, 0, 0, 1], 9464).into(), Some("s3cret".into())), ..answers(streaming()) };
    let control = answers.control.clone();
    let address = serving(answers).await;
    for (method, path) in [
        ("PUT", "/connectors/outbox/pause"),
        ("PUT", "/connectors/outbox/resume"),
        ("PUT", "/connectors/outbox/stop"),
        ("POST", "/connectors/outbox/restart"),
        ("POST", "/connectors/outbox/tasks/0/restart"),
    ] {
        let (code, head, body) = ask(address, method, path, "Content-Length: 0\r\n").await;
        assert!(code == 401 && head.contains("www-authenticate: bearer"), "{path}: {code} {head}");
        assert!(body.starts_with(r#"{"error_code":401,"message":"#) && !body.contains("s3cret"), "{body}");
    }
    let orders = *control.orders().borrow();
    assert_eq!((orders.target, orders.restarts), (Target::Running, 0), "nothing was ordered");
    let token = "Authorization: Bearer s3cret\r\nContent-Length: 0\r\n";
    assert_eq!(ask(address, "PUT", "/connectors/outbox/pause", token).await.0, 202);
    assert_eq!(control.target(), Target::Paused);
    assert_eq!(ask(address, "GET", "/connectors/outbox/config", "").await.0, 200);
}

#[tokio::test]
async fn pages_of_other_origins_are_kept_out() {
    let address = server(streaming()).await;
    let own = "Origin: http://localhost\r\n";
    for (path, header, expected) in [
        ("/status", "Sec-Fetch-Site: same-origin\r\n", 200),
        ("/status", "Sec-Fetch-Site: none\r\n", 200),
        ("/status", own, 200),
        ("/status", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n", 403),
        ("/status", "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n", 403),
        ("/status", "Origin: http://evil.example\r\n", 403),
        ("/status", "Origin: null\r\n", 403),
        ("/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 200),
        ("/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", 403),
        ("/status", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 403),
    ] {
        let (code, head, body) = ask(address, "GET", path, header).await;
        assert_eq!(code, expected, "{path} {header}: {body}");
        for own in ["x-content-type-options: nosniff", "cross-origin-resource-policy: same-origin", "no-store"] {
            assert!(head.contains(own), "{head}");
        }
        assert!(!head.contains("access-control") && head.contains("frame-ancestors 'none'"), "{head}");
    }
    for (host, expected) in [("127.0.0.1:9464", 200), ("evil.example", 421), ("evil.example:9464", 421)] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{host}: {answer}");
    }
    // Elsewhere names are others' to give.
    let elsewhere = Access::of(([0, 0, 0, 0], 9464).into(), None);
    let address = serving(Answers { access: elsewhere, ..answers(streaming()) }).await;
    assert_eq!(ask(address, "GET", "/status", "").await.0, 200);
    let (code, _, body) = ask(address, "GET", "/records", "").await;
    assert!(code == 403 && body.contains("http.token_file"), "{body}");
}

#[tokio::test]
async fn requests_have_bounds() {
    let answers =
        Answers { access: Access::of(([127, 0, 0, 1], 9464).into(), Some("s3cret".into())), ..answers(streaming()) };
    let address = serving(answers).await;
    assert_eq!(ask(address, "GET", &format!("/status?{}", "x".repeat(3_000)), "").await.0, 414);
    assert_eq!(ask(address, "GET", "/status", &format!("X: {}\r\n", "x".repeat(20_000))).await.0, 431);
    assert_eq!(ask(address, "GET", "/status", &"X: y\r\n".repeat(70)).await.0, 431);
    let json = "Authorization: Bearer s3cret\r\nContent-Type: application/json\r\n";
    let large = format!("{json}Content-Length: {}\r\n", BODY_MAX + 1);
    assert_eq!(call(address, "POST", "/dead-letters/replay", &large, &"x".repeat(BODY_MAX + 1)).await.0, 413);
    let small = format!("{json}Content-Length: 2\r\n");
    assert_eq!(call(address, "POST", "/dead-letters/replay", &small, "{}").await.0, 400);
}

#[tokio::test]
async fn tokens_cannot_be_guessed_at_speed() {
    let access = Access::of(([127, 0, 0, 1], 9464).into(), Some("s3cret".into()));
    let guesses = Bucket::new(10, Duration::from_secs(3600));
    let address = serving(Answers { access, guesses, ..answers(streaming()) }).await;
    let pause = |token: &str| format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
    let mut codes = Vec::new();
    for guess in 0..12 {
        codes.push(ask(address, "PUT", "/connectors/outbox/pause", &pause(&guess.to_string())).await.0);
    }
    assert!(codes.starts_with(&[401; 10]) && codes.ends_with(&[429]), "{codes:?}");
    let (code, head, _) = ask(address, "PUT", "/connectors/outbox/pause", &pause("s3cret")).await;
    assert!(code == 429 && head.contains("retry-after: 2"), "the right one tells nothing either: {head}");
}

#[tokio::test]
async fn dead_letters_are_not_asked_for_at_speed() {
    let costly = Bucket::new(2, Duration::from_secs(3600));
    let address = serving(Answers { costly, ..answers(streaming()) }).await;
    let mut codes = Vec::new();
    for _ in 0..3 {
        codes.push(ask(address, "GET", "/dead-letters", "").await.0);
    }
    assert_eq!(codes, [503, 503, 429], "there is no database");
}

#[tokio::test]
async fn whoever_asks_without_end_takes_no_more_than_a_share_and_probes_are_answered() {
    let asked = Bucket::new(3, Duration::from_secs(3600));
    let address = serving(Answers { asked, ..answers(streaming()) }).await;
    let mut codes = Vec::new();
    for path in ["/status", "/metrics", "/nowhere", "/status", "/metrics", "/healthz", "/readyz"] {
        codes.push(ask(address, "GET", path, "").await.0);
    }
    assert_eq!(codes, [200, 200, 404, 429, 429, 200, 200]);
}

#[tokio::test]
async fn a_head_that_comes_in_drops_has_an_end() {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router(Arc::new(answers(streaming())));
    tokio::spawn(async move {
        let mut limited = Limited::new(listener, Duration::from_secs(60));
        serve::serve_within(&mut limited, router, Duration::from_millis(300)).await
    });
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /status HTTP/1.1\r\n").await.unwrap();
    let begun = Instant::now();
    while stream.write_all(b"X").await.is_ok() && begun.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "a drop every 20 ms kept it open");
}

#[tokio::test]
async fn silent_connections_keep_others_out_for_a_moment_only() {
    let address = server(streaming()).await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let asked = Instant::now();
    assert_eq!(ask(address, "GET", "/healthz", "").await.0, 200);
    assert!(asked.elapsed() >= Duration::from_millis(50), "one more than there are seats was let in");
}

#[tokio::test]
async fn an_address_in_use_is_named_with_the_key() {
    let taken = listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = taken.local_addr().unwrap();
    let error = listen(address).await.unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("http.listen"), "{error}");
}
