//! One row of an outbox, on its way into the stream of records.

use super::{
    Counters, Error, Output, Transaction,
    ledger::{Ledger, Ticket},
    outbox::{Draft, Layout, Poison, Refused, Scratch},
    pgoutput::{Begin, Tuple},
    record::Record,
    resume::Resume,
};

/// The parts of a pipeline that a row moves on.
pub(super) struct Passage<'p> {
    pub(super) transaction: &'p mut Transaction,
    pub(super) resume: &'p mut Resume,
    pub(super) ledger: &'p mut Ledger,
    pub(super) counters: &'p mut Counters,
    pub(super) scratch: &'p mut Scratch,
}

impl<'p> Passage<'p> {
    /// What the row becomes. `message` is the slice that it reads from, `index` its outbox's place among the counters.
    /// `marks`: a row that the sink has already is given out to be marked.
    pub(super) fn row(
        self,
        layout: &'p Layout,
        index: usize,
        marks: bool,
        message: &'p [u8],
        row: Tuple<'p>,
    ) -> Result<Output<'p>, Error> {
        let Passage { transaction, resume, ledger, counters, scratch } = self;
        let position = transaction.take_position();
        let Transaction { begin: Begin { commit_time, xid, .. }, origin, .. } = *transaction;
        if !origin.is_table() && !resume.admits(position, || layout.event_id(&row))? {
            // Whoever marks rows marks this one too before it is confirmed.
            if !marks {
                return Ok(Output::None);
            }
            let id = layout.event_id(&row);
            let ticket = ledger.send(message.len());
            return Ok(Output::Passed { ticket, position, table: &layout.name, id });
        }
        let draft = layout.record(message, row, position, commit_time, origin, scratch);
        let Draft { event, topic, key, value, timestamp_ms, timestamp_replaced, headers } = match draft {
            Ok(draft) => draft,
            Err(Refused::Poison(poison)) => {
                let ticket = ledger.send(message.len());
                return Ok(Output::Poison { ticket, poison: Box::new(Poison { xid, ..*poison }) });
            }
            Err(Refused::Wire(source)) => return Err(Error::Wire { context: "row", source }),
            Err(Refused::Shape) => return Err(Error::Order("a row that does not fit its relation")),
        };
        counters.events[index] += 1;
        counters.timestamps_replaced += u64::from(timestamp_replaced);
        let mut record = Record {
            ticket: Ticket(0),
            position,
            xid,
            table: &layout.name,
            event,
            topic,
            partition: None,
            key,
            value,
            timestamp_ms,
            headers,
        };
        record.ticket = ledger.send(record.weight());
        Ok(Output::Record(record))
    }
}
