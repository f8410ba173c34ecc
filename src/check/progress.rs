//! Findings about the table that holds the proof of publication.

use super::Finding;
use crate::postgres::{
    progress::{Access, Progress, TABLE},
    quote,
    server::Role,
};

/// What is wrong with the table in schema `home`, and with what it knows of the slot. `system_identifier` is the server's.
pub fn progress(
    home: &str,
    access: Option<&Access>,
    known: Option<&Progress>,
    system_identifier: &str,
    role: &Role,
) -> Vec<Finding> {
    let table = quote::qualified(home, TABLE);
    let about = format!("table {table}");
    match (access, known) {
        (None, _) => vec![Finding::note(
            about,
            "does not exist: no row is ever proven published, so none can be pruned, and a lost slot cannot be made up for",
            "walpost setup",
        )],
        (Some(access), _) if !access.streams() => vec![Finding::warning(
            about,
            "may not be read and written by this role: no row is proven published",
            format!(
                "grant usage on schema {} to {role}; grant select, insert, update on {table} to {role}",
                quote::ident(home),
                role = quote::ident(&role.name)
            ),
        )],
        (Some(_), Some(known)) if known.system_identifier != system_identifier => vec![Finding::error(
            about,
            format!(
                "speaks of server {}, and this is {system_identifier}: the database was restored from a dump, and what was \
                 published there proves nothing here",
                known.system_identifier
            ),
            "walpost setup, which begins the proof anew",
        )],
        (Some(_), _) => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        check::{Severity, server::tests::default_server},
        postgres::progress::tests::default_progress,
    };

    #[test]
    fn the_table_must_be_there_writable_and_of_this_server() {
        let known = default_progress();
        let found = |access: Option<Access>, here| {
            let findings = progress("My App", access.as_ref(), Some(&known), here, &default_server().role);
            findings.into_iter().map(|finding| (finding.severity, finding.remedy)).next()
        };
        let all = Access { select: true, write: true };
        assert_eq!(found(Some(all), "7"), None);
        assert_eq!(found(None, "7"), Some((Severity::Note, "walpost setup".to_owned())));
        let (severity, remedy) = found(Some(Access { write: false, ..all }), "7").unwrap();
        assert!(severity == Severity::Warning && remedy.contains("update on \"My App\".progress to walpost_stream"));
        assert_eq!(found(Some(all), "8").map(|(severity, _)| severity), Some(Severity::Error));
    }
}
