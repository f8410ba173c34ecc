//! An HTTP server that keeps what is posted to it, and answers as it is told.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, Uri, response::Builder},
    response::Response,
};
use tokio::sync::{oneshot, watch};

use crate::support::scratch;

/// One request, in the order in which answers were decided.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) at: Instant,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// What it is answered.
    pub(super) status: u16,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no header {name} in {self:?}")).1
    }
}

/// Status, headers, and whether it is given at all: a request without an answer hangs.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) hangs: bool,
}

impl Answer {
    pub(super) fn status(status: u16) -> Answer {
        Answer { status, headers: Vec::new(), hangs: false }
    }
}

type Rule = Box<dyn FnMut(&Request) -> Answer + Send>;

struct Shared {
    requests: Mutex<Vec<Request>>,
    rule: Mutex<Rule>,
    /// Nothing is answered meanwhile.
    paused: watch::Sender<bool>,
}

/// A server on a port of its own.
pub(super) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    until_stopped: Mutex<Option<(oneshot::Sender<()>, thread::JoinHandle<()>)>>,
}

impl Server {
    /// Answers 204, until it is [told](Server::answers) otherwise.
    pub(super) fn start() -> Server {
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            rule: Mutex::new(Box::new(|_| Answer::status(204))),
            paused: watch::Sender::new(false),
        });
        let address = SocketAddr::from(([127, 0, 0, 1], scratch::port()));
        let server = Server { address, shared, until_stopped: Mutex::default() };
        server.start_again();
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn answers(&self, rule: impl FnMut(&Request) -> Answer + Send + 'static) {
        *lock(&self.shared.rule) = Box::new(rule);
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        lock(&self.shared.requests).clone()
    }

    pub(super) fn pause(&self, paused: bool) {
        self.shared.paused.send_replace(paused);
    }

    /// Ends it with all its connections.
    pub(super) fn stop(&self) {
        if let Some((until_stopped, thread)) = lock(&self.until_stopped).take() {
            drop(until_stopped);
            thread.join().expect("it does not panic");
        }
    }

    pub(super) fn start_again(&self) {
        let listener = TcpListener::bind(self.address).expect("the port is ours");
        listener.set_nonblocking(true).expect("a listener can be");
        let (until_stopped, stopped) = oneshot::channel::<()>();
        let app = Router::new().fallback(take).with_state(Arc::clone(&self.shared));
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
                tokio::select! {
                    served = axum::serve(listener, app).into_future() => served.expect("it serves"),
                    _ = stopped => {}
                }
            });
        });
        *lock(&self.until_stopped) = Some((until_stopped, thread));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn take(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let mut paused = shared.paused.subscribe();
    paused.wait_for(|paused| !paused).await.expect("its sender is shared");
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut request = Request {
        at: Instant::now(),
        path: uri.to_string(),
        headers: headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect(),
        body: body.to_vec(),
        status: 0,
    };
    let answer = {
        let mut requests = lock(&shared.requests);
        let answer = lock(&shared.rule)(&request);
        request.status = answer.status;
        requests.push(request);
        answer
    };
    if answer.hangs {
        std::future::pending::<()>().await;
    }
    let status = StatusCode::from_u16(answer.status).expect("a status");
    let with = |builder: Builder, (name, value): &(&str, String)| builder.header(*name, value);
    let builder = answer.headers.iter().fold(Response::builder().status(status), with);
    builder.body(axum::body::Body::empty()).expect("it is sound")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
