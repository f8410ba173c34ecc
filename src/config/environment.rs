//! Variables of the process, and which key a `WALPOST_…` variable gives.
//!
//! `WALPOST_ROUTE_TOPIC` is `route.topic`. Behind `WALPOST_KAFKA_` and `WALPOST_COLUMNS_` stands the member in upper
//! case; librdkafka's properties have a dot wherever the variable has `_` (`WALPOST_KAFKA_LINGER_MS`), save for the
//! `_file` of a secret. An empty variable counts as absent: that is how compose files leave one out.

use std::collections::BTreeMap;

use super::{
    kafka,
    keys::{KEYS, Kind},
    suggest,
};

const PREFIX: &str = "WALPOST_";

/// Variables that are no keys: the file's own path, and what the command line reads before there is a configuration.
const NO_KEYS: [&str; 5] = [CONFIG_FILE, WORKER_FILE, "WALPOST_LOG_LEVEL", "WALPOST_LOG_FORMAT", "WALPOST_CORE_DUMPS"];

/// Names the configuration file where no `-c` does.
pub(super) const CONFIG_FILE: &str = "WALPOST_CONFIG";

/// Names the worker's file where no `--worker` does.
pub(super) const WORKER_FILE: &str = "WALPOST_WORKER";

/// The variables that a configuration may read. Those that are not UTF-8 are not seen.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    pub fn of_process() -> Environment {
        std::env::vars_os()
            .filter_map(|(name, text)| Some((name.into_string().ok()?, text.into_string().ok()?)))
            .collect()
    }

    /// The text of a variable; none when it is empty.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|text| !text.is_empty()).cloned()
    }

    /// The `WALPOST_…` variables that have a text and should give a key.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&str, &str)> {
        let given = self.0.iter().filter(|(name, text)| {
            name.starts_with(PREFIX) && !text.is_empty() && !NO_KEYS.contains(&name.as_str()) && !is_service_link(name)
        });
        given.map(|(name, text)| (name.as_str(), text.as_str()))
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(variables: I) -> Environment {
        Environment(variables.into_iter().collect())
    }
}

/// The path of the key that a variable gives.
pub(super) fn path(variable: &str) -> Option<String> {
    KEYS.iter().find_map(|key| {
        let rest = variable.strip_prefix(&key.variable())?;
        let member = rest.strip_prefix('_').filter(|member| !member.is_empty()).map(str::to_lowercase);
        match (key.kind, member) {
            (Kind::Columns, Some(member)) => Some(format!("{}.{member}", key.path)),
            (Kind::Properties, Some(member)) => Some(format!("{}.{}", key.path, property(&member))),
            (Kind::Outboxes, _) => None,
            (_, None) if rest.is_empty() && !key.kind.is_section() => Some(key.path.to_owned()),
            (_, _) => None,
        }
    })
}

fn property(member: &str) -> String {
    let name = member.replace('_', ".");
    match name.strip_suffix(".file") {
        Some(secret) if kafka::is_secret(secret) => format!("{secret}{}", kafka::FILE_SUFFIX),
        _ => name,
    }
}

/// The variable that was meant by an unknown one.
pub(super) fn nearest(variable: &str) -> Option<String> {
    let typed = variable.strip_prefix(PREFIX)?;
    let known: Vec<_> = KEYS.iter().filter(|key| key.kind != Kind::Outboxes).map(|key| key.variable()).collect();
    suggest::nearest(typed, known.iter().filter_map(|name| name.strip_prefix(PREFIX)))
        .map(|name| format!("{PREFIX}{name}"))
}

/// What Kubernetes sets in every pod for a Service whose name begins with `walpost`.
fn is_service_link(name: &str) -> bool {
    let numbered_port = || {
        let (_, port) = name.rsplit_once("_PORT_")?;
        port.starts_with(|c: char| c.is_ascii_digit()).then_some(())
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || numbered_port().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_name_keys() {
        for (variable, expected) in [
            ("WALPOST_BROKERS", Some("brokers")),
            ("WALPOST_ROUTE_TOPIC", Some("route.topic")),
            ("WALPOST_DATABASE_URL_FILE", Some("database_url_file")),
            ("WALPOST_KAFKA_LINGER_MS", Some("kafka.linger.ms")),
            ("WALPOST_KAFKA_SASL_PASSWORD", Some("kafka.sasl.password")),
            ("WALPOST_KAFKA_SASL_PASSWORD_FILE", Some("kafka.sasl.password_file")),
            (
                "WALPOST_KAFKA_SASL_OAUTHBEARER_ASSERTION_PRIVATE_KEY_FILE",
                Some("kafka.sasl.oauthbearer.assertion.private.key.file"),
            ),
            ("WALPOST_COLUMNS_AGGREGATE_ID", Some("columns.aggregate_id")),
            ("WALPOST_KAFKA", None),
            ("WALPOST_KAFKA_", None),
            ("WALPOST_OUTBOX", None),
            ("WALPOST_BROKERS_X", None),
            ("WALPOST_BROKER", None),
        ] {
            assert_eq!(path(variable).as_deref(), expected, "{variable}");
        }
        assert_eq!(nearest("WALPOST_BROKER").as_deref(), Some("WALPOST_BROKERS"));
        assert_eq!(nearest("WALPOST_TEST_SEEDS"), None);
    }

    #[test]
    fn empty_variables_and_service_links_are_no_keys() {
        let set = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let environment = Environment::from_iter([
            set("WALPOST_SLOT", ""),
            set("WALPOST_CONFIG", "walpost.toml"),
            set("WALPOST_LOG_LEVEL", "debug"),
            set("WALPOST_SERVICE_HOST", "10.0.0.1"),
            set("WALPOST_SERVICE_PORT_METRICS", "9464"),
            set("WALPOST_PORT", "tcp://10.0.0.1:9464"),
            set("WALPOST_PORT_9464_TCP_ADDR", "10.0.0.1"),
            set("WALPOST_KAFKA_SERVICE_HOST", "10.0.0.2"),
            set("PATH", "/bin"),
            set("WALPOST_BROKERS", "kafka:9092"),
        ]);
        assert_eq!(environment.keys().collect::<Vec<_>>(), [("WALPOST_BROKERS", "kafka:9092")]);
        assert_eq!(environment.get("WALPOST_SLOT"), None);
        assert_eq!(environment.get("PATH").as_deref(), Some("/bin"));
    }
}
