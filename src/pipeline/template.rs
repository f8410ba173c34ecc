//! Topic templates: literal text and columns in `${…}`.

use std::str::FromStr;

/// `outbox.event.${aggregate_type}`, parsed: text and columns in turn.
///
/// A column in `${…}` is first one of walpost's names (`aggregate_type`), else a column of the table by its own name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
/// A piece of a template.
pub enum Part {
    Text(String),
    Column(String),
}

impl Template {
    /// Its pieces, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

impl Part {
    /// Literal text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Part::Text(text) => Some(text),
            Part::Column(_) => None,
        }
    }
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("the template {0:?} opens ${{ and never closes it; write ${{column}}")]
    Unclosed(String),
    #[error("the template {0:?} has an empty ${{}}; write ${{column}}")]
    NoColumn(String),
    #[error("the template is empty; the default is outbox.event.${{aggregate_type}}")]
    Empty,
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Template, TemplateError> {
        if text.is_empty() {
            return Err(TemplateError::Empty);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((literal, opened)) = rest.split_once("${") {
            if !literal.is_empty() {
                parts.push(Part::Text(literal.to_owned()));
            }
            let (column, after) = opened.split_once('}').ok_or_else(|| TemplateError::Unclosed(text.to_owned()))?;
            if column.is_empty() {
                return Err(TemplateError::NoColumn(text.to_owned()));
            }
            parts.push(Part::Column(column.to_owned()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template { parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_columns_in_turn() {
        let column = |name: &str| Part::Column(name.to_owned());
        let text = |literal: &str| Part::Text(literal.to_owned());
        let parts = |template: &str| template.parse::<Template>().unwrap().parts;
        assert_eq!(parts("orders"), [text("orders")]);
        assert_eq!(parts("a.${b}"), [text("a."), column("b")]);
        assert_eq!(parts("${a}${b}.c"), [column("a"), column("b"), text(".c")]);
        assert_eq!(parts("a$b{c}"), [text("a$b{c}")]);
    }

    #[test]
    fn broken_templates_are_refused() {
        assert!(matches!("".parse::<Template>(), Err(TemplateError::Empty)));
        assert!(matches!("a.${b".parse::<Template>(), Err(TemplateError::Unclosed(_))));
        assert!(matches!("a.${}".parse::<Template>(), Err(TemplateError::NoColumn(_))));
    }
}
