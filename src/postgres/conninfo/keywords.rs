//! The connection keywords that libpq knows, and what walpost does with each.
//!
//! A keyword that would make a connection safer and that walpost does not implement is refused by name: leaving it out
//! of account would be a silent downgrade.

use super::ConnInfoError;

/// What becomes of a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    Taken,
    /// Taken, and shown nowhere.
    Secret,
    /// Without effect here whatever its value.
    Ignored,
    /// Not implemented; the text says what to do instead.
    Refused(&'static str),
}

/// One of libpq's keywords and the environment variable that is its default.
#[derive(Debug)]
pub(super) struct Keyword {
    pub(super) name: &'static str,
    pub(super) variable: Option<&'static str>,
    pub(super) treatment: Treatment,
}

const fn taken(name: &'static str, variable: &'static str) -> Keyword {
    Keyword { name, variable: Some(variable), treatment: Treatment::Taken }
}

const fn without_variable(name: &'static str, treatment: Treatment) -> Keyword {
    Keyword { name, variable: None, treatment }
}

const fn refused(name: &'static str, variable: &'static str, instead: &'static str) -> Keyword {
    Keyword { name, variable: Some(variable), treatment: Treatment::Refused(instead) }
}

/// In the order in which a connection string is printed.
pub(super) static KEYWORDS: &[Keyword] = &[
    taken("host", "PGHOST"),
    taken("hostaddr", "PGHOSTADDR"),
    taken("port", "PGPORT"),
    taken("dbname", "PGDATABASE"),
    taken("user", "PGUSER"),
    Keyword { name: "password", variable: Some("PGPASSWORD"), treatment: Treatment::Secret },
    taken("passfile", "PGPASSFILE"),
    taken("sslmode", "PGSSLMODE"),
    taken("sslnegotiation", "PGSSLNEGOTIATION"),
    taken("sslrootcert", "PGSSLROOTCERT"),
    taken("sslcert", "PGSSLCERT"),
    taken("sslkey", "PGSSLKEY"),
    without_variable("sslpassword", Treatment::Secret),
    taken("sslsni", "PGSSLSNI"),
    taken("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    taken("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    taken("channel_binding", "PGCHANNELBINDING"),
    taken("application_name", "PGAPPNAME"),
    without_variable("fallback_application_name", Treatment::Taken),
    taken("options", "PGOPTIONS"),
    taken("connect_timeout", "PGCONNECT_TIMEOUT"),
    without_variable("keepalives", Treatment::Taken),
    without_variable("keepalives_idle", Treatment::Taken),
    without_variable("keepalives_interval", Treatment::Taken),
    without_variable("keepalives_count", Treatment::Taken),
    without_variable("tcp_user_timeout", Treatment::Taken),
    taken("target_session_attrs", "PGTARGETSESSIONATTRS"),
    taken("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    taken("client_encoding", "PGCLIENTENCODING"),
    taken("gssencmode", "PGGSSENCMODE"),
    without_variable("sslcompression", Treatment::Ignored),
    without_variable("krbsrvname", Treatment::Ignored),
    without_variable("gsslib", Treatment::Ignored),
    without_variable("gssdelegation", Treatment::Ignored),
    without_variable("replication", Treatment::Refused("leave it out: walpost asks for replication where it needs it")),
    refused("service", "PGSERVICE", "write the settings of the service into the connection string"),
    without_variable("servicefile", Treatment::Refused("write the settings of the service into the connection string")),
    refused("sslcrl", "PGSSLCRL", "revocation lists are not supported"),
    refused("sslcrldir", "PGSSLCRLDIR", "revocation lists are not supported"),
    refused("sslcertmode", "PGSSLCERTMODE", "leave sslcert out for a connection without a client certificate"),
    refused("require_auth", "PGREQUIREAUTH", "use channel_binding=require to insist on SCRAM"),
    refused("requirepeer", "PGREQUIREPEER", "use a socket directory that only the server's user can write"),
    without_variable("sslkeylogfile", Treatment::Refused("walpost writes no TLS keys to a file")),
    refused("min_protocol_version", "PGMINPROTOCOLVERSION", "walpost speaks protocol 3.0"),
    refused("max_protocol_version", "PGMAXPROTOCOLVERSION", "walpost speaks protocol 3.0"),
    without_variable("scram_client_key", Treatment::Refused("give the password")),
    without_variable("scram_server_key", Treatment::Refused("give the password")),
];

/// Finds a keyword that may be used.
///
/// `after_secret` says that the word follows a secret and may be a piece of one that lacks its quotes: then it is not
/// repeated in the error.
pub(super) fn find(name: &str, after_secret: bool) -> Result<&'static Keyword, ConnInfoError> {
    let Some(keyword) = KEYWORDS.iter().find(|keyword| keyword.name == name) else {
        let presentable = name.len() <= 40 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        return Err(if presentable && !after_secret {
            ConnInfoError::UnknownKeyword { keyword: name.to_owned(), meant: closest(name) }
        } else {
            ConnInfoError::UnknownHiddenKeyword
        });
    };
    match keyword.treatment {
        Treatment::Refused(instead) => Err(ConnInfoError::Refused { keyword: keyword.name, instead }),
        Treatment::Taken | Treatment::Secret | Treatment::Ignored => Ok(keyword),
    }
}

fn closest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    KEYWORDS
        .iter()
        .map(|keyword| (distance(&name, keyword.name), keyword.name))
        .min()
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .map(|(_, known)| known)
}

/// Edit distance: insertions, deletions and replacements of one byte.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, r) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(l != r);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_keyword_is_answered_with_the_closest_known_one() {
        for (wrong, right) in [
            ("ssl_mode", Some("sslmode")),
            ("SSLMODE", Some("sslmode")),
            ("pasword", Some("password")),
            ("database", None),
            ("aplication_name", Some("application_name")),
        ] {
            match find(wrong, false) {
                Err(ConnInfoError::UnknownKeyword { keyword, meant }) => assert_eq!((&*keyword, meant), (wrong, right)),
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_word_that_may_be_a_secret_is_not_repeated() {
        assert!(matches!(find("hunter2", true), Err(ConnInfoError::UnknownHiddenKeyword)));
        assert!(matches!(find("hun ter2", false), Err(ConnInfoError::UnknownHiddenKeyword)));
        assert!(find("user", true).is_ok());
    }

    #[test]
    fn what_would_weaken_a_connection_when_ignored_is_refused() {
        assert!(matches!(find("sslcrl", false), Err(ConnInfoError::Refused { keyword: "sslcrl", .. })));
        assert!(find("krbsrvname", false).is_ok());
    }
}
