//! What the principal may do with topics, as the brokers' access lists have it. rdkafka lacks this question, so librdkafka is
//! asked directly.

#![allow(unsafe_code)]

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    ptr::{self, NonNull},
    time::Duration,
};

use rdkafka::{ClientContext, bindings::*, client::Client};

/// How much longer than the request librdkafka may take to say that time ran out.
const GRACE: Duration = Duration::from_secs(1);

/// What the principal may do with a topic. A cluster without access lists allows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
}

/// The rights to these topics. What the principal may not even see it has no right to, whether or not it exists; topics that
/// do not exist are left out otherwise, and so are all where the brokers do not tell (before Kafka 2.3). Waits.
pub(super) fn of_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &[String],
    patience: Duration,
) -> Result<BTreeMap<String, Rights>, String> {
    let names: Vec<_> = topics.iter().filter_map(|topic| CString::new(topic.as_str()).ok()).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let milliseconds = |patience: Duration| i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the client outlives the call, names and pointers the making of the collection, which copies them. Collection,
    // options and queue are made here and destroyed once; the event is the guard's, and what it hands out is read before
    // that ends. A refused option leaves librdkafka's default.
    unsafe {
        let client = client.native_ptr();
        let asked = rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        let options = rd_kafka_AdminOptions_new(client, rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        rd_kafka_AdminOptions_set_request_timeout(options, milliseconds(patience), ptr::null_mut(), 0);
        let refusal = rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        if !refusal.is_null() {
            rd_kafka_error_destroy(refusal);
        }
        let queue = rd_kafka_queue_new(client);
        rd_kafka_DescribeTopics(client, asked, options, queue);
        let event = NonNull::new(rd_kafka_queue_poll(queue, milliseconds(patience + GRACE))).map(Event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_AdminOptions_destroy(options);
        rd_kafka_TopicCollection_destroy(asked);
        event.ok_or("no answer about rights")?.read()
    }
}

/// An answer.
struct Event(NonNull<rd_kafka_event_t>);

impl Event {
    fn read(&self) -> Result<BTreeMap<String, Rights>, String> {
        let event = self.0.as_ptr();
        let mut rights = BTreeMap::new();
        // SAFETY: the event lives until `drop`, and so does all that it hands out: descriptions, names, errors, and arrays as
        // long as is said of each.
        unsafe {
            let result = rd_kafka_event_DescribeTopics_result(event);
            if result.is_null() || rd_kafka_event_error(event) != rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(CStr::from_ptr(rd_kafka_event_error_string(event)).to_string_lossy().into_owned());
            }
            let mut count = 0;
            let described = rd_kafka_DescribeTopics_result_topics(result, &mut count);
            for index in 0..count {
                let topic = *described.add(index);
                let name = CStr::from_ptr(rd_kafka_TopicDescription_name(topic)).to_string_lossy().into_owned();
                match rd_kafka_error_code(rd_kafka_TopicDescription_error(topic)) {
                    rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => {}
                    rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED => {
                        rights.insert(name, Rights::default());
                        continue;
                    }
                    _ => continue,
                }
                let mut count = 0;
                let operations = rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
                if operations.is_null() {
                    continue;
                }
                // Read as numbers: a broker may know operations that the bindings do not.
                let may = |operation: rd_kafka_AclOperation_t| {
                    (0..count).any(|index| *operations.add(index).cast::<u32>() == operation as u32)
                };
                let (read, write) = (
                    may(rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_READ),
                    may(rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE),
                );
                rights.insert(name, Rights { read, write });
            }
        }
        Ok(rights)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: ours, once.
        unsafe { rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}
