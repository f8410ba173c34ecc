//! What is wrong with a connection string, without repeating what may be a secret.

use super::TlsMode;

/// A connection string that cannot be used. No variant holds a value that may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConnInfoError {
    /// Neither libpq nor walpost knows the word.
    #[error("unknown connection keyword {keyword:?}{}", .meant.map(|known| format!("; did you mean {known}?")).unwrap_or_default())]
    UnknownKeyword {
        /// The word as given.
        keyword: String,
        /// The known word that is spelt most alike.
        meant: Option<&'static str>,
    },
    /// As above, where the word may be a piece of a password.
    #[error(
        "unknown connection keyword (not shown, it may be part of a password): quote a value that holds blanks as in password='…', and write & in a URL as %26"
    )]
    UnknownHiddenKeyword,
    /// libpq knows the keyword, walpost does not implement it.
    #[error("connection keyword {keyword} is not supported: {instead}")]
    Refused {
        /// The keyword.
        keyword: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// A word without a value.
    #[error(
        "connection string has a word without \"=\" after {after}: quote a value that holds blanks as in password='…'"
    )]
    NoValue {
        /// The keyword before it.
        after: &'static str,
    },
    /// A quote is opened and not closed.
    #[error("connection string has no closing quote for {keyword}")]
    Quote {
        /// The keyword of the value.
        keyword: &'static str,
    },
    /// A percent sign without two hexadecimal digits, or a result that is no text.
    #[error("connection URL has an invalid percent escape: write a percent sign as %25")]
    Percent,
    /// An IPv6 address without its brackets.
    #[error("connection URL has unbalanced brackets: an IPv6 address is written [::1]")]
    Bracket,
    /// A delimiter that was probably meant as a part of the password.
    #[error("connection URL has an @ that is no delimiter: in user, password and database write @ as %40 and / as %2F")]
    UnescapedUrl,
    /// A parameter without a value.
    #[error("connection URL has a parameter without \"=\": write & in a value as %26")]
    QueryWithoutValue,
    /// A URL of something else.
    #[error("connection URL begins with neither postgresql:// nor postgres://")]
    Scheme,
    /// A value that the keyword does not take.
    #[error("connection keyword {keyword} takes {expected}, not {value:?}")]
    Value {
        /// The keyword.
        keyword: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What was given.
        value: String,
    },
    /// Not repeated: in a URL a password with an unescaped `/` ends up here.
    #[error("connection string has a port that is no number from 1 to 65535")]
    Port,
    /// Lists that belong together and do not fit together.
    #[error("connection string has {left} values for {left_keyword} and {right} for {right_keyword}")]
    Lists {
        /// One list.
        left_keyword: &'static str,
        /// Its length.
        left: usize,
        /// The other list.
        right_keyword: &'static str,
        /// Its length.
        right: usize,
    },
    /// Nobody to log in as.
    #[error("connection string names no user, and neither PGUSER nor USER is set")]
    NoUser,
    /// Two settings that contradict each other.
    #[error("{left} needs sslmode={needed}, not sslmode={mode}")]
    Weak {
        /// The setting that asks for more.
        left: &'static str,
        /// What it asks for.
        needed: &'static str,
        /// What is set.
        mode: TlsMode,
    },
}
