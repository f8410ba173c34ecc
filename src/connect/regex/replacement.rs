//! What stands in place of a match: `$1`, `${name}`, `\` before what is meant as it is.

use fancy_regex::Captures;

/// A parsed replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Group(usize),
}

/// Why a text is no replacement. Java finds out at the first match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplacementError {
    #[error("a \\ at the end escapes nothing")]
    Escape,
    #[error("a $ must be followed by the number of a group or by its name in braces; write \\$ for the sign itself")]
    Dollar,
    #[error("the pattern has no group {0}")]
    NoGroup(usize),
    #[error("the pattern has no group named {0:?}")]
    NoName(String),
    #[error("the name of a group is not closed with }}")]
    Unclosed,
}

impl Replacement {
    pub(super) fn parse(text: &str, groups: usize, names: &[(String, usize)]) -> Result<Replacement, ReplacementError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            let group = match c {
                '\\' => {
                    literal.push(rest.next().ok_or(ReplacementError::Escape)?);
                    continue;
                }
                '$' => match rest.next() {
                    Some('{') => {
                        let mut name = String::new();
                        while let Some(c) = rest.next_if(char::is_ascii_alphanumeric) {
                            name.push(c);
                        }
                        match rest.next() {
                            Some('}') => {}
                            Some(_) | None => return Err(ReplacementError::Unclosed),
                        }
                        let known = names.iter().find(|(known, _)| *known == name);
                        known.map(|(_, group)| *group).ok_or(ReplacementError::NoName(name))?
                    }
                    Some(digit) => {
                        let mut group = digit.to_digit(10).ok_or(ReplacementError::Dollar)? as usize;
                        if group > groups {
                            return Err(ReplacementError::NoGroup(group));
                        }
                        // As many digits as still make the number of a group.
                        while let Some(digit) = rest.peek().and_then(|c| c.to_digit(10)) {
                            let longer = group * 10 + digit as usize;
                            if longer > groups {
                                break;
                            }
                            group = longer;
                            rest.next();
                        }
                        group
                    }
                    None => return Err(ReplacementError::Dollar),
                },
                c => {
                    literal.push(c);
                    continue;
                }
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Group(group));
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Replacement { parts })
    }

    /// The text for a match. A group that took no part is empty.
    pub(super) fn push(&self, found: &Captures<'_, str>, text: &mut String) {
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Group(group) => text.push_str(found.get(*group).map_or("", |group| group.as_str())),
            }
        }
    }
}
