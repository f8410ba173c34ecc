//! What a session does before it streams where tables are to be read: it makes the slot, and begins or resumes the
//! reading.
//!
//! That tables are to be read is noted before a slot is made for it, and the beginning of the slot right after, so that
//! the next session knows of whatever happens in between. A slot of which no beginning is noted has never streamed, and is
//! made anew.

use tokio::{sync::watch, time::interval_at};

use super::{
    Error,
    loss::Cure,
    proof::Proof,
    reading::{Source, Task},
    slot::Unusable,
    taken::Taken,
};
use crate::{
    chain::Chain,
    config::{Config, Snapshot},
    pipeline::{
        Lsn, Place,
        outbox::{AfterPublish, Outbox},
    },
    postgres::{
        self,
        conninfo::ConnInfo,
        dead_letter,
        progress::{self, Hold, Progress, ReadingKind},
        published::Published,
        quote,
        replication::{NewSlot, Replication},
        rows::{self, Plan, Unreadable},
        slot::{Blocker, FIRST_NEWS, NEWS_INTERVAL, blockers},
        sql::{self, Sql},
    },
    setup::names,
    status::{State, Status},
};

/// What is to be done before the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Nothing.
    Stream,
    /// The reading that began with the slot goes on.
    Resume(ReadingKind),
    /// A slot is made, and one that is there is dropped first; then tables are read.
    Make(ReadingKind),
    /// A reading was asked for, and is no more: the slot was made without it.
    Forget,
    /// There is no slot, and none is to be made here.
    Missing,
    /// A slot is made where there is none, and its stream goes on without what was lost.
    Accept,
}

/// `began`: there was a slot, whose beginning is known.
fn course(slot_exists: bool, began: bool, reading: Option<&progress::Reading>, snapshot: Snapshot) -> Course {
    match reading {
        // What has begun is brought to its end, whatever the configuration says by now.
        Some(reading) if slot_exists && reading.visible.is_some() => Course::Resume(reading.kind),
        Some(reading)
            if reading.visible.is_some() || reading.kind == ReadingKind::Recovery || snapshot == Snapshot::Initial =>
        {
            Course::Make(reading.kind)
        }
        Some(_) if slot_exists => Course::Forget,
        None if slot_exists => Course::Stream,
        // A slot that was there is lost, and what it had not sent is more than what was there before it.
        None if snapshot == Snapshot::Initial && !began => Course::Make(ReadingKind::Initial),
        Some(_) | None => Course::Missing,
    }
}

/// A slot to stream from.
pub(super) struct Ready {
    /// Its confirmed position.
    pub(super) start: Lsn,
    /// What is read before its stream.
    pub(super) task: Option<Task>,
}

/// Makes the slot, or goes on with what came before its stream, where that is to be done. None: asked to stop meanwhile.
pub(super) async fn prepare(
    config: &Config,
    status: &Status,
    taken: &Taken,
    connection: &mut Replication,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<Ready>, Error> {
    let Taken { identity, server, slot, in_the_way, cure, known, proof, .. } = taken;
    let missing = Unusable::Missing { slot: config.slot.clone(), database: identity.database.clone() };
    let began = known.as_ref().is_some_and(|known| known.started.is_some());
    let under_way = known.as_ref().and_then(|known| known.reading.as_ref());
    let course = match cure {
        Some(Cure::Recover) => Course::Make(ReadingKind::Recovery),
        Some(Cure::Accept) => Course::Accept,
        None => course(slot.is_some(), began, under_way, config.snapshot),
    };
    let maker = || match proof.as_ref().map(Proof::hold) {
        Some(hold) => Ok(Maker {
            config,
            status,
            server,
            system_identifier: &identity.system_identifier,
            hold,
            known: known.as_ref(),
        }),
        None => Err(Error::NoProgress { table: quote::qualified(names::home(config), progress::TABLE) }),
    };
    let start = slot.as_ref().map(|slot| slot.confirmed);
    let kind = match (course, start) {
        (Course::Stream, Some(start)) => return Ok(Some(Ready { start, task: None })),
        (Course::Forget, Some(start)) => {
            let maker = maker()?;
            let client = sql::connect(server).await?;
            maker.hold.forget_reading(&client).await?;
            return Ok(Some(Ready { start, task: None }));
        }
        (Course::Resume(kind), Some(start)) => match maker()?.resume(start).await? {
            Some(task) => return Ok(Some(Ready { start, task: Some(task) })),
            None => kind,
        },
        (Course::Make(kind), _) => kind,
        (Course::Accept, start) => {
            let (start, before) = match start {
                Some(start) => (start, None),
                None => {
                    let before =
                        progress::visible(&*sql::connect(server).await?).await.map_err(postgres::Error::from)?;
                    let made = replace(config, status, server, *in_the_way, connection, stop).await?;
                    let Some(NewSlot { consistent_point, .. }) = made else { return Ok(None) };
                    (consistent_point, Some(before))
                }
            };
            if let Some(proof) = proof {
                proof.hold().accept_gap(&*sql::connect(server).await?, start, before.as_deref()).await?;
            }
            return Ok(Some(Ready { start, task: None }));
        }
        (Course::Missing | Course::Stream | Course::Forget | Course::Resume(_), _) => return Err(missing.into()),
    };
    if slot.is_some() && cure.is_none() {
        tracing::info!("replication slot {} has never streamed, and is made anew", config.slot);
    }
    let task = maker()?.make(connection, kind, *in_the_way || slot.is_some(), stop).await?;
    Ok(task.map(|task| Ready { start: task.at, task: Some(task) }))
}

/// Who makes a slot, and for what.
struct Maker<'a> {
    config: &'a Config,
    status: &'a Status,
    server: &'a ConnInfo,
    system_identifier: &'a str,
    hold: &'a Hold,
    /// Before the slot is made.
    known: Option<&'a Progress>,
}

impl Maker<'_> {
    /// Makes the slot over the connection that will stream from it, and opens the session that reads in its snapshot. The
    /// wait for the slot ends when asked to stop: then there is none.
    async fn make(
        &self,
        connection: &mut Replication,
        kind: ReadingKind,
        in_the_way: bool,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<Task>, Error> {
        let client = sql::connect(self.server).await?;
        // What cannot be read is known before a slot is made for it.
        self.plans(&client).await?;
        self.hold.begin_reading(&client, kind).await?;
        drop(client);
        let made = replace(self.config, self.status, self.server, in_the_way, connection, stop).await?;
        let Some(NewSlot { consistent_point, snapshot }) = made else { return Ok(None) };
        let client = sql::connect(self.server).await?;
        let visible = rows::begin(&client, Some(&snapshot)).await?;
        // The other one is in a transaction that only reads.
        let notes = sql::connect(self.server).await?;
        self.hold.reading_started(&notes, &visible, consistent_point).await?;
        let sources = self.sources(&client, kind, self.plans(&client).await?, None).await?;
        Ok(Some(self.task(kind, consistent_point, sources, client)))
    }

    /// Goes on with the reading that is under way, before a stream from `start`. None: it can only be begun anew, because rows do not
    /// tell which transaction inserted them, or have no order.
    async fn resume(&self, start: Lsn) -> Result<Option<Task>, Error> {
        let Some(reading) = self.known.and_then(|known| known.reading.as_ref()) else { return Ok(None) };
        let (Some(visible), Some(at)) = (&reading.visible, reading.at) else { return Ok(None) };
        let client = sql::connect(self.server).await?;
        rows::begin(&client, None).await?;
        let plans = self.plans(&client).await?;
        if let Some(plan) = plans.iter().find(|plan| !plan.has_txid() || !plan.order_is_total()) {
            let why = if plan.has_txid() { "a unique order" } else { "a column with the id of its transaction" };
            // Such a slot is not to be dropped.
            if start > at {
                return Err(Unreadable::NoPlace { table: plan.table().clone(), why }.into());
            }
            tracing::warn!("rows of {} have not {why}: the reading of the table begins anew", plan.table());
            return Ok(None);
        }
        let sources = self.sources(&client, reading.kind, plans, Some(visible)).await?;
        let from = reading.key.as_deref().and_then(Place::parse);
        let first = match reading.kind {
            ReadingKind::Initial => 0,
            // Rows that became dead letters meanwhile are not read again: what is parked behind them stands behind them.
            ReadingKind::Recovery => self.behind_letters(&client, at).await?,
        };
        Ok(Some(Task { resumes: true, from, first, ..self.task(reading.kind, at, sources, client) }))
    }

    async fn plans(&self, client: &Sql) -> Result<Vec<Plan>, Unreadable> {
        Plan::all(client, &self.config.outboxes, &self.config.publication).await
    }

    /// What is read of each outbox. `visible`: only what is visible in it, read in a later snapshot.
    async fn sources(
        &self,
        client: &Sql,
        kind: ReadingKind,
        plans: Vec<Plan>,
        visible: Option<&str>,
    ) -> Result<Vec<Source>, postgres::Error> {
        let home = names::home(self.config);
        let letters = dead_letter::Access::read(client, home).await?;
        let dead_letters = letters.is_some_and(|letters| letters.select);
        for plan in plans.iter().filter(|plan| plan.order_is_a_guess()) {
            tracing::info!(
                "rows of {} are read in the order of its primary key: it has no seq, and order_by names no other columns",
                plan.table()
            );
        }
        let outboxes = self.config.outboxes.iter();
        let sources = outboxes.zip(plans).filter_map(|(outbox, plan)| {
            let txid = format!("o.{}", quote::ident(&outbox.columns.txid.name));
            let sees = |snapshot: &str| {
                format!(
                    "coalesce(pg_catalog.pg_visible_in_snapshot({txid}, {}::pg_catalog.pg_snapshot), true)",
                    quote::literal(snapshot)
                )
            };
            let mut conditions: Vec<String> = visible.map(sees).into_iter().collect();
            match plan.published() {
                // Whoever marked them has sent them.
                Some(published @ Published::Mark { .. }) if kind == ReadingKind::Initial => {
                    conditions.push(format!("not {}", published.condition(home, dead_letters)));
                }
                Some(Published::Txid(column)) if kind == ReadingKind::Initial && marks(outbox) => tracing::warn!(
                    "column {} of {} tells what is published: rows that somebody else has marked are sent too",
                    quote::ident(column),
                    plan.table()
                ),
                Some(_) | None => {}
            }
            if kind == ReadingKind::Recovery {
                // What of such a table was published nobody can say: to recover is to do without it.
                let published = plan.published()?;
                conditions.extend(self.known.map(|known| published.owed(known, home, dead_letters)));
                if dead_letters {
                    conditions.push(self.is_no_dead_letter(outbox));
                }
            }
            let condition = (!conditions.is_empty()).then(|| conditions.join(" and "));
            Some(Source { table: outbox.name.to_string(), plan, condition })
        });
        Ok(sources.collect())
    }

    /// A dead letter is durable where it is, and not lost.
    fn is_no_dead_letter(&self, outbox: &Outbox) -> String {
        format!(
            "(o.{} is null or not exists ({} and d.system_identifier = {} and d.slot = {}))",
            quote::ident(&outbox.columns.id),
            dead_letter::of_row(names::home(self.config), &outbox.name, &outbox.columns.id),
            quote::literal(self.system_identifier),
            quote::literal(&self.config.slot),
        )
    }

    /// The first ordinal behind the dead letters that this reading has left.
    async fn behind_letters(&self, client: &Sql, at: Lsn) -> Result<u32, postgres::Error> {
        let home = names::home(self.config);
        if !dead_letter::Access::read(client, home).await?.is_some_and(|letters| letters.select) {
            return Ok(0);
        }
        let Maker { config: Config { slot, .. }, system_identifier, .. } = self;
        dead_letter::next_ordinal(client, home, system_identifier, slot, at.of_older_rows()).await
    }

    fn task(&self, kind: ReadingKind, at: Lsn, sources: Vec<Source>, client: Sql) -> Task {
        let (hold, server) = (self.hold.clone(), self.server.clone());
        Task { kind, hold, server, at, sources, client, resumes: false, from: None, first: 0 }
    }
}

fn marks(outbox: &Outbox) -> bool {
    matches!(outbox.after_publish, AfterPublish::Mark(_))
}

/// Makes the slot over the connection that will stream from it, in place of one that is in the way. None: asked to stop
/// meanwhile.
async fn replace(
    config: &Config,
    status: &Status,
    server: &ConnInfo,
    in_the_way: bool,
    connection: &mut Replication,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<NewSlot>, Error> {
    let slot = &config.slot;
    if in_the_way {
        connection.query(&format!("SELECT pg_catalog.pg_drop_replication_slot({})", quote::literal(slot))).await?;
    }
    let made = create_slot(config, status, server, connection, stop).await?;
    if let Some(NewSlot { consistent_point, .. }) = &made {
        tracing::info!("replication slot {slot} is made, and begins at {consistent_point}");
    }
    Ok(made)
}

/// Waits as long as the server does, which is for every transaction that is writing to end.
async fn create_slot(
    config: &Config,
    status: &Status,
    server: &ConnInfo,
    connection: &mut Replication,
    stop: &mut watch::Receiver<bool>,
) -> Result<Option<NewSlot>, Error> {
    let slot = &config.slot;
    let pid = connection.backend_pid();
    status.enter(State::Preparing, Some(format!("replication slot {slot} is being made")));
    let mut ticks = interval_at(tokio::time::Instant::now() + FIRST_NEWS, NEWS_INTERVAL);
    let mut told = Vec::new();
    {
        let mut creation = std::pin::pin!(connection.create_slot(slot, config.failover));
        loop {
            tokio::select! {
                biased;
                made = &mut creation => return Ok(Some(made?)),
                _ = stop.wait_for(|stop| *stop) => {}
                _ = ticks.tick() => {
                    tell(config, status, server, pid, &mut told).await;
                    continue;
                }
            }
            // Else the server would wait on, and make the slot for nobody.
            let client = sql::connect(server).await?;
            client.execute("select pg_cancel_backend($1)", &[&pid]).await.map_err(postgres::Error::from)?;
            if creation.await.is_err() {
                return Ok(None);
            }
            break;
        }
    }
    connection.query(&format!("SELECT pg_catalog.pg_drop_replication_slot({})", quote::literal(slot))).await?;
    Ok(None)
}

/// Says what the making of the slot waits for.
async fn tell(config: &Config, status: &Status, server: &ConnInfo, pid: i32, told: &mut Vec<i32>) {
    let look = async {
        let client = sql::connect(server).await?;
        Ok::<_, postgres::Error>(blockers(&client, pid).await?)
    };
    let found = match look.await {
        Ok(found) => found,
        Err(error) => return tracing::debug!("what the slot waits for cannot be seen: {}", Chain(&error)),
    };
    let slot = &config.slot;
    let words: Vec<_> = found.iter().map(ToString::to_string).collect();
    let reason = match words.as_slice() {
        [] => format!("replication slot {slot} is being made"),
        words => format!("replication slot {slot} is being made, and waits for {}", words.join("; and ")),
    };
    let pids: Vec<_> = found.iter().map(Blocker::pid).collect();
    if *told != pids {
        tracing::info!("{reason}");
        *told = pids;
    }
    status.enter(State::Preparing, Some(reason));
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::postgres::progress;

    fn reading(kind: ReadingKind, begun: bool) -> progress::Reading {
        progress::Reading {
            kind,
            since: SystemTime::UNIX_EPOCH,
            visible: begun.then(|| "10:10:".to_owned()),
            at: begun.then_some(Lsn(8)),
            key: None,
        }
    }

    #[test]
    fn what_comes_before_the_stream() {
        use Snapshot::{Initial as Asks, Never};
        let (initial, recovery) = (ReadingKind::Initial, ReadingKind::Recovery);
        let pending = || Some(reading(initial, false));
        let begun = || Some(reading(initial, true));
        for (slot_exists, began, reading, snapshot, expected, why) in [
            (true, false, None, Asks, Course::Stream, "someone made it: what is older is not ours to send"),
            (true, true, None, Asks, Course::Stream, "as every day"),
            (false, false, None, Asks, Course::Make(initial), "the first start"),
            (false, false, None, Never, Course::Missing, "setup makes it"),
            (false, true, None, Asks, Course::Missing, "it is lost, which is worse"),
            (false, false, pending(), Asks, Course::Make(initial), "the making of it was stopped"),
            (true, false, pending(), Asks, Course::Make(initial), "where it begins is not known"),
            (true, false, pending(), Never, Course::Forget, "setup made it"),
            (false, false, pending(), Never, Course::Missing, "nobody asks any more"),
            (true, true, begun(), Asks, Course::Resume(initial), "a crash"),
            (true, true, begun(), Never, Course::Resume(initial), "what has begun is ended"),
            (false, true, begun(), Never, Course::Make(initial), "it is lost, and nothing of its log was sent"),
            (false, true, Some(reading(recovery, false)), Never, Course::Make(recovery), "a crash"),
            (true, true, Some(reading(recovery, false)), Never, Course::Make(recovery), "a crash a little later"),
            (true, true, Some(reading(recovery, true)), Never, Course::Resume(recovery), "and later"),
        ] {
            assert_eq!(course(slot_exists, began, reading.as_ref(), snapshot), expected, "{why}");
        }
    }
}
