//! Logging in against a scripted server.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    task::JoinHandle,
};

use super::*;
use crate::postgres::{ErrorKind, socket::Socket};

/// Starts a login; gives its end and the server's side, after the startup message.
async fn login(string: &str, password: Option<&str>) -> (JoinHandle<Result<Reports, Error>>, UnixStream, String) {
    let (ours, mut server) = UnixStream::pair().unwrap();
    let at = ConnInfo::parse(string, |_| None).unwrap();
    let password = password.map(SecretString::from);
    let task = tokio::spawn(async move { log_in(&mut Wire::new(Socket::Unix(ours)), &at, password).await });
    let mut length = [0; 4];
    server.read_exact(&mut length).await.unwrap();
    let mut startup = vec![0; u32::from_be_bytes(length) as usize - 4];
    server.read_exact(&mut startup).await.unwrap();
    assert_eq!(startup[..4], 196_608_u32.to_be_bytes());
    (task, server, String::from_utf8(startup[4..].to_vec()).unwrap())
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

fn request(code: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes()[..], rest].concat())
}

fn welcome() -> Vec<u8> {
    [
        request(0, b""),
        message(b'v', &[0; 8]),
        message(b'S', b"server_version\x0016.1\0"),
        message(b'N', b"SNOTICE\0C00000\0Mhello\0\0"),
        message(b'K', &[0, 0, 0, 9, 1, 2, 3, 4]),
        message(b'Z', b"I"),
    ]
    .concat()
}

async fn answer(server: &mut UnixStream) -> (u8, Vec<u8>) {
    let mut header = [0; 5];
    server.read_exact(&mut header).await.unwrap();
    let mut body = vec![0; u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4];
    server.read_exact(&mut body).await.unwrap();
    (header[0], body)
}

#[tokio::test]
async fn the_session_is_set_up_so_that_values_have_one_text() {
    let (task, mut server, startup) = login("user=u dbname=d application_name=a options='-c x=y'", None).await;
    let words: Vec<&str> = startup.split('\0').collect();
    let value = |name| words.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    for (name, expected) in [
        ("user", "u"),
        ("database", "d"),
        ("replication", "database"),
        ("application_name", "a"),
        ("options", "-c x=y"),
        ("client_encoding", "UTF8"),
        ("TimeZone", "UTC"),
        ("IntervalStyle", "postgres"),
        ("bytea_output", "hex"),
    ] {
        assert_eq!(value(name), Some(expected), "{name}");
    }
    server.write_all(&welcome()).await.unwrap();
    let reports = task.await.unwrap().unwrap();
    assert_eq!((reports.backend_pid, &*reports.parameters["server_version"]), (9, "16.1"));
}

#[tokio::test]
async fn passwords_are_sent_as_they_are_asked_for() {
    let (task, mut server, _) = login("user=u", Some("secret")).await;
    server.write_all(&request(3, b"")).await.unwrap();
    assert_eq!(answer(&mut server).await, (b'p', b"secret\0".to_vec()));
    server.write_all(&welcome()).await.unwrap();
    task.await.unwrap().unwrap();

    let (task, mut server, _) = login("user=md5_user", Some("password")).await;
    server.write_all(&request(5, &[0x2a, 0x3d, 0x8f, 0xe0])).await.unwrap();
    assert_eq!(answer(&mut server).await, (b'p', b"md562af4dd09bbb41884907a838a3233294\0".to_vec()));
    server.write_all(&welcome()).await.unwrap();
    task.await.unwrap().unwrap();

    let (task, mut server, _) = login("user=u", None).await;
    server.write_all(&request(3, b"")).await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(Error::NoPassword { user }) if user == "u"));
}

#[tokio::test]
async fn a_server_that_does_not_prove_itself_is_not_trusted() {
    let (task, mut server, _) = login("user=u", Some("secret")).await;
    server.write_all(&request(10, b"SCRAM-SHA-256\0\0")).await.unwrap();
    let (tag, first) = answer(&mut server).await;
    let first = String::from_utf8(first).unwrap();
    assert!(tag == b'p' && first.starts_with("SCRAM-SHA-256\0") && first.contains("n,,n=,r="), "{first:?}");
    let nonce = first.rsplit("r=").next().unwrap();
    server.write_all(&request(11, format!("r={nonce}x,s=c2FsdA==,i=4096").as_bytes())).await.unwrap();
    let (_, proof) = answer(&mut server).await;
    assert!(!String::from_utf8(proof).unwrap().contains("secret"));
    let false_proof = request(12, b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    server.write_all(&[false_proof, welcome()].concat()).await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(Error::Scram { .. })));

    // Nor one that lets us in half-way.
    let (task, mut server, _) = login("user=u", Some("secret")).await;
    server.write_all(&request(10, b"SCRAM-SHA-256\0\0")).await.unwrap();
    answer(&mut server).await;
    server.write_all(&welcome()).await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(Error::Protocol { .. })));
}

#[tokio::test]
async fn required_channel_binding_accepts_nothing_less() {
    for asked in [request(0, b""), request(3, b""), request(5, &[0; 4]), request(10, b"SCRAM-SHA-256\0\0")] {
        let (task, mut server, _) = login("user=u channel_binding=require", Some("secret")).await;
        server.write_all(&asked).await.unwrap();
        assert!(matches!(task.await.unwrap(), Err(Error::ChannelBinding)), "{asked:?}");
        let mut sent = Vec::new();
        server.read_to_end(&mut sent).await.unwrap();
        assert!(sent.is_empty(), "{sent:?}");
    }
}

#[tokio::test]
async fn refusals_and_foreign_methods_are_named() {
    let (task, mut server, _) = login("user=u", None).await;
    server.write_all(&request(7, b"")).await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(Error::AuthenticationMethod { method: "GSSAPI" })));

    let (task, mut server, _) = login("user=u dbname=d", None).await;
    server.write_all(&message(b'E', b"SFATAL\0C3D000\0Mno\0\0")).await.unwrap();
    let error = task.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.sqlstate()), (ErrorKind::Permanent, Some("3D000")));
    assert!(error.to_string().contains("database d does not exist"), "{error}");

    let (task, mut server, _) = login("user=u", None).await;
    server.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(Error::Protocol { .. })));
}
