//! Schema, publication, slots and topics of a trial.
//!
//! Whatever is made is noted before it is made, so that a trial that is cut off anywhere can be cleared away. A trial
//! that is killed cannot: the next one says what it left, since a forgotten slot keeps the server's log.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    types::RDKafkaErrorCode,
};

use super::{
    child::Child,
    comparison::{Comparison, uuid},
    nonce,
};
use crate::{
    config::Config,
    kafka::client,
    postgres::{
        conninfo::ConnInfo,
        schema::{Names, Variant},
        sql::{self, Sql},
    },
};

/// Answers of Kafka's admin interface, and slots that are still held, are not awaited longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// One trial's things on the servers.
pub struct Site {
    database: ConnInfo,
    kafka: ClientConfig,
    sql: Sql,
    backend_pid: i32,
    name: String,
    slots: Vec<String>,
    topics: Vec<String>,
}

impl Site {
    /// Makes schema, outbox and publication. `purpose` becomes a part of all names.
    pub async fn make(config: &Config, purpose: &str) -> anyhow::Result<Site> {
        let sql = sql::connect(&config.database).await?;
        let backend_pid = sql.query_one("SELECT pg_catalog.pg_backend_pid()", &[]).await?.try_get(0)?;
        let level: String = sql.query_one("SHOW wal_level", &[]).await?.try_get(0)?;
        if level != "logical" {
            bail!("wal_level is {level}; ALTER SYSTEM SET wal_level = logical, then restart PostgreSQL");
        }
        warn_of_leftovers(&sql, purpose).await?;
        let name = format!("walpost_{purpose}_{:08x}", nonce() as u32);
        let site = Site {
            database: config.database.clone(),
            kafka: client::consumer_properties(config),
            sql,
            backend_pid,
            name,
            slots: Vec::new(),
            topics: Vec::new(),
        };
        match site.make_schema().await {
            Ok(()) => Ok(site),
            Err(error) => {
                site.remove().await?;
                Err(error)
            }
        }
    }

    async fn make_schema(&self) -> anyhow::Result<()> {
        let names = Names { schema: self.name.clone(), table: "outbox".to_owned(), publication: self.name.clone() };
        for sql in [names.outbox(Variant::Plain), names.enqueue(Variant::Plain), names.publication()] {
            self.sql.batch_execute(&sql).await.context("the trial's schema cannot be made")?;
        }
        Ok(())
    }

    /// The session that made it all, for SQL.
    pub fn sql(&self) -> &Sql {
        &self.sql
    }

    /// Name of schema and publication.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The outbox, as SQL writes it.
    pub fn table(&self) -> String {
        format!("{}.outbox", self.name)
    }

    /// Properties of a client of this Kafka.
    pub fn kafka(&self) -> &ClientConfig {
        &self.kafka
    }

    /// Makes a slot at the log's end. A passing one goes with the session.
    pub async fn slot(&mut self, suffix: &str, passing: bool) -> anyhow::Result<String> {
        let slot = format!("{}_{suffix}", self.name);
        self.slots.push(slot.clone());
        let make = "SELECT pg_catalog.pg_create_logical_replication_slot($1, 'pgoutput', $2)";
        self.sql.query(make, &[&slot, &passing]).await.with_context(|| format!("slot {slot} cannot be made"))?;
        Ok(slot)
    }

    /// Makes a slot that stands where another one does.
    pub async fn copy_slot(&mut self, from: &str, suffix: &str) -> anyhow::Result<String> {
        let slot = format!("{}_{suffix}", self.name);
        self.slots.push(slot.clone());
        let copy = "SELECT pg_catalog.pg_copy_logical_replication_slot($1, $2, false)";
        self.sql.query(copy, &[&from, &slot]).await.with_context(|| format!("slot {from} cannot be copied"))?;
        Ok(slot)
    }

    /// Makes a topic, with as many replicas as the broker's default says.
    pub async fn topic(&mut self, suffix: &str, partitions: i32) -> anyhow::Result<String> {
        const BROKER_DEFAULT: i32 = -1;
        let topic = format!("{}-{suffix}", self.name.replace('_', "-"));
        self.topics.push(topic.clone());
        let new = NewTopic::new(&topic, partitions, TopicReplication::Fixed(BROKER_DEFAULT));
        let made = self.admin()?.create_topics([&new], &admin_options()).await;
        let made =
            made.with_context(|| format!("topic {topic} cannot be made; does Kafka answer at {}?", self.brokers()))?;
        match made.into_iter().next() {
            Some(Err((_, code))) => bail!("topic {topic} cannot be made: {code}"),
            Some(Ok(_)) | None => Ok(topic),
        }
    }

    /// Waits until walpost streams from the slot.
    pub async fn streams(&self, child: &mut Child, slot: &str) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE * 3;
        let active = "SELECT active FROM pg_catalog.pg_replication_slots WHERE slot_name = $1";
        while !self.sql.query_one(active, &[&slot]).await?.try_get::<_, bool>(0)? {
            child.check()?;
            if Instant::now() > until {
                bail!("walpost does not stream from slot {slot}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// What a consumer must get: the outbox's rows. Their order is that of the commits for each key that only one
    /// session writes.
    pub async fn committed(&self) -> anyhow::Result<Comparison> {
        let rows = format!("SELECT id::text, aggregate_id FROM {} ORDER BY seq", self.table());
        let rows = self.sql.query(&rows, &[]).await?;
        let mut events = Vec::with_capacity(rows.len());
        for row in &rows {
            let id = uuid(row.try_get::<_, &str>(0)?.as_bytes()).context("PostgreSQL prints uuids as digits")?;
            events.push((id, row.try_get::<_, &str>(1)?));
        }
        Ok(Comparison::new(events))
    }

    /// Drops a slot once its last reader is gone.
    pub async fn drop_slot(&mut self, slot: &str) -> anyhow::Result<()> {
        drop_slot(&self.sql, slot).await?;
        self.slots.retain(|known| known != slot);
        Ok(())
    }

    pub async fn drop_topic(&mut self, topic: &str) -> anyhow::Result<()> {
        delete_topics(&self.admin()?, &[topic]).await?;
        self.topics.retain(|known| known != topic);
        Ok(())
    }

    /// Takes everything away, as far as it goes; the error names what is left and how to remove it.
    pub async fn remove(self) -> anyhow::Result<()> {
        let Site { database, kafka, sql, backend_pid, name, slots, topics } = self;
        // What the session was about may go on in the server after it was dropped, and hold locks.
        drop(sql);
        let mut left = Vec::new();
        match sql::connect(&database).await {
            Ok(sql) => {
                let end = "SELECT pg_catalog.pg_terminate_backend($1) FROM pg_catalog.pg_stat_activity WHERE pid = $1";
                let _ = sql.query(end, &[&backend_pid]).await;
                for slot in &slots {
                    if let Err(error) = drop_slot(&sql, slot).await {
                        left.push(format!("SELECT pg_drop_replication_slot('{slot}') -- {error:#}"));
                    }
                }
                let statements =
                    [format!("DROP PUBLICATION IF EXISTS {name}"), format!("DROP SCHEMA IF EXISTS {name} CASCADE")];
                let _ = sql.batch_execute("SET lock_timeout = '10s'").await;
                for statement in statements {
                    if let Err(error) = sql.batch_execute(&statement).await {
                        left.push(format!("{statement} -- {error}"));
                    }
                }
            }
            Err(error) => {
                left.extend(slots.iter().map(|slot| format!("SELECT pg_drop_replication_slot('{slot}') -- {error}")));
                left.push(format!("DROP PUBLICATION IF EXISTS {name}; DROP SCHEMA IF EXISTS {name} CASCADE"));
            }
        }
        if !topics.is_empty() {
            let names: Vec<&str> = topics.iter().map(String::as_str).collect();
            let deleted = match admin(&kafka) {
                Ok(admin) => delete_topics(&admin, &names).await,
                Err(error) => Err(error),
            };
            if let Err(error) = deleted {
                left.push(format!("topics {}: {error:#}", names.join(", ")));
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        bail!("not everything of the trial could be removed; what is left:\n  {}", left.join("\n  "))
    }

    fn brokers(&self) -> &str {
        self.kafka.get("bootstrap.servers").unwrap_or_default()
    }

    fn admin(&self) -> anyhow::Result<AdminClient<DefaultClientContext>> {
        admin(&self.kafka)
    }
}

fn admin(kafka: &ClientConfig) -> anyhow::Result<AdminClient<DefaultClientContext>> {
    kafka.create().context("the admin client for Kafka cannot be made")
}

fn admin_options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE))
}

async fn delete_topics(admin: &AdminClient<DefaultClientContext>, topics: &[&str]) -> anyhow::Result<()> {
    for result in admin.delete_topics(topics, &admin_options()).await? {
        match result {
            Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
            Err((topic, code)) => bail!("topic {topic} cannot be deleted: {code}"),
        }
    }
    Ok(())
}

/// A slot that does not exist is as good as dropped.
async fn drop_slot(sql: &Sql, slot: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let drop = "SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots \
                    WHERE slot_name = $1 AND NOT active";
        sql.query(drop, &[&slot]).await?;
        let end = "SELECT pg_catalog.pg_terminate_backend(active_pid) FROM pg_catalog.pg_replication_slots \
                   WHERE slot_name = $1 AND active";
        if sql.query(end, &[&slot]).await?.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("slot {slot} is still in use after {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn warn_of_leftovers(sql: &Sql, purpose: &str) -> anyhow::Result<()> {
    let find = "SELECT slot_name::text FROM pg_catalog.pg_replication_slots \
                WHERE slot_name ~ ('^walpost_' || $1 || '_[0-9a-f]{8}_') AND NOT active AND NOT temporary";
    for row in sql.query(find, &[&purpose]).await? {
        let slot: String = row.try_get(0)?;
        tracing::warn!(
            "slot {slot} was left by a trial that was killed, and keeps the server's log: \
             SELECT pg_drop_replication_slot('{slot}')"
        );
    }
    Ok(())
}
