//! The [password file](https://www.postgresql.org/docs/current/libpq-pgpass.html): `host:port:database:user:password`.
//!
//! It is read for each connection, so that a rotated password is found. A file that others can read is left alone.

use std::{fs, io, os::unix::fs::PermissionsExt, path::Path};

use secrecy::SecretString;

/// What a line must name to give the password; each field of a line may be `*` instead.
#[derive(Clone, Copy, Debug)]
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) database: &'a str,
    pub(super) user: &'a str,
}

/// Reads the password from the file; none when there is no such file or line.
pub(super) fn look_up(path: &Path, login: Login<'_>) -> Option<SecretString> {
    let content = match readable(path) {
        Ok(content) => content?,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "password file cannot be read");
            return None;
        }
    };
    content.lines().find_map(|line| password(line, login)).map(SecretString::from)
}

fn readable(path: &Path) -> io::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() {
        tracing::warn!(path = %path.display(), "password file is no plain file and is not used");
        return Ok(None);
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            "password file can be read by others and is not used; chmod 0600 mends it"
        );
        return Ok(None);
    }
    fs::read_to_string(path).map(Some)
}

fn password(line: &str, login: Login<'_>) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let port = login.port.to_string();
    let mut rest = line;
    for wanted in [login.host, &port, login.database, login.user] {
        let (field, after) = field(rest)?;
        if rest[..rest.len() - after.len() - 1] != *"*" && field != wanted {
            return None;
        }
        rest = after;
    }
    let password = unescaped(rest);
    (!password.is_empty()).then_some(password)
}

/// Splits at the first colon that no backslash precedes; gives the field without its backslashes.
fn field(text: &str) -> Option<(String, &str)> {
    let mut escaped = false;
    let end = text.find(|c| {
        let ends = c == ':' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some((unescaped(&text[..end]), &text[end + 1..]))
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use secrecy::ExposeSecret;

    use super::*;

    const LOGIN: Login<'_> = Login { host: "db.example", port: 5432, database: "app", user: "walpost" };

    #[test]
    fn a_line_gives_its_password_to_the_login_that_it_names() {
        for (line, expected) in [
            ("db.example:5432:app:walpost:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            ("*:*:app:*:a:b", Some("a:b")),
            (r"*:*:*:*:a\:b\\c", Some(r"a:b\c")),
            ("other:5432:app:walpost:secret", None),
            ("db.example:5433:app:walpost:secret", None),
            ("db.example:5432:app:other:secret", None),
            (r"\*:*:*:*:secret", None),
            ("#*:*:*:*:secret", None),
            ("*:*:*:*:", None),
            ("*:*:*:*", None),
            ("", None),
        ] {
            assert_eq!(password(line, LOGIN).as_deref(), expected, "{line}");
        }
        let odd = Login { host: "::1", user: r"a\b", ..LOGIN };
        assert_eq!(password(r"\:\:1:5432:app:a\\b:x", odd).as_deref(), Some("x"));
    }

    #[test]
    fn the_first_matching_line_wins_and_a_file_open_to_others_is_not_used() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "# comment\nother:*:*:*:one\n*:*:*:walpost:two\n*:*:*:*:three").unwrap();
        let mode = |bits| fs::set_permissions(file.path(), fs::Permissions::from_mode(bits)).unwrap();
        mode(0o600);
        assert_eq!(look_up(file.path(), LOGIN).unwrap().expose_secret(), "two");
        mode(0o640);
        assert!(look_up(file.path(), LOGIN).is_none());
        assert!(look_up(Path::new("/nonexistent/pgpass"), LOGIN).is_none());
    }
}
