//! The byte stream to the server: TCP, Unix or TLS over TCP, made the same way for both kinds of connection.

use std::{
    ffi::OsString,
    fmt, io,
    net::SocketAddr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_openssl::SslStream;
use tokio_postgres::tls;

use super::{
    conninfo::{ConnInfo, Host, Target},
    error::Error,
    tls as rules,
};

/// One address of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host by the name that was given, and where that name led.
    Tcp {
        /// As given.
        name: String,
        /// As looked up.
        address: SocketAddr,
    },
    /// The path of a socket; `@` begins an abstract name.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { name, address } if address.ip().to_string() == *name => write!(f, "{address}"),
            Address::Tcp { name, address } => write!(f, "{name}:{} ({})", address.port(), address.ip()),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// All addresses of a host, in the order of the name service.
pub(super) async fn addresses(target: &Target) -> Result<Vec<Address>, Error> {
    let (name, address) = match &target.host {
        Host::Unix(directory) => {
            return Ok(vec![Address::Unix(directory.join(format!(".s.PGSQL.{}", target.port)))]);
        }
        Host::Tcp { name, address } => (name, address),
    };
    if let Some(ip) = address {
        return Ok(vec![Address::Tcp { name: name.clone(), address: SocketAddr::new(*ip, target.port) }]);
    }
    let found = tokio::net::lookup_host((&**name, target.port))
        .await
        .map_err(|source| Error::Resolve { host: name.clone(), source })?;
    Ok(found.map(|address| Address::Tcp { name: name.clone(), address }).collect())
}

/// A connected byte stream.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Buffered below OpenSSL, which reads each record in two pieces.
    Tls(Box<SslStream<BufReader<TcpStream>>>),
}

impl Socket {
    /// Connects without TLS.
    pub(super) async fn connect(at: &ConnInfo, address: &Address) -> Result<Socket, Error> {
        let failed = |source| Error::Connect { at: address.clone(), source };
        match address {
            Address::Unix(path) => {
                let path = match path.as_os_str().as_bytes() {
                    [b'@', name @ ..] => PathBuf::from(OsString::from_vec([b"\0", name].concat())),
                    _ => path.clone(),
                };
                UnixStream::connect(path).await.map(Socket::Unix).map_err(failed)
            }
            Address::Tcp { address, .. } => {
                let stream = TcpStream::connect(address).await.map_err(failed)?;
                watch(at, &stream).map_err(failed)?;
                Ok(Socket::Tcp(stream))
            }
        }
    }

    /// What SCRAM binds to: the hash of the server's certificate. None without TLS.
    pub(super) fn server_end_point(&self) -> Option<Vec<u8>> {
        match self {
            Socket::Tls(stream) => rules::server_end_point(stream.ssl()),
            Socket::Tcp(_) | Socket::Unix(_) => None,
        }
    }
}

/// Lets a dead peer be noticed, and small messages go out at once.
fn watch(at: &ConnInfo, stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = at.keepalive {
        let probes = TcpKeepalive::new().with_time(keepalive.idle).with_interval(keepalive.interval);
        socket.set_tcp_keepalive(&probes.with_retries(keepalive.count))?;
    }
    socket.set_tcp_user_timeout(at.tcp_user_timeout)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Lets tokio-postgres bind SCRAM to the TLS that was made here.
impl tls::TlsStream for Socket {
    fn channel_binding(&self) -> tls::ChannelBinding {
        self.server_end_point().map_or_else(tls::ChannelBinding::none, tls::ChannelBinding::tls_server_end_point)
    }
}
