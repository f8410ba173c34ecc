//! `walpost replay`: sends published events again, beside the stream.
//!
//! From the log where a bookmark still holds it, exactly as the stream sent them; else from the rows of the tables. Nothing
//! here touches the slot, the proof or the dead letters.

mod meter;
mod pace;
mod pump;
pub(super) mod range;
mod selection;
mod source;

use anyhow::{Context, bail};
use clap::{ArgGroup, value_parser};
use tokio::sync::watch;

use self::{
    meter::{Meter, Whole},
    pump::{Ended, Pump, Sink, Tally},
    range::{Place, choose, shown},
    selection::Selection,
    source::{Log, Source, Table},
};
use super::{Exit, output, run::stop_signal, with_tables};
use crate::{
    config::{self, Config, Flags, Needs},
    pipeline::{
        Lsn,
        outbox::{Optional, Outbox, is_topic},
        template::Template,
    },
    postgres::{
        bookmark::{Bookmark, Name},
        dead_letter, progress,
        quote::qualified,
        replication::{Identity, Replication},
        rows::{self, Plan, Rows},
        slot::Slot,
        sql::{self, Sql},
    },
    setup::names,
    sink::{self, kafka},
};

/// Send published events again, from the log or from the table
///
/// From the log: --from-lsn or --bookmark, as far as a bookmark holds it, in the order and with the position of the stream.
/// From the table: the rows that are still there, in the order of seq, without a position. The records go where they went,
/// with a last header replay: true. The stream goes on meanwhile and is not touched. Exits with 3 when some events could not
/// be sent, with 1 when it was stopped or nothing matches.
#[derive(clap::Args)]
#[command(
    group(ArgGroup::new("what").args(["from_lsn", "bookmark"]).args(selection::OPTIONS).required(true).multiple(true)),
    group(ArgGroup::new("log").args(["from_lsn", "to_lsn", "bookmark"]).multiple(true).conflicts_with_all(selection::OPTIONS)),
    group(ArgGroup::new("where").args(["topic", "stdout", "dry_run"])),
    after_help = "Examples:\n  walpost replay --from-lsn 16/B374D848 --dry-run\n  \
                  walpost replay --bookmark before_deploy --topic orders.again --rate 500\n  \
                  walpost replay --aggregate order/o-812 --since 2h"
)]
pub struct Args {
    /// Events from this place in the log on: as PostgreSQL prints it, or the position of a record.
    #[arg(long, value_name = "LSN")]
    from_lsn: Option<Place>,
    /// Up to this transaction or event, included; else up to where the slot is confirmed now.
    #[arg(long, value_name = "LSN")]
    to_lsn: Option<Place>,
    /// From this bookmark; else from the newest one at or before --from-lsn.
    #[arg(long, value_name = "NAME")]
    bookmark: Option<Name>,
    #[command(flatten)]
    selection: Selection,
    /// Send all of it to this topic.
    #[arg(long, value_name = "TOPIC", value_parser = topic)]
    topic: Option<String>,
    /// Print one JSON object a line, and send nothing.
    #[arg(long)]
    stdout: bool,
    /// Count the events for each topic, and send nothing.
    #[arg(long)]
    dry_run: bool,
    /// Most records a second.
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    flags: Flags,
}

fn topic(name: &str) -> Result<String, String> {
    match is_topic(name) {
        true => Ok(name.to_owned()),
        false => Err("Kafka takes 1 to 249 of a-z A-Z 0-9 . _ - and neither \".\" nor \"..\"".to_owned()),
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<Exit> {
    let sends = !args.stdout && !args.dry_run;
    let config = with_tables(Config::load(&args.flags, if sends { Needs::BOTH } else { Needs::DATABASE })?).await?;
    if args.topic.is_some() && config.sink == config::Sink::Webhook {
        bail!("--topic names a topic, and sink.kind is \"webhook\": give --webhook-url in its place");
    }
    let mut stop = stop_signal("what is under way may or may not arrive")?.subscribe();
    let job = Job { args: &args, config: &config };
    if args.from_lsn.is_some() || args.bookmark.is_some() {
        job.log(&mut stop).await
    } else {
        job.table(&mut stop).await
    }
}

struct Job<'a> {
    args: &'a Args,
    config: &'a Config,
}

impl Job<'_> {
    async fn log(&self, stop: &mut watch::Receiver<bool>) -> anyhow::Result<Exit> {
        let (args, config) = (self.args, self.config);
        let mut connection = Replication::connect(&config.database).await?;
        let Identity { system_identifier, .. } = connection.identify_system().await?;
        let client = sql::connect(connection.server()).await?;
        let major = client.major();
        let Some(live) = Slot::read(&client, major, &config.slot).await? else {
            bail!("there is no slot {}, so nothing says what is published", config.slot);
        };
        let bookmarks = Bookmark::all(&client, major, &config.slot).await?;
        let (slot, range) = choose(&bookmarks, &live, args.bookmark.as_ref(), args.from_lsn, args.to_lsn)?;
        drop(client);
        let sink = self.sink(&system_identifier)?;
        let (log, start) = Log::open(config, connection, slot, range).await?;
        tracing::info!(from = shown(range.from), until = shown(range.until), through = slot, "replaying the log");
        let meter = Meter::new(Whole::Log { from: range.from.commit_lsn, until: range.until.commit_lsn });
        let mut pump = Pump::new(config, self.outboxes(), start, sink, args.rate, meter);
        pump.pipeline.take_messages(&self.redirected(&config.messages));
        log.prepare(&mut pump.pipeline);
        let mut source = Source::Log(Box::new(log));
        let ended = pump.run(&mut source, stop).await;
        let tally = pump.close().await;
        source.close().await;
        let next = shown(tally.next().unwrap_or(range.from));
        let go_on = format!("to go on: --from-lsn {next}");
        self.told(ended.with_context(|| go_on.clone())?, &tally, &go_on)
    }

    async fn table(&self, stop: &mut watch::Receiver<bool>) -> anyhow::Result<Exit> {
        let config = self.config;
        if config.outboxes.is_empty() && !config.messages.is_empty() {
            bail!("messages are in no table: choose a range of the log, by --from-lsn and --to-lsn");
        }
        let client = sql::connect(&config.database).await?;
        let system_identifier = progress::system_identifier(&client).await?;
        rows::begin(&client, None).await?;
        let all = Plan::all(&client, &config.outboxes, &config.publication).await?;
        let mut plans = Vec::with_capacity(all.len());
        let mut count = 0;
        for (outbox, plan) in config.outboxes.iter().zip(all) {
            let condition = self.condition(&client, outbox, &plan, &system_identifier).await?;
            let counted = plan.count(&client, Some(&condition)).await;
            count += counted.with_context(|| format!("rows of {} cannot be chosen so", outbox.name))?;
            plans.push((plan, condition));
        }
        if count == 0 {
            bail!("no row matches");
        }
        let mut pump = Pump::new(
            config,
            self.outboxes(),
            Lsn::INVALID,
            self.sink(&system_identifier)?,
            self.args.rate,
            Meter::new(Whole::Rows(count)),
        );
        let mut go_on = String::new();
        let mut ended = Ok(Ended::All);
        for (plan, condition) in plans {
            let name = plan.table().to_string();
            let table = Table::new(Rows::open(&client, plan, Some(&condition), None).await?);
            table.prepare(&mut pump.pipeline);
            let mut source = Source::Table(Box::new(table));
            ended = pump.run(&mut source, stop).await;
            if !matches!(ended, Ok(Ended::All)) {
                if let Source::Table(table) = &source {
                    go_on = format!("the last row that was read is {} of {name}", table.last());
                }
                break;
            }
            pump.pipeline.end_reading();
        }
        let tally = pump.close().await;
        self.told(ended.with_context(|| go_on.clone())?, &tally, &go_on)
    }

    /// The condition on rows of an outbox.
    async fn condition(
        &self,
        client: &Sql,
        outbox: &Outbox,
        plan: &Plan,
        system_identifier: &str,
    ) -> anyhow::Result<String> {
        let (selection, config) = (&self.args.selection, self.config);
        let condition = selection.condition(outbox);
        if !selection.unproven {
            return Ok(condition);
        }
        let Some(published) = plan.published() else {
            bail!(
                "nothing tells which rows of {} are proven: it has no column {}",
                outbox.name,
                outbox.columns.txid.name
            );
        };
        let home = names::home(config);
        let has_letters = dead_letter::Access::read(client, home).await?.is_some();
        let readable = progress::Access::read(client, home).await?.is_some_and(|access| access.select);
        if published.is_by_progress() && !readable {
            let table = qualified(home, progress::TABLE);
            bail!(
                "nothing tells what is proven: table {table} does not exist or may not be read; walpost setup makes it"
            );
        }
        let is_published = published.of_slot(home, has_letters, &config.slot, system_identifier);
        Ok(format!("{condition} and not {is_published}"))
    }

    fn sink(&self, system_identifier: &str) -> anyhow::Result<Sink> {
        if self.args.dry_run {
            return Ok(Sink::Count);
        }
        if self.args.stdout {
            return Ok(Sink::Real(Box::new(sink::Sink::stdout())));
        }
        // No position is stored, so it is nobody's timeline.
        let source = kafka::Source { system_identifier, timeline: 0, generation: 0 };
        Ok(Sink::Real(Box::new(sink::Sink::aside(self.config, source)?)))
    }

    fn outboxes(&self) -> Vec<Outbox> {
        self.redirected(&self.config.outboxes)
    }

    /// Outboxes with another topic where one is asked for: neither template nor column has a say then.
    fn redirected(&self, outboxes: &[Outbox]) -> Vec<Outbox> {
        let mut outboxes = outboxes.to_vec();
        if let Some(topic) = &self.args.topic {
            for outbox in &mut outboxes {
                outbox.topic = topic.parse::<Template>().expect("a topic's name is a template without columns");
                // No column has this name.
                outbox.columns.destination = Optional { name: String::new(), named: false };
            }
        }
        outboxes
    }

    fn told(&self, ended: Ended, tally: &Tally, go_on: &str) -> anyhow::Result<Exit> {
        let verb = if self.args.dry_run { "would be replayed" } else { "replayed" };
        let mut text =
            format!("{verb}: {} event{}\n", tally.delivered(), if tally.delivered() == 1 { "" } else { "s" });
        for (topic, count) in &tally.topics {
            text.push_str(&format!("  {topic}: {count}\n"));
        }
        for (count, what) in [
            (tally.poison, "of which no record can be made (the log has them)"),
            (tally.refused, "that were refused (the log has them)"),
        ] {
            if count > 0 {
                text.push_str(&format!("left out: {count} {what}\n"));
            }
        }
        if ended == Ended::Stopped {
            text.push_str(&format!("stopped before the end; {go_on}\n"));
        }
        // Standard output is for the records alone.
        if self.args.stdout {
            text.lines().for_each(|line| tracing::info!("{line}"));
        } else {
            output::print(text)?;
        }
        Ok(match ended {
            Ended::Stopped => Exit::Failed,
            Ended::All if tally.poison + tally.refused > 0 => Exit::Findings,
            Ended::All => Exit::Done,
        })
    }
}
