//! Points, PostGIS's geometries, and the other geometric types in Java's digits.

use std::sync::Arc;

use crate::connect::{Field, Kind, Schema, Struct, Value};

/// `io.debezium.data.geometry.Point`.
pub(super) fn point_schema() -> Schema {
    let members = [
        ("x", Schema::new(Kind::Float64)),
        ("y", Schema::new(Kind::Float64)),
        ("wkb", Schema::new(Kind::Bytes).optional()),
        ("srid", Schema::new(Kind::Int32).optional()),
    ];
    Schema::new(Kind::Struct(fields(members)))
        .named("io.debezium.data.geometry.Point", 1)
        .documented("Geometry (POINT)")
}

/// `(1.5,2)`
pub(super) fn point(schema: &Arc<Schema>, text: &str) -> Option<Value> {
    let (x, y) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    Some(point_at(schema, x.parse().ok()?, y.parse().ok()?))
}

pub(super) fn point_at(schema: &Arc<Schema>, x: f64, y: f64) -> Value {
    // WKB: little endian, the type of a point, and its coordinates.
    let wkb = [&[1, 1, 0, 0, 0][..], &x.to_le_bytes(), &y.to_le_bytes()].concat();
    let values = vec![Value::Float64(x), Value::Float64(y), Value::ByteArray(wkb), Value::Null];
    Value::Struct(Struct { schema: schema.clone(), values })
}

/// `io.debezium.data.geometry.Geometry` or `Geography`.
pub(super) fn geometry_schema(kind: &str) -> Schema {
    let members = [("wkb", Schema::new(Kind::Bytes)), ("srid", Schema::new(Kind::Int32).optional())];
    Schema::new(Kind::Struct(fields(members))).named(&format!("io.debezium.data.geometry.{kind}"), 1).documented(kind)
}

/// A collection of nothing, which stands for a value that must not be missing.
pub(super) const EMPTY: &str = "010700000000000000";

/// PostGIS's text: EWKB in hexadecimal digits.
pub(super) fn geometry(schema: &Arc<Schema>, text: &str) -> Option<Value> {
    const SRID: u32 = 0x2000_0000;
    let ewkb = super::hex(text)?;
    let number = |at: usize| {
        let bytes = ewkb.get(at..at + 4)?.try_into().ok()?;
        Some(if ewkb[0] == 0 { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    if ewkb.len() < 9 {
        return None;
    }
    let srid = if number(1)? & SRID == 0 { Value::Null } else { Value::Int32(number(5)? as i32) };
    Some(Value::Struct(Struct { schema: schema.clone(), values: vec![Value::ByteArray(ewkb), srid] }))
}

fn fields<const N: usize>(members: [(&str, Schema); N]) -> Vec<Field> {
    members.into_iter().map(|(name, schema)| Field { name: name.to_owned(), schema: Arc::new(schema) }).collect()
}
