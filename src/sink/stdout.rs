//! Standard output: one JSON object a line, in the order of the stream.
//!
//! A record is delivered when the pipe has it. One write is under way at a time, on a thread that may block; meanwhile the
//! next one gathers, and what is in flight has its bound.

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
};

use tokio::task::JoinHandle;

use super::{Error, line::as_json};
use crate::pipeline::{Record, Ticket};

#[derive(Debug, Default)]
pub struct Stdout {
    lines: String,
    tickets: Vec<Ticket>,
    /// What it writes, and whether it has.
    writing: Option<(Vec<Ticket>, JoinHandle<io::Result<()>>)>,
    acknowledged: Vec<Ticket>,
    delivered: u64,
}

impl Stdout {
    /// For what is confirmed once it is written. A closed standard output is the null device to us.
    pub(super) fn open() -> Result<Stdout, Error> {
        let device = |file: io::Result<std::fs::Metadata>| file.map(|metadata| metadata.rdev());
        let own = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(Error::Stdout)?).metadata();
        if device(own).map_err(Error::Stdout)? == device(std::fs::metadata("/dev/null")).map_err(Error::Stdout)? {
            return Err(Error::NoReader);
        }
        Ok(Stdout::default())
    }

    pub(super) fn send(&mut self, record: &Record<'_>) {
        self.lines.push_str(&as_json(record));
        self.tickets.push(record.ticket);
    }

    /// Waits until a write has ended. Cancel safe: what is under way stays so.
    pub(super) async fn ready(&mut self) -> Result<(), Error> {
        if self.writing.is_none() && !self.tickets.is_empty() {
            let lines = std::mem::take(&mut self.lines);
            let write = move || {
                // Past the standard library's own writer, to which one that may not be written seems to be written.
                let mut out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                out.write_all(lines.as_bytes())
            };
            self.writing = Some((std::mem::take(&mut self.tickets), tokio::task::spawn_blocking(write)));
        }
        let Some((_, write)) = &mut self.writing else { return std::future::pending().await };
        let written = write.await.expect("a write does not panic");
        let (tickets, _) = self.writing.take().expect("it was there a moment ago");
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Error::Closed,
            _ => Error::Stdout(error),
        })?;
        self.delivered += tickets.len() as u64;
        self.acknowledged.extend(tickets);
        Ok(())
    }

    pub(super) fn take_acknowledged(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.acknowledged)
    }

    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }
}
