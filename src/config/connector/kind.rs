//! What the value of a connector's key may be.

use crate::connect::regex::Pattern;

use super::list;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    /// A text that says nothing when it is empty: a name of a column, a class.
    Name,
    /// A text that no message and no listing holds.
    Secret,
    /// `true` or `false`, in any case of the letters.
    Boolean,
    /// A whole number from this one on, as wide as Java's `int`.
    Int(i64),
    /// The same, as wide as `long`.
    Long(i64),
    /// One of these words, in any case of the letters.
    Choice(&'static [&'static str]),
    /// One of these words, as they are.
    Word(&'static [&'static str]),
    /// Joined by commas.
    List,
    /// Java's regular expressions, joined by commas.
    Regexes,
    Regex,
    /// `c`, `u`, `d`, `t`, `r`, joined by commas, or `none`.
    Operations,
    /// `column:placement` or `column:placement:alias`, joined by commas.
    Placements,
    /// Letters, digits, `.`, `_`, `-`.
    Topic,
    /// A name that PostgreSQL takes for a slot.
    Slot,
    /// -1 for the broker's own, or a whole number from 1.
    CountOrBroker,
}

const PLACEMENTS: [&str; 3] = ["header", "envelope", "partition"];

impl Kind {
    /// What is wrong with a value, and what is allowed instead.
    pub(super) fn check(self, value: &str) -> Result<(), String> {
        let refuse = |allowed: &str| Err(format!("{value:?} is not {allowed}"));
        let number = |least: i64, most: i64| match value.trim().parse::<i64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(()),
            Ok(_) | Err(_) if least == i64::MIN || least == i64::from(i32::MIN) => refuse("a whole number"),
            Ok(_) | Err(_) => Err(format!("{value:?} is not a whole number from {least} to {most}")),
        };
        match self {
            Kind::Text | Kind::Secret | Kind::List => Ok(()),
            Kind::Name if value.trim().is_empty() => Err("this is empty; leave it out or give it a value".to_owned()),
            Kind::Name => Ok(()),
            Kind::Boolean if boolean(value).is_none() => refuse("a switch; allowed are true and false"),
            Kind::Boolean => Ok(()),
            Kind::Int(least) => number(least, i64::from(i32::MAX)),
            Kind::Long(least) => number(least, i64::MAX),
            Kind::Choice(words) if words.iter().any(|word| word.eq_ignore_ascii_case(value.trim())) => Ok(()),
            Kind::Word(words) if words.contains(&value) => Ok(()),
            Kind::Choice(words) | Kind::Word(words) => {
                refuse(&format!("a value of it; allowed are {}", words.join(", ")))
            }
            Kind::Regexes => {
                for pattern in list::patterns(value) {
                    let compiled = Pattern::parse_ignoring_case(&pattern);
                    compiled.map_err(|error| format!("{pattern:?} is no regular expression of Java's: {error}"))?;
                }
                Ok(())
            }
            Kind::Regex => match Pattern::parse(value) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{value:?} is no regular expression of Java's: {error}")),
            },
            Kind::Operations => operations(value),
            Kind::Placements => placements(value),
            Kind::Topic if is_topic(value) => Ok(()),
            Kind::Topic => refuse("a name for topics; allowed are letters, digits, '.', '_' and '-'"),
            Kind::Slot if is_slot(value) => Ok(()),
            Kind::Slot => refuse("a name for a slot; allowed are 1 to 63 of a-z, 0-9 and '_'"),
            Kind::CountOrBroker => match value.trim().parse::<i32>() {
                Ok(count) if count == -1 || count >= 1 => Ok(()),
                Ok(_) | Err(_) => refuse("a count; allowed are whole numbers from 1, and -1 for the broker's own"),
            },
        }
    }
}

pub(super) fn boolean(value: &str) -> Option<bool> {
    match value.trim() {
        word if word.eq_ignore_ascii_case("true") => Some(true),
        word if word.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

fn operations(value: &str) -> Result<(), String> {
    let words: Vec<_> = value.split(',').map(str::trim).collect();
    match words.iter().find(|word| !["none", "c", "u", "d", "t", "r"].contains(word)) {
        Some(word) => Err(format!("{word:?} is no operation; allowed are c, u, d, t, r, or none alone")),
        None if words.len() > 1 && words.contains(&"none") => {
            Err("none stands alone, without other operations".to_owned())
        }
        None => Ok(()),
    }
}

fn placements(value: &str) -> Result<(), String> {
    for entry in value.split(',') {
        let parts: Vec<_> = entry.split(':').map(str::trim).collect();
        let &([column, placement] | [column, placement, _]) = &parts[..] else {
            return Err(format!("{entry:?} is no placement; write column:placement or column:placement:alias"));
        };
        if column.is_empty() || parts.last().is_some_and(|last| last.is_empty()) {
            return Err(format!("{entry:?} has an empty part; write column:placement or column:placement:alias"));
        }
        if !PLACEMENTS.iter().any(|known| known.eq_ignore_ascii_case(placement)) {
            return Err(format!("{placement:?} is no placement; allowed are {}", PLACEMENTS.join(", ")));
        }
    }
    Ok(())
}

fn is_topic(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

fn is_slot(value: &str) -> bool {
    (1..=63).contains(&value.len()) && value.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}
