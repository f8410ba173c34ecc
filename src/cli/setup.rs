//! `walpost setup`: makes what is missing in the database, and shows it first.

use std::io::{IsTerminal, stdin, stdout};

use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::Client;

use super::{Exit, ask, output};
use crate::{
    check::Finding,
    config::{Config, Flags, Needs},
    postgres::{
        quote,
        schema::{self, INBOX_ROLE},
        server::Server,
        sql::{self, Sql},
    },
    setup::{
        Facts,
        apply::{self, News},
        inbox, names,
        plan::{self, Plan, Step, Wish},
        print, tables,
    },
};

/// Create what is missing in the database: schema, tables, functions, publication, roles, slot
///
/// Shows what is missing, then makes it; what exists is left as it is. What was made is recorded for teardown.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  walpost setup --database-url postgres://postgres@db/app\n  walpost setup --print | psql -v ON_ERROR_STOP=1 app\n  walpost setup --inbox --database-url postgres://postgres@db/billing\n  walpost setup --adopt --slot debezium --publication dbz_publication --preset debezium --table public.outboxevent"
)]
pub struct Args {
    /// Print the SQL for psql and do nothing; no connection is made.
    #[arg(long, conflicts_with_all = ["dry_run", "yes"])]
    print: bool,
    /// Show what is missing, with its SQL, and make nothing.
    #[arg(long)]
    dry_run: bool,
    /// Make a missing outbox partitioned by day.
    #[arg(long)]
    partitioned: bool,
    /// Take over a slot and a publication that exist, such as Debezium's, and change neither.
    #[arg(long)]
    adopt: bool,
    /// Make a consumer's inbox, and nothing else: schema, tables, functions, role. No outbox or slot is needed.
    #[arg(long, conflicts_with_all = ["partitioned", "adopt"])]
    inbox: bool,
    /// Do not ask first; it asks on a terminal only.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let wish = Wish { partitioned: args.partitioned, adopt: args.adopt };
    if args.print {
        let config = Config::load(&args.flags, Needs::NOTHING)?;
        output::print(match args.inbox {
            true => schema::inbox(names::home(&config)),
            false => print::script(&config, wish),
        })?;
        return Ok(Exit::Done);
    }
    let config = Config::load(&args.flags, Needs::DATABASE)?;
    let client = sql::connect(&config.database).await?;
    if args.inbox {
        return make_inbox(&args, &client, &config).await;
    }
    let config = tables::look_up(&client, config).await?;
    let facts = Facts::read(&client, &config).await?;
    let plan = plan::plan(&config, &facts, wish);
    if let Some(exit) = settle(&args, &plan, &facts.server).await? {
        return Ok(exit);
    }
    make(&client, &config, &plan).await?;
    if facts.slot.is_some() && facts.publication.is_none() {
        let slot = quote::ident(&config.slot);
        output::print(format_args!(
            "slot {slot} is older than the publication, and may have to read what was written without one: if walpost run \
             says so, drop the slot and run walpost setup again\n"
        ))?;
    }
    next(&client, &config).await?;
    Ok(Exit::Done)
}

/// Shows what is missing and asks; how it ends here, where nothing is to be made.
async fn settle(args: &Args, plan: &Plan, server: &Server) -> anyhow::Result<Option<Exit>> {
    show(plan, server, args.dry_run)?;
    if !plan.faults.is_empty() || plan.blocked().next().is_some() {
        output::print("nothing is made; see to what is marked with ! first, then run walpost setup again\n")?;
        return Ok(Some(Exit::Failed));
    }
    if args.dry_run || plan.ours().next().is_none() {
        return Ok(Some(Exit::Done));
    }
    if !args.yes && stdin().is_terminal() && stdout().is_terminal() && !ask("Make it?").await? {
        output::print("nothing is made\n")?;
        return Ok(Some(Exit::Done));
    }
    Ok(None)
}

async fn make_inbox(args: &Args, client: &Sql, config: &Config) -> anyhow::Result<Exit> {
    let home = names::home(config);
    let facts = inbox::Facts::read(client, home).await?;
    let plan = inbox::plan(home, &facts);
    if let Some(exit) = settle(args, &plan, &facts.server).await? {
        return Ok(exit);
    }
    make(client, config, &plan).await?;
    output::print(format_args!(
        "left to you: grant {INBOX_ROLE} to the consumer's role; select {}.inbox_retention(…) before the first prune\n",
        quote::ident(home)
    ))?;
    Ok(Exit::Done)
}

async fn make(client: &Sql, config: &Config, plan: &Plan) -> anyhow::Result<()> {
    let observer = sql::connect(&config.database).await?;
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let cancelled = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let mut unprinted = Ok(());
    let news = |news: News<'_>| match news {
        News::Done(title) => unprinted = output::print(format_args!("done: {title}\n")),
        News::Waiting([]) => tracing::info!("the slot waits for the server to reach a consistent point"),
        News::Waiting(blockers) => {
            for blocker in blockers {
                tracing::warn!("the slot waits for {blocker}");
            }
        }
    };
    apply::apply(client, &observer, config, plan, news, cancelled).await?;
    unprinted
}

/// What is missing, what is wrong, and what someone else must do.
fn show(plan: &Plan, server: &Server, with_sql: bool) -> anyhow::Result<()> {
    let mut text = String::new();
    let mut step = |step: &Step, mark: &str| {
        text.push_str(&format!("{mark} {}\n", step.title));
        if let Some(lacking) = &step.lacking {
            text.push_str(&format!("    lacking: {lacking}\n"));
        }
        if with_sql || (step.lacking.is_some() && !step.optional) {
            for line in step.sql.trim_end().lines() {
                text.push_str(&format!("    {line}\n"));
            }
        }
    };
    plan.ours().for_each(|one| step(one, "+"));
    plan.blocked().for_each(|one| step(one, "! someone with more rights must"));
    plan.skipped().for_each(|one| step(one, "- passed over (the stream works without):"));
    if plan.steps.is_empty() {
        text.push_str("everything exists already\n");
    } else if !plan.recorded {
        text.push_str("what is made is not recorded, so teardown will not drop it\n");
    }
    for Finding { about, what, remedy, .. } in &plan.notices {
        text.push_str(&format!("- {about} {what}\n    {remedy}\n"));
    }
    for Finding { about, what, remedy, .. } in &plan.faults {
        text.push_str(&format!("! {about} {what}\n    mend it first: {remedy}\n"));
    }
    let database = quote::ident(&server.database);
    output::print(format_args!("database {database}, PostgreSQL {}\n{text}", server.version_text))
}

/// What is left for a person to do.
async fn next(client: &Client, config: &Config) -> anyhow::Result<()> {
    let facts = Facts::read(client, config).await?;
    let mut text = String::new();
    if facts.stream_role_replicates == Some(false) {
        text.push_str("left to a superuser: alter role walpost_stream replication\n");
    }
    if facts.missing_roles.is_empty() {
        text.push_str(
            "left to you: alter role walpost_stream login password '…'; grant walpost_enqueue to the application's role\n",
        );
    }
    text.push_str("next: walpost check, then walpost run\n");
    output::print(text)
}
