//! Who is called, how, and what a refusal means.

use std::{
    fmt, fs, io,
    net::Shutdown,
    os::fd::AsFd,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_compat::Compat;
use lapin::{
    AsyncTcpStream, Channel, Connection, ConnectionProperties, Error, ErrorKind, options::ConfirmSelectOptions,
    protocol::AMQPError, runtime, uri::AMQPUri,
};
use openssl::{
    error::ErrorStack,
    ssl::{SslConnector, SslFiletype, SslMethod},
    x509::{X509, store::X509StoreBuilder},
};
use socket2::Socket;
use tokio::{net::TcpStream, time::timeout};

use super::publisher::Verdict;
use crate::config::{IdentityFiles, RabbitMq};

/// How long a connection may take to be made, from the name of the host to the open channel.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
/// The broker ends all connections, as it does when it stops.
const CONNECTION_FORCED: u16 = 320;

/// A broker that can be called.
pub struct Broker {
    config: RabbitMq,
    /// None: without TLS.
    tls: Option<SslConnector>,
}

/// Why a broker cannot even be called.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{key}: the file {} cannot be read", file.display())]
    File { key: &'static str, file: PathBuf, source: io::Error },
    #[error("{key}: the file {} is not what it should be, in PEM", file.display())]
    Pem { key: &'static str, file: PathBuf, source: ErrorStack },
    #[error("OpenSSL cannot be set up for RabbitMQ")]
    Tls(#[from] ErrorStack),
}

/// An open connection; dropping it ends it.
pub(super) struct Link {
    pub(super) connection: Arc<Connection>,
    /// In confirm mode.
    pub(super) channel: Arc<Channel>,
    _plug: Plug,
}

impl Broker {
    /// Reads the files of TLS.
    pub fn new(config: &RabbitMq) -> Result<Broker, OpenError> {
        let tls = config.is_tls().then(|| connector(config)).transpose()?;
        Ok(Broker { config: config.clone(), tls })
    }

    /// The error is a reason for all who wait, without secrets.
    pub(super) async fn connect(&self) -> Result<Link, String> {
        // Pulled where this does not come to its end.
        let plug = Plug::default();
        match timeout(CONNECT_TIMEOUT, self.open(&plug)).await {
            Ok(Ok((connection, channel))) => {
                Ok(Link { connection: Arc::new(connection), channel: Arc::new(channel), _plug: plug })
            }
            Ok(Err(error)) => Err(self.unreachable(&error)),
            Err(_) => Err(format!("RabbitMQ at {} does not answer within {CONNECT_TIMEOUT:?}", self.config.address())),
        }
    }

    async fn open(&self, plug: &Plug) -> Result<(Connection, Channel), Error> {
        let (tls, socket) = (self.tls.clone(), Arc::clone(&plug.0));
        let connect = async move |uri: AMQPUri, _| {
            let host = uri.authority.host;
            let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect((host.as_str(), uri.authority.port))).await;
            let stream = stream.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            stream.set_nodelay(true)?;
            lock(&socket).set(stream.as_fd().try_clone_to_owned()?.into());
            let stream = AsyncTcpStream::Plain(Compat::new(stream));
            match &tls {
                Some(connector) => Ok(stream.into_openssl(connector, &host).await?),
                None => Ok(stream),
            }
        };
        let properties = ConnectionProperties::default().with_connection_name("walpost".into());
        let uri = self.config.uri().clone();
        let connection = Connection::connector(uri, runtime::default_runtime()?, connect, properties).await?;
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok((connection, channel))
    }

    fn unreachable(&self, error: &Error) -> String {
        let (address, user, vhost) = (self.config.address(), self.config.user(), self.config.vhost());
        match refusal(error) {
            Some(refusal) => format!(
                "RabbitMQ at {address} refuses user {user:?} in virtual host {vhost:?}: {}; mend rabbitmq.url, or the \
                 user's password and rights",
                refusal.get_message()
            ),
            None => format!("RabbitMQ at {address} cannot be reached: {}", text(error)),
        }
    }

    /// What it means that the broker closed the channel on which only this message was.
    pub(super) fn verdict(&self, exchange: &str, error: &Error) -> Verdict {
        let Some(refusal) = refusal(error) else { return Verdict::later(text(error)) };
        let said = refusal.get_message();
        match refusal.get_id() {
            NOT_FOUND if said.as_str().contains(&format!("'{exchange}'")) => {
                Verdict::Unroutable(format!("there is no exchange {exchange:?}; declare it: {said}"))
            }
            ACCESS_REFUSED => Verdict::later(format!(
                "user {:?} lacks the right to write to exchange {exchange:?} in virtual host {:?}, its events are kept until \
                 it is given (rabbitmqctl set_permissions): {said}",
                self.config.user(),
                self.config.vhost()
            )),
            PRECONDITION_FAILED if said.as_str().contains("larger than") => Verdict::TooLarge(said.to_string()),
            CONNECTION_FORCED | NOT_FOUND => Verdict::later(said.to_string()),
            _ => Verdict::Later { reason: format!("RabbitMQ closed the channel for it: {said}"), counts: true },
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broker").field(&self.config).finish()
    }
}

/// What the broker itself said, where the error is its.
pub(super) fn refusal(error: &Error) -> Option<&AMQPError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error),
        _ => None,
    }
}

/// Whether the error may be about a message that was under way.
pub(super) fn blames_a_message(error: &Error) -> bool {
    refusal(error).is_some_and(|refusal| refusal.get_id() != CONNECTION_FORCED)
}

/// The error without the client's own words around it.
pub(super) fn text(error: &Error) -> String {
    match error.kind() {
        ErrorKind::IOError(error) => error.to_string(),
        ErrorKind::ProtocolError(error) => error.get_message().to_string(),
        _ => error.to_string(),
    }
}

fn connector(config: &RabbitMq) -> Result<SslConnector, OpenError> {
    const CA_FILE: &str = "rabbitmq.ca_file";
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    if let Some(file) = &config.ca_file {
        let text = fs::read(file).map_err(|source| OpenError::File { key: CA_FILE, file: file.clone(), source })?;
        let flaw = |source| OpenError::Pem { key: CA_FILE, file: file.clone(), source };
        let mut store = X509StoreBuilder::new()?;
        let authorities = X509::stack_from_pem(&text).map_err(flaw)?;
        if authorities.is_empty() {
            return Err(flaw(ErrorStack::get()));
        }
        for authority in authorities {
            store.add_cert(authority)?;
        }
        builder.set_cert_store(store.build());
    }
    if let Some(IdentityFiles { certificate, key }) = &config.identity {
        let flaw = |key, file: &PathBuf, source| OpenError::Pem { key, file: file.clone(), source };
        let chain = builder.set_certificate_chain_file(certificate);
        chain.map_err(|source| flaw("rabbitmq.cert_file", certificate, source))?;
        let private = builder.set_private_key_file(key, SslFiletype::PEM);
        private.map_err(|source| flaw("rabbitmq.key_file", key, source))?;
    }
    Ok(builder.build())
}

/// The end of a connection that does not depend on anyone's reading it: the client serves each by a thread, which may sit
/// on a socket that is silent, or on messages that nobody waits for any more.
#[derive(Default)]
struct Plug(Arc<Mutex<Shut>>);

#[derive(Default)]
enum Shut {
    #[default]
    NotYet,
    Open(Socket),
    Now,
}

impl Shut {
    fn set(&mut self, socket: Socket) {
        match self {
            Shut::Now => shut(&socket),
            Shut::NotYet | Shut::Open(_) => *self = Shut::Open(socket),
        }
    }
}

impl Drop for Plug {
    fn drop(&mut self) {
        if let Shut::Open(socket) = std::mem::replace(&mut *lock(&self.0), Shut::Now) {
            shut(&socket);
        }
    }
}

fn shut(socket: &Socket) {
    // It fails where the socket is closed, which is what was wanted.
    let _ = socket.shutdown(Shutdown::Both);
}

fn lock(socket: &Mutex<Shut>) -> MutexGuard<'_, Shut> {
    socket.lock().unwrap_or_else(PoisonError::into_inner)
}
