//! What a type's values look like: its schema, still required, and the conversion into it.

use std::sync::Arc;

use super::conversion::{Conversion, Float, TimeForm};
use super::geometry;
use super::{Attribute, Shape, Type, oid};
use crate::connect::{Kind, Schema};
use crate::debezium::modes::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, Modes, TimeMode};

/// Length and scale as the JDBC driver has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facets {
    pub(super) length: i32,
    pub(super) scale: i32,
}

impl Facets {
    /// Of a number without precision: `length(pow(10::numeric, 131071))`.
    pub(super) const NUMERIC_LENGTH_MAX: i32 = 131_089;
    const UNKNOWN: Facets = Facets { length: i32::MAX, scale: 0 };

    fn of(kind: &Type, typmod: i32) -> Facets {
        let element = match &kind.shape {
            Shape::Array(element) => element.oid,
            _ => kind.oid,
        };
        let unlimited = typmod == -1;
        match element {
            oid::NUMERIC if unlimited => Facets { length: Facets::NUMERIC_LENGTH_MAX, scale: 0 },
            oid::NUMERIC => Facets { length: (typmod - 4) >> 16, scale: (typmod - 4) & 0xffff },
            oid::TIME | oid::TIMETZ | oid::TIMESTAMP | oid::TIMESTAMPTZ => {
                Facets { scale: if unlimited { 6 } else { typmod }, ..Facets::UNKNOWN }
            }
            oid::BIT => Facets { length: typmod, scale: 0 },
            oid::VARBIT if !unlimited => Facets { length: typmod, scale: 0 },
            _ => Facets::UNKNOWN,
        }
    }
}

/// The type below all domains, with the length and scale of the outermost domain that sets them.
pub(super) fn root(attribute: &Attribute) -> (&Type, Facets) {
    let (mut kind, mut typmod) = (&attribute.kind, attribute.typmod);
    while let Shape::Domain(base, base_typmod) = &kind.shape {
        kind = base;
        if typmod == -1 {
            typmod = *base_typmod;
        }
    }
    (kind, Facets::of(kind, typmod))
}

/// None for a type that is left out.
pub(super) fn plan(kind: &Type, facets: Facets, modes: &Modes) -> Option<(Schema, Conversion)> {
    if let Shape::Array(element) = &kind.shape {
        return array(element, facets, modes);
    }
    let plain = Schema::new;
    let known = match kind.oid {
        oid::BOOL => (plain(Kind::Boolean), Conversion::Boolean),
        oid::INT2 => (plain(Kind::Int16), Conversion::Int16),
        oid::INT4 => (plain(Kind::Int32), Conversion::Int32),
        oid::INT8 | oid::OID => (plain(Kind::Int64), Conversion::Int64),
        oid::FLOAT4 => (plain(Kind::Float32), Conversion::Float32),
        oid::FLOAT8 => (plain(Kind::Float64), Conversion::Float64),
        oid::NUMERIC => numeric(facets, modes),
        oid::MONEY => money(modes),
        oid::CHAR
        | oid::TEXT
        | oid::BPCHAR
        | oid::VARCHAR
        | oid::INET
        | oid::CIDR
        | oid::MACADDR
        | oid::MACADDR8
        | oid::INT4RANGE
        | oid::NUMRANGE
        | oid::INT8RANGE
        | oid::TSRANGE
        | oid::TSTZRANGE
        | oid::DATERANGE => (plain(Kind::String), Conversion::Text),
        // A string by its schema, but the reader of rows does not know the type.
        oid::NAME if modes.include_unknown_datatypes => (plain(Kind::String), Conversion::Text),
        oid::NAME => (plain(Kind::String), Conversion::Ignored),
        oid::JSON | oid::JSONB => (text("io.debezium.data.Json"), Conversion::Text),
        oid::XML => (text("io.debezium.data.Xml"), Conversion::Text),
        oid::UUID => (text("io.debezium.data.Uuid"), Conversion::Text),
        oid::TSVECTOR => (text("io.debezium.data.Tsvector"), Conversion::Text),
        oid::BYTEA => (binary(modes.binary), Conversion::Binary(modes.binary)),
        oid::BIT | oid::VARBIT if facets.length > 1 => (
            plain(Kind::Bytes).named("io.debezium.data.Bits", 1).parameter("length", facets.length.to_string()),
            Conversion::Bits,
        ),
        oid::BIT | oid::VARBIT => (plain(Kind::Boolean), Conversion::Bit),
        oid::DATE => date(modes.time),
        oid::TIME => time(facets.scale, modes.time),
        oid::TIMETZ => (text("io.debezium.time.ZonedTime"), Conversion::TimeTz),
        oid::TIMESTAMP => timestamp(facets.scale, modes.time),
        oid::TIMESTAMPTZ => (
            text("io.debezium.time.ZonedTimestamp"),
            Conversion::TimestampTz { digits: facets.scale.clamp(0, 9) as usize },
        ),
        oid::INTERVAL if modes.interval == IntervalMode::String => {
            (text("io.debezium.time.Interval"), Conversion::Interval(modes.interval))
        }
        oid::INTERVAL => (integer("io.debezium.time.MicroDuration"), Conversion::Interval(modes.interval)),
        oid::POINT => (geometry::point_schema(), Conversion::Point),
        _ => return extension(kind, modes),
    };
    Some(known)
}

/// Types that have no fixed oid are known by their names.
fn extension(kind: &Type, modes: &Modes) -> Option<(Schema, Conversion)> {
    if let Shape::Enum(labels) = &kind.shape {
        return Some((text("io.debezium.data.Enum").parameter("allowed", labels.join(",")), Conversion::Text));
    }
    let known = match kind.name.as_str() {
        "citext" | "isbn" => (Schema::new(Kind::String), Conversion::Text),
        "ltree" => (text("io.debezium.data.Ltree"), Conversion::Text),
        "hstore" if modes.hstore == HstoreMode::Json => {
            (text("io.debezium.data.Json"), Conversion::Hstore(modes.hstore))
        }
        "hstore" => {
            let values = Arc::new(Schema::new(Kind::String).optional());
            (Schema::new(Kind::Map(values)), Conversion::Hstore(modes.hstore))
        }
        // Always optional, as no other type is.
        "geometry" => (geometry::geometry_schema("Geometry").optional(), Conversion::Geometry),
        "geography" => (geometry::geometry_schema("Geography"), Conversion::Geometry),
        "vector" => (vector("io.debezium.data.DoubleVector", Kind::Float64), Conversion::Vector(Float::Double)),
        "halfvec" => (vector("io.debezium.data.FloatVector", Kind::Float32), Conversion::Vector(Float::Single)),
        _ if !modes.include_unknown_datatypes => return None,
        _ => {
            let conversion = match kind.oid {
                oid::BOX | oid::CIRCLE | oid::LINE | oid::LSEG | oid::PATH | oid::POLYGON => {
                    Conversion::Geometric(modes.binary)
                }
                _ => Conversion::Unknown(modes.binary),
            };
            (binary(modes.binary), conversion)
        }
    };
    Some(known)
}

fn array(element: &Type, facets: Facets, modes: &Modes) -> Option<(Schema, Conversion)> {
    let optional = match element.oid {
        // Their schema is the element's, into which no array fits.
        oid::BIT => return plan(element, facets, modes).map(|(schema, _)| (schema, Conversion::Unfit)),
        oid::VARBIT | oid::MONEY | oid::NAME | oid::INTERVAL | oid::XML | oid::POINT | REFCURSOR => return None,
        0..FIRST_OID_OF_USERS => has_optional_items(element.oid),
        _ => matches!(element.name.as_str(), "citext" | "ltree" | "hstore" | "geometry" | "geography"),
    };
    let (schema, conversion) = match element.shape {
        // The driver does not look below a domain.
        Shape::Domain(..) if modes.include_unknown_datatypes => {
            (binary(modes.binary), Conversion::Unknown(modes.binary))
        }
        Shape::Domain(..) => return None,
        _ => plan(element, facets, modes)?,
    };
    let schema = Schema { optional: optional || schema.optional, ..schema };
    let conversion = Conversion::Array {
        delimiter: if element.oid == oid::BOX { ';' } else { ',' },
        nullable: schema.optional && element.name != "ltree",
        element: Box::new(conversion.of_element()),
    };
    Some((Schema::new(Kind::Array(Arc::new(schema))), conversion))
}

const REFCURSOR: u32 = 1790;
/// `FirstNormalObjectId`
const FIRST_OID_OF_USERS: u32 = 16_384;

/// Items of the arrays that Debezium lists are optional; those of others are not.
fn has_optional_items(element: u32) -> bool {
    matches!(
        element,
        oid::BOOL
            | oid::BYTEA
            | oid::CHAR
            | oid::INT8
            | oid::INT2
            | oid::INT4
            | oid::TEXT
            | oid::OID
            | oid::JSON
            | oid::CIDR
            | oid::FLOAT4
            | oid::FLOAT8
            | oid::MACADDR8
            | oid::MACADDR
            | oid::INET
            | oid::BPCHAR
            | oid::VARCHAR
            | oid::DATE
            | oid::TIME
            | oid::TIMESTAMP
            | oid::TIMESTAMPTZ
            | oid::TIMETZ
            | oid::NUMERIC
            | oid::UUID
            | oid::JSONB
            | oid::INT4RANGE
            | oid::NUMRANGE
            | oid::TSRANGE
            | oid::TSTZRANGE
            | oid::DATERANGE
            | oid::INT8RANGE
    )
}

fn numeric(facets: Facets, modes: &Modes) -> (Schema, Conversion) {
    let Facets { length, scale } = facets;
    let unlimited = length == 0 || length == Facets::NUMERIC_LENGTH_MAX;
    let schema = match modes.decimal {
        DecimalMode::Precise if unlimited && scale == 0 => {
            let members = [("scale", Kind::Int32), ("value", Kind::Bytes)].map(|(name, kind)| crate::connect::Field {
                name: name.to_owned(),
                schema: Arc::new(Schema::new(kind)),
            });
            let schema = Schema::new(Kind::Struct(members.to_vec()))
                .named("io.debezium.data.VariableScaleDecimal", 1)
                .documented("Variable scaled decimal");
            return (schema, Conversion::VariableScale);
        }
        DecimalMode::Precise => decimal(scale).parameter("connect.decimal.precision", length.to_string()),
        DecimalMode::Double => Schema::new(Kind::Float64),
        DecimalMode::String => Schema::new(Kind::String),
    };
    let scale = if length == Facets::NUMERIC_LENGTH_MAX { None } else { Some(scale) };
    (schema, Conversion::Numeric { mode: modes.decimal, scale })
}

fn money(modes: &Modes) -> (Schema, Conversion) {
    let digits = i32::from(modes.money_fraction_digits);
    let schema = match modes.decimal {
        DecimalMode::Precise => decimal(digits),
        DecimalMode::Double => Schema::new(Kind::Float64),
        DecimalMode::String => Schema::new(Kind::String),
    };
    (schema, Conversion::Money { mode: modes.decimal, digits })
}

fn date(mode: TimeMode) -> (Schema, Conversion) {
    match mode {
        TimeMode::Connect => (logical(Kind::Int32, "Date"), Conversion::Date(TimeForm::Connect)),
        TimeMode::IsoString => (text("io.debezium.time.IsoDate"), Conversion::Date(TimeForm::Iso)),
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds | TimeMode::Nanoseconds => {
            (Schema::new(Kind::Int32).named("io.debezium.time.Date", 1), Conversion::Date(TimeForm::Millis))
        }
    }
}

fn time(precision: i32, mode: TimeMode) -> (Schema, Conversion) {
    let form = match mode {
        TimeMode::AdaptiveTimeMicroseconds => TimeForm::Micros,
        _ => form(precision, mode),
    };
    let schema = match form {
        TimeForm::Millis => Schema::new(Kind::Int32).named("io.debezium.time.Time", 1),
        TimeForm::Micros => integer("io.debezium.time.MicroTime"),
        TimeForm::Nanos => integer("io.debezium.time.NanoTime"),
        TimeForm::Iso => text("io.debezium.time.IsoTime"),
        TimeForm::Connect => logical(Kind::Int32, "Time"),
    };
    (schema, Conversion::Time(form))
}

fn timestamp(precision: i32, mode: TimeMode) -> (Schema, Conversion) {
    let form = form(precision, mode);
    let schema = match form {
        TimeForm::Millis => integer("io.debezium.time.Timestamp"),
        TimeForm::Micros => integer("io.debezium.time.MicroTimestamp"),
        TimeForm::Nanos => integer("io.debezium.time.NanoTimestamp"),
        TimeForm::Iso => text("io.debezium.time.IsoTimestamp"),
        TimeForm::Connect => logical(Kind::Int64, "Timestamp"),
    };
    (schema, Conversion::Timestamp(form))
}

fn form(precision: i32, mode: TimeMode) -> TimeForm {
    match mode {
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds if precision <= 3 => TimeForm::Millis,
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds => TimeForm::Micros,
        TimeMode::Nanoseconds => TimeForm::Nanos,
        TimeMode::IsoString => TimeForm::Iso,
        TimeMode::Connect => TimeForm::Connect,
    }
}

fn vector(name: &str, element: Kind) -> Schema {
    Schema::new(Kind::Array(Arc::new(Schema::new(element)))).named(name, 1)
}

fn text(name: &str) -> Schema {
    Schema::new(Kind::String).named(name, 1)
}

fn integer(name: &str) -> Schema {
    Schema::new(Kind::Int64).named(name, 1)
}

fn logical(kind: Kind, name: &str) -> Schema {
    Schema::new(kind).named(&format!("org.apache.kafka.connect.data.{name}"), 1)
}

fn decimal(scale: i32) -> Schema {
    logical(Kind::Bytes, "Decimal").parameter("scale", scale.to_string())
}

fn binary(mode: BinaryMode) -> Schema {
    Schema::new(if mode == BinaryMode::Bytes { Kind::Bytes } else { Kind::String })
}
