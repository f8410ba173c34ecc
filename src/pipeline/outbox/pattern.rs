//! A template whose columns are indexes into a row.

use std::borrow::Cow;

use crate::pipeline::template::{Part, Template};

/// Literal text and columns in turn.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Piece>);

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Column { index: usize, name: String },
}

/// Why a row does not fill a pattern.
#[derive(Debug)]
pub(super) enum Unfilled<'a> {
    /// The column, by its name in the template, is NULL.
    Null(&'a str),
    /// It has these bytes, which are no UTF-8.
    Encoding(&'a str, &'a [u8]),
    /// Its text cannot stand there.
    Text(&'a str),
    /// The row has no such column.
    Shape,
}

impl Pattern {
    /// `index_of` finds the column for a name in the template.
    pub(super) fn new<E>(template: &Template, index_of: impl Fn(&str) -> Result<usize, E>) -> Result<Pattern, E> {
        let piece = |part: &Part| match part {
            Part::Text(text) => Ok(Piece::Text(text.clone())),
            Part::Column(name) => Ok(Piece::Column { index: index_of(name)?, name: name.clone() }),
        };
        template.parts().iter().map(piece).collect::<Result<_, E>>().map(Pattern)
    }

    /// Writes a row's text behind `text`; `value` is the row's column at an index, where it has one, and `part` what stands for
    /// a column's text.
    pub(super) fn fill<'a>(
        &'a self,
        text: &mut String,
        value: impl Fn(usize) -> Option<Option<&'a [u8]>>,
        part: impl Fn(&'a str) -> Option<Cow<'a, str>>,
    ) -> Result<(), Unfilled<'a>> {
        for piece in &self.0 {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Column { index, name } => {
                    let bytes = value(*index).ok_or(Unfilled::Shape)?.ok_or(Unfilled::Null(name))?;
                    let column = std::str::from_utf8(bytes).map_err(|_| Unfilled::Encoding(name, bytes))?;
                    text.push_str(&part(column).ok_or(Unfilled::Text(name))?);
                }
            }
        }
        Ok(())
    }

    /// Names of its columns, joined by commas.
    pub(super) fn columns(&self) -> String {
        let name = |piece: &Piece| match piece {
            Piece::Text(_) => None,
            Piece::Column { name, .. } => Some(name.clone()),
        };
        self.0.iter().filter_map(name).collect::<Vec<_>>().join(", ")
    }
}
