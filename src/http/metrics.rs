//! `/metrics`: the status of the moment as Prometheus or OpenMetrics text.
//!
//! A gauge whose value cannot be known now is left out: a dashboard with a gap tells the truth, a zero or an old value
//! does not.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, NoLabelSet, prometheus_text, text as openmetrics},
    metrics::{MetricType, histogram::Histogram},
    registry::Registry,
};

use super::{Facts, health, process::Process};
use crate::{
    postgres::dead_letter::ReasonClass,
    status::{Now, State, Status, age, unix_us},
    traces::Traces,
};

/// How the text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Prometheus,
    OpenMetrics,
}

impl Form {
    /// What the `Accept` header asks for; a client that names nothing gets what every one can read.
    pub(super) fn accepted(accept: &str) -> Form {
        match accept.split(',').any(|range| range.trim_start().starts_with("application/openmetrics-text")) {
            true => Form::OpenMetrics,
            false => Form::Prometheus,
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The whole page.
pub(super) fn text(status: &Arc<Status>, facts: &Facts, at: SystemTime, form: Form) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment { status: Arc::clone(status), facts: facts.clone(), at }));
    let mut page = String::new();
    match form {
        Form::Prometheus => prometheus_text::encode(&mut page, &registry)?,
        Form::OpenMetrics => openmetrics::encode(&mut page, &registry)?,
    }
    Ok(page)
}

#[derive(Debug)]
struct Moment {
    status: Arc<Status>,
    facts: Facts,
    at: SystemTime,
}

impl Collector for Moment {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = self.status.now().clone();
        let mut page = Page(encoder);
        page.identity(&now, &self.facts, self.at)?;
        page.counters(&now)?;
        page.positions(&now, self.at)?;
        page.flight(&now, self.at)?;
        page.slot(&now, self.at)?;
        page.pruned(&now)?;
        page.traces(self.status.traces.as_ref().map(Traces::counts))?;
        page.process(&Process::now())?;
        let help = "Time from a transaction's commit to the acknowledgement of its last record";
        page.histogram("walpost_commit_to_delivery_seconds", help, &self.status.commit_to_delivery)?;
        let help = "Events of a transaction that is delivered";
        page.histogram("walpost_transaction_events", help, &self.status.transaction_events)
    }
}

struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn identity(&mut self, now: &Now, facts: &Facts, at: SystemTime) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.0
            .encode_descriptor("walpost_build", "The version that runs", None, MetricType::Info)?
            .encode_info(&version.as_slice())?;
        let of = [("database", &*facts.database), ("slot", &*facts.slot), ("publication", &*facts.publication)];
        self.0
            .encode_descriptor(
                "walpost_stream",
                "The stream that this process sends, or waits for",
                None,
                MetricType::Info,
            )?
            .encode_info(&of.as_slice())?;
        let up = u64::from(now.state == State::Streaming);
        self.gauge(
            "walpost_up",
            "1 while this process streams from the slot; of active and standby one has 1",
            Some(up),
        )?;
        let ready = u64::from(health::ready(now, at).is_good());
        self.gauge(
            "walpost_ready",
            "1 while /readyz says so: events move, or another process moves them",
            Some(ready),
        )?;
        let mut state =
            self.0.encode_descriptor("walpost_state", "1 for the state of this process", None, MetricType::Gauge)?;
        for of in State::ALL {
            state.encode_family(&[("state", of.word())])?.encode_gauge(&u64::from(now.state == of))?;
        }
        Ok(())
    }

    fn counters(&mut self, now: &Now) -> fmt::Result {
        let events = now.events.iter().map(|(table, total)| (table.as_str(), *total));
        self.counter_family("walpost_events", "Events decoded from the log", "table", events)?;
        let delivered = now.delivered.iter();
        self.counter_family("walpost_records_delivered", "Records that the sink acknowledged", "topic", delivered)?;
        // All of them from the start, that the first one shows as a rise.
        let dead_letters = ReasonClass::ALL.iter().map(|reason| reason.word());
        let dead_letters = dead_letters.map(|reason| (reason, now.dead_letters.get(reason).copied().unwrap_or(0)));
        self.counter_family("walpost_dead_letters", "Events put among the dead letters", "reason", dead_letters)?;
        let errors = now.kafka_errors.iter().map(|(error, total)| (*error, *total));
        let help = "Errors that Kafka's client told of, by librdkafka's names; most mend by themselves";
        self.counter_family("walpost_kafka_errors", help, "code", errors)?;
        let help = "Records that were sent again, since the sink did not take them for the time being";
        self.counter("walpost_retries", help, now.retries)?;
        self.counter("walpost_reconnects", "Sessions that ended in trouble", now.reconnects)?;
        self.counter("walpost_slot_losses", "Slots that were found lost", now.slot_losses)?;
        let help = "Lost slots that were made anew, with all that was not proven published sent";
        self.counter("walpost_slot_recoveries", help, now.slot_recoveries)?;
        let help = "Events whose own time could not stamp their record";
        self.counter("walpost_timestamps_replaced", help, now.timestamps_replaced)
    }

    fn positions(&mut self, now: &Now, at: SystemTime) -> fmt::Result {
        let attached = now.is_attached().then_some(());
        let confirmed = attached.and(now.confirmed).map(|lsn| lsn.0);
        self.gauge("walpost_confirmed_lsn", "Position below which all is delivered, as a byte count", confirmed)?;
        let help = "Log between the confirmed position and the end of the server's log";
        self.gauge("walpost_lag_bytes", help, now.lag_bytes(at))?;
        let help = "Time since the commit of the oldest transaction that is received and not confirmed";
        self.gauge("walpost_lag_seconds", help, now.lag_seconds(at))?;
        let help = "Time since the server was last told the confirmed position";
        let fed_back = attached.and(now.fed_back).map(|then| age(then, at).as_secs_f64());
        self.gauge("walpost_feedback_age_seconds", help, fed_back)?;
        let published = now.published_at.map(|published| unix_us(published) as f64 / 1e6);
        let help = "What was committed by this time is proven published, in seconds since 1970";
        self.gauge("walpost_published_timestamp_seconds", help, published)?;
        let unproven = now.fresh_unproven(at);
        let help = "Age of the oldest row of the outboxes that is not proven published, as of the last half minute";
        let oldest = unproven.map(|unproven| unproven.oldest.unwrap_or_default().as_secs_f64());
        self.gauge("walpost_oldest_unpublished_seconds", help, oldest)?;
        let help = "Age that 95 of 100 of those rows are below";
        let p95 = unproven.map(|unproven| unproven.p95.unwrap_or_default().as_secs_f64());
        self.gauge("walpost_unpublished_p95_seconds", help, p95)?;
        let help = "Rows of the outboxes that are not proven published, as of the last half minute";
        self.gauge("walpost_unpublished_rows", help, unproven.map(|unproven| unproven.rows))
    }

    fn flight(&mut self, now: &Now, at: SystemTime) -> fmt::Result {
        let attached = now.is_attached().then_some(());
        let help = "Records sent and not acknowledged";
        self.gauge("walpost_in_flight_records", help, attached.map(|()| now.in_flight_records as u64))?;
        let help = "Bytes of records sent and not acknowledged";
        self.gauge("walpost_in_flight_bytes", help, attached.map(|()| now.in_flight_bytes as u64))?;
        let help = "How long at least the oldest of them has waited; 0 while nothing is in flight";
        let waiting = attached.map(|()| now.waiting_for(at).unwrap_or_default().as_secs_f64());
        self.gauge("walpost_in_flight_wait_seconds", help, waiting)?;
        let help = "Of those, records that librdkafka has, or that wait for their turn among webhooks or RabbitMQ's";
        self.gauge("walpost_queued_records", help, attached.map(|()| now.queued_records as u64))?;
        let reading = attached.and(now.reading);
        let help = "Rows of the tables that are sent before the stream, so far; absent while the stream is";
        self.gauge("walpost_reading_rows", help, reading.map(|reading| reading.rows))?;
        let help = "Rows of the tables that there are to send before the stream, as far as the server knows";
        self.gauge("walpost_reading_rows_estimated", help, reading.and_then(|reading| reading.rows_estimated))?;
        let parked = attached.and(now.parked);
        self.gauge("walpost_parked_events", "Events that are parked", parked.map(|(events, _)| events))?;
        let help = "Aggregates whose events are parked until they are replayed or discarded";
        self.gauge("walpost_parked_aggregates", help, parked.map(|(_, aggregates)| aggregates))
    }

    fn slot(&mut self, now: &Now, at: SystemTime) -> fmt::Result {
        let fresh = now.fresh_server(at);
        let help = "Log that the slot keeps on the server";
        self.gauge("walpost_slot_retained_bytes", help, fresh.map(|sample| sample.retained_bytes))?;
        let help = "Log that may still be written before the slot is lost; absent without max_slot_wal_keep_size";
        self.gauge("walpost_slot_safe_bytes", help, fresh.and_then(|sample| sample.safe_bytes))?;
        let help = "Time until then at the rate of the last minute; absent while the slot does not lose ground";
        let lost_in = fresh.and_then(|sample| sample.lost_in);
        self.gauge("walpost_slot_lost_in_seconds", help, lost_in.as_ref().map(Duration::as_secs_f64))?;
        if let Some(now) = fresh.and_then(|sample| sample.wal_status.as_deref()) {
            let help = "1 for what PostgreSQL says of the log that the slot keeps";
            let mut status = self.0.encode_descriptor("walpost_slot_wal_status", help, None, MetricType::Gauge)?;
            for of in ["reserved", "extended", "unreserved", "lost"] {
                status.encode_family(&[("status", of)])?.encode_gauge(&u64::from(now == of))?;
            }
        }
        let help = "Age of what the server last said of its log and the slot";
        let sample_age = now.server.as_ref().map(|sample| age(sample.taken, at).as_secs_f64());
        self.gauge("walpost_server_sample_age_seconds", help, sample_age)
    }

    fn pruned(&mut self, now: &Now) -> fmt::Result {
        let pruned = || now.pruned.iter().map(|(table, pruned)| (table.as_str(), pruned));
        let rows = pruned().map(|(table, pruned)| (table, pruned.rows));
        self.counter_family("walpost_pruned_rows", "Rows that walpost run has pruned", "table", rows)?;
        let failures = pruned().map(|(table, pruned)| (table, pruned.failures));
        self.counter_family("walpost_prune_failures", "Prunes that ended in trouble", "table", failures)?;
        let finished = pruned().filter_map(|(table, pruned)| Some((table, unix_us(pruned.finished?) as f64 / 1e6)));
        let help = "When a table was last pruned to its end, in seconds since 1970";
        self.gauge_family("walpost_prune_finished_timestamp_seconds", help, "table", finished)?;
        let walk = pruned().filter_map(|(table, pruned)| Some((table, pruned.walk?)));
        let help = "Part of the table that the prune under way has looked at; absent while there is none";
        let done = walk.map(|(table, (blocks, total))| (table, blocks as f64 / total.max(1) as f64));
        self.gauge_family("walpost_prune_progress_ratio", help, "table", done)
    }

    fn traces(&mut self, counts: Option<(u64, u64)>) -> fmt::Result {
        let Some((exported, dropped)) = counts else { return Ok(()) };
        self.counter("walpost_spans_exported", "Spans that the collector took", exported)?;
        let help = "Spans that are gone: the collector did not take them, or was too slow";
        self.counter("walpost_spans_dropped", help, dropped)
    }

    fn process(&mut self, process: &Process) -> fmt::Result {
        self.gauge("process_resident_memory_bytes", "Resident memory", process.resident_bytes)?;
        self.gauge("process_virtual_memory_bytes", "Virtual memory", process.virtual_bytes)?;
        self.gauge("process_threads", "Threads", process.threads)?;
        self.gauge("process_open_fds", "Open file descriptors", process.open_fds)?;
        self.gauge("process_max_fds", "Most file descriptors that may be open", process.max_fds)?;
        let Some(cpu) = process.cpu else { return Ok(()) };
        let help = "Time on processors, in user and kernel mode";
        let mut metric = self.0.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, f64, f64>(&cpu.as_secs_f64(), None)
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        histogram.encode(self.0.encode_descriptor(name, help, None, histogram.metric_type())?)
    }

    fn gauge<V: EncodeGaugeValue>(&mut self, name: &str, help: &str, value: Option<V>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauge_family<'t>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (&'t str, f64)>,
    ) -> fmt::Result {
        let mut values = values.peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (of, value) in values {
            metric.encode_family(&[(label, of)])?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn counter_family<'t>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        totals: impl Iterator<Item = (&'t str, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, total) in totals {
            metric.encode_family(&[(label, of)])?.encode_counter::<NoLabelSet, u64, f64>(&total, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        time::Duration,
    };

    use super::*;
    use crate::{
        http::tests::{at, facts, streaming},
        pipeline::{PgTime, Ticket},
        postgres::unproven::Unproven,
        status::{Pruned, Reading},
    };

    fn page(now: &Now, seconds: u64, form: Form) -> String {
        let status = Arc::new(Status::new());
        *status.now() = now.clone();
        status.commit_to_delivery.observe(0.02);
        status.transaction_events.observe(3.0);
        text(&status, &facts(), at(seconds), form).unwrap()
    }

    /// Samples by name and labels.
    fn samples(now: &Now, seconds: u64) -> BTreeMap<String, f64> {
        let page = page(now, seconds, Form::Prometheus);
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').unwrap()).map(|(name, v)| (name.into(), v.parse().unwrap())).collect()
    }

    /// A moment at which everything is known.
    fn full() -> Now {
        let mut now = streaming();
        now.events.insert("walpost.outbox".to_owned(), 3);
        now.delivered.add("orders", 2);
        now.in_flight_records = 1;
        now.in_flight_bytes = 300;
        now.reconnects = 4;
        now.retries = 5;
        now.kafka_errors.insert("_TRANSPORT", 2);
        now.fed_back = Some(at(101));
        now.queued_records = 1;
        now.parked = Some((3, 2));
        now.reading = Some(Reading { kind: "initial", rows: 7, rows_estimated: Some(9) });
        now.turn(Some(Ticket(3)), at(99));
        let pruned = Pruned { rows: 12, finished: Some(at(90)), failures: 1, walk: Some((5, 20)) };
        now.pruned.insert("walpost.outbox".to_owned(), pruned);
        let server = now.server.as_mut().unwrap();
        server.safe_bytes = Some(9_000);
        server.lost_in = Some(Duration::from_secs(90));
        server.wal_status = Some("extended".to_owned());
        now.published_at = Some(at(95));
        let (oldest, p95) = (Some(Duration::from_millis(7_500)), Some(Duration::from_secs(6)));
        now.unproven = Some((Unproven { rows: 4, oldest, p95, older: 2 }, at(100)));
        now
    }

    /// Words of a text that are names of metrics.
    fn metrics_in(text: &str) -> BTreeSet<String> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("walpost_") || word.starts_with("process_")).map(str::to_owned).collect()
    }

    #[test]
    fn dashboard_alerts_and_reference_name_what_there_is() {
        let names: BTreeSet<_> = samples(&full(), 103)
            .into_keys()
            .map(|name| name.split('{').next().unwrap_or_default().to_owned())
            .collect();
        let mut known = names.clone();
        // What an exporter makes of a consumer's database: the query's name before the column's.
        let mut query = "";
        for line in include_str!("../../deploy/prometheus/inbox_queries.yml").lines() {
            query = line.strip_suffix(':').filter(|name| name.starts_with("walpost_")).unwrap_or(query);
            if let Some((column, _)) = line.strip_prefix("    - ").and_then(|line| line.split_once(": {")) {
                known.insert(format!("{query}_{column}"));
            }
        }
        for (file, text) in [
            ("walpost.json", include_str!("../../deploy/grafana/walpost.json")),
            ("alerts.yml", include_str!("../../deploy/prometheus/alerts.yml")),
            ("alerts_test.yml", include_str!("../../deploy/prometheus/alerts_test.yml")),
        ] {
            let named = metrics_in(text);
            assert!(named.len() > 10, "{file} names metrics");
            let unknown: Vec<_> = named.difference(&known).collect();
            assert!(unknown.is_empty(), "{file} names what there is not: {unknown:?}");
        }
        let reference = metrics_in(include_str!("../../docs/observability.md"));
        let base = |name: &String| {
            let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            histogram.unwrap_or(name).to_owned()
        };
        let unsaid: Vec<_> = names.iter().map(base).filter(|name| !reference.contains(name)).collect();
        assert!(unsaid.is_empty(), "docs/observability.md says nothing of {unsaid:?}");
    }

    #[test]
    fn names_labels_and_values_are_those_of_the_reference() {
        let samples = samples(&full(), 103);
        let version = env!("CARGO_PKG_VERSION");
        for (name, value) in [
            (&*format!("walpost_build_info{{version=\"{version}\"}}"), 1.0),
            ("walpost_up", 1.0),
            ("walpost_state{state=\"streaming\"}", 1.0),
            ("walpost_state{state=\"connecting\"}", 0.0),
            ("walpost_state{state=\"standby\"}", 0.0),
            ("walpost_state{state=\"slot_lost\"}", 0.0),
            ("walpost_state{state=\"stopping\"}", 0.0),
            ("walpost_events_total{table=\"walpost.outbox\"}", 3.0),
            ("walpost_records_delivered_total{topic=\"orders\"}", 2.0),
            ("walpost_reconnects_total", 4.0),
            ("walpost_timestamps_replaced_total", 0.0),
            ("walpost_confirmed_lsn", 1_000.0),
            ("walpost_lag_bytes", 500.0),
            ("walpost_dead_letters_total{reason=\"too_large\"}", 0.0),
            ("walpost_ready", 1.0),
            ("walpost_stream_info{database=\"app\",slot=\"walpost\",publication=\"events\"}", 1.0),
            ("walpost_retries_total", 5.0),
            ("walpost_kafka_errors_total{code=\"_TRANSPORT\"}", 2.0),
            ("walpost_feedback_age_seconds", 2.0),
            ("walpost_queued_records", 1.0),
            ("walpost_in_flight_wait_seconds", 4.0),
            ("walpost_unpublished_p95_seconds", 6.0),
            ("walpost_pruned_rows_total{table=\"walpost.outbox\"}", 12.0),
            ("walpost_prune_failures_total{table=\"walpost.outbox\"}", 1.0),
            ("walpost_prune_finished_timestamp_seconds{table=\"walpost.outbox\"}", 90.0),
            ("walpost_prune_progress_ratio{table=\"walpost.outbox\"}", 0.25),
            ("walpost_transaction_events_bucket{le=\"1\"}", 0.0),
            ("walpost_transaction_events_bucket{le=\"5\"}", 1.0),
            ("walpost_lag_seconds", 0.0),
            ("walpost_in_flight_records", 1.0),
            ("walpost_in_flight_bytes", 300.0),
            ("walpost_slot_retained_bytes", 4_096.0),
            ("walpost_slot_safe_bytes", 9_000.0),
            ("walpost_published_timestamp_seconds", 95.0),
            ("walpost_oldest_unpublished_seconds", 7.5),
            ("walpost_unpublished_rows", 4.0),
            ("walpost_slot_lost_in_seconds", 90.0),
            ("walpost_slot_wal_status{status=\"extended\"}", 1.0),
            ("walpost_slot_wal_status{status=\"lost\"}", 0.0),
            ("walpost_server_sample_age_seconds", 3.0),
            ("walpost_commit_to_delivery_seconds_count", 1.0),
            ("walpost_commit_to_delivery_seconds_bucket{le=\"0.025\"}", 1.0),
        ] {
            assert_eq!(samples.get(name), Some(&value), "{name} in {samples:#?}");
        }
    }

    #[test]
    fn a_gauge_that_cannot_be_known_is_left_out() {
        let mut now = streaming();
        let names = |now: &Now, seconds| samples(now, seconds).into_keys().collect::<Vec<_>>().join(" ");
        let stale = names(&now, 200);
        for name in ["lag_bytes", "lag_seconds", "slot_retained_bytes", "slot_safe_bytes"] {
            assert!(!stale.contains(name), "{stale}");
        }
        assert!(stale.contains("walpost_server_sample_age_seconds") && stale.contains("walpost_confirmed_lsn"));
        now.state = State::Standby;
        now.server = None;
        let standby = names(&now, 103);
        for name in [
            "lag",
            "slot_retained",
            "slot_safe",
            "slot_lost_in",
            "wal_status",
            "sample",
            "confirmed",
            "in_flight",
            "queued",
            "feedback",
            "prune_",
        ] {
            assert!(!standby.contains(name), "{standby}");
        }
        assert!(standby.contains("walpost_up") && !standby.contains("walpost_parked"));
    }

    #[test]
    fn lag_rises_while_blocked() {
        let mut now = streaming();
        now.oldest_unconfirmed = Some(PgTime::from_unix_us(90_000_000));
        assert_eq!(samples(&now, 110)["walpost_lag_seconds"], 20.0);
        assert_eq!(samples(&now, 400)["walpost_lag_seconds"], 310.0);
    }

    #[test]
    fn labels_are_escaped() {
        let mut now = streaming();
        now.events.insert("\"My App\".\"a\\b\nc\"".to_owned(), 1);
        let page = page(&now, 103, Form::Prometheus);
        assert!(page.contains(r#"walpost_events_total{table="\"My App\".\"a\\b\nc\""} 1"#), "{page}");
    }

    #[test]
    fn the_client_chooses_the_form() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Form::accepted(prometheus), Form::OpenMetrics);
        assert_eq!(Form::accepted("*/*"), Form::Prometheus);
        assert!(page(&streaming(), 103, Form::OpenMetrics).ends_with("# EOF\n"));
        assert!(!page(&streaming(), 103, Form::Prometheus).contains("# EOF"));
    }
}
