//! Schemas and values are those of the golden records `V17*`, `V08*`, `V10*`, `V01*` and `V20*`; what they do not show is
//! what Debezium's own converters answer.

use super::*;
use crate::debezium::modes::*;
use crate::debezium::shown;

fn plain(oid: u32, name: &str) -> Type {
    Type { oid, name: name.to_owned(), shape: Shape::Plain }
}

fn array_of(element: Type) -> Type {
    Type { oid: 99_999, name: format!("_{}", element.name), shape: Shape::Array(Box::new(element)) }
}

fn mood() -> Type {
    Type { oid: 20_001, name: "mood".to_owned(), shape: Shape::Enum(vec!["sad".to_owned(), "happy".to_owned()]) }
}

fn attribute(kind: Type, typmod: i32) -> Attribute {
    Attribute { name: "c".to_owned(), kind, typmod, not_null: false, default: None }
}

#[track_caller]
fn column(kind: Type, typmod: i32, modes: &Modes) -> Column {
    Column::new(&attribute(kind, typmod), modes).expect("the column is part of rows")
}

#[track_caller]
fn values(column: &Column, texts: &[(&str, &str)]) {
    for (text, expected) in texts {
        let value = column.value(Some(text)).unwrap();
        assert_eq!(shown::value(&column.schema, &value), *expected, "{text}");
    }
    assert_eq!(column.value(None), Ok(Value::Null));
}

#[track_caller]
fn check(kind: Type, typmod: i32, modes: &Modes, schema: &str, texts: &[(&str, &str)]) {
    let column = column(kind, typmod, modes);
    assert_eq!(shown::schema(&column.schema), schema);
    values(&column, texts);
}

fn numeric(precision: i32, scale: i32) -> i32 {
    (precision << 16 | scale) + 4
}

#[test]
fn numbers() {
    let modes = Modes::default();
    check(plain(16, "bool"), -1, &modes, r#"{"type":"boolean","optional":true}"#, &[("t", "true"), ("f", "false")]);
    check(plain(21, "int2"), -1, &modes, r#"{"type":"int16","optional":true}"#, &[("-5", "-5")]);
    check(plain(23, "int4"), -1, &modes, r#"{"type":"int32","optional":true}"#, &[("2147483647", "2147483647")]);
    check(plain(26, "oid"), -1, &modes, r#"{"type":"int64","optional":true}"#, &[("4294967295", "4294967295")]);
    check(
        plain(700, "float4"),
        -1,
        &modes,
        r#"{"type":"float","optional":true}"#,
        &[("0.1", "0.1"), ("NaN", r#""NaN""#)],
    );
    check(plain(701, "float8"), -1, &modes, r#"{"type":"double","optional":true}"#, &[("1e+300", "1.0E300")]);
}

#[test]
fn numbers_of_any_precision_are_structs() {
    let schema = r#"{"type":"struct","fields":[{"type":"int32","optional":false,"field":"scale"},{"type":"bytes","optional":false,"field":"value"}],"optional":true,"name":"io.debezium.data.VariableScaleDecimal","version":1,"doc":"Variable scaled decimal"}"#;
    let texts = [
        ("12.3400", r#"{"scale":2,"value":"BNI="}"#),
        ("100000000000000000000", r#"{"scale":0,"value":"BWvHXi1jEAAA"}"#),
        ("0.00", r#"{"scale":0,"value":"AA=="}"#),
        ("NaN", "null"),
    ];
    check(plain(1700, "numeric"), -1, &Modes::default(), schema, &texts);
    let fail = Modes { failures: FailureMode::Fail, ..Modes::default() };
    let error = column(plain(1700, "numeric"), -1, &fail).value(Some("NaN")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "column c of type numeric: NaN and infinity have no form with decimal.handling.mode=precise; set it to string or \
         double"
    );
}

#[test]
fn decimals() {
    let schema = r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"10"}}"#;
    let (kind, typmod) = (|| plain(1700, "numeric"), numeric(10, 2));
    check(
        kind(),
        typmod,
        &Modes::default(),
        schema,
        &[("12.30", r#""BM4=""#), ("-0.05", r#""+w==""#), ("NaN", "null")],
    );
    let string = Modes { decimal: DecimalMode::String, ..Modes::default() };
    let texts = [("12.30", r#""12.30""#), ("NaN", r#""NAN""#), ("-Infinity", r#""NEGATIVE_INFINITY""#)];
    check(kind(), typmod, &string, r#"{"type":"string","optional":true}"#, &texts);
    values(&column(kind(), -1, &string), &[("12.3400", r#""12.3400""#)]);
    let double = Modes { decimal: DecimalMode::Double, ..Modes::default() };
    let texts = [("12.30", "12.3"), ("-5", "-5.0"), ("Infinity", r#""Infinity""#)];
    check(kind(), typmod, &double, r#"{"type":"double","optional":true}"#, &texts);
}

#[test]
fn money() {
    let schema = r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2"}}"#;
    let money = || plain(790, "money");
    check(money(), -1, &Modes::default(), schema, &[("$12.34", r#""BNI=""#), ("-$1.00", r#""nA==""#)]);
    let string = Modes { decimal: DecimalMode::String, ..Modes::default() };
    values(&column(money(), -1, &string), &[("-$1.00", r#""-1.00""#), ("($1,234.50)", r#""-1234.50""#)]);
    let digits = Modes { money_fraction_digits: 1, ..Modes::default() };
    values(&column(money(), -1, &digits), &[("$12.35", r#""fA==""#)]);
    let error = column(money(), -1, &digits).value(Some("12,34 €")).unwrap_err();
    assert_eq!(error.problem, Problem::Unreadable);
}

#[test]
fn texts() {
    let modes = Modes::default();
    for (oid, name) in [(25, "text"), (1043, "varchar"), (869, "inet"), (829, "macaddr"), (3904, "int4range")] {
        check(plain(oid, name), -1, &modes, r#"{"type":"string","optional":true}"#, &[("h\"é\\n", r#""h\"é\\n""#)]);
    }
    check(plain(1042, "bpchar"), 9, &modes, r#"{"type":"string","optional":true}"#, &[("ab   ", r#""ab   ""#)]);
    check(plain(20_000, "citext"), -1, &modes, r#"{"type":"string","optional":true}"#, &[("AbC", r#""AbC""#)]);
    for (oid, name, semantic) in [
        (2950, "uuid", "io.debezium.data.Uuid"),
        (3802, "jsonb", "io.debezium.data.Json"),
        (114, "json", "io.debezium.data.Json"),
        (142, "xml", "io.debezium.data.Xml"),
        (20_000, "ltree", "io.debezium.data.Ltree"),
        (3614, "tsvector", "io.debezium.data.Tsvector"),
    ] {
        let schema = format!(r#"{{"type":"string","optional":true,"name":"{semantic}","version":1}}"#);
        check(plain(oid, name), -1, &modes, &schema, &[("a b", r#""a b""#)]);
    }
    let schema = r#"{"type":"string","optional":true,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"sad,happy"}}"#;
    check(mood(), -1, &modes, schema, &[("happy", r#""happy""#)]);
}

#[test]
fn domains_are_what_they_are_over() {
    let over =
        |base: Type, typmod| Type { oid: 20_002, name: "d".to_owned(), shape: Shape::Domain(Box::new(base), typmod) };
    let modes = Modes::default();
    check(over(plain(23, "int4"), -1), -1, &modes, r#"{"type":"int32","optional":true}"#, &[("7", "7")]);
    let amount = over(over(plain(1700, "numeric"), numeric(6, 2)), -1);
    values(&column(amount, -1, &modes), &[("1.50", r#""AJY=""#)]);
    let array = over(array_of(plain(23, "int4")), -1);
    values(&column(array, -1, &modes), &[("{1,2}", "[1,2]")]);
    assert!(Column::new(&attribute(array_of(over(plain(23, "int4"), -1)), -1), &modes).is_none());
}

#[test]
fn bytes() {
    let bytea = || plain(17, "bytea");
    let texts = |empty, bytes| [("\\x", empty), ("\\x00fffe", bytes)];
    check(bytea(), -1, &Modes::default(), r#"{"type":"bytes","optional":true}"#, &texts(r#""""#, r#""AP/+""#));
    for (mode, expected) in
        [(BinaryMode::Base64, r#""AP/+""#), (BinaryMode::Base64UrlSafe, r#""AP_-""#), (BinaryMode::Hex, r#""00fffe""#)]
    {
        let modes = Modes { binary: mode, ..Modes::default() };
        check(bytea(), -1, &modes, r#"{"type":"string","optional":true}"#, &texts(r#""""#, expected));
    }
    let column = column(bytea(), -1, &Modes::default());
    assert_eq!(column.value(Some("\\x00ff")), Ok(Value::Bytes(vec![0, 255])));
    assert_eq!(column.value(Some("\\000")).unwrap_err().problem, Problem::Unreadable);
}

#[test]
fn bits() {
    let modes = Modes::default();
    check(plain(1560, "bit"), 1, &modes, r#"{"type":"boolean","optional":true}"#, &[("1", "true"), ("0", "false")]);
    let schema = |length| {
        format!(
            r#"{{"type":"bytes","optional":true,"name":"io.debezium.data.Bits","version":1,"parameters":{{"length":"{length}"}}}}"#
        )
    };
    let texts = [("10100000", r#""oA==""#), ("00000001", r#""AQ==""#), ("00000000", r#""""#)];
    check(plain(1560, "bit"), 8, &modes, &schema(8), &texts);
    check(
        plain(1562, "varbit"),
        10,
        &modes,
        &schema(10),
        &[("101", r#""BQ==""#), ("", r#""""#), ("1000000001", r#""AQI=""#)],
    );
    check(plain(1562, "varbit"), -1, &modes, &schema(i32::MAX), &[("101", r#""BQ==""#)]);
    check(plain(1562, "varbit"), 1, &modes, r#"{"type":"boolean","optional":true}"#, &[("1", "true"), ("", "null")]);
}

#[test]
fn dates() {
    let date = || plain(1082, "date");
    let texts =
        [("2024-02-29", "19782"), ("1969-12-31", "-1"), ("infinity", "-2147472692"), ("0044-03-15 BC", "-735160")];
    let schema = r#"{"type":"int32","optional":true,"name":"io.debezium.time.Date","version":1}"#;
    check(date(), -1, &Modes::default(), schema, &texts);
    let connect = Modes { time: TimeMode::Connect, ..Modes::default() };
    let schema = r#"{"type":"int32","optional":true,"name":"org.apache.kafka.connect.data.Date","version":1}"#;
    check(date(), -1, &connect, schema, &[("2024-02-29", "19782"), ("1969-12-31", "-1")]);
    let iso = Modes { time: TimeMode::IsoString, ..Modes::default() };
    let schema = r#"{"type":"string","optional":true,"name":"io.debezium.time.IsoDate","version":1}"#;
    check(date(), -1, &iso, schema, &[("2024-02-29", r#""2024-02-29Z""#), ("-infinity", r#""-5877611-06-22Z""#)]);
}

#[test]
fn times() {
    let time = || plain(1083, "time");
    let schema = |kind, name| format!(r#"{{"type":"{kind}","optional":true,"name":"{name}","version":1}}"#);
    let modes = |time| Modes { time, ..Modes::default() };
    let micro = schema("int64", "io.debezium.time.MicroTime");
    let text = "12:34:56.789012";
    check(time(), -1, &modes(TimeMode::Adaptive), &micro, &[(text, "45296789012"), ("24:00:00", "86400000000")]);
    let milli = schema("int32", "io.debezium.time.Time");
    check(time(), 3, &modes(TimeMode::Adaptive), &milli, &[("23:59:59.999", "86399999"), ("12:34:56", "45296000")]);
    check(time(), 3, &modes(TimeMode::AdaptiveTimeMicroseconds), &micro, &[("12:34:56.789", "45296789000")]);
    check(time(), 0, &modes(TimeMode::Microseconds), &micro, &[("00:00:01", "1000000")]);
    let nano = schema("int64", "io.debezium.time.NanoTime");
    check(time(), -1, &modes(TimeMode::Nanoseconds), &nano, &[(text, "45296789012000")]);
    let connect = schema("int32", "org.apache.kafka.connect.data.Time");
    check(time(), -1, &modes(TimeMode::Connect), &connect, &[(text, "45296789")]);
    let iso = schema("string", "io.debezium.time.IsoTime");
    check(
        time(),
        -1,
        &modes(TimeMode::IsoString),
        &iso,
        &[(text, r#""12:34:56.789012Z""#), ("24:00:00", r#""00:00:00Z""#)],
    );
    let zoned = schema("string", "io.debezium.time.ZonedTime");
    let texts = [("12:34:56.789+02", r#""10:34:56.789Z""#), ("00:00:00-05", r#""05:00:00Z""#)];
    check(plain(1266, "timetz"), -1, &Modes::default(), &zoned, &texts);
}

#[test]
fn timestamps() {
    let kind = || plain(1114, "timestamp");
    let schema = |kind, name| format!(r#"{{"type":"{kind}","optional":true,"name":"{name}","version":1}}"#);
    let modes = |time| Modes { time, ..Modes::default() };
    let text = "2024-01-02 03:04:05.678901";
    let texts = [
        (text, "1704164645678901"),
        ("1969-12-31 23:59:59", "-1000000"),
        ("infinity", "9223372036825200000"),
        ("-infinity", "-9223372036832400000"),
    ];
    check(kind(), -1, &modes(TimeMode::Adaptive), &schema("int64", "io.debezium.time.MicroTimestamp"), &texts);
    let milli = schema("int64", "io.debezium.time.Timestamp");
    check(
        kind(),
        3,
        &modes(TimeMode::AdaptiveTimeMicroseconds),
        &milli,
        &[("2024-01-02 03:04:05.678", "1704164645678")],
    );
    let nano = schema("int64", "io.debezium.time.NanoTimestamp");
    let texts = [
        (text, "1704164645678901000"),
        ("infinity", "9223372036854775807"),
        ("-infinity", "-9223372036854775808"),
        ("2300-01-01 00:00:00", "null"),
    ];
    check(kind(), -1, &modes(TimeMode::Nanoseconds), &nano, &texts);
    let connect = schema("int64", "org.apache.kafka.connect.data.Timestamp");
    check(kind(), -1, &modes(TimeMode::Connect), &connect, &[(text, "1704164645678")]);
    let iso = schema("string", "io.debezium.time.IsoTimestamp");
    let texts = [(text, r#""2024-01-02T03:04:05.678901Z""#), ("2024-01-02 03:04:00", r#""2024-01-02T03:04:00Z""#)];
    check(kind(), -1, &modes(TimeMode::IsoString), &iso, &texts);
    let zoned = schema("string", "io.debezium.time.ZonedTimestamp");
    let texts = [
        ("2024-01-02 03:04:05.678901+02", r#""2024-01-02T01:04:05.678901Z""#),
        ("2024-01-02 01:04:05.678+00", r#""2024-01-02T01:04:05.678000Z""#),
        ("infinity", r#""infinity""#),
        ("0044-03-15 12:00:00+00 BC", r#""-0043-03-15T12:00:00.000000Z""#),
    ];
    check(plain(1184, "timestamptz"), -1, &Modes::default(), &zoned, &texts);
    values(
        &column(plain(1184, "timestamptz"), 3, &Modes::default()),
        &[("2024-01-02 03:04:05.6+00", r#""2024-01-02T03:04:05.600Z""#)],
    );
    values(
        &column(plain(1184, "timestamptz"), 0, &Modes::default()),
        &[("2024-01-02 03:04:05+00", r#""2024-01-02T03:04:05Z""#)],
    );
}

#[test]
fn intervals() {
    let text = "1 year 2 mons 3 days 04:05:06.5";
    let schema = r#"{"type":"int64","optional":true,"name":"io.debezium.time.MicroDuration","version":1}"#;
    check(
        plain(1186, "interval"),
        -1,
        &Modes::default(),
        schema,
        &[(text, "37091106500000"), ("-1 days", "-86400000000")],
    );
    let string = Modes { interval: IntervalMode::String, ..Modes::default() };
    let schema = r#"{"type":"string","optional":true,"name":"io.debezium.time.Interval","version":1}"#;
    check(plain(1186, "interval"), -1, &string, schema, &[(text, r#""P1Y2M3DT4H5M6.5S""#)]);
}

#[test]
fn points_and_geometries() {
    let schema = r#"{"type":"struct","fields":[{"type":"double","optional":false,"field":"x"},{"type":"double","optional":false,"field":"y"},{"type":"bytes","optional":true,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}],"optional":true,"name":"io.debezium.data.geometry.Point","version":1,"doc":"Geometry (POINT)"}"#;
    let point = r#"{"x":1.5,"y":2.0,"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAABA","srid":null}"#;
    check(plain(600, "point"), -1, &Modes::default(), schema, &[("(1.5,2)", point)]);
    let schema = r#"{"type":"struct","fields":[{"type":"bytes","optional":false,"field":"wkb"},{"type":"int32","optional":true,"field":"srid"}],"optional":true,"name":"io.debezium.data.geometry.Geometry","version":1,"doc":"Geometry"}"#;
    let ewkb = "0101000020E6100000000000000000F03F0000000000000040";
    let geometry = r#"{"wkb":"AQEAACDmEAAAAAAAAAAA8D8AAAAAAAAAQA==","srid":4326}"#;
    check(plain(20_000, "geometry"), -1, &Modes::default(), schema, &[(ewkb, geometry)]);
}

#[test]
fn hstores_and_vectors() {
    let hstore = || plain(20_000, "hstore");
    let schema = r#"{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1}"#;
    let text = r#""a"=>"1", "b"=>NULL"#;
    check(hstore(), -1, &Modes::default(), schema, &[(text, r#""{\"a\":\"1\",\"b\":null}""#), ("", r#""{}""#)]);
    let map = Modes { hstore: HstoreMode::Map, ..Modes::default() };
    let schema = r#"{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"string","optional":true},"optional":true}"#;
    check(hstore(), -1, &map, schema, &[(text, r#"{"a":"1","b":null}"#), ("", "{}")]);
    let schema = r#"{"type":"array","items":{"type":"double","optional":false},"optional":true,"name":"io.debezium.data.DoubleVector","version":1}"#;
    check(plain(20_000, "vector"), -1, &Modes::default(), schema, &[("[1,2.5]", "[1.0,2.5]")]);
}

#[test]
fn arrays() {
    let modes = Modes::default();
    let schema = |items: &str| format!(r#"{{"type":"array","items":{items},"optional":true}}"#);
    let named = |kind, name| schema(&format!(r#"{{"type":"{kind}","optional":true,"name":"{name}","version":1}}"#));
    let optional = |kind| schema(&format!(r#"{{"type":"{kind}","optional":true}}"#));
    let texts =
        [("{1,2,NULL,4}", "[1,2,null,4]"), ("{}", "[]"), ("{{1,2},{3,4}}", "[null,null]"), ("[0:1]={7,8}", "[7,8]")];
    check(array_of(plain(23, "int4")), -1, &modes, &optional("int32"), &texts);
    let texts = [(r#"{a,"b c",NULL,"q\"x"}"#, r#"["a","b c",null,"q\"x"]"#), ("{{a}}", "null")];
    check(array_of(plain(25, "text")), -1, &modes, &optional("string"), &texts);
    check(array_of(plain(16, "bool")), -1, &modes, &optional("boolean"), &[("{t,f,NULL}", "[true,false,null]")]);
    let uuid = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
    let texts = [(format!("{{{uuid}}}"), format!(r#"["{uuid}"]"#))];
    let texts = texts.each_ref().map(|(text, expected)| (text.as_str(), expected.as_str()));
    check(array_of(plain(2950, "uuid")), -1, &modes, &named("string", "io.debezium.data.Uuid"), &texts);
    let decimals = schema(
        r#"{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"6"}}"#,
    );
    check(
        array_of(plain(1700, "numeric")),
        numeric(6, 2),
        &modes,
        &decimals,
        &[("{1.50,2.25}", r#"["AJY=","AOE="]"#), ("{NaN}", "null")],
    );
    let string = Modes { decimal: DecimalMode::String, ..Modes::default() };
    values(&column(array_of(plain(1700, "numeric")), -1, &string), &[("{1.50}", r#"["1.50"]"#), ("{NaN}", "null")]);
    let nanos = Modes { time: TimeMode::Nanoseconds, ..Modes::default() };
    let texts = [(r#"{"2300-01-01 00:00:00","1970-01-01 00:00:01"}"#, "[null,1000000000]")];
    values(&column(array_of(plain(1114, "timestamp")), -1, &nanos), &texts);
    let zoned = named("string", "io.debezium.time.ZonedTimestamp");
    let texts = [(r#"{"2024-01-02 03:04:05+00"}"#, r#"["2024-01-02T03:04:05.000000Z"]"#)];
    check(array_of(plain(1184, "timestamptz")), -1, &modes, &zoned, &texts);
    check(
        array_of(plain(1082, "date")),
        -1,
        &modes,
        &named("int32", "io.debezium.time.Date"),
        &[("{2024-01-02}", "[19724]")],
    );
    check(
        array_of(plain(1083, "time")),
        -1,
        &modes,
        &named("int64", "io.debezium.time.MicroTime"),
        &[("{12:34:56.789012}", "[45296789000]")],
    );
    check(
        array_of(plain(1266, "timetz")),
        -1,
        &modes,
        &named("string", "io.debezium.time.ZonedTime"),
        &[("{12:34:56.789+02}", r#"["10:34:56Z"]"#)],
    );
    check(array_of(plain(17, "bytea")), -1, &modes, &optional("bytes"), &[(r#"{"\\x00ff"}"#, r#"["AP8="]"#)]);
    let moods = schema(
        r#"{"type":"string","optional":false,"name":"io.debezium.data.Enum","version":1,"parameters":{"allowed":"sad,happy"}}"#,
    );
    check(array_of(mood()), -1, &modes, &moods, &[("{happy,sad}", r#"["happy","sad"]"#), ("{NULL}", "null")]);
    for (oid, name) in
        [(790, "money"), (19, "name"), (1186, "interval"), (142, "xml"), (600, "point"), (1562, "varbit")]
    {
        assert!(Column::new(&attribute(array_of(plain(oid, name)), -1), &modes).is_none(), "{name}");
    }
    values(&column(array_of(plain(1560, "bit")), 8, &modes), &[("{10000000}", "null")]);
}

#[test]
fn unknown_types_are_left_out_unless_asked_for() {
    let modes = Modes::default();
    let circle = || plain(718, "circle");
    let comp = || plain(20_003, "comp");
    for kind in [circle(), comp(), plain(3615, "tsquery"), array_of(comp())] {
        assert!(Column::new(&attribute(kind, -1), &modes).is_none());
    }
    let include = Modes { include_unknown_datatypes: true, ..Modes::default() };
    check(comp(), -1, &include, r#"{"type":"bytes","optional":true}"#, &[("(1,x)", r#""KDEseCk=""#)]);
    check(
        array_of(comp()),
        -1,
        &include,
        r#"{"type":"array","items":{"type":"bytes","optional":false},"optional":true}"#,
        &[(r#"{"(1,x)"}"#, r#"["KDEseCk="]"#)],
    );
    let hex = Modes { binary: BinaryMode::Hex, ..include.clone() };
    let printed = column(circle(), -1, &hex).value(Some("<(1,2.5),1e+20>")).unwrap();
    let expected: String = "<(1.0,2.5),1.0E20>".bytes().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(printed, Value::String(expected));
    // `name` has a schema, but its values are not read.
    values(&column(plain(19, "name"), -1, &modes), &[("x", "null")]);
    values(&column(plain(19, "name"), -1, &include), &[("x", r#""x""#)]);
}

#[test]
fn a_required_column_has_a_default_or_a_zero_for_null() {
    let modes = Modes::default();
    let required = |kind: Type, typmod, default: Option<&str>| {
        let default = default.map(str::to_owned);
        Column::new(&Attribute { not_null: true, default, ..attribute(kind, typmod) }, &modes).unwrap()
    };
    let zero = |column: Column| shown::value(&column.schema, &column.value(None).unwrap());
    assert_eq!(zero(required(plain(1043, "varchar"), 259, None)), r#""""#);
    assert_eq!(zero(required(plain(23, "int4"), -1, None)), "0");
    assert_eq!(zero(required(plain(1700, "numeric"), numeric(10, 2), None)), r#""AA==""#);
    assert_eq!(zero(required(plain(1184, "timestamptz"), -1, None)), r#""1970-01-01T00:00:00Z""#);
    assert_eq!(zero(required(plain(1266, "timetz"), -1, None)), r#""00:00:00Z""#);
    assert_eq!(zero(required(plain(3802, "jsonb"), -1, None)), r#""""#);
    assert_eq!(zero(required(array_of(plain(23, "int4")), -1, None)), "[]");
    assert_eq!(zero(required(plain(23, "int4"), -1, Some("7"))), "7");
    let column = required(plain(1184, "timestamptz"), -1, Some("'2024-01-01 00:00:00+00'::timestamp with time zone"));
    let schema = r#"{"type":"string","optional":false,"name":"io.debezium.time.ZonedTimestamp","version":1,"default":"2024-01-01T00:00:00.000000Z"}"#;
    assert_eq!(shown::schema(&column.schema), schema);
}

#[test]
fn defaults_are_read_from_their_expressions() {
    let modes = Modes::default();
    let default = |kind: Type, typmod, default: &str| {
        let attribute = Attribute { default: Some(default.to_owned()), ..attribute(kind, typmod) };
        let schema = Column::new(&attribute, &modes).unwrap().schema;
        schema.default.as_ref().map_or("none".to_owned(), |default| shown::value(&schema, default))
    };
    assert_eq!(default(plain(25, "text"), -1, "'dflt'::text"), r#""dflt""#);
    assert_eq!(default(plain(3802, "jsonb"), -1, r#"'{"d": 1}'::jsonb"#), r#""{\"d\": 1}""#);
    assert_eq!(default(plain(20, "int8"), -1, "nextval('outbox_id_seq'::regclass)"), "0");
    assert_eq!(default(plain(2950, "uuid"), -1, "gen_random_uuid()"), r#""00000000-0000-0000-0000-000000000000""#);
    assert_eq!(default(plain(1184, "timestamptz"), -1, "now()"), r#""1970-01-01T00:00:00.000000Z""#);
    assert_eq!(default(plain(1114, "timestamp"), -1, "CURRENT_TIMESTAMP"), "0");
    assert_eq!(default(plain(1082, "date"), -1, "'2024-02-29'::date"), "19782");
    assert_eq!(default(plain(1083, "time"), 3, "'12:34:56.789'::time without time zone"), "45296789");
    assert_eq!(default(plain(1186, "interval"), -1, "'1 day'::interval"), "86400000000");
    assert_eq!(default(plain(16, "bool"), -1, "true"), "true");
    assert_eq!(default(plain(1700, "numeric"), numeric(10, 2), "1.5"), r#""AJY=""#);
    assert_eq!(default(plain(701, "float8"), -1, "'-0.5'::numeric"), "-0.5");
    assert_eq!(default(mood(), -1, "'happy'::mood"), r#""happy""#);
    for (kind, expression) in [
        (plain(1700, "numeric"), "1.5"),
        (plain(23, "int4"), "(1 + 2)"),
        (plain(25, "text"), "NULL::text"),
        (plain(17, "bytea"), "'\\x00'::bytea"),
        (array_of(plain(25, "text")), "'{}'::text[]"),
        (plain(20_000, "citext"), "'a'::citext"),
        (plain(1184, "timestamptz"), "'infinity'::timestamp with time zone"),
    ] {
        assert_eq!(default(kind, -1, expression), "none", "{expression}");
    }
}

#[test]
fn a_placeholder_stands_for_what_the_log_does_not_repeat() {
    let modes = Modes { unavailable_value_placeholder: b"na".to_vec(), ..Modes::default() };
    let unavailable = |kind: Type| {
        let column = column(kind, -1, &modes);
        shown::value(&column.schema, &column.unavailable())
    };
    assert_eq!(unavailable(plain(3802, "jsonb")), r#""na""#);
    assert_eq!(unavailable(plain(17, "bytea")), r#""bmE=""#);
    assert_eq!(unavailable(plain(1700, "numeric")), "null");
    assert_eq!(unavailable(plain(20_000, "hstore")), r#""{\"na\":\"na\"}""#);
    assert_eq!(unavailable(array_of(plain(25, "text"))), r#"["na"]"#);
    assert_eq!(unavailable(array_of(plain(23, "int4"))), "[110,97]");
    assert_eq!(unavailable(array_of(plain(2950, "uuid"))), r#"["6ec66e12-4fb9-3c19-8e92-07b0b82f542a"]"#);
    assert_eq!(unavailable(array_of(plain(701, "float8"))), "null");
}

#[test]
fn field_names_are_adjusted() {
    let modes = Modes { field_names: NameAdjustment::Avro, ..Modes::default() };
    let attribute = Attribute { name: "order-id".to_owned(), ..attribute(plain(25, "text"), -1) };
    assert_eq!(Column::new(&attribute, &modes).unwrap().name, "order_id");
}
