//! Properties of Kafka's Java producer, and what librdkafka calls them.

use self::As::{Kilobytes, Named, Refused, Same, Special, Void};

/// What becomes of a property of the Java producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config::connector) enum As {
    /// librdkafka has it, by the same name.
    Same,
    /// librdkafka has it, by this name.
    Named(&'static str),
    /// The same, in units of 1024 bytes.
    Kilobytes(&'static str),
    /// Nothing here depends on it.
    Void(&'static str),
    /// No same meaning is known.
    Refused(&'static str),
    /// It is taken apart where it is read.
    Special,
}

const METRICS: &str = "walpost has metrics of its own";
const OPENSSL: &str = "OpenSSL has no such setting; its own rules hold";
const SERIALIZERS: &str = "the converters make the bytes";
const NEEDED: &str = "walpost waits for all replicas and for as long as it takes: less would lose records";
const CLASS: &str = "walpost runs no Java classes";
const KERBEROS: &str = "Kerberos tickets are renewed by kinit";
const OAUTH: &str = "librdkafka has no such setting";

pub(in crate::config::connector) const PRODUCER: &[(&str, As)] = &[
    ("bootstrap.servers", Special),
    ("acks", Void(NEEDED)),
    ("batch.size", Same),
    ("buffer.memory", Kilobytes("queue.buffering.max.kbytes")),
    ("client.dns.lookup", Same),
    ("client.id", Same),
    ("client.rack", Same),
    ("compression.type", Same),
    ("compression.gzip.level", Special),
    ("compression.lz4.level", Special),
    ("compression.zstd.level", Special),
    ("connections.max.idle.ms", Same),
    ("delivery.timeout.ms", Void(NEEDED)),
    ("enable.idempotence", Void(NEEDED)),
    ("enable.metrics.push", Same),
    ("interceptor.classes", Refused(CLASS)),
    ("key.serializer", Void(SERIALIZERS)),
    ("value.serializer", Void(SERIALIZERS)),
    ("linger.ms", Same),
    ("max.block.ms", Void(NEEDED)),
    ("max.in.flight.requests.per.connection", Special),
    ("max.request.size", Named("message.max.bytes")),
    ("metadata.max.age.ms", Same),
    ("metadata.max.idle.ms", Void("topics that rest are forgotten by librdkafka's rule")),
    ("metadata.recovery.strategy", Same),
    ("metadata.recovery.rebootstrap.trigger.ms", Same),
    ("metric.reporters", Void(METRICS)),
    ("metrics.num.samples", Void(METRICS)),
    ("metrics.recording.level", Void(METRICS)),
    ("metrics.sample.window.ms", Void(METRICS)),
    ("auto.include.jmx.reporter", Void(METRICS)),
    ("partitioner.adaptive.partitioning.enable", Void("it is about records without a key")),
    ("partitioner.availability.timeout.ms", Void("it is about records without a key")),
    ("partitioner.class", Refused("records would go to other partitions")),
    ("partitioner.ignore.keys", Special),
    ("receive.buffer.bytes", Special),
    ("reconnect.backoff.max.ms", Same),
    ("reconnect.backoff.ms", Same),
    ("request.timeout.ms", Same),
    ("retries", Void(NEEDED)),
    ("retry.backoff.max.ms", Same),
    ("retry.backoff.ms", Same),
    ("sasl.client.callback.handler.class", Refused(CLASS)),
    ("sasl.jaas.config", Special),
    ("sasl.kerberos.kinit.cmd", Same),
    ("sasl.kerberos.min.time.before.relogin", Same),
    ("sasl.kerberos.service.name", Same),
    ("sasl.kerberos.ticket.renew.jitter", Void(KERBEROS)),
    ("sasl.kerberos.ticket.renew.window.factor", Void(KERBEROS)),
    ("sasl.login.callback.handler.class", Special),
    ("sasl.login.class", Refused(CLASS)),
    ("sasl.login.connect.timeout.ms", Void(OAUTH)),
    ("sasl.login.read.timeout.ms", Void(OAUTH)),
    ("sasl.login.refresh.buffer.seconds", Void(OAUTH)),
    ("sasl.login.refresh.min.period.seconds", Void(OAUTH)),
    ("sasl.login.refresh.window.factor", Void(OAUTH)),
    ("sasl.login.refresh.window.jitter", Void(OAUTH)),
    ("sasl.login.retry.backoff.max.ms", Void(OAUTH)),
    ("sasl.login.retry.backoff.ms", Void(OAUTH)),
    ("sasl.mechanism", Same),
    ("sasl.oauthbearer.clock.skew.seconds", Void(OAUTH)),
    ("sasl.oauthbearer.expected.audience", Void(OAUTH)),
    ("sasl.oauthbearer.expected.issuer", Void(OAUTH)),
    ("sasl.oauthbearer.header.urlencode", Void(OAUTH)),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", Void(OAUTH)),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Void(OAUTH)),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Void(OAUTH)),
    ("sasl.oauthbearer.jwks.endpoint.url", Void(OAUTH)),
    ("sasl.oauthbearer.scope.claim.name", Void(OAUTH)),
    ("sasl.oauthbearer.sub.claim.name", Void(OAUTH)),
    ("sasl.oauthbearer.token.endpoint.url", Same),
    ("security.protocol", Same),
    ("security.providers", Refused(CLASS)),
    ("send.buffer.bytes", Special),
    ("socket.connection.setup.timeout.max.ms", Void("librdkafka has one such time, not two")),
    ("socket.connection.setup.timeout.ms", Same),
    ("ssl.cipher.suites", Refused("Java and OpenSSL name them differently; write `ssl.cipher.suites` in [kafka]")),
    ("ssl.enabled.protocols", Void(OPENSSL)),
    ("ssl.endpoint.identification.algorithm", Special),
    ("ssl.engine.factory.class", Refused(CLASS)),
    ("ssl.key.password", Special),
    ("ssl.keymanager.algorithm", Void(OPENSSL)),
    ("ssl.keystore.certificate.chain", Named("ssl.certificate.pem")),
    ("ssl.keystore.key", Named("ssl.key.pem")),
    ("ssl.keystore.location", Special),
    ("ssl.keystore.password", Special),
    ("ssl.keystore.type", Special),
    ("ssl.protocol", Void(OPENSSL)),
    ("ssl.provider", Void(OPENSSL)),
    ("ssl.secure.random.implementation", Void(OPENSSL)),
    ("ssl.trustmanager.algorithm", Void(OPENSSL)),
    ("ssl.truststore.certificates", Named("ssl.ca.pem")),
    ("ssl.truststore.location", Special),
    ("ssl.truststore.password", Special),
    ("ssl.truststore.type", Special),
    ("transaction.timeout.ms", Same),
    ("transaction.two.phase.commit.enable", Refused("walpost's transactions are its own")),
    ("transactional.id", Refused("walpost's transactions are its own; see delivery = \"exactly_once\"")),
];

pub(super) fn find(name: &str) -> Option<As> {
    PRODUCER.iter().find(|(known, _)| *known == name).map(|(_, property)| *property)
}
