//! What brings one record to where it goes, by itself, and what came of it.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use super::{error::Error, lanes::Patience, owned::OwnedRecord};
use crate::{config::Config, postgres::dead_letter::ReasonClass};

/// What came of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(dead_code)] // until there is a courier
pub(super) enum Outcome {
    Delivered,
    /// It may pass, and another try follows.
    Failed {
        reason: String,
        /// Not before that, as the receiver asks.
        after: Option<Duration>,
        /// It is one of the record's attempts; false where the fault is not the record's, such as a broker that is down.
        counts: bool,
    },
    /// It is never taken.
    Refused {
        class: ReasonClass,
        reason: String,
    },
}

/// A try under way. One that is dropped may or may not have arrived.
pub(super) type Try = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Who carries the records.
#[derive(Debug)]
pub(super) enum Courier {}

/// A courier, and how it is to be used.
pub(super) struct Opened {
    pub(super) courier: Courier,
    pub(super) patience: Patience,
    /// Most records under way at once.
    pub(super) width: usize,
}

impl Courier {
    pub(super) fn open(_config: &Config) -> Result<Opened, Error> {
        unimplemented!("each courier brings itself")
    }

    /// Tries once.
    pub(super) fn deliver(&self, _record: Arc<OwnedRecord>, _attempt: u32) -> Try {
        match *self {}
    }
}
