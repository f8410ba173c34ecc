//! The answers beside those of a real worker.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    control::Target,
    http::tests::{answers, ask, call, serving, streaming},
    pipeline::PgTime,
    status::{Now, State},
};

#[derive(Deserialize)]
struct Recorded {
    answers: Vec<Call>,
}

/// A call, and what the worker answered.
#[derive(Deserialize)]
struct Call {
    when: String,
    method: String,
    path: String,
    code: u16,
    body: Value,
}

/// Calls that are answered in another way.
const DIFFERS: [(&str, &str, &str); 2] = [
    // The worker cannot tell that the task is none, for it has no leader to ask.
    ("stopped", "POST", "/connectors/outbox/tasks/0/restart"),
    // Its pause of a stopped connector starts nothing. Here it takes the slot, and reads nothing.
    ("stopped", "PUT", "/connectors/outbox/pause"),
];

/// Members whose values are each worker's own.
const OWN: [&str; 8] =
    ["version", "commit", "kafka_cluster_id", "worker_id", "lsn", "lsn_proc", "lsn_commit", "ts_usec"];

fn recorded() -> Vec<Call> {
    let text = include_str!("../../../tests/connect/worker.json");
    serde_json::from_str::<Recorded>(text).unwrap().answers
}

/// What the status is when a connector is so, and what was ordered.
fn moment(when: &str) -> (Now, Target) {
    let mut now = streaming();
    now.kafka_cluster_id = Some("cluster".to_owned());
    now.delivered.add("outbox.event.order", 1);
    now.last_commit = Some(PgTime::from_unix_us(1));
    let (state, target) = match when {
        "running, nothing sent" => {
            (now.confirmed, now.delivered) = (None, Default::default());
            (State::Streaming, Target::Running)
        }
        "running" | "pausing" | "stopping" | "resuming from stopped" => (State::Streaming, Target::Running),
        "paused" | "resuming" => (State::Paused, Target::Paused),
        "stopped" => (State::Stopped, Target::Stopped),
        other => panic!("{other}"),
    };
    now.state = state;
    (now, target)
}

/// The same members, values and types, but for what is each worker's own. Of offsets some may not be known, and the
/// members of a configuration are the connector's.
fn assert_like(path: &str, expected: &Value, actual: &Value) {
    let name = path.rsplit('.').next().unwrap_or_default();
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) if name == "config" => {
            assert!(!actual.is_empty() && actual.values().all(Value::is_string), "{path}: {expected:?} {actual:?}");
        }
        (Value::Object(expected), Value::Object(actual)) => {
            for (name, actual) in actual {
                let Some(expected) = expected.get(name) else {
                    // Which the worker leaves out until the first transaction is whole.
                    assert_eq!(name, "lsn_commit", "{path} has too much");
                    continue;
                };
                assert_like(&format!("{path}.{name}"), expected, actual);
            }
            let known =
                |name: &&String| !(path.ends_with(".offset") && ["txId", "messageType"].contains(&name.as_str()));
            let missing: Vec<_> = expected.keys().filter(|name| !actual.contains_key(*name)).filter(known).collect();
            assert!(missing.is_empty(), "{path} lacks {missing:?}");
        }
        (Value::Array(expected), Value::Array(actual)) => {
            assert_eq!(expected.len(), actual.len(), "{path}: {expected:?} {actual:?}");
            expected.iter().zip(actual).for_each(|(expected, actual)| assert_like(path, expected, actual));
        }
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) if OWN.contains(&name) => {}
        (expected, actual) => assert_eq!(expected, actual, "{path}"),
    }
}

#[tokio::test]
async fn each_call_is_answered_as_a_worker_answers_it() {
    let mut compared = 0;
    for Call { when, method, path, code, body: expected } in recorded() {
        if DIFFERS.contains(&(&when, &method, &path)) {
            continue;
        }
        // The state after such a pause.
        if expected["connector"]["state"] == "PAUSED" && when == "stopped" {
            continue;
        }
        let (now, target) = moment(&when);
        let answers = answers(now);
        answers.control.set(target);
        let address = serving(answers).await;
        let (answered, head, body) = ask(address, &method, &path, "Content-Length: 0\r\n").await;
        let call = format!("{when}: {method} {path}");
        assert_eq!(answered, code, "{call}: {body}");
        if expected.is_null() {
            assert_eq!(body, "", "{call}");
        } else {
            assert!(head.contains("content-type: application/json"), "{call}: {head}");
            let root = if path.ends_with("/config") && code == 200 { "config" } else { "" };
            assert_like(&format!("{call}: .{root}"), &expected, &serde_json::from_str(&body).unwrap());
        }
        compared += 1;
    }
    assert!(compared > 70, "{compared}");
}

#[tokio::test]
async fn what_holds_a_task_up_is_its_trace() {
    for (state, word, target) in [
        (State::Connecting, "RESTARTING", "RUNNING"),
        (State::SlotLost, "RESTARTING", "RUNNING"),
        (State::Standby, "UNASSIGNED", "RUNNING"),
    ] {
        let mut now = streaming();
        (now.state, now.reason) = (state, Some("why".to_owned()));
        let (_, _, body) = ask(serving(answers(now)).await, "GET", "/connectors/outbox/status", "").await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["connector"]["state"], target);
        assert_eq!((&body["tasks"][0]["state"], &body["tasks"][0]["trace"]), (&word.into(), &"why".into()));
    }
}

#[tokio::test]
async fn orders_are_given_as_asked() {
    let answers = answers(streaming());
    let control = answers.control.clone();
    let address = serving(answers).await;
    for (method, path, target, restarts) in [
        ("PUT", "pause", Target::Paused, 0),
        ("POST", "restart", Target::Paused, 1),
        ("PUT", "stop", Target::Stopped, 1),
        ("PUT", "resume", Target::Running, 1),
        ("POST", "tasks/0/restart", Target::Running, 2),
        ("POST", "restart?includeTasks=true&onlyFailed=true", Target::Running, 2),
        ("POST", "restart?includeTasks=true", Target::Running, 3),
    ] {
        let (code, ..) = ask(address, method, &format!("/connectors/outbox/{path}"), "Content-Length: 0\r\n").await;
        assert!((200..300).contains(&code), "{path}: {code}");
        let orders = *control.orders().borrow();
        assert_eq!((orders.target, orders.restarts), (target, restarts), "{path}");
    }
    // A page in a browser may be a stranger's.
    let (code, ..) =
        ask(address, "POST", "/connectors/outbox/restart", "Origin: http://x\r\nContent-Length: 0\r\n").await;
    assert_eq!((code, control.orders().borrow().restarts), (403, 3));
}

#[tokio::test]
async fn log_levels_are_told_and_taken_as_a_worker_does() {
    let address = serving(answers(streaming())).await;
    let put = async |name: &str, body: &str| {
        let header = format!("Content-Length: {}\r\n", body.len());
        call(address, "PUT", &format!("/admin/loggers/{name}"), &header, body).await
    };
    let get = async |path: &str| {
        let (code, _, body) = ask(address, "GET", path, "").await;
        (code, body)
    };
    assert_eq!(get("/admin/loggers").await, (200, r#"{"root":{"level":"INFO","last_modified":null}}"#.to_owned()));
    let (code, body) = put("librdkafka", r#"{"level": "DEBUG"}"#).await;
    assert_eq!((code, &*body), (200, r#"["librdkafka"]"#));
    let debug = r#"{"level":"DEBUG","last_modified":103000}"#;
    assert_eq!(get("/admin/loggers/librdkafka/").await, (200, debug.to_owned()));
    assert_eq!(put("root", r#"{"level": "ALL"}"#).await, (200, r#"["root"]"#.to_owned()));
    assert_eq!(get("/admin/loggers/librdkafka").await.0, 404);
    for (name, body, code) in [
        ("root", r#"{"level": "LOUD"}"#, 400),
        ("root", "{}", 400),
        ("a,b", r#"{"level": "INFO"}"#, 400),
        ("root", &format!(r#"{{"level": "{}"}}"#, "x".repeat(5000)), 413),
    ] {
        assert_eq!(put(name, body).await.0, code, "{name} {body}");
    }
    assert_eq!(get("/admin/loggers/root").await.1, r#"{"level":"TRACE","last_modified":103000}"#);
}

#[tokio::test]
async fn a_log_level_is_as_guarded_as_a_pause() {
    let mut answers = answers(streaming());
    answers.access = crate::http::Access::of(([10, 0, 0, 1], 9464).into(), None);
    let address = serving(answers).await;
    let body = r#"{"level": "DEBUG"}"#;
    let header = format!("Content-Length: {}\r\n", body.len());
    assert_eq!(call(address, "PUT", "/admin/loggers/root", &header, body).await.0, 403);
    assert_eq!(ask(address, "GET", "/admin/loggers/root", "").await.0, 200);
}
