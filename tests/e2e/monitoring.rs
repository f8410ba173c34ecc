//! What stands ready for Prometheus is what Prometheus takes, and each alert fires when it should.

use std::{path::Path, process::Command};

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
