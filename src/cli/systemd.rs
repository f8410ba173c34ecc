//! What systemd is told of a running walpost, where it asks: ready when events move or another process moves them, alive as
//! `/healthz` has it, stopping.

use std::{
    env,
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use sd_notify::NotifyState;
use tokio::sync::watch;

use crate::{
    http::{self, Facts},
    status::{Now, State, Status},
};

/// How often the status is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Most notices that wait for a service manager that does not read.
const WAITING_MAX: usize = 4;

/// Tells for as long as the process lives; nothing where no service manager asks (`NOTIFY_SOCKET`).
pub(super) fn tell(status: Arc<Status>, facts: Facts, mut stop: watch::Receiver<bool>) {
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    // A sign in half of the time that systemd gives.
    let sign_every = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
    let notices = notices();
    tokio::spawn(async move {
        let mut teller = Teller { notices, sign_every, signed: None, is_ready: false, told: None };
        loop {
            let stopping = *stop.borrow();
            if teller.tell(&status.now(), &facts, stopping).is_err() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = stop.wait_for(|stop| *stop), if !stopping => {}
            }
        }
    });
}

/// A thread of its own sends them: a socket that nobody reads would hold up the stream's.
fn notices() -> SyncSender<String> {
    let (sender, notices) = sync_channel::<String>(WAITING_MAX);
    thread::spawn(move || {
        for notice in notices {
            if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&notice)]) {
                tracing::warn!(%error, "systemd is told nothing more: its socket (NOTIFY_SOCKET) takes nothing");
                return;
            }
        }
    });
    sender
}

/// Nobody sends notices any more.
struct Ended;

struct Teller {
    notices: SyncSender<String>,
    sign_every: Option<Duration>,
    signed: Option<Instant>,
    is_ready: bool,
    told: Option<String>,
}

impl Teller {
    /// Says what is new; all of it again next time where too much waits already.
    fn tell(&mut self, now: &Now, facts: &Facts, stopping: bool) -> Result<(), Ended> {
        let line = line(now, stopping);
        let mut states = Vec::new();
        if self.told.as_ref() != Some(&line) {
            states.push(NotifyState::Status(&line));
            if stopping {
                states.push(NotifyState::Stopping);
            }
        }
        let becomes_ready = !self.is_ready && is_up(now.state);
        if becomes_ready {
            states.push(NotifyState::Ready);
        }
        let is_due = self.sign_every.is_some_and(|every| self.signed.is_none_or(|at| at.elapsed() >= every));
        let signs = is_due && http::is_alive(now, facts);
        if signs {
            states.push(NotifyState::Watchdog);
        }
        if states.is_empty() {
            return Ok(());
        }
        let notice = states.iter().map(|state| format!("{state}\n")).collect();
        match self.notices.try_send(notice) {
            Ok(()) => {
                self.is_ready |= becomes_ready;
                self.signed = if signs { Some(Instant::now()) } else { self.signed };
                self.told = Some(line);
                Ok(())
            }
            Err(TrySendError::Full(_)) => Ok(()),
            Err(TrySendError::Disconnected(_)) => Err(Ended),
        }
    }
}

/// One line: what a newline begins would be another assignment.
fn line(now: &Now, stopping: bool) -> String {
    let state = if stopping { State::Stopping } else { now.state };
    match &now.reason {
        Some(reason) => format!("{}: {}", state.word(), reason.replace(char::is_control, " ")),
        None => state.word().to_owned(),
    }
}

/// Whether start-up is over.
fn is_up(state: State) -> bool {
    match state {
        State::Connecting | State::Preparing | State::SlotLost | State::Stopping => false,
        State::Standby | State::Streaming | State::Paused | State::Stopped => true,
    }
}
