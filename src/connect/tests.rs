//! Values of every type through every converter. The expected texts are those of Debezium's records for a table with a
//! column of each type (envelopes by JsonConverter with schemas, headers by each header converter), unless said otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use num_bigint::BigInt;

use super::json::Json;
use super::{Converter, ConverterError, DataError, Field, Kind, Role, Schema, Struct, Value};

const STRING: &str = "org.apache.kafka.connect.storage.StringConverter";
const SIMPLE: &str = "org.apache.kafka.connect.storage.SimpleHeaderConverter";
const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const BINARY_DATA: &str = "io.debezium.converters.BinaryDataConverter";

fn converter(class: &str, role: Role, options: &[(&str, &str)]) -> Result<Converter, ConverterError> {
    let options: BTreeMap<_, _> = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Converter::new(class, role, &options)
}

fn text(converter: &Converter, schema: &Schema, value: &Value) -> Result<Option<String>, DataError> {
    let bytes = converter.convert(Some(schema), value)?;
    Ok(bytes.map(|bytes| String::from_utf8(bytes).unwrap()))
}

fn optional(kind: Kind) -> Schema {
    Schema::new(kind).optional()
}

fn string(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn decimal(unscaled: i64, scale: i32) -> Value {
    Value::Decimal { unscaled: BigInt::from(unscaled), scale }
}

fn decimal_schema(scale: i32, precision: Option<u32>) -> Schema {
    let schema =
        optional(Kind::Bytes).named("org.apache.kafka.connect.data.Decimal", 1).parameter("scale", scale.to_string());
    match precision {
        Some(precision) => schema.parameter("connect.decimal.precision", precision.to_string()),
        None => schema,
    }
}

fn array(items: Schema) -> Schema {
    optional(Kind::Array(Arc::new(items)))
}

fn structure(fields: Vec<(&str, Schema)>) -> Schema {
    let fields = fields.into_iter().map(|(name, schema)| Field { name: name.to_owned(), schema: Arc::new(schema) });
    Schema::new(Kind::Struct(fields.collect()))
}

fn with_values(schema: &Schema, values: Vec<Value>) -> Value {
    Value::Struct(Struct { schema: Arc::new(schema.clone()), values })
}

/// A column, a value of it, and what converters make of it.
struct Case {
    schema: Schema,
    value: Value,
    /// The schema as JsonConverter writes it.
    schema_json: &'static str,
    json: &'static str,
    simple: &'static str,
    string: &'static str,
}

fn cases() -> Vec<Case> {
    let case =
        |schema, value, schema_json, json, simple, string| Case { schema, value, schema_json, json, simple, string };
    let variable = structure(vec![("scale", Schema::new(Kind::Int32)), ("value", Schema::new(Kind::Bytes))])
        .optional()
        .named("io.debezium.data.VariableScaleDecimal", 1)
        .documented("Variable scaled decimal");
    let twelve = with_values(&variable, vec![Value::Int32(2), Value::ByteArray(vec![4, 0xd2])]);
    let point = structure(vec![
        ("x", Schema::new(Kind::Float64)),
        ("y", Schema::new(Kind::Float64)),
        ("wkb", optional(Kind::Bytes)),
        ("srid", optional(Kind::Int32)),
    ])
    .optional()
    .named("io.debezium.data.geometry.Point", 1)
    .documented("Geometry (POINT)");
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend(1.5f64.to_le_bytes());
    wkb.extend(2f64.to_le_bytes());
    let at = with_values(&point, vec![Value::Float64(1.5), Value::Float64(2.0), Value::ByteArray(wkb), Value::Null]);
    vec![
        case(
            optional(Kind::Boolean),
            Value::Boolean(true),
            r#"{"type":"boolean","optional":true}"#,
            "true",
            "true",
            "true",
        ),
        case(optional(Kind::Int16), Value::Int16(-5), r#"{"type":"int16","optional":true}"#, "-5", "-5", "-5"),
        case(
            optional(Kind::Int32),
            Value::Int32(i32::MAX),
            r#"{"type":"int32","optional":true}"#,
            "2147483647",
            "2147483647",
            "2147483647",
        ),
        case(
            optional(Kind::Int64),
            Value::Int64(i64::MAX),
            r#"{"type":"int64","optional":true}"#,
            "9223372036854775807",
            "9223372036854775807",
            "9223372036854775807",
        ),
        case(optional(Kind::Float32), Value::Float32(0.1), r#"{"type":"float","optional":true}"#, "0.1", "0.1", "0.1"),
        case(
            optional(Kind::Float64),
            Value::Float64(1e300),
            r#"{"type":"double","optional":true}"#,
            "1.0E300",
            "1.0E300",
            "1.0E300",
        ),
        case(
            variable,
            twelve,
            concat!(
                r#"{"type":"struct","fields":[{"type":"int32","optional":false,"field":"scale"},"#,
                r#"{"type":"bytes","optional":false,"field":"value"}],"optional":true,"#,
                r#""name":"io.debezium.data.VariableScaleDecimal","version":1,"doc":"Variable scaled decimal"}"#
            ),
            r#"{"scale":2,"value":"BNI="}"#,
            r#"{"scale":2,"value":"BNI="}"#,
            "Struct{scale=2,value=[B@40f}",
        ),
        case(
            decimal_schema(2, Some(10)),
            decimal(1230, 2),
            concat!(
                r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"#,
                r#""parameters":{"scale":"2","connect.decimal.precision":"10"}}"#
            ),
            r#""BM4=""#,
            "12.30",
            "12.30",
        ),
        case(
            decimal_schema(2, None),
            decimal(-100, 2),
            concat!(
                r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"#,
                r#""parameters":{"scale":"2"}}"#
            ),
            r#""nA==""#,
            "-1.00",
            "-1.00",
        ),
        case(
            optional(Kind::String),
            string("h\"é\\n"),
            r#"{"type":"string","optional":true}"#,
            r#""h\"é\\n""#,
            "h\"é\\n",
            "h\"é\\n",
        ),
        case(
            optional(Kind::Int32).named("io.debezium.time.Date", 1),
            Value::Int32(19782),
            r#"{"type":"int32","optional":true,"name":"io.debezium.time.Date","version":1}"#,
            "19782",
            "19782",
            "19782",
        ),
        case(
            array(optional(Kind::Int32)),
            Value::Array(vec![Value::Int32(1), Value::Int32(2), Value::Null, Value::Int32(4)]),
            r#"{"type":"array","items":{"type":"int32","optional":true},"optional":true}"#,
            "[1,2,null,4]",
            "[1,2,null,4]",
            "[1, 2, null, 4]",
        ),
        case(
            array(optional(Kind::String)),
            Value::Array(vec![string("a"), string("b c"), Value::Null, string("q\"x")]),
            r#"{"type":"array","items":{"type":"string","optional":true},"optional":true}"#,
            r#"["a","b c",null,"q\"x"]"#,
            r#"["a","b c",null,"q\"x"]"#,
            r#"[a, b c, null, q"x]"#,
        ),
        case(
            array(decimal_schema(2, Some(6))),
            Value::Array(vec![decimal(150, 2), decimal(225, 2)]),
            concat!(
                r#"{"type":"array","items":{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","#,
                r#""version":1,"parameters":{"scale":"2","connect.decimal.precision":"6"}},"optional":true}"#
            ),
            r#"["AJY=","AOE="]"#,
            "[1.50,2.25]",
            "[1.50, 2.25]",
        ),
        case(
            array(optional(Kind::Boolean)),
            Value::Array(Vec::new()),
            r#"{"type":"array","items":{"type":"boolean","optional":true},"optional":true}"#,
            "[]",
            "[]",
            "[]",
        ),
        case(
            optional(Kind::Bytes),
            Value::Bytes(vec![0, 0xff]),
            r#"{"type":"bytes","optional":true}"#,
            r#""AP8=""#,
            "AP8=",
            "java.nio.HeapByteBuffer[pos=0 lim=2 cap=2]",
        ),
        case(
            optional(Kind::Bytes).named("io.debezium.data.Bits", 1).parameter("length", "8"),
            Value::ByteArray(vec![0xa0]),
            r#"{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","version":1,"parameters":{"length":"8"}}"#,
            r#""oA==""#,
            "oA==",
            "[B@ffffffbf",
        ),
        case(
            point,
            at,
            concat!(
                r#"{"type":"struct","fields":[{"type":"double","optional":false,"field":"x"},"#,
                r#"{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},"#,
                r#"{"type":"int32","optional":true,"field":"srid"}],"optional":true,"#,
                r#""name":"io.debezium.data.geometry.Point","version":1,"doc":"Geometry (POINT)"}"#
            ),
            r#"{"x":1.5,"y":2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAABA","srid":null}"#,
            r#"{"x":1.5,"y":2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAABA","srid":null}"#,
            "Struct{x=1.5,y=2.0,wkb=[B@554c4f06}",
        ),
    ]
}

#[test]
fn every_type_is_converted_as_the_golden_records_have_it() {
    let schemas = converter(JSON, Role::Value, &[]).unwrap();
    let json = converter(JSON, Role::Value, &[("schemas.enable", "false")]).unwrap();
    let simple = converter(SIMPLE, Role::Header, &[]).unwrap();
    let java = converter(STRING, Role::Key, &[]).unwrap();
    for Case { schema, value, schema_json, json: expected, simple: bare, string } in cases() {
        let envelope = format!(r#"{{"schema":{schema_json},"payload":{expected}}}"#);
        assert_eq!(text(&schemas, &schema, &value), Ok(Some(envelope)));
        assert_eq!(text(&json, &schema, &value).unwrap().as_deref(), Some(expected));
        assert_eq!(text(&simple, &schema, &value).unwrap().as_deref(), Some(bare));
        assert_eq!(text(&java, &schema, &value).unwrap().as_deref(), Some(string));

        assert_eq!(
            text(&schemas, &schema, &Value::Null),
            Ok(Some(format!(r#"{{"schema":{schema_json},"payload":null}}"#)))
        );
        assert_eq!(text(&json, &schema, &Value::Null).unwrap().as_deref(), Some("null"));
        assert_eq!(text(&simple, &schema, &Value::Null), Ok(None));
        assert_eq!(text(&java, &schema, &Value::Null), Ok(None));
    }
    assert_eq!(schemas.convert(None, &Value::Null), Ok(None), "a tombstone");
}

#[test]
fn dates_of_connect_are_numbers_in_json_and_printed_by_their_size_in_headers() {
    let json = converter(JSON, Role::Value, &[("schemas.enable", "FALSE")]).unwrap();
    let simple = converter(SIMPLE, Role::Header, &[]).unwrap();
    let logical = |name: &str, kind| Schema::new(kind).named(&format!("org.apache.kafka.connect.data.{name}"), 1);
    let (date, time) = (logical("Date", Kind::Int32), logical("Time", Kind::Int32));
    let timestamp = logical("Timestamp", Kind::Int64);
    for (schema, ms, number, header) in [
        (&date, 1_709_164_800_000, "19782", "2024-02-29"),
        (&date, -86_400_000, "-1", "00:00:00.000Z"),
        (&time, 45_296_789, "45296789", "12:34:56.789Z"),
        (&time, 86_399_999, "86399999", "23:59:59.999Z"),
        (&timestamp, 1_704_164_645_678, "1704164645678", "2024-01-02T03:04:05.678Z"),
        (&timestamp, 1_704_153_600_000, "1704153600000", "2024-01-02"),
        (&timestamp, -1000, "-1000", "23:59:59.000Z"),
    ] {
        assert_eq!(text(&json, schema, &Value::Date(ms)).unwrap().as_deref(), Some(number));
        assert_eq!(text(&simple, schema, &Value::Date(ms)).unwrap().as_deref(), Some(header));
    }
    let dates = Value::Array(vec![Value::Date(1_704_153_600_000)]);
    assert_eq!(text(&simple, &array(date.clone()), &dates).unwrap().as_deref(), Some("[2024-01-02]"));

    assert_eq!(text(&json, &date, &Value::Date(1)), Err(DataError::TimeInDate));
    assert_eq!(text(&json, &time, &Value::Date(-1)), Err(DataError::DateInTime));
    let error = text(&json, &date, &Value::Int32(1)).unwrap_err().to_string();
    assert_eq!(error, "invalid type for Date: class java.lang.Integer");
}

#[test]
fn maps_print_as_each_converter_prints_objects() {
    let schema = optional(Kind::Map(Arc::new(optional(Kind::String))));
    let value = Value::Map(vec![("a".to_owned(), string("1")), ("b".to_owned(), Value::Null)]);
    let expected = concat!(
        r#"{"schema":{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":true},"#,
        r#""optional":true},"payload":{"a":"1","b":null}}"#
    );
    let through = |class, role| text(&converter(class, role, &[]).unwrap(), &schema, &value).unwrap().unwrap();
    assert_eq!(through(JSON, Role::Value), expected);
    assert_eq!(through(SIMPLE, Role::Header), r#"{"a":"1","b":null}"#);
    assert_eq!(through(STRING, Role::Value), "{a=1, b=null}");
}

#[test]
fn an_envelope_has_its_nulls_in_json_and_leaves_them_out_as_text() {
    let schema = structure(vec![
        ("payload", optional(Kind::String).named("io.debezium.data.Json", 1)),
        ("eventType", optional(Kind::String)),
        ("tenant", optional(Kind::String)),
        ("version", optional(Kind::Int32)),
    ]);
    let json = converter(JSON, Role::Value, &[("schemas.enable", "false")]).unwrap();
    let java = converter(STRING, Role::Value, &[]).unwrap();
    for (values, object, printed) in [
        (
            vec![string(r#"{"a": 1}"#), string("OrderCreated"), string("t1"), Value::Int32(1)],
            r#"{"payload":"{\"a\": 1}","eventType":"OrderCreated","tenant":"t1","version":1}"#,
            r#"Struct{payload={"a": 1},eventType=OrderCreated,tenant=t1,version=1}"#,
        ),
        (
            vec![Value::Null, string("OrderCreated"), string(""), Value::Int32(-5)],
            r#"{"payload":null,"eventType":"OrderCreated","tenant":"","version":-5}"#,
            "Struct{eventType=OrderCreated,tenant=,version=-5}",
        ),
    ] {
        let value = with_values(&schema, values);
        assert_eq!(text(&json, &schema, &value).unwrap().as_deref(), Some(object));
        assert_eq!(text(&java, &schema, &value).unwrap().as_deref(), Some(printed));
    }
}

#[test]
fn defaults_stand_in_the_schema_and_for_nulls() {
    let schema = structure(vec![
        ("payload", Schema::new(Kind::String).named("io.debezium.data.Json", 1).with_default(string(r#"{"d": 1}"#))),
        ("n", Schema::new(Kind::Int32).with_default(Value::Int32(7))),
        ("s", optional(Kind::String).with_default(string("x"))),
    ])
    .optional();
    let schema = Schema { optional: false, name: Some("dbz.public.outbox.order.Value".to_owned()), ..schema };
    let value = with_values(&schema, vec![string(r#"{"d": 1}"#), Value::Int32(7), Value::Null]);
    let expected = concat!(
        r#"{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"name":"io.debezium.data.Json","version":1,"#,
        r#""default":"{\"d\": 1}","field":"payload"},{"type":"int32","optional":false,"default":7,"field":"n"},"#,
        r#"{"type":"string","optional":true,"default":"x","field":"s"}],"optional":false,"#,
        r#""name":"dbz.public.outbox.order.Value"},"payload":{"payload":"{\"d\": 1}","n":7,"s":"x"}}"#
    );
    let json = converter(JSON, Role::Value, &[]).unwrap();
    assert_eq!(text(&json, &schema, &value).unwrap().as_deref(), Some(expected));
    assert_eq!(value.to_string(), r#"Struct{payload={"d": 1},n=7}"#);
    let header = converter(SIMPLE, Role::Header, &[]).unwrap();
    assert_eq!(text(&header, &schema, &value).unwrap().as_deref(), Some(r#"{"payload":"{\"d\": 1}","n":7,"s":"x"}"#));

    let options = [("schemas.enable", "false"), ("replace.null.with.default", "false")];
    let kept = converter(JSON, Role::Value, &options).unwrap();
    assert_eq!(text(&kept, &schema, &value).unwrap().as_deref(), Some(r#"{"payload":"{\"d\": 1}","n":7,"s":null}"#));
    let required = Schema::new(Kind::Int32).with_default(Value::Int32(7));
    assert_eq!(text(&kept, &required, &Value::Null), Err(DataError::Required));
}

#[test]
fn jackson_escapes_controls_and_what_is_beyond_sixteen_bits() {
    let json = converter(JSON, Role::Value, &[("schemas.enable", "false")]).unwrap();
    let value = string("\u{1}\u{1f}\u{7f}\u{2028} q=a\"b\\c\nd\t\u{8}\u{c}\r/ h\u{e9} \u{1f600} \u{65e5}\u{672c} <&>");
    let expected = concat!(r#""\u0001\u001F"#, "\u{7f}\u{2028}", r#" q=a\"b\\c\nd\t\b\f\r/ hé \uD83D\uDE00 日本 <&>""#);
    assert_eq!(text(&json, &optional(Kind::String), &value).unwrap().as_deref(), Some(expected));
}

/// Not in the golden records: what JSON has no number for, and decimals as numbers.
#[test]
fn numbers_are_as_java_prints_them() {
    let json = converter(JSON, Role::Value, &[("schemas.enable", "false"), ("decimal.format", "numeric")]).unwrap();
    let double = optional(Kind::Float64);
    for (value, expected) in [
        (f64::NAN, r#""NaN""#),
        (f64::NEG_INFINITY, r#""-Infinity""#),
        (-0.0, "-0.0"),
        (1e7, "1.0E7"),
        (100.0, "100.0"),
    ] {
        assert_eq!(text(&json, &double, &Value::Float64(value)).unwrap().as_deref(), Some(expected));
    }
    assert_eq!(text(&json, &decimal_schema(2, None), &decimal(1230, 2)).unwrap().as_deref(), Some("12.30"));
    let error =
        text(&converter(JSON, Role::Value, &[]).unwrap(), &decimal_schema(2, None), &decimal(1, 3)).unwrap_err();
    assert_eq!(error, DataError::Scale { schema: 2, value: 3 });
}

#[test]
fn a_value_that_is_not_of_its_schema_is_refused_by_json_and_printed_by_string() {
    let json = converter(JSON, Role::Value, &[]).unwrap();
    let schema = structure(vec![("a", optional(Kind::Int32))]).optional();
    let unexpanded = string(r#"{"objs": [{"a": 1}, {"a": "x"}]}"#);
    let error = text(&json, &schema, &unexpanded).unwrap_err();
    assert_eq!(error.to_string(), "invalid type for STRUCT: class java.lang.String");
    let java = converter(STRING, Role::Value, &[]).unwrap();
    assert_eq!(text(&java, &schema, &unexpanded).unwrap().as_deref(), Some(r#"{"objs": [{"a": 1}, {"a": "x"}]}"#));

    let other = with_values(&structure(vec![("b", optional(Kind::Int32))]), vec![Value::Int32(1)]);
    assert_eq!(text(&json, &schema, &other), Err(DataError::Schema));
    assert_eq!(text(&json, &Schema::new(Kind::String), &Value::Null), Err(DataError::Required));
}

/// As Java's `equals` has it: a default of NaN does not make a schema another than itself.
#[test]
fn a_schema_is_equal_to_its_copy() {
    let schema = || structure(vec![("a", optional(Kind::Float64).with_default(Value::Float64(f64::NAN)))]);
    let value = with_values(&schema(), vec![Value::Float64(-0.0)]);
    let json = converter(JSON, Role::Value, &[("schemas.enable", "false")]).unwrap();
    assert_eq!(text(&json, &schema(), &value).unwrap().as_deref(), Some(r#"{"a":-0.0}"#));
}

#[test]
fn nesting_ends_where_jackson_ends_it() {
    let nested = |depth| {
        let (mut schema, mut value) = (Schema::new(Kind::Int32), Value::Int32(1));
        for _ in 0..depth {
            (schema, value) = (array(schema), Value::Array(vec![value]));
        }
        let json = converter(JSON, Role::Value, &[("schemas.enable", "false")]).unwrap();
        json.convert(Some(&schema), &value)
    };
    assert!(nested(1000).is_ok());
    assert_eq!(nested(1001), Err(DataError::Depth { max: 1000 }));

    // A struct's schema is an object in an array in an object.
    let structs = |depth| {
        let mut schema = Schema::new(Kind::Int32);
        let mut value = Value::Int32(1);
        for _ in 0..depth {
            schema = structure(vec![("f", schema)]);
            value = with_values(&schema, vec![value]);
        }
        Json::default().convert(Some(&schema), &value)
    };
    assert!(structs(499).is_ok());
    assert_eq!(structs(500), Err(DataError::Depth { max: 1000 }));
}

#[test]
fn expanded_payloads_print_as_java_prints_structs() {
    let inner = structure(vec![("j", optional(Kind::Int32))]);
    let items = Value::Array(vec![with_values(&inner, vec![Value::Int32(1)])]);
    let middle = structure(vec![("i", array(inner))]);
    let middle_value = with_values(&middle, vec![items]);
    let outer = structure(vec![("h", middle)]);
    let schema = structure(vec![
        ("a", optional(Kind::Int32)),
        ("b", optional(Kind::String)),
        ("c", optional(Kind::Boolean)),
        ("e", optional(Kind::Float64)),
        ("f", array(optional(Kind::Int32))),
        ("g", outer.clone()),
    ]);
    let f = Value::Array(vec![Value::Int32(1), Value::Int32(2)]);
    let g = with_values(&outer, vec![middle_value]);
    let value =
        with_values(&schema, vec![Value::Int32(1), string("x"), Value::Boolean(true), Value::Float64(1.5), f, g]);
    assert_eq!(value.to_string(), "Struct{a=1,b=x,c=true,e=1.5,f=[1, 2],g=Struct{h=Struct{i=[Struct{j=1}]}}}");
    let json = converter(JSON, Role::Value, &[("schemas.enable", "false")]).unwrap();
    let expected = r#"{"a":1,"b":"x","c":true,"e":1.5,"f":[1,2],"g":{"h":{"i":[{"j":1}]}}}"#;
    assert_eq!(text(&json, &schema, &value).unwrap().as_deref(), Some(expected));
}

#[test]
fn bytes_pass_the_converters_of_bytes() {
    let schema = optional(Kind::Bytes);
    let bytes = Value::Bytes(vec![0, 1, 0xff, 0xfe]);
    let kafka = converter("org.apache.kafka.connect.converters.ByteArrayConverter", Role::Value, &[]).unwrap();
    let binary = converter(BINARY_DATA, Role::Value, &[]).unwrap();
    for converter in [&kafka, &binary] {
        assert_eq!(converter.convert(Some(&schema), &bytes), Ok(Some(vec![0, 1, 0xff, 0xfe])));
        assert_eq!(converter.convert(Some(&schema), &Value::ByteArray(vec![7])), Ok(Some(vec![7])));
        assert_eq!(converter.convert(Some(&schema), &Value::Bytes(Vec::new())), Ok(Some(Vec::new())));
        assert_eq!(converter.convert(Some(&schema), &Value::Null), Ok(None));
        assert_eq!(converter.convert(None, &Value::Null), Ok(None));
    }
    let error = kafka.convert(Some(&optional(Kind::String)), &string("t")).unwrap_err().to_string();
    assert_eq!(error, "ByteArrayConverter is not compatible with a schema of type STRING");

    let debezium = converter("io.debezium.converters.ByteArrayConverter", Role::Value, &[]).unwrap();
    let error = debezium.convert(Some(&schema), &bytes).unwrap_err().to_string();
    let expected = "io.debezium.converters.ByteArrayConverter: a value of class java.nio.HeapByteBuffer requires a \
                    delegate.converter.type to be configured";
    assert_eq!(error, expected);
    assert_eq!(debezium.convert(Some(&schema), &Value::ByteArray(vec![7])), Ok(Some(vec![7])));
}

#[test]
fn a_delegate_converts_what_is_not_bytes() {
    let options = [("delegate.converter.type", JSON), ("delegate.converter.type.schemas.enable", "false")];
    let binary = converter(BINARY_DATA, Role::Value, &options).unwrap();
    assert_eq!(text(&binary, &optional(Kind::String), &string("t")).unwrap().as_deref(), Some(r#""t""#));
    assert_eq!(text(&binary, &optional(Kind::String), &Value::Null).unwrap().as_deref(), Some("null"));
    assert_eq!(binary.convert(Some(&optional(Kind::Bytes)), &Value::Bytes(vec![0])), Ok(Some(vec![0])));
    let heartbeat = structure(vec![("ts_ms", Schema::new(Kind::Int64))]);
    let now = with_values(&heartbeat, vec![Value::Int64(1)]);
    assert_eq!(text(&binary, &heartbeat, &now).unwrap().as_deref(), Some(r#"{"ts_ms":1}"#));

    let header = converter(BINARY_DATA, Role::Header, &options).unwrap();
    let error = text(&header, &optional(Kind::String), &string("t")).unwrap_err();
    assert_eq!(error, DataError::Delegate { converter: "BinaryDataConverter", found: "java.lang.String" });
}

#[test]
fn primitive_converters_are_big_endian_and_strict() {
    let class = |name: &str| format!("org.apache.kafka.connect.converters.{name}Converter");
    for (name, kind, value, bytes) in [
        ("Long", Kind::Int64, Value::Int64(42), vec![0, 0, 0, 0, 0, 0, 0, 42]),
        ("Integer", Kind::Int32, Value::Int32(-2), vec![0xff, 0xff, 0xff, 0xfe]),
        ("Short", Kind::Int16, Value::Int16(258), vec![1, 2]),
        ("Float", Kind::Float32, Value::Float32(1.0), vec![0x3f, 0x80, 0, 0]),
        ("Double", Kind::Float64, Value::Float64(-2.0), vec![0xc0, 0, 0, 0, 0, 0, 0, 0]),
        ("Boolean", Kind::Boolean, Value::Boolean(true), vec![1]),
    ] {
        let converter = converter(&class(name), Role::Key, &[]).unwrap();
        let schema = optional(kind);
        assert_eq!(converter.convert(Some(&schema), &value), Ok(Some(bytes)));
        assert_eq!(converter.convert(Some(&schema), &Value::Null), Ok(None));
    }
    let long = converter("LongConverter", Role::Key, &[]).unwrap();
    let error = long.convert(Some(&optional(Kind::Int32)), &Value::Int32(42)).unwrap_err().to_string();
    assert_eq!(error, "LongConverter is not compatible with objects of class java.lang.Integer");
}

#[test]
fn what_cannot_be_configured_names_key_and_value() {
    let error = |class, role, options: &[(&str, &str)]| converter(class, role, options).unwrap_err().to_string();
    assert_eq!(
        error(" Json ", Role::Value, &[("schemas.enable", "yes")]),
        "invalid value yes for schemas.enable: expected true or false"
    );
    assert_eq!(
        error(
            BINARY_DATA,
            Role::Value,
            &[("delegate.converter.type", JSON), ("delegate.converter.type.decimal.format", "x")]
        ),
        "invalid value x for delegate.converter.type.decimal.format: expected BASE64 or NUMERIC"
    );
    assert_eq!(error(SIMPLE, Role::Key, &[]), format!("{SIMPLE} converts headers only"));
    assert!(
        error("io.confluent.connect.avro.AvroConverter", Role::Value, &[])
            .contains("io.confluent.connect.avro.AvroConverter")
    );
    assert!(error("ByteArrayConverter", Role::Value, &[]).contains("package"));
}

#[test]
fn bytes_that_text_loses_are_known_from_the_schema() {
    let java = converter(STRING, Role::Value, &[]).unwrap();
    assert!(java.loses_bytes(&optional(Kind::Bytes)));
    assert!(java.loses_bytes(&array(structure(vec![("b", optional(Kind::Bytes))]))));
    assert!(!java.loses_bytes(&decimal_schema(2, None)));
    let delegating = converter(BINARY_DATA, Role::Value, &[("delegate.converter.type", STRING)]).unwrap();
    assert!(!delegating.loses_bytes(&optional(Kind::Bytes)));
    assert!(delegating.loses_bytes(&structure(vec![("b", optional(Kind::Bytes))])));
}
