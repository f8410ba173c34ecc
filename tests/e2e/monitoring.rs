//! What stands ready for Prometheus is what Prometheus takes, and each alert fires when it should.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::support::scratch;

fn promtool(arguments: &[&str]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus");
    let program = scratch::cache().join("promtool/promtool");
    let output = Command::new(&program).args(arguments).current_dir(folder).output();
    let output =
        output.unwrap_or_else(|error| panic!("{error}: scripts/provision.sh promtool gets {}", program.display()));
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

#[test]
fn promtool_takes_the_alerts() {
    promtool(&["check", "rules", "alerts.yml"]);
}

#[test]
fn promtool_reads_all_that_the_dashboard_asks() {
    let dashboard: Value = serde_json::from_str(include_str!("../../deploy/grafana/walpost.json")).expect("it is JSON");
    let asked = asked_in(&dashboard);
    assert!(asked.len() > 40, "{asked:?}");
    let rule = |(number, asked): (usize, &&str)| {
        // What Grafana puts in for these; other variables stand in texts.
        let asked = asked.replace("$__rate_interval", "5m").replace("$__range", "3h");
        json!({ "record": format!("panel_{number}"), "expr": asked })
    };
    let rules: Vec<_> = asked.iter().enumerate().map(rule).collect();
    let file = scratch::folder("dashboard").join("rules.yml");
    fs::write(&file, json!({ "groups": [{ "name": "dashboard", "rules": rules }] }).to_string())
        .expect("the folder is ours");
    promtool(&["check", "rules", file.to_str().expect("it is ASCII")]);
}

/// Every `expr` in it.
fn asked_in(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(members) => {
            let own = members.get("expr").and_then(Value::as_str);
            own.into_iter().chain(members.values().flat_map(asked_in)).collect()
        }
        Value::Array(values) => values.iter().flat_map(asked_in).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn each_alert_fires_where_it_should_and_nowhere_else() {
    promtool(&["test", "rules", "alerts_test.yml"]);
    let alerts = include_str!("../../deploy/prometheus/alerts.yml");
    let tests = include_str!("../../deploy/prometheus/alerts_test.yml");
    let names: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 10);
    for name in names {
        for kind in ["fires", "is silent"] {
            assert!(tests.contains(&format!("- name: {name} {kind}\n")), "no test says that {name} {kind}");
        }
    }
}

#[test]
fn each_alert_says_what_to_do() {
    let alerts = include_str!("../../deploy/prometheus/alerts.yml");
    let rules: Vec<_> = alerts.split("- alert: ").skip(1).collect();
    for rule in rules {
        for part in ["summary: ", "description: ", "severity: "] {
            assert!(rule.contains(part), "{part} is missing in {rule}");
        }
        let runbook = rule.lines().find_map(|line| line.trim().strip_prefix("runbook_url: "));
        let runbook = Path::new(env!("CARGO_MANIFEST_DIR")).join(runbook.expect("it has a runbook"));
        assert!(runbook.is_file(), "{} is no file", runbook.display());
    }
}
