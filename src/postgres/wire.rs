//! Whole messages over a socket: one flat read buffer, one write buffer, no allocation a message.
//!
//! A message is a tag byte, a length (itself included, the tag not) and a body. Lengths are the peer's claim: the read
//! buffer grows by doubling as bytes arrive, never by the claim alone, and shrinks again behind a large message.

use std::{
    future, io,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use postgres_protocol::message::backend::{Header, Message};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{error::Error, socket::Socket};

/// Size of the read buffer at rest.
const INPUT_BYTES: usize = 256 * 1024;

/// PostgreSQL builds no message larger than what it can allocate at once, 1 GiB.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// `CopyBothResponse`, which postgres-protocol does not know.
pub(super) const COPY_BOTH_RESPONSE: u8 = b'W';
/// `NegotiateProtocolVersion`, likewise.
pub(super) const NEGOTIATE_PROTOCOL_VERSION: u8 = b'v';

/// A socket with its buffers.
pub(super) struct Wire {
    socket: Socket,
    input: Input,
    output: Output,
    /// Why nothing can be written any more.
    write_failure: Option<io::Error>,
}

impl Wire {
    pub(super) fn new(socket: Socket) -> Wire {
        Wire { socket, input: Input::new(), output: Output::default(), write_failure: None }
    }

    pub(super) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The next whole message that is already here: its tag, and where its body is.
    pub(super) fn next(&mut self) -> Result<Option<(u8, Range<usize>)>, Error> {
        self.input.next()
    }

    /// The body that [`next`](Wire::next) found, until the next read.
    pub(super) fn body(&self, body: Range<usize>) -> &[u8] {
        &self.input.bytes[body]
    }

    /// The body that [`next`](Wire::next) found, as a message of postgres-protocol.
    pub(super) fn parsed(&self, tag: u8, body: Range<usize>) -> Result<Message, Error> {
        let mut message = BytesMut::with_capacity(body.len() + 5);
        message.extend_from_slice(&[tag]);
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(self.body(body));
        match Message::parse(&mut message) {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Error::protocol("a message ends before its length")),
            Err(error) => Err(Error::protocol(error.to_string())),
        }
    }

    /// Waits for the next whole message, writing what is queued meanwhile.
    pub(super) async fn message(&mut self) -> Result<(u8, Range<usize>), Error> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            self.progress(true).await?;
        }
    }

    /// Queues one message, built by one of postgres-protocol's functions.
    pub(super) fn queue(&mut self, message: &[u8]) {
        self.output.bytes.extend_from_slice(message);
    }

    /// Queues one `CopyData`.
    pub(super) fn queue_copy_data(&mut self, body: &[u8]) {
        self.output.bytes.push(b'd');
        self.output.bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        self.output.bytes.extend_from_slice(body);
    }

    /// Reads until something is here (with `read`), writing what is queued meanwhile; without `read` it only writes, and
    /// never ends. Cancel safe.
    pub(super) async fn progress(&mut self, read: bool) -> Result<usize, Error> {
        future::poll_fn(|cx| self.poll_progress(cx, read)).await
    }

    fn poll_progress(&mut self, cx: &mut Context<'_>, read: bool) -> Poll<Result<usize, Error>> {
        if self.write_failure.is_none() {
            if let Poll::Ready(Err(error)) = self.output.poll_write(&mut self.socket, cx) {
                self.write_failure = Some(error);
            }
        }
        if read {
            // A server that has gone cannot be written to, but its last words matter more: the read ends with them.
            return self.input.poll_fill(&mut self.socket, cx);
        }
        match self.write_failure.take() {
            Some(error) => Poll::Ready(Err(Error::Io(error))),
            None => Poll::Pending,
        }
    }

    /// Writes what is queued.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        future::poll_fn(|cx| self.output.poll_write(&mut self.socket, cx)).await.map_err(Error::Io)
    }

    /// Says goodbye and closes. The peer may have gone already, so failures mean nothing.
    pub(super) async fn terminate(mut self) {
        let mut message = BytesMut::new();
        postgres_protocol::message::frontend::terminate(&mut message);
        self.queue(&message);
        if self.flush().await.is_ok() {
            let _ = future::poll_fn(|cx| Pin::new(&mut self.socket).poll_shutdown(cx)).await;
        }
    }
}

/// The read buffer: `bytes[start..end]` is read and not yet taken.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn new() -> Input {
        Input { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 }
    }

    fn next(&mut self) -> Result<Option<(u8, Range<usize>)>, Error> {
        let Some((tag, length)) = self.header()? else { return Ok(None) };
        if self.end - self.start < length {
            return Ok(None);
        }
        let body = self.start + 5..self.start + length;
        self.start += length;
        Ok(Some((tag, body)))
    }

    /// Tag and whole length, its header included, of the message that begins at `start`.
    fn header(&self) -> Result<Option<(u8, usize)>, Error> {
        let header = Header::parse(&self.bytes[self.start..self.end]);
        let Some(header) = header.map_err(|error| Error::protocol(error.to_string()))? else { return Ok(None) };
        // Not negative: the parser refuses lengths below 4.
        let length = header.len() as usize + 1;
        if length > MESSAGE_BYTES_MAX + 5 {
            return Err(Error::protocol(format!("a message claims {length} bytes")));
        }
        Ok(Some((header.tag(), length)))
    }

    /// Reads until the socket is empty or the buffer full, for OpenSSL gives one record at a time.
    fn poll_fill(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<Result<usize, Error>> {
        self.make_room()?;
        let before = self.end;
        while self.end < self.bytes.len() {
            let mut spare = ReadBuf::new(&mut self.bytes[self.end..]);
            match Pin::new(&mut *socket).poll_read(cx, &mut spare) {
                Poll::Ready(Ok(())) if !spare.filled().is_empty() => self.end += spare.filled().len(),
                // What came before the end or the failure is served first; both show again.
                Poll::Ready(_) | Poll::Pending if self.end > before => break,
                Poll::Ready(Ok(())) => return Poll::Ready(Err(Error::Closed)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(broken(error))),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(self.end - before))
    }

    /// Leaves room for at least one byte: moves what is left to the front, grows under a message that does not fit, and
    /// shrinks once such a message is gone.
    fn make_room(&mut self) -> Result<(), Error> {
        let left = self.end - self.start;
        if self.bytes.len() > INPUT_BYTES && left < INPUT_BYTES && self.wanted()? <= INPUT_BYTES {
            let mut small = vec![0; INPUT_BYTES];
            small[..left].copy_from_slice(&self.bytes[self.start..self.end]);
            *self = Input { bytes: small, start: 0, end: left };
        }
        if left == 0 {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.bytes.len() || self.start + self.wanted()? > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, left);
        }
        if self.end == self.bytes.len() {
            let size = self.wanted()?.clamp(self.bytes.len() + 1, self.bytes.len() * 2);
            self.bytes.resize(size, 0);
        }
        Ok(())
    }

    /// The length of the message that begins at `start`, as far as it is known.
    fn wanted(&self) -> Result<usize, Error> {
        Ok(self.header()?.map_or(5, |(_, length)| length))
    }
}

/// The write buffer: `bytes[sent..]` is to be written.
#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    sent: usize,
}

impl Output {
    fn poll_write(&mut self, socket: &mut Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.bytes.len() {
            match ready!(Pin::new(&mut *socket).poll_write(cx, &self.bytes[self.sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        ready!(Pin::new(socket).poll_flush(cx))?;
        self.bytes.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

/// A peer that goes without TLS's or TCP's farewell has closed all the same.
fn broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Closed,
        _ => Error::Io(error),
    }
}

#[cfg(test)]
mod tests;
