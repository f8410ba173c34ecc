//! `${provider:path:key}` in values: Kafka Connect's config providers, and Debezium Server's expressions.
//!
//! Understood are `env`, `file` and `directory` (or `dir`) of Kafka, under these names or under those that
//! `config.providers` gives their classes. Any other is refused by its name: what it stands for is known to a service
//! that walpost does not ask.

use std::{collections::BTreeMap, path::Path};

use super::{list, properties};
use crate::config::Environment;

/// What gives values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Provider {
    Environment,
    /// A file of properties.
    File,
    /// A directory with a file for each key.
    Directory,
    /// A class that is not available.
    Other(String),
}

/// The providers of a worker, by their names.
pub(super) struct Providers<'a> {
    named: BTreeMap<String, Provider>,
    environment: &'a Environment,
}

impl<'a> Providers<'a> {
    /// As `config.providers` and `config.providers.<name>.class` say; `get` looks a key up.
    pub(super) fn new<'k>(environment: &'a Environment, get: impl Fn(&str) -> Option<&'k str>) -> Providers<'a> {
        let mut named = BTreeMap::from([
            ("env".to_owned(), Provider::Environment),
            ("strimzienv".to_owned(), Provider::Environment),
            ("file".to_owned(), Provider::File),
            ("dir".to_owned(), Provider::Directory),
            ("directory".to_owned(), Provider::Directory),
        ]);
        for name in list::names(get("config.providers").unwrap_or_default()) {
            let class = get(&format!("config.providers.{name}.class")).unwrap_or_default();
            let provider = match class.rsplit('.').next().unwrap_or_default() {
                "EnvVarConfigProvider" => Provider::Environment,
                "FileConfigProvider" => Provider::File,
                "DirectoryConfigProvider" => Provider::Directory,
                _ => Provider::Other(class.to_owned()),
            };
            named.insert(name.to_owned(), provider);
        }
        Providers { named, environment }
    }

    /// The value with what its references stand for. The error names the reference, and never a value.
    pub(super) fn resolve(&self, value: &str) -> Result<String, String> {
        let mut resolved = String::new();
        let mut rest = value;
        while let Some(start) = rest.find("${") {
            let Some(end) = rest[start..].find('}').map(|end| start + end) else { break };
            resolved.push_str(&rest[..start]);
            let reference = &rest[start + 2..end];
            match reference.split_once(':') {
                Some((name, inner)) => resolved.push_str(&self.look_up(name, inner)?),
                // No provider: a group of a regular expression, for one.
                None => resolved.push_str(&rest[start..=end]),
            }
            rest = &rest[end + 1..];
        }
        resolved.push_str(rest);
        Ok(resolved)
    }

    fn look_up(&self, name: &str, inner: &str) -> Result<String, String> {
        let shown = format!("${{{name}:{inner}}}");
        match self.named.get(name) {
            Some(Provider::Environment) => {
                let variable = inner.rsplit(':').next().unwrap_or(inner);
                self.environment.get(variable).ok_or_else(|| format!("{shown}: the variable {variable} is not set"))
            }
            Some(Provider::File) => {
                let (path, key) = inner.rsplit_once(':').ok_or_else(|| format!("{shown} names no key of the file"))?;
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("{shown}: {path} cannot be read: {error}"))?;
                let entries = properties::parse(&text)
                    .map_err(|malformed| format!("{shown}: line {} of {path} is malformed", malformed.line))?;
                let found = entries.into_iter().rev().find(|(known, _, _)| known == key);
                found.map(|(_, value, _)| value).ok_or_else(|| format!("{shown}: {path} has no key {key}"))
            }
            Some(Provider::Directory) => {
                let (path, key) = inner.rsplit_once(':').ok_or_else(|| format!("{shown} names no file"))?;
                let file = Path::new(path).join(key);
                std::fs::read_to_string(&file)
                    .map_err(|error| format!("{shown}: {} cannot be read: {error}", file.display()))
            }
            Some(Provider::Other(class)) => Err(format!(
                "{shown}: the config provider {class} is not available; put the value in a variable or a file, as in ${{env:NAME}}"
            )),
            None => Err(format!(
                "{shown}: the config provider {name} is not available; put the value in a variable or a file, as in ${{env:NAME}}"
            )),
        }
    }
}

/// Debezium Server's `${NAME}` and `${NAME:default}`: another property, else a variable, else the default. `$$` is a `$`.
pub(super) fn expanded(
    value: &str,
    property: &impl Fn(&str) -> Option<String>,
    environment: &Environment,
) -> Result<String, String> {
    let mut expanded = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        if let Some(after) = behind.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let (true, Some(end)) = (behind.starts_with('{'), behind.find('}')) {
            let reference = &behind[1..end];
            let (name, default) = match reference.split_once(':') {
                Some((name, default)) => (name, Some(default)),
                None => (reference, None),
            };
            let variable: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let found = property(name)
                .or_else(|| environment.get(name))
                .or_else(|| environment.get(&variable))
                .or_else(|| environment.get(&variable.to_uppercase()))
                .or_else(|| default.map(str::to_owned));
            let Some(found) = found else {
                return Err(format!(
                    "${{{name}}} is neither a property nor a variable; write $${{{name}}} where it is to stay as it is"
                ));
            };
            expanded.push_str(&found);
            rest = &behind[end + 1..];
        } else {
            expanded.push('$');
            rest = behind;
        }
    }
    expanded.push_str(rest);
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment::from_iter([("PGPASSWORD".to_owned(), "hush".to_owned()), ("DB_HOST".to_owned(), "db".to_owned())])
    }

    #[test]
    fn references_are_looked_up_and_groups_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets.properties");
        std::fs::write(&file, "password = from file\n").unwrap();
        let environment = environment();
        let providers = Providers::new(&environment, |_| None);
        let file = file.display();
        for (value, expected) in [
            ("${env:PGPASSWORD}".to_owned(), "hush"),
            ("x-${env:DB_HOST}-y".to_owned(), "x-db-y"),
            (format!("${{file:{file}:password}}"), "from file"),
            (format!("${{directory:{}:secrets.properties}}", folder.path().display()), "password = from file\n"),
            ("outbox.event.${routedByValue}".to_owned(), "outbox.event.${routedByValue}"),
            ("a${".to_owned(), "a${"),
        ] {
            assert_eq!(providers.resolve(&value).as_deref(), Ok(expected), "{value}");
        }
        let refused = |value: &str| providers.resolve(value).unwrap_err();
        assert!(refused("${vault:secret/db:password}").contains("the config provider vault is not available"));
        assert!(refused("${env:NOT_SET}").contains("NOT_SET is not set"));
        assert!(refused(&format!("${{file:{file}:nope}}")).contains("has no key nope"));
    }

    #[test]
    fn a_worker_names_its_providers() {
        let environment = environment();
        let providers = Providers::new(&environment, |key| match key {
            "config.providers" => Some("e, aws"),
            "config.providers.e.class" => Some("org.apache.kafka.common.config.provider.EnvVarConfigProvider"),
            "config.providers.aws.class" => Some("com.example.SecretsManagerConfigProvider"),
            _ => None,
        });
        assert_eq!(providers.resolve("${e:PGPASSWORD}").as_deref(), Ok("hush"));
        assert!(providers.resolve("${aws:x}").unwrap_err().contains("com.example.SecretsManagerConfigProvider"));
    }

    #[test]
    fn server_expressions_expand() {
        let environment = environment();
        let property = |name: &str| (name == "other.key").then(|| "value".to_owned());
        let expand = |value: &str| expanded(value, &property, &environment);
        assert_eq!(expand("${DB_HOST}:${db.port:5432}/${other.key}").as_deref(), Ok("db:5432/value"));
        assert_eq!(expand("${db.host}").as_deref(), Ok("db"));
        assert_eq!(expand("outbox.$${routedByValue}").as_deref(), Ok("outbox.${routedByValue}"));
        assert_eq!(expand("ev.$1").as_deref(), Ok("ev.$1"));
        assert!(expand("${routedByValue}").is_err());
    }
}
