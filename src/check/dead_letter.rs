//! Findings about the table of dead letters.

use super::{Finding, Severity};
use crate::postgres::{
    dead_letter::{Access, TABLE},
    quote,
    server::Role,
};

/// What is wrong with the table in schema `home`. `needed`: `on_poison` rests on it; otherwise an event that can never be
/// delivered halts the stream, which is worth knowing.
pub fn dead_letter(home: &str, access: Option<&Access>, role: &Role, needed: bool) -> Vec<Finding> {
    let table = quote::qualified(home, TABLE);
    let severity = if needed { Severity::Error } else { Severity::Note };
    let finding = |what: &str, remedy| vec![Finding::new(severity, format!("table {table}"), what, remedy)];
    match access {
        None if needed => finding(
            "does not exist, and on_poison rests on it: walpost run ends before it streams",
            "walpost setup, or on_poison = \"halt\" in the configuration".to_owned(),
        ),
        None => finding(
            "does not exist: an event that can never be delivered stops the stream, and has no place to go",
            "walpost setup".to_owned(),
        ),
        Some(Access { select: true, write: true, .. }) => vec![],
        Some(_) => finding(
            "may not be read and written by this role: no event can be put aside",
            format!(
                "grant usage on schema {} to {role}; grant select, insert, update on {table} to {role}",
                quote::ident(home),
                role = quote::ident(&role.name)
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::server::tests::default_server;

    fn found(access: Option<Access>, needed: bool) -> Option<(Severity, String)> {
        let mut findings = dead_letter("My App", access.as_ref(), &default_server().role, needed);
        assert!(findings.len() < 2);
        findings.pop().map(|finding| (finding.severity, format!("{}: {}", finding.about, finding.remedy)))
    }

    #[test]
    fn the_table_must_be_there_and_writable_where_it_is_needed() {
        let all = Access { select: true, write: true, mark: true, used: false };
        for needed in [false, true] {
            let severity = if needed { Severity::Error } else { Severity::Note };
            assert_eq!(found(Some(all), needed), None);
            let (is, text) = found(None, needed).unwrap();
            assert!(is == severity && text.contains("\"My App\".dead_letter: walpost setup"), "{text}");
            for lacking in [Access { select: false, ..all }, Access { write: false, ..all }] {
                let (is, text) = found(Some(lacking), needed).unwrap();
                assert!(is == severity && text.contains("grant select, insert, update on"), "{text}");
            }
        }
    }
}
