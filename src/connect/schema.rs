//! Schemas, as `org.apache.kafka.connect.data.Schema` has them.

use std::sync::Arc;

use super::Value;

/// A schema, shared by all values that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub kind: Kind,
    pub optional: bool,
    /// Of the semantic type, such as `io.debezium.data.Uuid`, or of a struct.
    pub name: Option<String>,
    pub version: Option<i32>,
    pub doc: Option<String>,
    /// In the order in which they were set.
    pub parameters: Vec<(String, String)>,
    /// What takes the place of a missing value.
    pub default: Option<Value>,
}

/// What a value is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean,
    Int8,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    String,
    Bytes,
    Array(Arc<Schema>),
    /// Of values by strings, which are required.
    Map(Arc<Schema>),
    Struct(Vec<Field>),
}

/// A member of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: String,
    pub schema: Arc<Schema>,
}

impl Schema {
    /// Required, without a name.
    pub fn new(kind: Kind) -> Schema {
        Schema { kind, optional: false, name: None, version: None, doc: None, parameters: Vec::new(), default: None }
    }

    pub fn optional(self) -> Schema {
        Schema { optional: true, ..self }
    }

    /// With the name and version of a semantic type.
    pub fn named(self, name: &str, version: i32) -> Schema {
        Schema { name: Some(name.to_owned()), version: Some(version), ..self }
    }
    pub fn documented(self, doc: &str) -> Schema {
        Schema { doc: Some(doc.to_owned()), ..self }
    }

    /// With one more parameter.
    pub fn parameter(mut self, name: &str, value: impl Into<String>) -> Schema {
        self.parameters.push((name.to_owned(), value.into()));
        self
    }

    pub fn with_default(self, default: Value) -> Schema {
        Schema { default: Some(default), ..self }
    }
}

impl Kind {
    /// `Schema.Type`'s name of it.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Boolean => "BOOLEAN",
            Kind::Int8 => "INT8",
            Kind::Int16 => "INT16",
            Kind::Int32 => "INT32",
            Kind::Int64 => "INT64",
            Kind::Float32 => "FLOAT32",
            Kind::Float64 => "FLOAT64",
            Kind::String => "STRING",
            Kind::Bytes => "BYTES",
            Kind::Array(_) => "ARRAY",
            Kind::Map(_) => "MAP",
            Kind::Struct(_) => "STRUCT",
        }
    }
}
