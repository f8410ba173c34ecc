//! The stream against a scripted walsender.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::*;
use crate::postgres::{ErrorKind, socket::Socket};

fn pair() -> (Stream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Stream::new(Wire::new(Socket::Unix(ours)), "s".into(), vec!["pub".into()]), theirs)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

fn fields(sqlstate: &str, routine: &str) -> Vec<u8> {
    format!("SX\0C{sqlstate}\0Mwords about pub\0R{routine}\0\0").into_bytes()
}

#[tokio::test]
async fn frames_come_through_reports_and_notices() {
    let (mut stream, mut server) = pair();
    let sent = [
        message(b'S', b"TimeZone\0UTC\0"),
        message(b'd', b"one"),
        message(b'N', &fields("00000", "f")),
        message(b'd', b"two"),
        message(b'd', b""),
    ];
    server.write_all(&sent.concat()).await.unwrap();
    stream.progress(true).await.unwrap();
    for expected in [&b"one"[..], b"two", b""] {
        assert_eq!(stream.next_frame().unwrap().unwrap(), expected);
    }
    assert!(stream.next_frame().unwrap().is_none());
}

#[tokio::test]
async fn the_end_of_the_copy_and_its_errors_are_told_apart() {
    for (sent, expected) in [
        (message(b'C', b"COPY 0\0"), ErrorKind::ServerStopping),
        (message(b'c', b""), ErrorKind::ServerStopping),
        (message(b'E', &fields("57P01", "ProcessInterrupts")), ErrorKind::ServerStopping),
        (message(b'E', &fields("42704", "get_publication_oid")), ErrorKind::Permanent),
        (message(b'N', &fields("55000", "LoadPublications")), ErrorKind::Permanent),
        (message(b'E', &fields("53200", "AllocSetAlloc")), ErrorKind::Transient),
        (message(b'Q', b""), ErrorKind::Permanent),
    ] {
        let (mut stream, mut server) = pair();
        server.write_all(&sent).await.unwrap();
        stream.progress(true).await.unwrap();
        assert_eq!(stream.next_frame().unwrap_err().kind(), expected, "{sent:?}");
    }
}

#[tokio::test]
async fn finishing_sends_what_is_queued_and_waits_for_the_server_s_end() {
    let (mut stream, mut server) = pair();
    stream.send(b"status");
    let finishing = tokio::spawn(stream.finish());
    let expected = [message(b'd', b"status"), message(b'c', b"")].concat();
    let mut received = vec![0; expected.len()];
    server.read_exact(&mut received).await.unwrap();
    assert_eq!(received, expected);
    let sent = [message(b'd', b"late"), message(b'c', b""), message(b'C', b"COPY 0\0"), message(b'Z', b"I")].concat();
    server.write_all(&sent).await.unwrap();
    finishing.await.unwrap().unwrap();
    let mut goodbye = Vec::new();
    server.read_to_end(&mut goodbye).await.unwrap();
    assert_eq!(goodbye, message(b'X', b""));
}

#[tokio::test]
async fn a_server_that_closes_before_its_end_of_the_copy_has_not_finished() {
    let (stream, mut server) = pair();
    let finishing = tokio::spawn(stream.finish());
    let mut done = [0; 5];
    server.read_exact(&mut done).await.unwrap();
    drop(server);
    assert!(finishing.await.unwrap().is_err());

    let (stream, mut server) = pair();
    let finishing = tokio::spawn(stream.finish());
    server.read_exact(&mut done).await.unwrap();
    server.write_all(&message(b'C', b"COPY 0\0")).await.unwrap();
    drop(server);
    finishing.await.unwrap().unwrap();
}
