//! A table as its rows are read: columns that become fields, the key, the schemas.

use std::sync::Arc;

use super::columns::{Attribute, Column, ConversionError};
use super::record::Datum;
use crate::connect::{Field, Kind, Schema, Struct, Value};
use crate::pipeline::outbox::TableName;

/// How rows of a table are read, from what pgoutput's relation and the catalog say of it.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) name: TableName,
    /// Of its records, where no transform gives another.
    pub(super) topic: String,
    pub(super) columns: Vec<Placed>,
    pub(super) key: Option<Key>,
    /// Of a row.
    pub(super) schema: Arc<Schema>,
    /// Of a change.
    pub(super) envelope: Arc<Schema>,
    pub(super) warnings: Vec<String>,
}

/// A column with its place in the rows.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) index: usize,
    pub(super) column: Column,
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) schema: Arc<Schema>,
    pub(super) columns: Vec<Placed>,
}

impl Table {
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// What will go wrong, or already does with Debezium: columns that options name and the table lacks, or has in
    /// a type that will not do; bytes that a converter loses.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// One column of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    Null,
    /// Stored out of line and left as it was by an update: the log does not repeat it.
    Unchanged,
    Text(&'a str),
}

/// A row beside its table.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) table: &'a Table,
    /// In the order of the table's attributes; null where they end early.
    pub(super) cells: &'a [Cell<'a>],
    /// Of the row before an update, where the log has it; else empty.
    pub(super) old: &'a [Cell<'a>],
}

impl<'a> Row<'a> {
    pub(super) fn new(table: &'a Table, cells: &'a [Cell<'a>]) -> Row<'a> {
        Row { table, cells, old: &[] }
    }

    pub(super) fn value(&self, placed: &Placed) -> Result<Value, ConversionError> {
        let Placed { index, column } = placed;
        match (self.cells.get(*index), self.old.get(*index)) {
            (Some(Cell::Text(text)), _) | (Some(Cell::Unchanged), Some(Cell::Text(text))) => column.value(Some(text)),
            (Some(Cell::Unchanged), _) => Ok(column.unavailable()),
            (Some(Cell::Null) | None, _) => column.value(None),
        }
    }

    /// All columns; defaults do not take the place of null.
    pub(super) fn whole(&self) -> Result<Struct, ConversionError> {
        let values = self.table.columns.iter().map(|placed| self.value(placed)).collect::<Result<_, _>>()?;
        Ok(Struct { schema: self.table.schema.clone(), values })
    }

    pub(super) fn key(&self) -> Result<Option<Datum>, ConversionError> {
        let Some(key) = &self.table.key else { return Ok(None) };
        let values = key.columns.iter().map(|placed| self.value(placed)).collect::<Result<_, _>>()?;
        Ok(Some(Datum::of(Struct { schema: key.schema.clone(), values })))
    }
}

/// A schema with a field for each column.
pub(super) fn schema_of(name: String, columns: &[Placed]) -> Schema {
    let field = |placed: &Placed| Field { name: placed.column.name.clone(), schema: placed.column.schema.clone() };
    Schema { name: Some(name), ..Schema::new(Kind::Struct(columns.iter().map(field).collect())) }
}

/// The columns of these attributes that have a form.
pub(super) fn placed<'a>(
    attributes: impl Iterator<Item = (usize, &'a Attribute)>,
    modes: &super::modes::Modes,
) -> Vec<Placed> {
    attributes.filter_map(|(index, attribute)| Some(Placed { index, column: Column::new(attribute, modes)? })).collect()
}
