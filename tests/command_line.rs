//! The binary as scripts meet it: exit codes, what goes to which stream, and what never does.

use std::{
    fs,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use clap::{CommandFactory, Parser};
use walpost::cli::Cli;

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

/// The lines of a text that call walpost, each as it would be typed, what follows on the next line included.
fn calls(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let calls = joined.lines().filter_map(|line| {
        let words = words(line);
        let begin = words.iter().position(|word| word == "walpost")?;
        // Neither a sentence that names it nor a path.
        let is_call =
            words[..begin].iter().all(|word| word.contains('=') || ["sudo", "-u", "$", "|", "&&"].contains(&&**word));
        let end = |word: &String| matches!(&**word, "|" | ">" | ">>" | "2>" | "&&" | "||" | ";" | "&");
        is_call.then(|| words[begin..].iter().take_while(|word| !end(word)).cloned().collect())
    });
    calls.collect()
}

/// As a shell splits a line: quotes hold words together, a comment ends the line.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn parses(call: &[String]) -> Result<(), String> {
    match Cli::try_parse_from(call) {
        Ok(_) => Ok(()),
        Err(answer) if !answer.use_stderr() => Ok(()),
        Err(error) => Err(format!("{}\n{error}", call.join(" "))),
    }
}

#[test]
fn every_command_has_an_example_that_is_one() {
    fn look(command: &clap::Command, path: &str) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let calls = calls(&help);
        assert!(!calls.is_empty(), "{path} has no example");
        for call in calls {
            parses(&call).unwrap_or_else(|error| panic!("{path}: {error}"));
            let is_of = command.has_subcommands() || call.join(" ").starts_with(path);
            assert!(is_of, "{path} shows another command: {call:?}");
        }
        for inner in command.get_subcommands() {
            look(inner, &format!("{path} {}", inner.get_name()));
        }
    }
    look(&Cli::command(), "walpost");
}

/// What stands in blocks of shell, indented ones too.
fn shell_blocks(text: &str) -> String {
    let (mut blocks, mut inside) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside {
            blocks.push_str(line);
            blocks.push('\n');
        }
    }
    blocks
}

#[test]
fn what_the_documents_say_to_type_can_be_typed() {
    fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("it is a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                documents(&path, found);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = vec![root.join("README.md")];
    documents(&root.join("docs"), &mut files);
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files {
        let text = fs::read_to_string(&file).expect("it is text");
        for call in calls(&shell_blocks(&text)) {
            count += 1;
            wrong.extend(parses(&call).err().map(|error| format!("{}: {error}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "only {count} calls were found");
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let out = folder.path().join("man1");
    let (code, _, error) = ended(walpost(&["man", "--out"]).arg(&out));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let page = |name: &str| fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(page("walpost.1").contains("walpost\\-run(1)"));
    assert!(page("walpost-run.1").contains("route\\-topic"));
    assert!(page("walpost-dead-letter-replay.1").contains("Example"));
    let (code, _, error) = ended(&mut walpost(&["man", "--out", "/dev/null/man"]));
    assert!(code == Some(1) && error.contains("/dev/null/man cannot be made"), "{error}");
}
