//! The producer of librdkafka, called directly.
//!
//! The one file with unsafe code. rdkafka's own producers cost a context object a record, or a thread that polls; here
//! the session's loop takes delivery reports itself, woken through a socket pair when librdkafka's queue goes from
//! empty to not, and a record carries its ticket as a plain number.
//!
//! What the safety arguments below rest on:
//! - `queue` and every topic handle live from [`Producer::new`] to `drop`, which is the only place that destroys them.
//!   The client lives as long as anyone holds it: the producer, or a thread that waits in a call of [`Transactions`].
//! - librdkafka's calls are thread-safe; pointers that an event hands out are used before the event is destroyed.

#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_void},
    io::{self, Write},
    os::fd::AsRawFd,
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use rdkafka::{bindings::*, error::RDKafkaErrorCode};
use tokio::net::UnixStream;

use crate::pipeline::{Record, Ticket};

/// A librdkafka producer and the topics it has handles of.
#[derive(Debug)]
pub(super) struct Producer {
    client: Arc<Client>,
    queue: NonNull<rd_kafka_queue_t>,
    topics: Vec<Topic>,
    woken: UnixStream,
}

// SAFETY: librdkafka's objects may be used from any thread.
unsafe impl Send for Producer {}

/// A librdkafka client, and what it may touch as long as it lives.
#[derive(Debug)]
struct Client {
    pointer: NonNull<rd_kafka_t>,
    /// librdkafka writes into it.
    _waker: std::os::unix::net::UnixStream,
    /// The partitioner writes into them.
    counters: Mutex<Vec<Arc<AtomicI32>>>,
}

// SAFETY: librdkafka's objects may be used from any thread, and by several at once.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    fn as_ptr(&self) -> *mut rd_kafka_t {
        self.pointer.as_ptr()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // SAFETY: nobody holds it any more; topics and queue are gone with the producer. The fields follow.
        unsafe { rd_kafka_destroy(self.as_ptr()) }
    }
}

/// A topic's handle. The partitioner writes the number of partitions, 0 as long as it is not known.
#[derive(Debug)]
struct Topic {
    handle: NonNull<rd_kafka_topic_t>,
    partitions: Arc<AtomicI32>,
}

/// A topic of this producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TopicId(usize);

impl TopicId {
    /// Topics are numbered in the order in which they were opened.
    pub(super) fn index(self) -> usize {
        self.0
    }
}

/// Index of a partition in its topic.
pub(super) type Partition = usize;

/// What librdkafka tells.
pub(super) enum Event<'a> {
    /// The offset is what the broker may not tell; of the last ones of a call there is also what the record says.
    Delivered(Ticket, TopicId, Partition, Option<i64>, Option<Told<'a>>),
    Failed(Failure<'a>),
    /// A client-wide error: brokers down, authentication refused, or a producer that is of no more use.
    Error {
        code: RDKafkaErrorCode,
        fatal: bool,
        text: &'a str,
    },
    /// JSON, as STATISTICS.md of librdkafka has it; now and then.
    Statistics(&'a str),
    /// `level` as syslog has it: 0 to 7.
    Log {
        level: i32,
        text: &'a str,
    },
}

/// What a delivered record says of itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told<'a> {
    pub(super) id: &'a [u8],
    /// Empty: its headers do not say.
    pub(super) event_type: &'a [u8],
    pub(super) key: Option<&'a [u8]>,
}

/// A record that was not delivered, and what identifies it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure<'a> {
    pub(super) ticket: Ticket,
    pub(super) code: RDKafkaErrorCode,
    pub(super) text: &'a str,
    pub(super) topic: &'a str,
    pub(super) id: &'a [u8],
    pub(super) position: &'a [u8],
    /// Its record says which partition it is for.
    pub(super) names_partition: bool,
    /// Key and value, in bytes.
    pub(super) size: usize,
    /// Names and values of headers, in bytes.
    pub(super) headers_size: usize,
    /// Records that failed with it: Kafka answers for a whole batch. This is the largest.
    pub(super) records: usize,
}

impl Failure<'_> {
    fn total(&self) -> usize {
        self.size + self.headers_size
    }
}

/// A property that librdkafka refuses, or a client that it cannot make.
#[derive(Debug, thiserror::Error)]
pub enum NewProducerError {
    #[error("kafka property {name:?}: {reason}")]
    Property { name: String, reason: String },
    #[error("kafka producer: {0}")]
    Client(String),
    #[error("kafka producer: no socket pair for its events")]
    Socket(#[from] io::Error),
}

const ERROR_TEXT_LEN: usize = 512;

impl Producer {
    pub(super) fn new<'p>(properties: impl Iterator<Item = (&'p str, &'p str)>) -> Result<Producer, NewProducerError> {
        let (woken, mut waker) = std::os::unix::net::UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let woken = UnixStream::from_std(woken)?;
        let conf = Conf::new(properties)?;
        let mut text = [0; ERROR_TEXT_LEN];
        // SAFETY: `conf` is whole; on success the client owns it (so it is forgotten), on failure it stays ours. The
        // text buffer outlives the call.
        let client =
            unsafe { rd_kafka_new(rd_kafka_type_t::RD_KAFKA_PRODUCER, conf.0.as_ptr(), text.as_mut_ptr(), text.len()) };
        let client = NonNull::new(client).ok_or_else(|| NewProducerError::Client(text_of(&text)))?;
        std::mem::forget(conf);
        // SAFETY: the client is alive. The main queue exists as long as a reference to it. The descriptor stays open
        // for as long as the queue may write to it: the client keeps the waker.
        let queue = unsafe {
            let queue = NonNull::new(rd_kafka_queue_get_main(client.as_ptr())).expect("a producer has a main queue");
            rd_kafka_set_log_queue(client.as_ptr(), queue.as_ptr());
            rd_kafka_queue_io_event_enable(queue.as_ptr(), waker.as_raw_fd(), c"!".as_ptr().cast::<c_void>(), 1);
            // Refreshes OAUTHBEARER tokens outside our queue; an error says that there is no such queue, then nothing
            // needs it.
            let error = rd_kafka_sasl_background_callbacks_enable(client.as_ptr());
            if !error.is_null() {
                rd_kafka_error_destroy(error);
            }
            queue
        };
        // The queue wakes when it ceases to be empty. What it holds already, such as a warning about the configuration,
        // would never be announced, nor anything behind it.
        waker.write_all(b"!")?;
        let client = Arc::new(Client { pointer: client, _waker: waker, counters: Mutex::default() });
        Ok(Producer { client, queue, topics: Vec::new(), woken })
    }

    /// What the brokers call their cluster; none before one of them was met.
    pub(super) fn cluster_id(&self) -> Option<String> {
        // SAFETY: the client is alive, and without patience nothing waits. The text is ours: it is copied, then freed by
        // the library that made it.
        unsafe {
            let text = NonNull::new(rd_kafka_clusterid(self.client.as_ptr(), 0))?;
            let id = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
            rd_kafka_mem_free(self.client.as_ptr(), text.as_ptr().cast::<c_void>());
            Some(id)
        }
    }

    /// A handle for a topic; the caller keeps one a topic.
    pub(super) fn topic(&mut self, name: &str) -> TopicId {
        let name = CString::new(name).expect("a legal topic has no zero byte");
        let partitions = Arc::new(AtomicI32::new(0));
        self.client.counters.lock().expect("nobody panics while holding the counters").push(Arc::clone(&partitions));
        // SAFETY: client and name are alive for the call. The configuration, a copy of the client's defaults with a
        // partitioner, becomes the topic's. The client keeps the counter.
        let handle = unsafe {
            let conf = rd_kafka_default_topic_conf_dup(self.client.as_ptr());
            rd_kafka_topic_conf_set_opaque(conf, Arc::as_ptr(&partitions).cast_mut().cast::<c_void>());
            rd_kafka_topic_conf_set_partitioner_cb(conf, Some(partition));
            rd_kafka_topic_new(self.client.as_ptr(), name.as_ptr(), conf)
        };
        let handle = NonNull::new(handle).expect("a legal name on a live client gives a topic");
        self.topics.push(Topic { handle, partitions });
        TopicId(self.topics.len() - 1)
    }

    /// How many partitions the topic had when a record last got one; none before the first.
    pub(super) fn partitions(&self, id: TopicId) -> Option<usize> {
        usize::try_from(self.topics[id.0].partitions.load(Ordering::Relaxed)).ok().filter(|count| *count > 0)
    }

    /// Where a record with this key goes among so many partitions.
    pub(super) fn partition_of(&self, id: TopicId, key: &[u8], count: usize) -> Partition {
        let count = i32::try_from(count).expect("it came from librdkafka");
        let (key_ptr, none) = (key.as_ptr().cast::<c_void>(), ptr::null_mut());
        // SAFETY: the topic is alive; with a key the partitioner only hashes.
        let partition = unsafe {
            let topic = self.topics[id.0].handle.as_ptr();
            rd_kafka_msg_partitioner_murmur2_random(topic, key_ptr, key.len(), count, none, none)
        };
        usize::try_from(partition).expect("a hash modulo a positive number")
    }

    /// Queues a copy of the record. Its ticket comes back in an event, unless this fails; with `Fatal` when the producer
    /// has ended, which an event tells too.
    pub(super) fn produce(&self, topic: TopicId, record: &Record<'_>) -> Result<(), RDKafkaErrorCode> {
        // SAFETY: every pointer is valid during the calls, and librdkafka copies what it keeps (MSG_F_COPY; headers by
        // `rd_kafka_header_add`). On success the message owns `headers`; on failure they are destroyed here.
        unsafe {
            let headers = rd_kafka_headers_new(record.headers.len());
            for (name, value) in record.headers.iter() {
                let value_ptr = value.map_or(ptr::null(), |value| value.as_ptr().cast::<c_void>());
                let value_len = len(value.unwrap_or_default());
                rd_kafka_header_add(headers, name.as_ptr().cast(), len(name.as_bytes()), value_ptr, value_len);
            }
            let partition = record.partition.unwrap_or(PARTITION_UA);
            let arguments = [
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT, Value { rkt: self.topics[topic.0].handle.as_ptr() }),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION, Value { i32_: partition }),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS, Value { i: RD_KAFKA_MSG_F_COPY }),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE, bytes(record.value)),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY, bytes(record.key)),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_TIMESTAMP, Value { i64_: record.timestamp_ms }),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE, Value { ptr: opaque(record.ticket) }),
                argument(rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS, Value { headers }),
            ];
            let error = rd_kafka_produceva(self.client.as_ptr(), arguments.as_ptr(), arguments.len());
            if error.is_null() {
                return Ok(());
            }
            // A producer that has ended answers with what ended it, which would read as a fault of this record.
            let code = match rd_kafka_error_is_fatal(error) {
                0 => rd_kafka_error_code(error),
                _ => rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__FATAL,
            };
            rd_kafka_error_destroy(error);
            rd_kafka_headers_destroy(headers);
            Err(code.into())
        }
    }

    /// Records and requests that are queued or under way, and reports that nobody has taken yet.
    pub(super) fn queued(&self) -> usize {
        // SAFETY: the client is alive.
        usize::try_from(unsafe { rd_kafka_outq_len(self.client.as_ptr()) }).unwrap_or_default()
    }

    /// The Kafka transactions of this producer, which needs a `transactional.id`.
    pub(super) fn transactions(&self) -> Transactions {
        Transactions(Arc::clone(&self.client))
    }

    /// Waits until there may be events. Cancel safe.
    pub(super) async fn ready(&self) -> io::Result<()> {
        self.woken.readable().await
    }

    /// Hands over all events that are there, behind an error of `each` too: the queue announces only what comes when it
    /// is empty. Gives the first error. The last record of each report is asked what it says, and as many before it as `asks`
    /// has left.
    pub(super) fn poll<E>(&self, asks: &mut usize, mut each: impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        // Wake-ups first, then events: an event that comes in between wakes again.
        let mut wakeups = [0; 16];
        while self.woken.try_read(&mut wakeups).is_ok_and(|read| read > 0) {}
        let mut outcome = Ok(());
        loop {
            // SAFETY: the queue is alive; the event is ours until the guard destroys it.
            let event = unsafe { rd_kafka_queue_poll(self.queue.as_ptr(), 0) };
            let Some(event) = NonNull::new(event) else { return outcome };
            let event = OwnedEvent(event);
            outcome = outcome.and(event.read(&self.topics, asks, &mut each));
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: each object is destroyed once and not used again. What is still queued is given up: it was never
        // acknowledged, so the next session sends it.
        unsafe {
            rd_kafka_purge(
                self.client.as_ptr(),
                RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING,
            );
            rd_kafka_queue_io_event_enable(self.queue.as_ptr(), -1, ptr::null(), 0);
            for topic in &self.topics {
                rd_kafka_topic_destroy(topic.handle.as_ptr());
            }
            rd_kafka_queue_destroy(self.queue.as_ptr());
        }
    }
}

/// The transactional calls. All but [`begin`](Transactions::begin) wait for Kafka and belong on a thread of their own;
/// meanwhile the producer has to be polled.
#[derive(Clone, Debug)]
pub(super) struct Transactions(Arc<Client>);

/// What became of a transactional call.
#[derive(Clone, Debug)]
pub(super) struct TransactionError {
    pub(super) code: RDKafkaErrorCode,
    pub(super) text: String,
    /// The same call may be made again, and goes on where it was.
    pub(super) retriable: bool,
}

impl Transactions {
    /// Ends every older producer of the same transactional id, and with it what it had not committed.
    pub(super) fn init(&self, patience: Duration) -> Result<(), TransactionError> {
        // SAFETY: the client is alive.
        outcome(unsafe { rd_kafka_init_transactions(self.0.as_ptr(), milliseconds(patience)) })
    }

    /// Local: what is produced from now on belongs to a transaction.
    pub(super) fn begin(&self) -> Result<(), TransactionError> {
        // SAFETY: the client is alive.
        outcome(unsafe { rd_kafka_begin_transaction(self.0.as_ptr()) })
    }

    /// Local: why the open transaction can only be aborted, if so. librdkafka has no call that asks, but one that is out of
    /// place tells, and does nothing else.
    pub(super) fn whole(&self) -> Result<(), TransactionError> {
        match self.begin() {
            Err(error) if error.code == RDKafkaErrorCode::State => Ok(()),
            told => told,
        }
    }

    pub(super) fn commit(&self, patience: Duration) -> Result<(), TransactionError> {
        // SAFETY: the client is alive.
        outcome(unsafe { rd_kafka_commit_transaction(self.0.as_ptr(), milliseconds(patience)) })
    }

    /// Gives up what is queued and in flight too.
    pub(super) fn abort(&self, patience: Duration) -> Result<(), TransactionError> {
        // SAFETY: the client is alive.
        outcome(unsafe { rd_kafka_abort_transaction(self.0.as_ptr(), milliseconds(patience)) })
    }
}

fn milliseconds(patience: Duration) -> i32 {
    i32::try_from(patience.as_millis()).unwrap_or(i32::MAX)
}

/// Takes the error of a transactional call.
fn outcome(error: *mut rd_kafka_error_t) -> Result<(), TransactionError> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: the error is ours until it is destroyed; its text is copied before.
    unsafe {
        let read = TransactionError {
            code: rd_kafka_error_code(error).into(),
            text: text(rd_kafka_error_string(error)).to_owned(),
            retriable: rd_kafka_error_is_retriable(error) != 0,
        };
        rd_kafka_error_destroy(error);
        Err(read)
    }
}

/// librdkafka's own partitioner, telling how many partitions there are.
///
/// SAFETY: called by librdkafka with a live topic, whose opaque is the counter of [`Producer::topic`].
unsafe extern "C" fn partition(
    topic: *const rd_kafka_topic_t,
    key: *const c_void,
    key_len: usize,
    count: i32,
    partitions: *mut c_void,
    record: *mut c_void,
) -> i32 {
    // SAFETY: as the function's.
    unsafe {
        (*partitions.cast::<AtomicI32>()).store(count, Ordering::Relaxed);
        rd_kafka_msg_partitioner_murmur2_random(topic, key, key_len, count, partitions, record)
    }
}

const EVENTS: i32 = RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG | RD_KAFKA_EVENT_STATS;

/// A configuration under construction.
struct Conf(NonNull<rd_kafka_conf_t>);

impl Conf {
    fn new<'p>(properties: impl Iterator<Item = (&'p str, &'p str)>) -> Result<Conf, NewProducerError> {
        // SAFETY: a fresh configuration, owned here until `rd_kafka_new` takes it.
        let conf = unsafe {
            let conf = NonNull::new(rd_kafka_conf_new()).expect("librdkafka allocates or aborts");
            rd_kafka_conf_set_events(conf.as_ptr(), EVENTS);
            rd_kafka_conf_enable_sasl_queue(conf.as_ptr(), 1);
            Conf(conf)
        };
        for (name, value) in properties {
            conf.set(name, value)?;
        }
        conf.set("log.queue", "true")?;
        Ok(conf)
    }

    fn set(&self, name: &str, value: &str) -> Result<(), NewProducerError> {
        let error = |reason: String| NewProducerError::Property { name: name.to_owned(), reason };
        let text = |text: &str| CString::new(text).map_err(|_| error("it holds a zero byte".to_owned()));
        let (c_name, c_value) = (text(name)?, text(value)?);
        let mut reason = [0; ERROR_TEXT_LEN];
        // SAFETY: the configuration is ours, texts and buffer outlive the call.
        let result = unsafe {
            rd_kafka_conf_set(self.0.as_ptr(), c_name.as_ptr(), c_value.as_ptr(), reason.as_mut_ptr(), reason.len())
        };
        match result {
            rd_kafka_conf_res_t::RD_KAFKA_CONF_OK => Ok(()),
            rd_kafka_conf_res_t::RD_KAFKA_CONF_UNKNOWN => {
                Err(error("librdkafka has no such property; see its CONFIGURATION.md".to_owned()))
            }
            rd_kafka_conf_res_t::RD_KAFKA_CONF_INVALID => Err(error(text_of(&reason))),
        }
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        // SAFETY: still ours: a configuration that a client took is forgotten.
        unsafe { rd_kafka_conf_destroy(self.0.as_ptr()) }
    }
}

struct OwnedEvent(NonNull<rd_kafka_event_t>);

impl OwnedEvent {
    fn read<E>(
        &self,
        topics: &[Topic],
        asks: &mut usize,
        each: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let event = self.0.as_ptr();
        // SAFETY: the event is alive until `drop`; texts and messages that it hands out live as long.
        unsafe {
            match rd_kafka_event_type(event) {
                RD_KAFKA_EVENT_DR => {
                    // All messages of one report are of one topic as a rule: remember the last.
                    let mut last = TopicId(0);
                    let mut failed: Option<Failure<'_>> = None;
                    let mut left = rd_kafka_event_message_count(event);
                    let tell = left.min((*asks).max(1));
                    *asks = asks.saturating_sub(tell);
                    while let Some(message) = rd_kafka_event_message_next(event).as_ref() {
                        if message.err == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                            if topics.get(last.0).is_none_or(|topic| topic.handle.as_ptr() != message.rkt) {
                                let known = topics.iter().position(|topic| topic.handle.as_ptr() == message.rkt);
                                last = TopicId(known.expect("reports are of our own topics"));
                            }
                            let partition = usize::try_from(message.partition).expect("it has been sent somewhere");
                            let offset = Some(message.offset).filter(|offset| *offset >= 0);
                            let said = (left <= tell).then(|| said(message));
                            left = left.saturating_sub(1);
                            each(Event::Delivered(ticket(message._private), last, partition, offset, said))?;
                        } else {
                            left = left.saturating_sub(1);
                            let failure = failure(message);
                            let records = failed.map_or(1, |earlier| earlier.records + 1);
                            let largest = failed.filter(|earlier| earlier.total() > failure.total()).unwrap_or(failure);
                            failed = Some(Failure { records, ..largest });
                        }
                    }
                    failed.map_or(Ok(()), |failure| each(Event::Failed(failure)))
                }
                RD_KAFKA_EVENT_ERROR => each(Event::Error {
                    code: rd_kafka_event_error(event).into(),
                    fatal: rd_kafka_event_error_is_fatal(event) != 0,
                    text: text(rd_kafka_event_error_string(event)),
                }),
                RD_KAFKA_EVENT_STATS => each(Event::Statistics(text(rd_kafka_event_stats(event)))),
                RD_KAFKA_EVENT_LOG => {
                    let (mut facility, mut line, mut level) = (ptr::null(), ptr::null(), 0);
                    if rd_kafka_event_log(event, &mut facility, &mut line, &mut level) != 0 {
                        return Ok(());
                    }
                    each(Event::Log { level, text: text(line) })
                }
                _ => Ok(()),
            }
        }
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

/// SAFETY: `message` is a delivery report's, alive for `'a`.
unsafe fn said<'a>(message: &'a rd_kafka_message_t) -> Told<'a> {
    // SAFETY: as the caller says; a key is as long as it says.
    unsafe {
        let named = |own: &CStr, of_cloudevents: &CStr| match header(message, own) {
            [] => header(message, of_cloudevents),
            value => value,
        };
        let key =
            NonNull::new(message.key.cast::<u8>()).map(|key| std::slice::from_raw_parts(key.as_ptr(), message.key_len));
        Told { id: named(c"id", c"ce_id"), event_type: named(c"event_type", c"ce_type"), key }
    }
}

/// SAFETY: `message` is a delivery report's, alive for `'a`.
unsafe fn failure(message: &rd_kafka_message_t) -> Failure<'_> {
    // SAFETY: the message's topic, headers and text live as long as the message.
    unsafe {
        let (id, position) = match header(message, c"position") {
            b"" => (header(message, c"ce_id"), header(message, c"ce_position")),
            position => (header(message, c"id"), position),
        };
        Failure {
            ticket: ticket(message._private),
            code: message.err.into(),
            // Not the message's own text: `rd_kafka_message_errstr` takes the payload for it, and what
            // `rd_kafka_message_produce_errstr` points to is freed already (librdkafka 2.12).
            text: text(rd_kafka_err2str(message.err)),
            topic: text(rd_kafka_topic_name(message.rkt)),
            id,
            position,
            names_partition: false,
            size: message.len + message.key_len,
            headers_size: headers_size(message),
            records: 1,
        }
    }
}

/// SAFETY: as [`failure`]. The last header of that name would be the row's own; walpost's stands first.
unsafe fn header<'a>(message: &'a rd_kafka_message_t, name: &CStr) -> &'a [u8] {
    let (mut headers, mut value, mut size) = (ptr::null_mut(), ptr::null(), 0);
    // SAFETY: the message is alive; out-pointers are written before they are read, which the result codes tell.
    unsafe {
        if rd_kafka_message_headers(message, &mut headers) != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
            || rd_kafka_header_get(headers, 0, name.as_ptr(), &mut value, &mut size)
                != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
            || value.is_null()
        {
            return b"";
        }
        std::slice::from_raw_parts(value.cast::<u8>(), size)
    }
}

/// SAFETY: as [`failure`].
unsafe fn headers_size(message: &rd_kafka_message_t) -> usize {
    let (mut headers, mut total) = (ptr::null_mut(), 0);
    // SAFETY: as in `header`; a header's name is a C string that lives as long as the message.
    unsafe {
        if rd_kafka_message_headers(message, &mut headers) != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return 0;
        }
        for index in 0..rd_kafka_header_cnt(headers) {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            if rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut size)
                == rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
            {
                total += CStr::from_ptr(name).count_bytes() + size;
            }
        }
    }
    total
}

/// librdkafka's own name of an error, such as `_TRANSPORT`.
pub(super) fn error_name(code: RDKafkaErrorCode) -> &'static str {
    static NAMES: OnceLock<HashMap<i32, &'static str>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let (mut described, mut count) = (ptr::null(), 0);
        // SAFETY: librdkafka has a table of that many descriptions for as long as the process lives; a number that is none of
        // its errors has no name.
        let described = unsafe {
            rd_kafka_get_err_descs(&mut described, &mut count);
            std::slice::from_raw_parts(described, count)
        };
        let named = described.iter().filter(|error| !error.name.is_null());
        // SAFETY: its names are C strings that live as long.
        named.map(|error| (error.code as i32, unsafe { text(error.name) })).collect()
    });
    names.get(&(code as i32)).copied().unwrap_or("UNKNOWN")
}

type Value = rd_kafka_vu_s__bindgen_ty_1;

fn argument(vtype: rd_kafka_vtype_t, u: Value) -> rd_kafka_vu_t {
    rd_kafka_vu_t { vtype, u }
}

/// Key or value; none is a null pointer, which is not the same as empty.
fn bytes(bytes: Option<&[u8]>) -> Value {
    let (ptr, size) = bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
    Value { mem: rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr: ptr.cast_mut().cast::<c_void>(), size } }
}

fn len(bytes: &[u8]) -> isize {
    bytes.len() as isize
}

/// `RD_KAFKA_PARTITION_UA`, a macro that the bindings lack: the partitioner decides.
const PARTITION_UA: i32 = -1;

/// A ticket travels in the message's opaque pointer, as a number.
fn opaque(ticket: Ticket) -> *mut c_void {
    ptr::without_provenance_mut(ticket.0 as usize)
}

fn ticket(opaque: *mut c_void) -> Ticket {
    Ticket(opaque.addr() as u64)
}

/// SAFETY: `text` is null or a C string alive for `'a`.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: as the function's.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("(text that is no UTF-8)")
}

fn text_of(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>(), "tickets travel in pointers");
