//! What the settings come to mean: defaults, variables, lists, contradictions, and that no secret shows.

use secrecy::ExposeSecret;

use super::*;

fn parse(text: &str) -> Result<ConnInfo, ConnInfoError> {
    with_variables(text, &[("USER", "os"), ("HOME", "/home/os")])
}

fn with_variables(text: &str, variables: &[(&str, &str)]) -> Result<ConnInfo, ConnInfoError> {
    ConnInfo::parse(text, |name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn tcp(name: &str, port: u16) -> Target {
    Target { host: Host::Tcp { name: name.to_owned(), address: None }, port }
}

#[test]
fn nothing_given_means_the_local_socket_and_the_user_s_own_database() {
    let at = parse("").unwrap();
    assert_eq!(at.targets, [Target { host: Host::Unix(default_socket_directory()), port: 5432 }]);
    assert_eq!((&*at.user, &*at.database, &*at.application_name), ("os", "os", "walpost"));
    assert_eq!(at.tls.mode, TlsMode::Prefer);
    assert_eq!(at.tls.root, RootCertificate::Default(Some("/home/os/.postgresql/root.crt".into())));
    assert_eq!(at.passfile, Some("/home/os/.pgpass".into()));
    assert_eq!(at.connect_timeout, Some(Duration::from_secs(10)));
    assert!(matches!(with_variables("", &[]), Err(ConnInfoError::NoUser)));
}

#[test]
fn variables_are_defaults_and_the_string_wins() {
    let variables = [
        ("PGHOST", "envhost"),
        ("PGPORT", "6000"),
        ("PGUSER", "envuser"),
        ("PGPASSWORD", "envpass"),
        ("PGDATABASE", "envdb"),
        ("PGSSLMODE", "require"),
        ("PGAPPNAME", "envapp"),
        ("PGPASSFILE", "/p"),
        ("USER", "os"),
    ];
    let at = with_variables("", &variables).unwrap();
    assert_eq!(at.targets, [tcp("envhost", 6000)]);
    assert_eq!((&*at.user, &*at.database, &*at.application_name), ("envuser", "envdb", "envapp"));
    assert_eq!(at.password.as_ref().unwrap().expose_secret(), "envpass");
    assert_eq!((at.tls.mode, at.passfile.clone()), (TlsMode::Require, Some("/p".into())));

    let at = with_variables("postgres://u:p@h:1/d?sslmode=disable", &variables).unwrap();
    assert_eq!(at.targets, [tcp("h", 1)]);
    assert_eq!((&*at.user, &*at.database), ("u", "d"));
    assert_eq!(at.password.as_ref().unwrap().expose_secret(), "p");
    assert_eq!(at.tls.mode, TlsMode::Disable);

    let refused = with_variables("", &[("PGSSLCRL", "/x"), ("USER", "os")]);
    assert!(matches!(refused, Err(ConnInfoError::Refused { keyword: "PGSSLCRL", .. })));
}

#[test]
fn hosts_ports_and_addresses_are_lists_that_fit_together() {
    assert_eq!(parse("host=a,b port=1,2").unwrap().targets, [tcp("a", 1), tcp("b", 2)]);
    assert_eq!(parse("host=a,b port=7").unwrap().targets, [tcp("a", 7), tcp("b", 7)]);
    assert_eq!(parse("postgres://a,b:2").unwrap().targets, [tcp("a", 5432), tcp("b", 2)]);
    assert_eq!(
        parse("host=/run/pg,@abstract").unwrap().targets,
        [
            Target { host: Host::Unix("/run/pg".into()), port: 5432 },
            Target { host: Host::Unix("@abstract".into()), port: 5432 },
        ]
    );
    let address = Some("192.0.2.1".parse().unwrap());
    assert_eq!(
        parse("host=db hostaddr=192.0.2.1").unwrap().targets,
        [Target { host: Host::Tcp { name: "db".into(), address }, port: 5432 }]
    );
    assert_eq!(
        parse("hostaddr=192.0.2.1").unwrap().targets,
        [Target { host: Host::Tcp { name: "192.0.2.1".into(), address }, port: 5432 }]
    );
    assert!(matches!(parse("host=a,b port=1,2,3"), Err(ConnInfoError::Lists { .. })));
    assert!(matches!(parse("host=a,b hostaddr=192.0.2.1"), Err(ConnInfoError::Lists { .. })));
    for port in ["0", "65536", "x", "-1", "5432 "] {
        assert_eq!(parse(&format!("host=a port='{port}'")).is_err(), port != "5432 ", "{port}");
    }
}

#[test]
fn contradictions_and_unknown_values_are_refused() {
    for text in [
        "sslmode=verify_full",
        "sslrootcert=system sslmode=require",
        "sslnegotiation=direct",
        "channel_binding=yes",
        "target_session_attrs=master",
        "client_encoding=LATIN1",
        "gssencmode=require",
        "connect_timeout=soon",
        "keepalives=on",
        "hostaddr=db",
        "ssl_min_protocol_version=SSLv3",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert_eq!(parse("sslrootcert=system").unwrap().tls.mode, TlsMode::VerifyFull);
    assert_eq!(
        parse("sslmode=verify_full").unwrap_err().to_string(),
        "connection keyword sslmode takes one of disable allow prefer require verify-ca verify-full, not \"verify_full\""
    );
}

#[test]
fn times_follow_libpq_where_they_are_given() {
    let at = parse("connect_timeout=0 keepalives=0 tcp_user_timeout=1500").unwrap();
    assert_eq!(at.connect_timeout, None);
    assert_eq!(at.keepalive, None);
    assert_eq!(at.tcp_user_timeout, Some(Duration::from_millis(1500)));
    let at = parse("keepalives_idle=5 keepalives_interval=0 keepalives_count=9").unwrap();
    let expected = Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(10), count: 9 };
    assert_eq!(at.keepalive, Some(expected));
}

#[test]
fn printing_shows_the_settings_and_never_a_secret() {
    let secret = "p@ ss'w%o\\rd";
    let quoted = secret.replace('\\', r"\\").replace('\'', r"\'");
    for text in [
        format!("host=h password='{quoted}' sslpassword='{quoted}' application_name='a b'"),
        "postgres://h?application_name=a%20b&sslpassword=x&password=p%40%20ss'w%25o%5Crd".to_owned(),
    ] {
        let at = parse(&text).unwrap();
        assert_eq!(at.password.as_ref().unwrap().expose_secret(), secret);
        assert_eq!(at.to_string(), "host=h password=*** sslmode=require sslpassword=*** application_name='a b'");
        let debug = format!("{at:?} {:?}", at.tls);
        assert!(!debug.contains("ss'w") && !debug.contains("%o"), "{debug}");
    }
    let shown = parse("host=h options='-c x=\\'a\\''").unwrap().to_string();
    assert_eq!(parse(&shown).unwrap().options.as_deref(), Some("-c x='a'"));
}

#[test]
fn the_password_file_serves_hosts_and_the_local_socket() {
    use std::os::unix::fs::PermissionsExt;

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "localhost:5432:*:*:local\ndb:*:app:*:remote\n/run/pg:*:*:*:socket\n").unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let password = |rest: &str| {
        let at = parse(&format!("passfile='{}' {rest}", file.path().display())).unwrap();
        at.password_for(&at.targets[0]).map(|password| password.expose_secret().to_owned())
    };
    assert_eq!(password("").as_deref(), Some("local"));
    assert_eq!(password("host=localhost").as_deref(), Some("local"));
    assert_eq!(password("host=db dbname=app").as_deref(), Some("remote"));
    assert_eq!(password("host=db dbname=other").as_deref(), None);
    assert_eq!(password("host=/run/pg").as_deref(), Some("socket"));
    assert_eq!(password("host=db dbname=app password=given").as_deref(), Some("given"));
}

#[test]
fn tls_is_the_default_where_a_host_is_not_sure_to_be_this_machine() {
    for (text, mode) in [
        ("host=localhost", TlsMode::Prefer),
        ("host=127.0.0.1", TlsMode::Prefer),
        ("host=/tmp", TlsMode::Prefer),
        ("host=db hostaddr=127.0.0.1", TlsMode::Prefer),
        ("hostaddr=::ffff:127.0.0.1", TlsMode::Prefer),
        ("postgres://[::1]/app", TlsMode::Prefer),
        ("host=db", TlsMode::Require),
        ("host=localhost hostaddr=10.0.0.1", TlsMode::Require),
        ("host=localhost,db", TlsMode::Require),
        ("host=127.1", TlsMode::Require),
        ("host=db sslnegotiation=direct", TlsMode::Require),
        ("host=db sslmode=disable", TlsMode::Disable),
        ("host=db sslmode=prefer", TlsMode::Prefer),
        ("host=db sslrootcert=system", TlsMode::VerifyFull),
    ] {
        assert_eq!(parse(text).unwrap().tls.mode, mode, "{text}");
    }
    // What is shown means the same when it is read back.
    assert_eq!(parse("host=db").unwrap().to_string(), "host=db sslmode=require");
    let by_variable = with_variables("host=db", &[("USER", "os"), ("PGSSLMODE", "prefer")]).unwrap();
    assert_eq!(by_variable.tls.mode, TlsMode::Prefer);
}
