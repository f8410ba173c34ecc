//! The beginning of the stream, at a slot that is ours: what is known before its first record.

use std::time::Duration;

use super::{
    Error, Learnt, SILENCE_MAX,
    fates::Fates,
    job::Job,
    proof::Proof,
    reading::Reading,
    rota,
    sampler::{Sample, Sampler},
    slot::wal_sender_timeout,
    taken::Taken,
};
use crate::{
    config::Config,
    pipeline::{Lsn, resume::Log},
    postgres::{
        conninfo::ConnInfo,
        replication::{Identity, Replication, StartRequest},
        stream::Stream,
    },
    sink::Known,
};

/// A stream at the slot's position, and what the server says beside it.
pub(super) struct Begun {
    pub(super) stream: Stream,
    pub(super) identity: Identity,
    /// The host of the list that streams.
    pub(super) server: ConnInfo,
    pub(super) log: Log,
    /// How long the server bears silence.
    pub(super) patience: Duration,
    pub(super) fates: Fates,
    /// How often earlier sessions tried events in vain.
    pub(super) attempts: Known,
    pub(super) proof: Option<Proof>,
    pub(super) sampler: Sampler,
    pub(super) sample: Sample,
    pub(super) rota: Option<Job<()>>,
}

pub(super) async fn begin(
    config: &Config,
    learnt: &Learnt,
    taken: Taken,
    start: Lsn,
    reading: Option<&Reading>,
    mut connection: Replication,
) -> Result<Begun, Error> {
    let Taken { identity, server, proof, log, .. } = taken;
    let patience = wal_sender_timeout(&mut connection).await?.unwrap_or(SILENCE_MAX);
    let log = Log { start, ..log };
    let pid = connection.backend_pid();
    let publications = [config.publication.as_str()];
    let stream = connection
        .start(&StartRequest {
            slot: &config.slot,
            publications: &publications,
            start,
            messages: config.wants_messages(),
        })
        .await?;
    // Parked aggregates are known before the first record is sent.
    let system = &identity.system_identifier;
    // Rows that are read have positions below it.
    let from = reading.map_or(start, |reading| reading.at().of_older_rows().min(start));
    let hold = proof.as_ref().map(Proof::hold);
    let (fates, attempts) = Fates::open(config, &server, system, hold, from, &learnt.culprits).await?;
    let rota = rota::start(config, server.clone(), pid);
    let published = hold.map(|hold| hold.published().to_owned());
    let mut sampler = Sampler::start(config, server.clone(), published);
    let sample = sampler.next().await?;
    if sample.confirmed > start {
        return Err(Error::Forwarded { slot: config.slot.clone(), asked: start, begins: sample.confirmed });
    }
    tracing::info!(
        slot = config.slot,
        database = identity.database,
        system = identity.system_identifier,
        timeline = identity.timeline,
        from = %start,
        "streaming"
    );
    Ok(Begun { stream, identity, server, log, patience, fates, attempts, proof, sampler, sample, rota })
}
