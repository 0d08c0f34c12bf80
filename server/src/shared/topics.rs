//! Who has subscribed to what, on any loop.
//!
//! A message goes to the inbox of each receiver's loop, which writes it to the client's output at
//! its next turn. Messages of one publisher keep their order for each receiver.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::card::Card;
use super::inbox::{Bell, Inbox};
use crate::glob;

/// What is subscribed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// A channel (SUBSCRIBE).
    Channel = 0,
    /// All channels whose names fit a pattern (PSUBSCRIBE).
    Pattern = 1,
    /// A shard channel (SSUBSCRIBE). Without a cluster there is one shard.
    Shard = 2,
}

impl Topic {
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// A message on its way to the clients of a loop.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub topic: Topic,
    /// The channel or the pattern that the receivers have subscribed to.
    pub name: Arc<[u8]>,
    /// The channel that it was published to.
    pub channel: Arc<[u8]>,
    pub payload: Arc<[u8]>,
    /// Numbers and slots of the receivers.
    pub to: Vec<Arc<Card>>,
}

/// The subscribers of each name, by their numbers.
type Subscribers = BTreeMap<Arc<[u8]>, BTreeMap<u64, Arc<Card>>>;

/// All subscriptions.
#[derive(Debug)]
pub(crate) struct Topics {
    /// How to reach each loop.
    loops: Box<[(Arc<Inbox>, Arc<Bell>)]>,
    names: [Mutex<Subscribers>; 3],
    /// Number of names of each kind, so that a message to nobody takes no lock.
    counts: [AtomicUsize; 3],
}

impl Topics {
    pub fn new(loops: impl Iterator<Item = (Arc<Inbox>, Arc<Bell>)>) -> Self {
        Self { loops: loops.collect(), names: Default::default(), counts: Default::default() }
    }

    /// Leaves a message with the loops of its receivers.
    pub fn send(&self, message: &Message) {
        for (number, (inbox, bell)) in self.loops.iter().enumerate() {
            let is_here = |card: &&Arc<Card>| card.of_loop == number;
            let to: Vec<_> = message.to.iter().filter(is_here).cloned().collect();
            if !to.is_empty() {
                inbox.post(Message { to, ..message.clone() });
                bell.ring();
            }
        }
    }

    /// Adds a subscription.
    pub fn join(&self, topic: Topic, name: &[u8], card: &Arc<Card>) {
        let mut names = self.lock(topic);
        names.entry(name.into()).or_default().insert(card.id, Arc::clone(card));
        self.counts[topic as usize].store(names.len(), Release);
    }

    /// Removes a subscription.
    pub fn leave(&self, topic: Topic, name: &[u8], id: u64) {
        let mut names = self.lock(topic);
        if let Some(subscribers) = names.get_mut(name) {
            subscribers.remove(&id);
            if subscribers.is_empty() {
                names.remove(name);
            }
        }
        self.counts[topic as usize].store(names.len(), Release);
    }

    /// The messages that publishing `payload` to a channel makes: one for each name by which it has
    /// subscribers.
    pub fn address(&self, topic: Topic, channel: &[u8], payload: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        if self.count(topic) == 0 && self.count(Topic::Pattern) == 0 {
            return messages;
        }
        let (whole_channel, payload): (Arc<[u8]>, Arc<[u8]>) = (channel.into(), payload.into());
        let mut add = |topic, name: &Arc<[u8]>, subscribers: &BTreeMap<u64, Arc<Card>>| {
            messages.push(Message {
                topic,
                name: Arc::clone(name),
                channel: Arc::clone(&whole_channel),
                payload: Arc::clone(&payload),
                to: subscribers.values().cloned().collect(),
            });
        };
        if let Some((name, subscribers)) = self.lock(topic).get_key_value(channel) {
            add(topic, name, subscribers);
        }
        if topic == Topic::Channel {
            for (pattern, subscribers) in &*self.lock(Topic::Pattern) {
                if glob::matches(pattern, channel) {
                    add(Topic::Pattern, pattern, subscribers);
                }
            }
        }
        messages
    }

    /// Number of names of a kind that have subscribers.
    pub fn count(&self, topic: Topic) -> usize {
        self.counts[topic as usize].load(Acquire)
    }

    /// The names of a kind that have subscribers, and that fit the pattern, if there is one.
    pub fn names(&self, topic: Topic, pattern: Option<&[u8]>) -> Vec<Arc<[u8]>> {
        let names = self.lock(topic);
        let fits = |name: &&Arc<[u8]>| pattern.is_none_or(|pattern| glob::matches(pattern, name));
        names.keys().filter(fits).cloned().collect()
    }

    /// Each subscription of this kind.
    pub fn all(&self, topic: Topic) -> Vec<(Arc<[u8]>, Arc<Card>)> {
        let names = self.lock(topic);
        let of_name = |(name, cards): (&Arc<[u8]>, &BTreeMap<u64, Arc<Card>>)| {
            let name = Arc::clone(name);
            cards.values().cloned().map(move |card| (Arc::clone(&name), card)).collect::<Vec<_>>()
        };
        names.iter().flat_map(of_name).collect()
    }

    /// Number of subscribers of a name.
    pub fn subscribers(&self, topic: Topic, name: &[u8]) -> usize {
        self.lock(topic).get(name).map_or(0, BTreeMap::len)
    }

    fn lock(&self, topic: Topic) -> MutexGuard<'_, Subscribers> {
        // A change that has panicked leaves a map that is whole.
        self.names[topic as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
