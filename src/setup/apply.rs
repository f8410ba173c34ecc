//! Carries a plan out: one transaction for all statements, then the slot. A failure leaves nothing half made.

use std::future::Future;

use tokio_postgres::{Client, Error};

use super::{
    names,
    plan::{Action, Plan, Step},
    record,
};
use crate::{
    config::Config,
    postgres::{
        coverage, progress, quote,
        slot::{self, Blocker, SlotError},
        sql::Sql,
    },
};

/// Why a plan was not carried out. Nothing of the step that failed is left.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("could not {title}")]
    Step { title: String, source: Error },
    #[error("another set-up is at work in this database; run this one again when it has ended")]
    Busy,
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("the slot could not be recorded for teardown, and is dropped again")]
    Record(#[source] Error),
    #[error("the beginning of the proof of publication could not be written; run setup again")]
    Progress(#[source] Error),
    #[error("the server failed")]
    Sql(#[from] Error),
}

/// What is to be told while a plan is carried out.
#[derive(Debug)]
pub enum News<'a> {
    Done(&'a str),
    /// Making the slot waits for these; none named: for the server to see all of them.
    Waiting(&'a [Blocker]),
}

/// Makes what the plan may make. `observer` is a second session of the same role; `cancelled` ends the wait for the slot.
pub async fn apply(
    client: &Sql,
    observer: &Client,
    config: &Config,
    plan: &Plan,
    mut news: impl FnMut(News<'_>),
    cancelled: impl Future<Output = ()>,
) -> Result<(), ApplyError> {
    // Two set-ups at once would trip over each other's IF NOT EXISTS. The lock goes with the session.
    let lock = client.query_one("select pg_try_advisory_lock(hashtextextended('walpost setup', 0))", &[]).await?;
    if !lock.try_get::<_, bool>(0)? {
        return Err(ApplyError::Busy);
    }
    let home = names::home(config);
    let steps: Vec<_> = plan.ours().filter(|step| step.action == Action::Statements).collect();
    client.batch_execute("begin").await?;
    if let Err(error) = statements(client, home, &steps, plan.recorded).await {
        // A rollback that fails is the end of the session, which rolls back too.
        client.batch_execute("rollback").await.ok();
        return Err(error);
    }
    client.batch_execute("commit").await?;
    for step in &steps {
        news(News::Done(&step.title));
    }
    for step in plan.ours().filter(|step| step.action == Action::Index) {
        index(client, config, step).await?;
        news(News::Done(&step.title));
    }
    let rewrite = plan.ours().find(|step| step.action == Action::Rewrite);
    if let Some(step) = rewrite {
        client
            .batch_execute(&step.sql)
            .await
            .map_err(|source| ApplyError::Step { title: step.title.clone(), source })?;
    }
    let adopted = plan.ours().find(|step| step.action == Action::Adopt);
    let slot = plan.ours().find(|step| step.action == Action::Slot);
    if slot.or(adopted).is_some() && !slot::try_lock(client, &config.slot).await? {
        return Err(SlotError::InUse(config.slot.clone()).into());
    }
    if adopted.is_some() {
        is_free(client, config).await?;
    }
    let proves = progress::Access::read(client, home).await?.is_some_and(progress::Access::streams);
    let prove = |statements: String| async move {
        match proves {
            true => client.batch_execute(&statements).await.map_err(ApplyError::Progress),
            false => Ok(()),
        }
    };
    let published = coverage::published(&config.publication, &config.outboxes, client.major());
    if let Some(step) = slot {
        prove(progress::prepare_sql(home, &config.slot, &config.publication, &published)).await?;
        let role: String = client.query_one("select current_user::text", &[]).await?.try_get(0)?;
        let waiting = |blockers: &[Blocker]| news(News::Waiting(blockers));
        let made = slot::create(client, observer, &config.slot, config.failover, &role, waiting, cancelled).await;
        prove(progress::settle_sql(home, &config.slot)).await?;
        made?;
        if plan.recorded {
            if let Err(error) = record::write(client, home, &step.makes).await {
                slot::drop(client, &config.slot, &role).await?;
                return Err(ApplyError::Record(error));
            }
        }
        news(News::Done(&step.title));
    }
    if slot.is_none() && rewrite.or(adopted).is_some() {
        prove(progress::begin_sql(home, &config.slot, &config.publication, &published)).await?;
    }
    for step in [rewrite, adopted].into_iter().flatten() {
        news(News::Done(&step.title));
    }
    Ok(())
}

/// Makes the index of versions. What was left of one by a set-up that was ended goes first: it serves nobody.
async fn index(client: &Client, config: &Config, step: &Step) -> Result<(), ApplyError> {
    let tables: Vec<_> = config.outboxes.iter().map(|it| quote::qualified(&it.name.schema, &it.name.table)).collect();
    let left = client
        .query(
            "select format('drop index concurrently if exists %s', i.indexrelid::regclass)
             from pg_index i join pg_attribute a on attrelid = indrelid and attnum = any (indkey)
             where not indisvalid and attname = 'aggregate_version'
               and indrelid in (select to_regclass(name) from unnest($1::text[]) as name)",
            &[&tables],
        )
        .await?;
    let mut statements = Vec::new();
    for row in &left {
        statements.push(row.try_get::<_, &str>(0)?);
    }
    statements.push(&step.sql);
    for statement in statements {
        let failed = |source| ApplyError::Step { title: step.title.clone(), source };
        client.batch_execute(statement).await.map_err(failed)?;
    }
    Ok(())
}

/// Nobody streams from the slot that is to be adopted.
async fn is_free(client: &Client, config: &Config) -> Result<(), ApplyError> {
    let free = "select from pg_replication_slots where slot_name = $1 and not active";
    match client.query_opt(free, &[&config.slot]).await? {
        Some(_) => Ok(()),
        None => Err(SlotError::InUse(config.slot.clone()).into()),
    }
}

async fn statements(client: &Client, home: &str, steps: &[&Step], recorded: bool) -> Result<(), ApplyError> {
    for step in steps {
        let failed = |source| ApplyError::Step { title: step.title.clone(), source };
        client.batch_execute(&step.sql).await.map_err(failed)?;
    }
    if recorded {
        for step in steps {
            record::write(client, home, &step.makes).await?;
        }
    }
    Ok(())
}
