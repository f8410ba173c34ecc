//! Dead letters over HTTP: `GET /dead-letters` a page at a time, and what people decide of them.
//!
//! Letters are in the database, so each call connects to it, one call at a time, within a few seconds. What a call that was
//! late asked for the server may still do, for as long as it may work on a statement. Payloads, keys and headers of records
//! are never told.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{FromRequestParts, RawQuery, State as Shared},
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::Response,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use url::form_urlencoded;

use super::{
    Answers,
    access::{Allowed, Reader},
    connect::Refused,
    rate,
    report::rfc3339,
};
use crate::{
    chain::Chain,
    config::Config,
    postgres::{
        self,
        conninfo::ConnInfo,
        dead_letter::{Aggregate, Choice, Desk, LETTERS_MAX, Line, State},
    },
    printable::address,
    setup::names,
};

/// How long a call may wait for its turn and work.
const PATIENCE: Duration = Duration::from_secs(10);
/// Letters of a page that does not say how many.
const LETTERS: u32 = 50;
/// Most rows that one call names.
const ROWS_MAX: usize = 1_000;
const OPEN: [State; 2] = [State::Dead, State::Parked];

/// Where the letters are.
#[derive(Debug)]
pub(super) struct Letters {
    database: ConnInfo,
    slot: String,
    schema: String,
    turn: Semaphore,
}

impl Letters {
    pub(super) fn of(config: &Config) -> Letters {
        Letters {
            database: config.database.clone(),
            slot: config.slot.clone(),
            schema: names::home(config).to_owned(),
            turn: Semaphore::new(1),
        }
    }

    /// A database that is never reached.
    #[cfg(test)]
    pub(super) fn nowhere() -> Letters {
        let database = ConnInfo::parse("postgres://walpost@127.0.0.1:1/none?sslmode=disable", |_| None).unwrap();
        Letters { database, slot: "walpost".to_owned(), schema: "walpost".to_owned(), turn: Semaphore::new(1) }
    }

    /// Does `work` at the desk, when it is its turn. None: there is no table.
    async fn at_desk<T>(
        &self,
        to_mark: bool,
        work: impl AsyncFnOnce(&Desk) -> Result<T, postgres::Error>,
    ) -> Result<Option<T>, Refused> {
        let unavailable = |message: String| Refused::new(StatusCode::SERVICE_UNAVAILABLE, message);
        let failed = |error: postgres::Error| unavailable(format!("dead letters: {}", Chain(&error)));
        let done = async {
            let _turn = self.turn.acquire().await.expect("it is never closed");
            let desk = Desk::connect(&self.database, &self.slot, &self.schema).await.map_err(failed)?;
            desk.hurry().await.map_err(failed)?;
            let Some(access) = desk.access().await.map_err(failed)? else { return Ok(None) };
            if let Some(lack) = access.lack(desk.table(), to_mark) {
                return Err(Refused::new(StatusCode::FORBIDDEN, lack));
            }
            work(&desk).await.map(Some).map_err(failed)
        };
        let late = |_| unavailable(format!("the database did not answer for dead letters within {PATIENCE:?}"));
        tokio::time::timeout(PATIENCE, done).await.map_err(late)?
    }
}

pub(super) fn router() -> Router<Arc<Answers>> {
    Router::new()
        .route("/dead-letters", get(list))
        .route("/dead-letters/replay", post(replay))
        .route("/dead-letters/discard", post(discard))
}

/// The database is not asked more often than it bears.
struct Costly;

impl FromRequestParts<Arc<Answers>> for Costly {
    type Rejection = Response;

    async fn from_request_parts(_: &mut Parts, answers: &Arc<Answers>) -> Result<Costly, Response> {
        match answers.costly.take() {
            true => Ok(Costly),
            false => Err(rate::later("dead letters are asked for too often".to_owned())),
        }
    }
}

/// What `GET /dead-letters` gives.
#[derive(Debug, Default, Serialize)]
struct Page {
    /// Who may change anything from a page: whoever has the `token`, or nobody, so that the `command_line` is the way.
    changes: &'static str,
    /// Whether there is a table.
    kept: bool,
    /// Letters that wait for a decision.
    dead: i64,
    parked: i64,
    aggregates: i64,
    parked_aggregates: Vec<Value>,
    letters: Vec<Value>,
    /// What `after` is for the next page; none: this is the last one.
    next: Option<i64>,
}

async fn list(
    _: Reader,
    _: Costly,
    Shared(answers): Shared<Arc<Answers>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Page>, Refused> {
    let Wanted { states, after, limit } = Wanted::read(query.as_deref().unwrap_or_default())?;
    let changes = if answers.access.has_token() { "token" } else { "command_line" };
    let page = answers
        .letters
        .at_desk(false, async |desk| {
            let waiting = desk.waiting().await?;
            let aggregates = if after == 0 { desk.aggregates().await? } else { Vec::new() };
            let letters = desk.page(&states, after, limit).await?;
            let next = letters.last().filter(|_| letters.len() >= limit as usize).map(|last| last.id);
            Ok(Page {
                changes,
                kept: true,
                dead: waiting.dead,
                parked: waiting.parked,
                aggregates: waiting.aggregates,
                parked_aggregates: aggregates.iter().map(aggregate).collect(),
                letters: letters.iter().map(line).collect(),
                next,
            })
        })
        .await?;
    Ok(Json(page.unwrap_or_else(|| Page { changes, ..Page::default() })))
}

/// The query of `GET /dead-letters`.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    states: Vec<State>,
    after: i64,
    limit: u32,
}

impl Wanted {
    fn read(query: &str) -> Result<Wanted, Refused> {
        let mut wanted = Wanted { states: Vec::new(), after: 0, limit: LETTERS };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let number = || value.parse::<i64>().ok().filter(|number| *number >= 0);
            match &*name {
                "state" if &*value == "open" => wanted.states.extend(OPEN),
                "state" => wanted.states.push(value.parse().map_err(|_| {
                    bad("state is open, dead, parked, replayed or discarded, and may be given more than once"
                        .to_owned())
                })?),
                "after" => wanted.after = number().ok_or_else(|| bad("after is the `next` of a page".to_owned()))?,
                "limit" => {
                    let limit = number().and_then(|limit| u32::try_from(limit).ok());
                    wanted.limit = limit
                        .filter(|limit| (1..=LETTERS_MAX).contains(limit))
                        .ok_or_else(|| bad(format!("limit is 1 to {LETTERS_MAX}")))?;
                }
                _ => return Err(bad("the query has state, after and limit".to_owned())),
            }
        }
        if wanted.states.is_empty() {
            wanted.states.extend(OPEN);
        }
        Ok(wanted)
    }
}

/// What a call means: one of these.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Body {
    /// Numbers of rows, `row` of a letter.
    Letters(Vec<i64>),
    /// An aggregate's id.
    Aggregate(String),
    /// What is parked with the letter of this row.
    AggregateOf(i64),
}

async fn replay(
    _: Allowed,
    _: Costly,
    Shared(answers): Shared<Arc<Answers>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let choice = chosen(&headers, &body)?;
    let requested = answers.letters.at_desk(true, async |desk| desk.request(&choice).await).await?;
    let requested = requested.filter(|requested| requested.matched > 0).ok_or_else(nothing)?;
    tracing::info!(marked = requested.marked, "dead letters are to be sent again, as asked over HTTP");
    Ok(Json(json!({
        "marked": requested.marked,
        "parked_with_them": requested.parked_with_them,
        "without_topic": requested.without_topic,
        "after_later_events": requested.after_later_events,
    })))
}

async fn discard(
    _: Allowed,
    _: Costly,
    Shared(answers): Shared<Arc<Answers>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let choice = chosen(&headers, &body)?;
    let gone = answers.letters.at_desk(true, async |desk| desk.give_up(&choice).await).await?;
    let gone = gone.filter(|gone| gone.discarded > 0).ok_or_else(nothing)?;
    tracing::info!(discarded = gone.discarded, "dead letters are discarded, as asked over HTTP");
    Ok(Json(json!({"discarded": gone.discarded, "still_parked_behind": gone.still_parked_behind})))
}

fn chosen(headers: &HeaderMap, body: &[u8]) -> Result<Choice, Refused> {
    let is_json = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    });
    if !is_json {
        let message = "the body is application/json".to_owned();
        return Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let shape = r#"the body is {"letters": [ROW, …]}, {"aggregate": "ID"} or {"aggregate_of": ROW}"#;
    match serde_json::from_slice(body).map_err(|error| bad(format!("{shape}: {error}")))? {
        Body::Letters(rows) if rows.is_empty() || rows.len() > ROWS_MAX => {
            Err(bad(format!("a call names 1 to {ROWS_MAX} letters")))
        }
        Body::Letters(rows) => Ok(Choice::Letters(rows)),
        Body::Aggregate(id) => Ok(Choice::Aggregate(id)),
        Body::AggregateOf(row) => Ok(Choice::AggregateOf(row)),
    }
}

fn bad(message: String) -> Refused {
    Refused::new(StatusCode::BAD_REQUEST, message)
}

fn nothing() -> Refused {
    Refused::new(StatusCode::NOT_FOUND, "no dead or parked letter matches".to_owned())
}

fn line(line: &Line) -> Value {
    let time = |at: Option<_>| at.and_then(rfc3339);
    json!({
        "row": line.id,
        "event_id": line.event_id,
        "event_type": line.event_type,
        "aggregate_type": line.aggregate_type,
        "aggregate_id": line.aggregate_id,
        "source_table": line.source_table,
        "topic": line.topic.as_deref().map(address),
        "position": line.position,
        "state": line.state,
        "reason_class": line.reason_class,
        "reason": line.reason,
        "attempts": line.attempts,
        "first_failed_at": rfc3339(line.first_failed_at),
        "last_failed_at": rfc3339(line.last_failed_at),
        "later_delivered": line.later_delivered,
        "replay_requested_at": time(line.replay_requested_at),
        "settled_at": time(line.settled_at),
    })
}

fn aggregate(aggregate: &Aggregate) -> Value {
    json!({
        "letters": aggregate.letters,
        "replay_requested": aggregate.replay_requested,
        "first": line(&aggregate.first),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_whole_or_refused() {
        let wanted = Wanted::read("state=parked&state=replayed&after=17&limit=100").unwrap();
        assert_eq!(wanted, Wanted { states: vec![State::Parked, State::Replayed], after: 17, limit: 100 });
        let wanted = Wanted::read("").unwrap();
        assert_eq!(wanted, Wanted { states: OPEN.to_vec(), after: 0, limit: LETTERS });
        for refused in ["limit=0", "limit=101", "limit=x", "after=-1", "state=lost", "order=desc", "after"] {
            assert!(Wanted::read(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_body_names_letters_in_one_way() {
        let mut headers = HeaderMap::new();
        let chosen = |headers: &HeaderMap, body: &str| chosen(headers, body.as_bytes());
        assert!(chosen(&headers, r#"{"letters": [1]}"#).is_err(), "a form of another page has no such type");
        headers.insert(header::CONTENT_TYPE, "application/json; charset=utf-8".parse().unwrap());
        assert!(matches!(chosen(&headers, r#"{"letters": [1, 2]}"#), Ok(Choice::Letters(rows)) if rows == [1, 2]));
        assert!(matches!(chosen(&headers, r#"{"aggregate": "o-1"}"#), Ok(Choice::Aggregate(id)) if id == "o-1"));
        assert!(matches!(chosen(&headers, r#"{"aggregate_of": 3}"#), Ok(Choice::AggregateOf(3))));
        for body in ["", "[]", r#"{"letters": []}"#, r#"{"all": true}"#, r#"{"letters": [1], "aggregate": "o"}"#] {
            assert!(chosen(&headers, body).is_err(), "{body}");
        }
    }
}
