//! The replication stream: CopyData both ways, over one flat buffer.
//!
//! Reading and writing are driven by [`progress`](Stream::progress), frames are taken without IO by
//! [`next_frame`](Stream::next_frame), so that a session can stop reading for back-pressure while its feedback still
//! goes out (G6).

use bytes::BytesMut;
use postgres_protocol::message::{
    backend::{
        COMMAND_COMPLETE_TAG, COPY_DATA_TAG, COPY_DONE_TAG, ERROR_RESPONSE_TAG, Message, NOTICE_RESPONSE_TAG,
        PARAMETER_STATUS_TAG, READY_FOR_QUERY_TAG,
    },
    frontend,
};

use super::{
    error::Error,
    refusal::{Doing, Refusal},
    server_error::ServerError,
    wire::Wire,
};

/// A walsender that streams.
pub struct Stream {
    wire: Wire,
    slot: String,
    publications: Vec<String>,
}

impl Stream {
    pub(super) fn new(wire: Wire, slot: String, publications: Vec<String>) -> Stream {
        Stream { wire, slot, publications }
    }

    /// Waits until something was read and gives the number of bytes; what is queued is written meanwhile. Without `read`
    /// it writes what is queued and never ends. Cancel safe. Frames may be here already, from the first call on: take
    /// them before waiting for more.
    pub async fn progress(&mut self, read: bool) -> Result<usize, Error> {
        self.wire.progress(read).await
    }

    /// The next whole `CopyData` body that has been read. No IO. An error when the server reported one or ended the copy.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, Error> {
        loop {
            match self.wire.next()? {
                Some((COPY_DATA_TAG, body)) => return Ok(Some(self.wire.body(body))),
                Some((tag, body)) => self.other(tag, body)?,
                None => return Ok(None),
            }
        }
    }

    /// Queues one `CopyData` body for the server.
    pub fn send(&mut self, body: &[u8]) {
        self.wire.queue_copy_data(body);
    }

    /// Ends the copy in order: writes what is queued, says CopyDone, reads to the server's end of it, closes. The caller
    /// bounds it in time.
    pub async fn finish(mut self) -> Result<(), Error> {
        let mut done = BytesMut::new();
        frontend::copy_done(&mut done);
        self.wire.queue(&done);
        let mut ended = false;
        loop {
            let (tag, body) = match self.wire.message().await {
                Ok(message) => message,
                // The server that ends the copy because it shuts down closes without more words.
                Err(Error::Closed) if ended => return Ok(()),
                Err(error) => return Err(error),
            };
            match tag {
                READY_FOR_QUERY_TAG => break,
                COPY_DATA_TAG => {}
                COPY_DONE_TAG | COMMAND_COMPLETE_TAG => ended = true,
                _ => self.other(tag, body)?,
            }
        }
        self.wire.terminate().await;
        Ok(())
    }

    /// What is no data: reports are passed over, errors and the end of the copy are errors.
    fn other(&mut self, tag: u8, body: std::ops::Range<usize>) -> Result<(), Error> {
        let doing = Doing::Streaming { slot: &self.slot, publications: &self.publications };
        match tag {
            PARAMETER_STATUS_TAG => Ok(()),
            COPY_DONE_TAG | COMMAND_COMPLETE_TAG => Err(Error::CopyEnded),
            NOTICE_RESPONSE_TAG | ERROR_RESPONSE_TAG => match self.wire.parsed(tag, body)? {
                Message::ErrorResponse(body) => Err(Error::refused(ServerError::from_fields(body.fields()), doing)),
                Message::NoticeResponse(body) => {
                    let notice = ServerError::from_fields(body.fields());
                    match Refusal::recognise(&notice, doing) {
                        // From 18 on only a warning, after which the changes would silently be left out (G7).
                        refusal @ Refusal::PublicationMissing { .. } => {
                            Err(Error::Refused { refusal, server: Box::new(notice) })
                        }
                        _ => {
                            tracing::debug!(%notice, "notice in the replication stream");
                            Ok(())
                        }
                    }
                }
                _ => Err(Error::protocol("an error that cannot be read")),
            },
            tag => Err(Error::protocol(format!("message {:?} in the replication stream", char::from(tag)))),
        }
    }
}

#[cfg(test)]
mod tests;
