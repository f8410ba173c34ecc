//! `walpost check`: all that is wrong, at once.

mod deep;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio_postgres::Client;

use super::{Exit, output};
use crate::{
    chain::Chain,
    check::{self, Clock, Finding, Severity},
    config::{Config, Debezium, Flags, Needs, OnPoison, Sink, Snapshot},
    kafka::{facts::Kafka, topics::Pattern},
    postgres::{
        attempt,
        bookmark::Bookmark,
        dead_letter,
        mark::{Marker, Unmarkable},
        progress::{self, Progress},
        publication::Publication,
        quote,
        replication::Replication,
        server,
        server::Server,
        slot::Slot,
        sql,
        table::Table,
    },
    prune::{self, Order},
    setup::{facts::EmitFacts, names, tables},
    sink,
};

/// A rate is what changes in so long at least.
const RATE_OVER: Duration = Duration::from_secs(1);
/// How long Kafka may take to answer.
const KAFKA_TIMEOUT: Duration = Duration::from_secs(5);

/// List all that is wrong with database and Kafka, each with what mends it
///
/// Exits with 3 when there is an error or a warning, with 0 when there are at most notes. In JSON each of `findings` has
/// `severity` (error, warning or note), `about`, `what` and `remedy`; the worst come first.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  walpost check -c walpost.toml --json\n  walpost check --deep --within 1h")]
pub struct Args {
    /// Read the topics too, and find rows that are called published and are in none. Takes as long as reading them does.
    #[arg(long)]
    deep: bool,
    /// How long that may take.
    #[arg(long, requires = "deep", default_value = "10m", value_parser = humantime::parse_duration, value_name = "DURATION")]
    within: Duration,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let config = Config::load(&args.flags, Needs::BOTH)?;
    let patterns = Pattern::all(&config);
    let kafka = async {
        match config.sink {
            Sink::Kafka => Some(Kafka::read(&config, &patterns, KAFKA_TIMEOUT).await),
            Sink::Webhook | Sink::RabbitMq | Sink::Stdout => None,
        }
    };
    let (mut findings, kafka, reached) = tokio::join!(database(&config), kafka, sink::reach(&config));
    findings.extend(check::transport(&config));
    if let Some(Err(reason)) = reached {
        findings.push(check::unreachable_broker(&reason));
    }
    match kafka {
        None if args.deep => anyhow::bail!("--deep reads Kafka's topics, and sink.kind is another"),
        None => {}
        Some(Ok(facts)) => {
            findings.extend(check::kafka(&config, &facts));
            if args.deep {
                findings.extend(deep::examine(&config, &facts, args.within).await?);
            }
        }
        Some(Err(error)) => findings.push(check::unreachable(&config.brokers, &error)),
    }
    findings.sort_by_key(|finding| finding.severity);
    if args.json {
        output::print(format_args!("{}\n", json!({ "findings": findings })))?;
    } else {
        output::print(text(&findings))?;
    }
    let worst = findings.first().map_or(Severity::Note, |finding| finding.severity);
    Ok(if worst == Severity::Note { Exit::Done } else { Exit::Findings })
}

/// All findings of the database; that it cannot be reached is one.
async fn database(config: &Config) -> Vec<Finding> {
    match ask_database(config).await {
        Ok(findings) => findings,
        Err(error) => vec![Finding::error(
            "database",
            format!("cannot be examined: {}", Chain(&*error)),
            "start the server, or mend `database_url`; what else is wrong with the database shows only then",
        )],
    }
}

async fn ask_database(config: &Config) -> anyhow::Result<Vec<Finding>> {
    let client = sql::connect(&config.database).await?;
    let config = &tables::look_up(&client, config.clone()).await?;
    let connector = config.debezium.as_ref().map(Debezium::connector);
    let server = Server::read(&client).await?;
    let slot = Slot::read(&client, server.major(), &config.slot).await?;
    let looked = Instant::now();
    let bookmarks = Bookmark::all(&client, server.major(), &config.slot).await?;
    let publication = Publication::read(&client, server.major(), &config.publication).await?;
    let mut tables = Vec::with_capacity(config.outboxes.len());
    for outbox in &config.outboxes {
        tables.push(Table::read(&client, &outbox.name.schema, &outbox.name.table).await?);
    }
    let home = names::home(config);
    let letters = dead_letter::Access::read(&client, home).await?;
    let progress = progress::Access::read(&client, home).await?;
    let known = match progress {
        Some(access) if access.select => Progress::read(&client, home, &config.slot).await?,
        Some(_) | None => None,
    };
    let system_identifier = progress::system_identifier(&client).await?;
    let senders = server::synchronous_senders(&client).await?;

    // What replicating needs is proven by doing it.
    let mut findings = check::server(&server, slot.as_ref(), config.status_interval);
    match Replication::connect(&config.database).await {
        Ok(session) => session.close().await,
        Err(error) => findings.push(Finding::error(
            "replication connection",
            format!("is refused: {}", Chain(&error)),
            "see what the refusal names; ordinary SQL works with the same `database_url`",
        )),
    }
    findings
        .extend(check::synchronous(&senders, &config.slot).or_else(|| {
            check::synchronous_names(&server.synchronous_standby_names, &config.database.application_name)
        }));
    let outboxes: Vec<_> = config.outboxes.iter().zip(tables.iter().map(Option::as_ref)).collect();
    for (outbox, table) in &outboxes {
        findings.extend(check::outbox(outbox, *table, &server.role));
    }
    if let Some(emit) = EmitFacts::read(&client, config).await? {
        findings.extend(check::emit(config, emit.exist, emit.current));
    }
    findings.extend(match connector {
        Some(connector) => check::connector_publication(config, connector, publication.as_ref(), &outboxes),
        None => check::publication(&config.publication, publication.as_ref(), &outboxes, slot.is_some()),
    });
    findings.extend(connector.and_then(|_| check::connector_slot(config, slot.as_ref())));
    let here = known.as_ref().filter(|known| known.system_identifier == system_identifier);
    match (check::loss(config, slot.as_ref(), here), &slot, config.snapshot) {
        (Some(loss), ..) => findings.push(loss),
        (None, None, snapshot) if snapshot == Snapshot::Initial || connector.is_some() => {
            findings.push(check::slot_to_be_made(&config.slot, snapshot));
        }
        (None, slot, _) => {
            let lost_in = lost_in(&client, &server, slot.as_ref(), looked).await?;
            findings.extend(check::slot(&config.slot, slot.as_ref(), &server.database, lost_in));
        }
    }
    findings.extend(check::failover(config.failover, &server, slot.as_ref()));
    findings.extend(check::progress(home, progress.as_ref(), known.as_ref(), &system_identifier, &server.role));
    findings.extend(check::rewind(&config.slot, known.as_ref()));
    findings.extend(check::bookmarks(&bookmarks, slot.as_ref(), config.bookmarks, &server));
    findings.extend(keeping(config, &client).await?);
    findings.extend(check::clock(clock(&client).await?));
    let counts = attempt::Table::find(&client, home, &system_identifier, &config.slot).await?.is_some();
    findings.extend(check::sink(config, home, counts));
    let needed = matches!(config.on_poison, Some(OnPoison::Park | OnPoison::DeadLetter));
    let topic_does =
        config.dead_letter_topic.is_some() && config.on_poison != Some(OnPoison::Park) && letters.is_none();
    if config.on_poison != Some(OnPoison::Halt) && !topic_does {
        findings.extend(check::dead_letter(home, letters.as_ref(), &server.role, needed));
    }
    let first = backend_pid(&client).await?;
    drop(client);
    let second = sql::connect(&config.database).await?;
    findings.extend(check::pooler(first, backend_pid(&second).await?));
    Ok(findings)
}

async fn backend_pid(client: &Client) -> Result<i32, tokio_postgres::Error> {
    client.query_one("select pg_backend_pid()", &[]).await?.try_get(0)
}

async fn clock(client: &Client) -> Result<Clock, tokio_postgres::Error> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    // Prepared first, so that one message goes there and back in between.
    let statement = client.prepare("select extract(epoch from clock_timestamp())::float8").await?;
    let asked = now();
    let server = client.query_one(&statement, &[]).await?.try_get(0)?;
    Ok(Clock { server, asked, answered: now() })
}

/// Looks at the slot once more, where there is a limit to what may be written.
async fn lost_in(
    client: &Client,
    server: &Server,
    first: Option<&Slot>,
    looked: Instant,
) -> anyhow::Result<Option<Duration>> {
    let Some(first) = first.filter(|slot| slot.safe_bytes.is_some()) else { return Ok(None) };
    tokio::time::sleep(RATE_OVER.saturating_sub(looked.elapsed())).await;
    let second = Slot::read(client, server.major(), &first.name).await?;
    Ok(second.and_then(|second| check::lost_in(first, &second, looked.elapsed())))
}

/// What `prune.every` and `after_publish` cannot do.
async fn keeping(config: &Config, client: &Client) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for outbox in &config.outboxes {
        let about = format!("table {}", quote::qualified(&outbox.name.schema, &outbox.name.table));
        match Marker::read(client, outbox, &config.publication, config.on_update).await {
            Ok(_) => {}
            Err(Unmarkable::Postgres(error)) => return Err(error.into()),
            Err(error) => findings.push(Finding::error(
                about.clone(),
                format!("cannot be written after publishing: {error}"),
                "what it names, or after_publish = \"keep\"",
            )),
        }
        if config.prune_every.is_none() {
            continue;
        }
        let order = Order { config, retention: config.retention, dry_run: false };
        match prune::examine(&order, outbox).await {
            // It comes with the first run.
            Ok(()) | Err(prune::Error::NoProgress { .. }) => {}
            Err(prune::Error::Postgres(error)) => return Err(error.into()),
            Err(error) => findings.push(Finding::warning(
                about,
                format!("is not pruned: {error}"),
                "what it names, or leave prune.every out",
            )),
        }
    }
    Ok(findings)
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { severity, about, what, remedy } in findings {
        text.push_str(&format!("{severity:<8} {about} {what}\n         {remedy}\n"));
    }
    let count = |severity, word: &str| {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
        format!("{count} {word}{}", if count == 1 { "" } else { "s" })
    };
    let errors = count(Severity::Error, "error");
    let warnings = count(Severity::Warning, "warning");
    text.push_str(&format!("{errors}, {warnings}, {}\n", count(Severity::Note, "note")));
    text
}
