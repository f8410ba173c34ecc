//! Which records are shown.

use std::time::{SystemTime, UNIX_EPOCH};

use rdkafka::message::{BorrowedMessage, Headers, Message};

use crate::cli::moment::moment;

/// Headers that hold an event's id, type and the type of its aggregate: walpost's own, CloudEvents', and those that
/// Debezium's event router is told to place as a rule.
const ID: [&str; 2] = ["id", "ce_id"];
const TYPE: [&str; 3] = ["event_type", "ce_type", "eventType"];
const AGGREGATE_TYPE: [&str; 3] = ["aggregate_type", "ce_aggregatetype", "aggregateType"];

#[derive(clap::Args)]
pub(super) struct Filter {
    /// Only events of this aggregate: records with this key; repeatable.
    #[arg(long, visible_alias = "key", value_name = "[TYPE/]ID")]
    aggregate: Vec<String>,
    /// Only events with this id, by the header id or ce_id; repeatable.
    #[arg(long = "id", value_name = "EVENT")]
    ids: Vec<String>,
    /// Only events of this type, by the header event_type, eventType or ce_type; repeatable.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only records with this header; repeatable.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Only this partition; repeatable.
    #[arg(long = "partition", value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(super) partitions: Vec<i32>,
    /// Begin with the first record at or after this time, as in 2026-01-31T08:00:00Z, or that long ago, as in 2h.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(super) since: Option<SystemTime>,
    /// Only records before this time, or longer ago. Ends when it is over and no more records come.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<SystemTime>,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

pub(super) fn millis(time: SystemTime) -> i64 {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
}

impl Filter {
    /// No record that is still to come is meant.
    pub(super) fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= SystemTime::now())
    }

    pub(super) fn lets_through(&self, record: &BorrowedMessage<'_>) -> bool {
        let headers = record.headers().map(|headers| headers.iter().map(|header| (header.key, header.value)));
        let headers: Vec<_> = headers.into_iter().flatten().collect();
        self.judge(record.key(), &headers, record.timestamp().to_millis())
    }

    fn judge(&self, key: Option<&[u8]>, headers: &[(&str, Option<&[u8]>)], time: Option<i64>) -> bool {
        let has = |names: &[&str], value: &str| {
            headers.iter().any(|(name, held)| names.contains(name) && *held == Some(value.as_bytes()))
        };
        let any = |values: &[String], holds: &dyn Fn(&str) -> bool| {
            values.is_empty() || values.iter().any(|value| holds(value))
        };
        // An id may hold a slash itself.
        let is_of = |aggregate: &str| {
            let is_key = |id: &str| key == Some(id.as_bytes());
            is_key(aggregate)
                || aggregate.split_once('/').is_some_and(|(of, id)| is_key(id) && has(&AGGREGATE_TYPE, of))
        };
        let placed = |(name, _): &(String, String)| {
            self.headers.iter().any(|(other, value)| other == name && has(&[name], value))
        };
        any(&self.aggregate, &is_of)
            && any(&self.ids, &|id| has(&ID, id))
            && any(&self.types, &|event| has(&TYPE, event))
            && self.headers.iter().all(placed)
            && self.since.is_none_or(|since| time.is_some_and(|time| time >= millis(since)))
            && self.until.is_none_or(|until| time.is_some_and(|time| time < millis(until)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: Filter,
    }

    /// Whether it shows event 1 of aggregate order/o/1, at second 100.
    fn shows(line: &[&str]) -> bool {
        let line = Line::try_parse_from([&["tail"], line].concat()).unwrap();
        let headers: [(&str, Option<&[u8]>); 4] =
            [("id", Some(b"1")), ("event_type", Some(b"Placed")), ("aggregate_type", Some(b"order")), ("null", None)];
        line.filter.judge(Some(b"o/1"), &headers, Some(100_000))
    }

    #[test]
    fn values_of_one_filter_add_up_and_filters_narrow_each_other_down() {
        for line in [
            &[][..],
            &["--aggregate", "o/1"],
            &["--key", "order/o/1"],
            &["--aggregate", "another", "--aggregate", "o/1"],
            &["--id", "1", "--type", "Placed"],
            &["--header", "id=1", "--header", "event_type=Placed"],
            &["--header", "id=1", "--header", "id=2"],
            &["--since", "1970-01-01T00:01:40Z", "--until", "1970-01-01T00:01:41Z"],
        ] {
            assert!(shows(line), "{line:?}");
        }
        for line in [
            &["--aggregate", "invoice/o/1"][..],
            &["--aggregate", "1"],
            &["--id", "1", "--type", "Paid"],
            &["--header", "id=1", "--header", "event_type=Paid"],
            &["--header", "null="],
            &["--header", "ID=1"],
            &["--since", "1970-01-01T00:01:41Z"],
            &["--until", "1970-01-01T00:01:40Z"],
        ] {
            assert!(!shows(line), "{line:?}");
        }
        assert!(Line::try_parse_from(["tail", "--header", "id"]).is_err());
        assert!(Line::try_parse_from(["tail", "--partition", "-1"]).is_err());
    }
}
