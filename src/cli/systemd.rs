//! What systemd is told of a running walpost, where it asks: ready when events move or another process moves them, alive as
//! `/healthz` has it, stopping.

use std::{
    env,
    sync::Arc,
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

/// Tells for as long as the process lives; nothing where no service manager asks (`NOTIFY_SOCKET`).
pub(super) fn tell(status: Arc<Status>, facts: Facts, mut stop: watch::Receiver<bool>) {
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    // A sign in half of the time that systemd gives.
    let sign_every = sd_notify::watchdog_enabled().map(|timeout| timeout / 2);
    tokio::spawn(async move {
        let mut teller = Teller { sign_every, signed: None, is_ready: false, told: None };
        loop {
            let stopping = *stop.borrow();
            let told = teller.tell(&status.now(), &facts, stopping);
            if let Err(error) = told {
                tracing::warn!(%error, "systemd is told nothing more: its socket (NOTIFY_SOCKET) takes nothing");
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = stop.wait_for(|stop| *stop), if !stopping => {}
            }
        }
    });
}

struct Teller {
    sign_every: Option<Duration>,
    signed: Option<Instant>,
    is_ready: bool,
    told: Option<String>,
}

impl Teller {
    fn tell(&mut self, now: &Now, facts: &Facts, stopping: bool) -> std::io::Result<()> {
        let line = line(now, stopping);
        let mut states = Vec::new();
        if self.told.as_ref() != Some(&line) {
            states.push(NotifyState::Status(&line));
            if stopping {
                states.push(NotifyState::Stopping);
            }
        }
        if !self.is_ready && is_up(now.state) {
            self.is_ready = true;
            states.push(NotifyState::Ready);
        }
        let is_due = self.sign_every.is_some_and(|every| self.signed.is_none_or(|at| at.elapsed() >= every));
        if is_due && http::is_alive(now, facts) {
            self.signed = Some(Instant::now());
            states.push(NotifyState::Watchdog);
        }
        if !states.is_empty() {
            sd_notify::notify(&states)?;
        }
        self.told = Some(line);
        Ok(())
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
