//! What a running walpost is asked to do: stream, pause, or give the slot up. Whoever may ask holds the [`Control`]; the
//! supervisor and the session follow its [`Orders`].
//!
//! Orders are kept by the process alone: one that starts anew streams.

use tokio::sync::watch;

/// What the stream is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Running,
    /// Nothing more is read. The slot stays taken, and the server is told what is confirmed.
    Paused,
    /// No session: the slot is free, for others too.
    Stopped,
}

/// All that is asked of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    pub target: Target,
    /// How often a new session was asked for.
    pub restarts: u64,
}

impl Orders {
    /// Whether a session that began under `earlier` orders is to end.
    pub fn end_session_of(&self, earlier: &Orders) -> bool {
        self.target == Target::Stopped || self.restarts != earlier.restarts
    }
}

/// Gives orders.
#[derive(Clone, Debug)]
pub struct Control(watch::Sender<Orders>);

impl Control {
    pub fn new() -> Control {
        Control(watch::Sender::new(Orders { target: Target::Running, restarts: 0 }))
    }

    pub fn target(&self) -> Target {
        self.0.borrow().target
    }

    pub fn set(&self, target: Target) {
        self.0.send_if_modified(|orders| {
            let changed = orders.target != target;
            orders.target = target;
            changed
        });
    }

    /// Asks for a new session in place of the present one. What is paused stays so, and what is stopped.
    pub fn restart(&self) {
        self.0.send_modify(|orders| orders.restarts += 1);
    }

    /// What is asked, now and later.
    pub fn orders(&self) -> watch::Receiver<Orders> {
        self.0.subscribe()
    }
}

impl Default for Control {
    fn default() -> Control {
        Control::new()
    }
}
