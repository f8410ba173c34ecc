//! Real servers for the end-to-end tests, started and stopped from Rust.
//!
//! - [`postgres`], [`kafka`], [`rabbitmq`]: servers on free loopback ports, private or shared by all tests of the process;
//! - [`walpost`]: the built binary with a configuration file;
//! - [`outbox`], [`verify`]: events whose identity and commit order are known, and the comparison with what arrived.
//!
//! Nothing is skipped: a server that the cache lacks is a failure that names the command which fetches it. Everything
//! ends with the test process, however that ends ([`process`]).

use std::{
    thread,
    time::{Duration, Instant},
};

pub mod broker;
pub mod browser;
pub mod certificates;
pub mod connect;
pub mod delivery;
pub mod examples;
pub mod kafka;
pub mod letters;
pub mod outbox;
pub mod postgres;
pub mod process;
pub mod proof;
pub mod proxy;
pub mod rabbitmq;
pub mod records;
pub mod scratch;
pub mod session;
pub mod streamed;
pub mod topics;
pub mod verify;
#[allow(dead_code, reason = "the first stories take only part of it")]
pub mod walpost;

/// Polls until `check` gives a value, at most `within`.
pub fn eventually<T>(within: Duration, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The full sizes and durations, instead of CI's.
pub fn long() -> bool {
    std::env::var_os("WALPOST_TEST_LONG").is_some_and(|value| value == "1")
}
