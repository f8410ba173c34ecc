//! A connection in use: which confirm is whose, which message came back, and which one made the broker close a channel.
//!
//! The client hangs a returned message on whichever confirm it handles next, which need not be that message's own: the
//! broker confirms many at once, and out of turn. So a confirm alone proves nothing:
//!
//! 1. The broker returns a message before it confirms it, and the client keeps what was returned in a queue. A confirm
//!    that carries nothing found that queue empty: whatever was returned until then hangs on confirms that were there
//!    before, its own return among them. All of those are looked at before it is believed ([`Event::Mark`]).
//! 2. A confirm that carries another's message proves nothing about its own. It is held, and nothing more is published, until
//!    every message under way is confirmed: then all that was returned is known.
//!
//! Messages are told apart by their correlation ids, which come back with them.
//!
//! The broker answers an exchange that is missing or forbidden, and a message that is too large, by closing the channel
//! without saying which message it was, and all that is under way on the channel is lost with it. So the first message of
//! an exchange goes on a channel of its own, before all others; and when a channel is closed nevertheless, each message
//! that may be the reason goes that way when it is tried again.

use std::{
    collections::{HashMap, VecDeque},
    future::ready,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered},
};
use lapin::{
    Channel, Confirmation, Connection, Error, Event as Occurrence, PublisherConfirm,
    message::BasicReturnMessage,
    options::{BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::{sync::mpsc::UnboundedReceiver, time::timeout};

use super::{
    broker::{Broker, Link, blames_a_message, refusal, text},
    message::Message,
    publisher::{Blockage, Job, Learnt, Settle, Verdict},
};

/// Most messages that are on channels of their own at once.
const APART_MAX: usize = 64;

/// Most channels that a connection is asked for, or half of what the broker allows: the client confuses one that has the
/// number of an earlier one with that one.
const CHANNELS_MAX: u16 = 1_000;

/// How long a broken connection may take to give up what was under way, or a good one to say goodbye.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a connection ended.
pub(super) enum End {
    /// Nobody publishes any more.
    Closed,
    /// It is of no more use; a message may still want to be sent.
    Broken { next: Option<Box<Job>> },
}

/// Something happened on the shared channel.
enum Event {
    Confirmed {
        number: u64,
        result: Result<Answer, Error>,
    },
    /// All that had happened when this was set down has been looked at.
    Mark,
}

/// Something happened to a message on a channel of its own.
enum Apart {
    /// It got past all that closes a channel, or it did not.
    Judged {
        sent: Sent,
        result: Result<Box<(Channel, PublisherConfirm)>, Error>,
    },
    Confirmed {
        sent: Sent,
        result: Result<Answer, Error>,
    },
}

/// A confirm.
struct Answer {
    taken: bool,
    /// What came back; on the shared channel it may be another message.
    returned: Option<Box<BasicReturnMessage>>,
}

/// A message under way.
struct Sent {
    identity: ShortString,
    exchange: ShortString,
    settle: Settle,
}

/// A confirm that is not believed yet.
struct Claim {
    sent: Sent,
    taken: bool,
}

/// What came back, by its identity.
struct Returned {
    times: usize,
    reason: String,
}

/// The messages of one connection.
pub(super) struct Confirms<'a> {
    broker: &'a Broker,
    link: Link,
    learnt: &'a mut Learnt,
    blockage: &'a Blockage,
    occurrences: BoxStream<'static, Occurrence>,
    header_frame_max: usize,

    number: u64,
    /// Published on the shared channel and not confirmed.
    unconfirmed: HashMap<u64, Sent>,
    events: FuturesUnordered<BoxFuture<'static, Event>>,
    /// Carried nothing, and wait for the next mark; and for the one that is set down.
    quiet: Vec<Claim>,
    marked: Vec<Claim>,
    is_marked: bool,
    /// Carried another's message.
    held: Vec<Claim>,
    /// Never to be confirmed.
    lost: Vec<Sent>,
    returned: HashMap<ShortString, Returned>,

    /// Messages that go on channels of their own.
    apart: VecDeque<Job>,
    judging: bool,
    /// Channels that were asked for, and their most.
    channels: u16,
    channels_max: u16,
    alone: FuturesUnordered<BoxFuture<'static, Apart>>,
}

impl<'a> Confirms<'a> {
    pub(super) fn new(broker: &'a Broker, link: Link, learnt: &'a mut Learnt, blockage: &'a Blockage) -> Confirms<'a> {
        let header_frame_max = link.connection.configuration().frame_max() as usize;
        let channels_max = match link.connection.configuration().channel_max() {
            0 => CHANNELS_MAX,
            max => CHANNELS_MAX.min(max / 2).max(1),
        };
        Confirms {
            broker,
            occurrences: link.connection.events_listener().boxed(),
            link,
            learnt,
            blockage,
            header_frame_max,
            number: 0,
            unconfirmed: HashMap::new(),
            events: FuturesUnordered::new(),
            quiet: Vec::new(),
            marked: Vec::new(),
            is_marked: false,
            held: Vec::new(),
            lost: Vec::new(),
            returned: HashMap::new(),
            apart: VecDeque::new(),
            judging: false,
            channels: 0,
            channels_max,
            alone: FuturesUnordered::new(),
        }
    }

    /// Publishes what comes, until the connection breaks or nothing can come any more.
    pub(super) async fn serve(mut self, first: Job, queue: &mut UnboundedReceiver<Job>) -> End {
        self.take(first);
        let broken = loop {
            let step = tokio::select! {
                // What is known first, then what is new.
                biased;
                Some(event) = self.events.next() => self.heard(event),
                Some(event) = self.alone.next() => self.heard_apart(event),
                Some(occurrence) = self.occurrences.next() => self.noticed(occurrence),
                job = queue.recv(), if self.held.is_empty() && !self.is_worn() => match job {
                    None => {
                        let goodbye = self.link.connection.close(200, "OK".into());
                        // It is over either way.
                        let _ = timeout(FAREWELL, goodbye).await;
                        return End::Closed;
                    }
                    // It broke while nobody looked.
                    Some(job) if !self.is_open() => {
                        self.give_up(None, "the connection to RabbitMQ broke").await;
                        return End::Broken { next: Some(Box::new(job)) };
                    }
                    Some(job) => {
                        self.take(job);
                        Ok(())
                    }
                },
            };
            if let Err(error) = step {
                break error;
            }
            if self.is_worn() && self.unconfirmed.is_empty() && self.alone.is_empty() {
                self.give_up(None, "it follows on a new connection").await;
                return End::Broken { next: None };
            }
        };
        let reason = format!("the connection to RabbitMQ broke: {}", text(&broken));
        self.blockage.set(Some(reason.clone()));
        self.give_up(Some(&broken), &reason).await;
        End::Broken { next: None }
    }

    /// It has had all its channels: what is under way is waited for, and another connection follows.
    fn is_worn(&self) -> bool {
        self.channels >= self.channels_max
    }

    fn is_open(&self) -> bool {
        self.link.connection.status().connected() && self.link.channel.status().connected()
    }

    fn take(&mut self, job: Job) {
        if job.settle.is_abandoned() {
            return;
        }
        let size = job.message.header_frame_size();
        if size > self.header_frame_max {
            let max = self.header_frame_max;
            let reason =
                format!("its headers and properties take up to {size} bytes, and a frame of RabbitMQ has {max}");
            return job.settle.with(Verdict::TooLarge(reason));
        }
        if self.goes_apart(&job.message) {
            self.apart.push_back(job);
            self.judge_next();
        } else {
            self.publish(job);
        }
    }

    fn goes_apart(&self, message: &Message) -> bool {
        let trusted = self.learnt.exchanges.contains(&message.exchange);
        !trusted || (!self.learnt.suspects.is_empty() && self.learnt.suspects.contains(&message.identity()))
    }

    fn publish(&mut self, Job { message, settle }: Job) {
        let number = self.number;
        self.number += 1;
        let sent = Sent { identity: message.identity(), exchange: message.exchange.clone(), settle };
        self.unconfirmed.insert(number, sent);
        let channel = Arc::clone(&self.link.channel);
        self.events.push(Box::pin(async move {
            let result = async { publish(&channel, message).await?.await }.await.map(Answer::of);
            Event::Confirmed { number, result }
        }));
    }

    fn heard(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Mark => self.believe_marked(),
            Event::Confirmed { number, result } => {
                let sent = self.unconfirmed.remove(&number).expect("each is confirmed once");
                let Answer { taken, returned } = match result {
                    Ok(answer) => answer,
                    Err(error) => {
                        self.lost.push(sent);
                        return Err(error);
                    }
                };
                match returned {
                    None => self.quiet.push(Claim { sent, taken }),
                    Some(message) => {
                        let is_own = self.note(&message) == sent.identity;
                        let claim = Claim { sent, taken };
                        if is_own { self.settle(claim) } else { self.held.push(claim) }
                    }
                }
            }
        }
        if self.unconfirmed.is_empty() && self.lost.is_empty() {
            // All that was returned is known.
            for claim in self.take_claims() {
                self.settle(claim);
            }
            self.returned.clear();
        } else if !self.is_marked && !self.quiet.is_empty() {
            self.marked = std::mem::take(&mut self.quiet);
            self.is_marked = true;
            self.events.push(Box::pin(ready(Event::Mark)));
        }
        Ok(())
    }

    fn believe_marked(&mut self) {
        self.is_marked = false;
        for claim in std::mem::take(&mut self.marked) {
            self.settle(claim);
        }
    }

    fn take_claims(&mut self) -> Vec<Claim> {
        let mut claims = std::mem::take(&mut self.marked);
        claims.append(&mut self.quiet);
        claims.append(&mut self.held);
        claims
    }

    /// Remembers what came back; gives whose it was.
    fn note(&mut self, message: &BasicReturnMessage) -> ShortString {
        let identity = message.delivery.properties.correlation_id().clone().unwrap_or_default();
        let returned = self.returned.entry(identity.clone());
        returned.or_insert_with(|| Returned { times: 0, reason: unroutable(message) }).times += 1;
        identity
    }

    fn settle(&mut self, Claim { sent, taken }: Claim) {
        let verdict = match self.returned.get_mut(&sent.identity) {
            Some(returned) if returned.times > 0 => {
                returned.times -= 1;
                Verdict::Unroutable(returned.reason.clone())
            }
            _ => confirmed(taken),
        };
        sent.settle.with(verdict);
    }

    /// Puts the next message that may close its channel on one of its own.
    fn judge_next(&mut self) {
        while !self.judging && self.alone.len() < APART_MAX && !self.is_worn() {
            let Some(job) = self.apart.pop_front() else { return };
            if !self.goes_apart(&job.message) {
                // Its exchange took a message meanwhile.
                self.publish(job);
                continue;
            }
            self.judging = true;
            self.channels += 1;
            let Job { message, settle } = job;
            let sent = Sent { identity: message.identity(), exchange: message.exchange.clone(), settle };
            self.alone.push(Box::pin(judge(Arc::clone(&self.link.connection), message, sent)));
        }
    }

    fn heard_apart(&mut self, event: Apart) -> Result<(), Error> {
        match event {
            Apart::Judged { sent, result } => {
                self.judging = false;
                match result {
                    Ok(passed) => {
                        let (channel, confirm) = *passed;
                        self.learnt.exchanges.insert(sent.exchange.clone());
                        self.alone.push(Box::pin(async move {
                            let result = confirm.await.map(Answer::of);
                            // Until then it has to be open.
                            drop(channel);
                            Apart::Confirmed { sent, result }
                        }));
                    }
                    Err(error) => self.condemn(sent, &error),
                }
            }
            Apart::Confirmed { sent, result: Ok(Answer { taken, returned }) } => {
                self.learnt.suspects.remove(&sent.identity);
                let verdict = match returned {
                    Some(message) => Verdict::Unroutable(unroutable(&message)),
                    None => confirmed(taken),
                };
                sent.settle.with(verdict);
            }
            Apart::Confirmed { sent, result: Err(error) } => self.condemn(sent, &error),
        }
        if !self.link.connection.status().connected() {
            return Err(lapin::ErrorKind::InvalidConnectionState(lapin::ConnectionState::Closed).into());
        }
        self.judge_next();
        Ok(())
    }

    /// It was alone on its channel: what the broker says is about it.
    fn condemn(&mut self, sent: Sent, error: &Error) {
        let verdict = self.broker.verdict(sent.exchange.as_str(), error);
        if refusal(error).is_some() {
            self.learnt.exchanges.remove(&sent.exchange);
        }
        if matches!(verdict, Verdict::Unroutable(_) | Verdict::TooLarge(_)) {
            self.learnt.suspects.remove(&sent.identity);
        }
        sent.settle.with(verdict);
    }

    fn noticed(&mut self, occurrence: Occurrence) -> Result<(), Error> {
        match occurrence {
            Occurrence::ConnectionBlocked(reason) => {
                self.blockage
                    .set(Some(format!("RabbitMQ has blocked all who publish until its alarm is over: {reason}")));
            }
            Occurrence::ConnectionUnblocked => self.blockage.set(None),
            Occurrence::Error(error) if !self.is_open() => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Tells all who wait. What was confirmed before the end counts; `cause` says what brought it about.
    async fn give_up(mut self, cause: Option<&Error>, reason: &str) {
        let all_heard = timeout(FAREWELL, async {
            while !self.unconfirmed.is_empty() {
                let Some(event) = self.events.next().await else { break };
                // There is nothing new in a further error.
                let _ = self.heard(event);
            }
        });
        let mut lost = Vec::new();
        if all_heard.await.is_ok() {
            self.believe_marked();
            self.marked = std::mem::take(&mut self.quiet);
            self.believe_marked();
        }
        let claims = self.take_claims().into_iter().map(|claim| claim.sent);
        lost.extend(claims.chain(std::mem::take(&mut self.lost)).chain(self.unconfirmed.drain().map(|(_, sent)| sent)));
        if let Some(refusal) = cause.filter(|error| blames_a_message(error)).and_then(refusal) {
            self.suspect(&lost, refusal.get_message().as_str());
        }
        for sent in lost {
            sent.settle.with(Verdict::later(reason));
        }
        for job in self.apart {
            job.settle.with(Verdict::later(reason));
        }
    }

    /// Each that may have made the broker close the channel: where it names an exchange, those of that exchange.
    fn suspect(&mut self, lost: &[Sent], said: &str) {
        let is_named = |sent: &&Sent| said.contains(&format!("exchange '{}'", sent.exchange));
        let named: Vec<_> = lost.iter().filter(is_named).collect();
        for sent in if named.is_empty() { lost.iter().collect() } else { named } {
            self.learnt.exchanges.remove(&sent.exchange);
            self.learnt.suspects.insert(sent.identity.clone());
        }
    }
}

impl Answer {
    fn of(confirmation: Confirmation) -> Answer {
        Answer { taken: confirmation.is_ack(), returned: confirmation.take_message().map(Box::new) }
    }
}

async fn publish(channel: &Channel, message: Message) -> Result<PublisherConfirm, Error> {
    let Message { exchange, routing_key, properties, body } = message;
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    channel.basic_publish(exchange, routing_key, options, &body, properties).await
}

/// Publishes on a new channel, and asks the broker something there: it answers in turn, so that the answer comes when the
/// message has got past everything that closes a channel.
async fn judge(connection: Arc<Connection>, message: Message, sent: Sent) -> Apart {
    let judged = async {
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let confirm = publish(&channel, message).await?;
        match channel.basic_qos(1, BasicQosOptions::default()).await {
            Ok(()) => Ok(Box::new((channel, confirm))),
            // The confirm has the broker's own words.
            Err(error) => Err(confirm.await.err().unwrap_or(error)),
        }
    };
    Apart::Judged { result: judged.await, sent }
}

fn confirmed(taken: bool) -> Verdict {
    if taken {
        return Verdict::Taken;
    }
    Verdict::later("RabbitMQ did not take it (nack): a queue is full and rejects (x-overflow), or cannot store it")
}

fn unroutable(message: &BasicReturnMessage) -> String {
    let (exchange, key) = (&message.delivery.exchange, &message.delivery.routing_key);
    format!(
        "exchange {:?} has no queue for routing key {:?}; bind one: {} {}",
        exchange.as_str(),
        key.as_str(),
        message.reply_code,
        message.reply_text
    )
}
