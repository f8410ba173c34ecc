//! From bytes to records: what each message of pgoutput decodes to, and what each row of an outbox becomes.

mod captured;
mod changes;
mod cloudevents;
#[path = "../support/encode.rs"]
mod encode;
mod ledger;
mod message_outbox;
mod messages;
#[path = "../support/outbox.rs"]
mod outbox;
mod passed;
mod poison;
mod readings;
mod records;
mod relations;
mod routing;
#[path = "../support/sample.rs"]
mod sample;
#[path = "../support/cloudevents.rs"]
mod sdk;
mod stream;
mod times;
mod total;
