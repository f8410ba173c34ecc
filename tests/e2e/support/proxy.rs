//! A TCP link that breaks on command, by a reset or by swallowing everything without a word, or that is slow.

use std::{io, net::TcpListener, thread, time::Duration};

use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime::Builder,
    sync::{oneshot, watch},
    task::JoinSet,
};

use super::scratch;

/// Forwards connections to a loopback port; dropping it ends them.
pub struct Proxy {
    port: u16,
    link: watch::Sender<Link>,
    _until_dropped: oneshot::Sender<()>,
}

/// Connections remember the counts of their birth.
#[derive(Clone, Copy, Debug)]
struct Link {
    target: u16,
    latency: Duration,
    resets: u32,
    losses: u32,
    holed: bool,
}

impl Proxy {
    pub fn to(target: u16) -> Proxy {
        Proxy::slow(target, Duration::ZERO)
    }

    /// Whatever goes either way arrives so much later.
    pub fn slow(target: u16, latency: Duration) -> Proxy {
        let port = scratch::port();
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        listener.set_nonblocking(true).expect("a listener can be");
        let (link, state) = watch::channel(Link { target, latency, resets: 0, losses: 0, holed: false });
        let (until_dropped, dropped) = oneshot::channel();
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, state) => {}
                    _ = dropped => {}
                }
            });
        });
        Proxy { port, link, _until_dropped: until_dropped }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// New connections go there.
    #[allow(dead_code, reason = "the campaign of faults uses it")]
    pub fn lead_to(&self, target: u16) {
        self.link.send_modify(|link| link.target = target);
    }

    /// What is carried from now on arrives so much later, on old connections too.
    #[allow(dead_code, reason = "the campaign of faults uses it")]
    pub fn slow_down(&self, latency: Duration) {
        self.link.send_modify(|link| link.latency = latency);
    }

    /// Both ends of every connection get a reset.
    pub fn reset(&self) {
        self.link.send_modify(|link| link.resets += 1);
    }

    /// From here on nothing comes through, and nobody is told: no end, no reset. New connections are taken and lead
    /// nowhere until the link is whole again.
    pub fn swallow(&self) {
        self.link.send_modify(|link| {
            link.losses += 1;
            link.holed = true;
        });
    }

    /// The link is whole for new connections; those that it swallowed stay lost.
    pub fn heal(&self) {
        self.link.send_modify(|link| link.holed = false);
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<Link>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.expect("a loopback listener accepts");
        connections.spawn(carry(client, state.clone()));
    }
}

async fn carry(mut client: TcpStream, mut state: watch::Receiver<Link>) {
    const ALIVE: &str = "the proxy outlives its connections";
    let birth = *state.wait_for(|link| !link.holed).await.expect(ALIVE);
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", birth.target)).await else { return };
    for end in [&client, &server] {
        end.set_nodelay(true).expect("it is TCP");
    }
    let now = state.clone();
    // The link first: what is written after it broke is not carried.
    tokio::select! {
        biased;
        _ = state.wait_for(|link| link.resets > birth.resets || link.losses > birth.losses) => {}
        _ = copy(&mut client, &mut server, &now) => return,
    }
    if state.borrow().losses > birth.losses {
        // Both sockets stay open, unread.
        std::future::pending::<()>().await;
    }
    for end in [&client, &server] {
        SockRef::from(end).set_linger(Some(Duration::ZERO)).expect("it is TCP");
    }
}

/// Both ways, until both have ended.
async fn copy(client: &mut TcpStream, server: &mut TcpStream, state: &watch::Receiver<Link>) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    let one_way = async |mut from: ReadHalf<'_>, mut to: WriteHalf<'_>| {
        let mut piece = vec![0; 64 * 1024];
        loop {
            let read = from.read(&mut piece).await?;
            let latency = state.borrow().latency;
            if !latency.is_zero() {
                tokio::time::sleep(latency).await;
            }
            if read == 0 {
                return to.shutdown().await;
            }
            to.write_all(&piece[..read]).await?;
        }
    };
    tokio::try_join!(one_way(from_client, to_server), one_way(from_server, to_client)).map(|_| ())
}

mod tests {
    use std::{
        io::{ErrorKind, Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn a_link_carries_resets_and_swallows() {
        let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let proxy = Proxy::to(server.local_addr().expect("it is bound").port());
        let connect = || {
            let client = TcpStream::connect(("127.0.0.1", proxy.port())).expect("the proxy listens");
            client.set_read_timeout(Some(Duration::from_millis(300))).expect("it is not zero");
            client
        };
        let mut word = [0; 4];

        let mut client = connect();
        let (mut peer, _) = server.accept().expect("the proxy connects");
        client.write_all(b"ping").expect("it is connected");
        peer.read_exact(&mut word).expect("it is carried");
        proxy.reset();
        let broken = peer.read_exact(&mut word).expect_err("it is broken");
        assert_eq!(broken.kind(), ErrorKind::ConnectionReset);

        let mut client = connect();
        let (mut peer, _) = server.accept().expect("the proxy connects");
        peer.write_all(b"pong").expect("it is connected");
        client.read_exact(&mut word).expect("it is carried");
        proxy.swallow();
        peer.write_all(b"lost").expect("nobody told this end");
        assert_eq!(client.read_exact(&mut word).expect_err("nothing comes").kind(), ErrorKind::WouldBlock);
        let mut late = connect();
        late.write_all(b"late").expect("the proxy took it");
        proxy.heal();
        let (mut peer, _) = server.accept().expect("the proxy connects");
        peer.read_exact(&mut word).expect("it is carried");
        assert_eq!(&word, b"late");
        assert_eq!(client.read_exact(&mut word).expect_err("it stays lost").kind(), ErrorKind::WouldBlock);
    }
}
