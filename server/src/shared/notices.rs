//! Keyspace notifications: what happens to keys is published as messages.
//!
//! The store tells of an operation's events while it holds the shards of their keys. The messages
//! are left with the receivers' loops then: so a subscriber hears of a key's changes in their
//! order, and the message is on its way when the change is answered.

use std::sync::Arc;

use perdura_store::{Audience, Event, Store};

use super::topics::{Topic, Topics};
use crate::parameters::Notify;

/// Publishes the events of keys.
#[derive(Debug)]
struct Notices {
    topics: Arc<Topics>,
    notify: Notify,
}

/// Lets the store tell of the events that are to be published, or of none.
pub(super) fn publish_events(store: &Store, topics: &Arc<Topics>, notify: Notify) {
    let classes = notify.published();
    let audience = || Arc::new(Notices { topics: Arc::clone(topics), notify }) as Arc<dyn Audience>;
    store.announce(classes, (classes != 0).then(audience));
}

impl Audience for Notices {
    fn hear(&self, events: &[Event]) {
        if self.topics.count(Topic::Channel) == 0 && self.topics.count(Topic::Pattern) == 0 {
            return;
        }
        for Event { db, key, name, .. } in events {
            if self.notify.by_key {
                self.publish(&[format!("__keyspace@{db}__:").as_bytes(), key], name.as_bytes());
            }
            if self.notify.by_event {
                self.publish(&[format!("__keyevent@{db}__:{name}").as_bytes()], key);
            }
        }
    }
}

impl Notices {
    fn publish(&self, channel: &[&[u8]], payload: &[u8]) {
        let messages = self.topics.address(Topic::Channel, &channel.concat(), payload);
        messages.iter().for_each(|message| self.topics.send(message));
    }
}
