//! Which rows of the tables are meant.

use std::{str::FromStr, time::SystemTime};

use jiff::Timestamp;

use crate::{
    cli::moment::moment,
    pipeline::outbox::Outbox,
    postgres::quote::{ident, literal},
};

/// Rows of the tables. Values of one option add up, options narrow each other down.
#[derive(clap::Args)]
pub(super) struct Selection {
    /// Events with this id, from the table; repeatable.
    #[arg(long = "id", value_name = "EVENT")]
    ids: Vec<String>,
    /// Events of this aggregate, from the table; repeatable.
    #[arg(long, value_name = "[TYPE/]ID")]
    aggregate: Vec<String>,
    /// Events that occurred at or after this time, as in 2026-01-31T08:00:00Z, or that long ago, as in 2h, from the table.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<SystemTime>,
    /// Events that occurred before this time, or longer ago, from the table.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<SystemTime>,
    /// Events with a seq in A..B, both included; A.. and ..B are open. From the table.
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    seq: Option<Span>,
    /// Events that are not proven to be published, from the table.
    #[arg(long)]
    pub(super) unproven: bool,
}

/// The ids of clap that choose from the table.
pub(super) const OPTIONS: [&str; 6] = ["ids", "aggregate", "since", "until", "seq", "unproven"];

/// `A..B`, `A..`, `..B` or `A`, bounds included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: Option<i64>,
    last: Option<i64>,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Span, String> {
        let wrong = || format!("{text:?} is no range of seq; write A..B, A.., ..B or A");
        let number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong()),
        };
        let (first, last) = match text.split_once("..") {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(text)?, number(text)?),
        };
        match (first, last) {
            (None, None) => Err(wrong()),
            (Some(first), Some(last)) if first > last => Err(format!("{text:?} is empty: {first} is above {last}")),
            _ => Ok(Span { first, last }),
        }
    }
}

impl Selection {
    /// The condition on row `o` of an outbox, but for what is proven. Whatever was typed is a literal in it, and takes the
    /// type of its column.
    pub(super) fn condition(&self, outbox: &Outbox) -> String {
        let columns = &outbox.columns;
        let own = |column: &str| format!("o.{}", ident(column));
        let mut all = Vec::new();
        if !self.ids.is_empty() {
            let ids: Vec<_> = self.ids.iter().map(|id| literal(id)).collect();
            all.push(format!("{} in ({})", own(&columns.id), ids.join(", ")));
        }
        if !self.aggregate.is_empty() {
            // An id may hold a slash itself.
            let meant = self.aggregate.iter().map(|aggregate| {
                let id = own(&columns.aggregate_id);
                let whole = format!("{id}::text = {}", literal(aggregate));
                match aggregate.split_once('/') {
                    None => whole,
                    Some((of, rest)) => format!(
                        "{whole} or {}::text = {} and {id}::text = {}",
                        own(&columns.aggregate_type.name),
                        literal(of),
                        literal(rest)
                    ),
                }
            });
            all.push(format!("({})", meant.collect::<Vec<_>>().join(" or ")));
        }
        let occurred_at = own(&columns.occurred_at.name);
        for (comparison, time) in [(">=", self.since), ("<", self.until)] {
            if let Some(time) = time.and_then(|time| Timestamp::try_from(time).ok()) {
                all.push(format!("{occurred_at} {comparison} {}::timestamptz", literal(&time.to_string())));
            }
        }
        if let Some(Span { first, last }) = self.seq {
            let seq = own(&columns.seq.name);
            all.extend(first.map(|first| format!("{seq} >= {first}")));
            all.extend(last.map(|last| format!("{seq} <= {last}")));
        }
        if all.is_empty() { "true".to_owned() } else { all.join(" and ") }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;
    use crate::config::{Config, Flags, Needs};

    fn condition(arguments: &[&str]) -> String {
        let command = Selection::augment_args(Command::new("replay").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments).unwrap();
        let config = Config::load(&Flags::default(), Needs::NOTHING).unwrap();
        Selection::from_arg_matches(&matches).unwrap().condition(&config.outboxes[0])
    }

    #[test]
    fn options_narrow_down_and_values_add_up() {
        assert_eq!(condition(&["--id", "a", "--id", "b"]), "o.id in ('a', 'b')");
        assert_eq!(condition(&["--aggregate", "o-1"]), "(o.aggregate_id::text = 'o-1')");
        assert_eq!(
            condition(&["--aggregate", "order/a/b", "--seq", "-5..7"]),
            "(o.aggregate_id::text = 'order/a/b' or o.aggregate_type::text = 'order' and o.aggregate_id::text = 'a/b') \
             and o.seq >= -5 and o.seq <= 7"
        );
        assert_eq!(
            condition(&["--since", "2026-01-31T08:00:00Z", "--until", "2026-01-31T09:00:00.5Z"]),
            "o.occurred_at >= '2026-01-31T08:00:00Z'::timestamptz and o.occurred_at < '2026-01-31T09:00:00.5Z'::timestamptz"
        );
        assert_eq!(condition(&["--unproven"]), "true");
    }

    #[test]
    fn what_is_typed_stays_a_literal() {
        assert_eq!(condition(&["--id", "'; drop table x; --"]), "o.id in ('''; drop table x; --')");
        assert_eq!(condition(&["--aggregate", r"\' or true"]), r"(o.aggregate_id::text = E'\\'' or true')");
    }

    #[test]
    fn spans_of_seq() {
        let span = |text: &str| text.parse::<Span>();
        assert_eq!(span("3..9"), Ok(Span { first: Some(3), last: Some(9) }));
        assert_eq!(span("3.."), Ok(Span { first: Some(3), last: None }));
        assert_eq!(span("..9"), Ok(Span { first: None, last: Some(9) }));
        assert_eq!(span("7"), Ok(Span { first: Some(7), last: Some(7) }));
        for text in ["", "..", "9..3", "a..b", "1..2..3", "1; drop", "99999999999999999999"] {
            assert!(span(text).is_err(), "{text}");
        }
    }
}
