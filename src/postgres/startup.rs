//! The start of a session: startup message, authentication, the server's reports.
//!
//! Protocol: <https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP>. Cleartext and MD5
//! passwords, SCRAM-SHA-256 and SCRAM-SHA-256-PLUS are spoken. After SCRAM the server must have proven that it knows the
//! password too; with `channel_binding=require` nothing but SCRAM-SHA-256-PLUS is accepted, not even no password.

use std::collections::BTreeMap;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::{
    authentication::{md5_hash, sasl},
    message::{backend::Message, frontend},
};
use secrecy::{ExposeSecret, SecretString};

use super::{
    conninfo::{ChannelBinding, ConnInfo},
    error::Error,
    refusal::Doing,
    server_error::ServerError,
    wire::{NEGOTIATE_PROTOCOL_VERSION, Wire},
};

/// Settings of role or database change the text of values and the life of sessions: what the stream relies on is set
/// for the session. All are known to every server from 14 on and may be set by anyone.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "3"),
    ("statement_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// What the server said about itself.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) backend_pid: i32,
}

/// Logs a walsender session in.
pub(super) async fn log_in(wire: &mut Wire, at: &ConnInfo, password: Option<SecretString>) -> Result<Reports, Error> {
    let mut startup = BytesMut::new();
    let named = [
        ("user", Some(&*at.user)),
        ("database", Some(&*at.database)),
        ("replication", Some("database")),
        ("application_name", Some(&*at.application_name)),
        ("options", at.options.as_deref()),
    ];
    let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
    frontend::startup_message(named.chain(SETTINGS.iter().copied()), &mut startup)
        .map_err(|error| Error::protocol(format!("a setting of the connection cannot be sent: {error}")))?;
    wire.queue(&startup);
    let mut login = Login { wire, at, password, bound: false };
    login.authenticate().await?;
    login.reports().await
}

struct Login<'a> {
    wire: &'a mut Wire,
    at: &'a ConnInfo,
    password: Option<SecretString>,
    /// SCRAM-SHA-256-PLUS has been carried through.
    bound: bool,
}

impl Login<'_> {
    async fn authenticate(&mut self) -> Result<(), Error> {
        let unspoken = |method| Err(Error::AuthenticationMethod { method });
        loop {
            match self.message().await? {
                Message::AuthenticationOk => return self.accept_unbound(),
                Message::AuthenticationCleartextPassword => {
                    self.accept_unbound()?;
                    let password = self.password()?;
                    self.send_password(password.expose_secret().as_bytes())?;
                }
                Message::AuthenticationMd5Password(body) => {
                    self.accept_unbound()?;
                    let password = self.password()?;
                    let hash = md5_hash(self.at.user.as_bytes(), password.expose_secret().as_bytes(), body.salt());
                    self.send_password(hash.as_bytes())?;
                }
                Message::AuthenticationSasl(body) => {
                    let mechanisms: Vec<String> = body
                        .mechanisms()
                        .map(|mechanism| Ok(mechanism.to_owned()))
                        .collect()
                        .map_err(|error| Error::protocol(error.to_string()))?;
                    self.scram(&mechanisms).await?;
                }
                Message::AuthenticationKerberosV5 => return unspoken("Kerberos"),
                Message::AuthenticationGss => return unspoken("GSSAPI"),
                Message::AuthenticationSspi => return unspoken("SSPI"),
                Message::AuthenticationScmCredential => return unspoken("SCM credential"),
                _ => return Err(Error::protocol("a message that is no part of authentication")),
            }
        }
    }

    fn accept_unbound(&self) -> Result<(), Error> {
        if self.at.channel_binding == ChannelBinding::Require && !self.bound {
            return Err(Error::ChannelBinding);
        }
        Ok(())
    }

    fn password(&self) -> Result<SecretString, Error> {
        self.password.clone().ok_or_else(|| Error::NoPassword { user: self.at.user.clone() })
    }

    fn send_password(&mut self, password: &[u8]) -> Result<(), Error> {
        self.queue(|message| frontend::password_message(password, message))
    }

    async fn scram(&mut self, mechanisms: &[String]) -> Result<(), Error> {
        let offers = |name| mechanisms.iter().any(|mechanism| mechanism == name);
        let end_point = match self.at.channel_binding {
            ChannelBinding::Disable => None,
            ChannelBinding::Prefer | ChannelBinding::Require => self.wire.socket().server_end_point(),
        };
        let (mechanism, binding) = match end_point {
            Some(hash) if offers(sasl::SCRAM_SHA_256_PLUS) => {
                (sasl::SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(hash))
            }
            _ if self.at.channel_binding == ChannelBinding::Require => {
                return Err(Error::ChannelBinding);
            }
            // Tells the server that we could have bound, so that it notices when its offer was stripped on the way.
            Some(_) if offers(sasl::SCRAM_SHA_256) => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
            None if offers(sasl::SCRAM_SHA_256) => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
            _ => return Err(Error::AuthenticationMethod { method: "an unknown kind of SASL" }),
        };
        let failed = |source| Error::Scram { source };
        let password = self.password()?;
        let mut scram = sasl::ScramSha256::new(password.expose_secret().as_bytes(), binding);
        self.queue(|message| frontend::sasl_initial_response(mechanism, scram.message(), message))?;
        let Message::AuthenticationSaslContinue(body) = self.message().await? else {
            return Err(Error::protocol("SCRAM is not continued"));
        };
        scram.update(body.data()).map_err(failed)?;
        self.queue(|message| frontend::sasl_response(scram.message(), message))?;
        let Message::AuthenticationSaslFinal(body) = self.message().await? else {
            return Err(Error::protocol("SCRAM is not finished"));
        };
        scram.finish(body.data()).map_err(failed)?;
        self.bound = mechanism == sasl::SCRAM_SHA_256_PLUS;
        Ok(())
    }

    /// What the server says about itself, until it is ready.
    async fn reports(&mut self) -> Result<Reports, Error> {
        let mut reports = Reports::default();
        loop {
            match self.message().await? {
                Message::BackendKeyData(body) => reports.backend_pid = body.process_id(),
                Message::ParameterStatus(body) => {
                    let pair = body.name().and_then(|name| Ok((name.to_owned(), body.value()?.to_owned())));
                    reports.parameters.extend([pair.map_err(|error| Error::protocol(error.to_string()))?]);
                }
                Message::ReadyForQuery(_) => return Ok(reports),
                _ => return Err(Error::protocol("a message that does not belong to the start of a session")),
            }
        }
    }

    /// The next message that matters; an error of the server is an error.
    async fn message(&mut self) -> Result<Message, Error> {
        loop {
            let (tag, body) = self.wire.message().await?;
            if tag == NEGOTIATE_PROTOCOL_VERSION {
                // Options that the server does not know; we ask for none.
                continue;
            }
            match self.wire.parsed(tag, body)? {
                Message::NoticeResponse(_) => {}
                Message::ErrorResponse(body) => {
                    let doing = Doing::Login { user: &self.at.user, database: &self.at.database, replication: true };
                    return Err(Error::refused(ServerError::from_fields(body.fields()), doing));
                }
                message => return Ok(message),
            }
        }
    }

    /// Queues one message; the wait for the answer sends it.
    fn queue(&mut self, build: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> Result<(), Error> {
        let mut message = BytesMut::new();
        build(&mut message)
            .map_err(|error| Error::protocol(format!("an answer to the server cannot be built: {error}")))?;
        self.wire.queue(&message);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
