//! Webhooks: a record is a POST to the URL that is its topic.
//!
//! What is in here tries a record once, and says whether another try may help. It follows a redirect only inside the
//! origin of the URL, connects to no private address unless that is allowed, asks no proxy, and always verifies TLS. What a
//! receiver answers is read so that its connection can be used again, and otherwise ignored, but for the status,
//! `Retry-After` and `Location`.

mod answer;
mod connect;
pub(crate) mod endpoint;
mod public;
mod request;
mod signature;
#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http_body_util::{BodyExt, Limited};
use hyper::{
    body::{Body as _, Incoming},
    header::HeaderName,
};
use openssl::error::ErrorStack;
use tokio::time::{Instant, timeout, timeout_at};

use self::{answer::Next, connect::Http, request::Message, signature::Signature};
use super::{
    courier::{Outcome, Try},
    owned::OwnedRecord,
};
use crate::{config::Webhook, postgres::dead_letter::ReasonClass};

/// Most redirects that are followed for one try.
const REDIRECTS_MAX: usize = 3;
/// What of an answer's body is read, and for how long, so that its connection can be used again.
const BODY_BYTES_MAX: usize = 64 * 1024;
const BODY_PATIENCE: Duration = Duration::from_secs(1);

/// Posts records.
#[derive(Clone, Debug)]
pub(super) struct Courier(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Http,
    signature: Signature,
    headers: Vec<HeaderName>,
    timeout: Duration,
}

impl Courier {
    /// Connects to nothing yet. Permanent errors of OpenSSL only.
    pub(super) fn open(webhook: &Webhook) -> Result<Courier, ErrorStack> {
        Ok(Courier(Arc::new(Shared {
            client: connect::client(webhook)?,
            signature: Signature::new(&webhook.secrets)?,
            headers: webhook.headers.clone(),
            timeout: webhook.timeout,
        })))
    }

    /// Tries once, for `webhook.timeout` at most.
    pub(super) fn deliver(&self, record: Arc<OwnedRecord>) -> Try {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.deliver(&record).await })
    }
}

impl Shared {
    async fn deliver(&self, record: &OwnedRecord) -> Outcome {
        let deadline = Instant::now() + self.timeout;
        let mut message = match record.lend(|record| Message::of(record, &self.headers)) {
            Ok(message) => message,
            Err(flaw) => return Outcome::refused(ReasonClass::Unroutable, flaw.to_string()),
        };
        if self.signature.is_set() {
            let timestamp = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            match self.signature.of(&message.id, timestamp, &message.body) {
                Ok(signature) => message.sign(timestamp, &signature),
                Err(error) => return Outcome::failed(format!("OpenSSL does not sign: {error}")),
            }
        }
        let mut endpoint = message.endpoint.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = match timeout_at(deadline, self.client.request(message.request(&endpoint))).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return answer::fault(&error, &endpoint),
                Err(_) => {
                    let within = humantime::format_duration(self.timeout);
                    let reason = format!("{} gave no answer within webhook.timeout, {within}", endpoint.origin());
                    return Outcome::failed(reason);
                }
            };
            let (head, body) = response.into_parts();
            drain(body).await;
            match answer::judge(&head, &endpoint, SystemTime::now()) {
                Next::Done(outcome) => return outcome,
                Next::Follow(target) => endpoint = target,
            }
        }
        answer::rejected(format!("{} redirects more than {REDIRECTS_MAX} times", message.endpoint.origin()))
    }
}

/// Reads what is left of an answer. It has its meaning without, so a fault here is none; the connection is closed then.
async fn drain(body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    let mut body = Limited::new(body, BODY_BYTES_MAX);
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    // Too slow to be worth a connection.
    let _ = timeout(BODY_PATIENCE, read).await;
}
