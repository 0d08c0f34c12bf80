//! Events: what happens to keys, told by names as Redis tells it.
//!
//! An attempt of an operation gathers its events. They are told when it commits, while its shards
//! are held: so the events of a key are told in the order of its changes, whatever threads make
//! them, and an attempt that is rolled back tells nothing.
//!
//! The store itself knows of keys that are new, that have expired and that are evicted, and of
//! fields that have expired. All other events are named by who changes the keys ([`Tx::tell`]).
//!
//! While nobody wants to know, an event costs one load.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::{DATABASES, Key};
use crate::error::TxError;
use crate::store::Place;
use crate::table::Found;
use crate::tx::Tx;

/// A class of events, which is a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventClass(pub u32);

impl EventClass {
    /// Events of keys of any kind.
    pub const GENERIC: Self = Self(1);
    /// Changes of strings.
    pub const STRING: Self = Self(1 << 1);
    /// Changes of lists.
    pub const LIST: Self = Self(1 << 2);
    /// Changes of sets.
    pub const SET: Self = Self(1 << 3);
    /// Changes of hashes.
    pub const HASH: Self = Self(1 << 4);
    /// Changes of sorted sets.
    pub const SORTED: Self = Self(1 << 5);
    /// Keys that have expired.
    pub const EXPIRED: Self = Self(1 << 6);
    /// Keys that were evicted.
    pub const EVICTED: Self = Self(1 << 7);
    /// Changes of streams.
    pub const STREAM: Self = Self(1 << 8);
    /// Reads of keys that are not there.
    pub const MISS: Self = Self(1 << 9);
    /// Keys that were not there before.
    pub const NEW: Self = Self(1 << 10);
}

/// The classes of the events that a key's end by time makes.
const OF_EXPIRY: u32 = EventClass::EXPIRED.0 | EventClass::HASH.0 | EventClass::GENERIC.0;

/// Something that has happened to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key's database.
    pub db: u8,
    /// The key's name.
    pub key: Box<[u8]>,
    /// The event's class.
    pub class: EventClass,
    /// The event's name.
    pub name: &'static str,
}

/// A receiver of events.
pub trait Audience: Send + Sync + std::fmt::Debug {
    /// An operation is about to commit with these events. It holds the shards of all their keys; a
    /// failing device may still undo its changes. It must not be kept waiting for a shard.
    fn hear(&self, events: &[Event]);
}

/// The audience and the classes of events that it wants, in cache lines that are seldom
/// written.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Audiences {
    /// The classes that somebody wants to know of. Relaxed is enough: a command that is sent after
    /// a change of them has been answered is carried out later than the change.
    classes: AtomicU32,
    audience: Mutex<Option<Arc<dyn Audience>>>,
}

impl Audiences {
    #[inline]
    fn wants(&self, class: EventClass) -> bool {
        self.wants_any(class.0)
    }

    #[inline]
    fn wants_any(&self, classes: u32) -> bool {
        self.classes.load(Relaxed) & classes != 0
    }

    /// Tells of the events of an operation that is about to commit.
    #[cold]
    pub fn tell(&self, events: &[Event]) {
        let audience = self.lock().clone();
        if let Some(audience) = audience {
            audience.hear(events);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Audience>>> {
        // One assignment sets it, so it is whole whatever thread has panicked.
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl crate::Store {
    /// Whether an audience wants to know of events of this class.
    #[inline]
    pub fn is_heard(&self, class: EventClass) -> bool {
        self.audiences.wants(class)
    }

    /// Lets an audience know of all events of these classes from now on, instead of the audience
    /// before; `classes` are bits of [`EventClass`].
    pub fn announce(&self, classes: u32, audience: Option<Arc<dyn Audience>>) {
        let classes = if audience.is_some() { classes } else { 0 };
        *self.audiences.lock() = audience;
        self.audiences.classes.store(classes, Relaxed);
    }

    /// Whether somebody wants to know of events of a class.
    #[inline]
    pub fn is_wanted(&self, class: EventClass) -> bool {
        self.audiences.wants(class)
    }
}

impl Tx<'_> {
    /// Tells of an event of a key when the operation commits, if somebody wants to know.
    #[inline]
    pub fn tell(&mut self, class: EventClass, name: &'static str, key: Key<'_>) {
        if self.store.audiences.wants(class) {
            self.note_event(class, name, key);
        }
    }

    /// Tells that the key is gone, if a command that takes something out of a value has left
    /// nothing of it.
    #[inline]
    pub fn tell_if_gone(&mut self, key: Key<'_>) {
        if self.store.audiences.wants(EventClass::GENERIC) && !self.has(key) {
            self.note_event(EventClass::GENERIC, "del", key);
        }
    }

    /// Whether there is such a key, if it matters to [`Tx::tell_stored`].
    pub fn was_there(&self, key: Key<'_>) -> bool {
        self.store.audiences.wants(EventClass::GENERIC) && self.has(key)
    }

    /// Tells that a command has stored its result, or that an empty result has removed what was
    /// there.
    pub fn tell_stored(
        &mut self,
        class: EventClass,
        name: &'static str,
        key: Key<'_>,
        was_there: bool,
    ) {
        if self.store.audiences.wants_any(class.0 | EventClass::GENERIC.0) {
            if self.has(key) {
                self.tell(class, name, key);
            } else if was_there {
                self.tell(EventClass::GENERIC, "del", key);
            }
        }
    }

    /// Removes a key in whose place another one is about to come, if the other is to be told of as
    /// a new one.
    ///
    /// # Errors
    /// The attempt is over ([`TxError::Again`]).
    pub fn make_way(&mut self, key: Key<'_>) -> Result<(), TxError> {
        if self.store.audiences.wants(EventClass::NEW) {
            self.delete(key)?;
        }
        Ok(())
    }

    /// Does something that changes keys and of which nothing is told.
    ///
    /// # Errors
    /// The errors of `f`.
    pub fn untold<R>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<R, TxError>,
    ) -> Result<R, TxError> {
        let told = self.events.len();
        let result = f(self);
        self.events.truncate(told);
        result
    }

    /// Tells that a key is new, whose record is about to be written, if it is.
    #[inline]
    pub(crate) fn tell_if_new(&mut self, place: &Place, key: Key<'_>) {
        if self.store.audiences.wants_any(EventClass::NEW.0 | OF_EXPIRY) {
            let found = self.find(place, key);
            if let Some(found) = &found {
                self.tell_if_over(place, key, found);
            }
            if found.is_none_or(|found| !self.is_live(place, &found)) {
                self.tell(EventClass::NEW, "new", key);
            }
        }
    }

    /// Tells that a key has expired whose entry is about to go, if it has.
    #[inline]
    pub(crate) fn tell_if_over(&mut self, place: &Place, key: Key<'_>, found: &Found) {
        if self.store.audiences.wants_any(OF_EXPIRY) && !self.is_live(place, found) {
            let now_ms = self.now_ms();
            match self.raw(place, found).expire_at_ms {
                Some(at_ms) if at_ms <= now_ms => self.tell(EventClass::EXPIRED, "expired", key),
                // A hash whose fields all have expired.
                _ => {
                    self.tell(EventClass::HASH, "hexpired", key);
                    self.tell(EventClass::GENERIC, "del", key);
                }
            }
        }
    }

    #[cold]
    fn note_event(&mut self, class: EventClass, name: &'static str, key: Key<'_>) {
        // Neither the program's own keys nor hidden ones are the clients'.
        if key.db < DATABASES {
            self.events.push(Event { db: key.db, key: key.bytes.into(), class, name });
        }
    }
}
