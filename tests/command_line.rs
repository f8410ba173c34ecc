//! The binary as scripts meet it: exit codes, what goes to which stream, and what never does.

use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Command, Output, Stdio},
};

/// The binary, with no configuration of the machine's.
fn walpost(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_walpost"));
    command.args(arguments).stdin(Stdio::null()).env_remove("RUST_LOG");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WALPOST_")) {
        command.env_remove(name);
    }
    command
}

fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("walpost writes UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn answers_go_to_standard_output_and_end_with_0() {
    let version = format!("walpost {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(ended(&mut walpost(&["-V"])), (Some(0), version, String::new()));

    let (code, out, error) = ended(&mut walpost(&["--help"]));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(out.contains("Usage: walpost"), "{out}");

    let (code, out, error) = ended(&mut walpost(&["config", "show", "--json", "--slot", "orders"]));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["slot"], "orders");
    assert_eq!(shown["route"]["topic"], "outbox.event.${aggregate_type}");

    let (code, out, error) = ended(&mut walpost(&["completions", "bash"]));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(out.contains("--route-topic"), "{out}");
}

#[test]
fn a_wrong_command_line_or_configuration_ends_with_2_and_one_error() {
    for arguments in [
        &["config", "show", "--slot", "Orders"][..],
        &["config", "show", "--kafka", "acks=1"],
        &["config", "show", "-c", "/nowhere/walpost.toml"],
        &["config", "show", "--borkers", "kafka:9092"],
        &["config", "show", "--log-level", "walpost=loud"],
        &["fly"],
    ] {
        let (code, out, error) = ended(&mut walpost(arguments));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(error.starts_with("error: "), "{error}");
        assert_eq!(error.matches("error: ").count(), 1, "{error}");
        assert!(!error.contains("\u{1b}["), "colours outside a terminal: {error:?}");
    }
    let (_, _, error) = ended(&mut walpost(&["config", "show", "-c", "/nowhere/walpost.toml"]));
    assert_eq!(
        error,
        "error: the configuration file /nowhere/walpost.toml cannot be read; -c and WALPOST_CONFIG name it\n  \
         caused by: No such file or directory (os error 2)\n"
    );
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    for arguments in [&["config", "show"][..], &["completions", "zsh"], &["--help"]] {
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(reader);
        let (code, _, error) = ended(walpost(arguments).stdout(OwnedFd::from(writer)));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn logs_go_to_standard_error_in_utc_without_colours() {
    let mut command = walpost(&["config", "show"]);
    let (code, out, error) = ended(command.env("WALPOST_UNHEARD_OF", "1"));
    assert_eq!(code, Some(0));
    assert!(!out.contains("UNHEARD"), "{out}");
    assert!(error.contains("Z  WARN walpost"), "{error}");
    assert!(!error.contains("\u{1b}["), "{error:?}");

    let mut command = walpost(&["--log-format", "json", "config", "show"]);
    let (_, _, error) = ended(command.env("WALPOST_UNHEARD_OF", "1"));
    let line: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!(line["level"], "WARN");
    assert!(line["timestamp"].as_str().unwrap().ends_with('Z'), "{line}");

    let mut quiet = walpost(&["--log-level", "error", "config", "show"]);
    assert_eq!(ended(quiet.env("WALPOST_UNHEARD_OF", "1")).2, "");
}

#[test]
fn secrets_reach_neither_stream() {
    let url = "postgres://walpost:s3cret@localhost/app";
    for arguments in [
        &["config", "show", "--database-url", url, "--kafka", "sasl.password=s3cret"][..],
        &["config", "show", "--json", "--log-level", "trace", "--database-url", url],
        &["config", "show", "--database-url", "postgres://walpost:s3cret@[/app"],
        &["config", "show", "--kafka", "sasl.password s3cret"],
        &["config", "show", url],
        &["config", "show", "password=s3cret"],
        &["config", "show", "--sasl-password=s3cret"],
        &["config", "show", "--database_url", url],
        &[url],
    ] {
        let (_, out, error) = ended(&mut walpost(arguments));
        assert!(!(out.contains("s3cret") || error.contains("s3cret")), "{arguments:?}: {out}{error}");
    }
}
