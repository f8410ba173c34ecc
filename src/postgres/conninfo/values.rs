//! The keywords that take one of a few words.

use std::{fmt, str::FromStr};

use super::ConnInfoError;

/// Declares an enum whose variants are the values of a keyword.
macro_rules! keyword_values {
    ($(#[$doc:meta])* $name:ident: $keyword:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)+ }

        impl FromStr for $name {
            type Err = ConnInfoError;

            fn from_str(text: &str) -> Result<$name, ConnInfoError> {
                match text {
                    $($text => Ok($name::$variant),)+
                    other => Err(ConnInfoError::Value {
                        keyword: $keyword,
                        expected: concat!("one of", $(" ", $text),+),
                        value: other.to_owned(),
                    }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)+ })
            }
        }
    };
}

keyword_values! {
    /// `sslmode`.
    TlsMode: "sslmode" {
        /// Plain only.
        Disable = "disable",
        /// Plain, then TLS when the server wants it.
        Allow = "allow",
        /// TLS, then plain.
        Prefer = "prefer",
        /// TLS; with a root certificate at hand as `verify-ca`.
        Require = "require",
        /// TLS with a certificate that a known authority signed.
        VerifyCa = "verify-ca",
        /// As above, and made out for the host.
        VerifyFull = "verify-full",
    }
}

keyword_values! {
    /// `sslnegotiation`.
    TlsNegotiation: "sslnegotiation" {
        /// Ask first, which every server understands.
        Postgres = "postgres",
        /// Begin with the handshake (PostgreSQL 17 and later).
        Direct = "direct",
    }
}

keyword_values! {
    /// `ssl_min_protocol_version`, `ssl_max_protocol_version`.
    TlsVersion: "ssl_min_protocol_version" {
        /// TLS 1.0.
        V1_0 = "TLSv1",
        /// TLS 1.1.
        V1_1 = "TLSv1.1",
        /// TLS 1.2.
        V1_2 = "TLSv1.2",
        /// TLS 1.3.
        V1_3 = "TLSv1.3",
    }
}

keyword_values! {
    /// `channel_binding`.
    ChannelBinding: "channel_binding" {
        /// Without.
        Disable = "disable",
        /// With it where both sides can.
        Prefer = "prefer",
        /// Only with it.
        Require = "require",
    }
}

keyword_values! {
    /// `target_session_attrs`: which server of a list will do.
    TargetSession: "target_session_attrs" {
        /// The first that lets us in.
        Any = "any",
        /// One where transactions may write.
        ReadWrite = "read-write",
        /// One where they may not.
        ReadOnly = "read-only",
        /// One that is not in recovery.
        Primary = "primary",
        /// One that is.
        Standby = "standby",
        /// One that is, else any.
        PreferStandby = "prefer-standby",
    }
}

keyword_values! {
    /// `load_balance_hosts`.
    LoadBalance: "load_balance_hosts" {
        /// Hosts and addresses in order.
        Disable = "disable",
        /// In random order.
        Random = "random",
    }
}
