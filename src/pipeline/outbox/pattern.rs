//! A template whose columns are indexes into a row.

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
pub(super) enum Unfilled<'a, E> {
    /// The column, by its name in the template, is NULL.
    Null(&'a str),
    /// It has these bytes, which are no UTF-8.
    Encoding(&'a [u8]),
    Row(E),
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

    /// Writes a row's text over `text`; `value` is the row's column at an index.
    pub(super) fn fill<'a, E>(
        &'a self,
        text: &mut String,
        value: impl Fn(usize) -> Result<Option<&'a [u8]>, E>,
    ) -> Result<(), Unfilled<'a, E>> {
        text.clear();
        for piece in &self.0 {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Column { index, name } => {
                    let bytes = value(*index).map_err(Unfilled::Row)?.ok_or(Unfilled::Null(name))?;
                    text.push_str(std::str::from_utf8(bytes).map_err(|_| Unfilled::Encoding(bytes))?);
                }
            }
        }
        Ok(())
    }
}
