//! Defaults, as Debezium reads them from their expressions: it evaluates nothing. A literal is taken from its quotes;
//! a function stands for a zero of the type (`now()` for 1970); what cannot be read is no default.

use std::sync::Arc;

use super::conversion::{Conversion, TimeForm};
use super::decimal::Decimal;
use super::plan::Facets;
use super::temporal::Moment;
use super::{Attribute, Shape, oid};
use crate::connect::{Schema, Value};

/// None where the schema has no default.
pub(super) fn value(
    attribute: &Attribute,
    facets: Facets,
    schema: &Arc<Schema>,
    conversion: &Conversion,
) -> Option<Value> {
    let convert = |text: &str| conversion.convert(schema, text).ok();
    let expression = attribute.default.as_deref()?;
    if matches!(attribute.kind.shape, Shape::Enum(_)) {
        return label(expression, &attribute.kind.name).map(|label| Value::String(label.to_owned()));
    }
    let oid = attribute.kind.oid;
    let zero = zero(oid)?;
    let literal = literal(if keeps_blanks(oid) { expression } else { expression.trim() }, zero)?;
    match oid {
        oid::BOOL => Some(Value::Boolean(literal.eq_ignore_ascii_case("true"))),
        oid::NUMERIC => number(literal, facets, convert),
        oid::UUID => convert(&literal.to_ascii_lowercase()),
        oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ => {
            infinity(literal, oid, conversion).unwrap_or_else(|| convert(literal))
        }
        oid::BIT if facets.length > 1 && matches!(literal, "0" | "1") => {
            Some(Value::ByteArray(vec![u8::from(literal == "1")]))
        }
        _ => convert(literal),
    }
}

/// What a function stands for; None for types whose defaults are not read.
fn zero(oid: u32) -> Option<&'static str> {
    Some(match oid {
        oid::BIT => "00",
        oid::VARBIT | oid::INT2 | oid::INT4 | oid::INT8 => "0",
        oid::BOOL => "false",
        oid::BPCHAR | oid::VARCHAR | oid::TEXT | oid::XML => "",
        oid::NUMERIC | oid::FLOAT4 | oid::FLOAT8 => "0.0",
        oid::JSON | oid::JSONB => "{}",
        oid::UUID => "00000000-0000-0000-0000-000000000000",
        oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ => "1970-01-01",
        oid::TIME => "00:00",
        oid::INTERVAL => "epoch",
        _ => return None,
    })
}

fn keeps_blanks(oid: u32) -> bool {
    matches!(oid, oid::BPCHAR | oid::VARCHAR | oid::TEXT | oid::XML | oid::JSON | oid::JSONB)
}

/// `5`, `'dflt'` of `'dflt'::text`; the zero for a function; None for `NULL::text` and for a literal of more lines.
fn literal<'a>(expression: &'a str, zero: &'a str) -> Option<&'a str> {
    const CURRENT: [&str; 5] = ["current_timestamp", "current_time", "current_date", "localtime", "localtimestamp"];
    if is_function(expression) || CURRENT.iter().any(|name| expression.eq_ignore_ascii_case(name)) {
        return Some(zero);
    }
    if expression.starts_with("NULL::") {
        return None;
    }
    if !expression.contains('\'') {
        return Some(expression);
    }
    let mut rest = expression;
    while let Some((_, opened)) = rest.split_once('\'') {
        match opened.split_once('\'') {
            Some((literal, _)) if first_line(literal) == literal => return Some(literal),
            _ => rest = opened,
        }
    }
    None
}

/// A name and parentheses, perhaps behind one more parenthesis: `nextval('s'::regclass)`, `(now() + …)`.
fn is_function(expression: &str) -> bool {
    let expression = expression.strip_prefix('(').unwrap_or(expression);
    let behind_name = expression.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    let named = behind_name.len() < expression.len();
    named && behind_name.strip_prefix('(').is_some_and(|arguments| first_line(arguments).contains(')'))
}

/// Up to where `.` of a regular expression of Java stops.
fn first_line(text: &str) -> &str {
    text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).next().unwrap_or(text)
}

/// `happy` of `'happy'::mood`, `'happy'::public.mood` or `'happy'::"Mood"`.
fn label<'a>(expression: &'a str, type_name: &str) -> Option<&'a str> {
    let (literal, cast) = expression.rsplit_once("::")?;
    let name = cast
        .strip_suffix('"')
        .map_or_else(|| cast.rsplit('.').next().unwrap_or(cast), |quoted| quoted.rsplit('"').next().unwrap_or(quoted));
    if name == type_name { literal.strip_prefix('\'')?.strip_suffix('\'') } else { None }
}

/// A struct, for a number without precision, cannot be a default.
fn number(literal: &str, facets: Facets, convert: impl Fn(&str) -> Option<Value>) -> Option<Value> {
    Decimal::parse(literal)?;
    match convert(literal)? {
        Value::Struct(_) => None,
        Value::Decimal { unscaled, scale } => {
            let Decimal { unscaled, scale } = Decimal { unscaled, scale }.widened(facets.scale);
            Some(Value::Decimal { unscaled, scale })
        }
        other => Some(other),
    }
}

/// Infinity is the last or first day that Java has; with a zone it is no default. None for other times.
fn infinity(literal: &str, oid: u32, conversion: &Conversion) -> Option<Option<Value>> {
    let bound = match literal {
        "infinity" => Moment::LAST,
        "-infinity" => Moment::FIRST,
        _ => return None,
    };
    Some(if oid == oid::TIMESTAMPTZ { None } else { conversion.of_moment(bound) })
}

impl Conversion {
    fn of_moment(&self, moment: Moment) -> Option<Value> {
        match self {
            Conversion::Date(form) => Some(super::conversion::date(moment.days(), *form)),
            Conversion::Timestamp(TimeForm::Nanos) => None,
            Conversion::Timestamp(form) => super::conversion::timestamp(moment, *form).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_taken_from_their_quotes() {
        assert_eq!(literal("'dflt'::text", ""), Some("dflt"));
        assert_eq!(literal("7", "0"), Some("7"));
        assert_eq!(literal("'-1'::integer", "0"), Some("-1"));
        assert_eq!(literal("('a'::text || 'b'::text)", ""), Some("a"));
        assert_eq!(literal("'it''s'::text", ""), Some("it"));
        assert_eq!(literal("NULL::character varying", ""), None);
        assert_eq!(literal("'a\nb'::text", ""), None);
    }

    #[test]
    fn functions_stand_for_a_zero() {
        for function in [
            "now()",
            "nextval('outbox_id_seq'::regclass)",
            "(now() AT TIME ZONE 'utc'::text)",
            "pg_catalog.gen_random_uuid()",
            "CURRENT_TIMESTAMP",
            "lower('X'::text)",
        ] {
            assert_eq!(literal(function, "zero"), Some("zero"), "{function}");
        }
        for other in ["(5)::numeric", "'now()'::text", "CURRENT_USER", "(1 + 2)", "f(\n1)"] {
            assert_ne!(literal(other, "zero"), Some("zero"), "{other}");
        }
    }

    #[test]
    fn labels_belong_to_their_type() {
        assert_eq!(label("'happy'::mood", "mood"), Some("happy"));
        assert_eq!(label("'happy'::public.mood", "mood"), Some("happy"));
        assert_eq!(label("'happy'::public.\"My Mood\"", "My Mood"), Some("happy"));
        assert_eq!(label("'happy'::text", "mood"), None);
        assert_eq!(label("any_mood()", "mood"), None);
    }
}
