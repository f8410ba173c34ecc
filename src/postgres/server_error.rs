//! What the server itself says went wrong: the fields of an ErrorResponse or NoticeResponse.
//!
//! Layout: <https://www.postgresql.org/docs/current/protocol-error-fields.html>. Detail and hint are not shown for
//! errors about data (classes 22 and 23), whose detail quotes rows.

use std::fmt;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;

/// An error or notice of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL`, `WARNING`… as the server's language has it.
    pub severity: String,
    /// The five characters that say what kind of error it is in any language.
    pub sqlstate: String,
    /// The message, in the server's language.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// The server's advice.
    pub hint: Option<String>,
    /// The function of the server's source that raised it; unlike the message it is never translated.
    pub routine: Option<String>,
}

impl ServerError {
    /// Reads the fields; what is malformed is left out, for the error matters more than its form.
    pub(crate) fn from_fields(mut fields: ErrorFields<'_>) -> ServerError {
        let mut error = ServerError::default();
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'S' => error.severity = value,
                b'C' => error.sqlstate = value,
                b'M' => error.message = value,
                b'D' => error.detail = Some(value),
                b'H' => error.hint = Some(value),
                b'R' => error.routine = Some(value),
                // Position, context, file, line, names of objects: for the server's own log.
                _ => {}
            }
        }
        error
    }

    /// Whether the class (first two characters) of the SQLSTATE is this one.
    pub(crate) fn is_class(&self, class: &str) -> bool {
        self.sqlstate.starts_with(class)
    }

    /// Whether this function of the server raised the error.
    pub(crate) fn is_from(&self, routine: &str) -> bool {
        self.routine.as_deref() == Some(routine)
    }
}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(error: &tokio_postgres::error::DbError) -> ServerError {
        ServerError {
            severity: error.severity().to_owned(),
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
            routine: error.routine().map(str::to_owned),
        }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} (SQLSTATE {})", self.severity, self.message, self.sqlstate)?;
        if !self.is_class("22") && !self.is_class("23") {
            for more in [&self.detail, &self.hint].into_iter().flatten() {
                write!(f, " {more}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for ServerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_data_do_not_show_the_data() {
        let error = |sqlstate: &str| ServerError {
            severity: "ERROR".into(),
            sqlstate: sqlstate.into(),
            message: "no".into(),
            detail: Some("Key (id)=(secret) already exists.".into()),
            ..ServerError::default()
        };
        assert_eq!(error("23505").to_string(), "ERROR: no (SQLSTATE 23505)");
        assert_eq!(error("55000").to_string(), "ERROR: no (SQLSTATE 55000) Key (id)=(secret) already exists.");
    }
}
