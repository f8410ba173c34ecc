//! The two spellings of a connection string: `postgresql://user@host/db?sslmode=require` and `host=… dbname='…'`.
//!
//! The rules are [libpq's](https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING). Where libpq
//! would read an unescaped `@` or `/` of a password as part of a host, port or database, the URL is refused instead:
//! libpq's reading would print a piece of the password in some later error. No error repeats the string.

use super::{
    ConnInfoError,
    keywords::{self, Keyword, Treatment},
};

/// Keywords and values in the order given; a later one replaces an earlier one.
pub(super) type Pairs = Vec<(&'static Keyword, String)>;

pub(super) fn parse(text: &str) -> Result<Pairs, ConnInfoError> {
    match text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")) {
        Some(rest) => url(rest),
        None if has_scheme(text) => Err(ConnInfoError::Scheme),
        None => keyword_values(text),
    }
}

fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn url(text: &str) -> Result<Pairs, ConnInfoError> {
    let mut pairs = Pairs::new();
    let mut push = |name: &str, encoded: &str| -> Result<(), ConnInfoError> {
        if !encoded.is_empty() {
            pairs.push((keywords::find(name, false)?, percent_decoded(encoded)?));
        }
        Ok(())
    };
    let slash = text.find('/').unwrap_or(text.len());
    let mut rest = text;
    let user_info = text[..slash].find('@').map(|at| &text[..at]);
    if let Some(user_info) = user_info {
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        push("user", user)?;
        push("password", password)?;
        rest = &text[user_info.len() + 1..];
    }

    let (authority_and_path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if authority_and_path.contains('@') {
        return Err(ConnInfoError::UnescapedUrl);
    }
    let (authority, database) = authority_and_path.split_once('/').unwrap_or((authority_and_path, ""));
    let (hosts, ports) = hosts_and_ports(authority)?;
    push("host", &hosts)?;
    push("port", &ports)?;
    push("dbname", database)?;

    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let after_secret = pairs.last().is_some_and(|(keyword, _)| keyword.treatment == Treatment::Secret);
        let (name, value) = parameter.split_once('=').ok_or(ConnInfoError::QueryWithoutValue)?;
        let (name, value) = (percent_decoded(name)?, percent_decoded(value)?);
        // As JDBC spells it; libpq takes it too.
        let (name, value) =
            if (&*name, &*value) == ("ssl", "true") { ("sslmode".into(), "require".into()) } else { (name, value) };
        pairs.push((keywords::find(&name, after_secret)?, value));
    }
    Ok(pairs)
}

/// `a:1,[::1]:2,c` as the lists that the keywords `host` and `port` take.
fn hosts_and_ports(authority: &str) -> Result<(String, String), ConnInfoError> {
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    for element in authority.split(',') {
        let (host, port) = match element.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or(ConnInfoError::Bracket)?;
                if host.is_empty() || !(after.is_empty() || after.starts_with(':')) {
                    return Err(ConnInfoError::Bracket);
                }
                (host, after.strip_prefix(':').unwrap_or(""))
            }
            None => element.split_once(':').unwrap_or((element, "")),
        };
        hosts.push(host);
        ports.push(port);
    }
    let list = |elements: Vec<&str>| {
        if elements.iter().all(|element| element.is_empty()) { String::new() } else { elements.join(",") }
    };
    Ok((list(hosts), list(ports)))
}

fn percent_decoded(text: &str) -> Result<String, ConnInfoError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        let (high, low) = digit().zip(digit()).ok_or(ConnInfoError::Percent)?;
        bytes.push((high * 16 + low) as u8);
    }
    if bytes.contains(&0) {
        return Err(ConnInfoError::Percent);
    }
    String::from_utf8(bytes).map_err(|_| ConnInfoError::Percent)
}

fn keyword_values(text: &str) -> Result<Pairs, ConnInfoError> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let after = pairs.last().map(|(keyword, _): &(&Keyword, String)| *keyword);
        let no_value = ConnInfoError::NoValue { after: after.map_or("the beginning", |keyword| keyword.name) };
        let end = rest.find(|c: char| c == '=' || c.is_whitespace()).ok_or(no_value)?;
        let (name, after_name) = rest.split_at(end);
        let Some(value) = after_name.trim_start().strip_prefix('=') else {
            return Err(ConnInfoError::NoValue { after: after.map_or("the beginning", |keyword| keyword.name) });
        };
        let after_secret = after.is_some_and(|keyword| keyword.treatment == Treatment::Secret);
        let keyword = keywords::find(name, after_secret)?;
        let (value, after_value) = value_and_rest(value.trim_start(), keyword)?;
        pairs.push((keyword, value));
        rest = after_value.trim_start();
    }
    Ok(pairs)
}

/// Reads one value, `'quoted with \' and \\'` or up to the next blank, and gives what follows it.
fn value_and_rest<'a>(text: &'a str, keyword: &Keyword) -> Result<(String, &'a str), ConnInfoError> {
    let (quoted, text) = match text.strip_prefix('\'') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted { Err(ConnInfoError::Quote { keyword: keyword.name }) } else { Ok((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(&'static str, String)> {
        parse(text)
            .unwrap_or_else(|e| panic!("{text}: {e}"))
            .into_iter()
            .map(|(keyword, value)| (keyword.name, value))
            .collect()
    }

    #[test]
    fn both_spellings_give_the_same_settings() {
        let expected = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        for (text, pairs) in [
            ("postgresql://", &[] as &[(&str, &str)]),
            ("", &[]),
            ("postgres://localhost", &[("host", "localhost")]),
            ("postgresql://localhost:5433", &[("host", "localhost"), ("port", "5433")]),
            ("postgresql://localhost/mydb", &[("host", "localhost"), ("dbname", "mydb")]),
            ("postgresql://user@localhost", &[("user", "user"), ("host", "localhost")]),
            ("postgresql://u:s%40%2F%20%25@h", &[("user", "u"), ("password", "s@/ %"), ("host", "h")]),
            ("postgresql://u:a?b#c:d@h/", &[("user", "u"), ("password", "a?b#c:d"), ("host", "h")]),
            (
                "postgresql://h/db?sslmode=require&application_name=a%26b",
                &[("host", "h"), ("dbname", "db"), ("sslmode", "require"), ("application_name", "a&b")],
            ),
            ("postgresql:///db?host=/run/pg&port=5433", &[("dbname", "db"), ("host", "/run/pg"), ("port", "5433")]),
            ("postgresql://%2Frun%2Fpg/db", &[("host", "/run/pg"), ("dbname", "db")]),
            ("postgresql://a:1,b,c:3/d", &[("host", "a,b,c"), ("port", "1,,3"), ("dbname", "d")]),
            ("postgresql://[2001:db8::1]:7,[::1]/d", &[("host", "2001:db8::1,::1"), ("port", "7,"), ("dbname", "d")]),
            ("postgresql://:5433?ssl=true", &[("port", "5433"), ("sslmode", "require")]),
            ("host=h port = 5433\tdbname=d", &[("host", "h"), ("port", "5433"), ("dbname", "d")]),
            (r"password='it\'s \\ here' user=a\ b\'", &[("password", r"it's \ here"), ("user", "a b'")]),
            ("password = '' host=''", &[("password", ""), ("host", "")]),
            ("  user=é  ", &[("user", "é")]),
            ("options='-c a=b'", &[("options", "-c a=b")]),
            ("user=", &[("user", "")]),
        ] {
            assert_eq!(parsed(text), expected(pairs), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_it() {
        for text in [
            "postgresql://u:se@cret@host/db",
            "postgresql://u:sec/ret@host/db",
            "postgresql://u:12/cret@host/db",
            "postgresql://u:%zzcret@host",
            "postgresql://u:%00cret@host",
            "postgresql://u:%ff%fecret@host",
            "postgresql://u:cret%4",
            "postgresql://[::1",
            "postgresql://[]:5432",
            "postgresql://[::1]cret",
            "postgresql://h?cret",
            "postgresql://h?password=x&cret=y",
            "mysql://u:cret@h/d",
            "Postgres://u:cret@h/d?sslmode=require",
            "password=se cret host=h",
            "password=se cret=x host=h",
            "password='se cret",
            "cret",
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(!error.contains("cret"), "{text}: {error}");
        }
    }
}
