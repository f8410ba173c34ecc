//! `java.util.regex`, as connector configurations use it.
//!
//! A Java pattern is read, and written again for fancy-regex, so that it means the same there. Where the two differ by
//! default it is the written form that makes up for it:
//! - `\d`, `\w`, `\s`, `\b` of POSIX names are ASCII unless `(?U)` is on; `(?i)` folds ASCII letters only unless `(?u)` is;
//! - `.`, `^` and `$` know Java's line terminators: `\n`, `\r\n`, `\r`, U+0085, U+2028, U+2029;
//! - `\Q…\E`, `\h`, `\R`, `\0nn`, `\uhhhh`, `\cX`, comments under `(?x)`, `&&` in classes and possessive quantifiers are Java's.
//!
//! Refused, because no same meaning is known: `\G`, `\X`, `\N{…}`, `\b{g}`, `(?i)` over a backreference or over a property of
//! case, blocks (`\p{In…}`), most `\p{java…}`, and a quantifier behind `\R` or behind what takes no characters.
//!
//! Replacing is that of `Matcher.replaceFirst` after `Matcher.matches`, as Kafka's `RegexRouter` does it: a topic that
//! does not match as a whole stays, and in one that does the *first find* is replaced, which may be shorter.

mod replacement;
mod translate;

pub use replacement::{Replacement, ReplacementError};

use fancy_regex::Regex;

/// A compiled pattern. It prints as it was written.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    /// Anchored at both ends: `Matcher.matches`.
    whole: Regex,
    /// `Matcher.find`.
    find: Regex,
    /// Numbers of groups: 1 to this.
    groups: usize,
    names: Vec<(String, usize)>,
}

/// A text that is no pattern, or one whose meaning cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} near index {at}")]
pub struct PatternError {
    problem: String,
    /// In characters.
    at: usize,
}

/// Backtracking took too many steps: the pattern does not fit the text, and Java too would take very long over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the regular expression takes too many steps for this text")]
pub struct TooManySteps;

impl Pattern {
    /// `Pattern.compile(text)`.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        Pattern::compile(text, false)
    }

    /// `Pattern.compile(text, CASE_INSENSITIVE)`: ASCII letters are the same in both cases.
    pub fn parse_ignoring_case(text: &str) -> Result<Pattern, PatternError> {
        Pattern::compile(text, true)
    }

    fn compile(text: &str, ignore_case: bool) -> Result<Pattern, PatternError> {
        let translated = translate::translate(text, ignore_case)?;
        let compile = |pattern: &str| {
            // The engine's own report is about the translation.
            Regex::new(pattern)
                .map_err(|_| PatternError { problem: "this is too large, or has no translation".into(), at: 0 })
        };
        Ok(Pattern {
            text: text.to_owned(),
            whole: compile(&format!(r"\A(?:{})\z", translated.pattern))?,
            find: compile(&translated.pattern)?,
            groups: translated.groups,
            names: translated.names,
        })
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `Matcher.matches`: whether the pattern fits all of the text.
    pub fn matches(&self, text: &str) -> Result<bool, TooManySteps> {
        self.whole.is_match(text).map_err(|_| TooManySteps)
    }

    /// What is written in place of the first find, if the pattern fits all of the text; none where it does not.
    pub fn rewrite(&self, text: &str, replacement: &Replacement) -> Result<Option<String>, TooManySteps> {
        if !self.matches(text)? {
            return Ok(None);
        }
        let Some(found) = self.find.captures(text).map_err(|_| TooManySteps)? else { return Ok(None) };
        let Some(all) = found.get(0) else { return Ok(None) };
        let mut rewritten = text[..all.start()].to_owned();
        replacement.push(&found, &mut rewritten);
        rewritten.push_str(&text[all.end()..]);
        Ok(Some(rewritten))
    }

    /// Reads a replacement for this pattern, whose groups it may name.
    pub fn replacement(&self, text: &str) -> Result<Replacement, ReplacementError> {
        Replacement::parse(text, self.groups, &self.names)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text && self.whole.as_str() == other.whole.as_str()
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests;
