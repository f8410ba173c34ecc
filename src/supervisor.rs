//! Starts sessions, one after another: the only place where anything is tried again.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    chain::Chain,
    config::Config,
    control::{Orders, Target},
    postgres::{ErrorKind, mark::Unmarkable, refusal::Refusal, rows::Unreadable, slot::SlotError},
    session::{
        self, End, Error, Learnt,
        letters::{self, Culprit},
    },
    setup::{apply::ApplyError, connector},
    sink::{
        self,
        kafka::{self, BatchBytes},
    },
    status::{State, Status},
};

/// How often a standby looks whether the slot is free.
const STANDBY_INTERVAL: Duration = Duration::from_millis(500);
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// Streams as ordered until asked to stop, or until trouble that another session would meet again. `accept_gap`: the first
/// slot that is lost is done without.
pub async fn run(
    config: &Config,
    accept_gap: bool,
    status: &Status,
    mut orders: watch::Receiver<Orders>,
    mut stop: watch::Receiver<bool>,
) -> Result<End, Error> {
    let mut backoff = Backoff::new();
    let mut learnt = Learnt::new(config, accept_gap);
    let mut rejected = None;
    // Since when a right is missing in Kafka: nothing was confirmed after that.
    let mut unauthorized = None;
    loop {
        let began = *orders.borrow();
        if began.target == Target::Stopped {
            // What becomes of the slot meanwhile is others' business.
            learnt.reached = None;
            if rest(&mut orders, &mut stop, status).await.is_break() {
                return Ok(End::Drained);
            }
            continue;
        }
        let before = status.now().confirmed;
        let (leave, left) = watch::channel(false);
        let session = session::run(config, &mut learnt, status, orders.clone(), left);
        let session = ended(session, &leave, &began, &mut orders, &mut stop, status).await;
        let confirmed = status.now().confirmed;
        if let (Some(reached), Some(confirmed)) = (&mut learnt.reached, confirmed) {
            reached.confirmed = confirmed;
        }
        if confirmed != before {
            backoff = Backoff::new();
            learnt.culprits.retain(|culprit| confirmed.is_none_or(|confirmed| culprit.is_ahead_of(confirmed)));
            unauthorized = None;
        }
        match session {
            Err(Error::Sink(sink::Error::Kafka(kafka::Error::BatchTooLarge { .. }))) => {
                learnt.batches = learnt.batches.smaller()
            }
            Err(Error::Sink(sink::Error::Kafka(kafka::Error::BatchRefused { .. }))) => {
                learnt.batches = BatchBytes::SINGLE
            }
            // Once more, up to the culprit: what precedes it in other partitions ended with the producer. Then it becomes a
            // dead letter, or ends the stream.
            Err(Error::Sink(ref error))
                if !error.is_local() && Culprit::of(error).is_some_and(|new| learnt.is_new(&new)) =>
            {
                learnt.culprits.extend(Culprit::of(error));
                rejected = session.err();
                status.enter(State::Connecting, rejected.as_ref().map(|error| Chain(error).to_string()));
                continue;
            }
            Err(Error::Replay { ref culprit }) => learnt.culprits.push(culprit.clone()),
            Err(Error::Culprit) => return Err(rejected.unwrap_or(Error::Culprit)),
            Ok(_) | Err(_) => {}
        }
        let pause = match session {
            Ok(end @ (End::Drained | End::GraceOver { .. })) if *stop.borrow() => return Ok(end),
            Err(Error::Sink(error @ sink::Error::Closed)) => {
                tracing::info!("{error}; what it had taken is confirmed");
                return Ok(End::ReaderGone);
            }
            Ok(end @ End::ReaderGone) => return Ok(end),
            // Ordered to, which the next turn looks into.
            Ok(End::Drained) => {
                status.enter(State::Connecting, None);
                continue;
            }
            Ok(End::GraceOver { undelivered }) => {
                tracing::warn!(
                    "shutdown_grace ran out with {undelivered} records undelivered; the next session sends them"
                );
                status.enter(State::Connecting, None);
                continue;
            }
            Ok(End::ServerStopped) => {
                status.enter(State::Connecting, Some("the database was shut down".to_owned()));
                backoff.next()
            }
            Err(Error::Sink(sink::Error::Kafka(error @ kafka::Error::Unauthorized { .. }))) => {
                let waited = unauthorized.get_or_insert_with(Instant::now).elapsed();
                let timeout = config.unauthorized_timeout.unwrap_or(Duration::MAX);
                if waited >= timeout {
                    return Err(Error::Unauthorized { source: error, timeout });
                }
                // Once more when the time is over.
                again(status, &error, backoff.next().min(timeout - waited))
            }
            Err(error) => match kind(&error) {
                ErrorKind::Permanent => return Err(error),
                ErrorKind::SlotInUse { pid } => {
                    standby(config, status, pid, &error);
                    STANDBY_INTERVAL
                }
                ErrorKind::Transient | ErrorKind::ServerStopping => again(status, &error, backoff.next()),
            },
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            Ok(_) = orders.wait_for(|orders| orders.end_session_of(&began)) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(End::Drained),
        }
    }
}

/// Makes what a connector's database lacks, and finds its tables, as often as trouble ends it that may pass. None: asked to
/// stop.
pub async fn prepare(
    config: Config,
    status: &Status,
    mut stop: watch::Receiver<bool>,
) -> Result<Option<Config>, connector::Error> {
    let mut backoff = Backoff::new();
    while !*stop.borrow() {
        let mut asked = stop.clone();
        let error = match connector::prepare(&config, &mut asked).await {
            Ok(config) => return Ok(Some(config)),
            Err(connector::Error::Apply(ApplyError::Slot(SlotError::Cancelled(_)))) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Permanent => return Err(error),
            Err(error) => error,
        };
        let pause = again(status, &error, backoff.next());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
    Ok(None)
}

/// Waits while the stream is to be stopped. Break: the process is to end.
async fn rest(
    orders: &mut watch::Receiver<Orders>,
    stop: &mut watch::Receiver<bool>,
    status: &Status,
) -> ControlFlow<()> {
    tracing::info!("stopped on request: the slot is free");
    status.enter(State::Stopped, Some("stopped on request; the slot is free".to_owned()));
    tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => return ControlFlow::Break(()),
        Ok(_) = orders.wait_for(|orders| orders.target != Target::Stopped) => {}
    }
    status.enter(State::Connecting, None);
    ControlFlow::Continue(())
}

/// The session's end, by itself or because the process or the stream is to stop, or another session is asked for. One that
/// has not begun to stream has nothing to drain: it simply ends.
async fn ended(
    session: impl Future<Output = Result<End, Error>>,
    leave: &watch::Sender<bool>,
    began: &Orders,
    orders: &mut watch::Receiver<Orders>,
    stop: &mut watch::Receiver<bool>,
    status: &Status,
) -> Result<End, Error> {
    tokio::pin!(session);
    tokio::select! {
        biased;
        end = &mut session => return end,
        _ = stop.wait_for(|stop| *stop) => {}
        Ok(_) = orders.wait_for(|orders| orders.end_session_of(began)) => {}
    }
    leave.send_replace(true);
    // Not in the match: the session needs the status while it drains.
    let state = status.now().state;
    match state {
        State::Connecting | State::Standby | State::SlotLost | State::Stopped => Ok(End::Drained),
        // It makes its slot, or ends the making of it.
        State::Preparing | State::Streaming | State::Paused | State::Stopping => session.await,
    }
}

/// Says what ended a session and when the next one comes; gives the pause.
fn again(status: &Status, error: &dyn std::error::Error, pause: Duration) -> Duration {
    tracing::warn!("{}; trying again in {} ms", Chain(error), pause.as_millis());
    status.enter(State::Connecting, Some(Chain(error).to_string()));
    status.now().reconnects += 1;
    pause
}

fn standby(config: &Config, status: &Status, pid: Option<i32>, error: &Error) {
    let entered = status.now().state != State::Standby;
    if entered {
        let holder = pid.map_or_else(String::new, |pid| format!(" (held by server process {pid})"));
        tracing::info!("standby: slot {} is in use{holder}; waiting for it", config.slot);
    }
    status.enter(State::Standby, Some(Chain(error).to_string()));
}

fn kind(error: &Error) -> ErrorKind {
    match error {
        // The next session finds out what is lost with it.
        Error::Postgres(error)
            if matches!(error.refusal(), Some(Refusal::SlotMissing { .. } | Refusal::SlotInvalidated { .. })) =>
        {
            ErrorKind::Transient
        }
        Error::SlotGone { .. } => ErrorKind::Transient,
        Error::Lost { .. } => ErrorKind::Permanent,
        Error::Postgres(error) => error.kind(),
        Error::Letters(letters::Error::Postgres(error)) => error.kind(),
        Error::Letters(
            letters::Error::NoTable { .. }
            | letters::Error::Topic(_)
            | letters::Error::Full { .. }
            | letters::Error::StillParked { .. },
        ) => ErrorKind::Permanent,
        Error::Unmarkable(Unmarkable::Postgres(error)) => error.kind(),
        Error::Unmarkable(_) => ErrorKind::Permanent,
        Error::Slot(error) => error.kind(),
        Error::Rewind(error) => error.kind(),
        Error::Sink(error) if error.is_permanent() => ErrorKind::Permanent,
        Error::Sink(_) => ErrorKind::Transient,
        Error::Forwarded { .. } | Error::Silence { .. } | Error::Replay { .. } => ErrorKind::Transient,
        Error::Unreadable(Unreadable::Postgres(error)) => error.kind(),
        Error::Unreadable(_)
        | Error::NoProgress { .. }
        | Error::Unsettled
        | Error::Pipeline(_)
        | Error::Poison { .. }
        | Error::PoisonRow { .. }
        | Error::Unauthorized { .. }
        | Error::Culprit
        | Error::SynchronousStandby { .. } => ErrorKind::Permanent,
    }
}

/// Doubles to a limit; each pause is drawn between half and whole, that many processes do not return as one.
struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    fn new() -> Backoff {
        Backoff { ceiling: BACKOFF_FIRST }
    }

    fn next(&mut self) -> Duration {
        let random = RandomState::new().build_hasher().finish() as u32;
        let pause = self.ceiling / 2 + (self.ceiling / 2).mul_f64(f64::from(random) / f64::from(u32::MAX));
        self.ceiling = (self.ceiling * 2).min(BACKOFF_MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_vary() {
        let mut backoff = Backoff::new();
        let pauses: Vec<Duration> = (0..12).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= BACKOFF_FIRST / 2 && pauses[0] <= BACKOFF_FIRST);
        assert!(pauses[11] >= BACKOFF_MAX / 2 && pauses[11] <= BACKOFF_MAX);
    }
}
