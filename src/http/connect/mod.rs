//! The subset of Kafka Connect's REST interface that tools use, as a worker with one connector answers it: paths, shapes and
//! codes are those of Kafka Connect 4.1.1, distributed, with Debezium's PostgreSQL connector.
//!
//! What would make, change or drop a connector is refused: walpost has one, which its configuration makes.

mod connector;
mod entity;
mod loggers;

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, RawQuery, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get, post, put},
};
use serde_json::json;

pub use self::connector::Connector;
use self::entity::{
    Condition, ConnectorStatus, Info, Offset, Offsets, Partition, PartitionOffset, Plugin, Server, Task, TaskId,
    TaskStatus, Topics,
};
use super::{Answers, access::Allowed};
use crate::{
    control::Target,
    status::{self, Now},
};

/// Of the interface that is answered, by which tools decide what they may ask, and who answers it.
const VERSION: &str = concat!("4.1.1-walpost-", env!("CARGO_PKG_VERSION"));
/// Of the connector.
const CONNECTOR_VERSION: &str = env!("CARGO_PKG_VERSION");
/// As a worker says that was built without it.
const COMMIT: &str = "unknown";
const SOURCE: &str = "source";

/// An error as Kafka Connect writes it.
#[derive(Debug)]
pub(super) struct Refused {
    code: StatusCode,
    message: String,
}

impl Refused {
    pub(super) fn new(code: StatusCode, message: String) -> Refused {
        Refused { code, message }
    }

    fn not_found(message: String) -> Refused {
        Refused::new(StatusCode::NOT_FOUND, message)
    }

    /// What has no words of its own.
    fn bare(code: StatusCode) -> Refused {
        Refused::new(code, format!("HTTP {code}"))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = json!({"error_code": self.code.as_u16(), "message": self.message});
        (self.code, Json(body)).into_response()
    }
}

type Answer = Result<Response, Refused>;

pub(super) fn router() -> Router<Arc<Answers>> {
    let routes: [(&str, MethodRouter<Arc<Answers>>); 14] = [
        ("/connector-plugins", get(plugins)),
        ("/connectors", get(list).post(create)),
        ("/connectors/{name}", get(info)),
        ("/connectors/{name}/config", get(config)),
        ("/connectors/{name}/status", get(status)),
        ("/connectors/{name}/tasks", get(tasks)),
        ("/connectors/{name}/tasks/{task}/status", get(task_status)),
        ("/connectors/{name}/topics", get(topics)),
        ("/connectors/{name}/offsets", get(offsets)),
        ("/connectors/{name}/pause", put(pause)),
        ("/connectors/{name}/resume", put(resume)),
        ("/connectors/{name}/stop", put(stop)),
        ("/connectors/{name}/restart", post(restart)),
        ("/connectors/{name}/tasks/{task}/restart", post(restart_task)),
    ];
    let mut router = Router::new().route("/", get(super::root)).route("/connectors/{name}/{*other}", any(nothing));
    for (path, answers) in routes {
        // With a slash at the end it is the same.
        router = router.route(&format!("{path}/"), answers.clone()).route(path, answers);
    }
    router = router.merge(loggers::router());
    router.method_not_allowed_fallback(|| async { Refused::bare(StatusCode::METHOD_NOT_ALLOWED) })
}

/// `GET /` of a worker.
pub(super) fn server(answers: &Answers) -> Response {
    let now = answers.status.now();
    let kafka_cluster_id = now.kafka_cluster_id.as_deref();
    Json(Server { version: VERSION, commit: COMMIT, kafka_cluster_id }).into_response()
}

async fn nothing() -> Refused {
    Refused::bare(StatusCode::NOT_FOUND)
}

async fn plugins() -> Json<[Plugin<'static>; 1]> {
    Json([Plugin { class: connector::CLASS, kind: SOURCE, version: CONNECTOR_VERSION }])
}

async fn list(State(answers): State<Arc<Answers>>, RawQuery(query): RawQuery) -> Response {
    let connector = &answers.connector;
    let expansions = values(query.as_deref(), "expand");
    if expansions.is_empty() {
        return Json([&connector.name]).into_response();
    }
    let now = answers.status.now();
    let mut expanded = serde_json::Map::new();
    if expansions.contains(&"status") {
        expanded.insert("status".to_owned(), json!(connector_status(&answers, &now)));
    }
    if expansions.contains(&"info") {
        expanded.insert("info".to_owned(), json!(connector_info(&answers, &now)));
    }
    Json(BTreeMap::from([(&connector.name, expanded)])).into_response()
}

async fn create(State(answers): State<Arc<Answers>>) -> Refused {
    Refused::new(StatusCode::CONFLICT, format!("Connector {} already exists", answers.connector.name))
}

async fn info(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Answer {
    answers.known(&name)?;
    let now = answers.status.now();
    Ok(Json(connector_info(&answers, &now)).into_response())
}

async fn config(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Answer {
    answers.known(&name)?;
    Ok(Json(&answers.connector.config).into_response())
}

async fn status(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Answer {
    if name != answers.connector.name {
        return Err(Refused::not_found(format!("No status found for connector {name}")));
    }
    let now = answers.status.now();
    Ok(Json(connector_status(&answers, &now)).into_response())
}

async fn tasks(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Answer {
    answers.known(&name)?;
    let now = answers.status.now();
    let connector = &answers.connector;
    let task = has_task(&now).then(|| {
        let keys = connector.config.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        Task { id: task_id(connector), config: keys.chain([("task.class", connector::TASK_CLASS)]).collect() }
    });
    Ok(Json(Vec::from_iter(task)).into_response())
}

async fn task_status(State(answers): State<Arc<Answers>>, Path((name, task)): Path<(String, String)>) -> Answer {
    let task = number(&task)?;
    let now = answers.status.now();
    if name != answers.connector.name || task != 0 || !has_task(&now) {
        return Err(Refused::not_found(format!("No status found for task {name}-{task}")));
    }
    Ok(Json(the_task(&answers, &now)).into_response())
}

/// A worker knows no topics of a connector that it does not know.
async fn topics(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Response {
    let now = answers.status.now();
    let known = name == answers.connector.name;
    let topics = if known { now.delivered.iter().map(|(topic, _)| topic).collect() } else { Vec::new() };
    Json(BTreeMap::from([(name, Topics { topics })])).into_response()
}

async fn offsets(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Answer {
    answers.known(&name)?;
    let now = answers.status.now();
    let offset = now.confirmed.map(|confirmed| PartitionOffset {
        partition: Partition { server: &answers.connector.server },
        offset: Offset {
            lsn_proc: confirmed.0,
            lsn_commit: confirmed.0,
            lsn: confirmed.0,
            ts_usec: now.last_commit.map(|commit| commit.unix_us()),
        },
    });
    Ok(Json(Offsets { offsets: Vec::from_iter(offset) }).into_response())
}

async fn pause(allowed: Allowed, answers: State<Arc<Answers>>, name: Path<String>) -> Result<StatusCode, Refused> {
    aim(allowed, &answers, &name, Target::Paused).map(|()| StatusCode::ACCEPTED)
}

async fn resume(allowed: Allowed, answers: State<Arc<Answers>>, name: Path<String>) -> Result<StatusCode, Refused> {
    aim(allowed, &answers, &name, Target::Running).map(|()| StatusCode::ACCEPTED)
}

async fn stop(allowed: Allowed, answers: State<Arc<Answers>>, name: Path<String>) -> Result<StatusCode, Refused> {
    aim(allowed, &answers, &name, Target::Stopped).map(|()| StatusCode::NO_CONTENT)
}

fn aim(_: Allowed, answers: &Answers, name: &str, target: Target) -> Result<(), Refused> {
    if name != answers.connector.name {
        return Err(Refused::not_found(format!("Unknown connector {name}")));
    }
    answers.control.set(target);
    Ok(())
}

/// A worker restarts the connector alone unless told to include its tasks; here they are one, which is restarted either
/// way.
async fn restart(
    _: Allowed,
    State(answers): State<Arc<Answers>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    answers.restartable(&name)?;
    let is_set = |option| values(query.as_deref(), option).contains(&"true");
    let only_failed = is_set("onlyFailed");
    // What has failed for good has ended the process.
    if !only_failed {
        answers.control.restart();
    }
    if !only_failed && !is_set("includeTasks") {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let now = answers.status.now();
    let mut status = connector_status(&answers, &now);
    if !only_failed {
        let conditions = status.tasks.iter_mut().map(|task| &mut task.condition);
        conditions.chain([&mut status.connector]).for_each(|condition| condition.state = entity::State::Restarting);
    }
    Ok((StatusCode::ACCEPTED, Json(status)).into_response())
}

async fn restart_task(
    _: Allowed,
    State(answers): State<Arc<Answers>>,
    Path((name, task)): Path<(String, String)>,
) -> Result<StatusCode, Refused> {
    let task = number(&task)?;
    answers.restartable(&name)?;
    if task != 0 || !has_task(&answers.status.now()) {
        return Err(Refused::not_found(format!("Unknown task: {name}-{task}")));
    }
    answers.control.restart();
    Ok(StatusCode::NO_CONTENT)
}

impl Answers {
    fn known(&self, name: &str) -> Result<(), Refused> {
        match name == self.connector.name {
            true => Ok(()),
            false => Err(Refused::not_found(format!("Connector {name} not found"))),
        }
    }

    fn restartable(&self, name: &str) -> Result<(), Refused> {
        match name == self.connector.name {
            true => Ok(()),
            false => Err(Refused::not_found(format!("Unknown connector: {name}"))),
        }
    }
}

fn connector_info<'a>(answers: &'a Answers, now: &Now) -> Info<'a> {
    let Answers { connector, .. } = answers;
    let tasks = has_task(now).then(|| task_id(connector));
    Info { name: &connector.name, config: &connector.config, tasks: Vec::from_iter(tasks), kind: SOURCE }
}

fn connector_status<'a>(answers: &'a Answers, now: &'a Now) -> ConnectorStatus<'a> {
    let Answers { connector, control, .. } = answers;
    let state = match control.target() {
        Target::Running => entity::State::Running,
        Target::Paused => entity::State::Paused,
        Target::Stopped => entity::State::Stopped,
    };
    ConnectorStatus {
        name: &connector.name,
        connector: condition(connector, state, None),
        tasks: Vec::from_iter(has_task(now).then(|| the_task(answers, now))),
        kind: SOURCE,
    }
}

/// A stream that is stopped has no task.
fn has_task(now: &Now) -> bool {
    now.state != status::State::Stopped
}

fn task_id(connector: &Connector) -> TaskId<'_> {
    TaskId { connector: &connector.name, task: 0 }
}

fn the_task<'a>(answers: &'a Answers, now: &'a Now) -> TaskStatus<'a> {
    let reason = now.reason.as_deref();
    let (state, trace) = match now.state {
        status::State::Streaming | status::State::Preparing | status::State::Stopping => (entity::State::Running, None),
        status::State::Paused => (entity::State::Paused, None),
        status::State::Connecting | status::State::SlotLost => (entity::State::Restarting, reason),
        status::State::Standby | status::State::Stopped => (entity::State::Unassigned, reason),
    };
    TaskStatus { id: 0, condition: condition(&answers.connector, state, trace) }
}

fn condition<'a>(connector: &'a Connector, state: entity::State, trace: Option<&'a str>) -> Condition<'a> {
    Condition { state, worker_id: &connector.worker, version: CONNECTOR_VERSION, trace }
}

/// A task's number; what is none is no path of the interface.
fn number(task: &str) -> Result<u32, Refused> {
    task.parse().map_err(|_| Refused::bare(StatusCode::NOT_FOUND))
}

/// The values of an option, given more than once or as a list.
fn values<'q>(query: Option<&'q str>, option: &str) -> Vec<&'q str> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| *name == option).flat_map(|(_, value)| value.split(',')).collect()
}

#[cfg(test)]
mod tests;
