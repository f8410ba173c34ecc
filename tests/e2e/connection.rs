//! Connecting, for replication and for SQL alike: TLS, passwords, hosts, and what each refusal says.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use walpost::postgres::{
    Error, ErrorKind,
    conninfo::{ConnInfo, ConnInfoError},
    refusal::Refusal,
    replication::{Replication, StartRequest},
    sql,
    stream::Stream,
};

use crate::support::{
    certificates::{Authority, Identity},
    eventually,
    postgres::{Database, MAIN, Mode, Postgres, VERSIONS},
    scratch,
};

const WITHIN: Duration = Duration::from_secs(60);

/// A password with everything that connection strings escape. Its pieces are looked for in errors.
const PASSWORD: &str = "s3cr3t' \\\"@:/?#%&=s3cr3t";
const IN_A_URL: &str = "s3cr3t%27%20%5C%22%40%3A%2F%3F%23%25%26%3Ds3cr3t";
const IN_QUOTES: &str = r#"'s3cr3t\' \\"@:/?#%&=s3cr3t'"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Replication,
    Sql,
}

const WAYS: [Way; 2] = [Way::Replication, Way::Sql];

/// Connects with nothing from this process's environment; gives whether TLS is in use.
fn connect(way: Way, string: &str) -> Result<bool, Error> {
    const USES_TLS: &str = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let at = parse(string);
    block_on(async {
        let tls = match way {
            Way::Replication => {
                let mut connection = Replication::connect(&at).await?;
                connection.identify_system().await?;
                let rows = connection.query(USES_TLS).await?;
                connection.close().await;
                rows[0][0].clone()
            }
            Way::Sql => sql::connect(&at).await?.query_one(USES_TLS, &[]).await?.get(0),
        };
        Ok(tls.as_deref() == Some("true"))
    })
}

fn parse(string: &str) -> ConnInfo {
    ConnInfo::parse(string, |_| None).unwrap_or_else(|error| panic!("{string}: {error}"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    runtime.block_on(async { tokio::time::timeout(WITHIN, future).await.expect("it ends in time") })
}

fn refused(way: Way, string: &str) -> (Refusal, ErrorKind) {
    let error = connect(way, string).expect_err(string);
    let refusal = error.refusal().unwrap_or_else(|| panic!("{string}: {}", chain(&error))).clone();
    (refusal, error.kind())
}

/// All that a log could show of an error.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

fn file(name: &str, content: &str) -> PathBuf {
    let path = scratch::folder("connection").join(name);
    std::fs::write(&path, content).expect("the folder is ours");
    #[allow(clippy::permissions_set_readonly_false, reason = "a key may be read by its owner alone")]
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("the file is ours");
    path
}

#[test]
fn each_tls_mode_holds_what_it_promises_for_both_kinds_of_connection() {
    let authority = Authority::new();
    let server = Postgres::configure(MAIN).tls(authority.server()).set("log_connections", "on").start();
    server.sql("CREATE ROLE app LOGIN REPLICATION");
    let root = file("root.crt", &authority.pem());
    let other_root = file("other.crt", &Authority::new().pem());
    let trusted = format!("sslrootcert={}", root.display());
    let distrusted = format!("sslrootcert={}", other_root.display());
    let (unknown, host, expired) = ("signed by no authority", "made out for elsewhere.example", "has expired");

    // Mode, whom the client trusts, and what each certificate of the server leads to: right, of another host, expired.
    // Ok(true) is TLS, Ok(false) plain text.
    type Row<'a> = (&'a str, &'a str, [Result<bool, &'a str>; 3]);
    let matrix: [Row<'_>; 13] = [
        ("disable", "", [Ok(false); 3]),
        ("allow", "", [Ok(false); 3]),
        ("prefer", "", [Ok(true); 3]),
        ("require", "", [Ok(true); 3]),
        ("require", &trusted, [Ok(true), Ok(true), Err(expired)]),
        ("require", &distrusted, [Err(unknown); 3]),
        ("prefer", &distrusted, [Ok(false); 3]),
        ("verify-ca", "", [Err("needs a root certificate"); 3]),
        ("verify-ca", &trusted, [Ok(true), Ok(true), Err(expired)]),
        ("verify-ca", &distrusted, [Err(unknown); 3]),
        ("verify-full", &trusted, [Ok(true), Err(host), Err(expired)]),
        ("verify-full", &distrusted, [Err(unknown), Err(host), Err(unknown)]),
        ("verify-full", "sslrootcert=system", [Err(unknown); 3]),
    ];
    let sessions = || server.log().matches("authorized: user=app").count();
    for (column, identity) in [authority.server(), authority.other_host(), authority.expired()].iter().enumerate() {
        server.present(identity);
        for (mode, trust, outcomes) in matrix {
            for way in WAYS {
                let cell = format!("{way:?} sslmode={mode} {trust} column {column}");
                let before = sessions();
                let string =
                    format!("host=127.0.0.1 port={} user=app dbname=postgres sslmode={mode} {trust}", server.port());
                match (connect(way, &string), outcomes[column]) {
                    (Ok(tls), Ok(expected)) => assert_eq!(tls, expected, "{cell}"),
                    (Err(error), Err(expected)) => {
                        assert!(error.to_string().contains(expected), "{cell}: {}", chain(&error));
                        assert_eq!(error.kind(), ErrorKind::Permanent, "{cell}");
                        assert_eq!(sessions(), before, "{cell}: no session was opened");
                    }
                    (outcome, expected) => panic!("{cell}: {outcome:?}, expected {expected:?}"),
                }
            }
        }
    }

    server.present(&authority.server());
    for way in WAYS {
        let by_name =
            format!("host=localhost port={} user=app dbname=postgres sslmode=verify-full {trusted}", server.port());
        assert!(connect(way, &by_name).expect("localhost is in the certificate"), "{way:?}");
        let renamed = by_name.replace("localhost", "elsewhere.example hostaddr=127.0.0.1");
        let error = connect(way, &renamed).expect_err("the name counts, not the address");
        assert!(error.to_string().contains("127.0.0.1, localhost, not for elsewhere.example"), "{error}");
        // From PostgreSQL 17 on TLS may begin without asking.
        let direct = format!("{by_name} sslnegotiation=direct");
        assert!(connect(way, &direct).expect("it speaks TLS at once"), "{way:?}");
    }
}

#[test]
fn a_server_without_tls_is_refused_where_tls_is_demanded() {
    let server = Postgres::shared(MAIN);
    let at = |mode| format!("host=127.0.0.1 port={} user=postgres dbname=postgres sslmode={mode}", server.port());
    for way in WAYS {
        for mode in ["disable", "allow", "prefer"] {
            assert!(!connect(way, &at(mode)).expect(mode), "{way:?} {mode}");
        }
        for mode in ["require", "verify-ca", "verify-full"] {
            let error = connect(way, &at(mode)).expect_err(mode);
            let expected = if mode == "require" { "offers no TLS" } else { "needs a root certificate" };
            assert!(error.to_string().contains(expected), "{way:?} {mode}: {error}");
        }
        // The kernel carries it: no TLS is needed and none is offered.
        let folder = server.socket_folder().display();
        let socket = format!("host={folder} port={} user=postgres dbname=postgres sslmode=verify-full", server.port());
        assert!(!connect(way, &socket).expect("the socket is there"), "{way:?}");
    }
}

#[test]
fn every_way_to_prove_a_password_works_whatever_is_in_it() {
    let authority = Authority::new();
    let server = Postgres::configure(MAIN)
        .tls(authority.server())
        .hba(
            "host all clear 127.0.0.1/32 password\nhost all hashed 127.0.0.1/32 md5\nhost all scram 127.0.0.1/32 scram-sha-256\n\
             hostssl all encrypted 127.0.0.1/32 scram-sha-256\nhostnossl all plain 127.0.0.1/32 scram-sha-256",
        )
        .start();
    let literal = format!("E'{}'", PASSWORD.replace('\\', r"\\").replace('\'', r"\'"));
    server.sql("SET password_encryption = 'md5'; CREATE ROLE hashed LOGIN REPLICATION");
    for role in ["clear", "scram", "encrypted", "plain"] {
        server.sql(&format!("CREATE ROLE {role} LOGIN REPLICATION PASSWORD {literal}"));
    }
    server.sql(&format!("SET password_encryption = 'md5'; ALTER ROLE hashed PASSWORD {literal}"));
    let port = server.port();
    for way in WAYS {
        for (role, settings, expected) in [
            ("clear", "sslmode=require", true),
            ("hashed", "sslmode=disable", false),
            ("scram", "sslmode=disable", false),
            ("scram", "sslmode=require", true),
            ("scram", "sslmode=require channel_binding=require", true),
            ("scram", "sslmode=require channel_binding=disable", true),
            // TLS or plain only, as pg_hba.conf has it: allow and prefer find the way.
            ("encrypted", "sslmode=allow", true),
            ("encrypted", "sslmode=prefer", true),
            ("plain", "sslmode=allow", false),
            ("plain", "sslmode=prefer", false),
        ] {
            let words =
                format!("host=127.0.0.1 port={port} user={role} dbname=postgres password={IN_QUOTES} {settings}");
            let url = format!("postgres://{role}:{IN_A_URL}@127.0.0.1:{port}/postgres?{}", settings.replace(' ', "&"));
            for string in [words, url] {
                let tls = connect(way, &string).unwrap_or_else(|error| panic!("{string}: {}", chain(&error)));
                assert_eq!(tls, expected, "{way:?} {string}");
            }
        }
        for (role, settings) in
            [("clear", "sslmode=require"), ("hashed", "sslmode=require"), ("scram", "sslmode=disable")]
        {
            let string = format!(
                "host=127.0.0.1 port={port} user={role} dbname=postgres password={IN_QUOTES} channel_binding=require {settings}"
            );
            assert!(matches!(connect(way, &string), Err(Error::ChannelBinding)), "{way:?} {role}");
        }
        let without = format!("host=127.0.0.1 port={port} user=scram dbname=postgres sslmode=disable");
        assert!(matches!(connect(way, &without), Err(Error::NoPassword { user }) if user == "scram"), "{way:?}");
        let line = format!("127.0.0.1:{port}:*:scram:{}\n", PASSWORD.replace('\\', r"\\").replace(':', r"\:"));
        let passfile = file("pgpass", &line);
        assert!(!connect(way, &format!("{without} passfile={}", passfile.display())).expect("the file has it"));
    }
}

#[test]
fn a_client_certificate_opens_the_door_that_asks_for_it() {
    let authority = Authority::new();
    let server = Postgres::configure(MAIN).tls(authority.server()).hba("hostssl all app 127.0.0.1/32 cert").start();
    let trusted_by_server = server.data().join("clients.crt");
    std::fs::write(&trusted_by_server, authority.pem()).expect("the data folder is writable");
    #[allow(clippy::permissions_set_readonly_false, reason = "the server reads it as another user")]
    std::fs::set_permissions(&trusted_by_server, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("ours");
    server.sql("ALTER SYSTEM SET ssl_ca_file = 'clients.crt'");
    server.sql("CREATE ROLE app LOGIN REPLICATION");
    server.restart();

    let Identity { certificate, key } = authority.client("app");
    let (certificate, plain) = (file("client.crt", &certificate), file("client.key", &key));
    let key = openssl::pkey::PKey::private_key_from_pem(key.as_bytes()).expect("it is a key");
    let encrypted = key.private_key_to_pem_pkcs8_passphrase(openssl::symm::Cipher::aes_256_cbc(), b"s3cr3t");
    let encrypted = String::from_utf8(encrypted.expect("it can be encrypted")).expect("PEM is text");
    let encrypted = file("encrypted.key", &encrypted);
    let open = file("open.key", "-----BEGIN PRIVATE KEY-----");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("ours");
    for way in WAYS {
        let string = |key: &PathBuf, more: &str| {
            format!(
                "host=127.0.0.1 port={} user=app dbname=postgres sslmode=require sslcert={} sslkey={} {more}",
                server.port(),
                certificate.display(),
                key.display()
            )
        };
        assert!(connect(way, &string(&plain, "")).expect("it is the client's"), "{way:?}");
        assert!(connect(way, &string(&encrypted, "sslpassword=s3cr3t")).expect("the key opens"), "{way:?}");
        for (key, more, expected) in [
            (&encrypted, "sslpassword=wrong-s3cr3t", "is sslpassword right?"),
            (&encrypted, "", "is sslpassword right?"),
            (&open, "", "can be read by others"),
            (&PathBuf::from("/nonexistent"), "", "cannot be read"),
        ] {
            let error = connect(way, &string(key, more)).expect_err(expected);
            assert!(error.to_string().contains(expected) && !chain(&error).contains("s3cr3t"), "{}", chain(&error));
        }
    }
}

#[test]
fn no_error_shows_a_password_or_a_piece_of_it() {
    let server = Postgres::configure(MAIN).hba("host all app 127.0.0.1/32 scram-sha-256").start();
    server.sql("CREATE ROLE app LOGIN REPLICATION PASSWORD 'another'");
    let port = server.port();
    for password in [format!("app:{IN_A_URL}"), format!("nobody:{IN_A_URL}")] {
        for rest in [
            format!("@127.0.0.1:{port}/postgres"),
            "@127.0.0.1:1/postgres".to_owned(),
            "@no-such-host.invalid/postgres".to_owned(),
            format!("@127.0.0.1:{port}/postgres?sslmode=require"),
            format!("@127.0.0.1:{port}/postgres?sslmode=verify-full&sslrootcert=/nonexistent"),
            format!("@127.0.0.1:{port},127.0.0.1:1/postgres?target_session_attrs=standby"),
            format!("@127.0.0.1:{port}/postgres?options=-c%20no_such.setting%3D1%20--nonsense"),
        ] {
            let string = format!("postgres://{password}{rest}");
            for way in WAYS {
                let error = connect(way, &string).expect_err(&rest);
                assert!(!chain(&error).contains("s3cr3t"), "{rest}: {}", chain(&error));
            }
            let at = parse(&string);
            assert!(!format!("{at} {at:?}").contains("s3cr3t"), "{at}");
        }
    }
    for string in [
        "postgres://app:s3cr3t@s3cr3t@h/d".to_owned(),
        "postgres://app:s3cr3t/s3cr3t@h/d".to_owned(),
        "postgres://app:12/s3cr3t@h/d".to_owned(),
        "postgres://app:s3cr3t%@h/d".to_owned(),
        format!("postgres://app:{IN_A_URL}@h:x/d"),
        format!("postgres://app:{IN_A_URL}@h/d?sslmode=x"),
        "host=h password=two s3cr3t".to_owned(),
        "host=h password=two s3cr3t=x".to_owned(),
        "host=h password='s3cr3t".to_owned(),
        format!("host=h password={IN_QUOTES} port=x"),
        format!("host=h password={IN_QUOTES} nonsense=1"),
    ] {
        let error: ConnInfoError = ConnInfo::parse(&string, |_| None).expect_err(&string);
        assert!(!chain(&error).contains("s3cr3t"), "{string}: {}", chain(&error));
    }
}

#[test]
fn each_refusal_of_a_login_names_its_remedy() {
    let server = Postgres::configure(MAIN)
        .hba("host all \"App\" 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\nhost all rejected 127.0.0.2/32 reject")
        .start();
    server.sql("CREATE ROLE \"App\" LOGIN REPLICATION PASSWORD 'x'; CREATE ROLE reader LOGIN; CREATE ROLE nobody");
    server.sql("CREATE DATABASE closed");
    server.sql("REVOKE CONNECT ON DATABASE closed FROM PUBLIC");
    let at = |rest: &str| format!("host=127.0.0.1 port={} sslmode=disable {rest}", server.port());
    for way in WAYS {
        for (rest, expected, words) in [
            ("user=App password=wrong dbname=postgres", Refusal::Password { user: "App".into() }, "role App"),
            ("user=absent dbname=postgres", Refusal::Login { user: "absent".into() }, "CREATE ROLE"),
            ("user=nobody dbname=postgres", Refusal::Login { user: "nobody".into() }, "ALTER ROLE \"nobody\" LOGIN"),
            (
                "user=reader dbname=absent",
                Refusal::Database { database: "absent".into() },
                "CREATE DATABASE \"absent\"",
            ),
            (
                "user=App password=x dbname=closed",
                Refusal::ConnectRight { user: "App".into(), database: "closed".into() },
                "GRANT CONNECT ON DATABASE \"closed\" TO \"App\"",
            ),
        ] {
            // The right to replicate is looked at before database and its rights.
            let rest =
                if way == Way::Replication { rest.replace("user=reader", "user=postgres") } else { rest.to_owned() };
            let error = connect(way, &at(&rest)).expect_err(&rest);
            assert_eq!(error.refusal(), Some(&expected), "{way:?} {rest}: {}", chain(&error));
            assert_eq!(error.kind(), ErrorKind::Permanent, "{rest}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    assert!(connect(Way::Sql, &at("user=reader dbname=postgres")).is_ok());
    let (refusal, kind) = refused(Way::Replication, &at("user=reader dbname=postgres"));
    assert_eq!((&refusal, kind), (&Refusal::ReplicationRight { user: "reader".into() }, ErrorKind::Permanent));
    assert!(refusal.to_string().contains("ALTER ROLE \"reader\" REPLICATION"), "{refusal}");

    let closed = Postgres::configure(MAIN).hba("host all postgres 127.0.0.1/32 trust").start();
    for way in WAYS {
        let (refusal, _) = refused(way, &format!("host=127.0.0.1 port={} user=other dbname=postgres", closed.port()));
        let expected = Refusal::HostBasedAuthentication { user: "other".into(), database: "postgres".into() };
        assert_eq!(refusal, expected, "{way:?}");
        assert!(refusal.to_string().contains("\"hostssl postgres other <address> scram-sha-256\""), "{refusal}");
    }
}

#[test]
fn a_full_server_is_waited_for_and_says_which_limit_it_is() {
    let server = Postgres::start(MAIN, &["max_wal_senders=1", "max_connections=6", "superuser_reserved_connections=0"]);
    server.sql("CREATE ROLE app LOGIN REPLICATION");
    let at = parse(&server.url("postgres").replace("postgres@", "app@"));
    block_on(async {
        let first = Replication::connect(&at).await.expect("there is room for one");
        let error = Replication::connect(&at).await.err().expect("and not for two");
        assert_eq!((error.refusal(), error.kind()), (Some(&Refusal::WalSenders), ErrorKind::Transient), "{error}");
        assert!(error.to_string().contains("raise max_wal_senders"), "{error}");
        first.close().await;
        let mut sessions = Vec::new();
        let error = loop {
            match sql::connect(&at).await {
                Ok(session) => sessions.push(session),
                Err(error) => break error,
            }
        };
        assert_eq!((error.refusal(), error.kind()), (Some(&Refusal::Connections), ErrorKind::Transient), "{error}");
    });
}

#[test]
fn a_pooler_in_between_is_recognised_whether_it_refuses_or_swallows_replication() {
    let server = Postgres::shared(MAIN);
    for (pooler, sql) in
        [(Pooler::start(server, Strictness::Refuses), false), (Pooler::start(server, Strictness::Swallows), true)]
    {
        let string = format!("host=127.0.0.1 port={} user=postgres dbname=postgres sslmode=disable", pooler.port);
        let (refusal, kind) = refused(Way::Replication, &string);
        assert_eq!((&refusal, kind), (&Refusal::Pooler, ErrorKind::Permanent));
        assert!(refusal.to_string().contains("use a direct address for replication"), "{refusal}");
        assert_eq!(connect(Way::Sql, &string).is_ok(), sql);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Refuses,
    Swallows,
}

/// Passes connections on as a pooler does: knows nothing of replication.
struct Pooler {
    port: u16,
}

impl Pooler {
    fn start(server: &Postgres, strictness: Strictness) -> Pooler {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let pooler = Pooler { port: listener.local_addr().expect("it is bound").port() };
        let target = server.port();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                thread::spawn(move || Pooler::serve(client, target, strictness));
            }
        });
        pooler
    }

    fn serve(mut client: TcpStream, target: u16, strictness: Strictness) -> std::io::Result<()> {
        let mut length = [0; 4];
        client.read_exact(&mut length)?;
        let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
        client.read_exact(&mut startup)?;
        if strictness == Strictness::Refuses {
            let fields = b"SFATAL\0C08P01\0Munsupported startup parameter: replication\0\0";
            let length = (fields.len() as u32 + 4).to_be_bytes();
            return client.write_all(&[b"E", &length[..], fields].concat());
        }
        let text = b"replication\0database\0";
        if let Some(at) = startup.windows(text.len()).position(|window| window == text) {
            startup.drain(at..at + text.len());
        }
        let mut server = TcpStream::connect(("127.0.0.1", target))?;
        server.write_all(&[&(startup.len() as u32 + 4).to_be_bytes()[..], &startup].concat())?;
        let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
        let back = thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
        std::io::copy(&mut client, &mut server)?;
        server.shutdown(Shutdown::Both)?;
        back.join().expect("it only copies").map(drop)
    }
}

#[test]
fn a_list_of_hosts_leads_to_the_first_that_will_do() {
    let normal = Postgres::shared(MAIN);
    let read_only = Postgres::start(MAIN, &["default_transaction_read_only=on"]);
    // Takes connections and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let mute = mute.local_addr().map(|address| (mute, address.port())).expect("it is bound");
    let string = |ports: &[u16], rest: &str| {
        let hosts = vec!["127.0.0.1"; ports.len()].join(",");
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        format!("host={hosts} port={} user=postgres dbname=postgres sslmode=disable {rest}", ports.join(","))
    };
    let reached = |string: &str| {
        block_on(async {
            let mut connection = Replication::connect(&parse(string)).await?;
            let rows = connection.query("SHOW port").await?;
            Ok::<u16, Error>(rows[0][0].as_deref().and_then(|port| port.parse().ok()).expect("a port"))
        })
    };
    let (n, r) = (normal.port(), read_only.port());
    for (ports, wanted, expected) in [
        (vec![1, r, n], "any", Some(r)),
        (vec![1, r, n], "read-write", Some(n)),
        (vec![n, r], "read-only", Some(r)),
        (vec![1, r], "primary", Some(r)),
        (vec![n, r], "standby", None),
        (vec![1, n], "prefer-standby", Some(n)),
        (vec![r], "read-write", None),
    ] {
        let string = string(&ports, &format!("target_session_attrs={wanted}"));
        let port = reached(&string);
        assert_eq!(port.as_ref().ok().copied(), expected, "{string}: {port:?}");
        assert_eq!(connect(Way::Sql, &string).is_ok(), expected.is_some(), "{string}");
        if let Err(error) = port {
            assert_eq!(error.kind(), ErrorKind::Transient, "it may be promoted: {error}");
        }
    }
    let begun = Instant::now();
    assert_eq!(reached(&string(&[mute.1, n], "connect_timeout=1")).expect("the second answers"), n);
    assert!(begun.elapsed() >= Duration::from_secs(1) && begun.elapsed() < WITHIN / 2);
    let error = connect(Way::Sql, &string(&[mute.1, 1], "connect_timeout=1")).expect_err("nobody answers");
    let text = error.to_string();
    assert!(text.contains("connect_timeout") && text.contains("refused"), "each host has its reason: {text}");
}

#[test]
fn the_stream_s_settings_do_not_depend_on_role_or_database() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let name = &database.name;
        let odd = [
            ("datestyle", "'German, DMY'"),
            ("intervalstyle", "iso_8601"),
            ("bytea_output", "escape"),
            ("extra_float_digits", "-15"),
            ("timezone", "'Asia/Tokyo'"),
            ("client_encoding", "'LATIN1'"),
            ("statement_timeout", "'1h'"),
            ("idle_session_timeout", "'1h'"),
        ];
        for (setting, value) in odd {
            database.sql(&format!("ALTER DATABASE {name} SET {setting} = {value}"));
        }
        let values = block_on(async {
            let mut connection = Replication::connect(&parse(&database.url())).await?;
            assert_eq!(connection.server_version() / 10_000, u32::from(version));
            let identity = connection.identify_system().await?;
            assert_eq!((&identity.database, identity.timeline), (name, 1));
            let mut values = Vec::new();
            for (setting, _) in odd {
                values.push(connection.query(&format!("SHOW {setting}")).await?.remove(0).remove(0).expect("a value"));
            }
            Ok::<_, Error>(values)
        });
        let expected = ["ISO, MDY", "postgres", "hex", "3", "UTC", "UTF8", "0", "0"];
        assert_eq!(values.expect("it connects"), expected, "PostgreSQL {version}");
    }
}

/// Starts a stream and confirms what the server says it has sent; gives the error that ends it.
fn first_trouble(database: &Database<'_>, slot: &str, publication: &str) -> Error {
    block_on(async {
        let mut stream = match start(database, slot, publication).await {
            Ok(stream) => stream,
            Err(error) => return error,
        };
        loop {
            match stream.next_frame() {
                Ok(Some(frame)) => {
                    // A keepalive: its position comes back as written, flushed and applied. A stopping server waits for it.
                    if let (b'k', Some(position)) = (frame[0], frame.get(1..9).map(<[u8]>::to_owned)) {
                        stream.send(&[b"r", &position.repeat(3)[..], &[0; 9]].concat());
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => return error,
            }
            if let Err(error) = stream.progress(true).await {
                return error;
            }
        }
    })
}

async fn start(database: &Database<'_>, slot: &str, publication: &str) -> Result<Stream, Error> {
    let connection = Replication::connect(&parse(&database.url())).await?;
    let request = StartRequest { slot, publications: &[publication], start: walpost::pipeline::Lsn(0), messages: true };
    connection.start(&request).await
}

#[test]
fn a_slot_that_cannot_be_streamed_from_says_why() {
    for version in VERSIONS {
        let server = Postgres::shared(version);
        let (database, other) = (server.database(), server.database());
        let name = &database.name;
        let slot = |suffix: &str| format!("{name}_{suffix}");
        database.sql("CREATE PUBLICATION p");
        database.sql(&format!("SELECT pg_create_logical_replication_slot('{}', 'pgoutput')", slot("good")));
        let physical = slot("physical");
        database.sql(&format!("SELECT pg_create_physical_replication_slot('{physical}')"));

        let error = first_trouble(&database, "absent", "p");
        assert_eq!(error.refusal(), Some(&Refusal::SlotMissing { slot: "absent".into() }), "{version}");
        let error = first_trouble(&database, &physical, "p");
        let expected = Refusal::SlotUnsuitable { slot: physical.clone(), what: "is a physical one".into() };
        assert_eq!(error.refusal(), Some(&expected), "{version}: {}", chain(&error));
        database.sql(&format!("SELECT pg_drop_replication_slot('{physical}')"));
        let error = first_trouble(&other, &slot("good"), "p");
        assert!(error.to_string().contains("belongs to another database"), "{version}: {}", chain(&error));

        block_on(async {
            let holder = start(&database, &slot("good"), "p").await.expect("it is free");
            let error = start(&database, &slot("good"), "p").await.err().expect("it is held");
            let ErrorKind::SlotInUse { pid: Some(pid) } = error.kind() else { panic!("{version}: {}", chain(&error)) };
            assert!(pid > 0 && error.to_string().contains(&pid.to_string()), "{error}");
            holder.finish().await.expect("the server says goodbye");
        });
        block_on(async { start(&database, &slot("good"), "p").await.expect("it is free again").finish().await })
            .expect("the server says goodbye");
    }
}

#[test]
fn a_publication_that_is_younger_than_the_slot_is_never_passed_over() {
    for version in VERSIONS {
        let database = Postgres::shared(version).database();
        let slot = format!("{}_s", database.name);
        database.sql("CREATE TABLE t (id int PRIMARY KEY)");
        database.sql(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
        database.sql("INSERT INTO t VALUES (1)");
        database.sql("CREATE PUBLICATION \"Young\" FOR TABLE t");
        let error = first_trouble(&database, &slot, "Young");
        let expected = Refusal::PublicationMissing { publications: "Young".into(), slot: slot.clone() };
        assert_eq!(
            (error.refusal(), error.kind()),
            (Some(&expected), ErrorKind::Permanent),
            "{version}: {}",
            chain(&error)
        );
        assert!(error.to_string().contains("pg_replication_slot_advance"), "{error}");
    }
}

#[test]
fn wal_level_and_invalidated_slots_have_their_own_words() {
    let server = Postgres::start(
        MAIN,
        &["max_slot_wal_keep_size=1MB", "wal_keep_size=0", "max_wal_size=32MB", "min_wal_size=32MB"],
    );
    let database = server.database();
    database.sql("CREATE PUBLICATION p; CREATE TABLE t (v text)");
    database.sql("SELECT pg_create_logical_replication_slot('lost', 'pgoutput')");
    let session = database.session();
    eventually(WITHIN, "the slot is lost", || {
        session.run("INSERT INTO t SELECT repeat('x', 1000) FROM generate_series(1, 10000)");
        session.run("SELECT pg_switch_wal(); CHECKPOINT");
        let status = session.value("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'lost'");
        (status.as_deref() == Some("lost")).then_some(())
    });
    let error = first_trouble(&database, "lost", "p");
    let expected = Refusal::SlotInvalidated { slot: "lost".into(), reason: Some("wal_removed".into()) };
    assert_eq!((error.refusal(), error.kind()), (Some(&expected), ErrorKind::Permanent), "{}", chain(&error));

    database.sql("SELECT pg_drop_replication_slot('lost')");
    server.sql("ALTER SYSTEM SET wal_level = replica");
    server.restart();
    let error = first_trouble(&database, "any", "p");
    assert_eq!(error.refusal(), Some(&Refusal::WalLevel), "{}", chain(&error));
    let create = block_on(async {
        let mut connection = Replication::connect(&parse(&database.url())).await?;
        connection.query("CREATE_REPLICATION_SLOT any LOGICAL pgoutput").await
    });
    assert_eq!(create.expect_err("it needs logical").refusal(), Some(&Refusal::WalLevel));
}

#[test]
fn a_session_that_the_server_ends_is_told_from_one_that_fails() {
    let server = Postgres::start(MAIN, &[]);
    let database = server.database();
    database.sql("CREATE PUBLICATION p");
    database.sql("SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
    let ended = |by: &(dyn Fn() + Sync)| {
        thread::scope(|scope| {
            let stream = scope.spawn(|| first_trouble(&database, "s", "p"));
            eventually(WITHIN, "it streams", || {
                let active = "SELECT active FROM pg_replication_slots WHERE slot_name = 's'";
                (database.session().value(active).as_deref() == Some("t")).then_some(())
            });
            by();
            stream.join().expect("it ends with an error")
        })
    };
    let error = ended(&|| database.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"));
    assert_eq!((error.refusal(), error.kind()), (Some(&Refusal::Terminated), ErrorKind::ServerStopping));
    let error = ended(&|| server.crash());
    assert_eq!(error.kind(), ErrorKind::Transient, "{}", chain(&error));
    server.start_again();
    let error = ended(&|| {
        server.stop(Mode::Fast, WITHIN);
    });
    assert_eq!(error.kind(), ErrorKind::ServerStopping, "{}", chain(&error));
    for way in WAYS {
        let error = connect(way, &database.url()).expect_err("it is down");
        assert!(matches!(error, Error::Connect { .. }) && error.kind() == ErrorKind::Transient, "{error}");
    }
    server.start_again();
}

#[test]
fn a_value_that_utf8_cannot_hold_stops_the_stream_for_good() {
    let database = Postgres::shared(MAIN).database_with("ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0");
    let slot = format!("{}_s", database.name);
    database.sql("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t");
    database.sql(&format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')"));
    database.sql("INSERT INTO t VALUES (1, convert_from('\\xfcfe', 'EUC_JP'))");
    let error = first_trouble(&database, &slot, "p");
    assert_eq!(
        (error.refusal(), error.kind()),
        (Some(&Refusal::Unconvertible), ErrorKind::Permanent),
        "{}",
        chain(&error)
    );
    assert!(chain(&error).contains("0xfc 0xfe"), "{}", chain(&error));
}
