//! `/` for people: what is most asked for, as a page that loads nothing else and asks again by itself.

use std::{fmt::Write, time::Duration};

use axum::{http::header, response::IntoResponse};

use super::{Answers, health};
use crate::status::age;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:44rem;padding:0 1rem}\
     table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884;\
     vertical-align:top}th{font-weight:500;width:12rem}:root{color-scheme:light dark}";

/// The page, and that nothing may be loaded into it.
pub(super) fn html(answers: &Answers) -> impl IntoResponse + use<> {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ];
    (headers, text(answers))
}

fn text(answers: &Answers) -> String {
    let at = (answers.clock)();
    let now = answers.status.now();
    let unknown = || "unknown".to_owned();
    let ready = match health::ready(&now, at).is_good() {
        true => "yes",
        false => "no",
    };
    let mut rows = vec![
        ("state", now.state.word().to_owned()),
        ("for", humantime::format_duration(Duration::from_secs(age(now.since, at).as_secs())).to_string()),
        ("ready", ready.to_owned()),
    ];
    rows.extend(now.reason.clone().map(|reason| ("because", reason)));
    rows.extend([
        ("database", answers.facts.database.clone()),
        ("slot", answers.facts.slot.clone()),
        ("publication", answers.facts.publication.clone()),
        ("confirmed", now.confirmed.filter(|_| now.is_attached()).map_or_else(unknown, |lsn| lsn.to_string())),
        ("lag", now.lag_seconds(at).map_or_else(unknown, |seconds| format!("{seconds:.3} s"))),
        ("log behind", now.lag_bytes(at).map_or_else(unknown, |bytes| format!("{bytes} bytes"))),
        ("in flight", format!("{} records", now.in_flight_records)),
    ]);
    rows.extend(now.delivered.iter().map(|(topic, total)| ("delivered", format!("{total} to {topic}"))));
    rows.extend(now.dead_letters.iter().map(|(reason, total)| ("dead letters", format!("{total} {reason}"))));
    let mut page = format!(
        "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>walpost</title><style>{STYLE}</style>\
         <h1>walpost {}</h1><table>",
        env!("CARGO_PKG_VERSION")
    );
    for (name, value) in rows {
        write!(page, "<tr><th>{name}<td>{}", escaped(&value)).expect("a String takes any text");
    }
    page.push_str("</table><p>As JSON: /status, /connectors?expand=status. For Prometheus: /metrics.\n");
    page
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
