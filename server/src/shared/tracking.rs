//! Which clients keep copies of which keys, and the messages that tell them of changes.
//!
//! A client that tracks is registered for each key that it reads, before it reads the key. The
//! store tells of each change while the key's shard is held; then the registrations are taken, and
//! each client's loop is left a message, before the write is answered. So there are two cases. A
//! registration that the change finds leads to a message. One that comes later belongs to a read
//! that waits for the shard, and so sees the change. A loop writes its messages between commands:
//! the message is behind the reply that had the old value.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use perdura_store::{Changed, Listener};

use super::card::Card;
use super::inbox::{Bell, Inbox};

/// A client that tracks. It stays the same as long as the client does not turn tracking off.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub card: Arc<Card>,
    /// Whether the client tracks prefixes, and not the keys that it reads.
    pub is_broadcast: bool,
    is_on: AtomicBool,
    /// Whether the client wants no messages of its own changes.
    pub skips_own: AtomicBool,
    /// Whether the client that gets the messages has gone.
    pub is_broken: AtomicBool,
    /// The client that gets the messages, if it is another one.
    redirect: Mutex<Option<Arc<Card>>>,
}

impl Tracker {
    /// The client that gets the messages, if it is another one.
    pub fn redirect(&self) -> Option<Arc<Card>> {
        lock(&self.redirect).clone()
    }

    /// Lets another client get the messages, or this one.
    pub fn redirect_to(&self, card: Option<Arc<Card>>) {
        self.is_broken.store(false, Relaxed);
        *lock(&self.redirect) = card;
    }
}

/// Something to be written to a client besides its replies.
#[derive(Debug, Clone)]
pub(crate) enum Push {
    /// Keys that have changed; `None`: all.
    Changed { to: Arc<Card>, is_redirected: bool, keys: Keys },
    /// The client that was to get the messages has gone.
    Broken { to: Arc<Card>, redirect: u64 },
    /// A command that somebody has run, for a client that watches all.
    Line { to: Arc<Card>, line: Arc<[u8]> },
}

/// Names of keys; `None`: all keys.
pub(crate) type Keys = Option<Arc<[Box<[u8]>]>>;

type Trackers = Vec<Arc<Tracker>>;

/// A part of the table of keys, in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Part(Mutex<HashMap<Box<[u8]>, Trackers>>);

/// Number of parts.
const PARTS: usize = 64;

/// All clients that track.
#[derive(Debug)]
pub(crate) struct Tracking {
    /// How to reach each loop.
    loops: Box<[(Arc<Inbox>, Arc<Bell>)]>,
    /// Number of clients that track: read by each command, seldom written.
    count: AtomicUsize,
    clients: Mutex<BTreeMap<u64, Arc<Tracker>>>,
    parts: Box<[Part]>,
    hasher: RandomState,
    /// The prefixes that clients track, with the clients.
    prefixes: RwLock<BTreeMap<Box<[u8]>, Trackers>>,
    /// Number of prefixes, so that a change that nobody of them can see takes no lock.
    prefix_count: AtomicUsize,
}

/// The client whose command this thread runs, and the messages for it, which follow its reply.
#[derive(Debug, Default)]
struct Current {
    /// Number of the client; 0: none.
    client: u64,
    /// Number of the client whose changes they are; 0: the server's own.
    author: u64,
    pushes: Vec<Push>,
}

thread_local! {
    static CURRENT: RefCell<Current> = RefCell::default();
}

impl Tracking {
    pub fn new(loops: impl Iterator<Item = (Arc<Inbox>, Arc<Bell>)>) -> Self {
        Self {
            loops: loops.collect(),
            count: AtomicUsize::new(0),
            clients: Mutex::default(),
            parts: (0..PARTS).map(|_| Part::default()).collect(),
            hasher: RandomState::new(),
            prefixes: RwLock::default(),
            prefix_count: AtomicUsize::new(0),
        }
    }

    /// Whether any client tracks.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.count.load(Acquire) != 0
    }

    /// Number of clients that track.
    pub fn clients(&self) -> usize {
        self.count.load(Acquire)
    }

    /// Lets a client track. Calls `listen` for the first one, which lets the store tell of changes.
    pub fn begin(
        &self,
        card: &Arc<Card>,
        is_broadcast: bool,
        listen: impl FnOnce(),
    ) -> Arc<Tracker> {
        let tracker = Arc::new(Tracker {
            card: Arc::clone(card),
            is_broadcast,
            is_on: AtomicBool::new(true),
            skips_own: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            redirect: Mutex::new(None),
        });
        let mut clients = lock(&self.clients);
        if clients.is_empty() {
            listen();
        }
        clients.insert(card.id, Arc::clone(&tracker));
        self.count.store(clients.len(), Release);
        tracker
    }

    /// Ends a client's tracking. Its registrations for keys stay until the keys change, and are of
    /// no effect. Calls `stop` after the last one.
    pub fn end(&self, tracker: &Tracker, stop: impl FnOnce()) {
        tracker.is_on.store(false, Release);
        if tracker.is_broadcast {
            let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
            for trackers in prefixes.values_mut() {
                trackers.retain(|other| other.card.id != tracker.card.id);
            }
            prefixes.retain(|_, trackers| !trackers.is_empty());
            self.prefix_count.store(prefixes.len(), Release);
        }
        let mut clients = lock(&self.clients);
        clients.remove(&tracker.card.id);
        self.count.store(clients.len(), Release);
        if clients.is_empty() {
            stop();
            self.parts.iter().for_each(|part| lock(&part.0).clear());
        }
    }

    /// Registers a client for a prefix.
    pub fn add_prefix(&self, tracker: &Arc<Tracker>, prefix: &[u8]) {
        let mut prefixes = self.prefixes.write().unwrap_or_else(PoisonError::into_inner);
        prefixes.entry(prefix.into()).or_default().push(Arc::clone(tracker));
        self.prefix_count.store(prefixes.len(), Release);
    }

    /// Registers a client for a key, which it reads next.
    pub fn remember(&self, tracker: &Arc<Tracker>, key: &[u8]) {
        let mut part = self.part(key);
        match part.get_mut(key) {
            Some(trackers) if trackers.iter().any(|other| Arc::ptr_eq(other, tracker)) => {}
            Some(trackers) => trackers.push(Arc::clone(tracker)),
            None => {
                part.insert(key.into(), vec![Arc::clone(tracker)]);
            }
        }
    }

    fn part(&self, key: &[u8]) -> MutexGuard<'_, HashMap<Box<[u8]>, Trackers>> {
        lock(&self.parts[self.hasher.hash_one(key) as usize % PARTS].0)
    }

    /// Number of keys that clients are registered for, of registrations, and of prefixes.
    pub fn sizes(&self) -> (usize, usize, usize) {
        let (mut keys, mut items) = (0, 0);
        for part in &self.parts {
            let part = lock(&part.0);
            keys += part.len();
            items += part.values().map(Vec::len).sum::<usize>();
        }
        (keys, items, self.prefix_count.load(Acquire))
    }

    /// Makes room for so many keys: the clients of others, whichever they are, are told as if the
    /// keys had changed.
    pub fn shrink(&self, keys_max: usize) {
        let mut keys: usize = self.parts.iter().map(|part| lock(&part.0).len()).sum();
        let mut at = 0;
        while keys > keys_max {
            let mut part = lock(&self.parts[at % PARTS].0);
            let key = part.keys().next().cloned();
            let taken = key.and_then(|key| part.remove_entry(&key));
            drop(part);
            if let Some((key, trackers)) = taken {
                keys -= 1;
                let keys: Keys = Some(Arc::from([key]));
                trackers.iter().for_each(|tracker| self.tell(tracker, &keys));
            }
            at += 1;
        }
    }

    /// Begins a command of a client on this thread.
    pub fn begin_command(client: u64) {
        CURRENT.with_borrow_mut(|current| (current.client, current.author) = (client, client));
    }

    /// Ends the command, and returns the messages for its client.
    pub fn end_command() -> Vec<Push> {
        CURRENT.with_borrow_mut(|current| {
            (current.client, current.author) = (0, 0);
            std::mem::take(&mut current.pushes)
        })
    }

    /// Runs a command for a client that has waited, and returns the messages for this client.
    pub fn on_behalf<R>(client: u64, f: impl FnOnce() -> R) -> (R, Vec<Push>) {
        Self::with(Current { client, author: client, pushes: Vec::new() }, f)
    }

    /// Runs what the server does on its own account before a command of a client, and returns the
    /// messages for this client.
    pub fn beside<R>(client: u64, f: impl FnOnce() -> R) -> (R, Vec<Push>) {
        Self::with(Current { client, author: 0, pushes: Vec::new() }, f)
    }

    fn with<R>(current: Current, f: impl FnOnce() -> R) -> (R, Vec<Push>) {
        let outer = CURRENT.replace(current);
        let result = f();
        (result, CURRENT.replace(outer).pushes)
    }

    /// Leaves messages with the loops of their receivers.
    pub fn leave_all(&self, pushes: Vec<Push>) {
        pushes.into_iter().for_each(|push| self.leave(push));
    }

    /// Leaves a client a message that these keys have changed.
    fn tell(&self, tracker: &Tracker, keys: &Keys) {
        if !tracker.is_on.load(Acquire) {
            return;
        }
        let redirect = tracker.redirect();
        let push = match redirect {
            Some(other) if other.is_gone() => {
                tracker.is_broken.store(true, Relaxed);
                Push::Broken { to: Arc::clone(&tracker.card), redirect: other.id }
            }
            Some(other) => Push::Changed { to: other, is_redirected: true, keys: keys.clone() },
            None => {
                let to = Arc::clone(&tracker.card);
                Push::Changed { to, is_redirected: false, keys: keys.clone() }
            }
        };
        self.leave(push);
    }

    /// Leaves a message with the loop of its receiver, or behind the reply that its receiver waits
    /// for.
    fn leave(&self, push: Push) {
        let (Push::Changed { to, .. } | Push::Broken { to, .. } | Push::Line { to, .. }) = &push;
        let is_own = CURRENT.with_borrow(|current| current.client == to.id);
        if is_own {
            return CURRENT.with_borrow_mut(|current| current.pushes.push(push));
        }
        let (inbox, bell) = &self.loops[to.of_loop];
        inbox.push(push);
        bell.ring();
    }

    fn has_changed(&self, changed: &[Changed], author: u64) {
        let skips =
            |tracker: &Tracker| tracker.card.id == author && tracker.skips_own.load(Relaxed);
        for Changed { key, .. } in changed {
            let Some((key, trackers)) = self.part(key).remove_entry(key) else { continue };
            let keys: Keys = Some(Arc::from([key]));
            let others = trackers.iter().filter(|tracker| !skips(tracker));
            others.for_each(|tracker| self.tell(tracker, &keys));
        }
        if self.prefix_count.load(Acquire) == 0 {
            return;
        }
        for (prefix, trackers) in &*self.prefixes() {
            let fitting = changed.iter().filter(|changed| changed.key.starts_with(prefix));
            let fitting: BTreeSet<&[u8]> = fitting.map(|changed| &*changed.key).collect();
            if !fitting.is_empty() {
                let keys: Keys = Some(fitting.into_iter().map(Box::from).collect());
                let others = trackers.iter().filter(|tracker| !skips(tracker));
                others.for_each(|tracker| self.tell(tracker, &keys));
            }
        }
    }

    fn prefixes(&self) -> RwLockReadGuard<'_, BTreeMap<Box<[u8]>, Trackers>> {
        self.prefixes.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener for Tracking {
    fn changed(&self, changed: &[Changed], has_emptied: bool) {
        let author = CURRENT.with_borrow(|current| current.author);
        if has_emptied {
            self.parts.iter().for_each(|part| lock(&part.0).clear());
            let clients: Trackers = lock(&self.clients).values().cloned().collect();
            clients.iter().for_each(|tracker| self.tell(tracker, &None));
        }
        self.has_changed(changed, author);
    }
}

/// Locks a table, also after a panic of another thread: each change of one is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
