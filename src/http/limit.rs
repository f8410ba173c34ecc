//! A bound on connections.
//!
//! Each one costs a file descriptor, of which the stream needs a few to connect again. A peer that goes silent is let go
//! after a while, so that dead ones do not keep living ones out.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::serve::Listener;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

pub(super) const CONNECTIONS_MAX: usize = 64;
/// Longer than the usual time between two scrapes.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(75);

/// A listener that accepts no more than it can afford; others wait in the kernel's queue.
pub(super) struct Limited {
    listener: TcpListener,
    seats: Arc<Semaphore>,
    silence_max: Duration,
}

impl Limited {
    pub(super) fn new(listener: TcpListener, silence_max: Duration) -> Limited {
        Limited { listener, seats: Arc::new(Semaphore::new(CONNECTIONS_MAX)), silence_max }
    }
}

impl Listener for Limited {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let seat = Arc::clone(&self.seats).acquire_owned().await.expect("the seats are never closed");
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let silence = Box::pin(sleep(self.silence_max));
        (Guest { stream, silence, silence_max: self.silence_max, _seat: seat }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that is closed when its peer has neither said nor taken anything for a while.
pub(super) struct Guest {
    stream: TcpStream,
    silence: Pin<Box<Sleep>>,
    silence_max: Duration,
    _seat: OwnedSemaphorePermit,
}

impl Guest {
    /// What came of a step, unless the peer has let us wait for too long.
    fn bounded<T>(&mut self, step: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if step.is_ready() {
            let until = Instant::now() + self.silence_max;
            self.silence.as_mut().reset(until);
            return step;
        }
        self.silence.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.bounded(read, context)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bounded(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
