//! The levels of the logs, as a worker of Kafka Connect tells and takes them.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};

use super::{Answer, Refused};
use crate::{
    http::{Answers, access::Allowed},
    loggers::{Level, ROOT},
};

/// Of a body with a level.
const BODY_BYTES_MAX: usize = 4096;

/// A logger, as it is told of.
#[derive(Debug, Serialize)]
struct Logger {
    level: String,
    /// Milliseconds since 1970.
    last_modified: Option<u128>,
}

/// What is asked for; a worker ignores other members too.
#[derive(Debug, Deserialize)]
struct Wanted {
    level: String,
}

pub(super) fn router() -> Router<Arc<Answers>> {
    let (all, one) = (get(all), get(one).put(set).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)));
    Router::new()
        .route("/admin/loggers", all.clone())
        .route("/admin/loggers/", all)
        .route("/admin/loggers/{name}", one.clone())
        .route("/admin/loggers/{name}/", one)
}

impl From<Level> for Logger {
    fn from(Level { text, modified }: Level) -> Logger {
        let plain = text.chars().all(|c| c.is_ascii_alphabetic());
        let since_1970 = modified.and_then(|at: SystemTime| at.duration_since(UNIX_EPOCH).ok());
        Logger {
            level: if plain { text.to_ascii_uppercase() } else { text },
            last_modified: since_1970.map(|since| since.as_millis()),
        }
    }
}

async fn all(State(answers): State<Arc<Answers>>) -> Json<BTreeMap<String, Logger>> {
    Json(answers.loggers.all().into_iter().map(|(name, level)| (name, level.into())).collect())
}

async fn one(State(answers): State<Arc<Answers>>, Path(name): Path<String>) -> Answer {
    match answers.loggers.all().remove(&name) {
        Some(level) => Ok(Json(Logger::from(level)).into_response()),
        None => Err(Refused::not_found(format!("Logger {name} not found."))),
    }
}

/// Answers with the loggers whose level it changed.
async fn set(
    _: Allowed,
    State(answers): State<Arc<Answers>>,
    Path(name): Path<String>,
    body: Bytes,
) -> Result<Response, Refused> {
    let refused = |message: String| Refused::new(StatusCode::BAD_REQUEST, message);
    let Wanted { level } =
        serde_json::from_slice(&body).map_err(|_| refused(r#"the body must be {"level": "…"}"#.to_owned()))?;
    // Levels of Java's loggers that have another name here.
    let level = match level.to_ascii_uppercase().as_str() {
        "FATAL" => "error",
        "ALL" => "trace",
        _ => &level,
    };
    answers.loggers.set(&name, level, (answers.clock)()).map_err(|error| refused(error.to_string()))?;
    tracing::info!(logger = name, level, "the log level is changed");
    let changed = if name == ROOT { answers.loggers.all().into_keys().collect() } else { vec![name] };
    Ok(Json(changed).into_response())
}
