//! What can be wrong with a configuration.
//!
//! A message names the place (file, variable or flag), the key, what is wrong with the value, and what to write
//! instead. The value of a secret is in none of them.

use std::{fmt, io, path::PathBuf};

use crate::postgres::conninfo::ConnInfoError;

/// Who gave a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody.
    Default,
    File(PathBuf),
    /// A connector's file and the keys in it, as in `connector.json: slot.name`.
    Connector(String),
    /// The name of the variable.
    Variable(String),
    /// The flag, with its hyphens.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Connector(keys) => f.write_str(keys),
            Origin::Variable(name) => f.write_str(name),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// A key as somebody gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub origin: Origin,
    pub path: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.path),
            Origin::File(_) => write!(f, "{}: {}", self.origin, self.path),
            // Their names say the key.
            Origin::Connector(_) | Origin::Variable(_) | Origin::Flag(_) => write!(f, "{}", self.origin),
        }
    }
}

/// A configuration that means nothing, or something that walpost refuses. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration file {path} cannot be read; -c and WALPOST_CONFIG name it")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}:{line}:{column}: {problem}")]
    Syntax { path: PathBuf, line: usize, column: usize, problem: String },
    #[error("{path}: a worker's file stands beside a connector's, and -c names none")]
    WorkerAlone { path: PathBuf },
    #[error("{origin}: {name} is no key{}", remedy(.nearest))]
    UnknownKey { origin: Origin, name: String, nearest: Option<String> },
    #[error("{origin}: {name} is no key of a connector{}", suggestion(.nearest))]
    UnknownConnectorKey { origin: Origin, name: String, nearest: Option<String> },
    #[error("{name} is no variable of walpost; did you mean {nearest}?")]
    UnknownVariable { name: String, nearest: String },
    #[error("{place}: {problem}")]
    Value { place: Place, problem: String },
    #[error("{place}: the file {file} cannot be read")]
    SecretFile { place: Place, file: PathBuf, source: io::Error },
    #[error("{place}: {source}")]
    Database { place: Place, source: ConnInfoError },
    #[error("{path} is not set; give it as {flag}, as {variable}, or in the file that -c names")]
    Missing { path: &'static str, flag: String, variable: String },
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

fn remedy(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!("; did you mean {name}?"),
        None => "; `walpost config show` lists all keys".to_owned(),
    }
}
