//! The buffers against a peer that sends in pieces, sends too much, or goes.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::*;

fn pair() -> (Wire, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (Wire::new(Socket::Unix(ours)), theirs)
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
}

#[tokio::test]
async fn messages_are_whole_however_they_arrive() {
    let (mut wire, mut server) = pair();
    let bodies: Vec<Vec<u8>> = (0..100_usize).map(|i| vec![i as u8; i * 37 % 4000]).collect();
    let sent: Vec<u8> = bodies.iter().flat_map(|body| message(b'd', body)).collect();
    let sending = tokio::spawn(async move {
        for piece in sent.chunks(7) {
            server.write_all(piece).await.unwrap();
        }
    });
    for expected in &bodies {
        let (tag, body) = wire.message().await.unwrap();
        assert_eq!((tag, wire.body(body)), (b'd', &expected[..]));
    }
    sending.await.unwrap();
    assert!(matches!(wire.message().await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_large_message_grows_the_buffer_with_what_arrives_and_gives_it_back() {
    let (mut wire, mut server) = pair();
    let large = vec![7; 3_000_000];
    let sent = [message(b'd', &large), message(b'd', b"after"), message(b'd', b"last")].concat();
    let sending = tokio::spawn(async move {
        server.write_all(&sent).await.unwrap();
        server
    });
    let (_, body) = wire.message().await.unwrap();
    assert!(wire.body(body) == large);
    for expected in [&b"after"[..], b"last"] {
        let (_, body) = wire.message().await.unwrap();
        assert_eq!(wire.body(body), expected);
    }
    let mut server = sending.await.unwrap();
    server.write_all(&message(b'd', b"x")).await.unwrap();
    wire.message().await.unwrap();
    assert_eq!(wire.input.bytes.len(), INPUT_BYTES);
}

#[tokio::test]
async fn a_claimed_length_alone_costs_no_memory() {
    let (mut wire, mut server) = pair();
    server.write_all(&[b'd', 0x3f, 0xff, 0xff, 0xff, 0, 0]).await.unwrap();
    wire.progress(true).await.unwrap();
    assert!(wire.next().unwrap().is_none());
    wire.input.make_room().unwrap();
    assert_eq!(wire.input.bytes.len(), INPUT_BYTES);
}

#[tokio::test]
async fn lengths_that_cannot_be_are_errors() {
    for header in [[b'd', 0, 0, 0, 3], [b'd', 0xff, 0xff, 0xff, 0xff], [b'd', 0x7f, 0xff, 0xff, 0xff]] {
        let (mut wire, mut server) = pair();
        server.write_all(&header).await.unwrap();
        wire.progress(true).await.unwrap();
        assert!(matches!(wire.next(), Err(Error::Protocol { .. })), "{header:?}");
    }
}

#[tokio::test]
async fn what_was_sent_before_the_end_is_read_before_the_end_shows() {
    let (mut wire, mut server) = pair();
    server.write_all(&message(b'E', b"last words\0")).await.unwrap();
    drop(server);
    // Writing fails from now on; the words come first all the same.
    wire.queue(b"too late");
    let (tag, body) = wire.message().await.unwrap();
    assert_eq!((tag, wire.body(body)), (b'E', &b"last words\0"[..]));
    assert!(wire.message().await.is_err());
}

#[tokio::test]
async fn without_reading_output_is_written_and_nothing_is_read() {
    let (mut wire, mut server) = pair();
    server.write_all(&message(b'd', b"unread")).await.unwrap();
    // More than the kernel takes at once, so that it is written in several turns.
    let body = vec![1; 1_000_000];
    wire.queue_copy_data(&body);
    assert!(!wire.output.bytes.is_empty());
    let mut received = vec![0; body.len() + 5];
    tokio::select! {
        result = wire.progress(false) => panic!("ended: {result:?}"),
        read = server.read_exact(&mut received) => { read.unwrap(); }
    }
    assert_eq!(received, message(b'd', &body));
    wire.flush().await.unwrap();
    assert!(wire.next().unwrap().is_none());
    assert!(wire.progress(true).await.unwrap() > 0);
    assert!(wire.next().unwrap().is_some());
}
