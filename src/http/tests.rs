//! The routes over real sockets, and what the tests beside share.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::{limit::CONNECTIONS_MAX, *};
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
        access: Access::Loopback,
        loggers,
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
    let served = axum::serve(Limited::new(listener, Duration::from_millis(100)), router(answers));
    tokio::spawn(async move { served.await.unwrap() });
    address
}

/// Status code, head and body.
pub(super) async fn ask(address: SocketAddr, method: &str, path: &str, header: &str) -> (u16, String, String) {
    exchange(address, &format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{header}\r\n")).await
}

/// With a body. Status code and body.
pub(super) async fn call(address: SocketAddr, method: &str, path: &str, header: &str, body: &str) -> (u16, String) {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{header}\r\n");
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
    now.delivered.add("a<b", 2);
    let address = server(now).await;
    let (code, head, body) = ask(address, "GET", "/", "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n").await;
    assert_eq!(code, 200);
    assert!(head.contains("content-type: text/html") && head.contains("content-security-policy: default-src 'none'"));
    assert!(body.contains("<td>streaming") && body.contains("2 to a&lt;b"), "{body}");
    for accept in ["", "Accept: application/json\r\n", "Accept: */*\r\n"] {
        let (code, head, body) = ask(address, "GET", "/", accept).await;
        assert!(code == 200 && head.contains("content-type: application/json"), "{head}");
        assert!(body.starts_with(r#"{"version":"4.1.1-walpost-"#), "{body}");
    }
}

#[tokio::test]
async fn changing_calls_need_the_token_and_reading_ones_do_not() {
    let answers = Answers { access: Access::Token("s3cret".into()), ..answers(streaming()) };
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
