//! Every key as a flag, made from the table of keys.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, ArgMatches, Command, error::ErrorKind, value_parser};

use super::keys::{KEYS, Key, Kind};

/// What the command line says of the configuration: `-c`, and the flags that were given. A command that reads the
/// configuration flattens this into its arguments.
///
/// `-c` belongs to the whole command line, so that it may stand before the command; this only picks it up.
#[derive(Clone, Default)]
pub struct Flags {
    file: Option<PathBuf>,
    worker: Option<PathBuf>,
    pub(super) strict: bool,
    pub(super) given: Vec<Given>,
}

/// Ids of the arguments that say how a connector's file is read.
const WORKER: &str = "worker";
const STRICT: &str = "strict";

/// Id of the argument that names the file, which the whole command line defines.
pub const FILE_ARGUMENT: &str = "config_file";

/// A flag on the command line.
#[derive(Clone)]
pub(super) struct Given {
    /// Path of the key.
    pub(super) path: String,
    pub(super) text: String,
    /// As typed, without the value.
    pub(super) flag: String,
}

impl Flags {
    /// The configuration file, where `-c` named one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The file of the connector's worker, where `--worker` named one.
    pub(super) fn worker(&self) -> Option<&Path> {
        self.worker.as_deref()
    }

    /// The same command line for another run of this program, with these values in place of what was given for their
    /// paths.
    pub fn arguments(&self, own: &[(&str, &str)]) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some(file) = &self.file {
            arguments.extend(["-c".into(), file.into()]);
        }
        if let Some(worker) = &self.worker {
            arguments.extend(["--worker".into(), worker.into()]);
        }
        arguments.extend(self.strict.then(|| "--strict".into()));
        for Given { path, text, flag } in &self.given {
            match flag.split_once(' ') {
                _ if own.iter().any(|(own, _)| own == path) => {}
                Some((flag, member)) => arguments.extend([flag.into(), format!("{member}={text}").into()]),
                None => arguments.push(format!("{flag}={text}").into()),
            }
        }
        let flags = own.iter().filter_map(|(path, text)| Some((Key::find(path)?.flag()?, text)));
        arguments.extend(flags.map(|(flag, text)| format!("--{flag}={text}").into()));
        arguments
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        let heading = "Connector (where -c names the configuration of a Debezium connector)";
        let worker = Arg::new(WORKER)
            .long(WORKER)
            .value_name("PATH")
            .value_parser(value_parser!(PathBuf))
            .help("Properties of its Kafka Connect worker: brokers, converters, security (WALPOST_WORKER)");
        let strict = Arg::new(STRICT).long(STRICT).action(ArgAction::SetTrue).help("Refuse unknown keys of it");
        let command = command.arg(worker.help_heading(heading)).arg(strict.help_heading(heading));
        KEYS.iter().filter_map(argument).fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Flags, clap::Error> {
        let file = matches.try_get_one::<PathBuf>(FILE_ARGUMENT).ok().flatten().cloned();
        let worker = matches.get_one::<PathBuf>(WORKER).cloned();
        let mut given = Vec::new();
        for key in KEYS {
            let Some(flag) = key.flag().map(|flag| format!("--{flag}")) else { continue };
            for text in matches.get_many::<String>(key.path).into_iter().flatten() {
                given.push(if key.kind.is_section() {
                    // The text may be a secret: the error does not repeat it.
                    let (member, text) = text.split_once('=').ok_or_else(|| not_a_pair(key, &flag))?;
                    let member = member.trim();
                    Given {
                        path: format!("{}.{member}", key.path),
                        text: text.to_owned(),
                        flag: format!("{flag} {member}"),
                    }
                } else {
                    Given { path: key.path.to_owned(), text: text.clone(), flag: flag.clone() }
                });
            }
        }
        Ok(Flags { file, worker, strict: matches.get_flag(STRICT), given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Flags::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(key: &'static Key) -> Option<Arg> {
    let argument = Arg::new(key.path)
        .long(key.flag()?)
        .help(help(key))
        .help_heading("Configuration (also as WALPOST_… variables, and in the file of -c)")
        .value_parser(value_parser!(String))
        .value_name(value_name(key.kind));
    Some(match key.kind {
        Kind::Columns | Kind::Properties => argument.action(ArgAction::Append),
        // `--topics-create` alone switches on; the value needs its `=`.
        Kind::Boolean => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        Kind::Text
        | Kind::Secret
        | Kind::SecretFile
        | Kind::Duration
        | Kind::Size
        | Kind::Count
        | Kind::Choice(_)
        | Kind::Outboxes => argument,
    })
}

fn help(key: &Key) -> String {
    let mut help = key.help.to_owned();
    match key.kind {
        Kind::Choice(words) if words.len() > 1 => help.push_str(&format!(" ({})", words.join(", "))),
        Kind::Columns => help.push_str(", as in aggregate_id=order_id (WALPOST_COLUMNS_AGGREGATE_ID); repeatable"),
        Kind::Properties if key.path == "kafka" => {
            help.push_str(", as in linger.ms=5 (WALPOST_KAFKA_LINGER_MS); repeatable");
        }
        Kind::Properties if key.path == "debezium" => {
            help.push_str(", as in topic.prefix=shop (WALPOST_DEBEZIUM_TOPIC_PREFIX); repeatable");
        }
        Kind::Properties => help.push_str(", as in OrderPlaced=https://example.com/orders; repeatable"),
        Kind::Choice(_)
        | Kind::Text
        | Kind::Secret
        | Kind::SecretFile
        | Kind::Duration
        | Kind::Size
        | Kind::Count
        | Kind::Boolean
        | Kind::Outboxes => {}
    }
    if let Some(default) = key.default {
        help.push_str(&format!(" [default: {default}]"));
    }
    help
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Text | Kind::Secret => "TEXT",
        Kind::SecretFile => "PATH",
        Kind::Duration => "DURATION",
        Kind::Size => "BYTES",
        Kind::Count => "N",
        Kind::Boolean => "true|false",
        Kind::Choice(_) => "WORD",
        Kind::Columns | Kind::Properties | Kind::Outboxes => "NAME=VALUE",
    }
}

fn not_a_pair(key: &Key, flag: &str) -> clap::Error {
    let message = format!("{flag} takes NAME=VALUE: {}", help(key));
    clap::Error::raw(ErrorKind::ValueValidation, message)
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parse(flags: &[&str]) -> Result<Flags, clap::Error> {
        let command = Flags::augment_args(Command::new("walpost").no_binary_name(true));
        Flags::from_arg_matches(&command.try_get_matches_from(flags)?)
    }

    #[test]
    fn flags_become_paths_and_texts() {
        let flags = parse(&[
            "--route-topic",
            "orders",
            "--kafka",
            "linger.ms=5",
            "--kafka",
            "sasl.password=a=b",
            "--column",
            "id=event_id",
            "--topics-create",
        ])
        .unwrap();
        let mut given: Vec<_> = flags.given.iter().map(|given| (given.path.as_str(), given.text.as_str())).collect();
        given.sort();
        assert_eq!(
            given,
            [
                ("columns.id", "event_id"),
                ("kafka.linger.ms", "5"),
                ("kafka.sasl.password", "a=b"),
                ("route.topic", "orders"),
                ("topics.create", "true"),
            ]
        );
        let off = parse(&["--topics-create=false"]).unwrap();
        assert_eq!(off.given[0].text, "false");
    }

    #[test]
    fn another_run_gets_the_same_flags_and_those_set_for_it() {
        let flags =
            parse(&["--slot", "mine", "--brokers=k:9092", "--kafka", "linger.ms=5", "--topics-create"]).unwrap();
        let arguments = flags.arguments(&[("slot", "own"), ("route.topic", "t=1")]);
        let mut arguments: Vec<_> = arguments.iter().map(|argument| argument.to_str().unwrap()).collect();
        assert!(arguments.windows(2).any(|pair| pair == ["--kafka", "linger.ms=5"]), "{arguments:?}");
        arguments.sort_unstable();
        assert_eq!(
            arguments,
            ["--brokers=k:9092", "--kafka", "--route-topic=t=1", "--slot=own", "--topics-create=true", "linger.ms=5"]
        );
        parse(&arguments.iter().filter(|a| !a.contains("linger") && **a != "--kafka").copied().collect::<Vec<_>>())
            .unwrap();
    }

    #[test]
    fn a_property_without_a_value_is_not_repeated() {
        let error = parse(&["--kafka", "hush"]).err().unwrap().to_string();
        assert!(error.contains("--kafka takes NAME=VALUE"), "{error}");
        assert!(!error.contains("hush"), "{error}");
    }
}
