//! One client's state between commands. It is small, because idle clients are many.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use perdura_store::Watch;

use crate::acl::{User, Users};
use crate::commands::Moving;
use crate::copying::Copying;
use crate::export::Parts;
use crate::resp::{Args, Span};
use crate::shared::{Card, NO_COMMAND, Topic, Tracker, card_flag};

/// The mode that CLIENT REPLY has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command is not answered.
    SkipNext,
    /// This command is not answered, unless it is the one that turns replies on.
    SkipThis,
}

/// The name and the library that a client has told of itself.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_ver: Vec<u8>,
    /// The user that the client has become, if it is not the default one.
    pub user: Option<Arc<User>>,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Tcp { addr: SocketAddr, local: SocketAddr },
    Unix,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp { addr, .. } => addr.fmt(f),
            Self::Unix => f.write_str("unix:0"),
        }
    }
}

/// The state of one client between commands.
#[derive(Debug)]
pub(crate) struct Session {
    /// What other threads may know of the client.
    pub card: Arc<Card>,
    pub db: u8,
    pub resp3: bool,
    /// Whether the client has said who it is.
    pub authenticated: bool,
    /// Who the client is, as of `users_version`.
    pub user: Arc<User>,
    /// Version of the users in which the client's was looked up.
    pub users_version: u64,
    /// Version of the users in which the client may do everything; 0 if in none.
    pub free_in: u64,
    pub no_evict: bool,
    pub no_touch: bool,
    /// Whether the client watches all commands.
    pub is_monitor: bool,
    /// Whether the client carries out another server's changes, so that nothing expires.
    pub holds_expiry: bool,
    /// Whether the connection closes when its replies have been sent.
    pub closing: bool,
    /// Whether the connection closes at the end of the turn, even if replies are unsent.
    pub killed: bool,
    pub reply_mode: ReplyMode,
    pub multi: Option<Box<Multi>>,
    /// The keys WATCH has named, by database and name: a command may name hundreds of thousands.
    pub watched: BTreeMap<(u8, Box<[u8]>), Watch>,
    /// How the client tracks the keys of which it keeps copies, if it does.
    pub tracks: Option<Box<Tracks>>,
    /// What the client has subscribed to.
    pub subscribed: Subscribed,
    /// Bytes that were received and not carried out when the present command began, its own among
    /// them.
    pub request_bytes: usize,
    /// Whether the next command waits for CLIENT UNPAUSE.
    pub is_paused: bool,
    /// The MIGRATE whose end the client waits for.
    pub moving: Option<Box<Moving>>,
    /// The parts of a copy that the client wants (REPLCONF), and the copy that it gets (SYNC). It is
    /// `closing` then.
    pub copy_parts: Parts,
    pub copying: Option<Box<Copying>>,
    /// The wait of a command for data (BLPOP and its like); commands behind it wait, too.
    pub waiting: Option<Box<Waiting>>,
    pub active_ns: u64,
    /// Row of the last command in the table.
    pub last_row: u16,
}

impl Session {
    pub fn new(card: Arc<Card>, users: &Users) -> Self {
        Self {
            active_ns: card.created_ns,
            card,
            db: 0,
            resp3: false,
            authenticated: users.default().is_open(),
            user: Arc::clone(users.default()),
            users_version: users.version,
            free_in: 0,
            no_evict: false,
            no_touch: false,
            is_monitor: false,
            holds_expiry: false,
            closing: false,
            killed: false,
            reply_mode: ReplyMode::On,
            multi: None,
            watched: BTreeMap::new(),
            tracks: None,
            subscribed: Subscribed::default(),
            request_bytes: 0,
            is_paused: false,
            moving: None,
            copy_parts: Parts::ALL,
            copying: None,
            waiting: None,
            last_row: NO_COMMAND,
        }
    }

    /// Makes the client a user of `users`.
    pub fn become_user(&mut self, user: &Arc<User>, users: &Users) {
        self.authenticated = true;
        self.user = Arc::clone(user);
        self.users_version = users.version;
        self.free_in = 0;
        let mut about = self.card.about();
        let is_default = user.id == users.default().id;
        if !is_default || about.is_some() {
            about.get_or_insert_default().user = (!is_default).then(|| Arc::clone(user));
        }
    }

    pub fn unwatch(&mut self) {
        self.watched = BTreeMap::new();
    }

    /// Makes everything but the connection itself and the name of the client's library as it is
    /// after connecting (RESET).
    pub fn reset(&mut self, users: &Users) {
        if let Some(about) = &mut *self.card.about() {
            about.name.clear();
            about.user = None;
        }
        *self = Self {
            active_ns: self.active_ns,
            last_row: self.last_row,
            ..Self::new(Arc::clone(&self.card), users)
        };
    }

    /// The memory that the client takes, with so many bytes of replies and requests in its own
    /// buffers.
    pub fn memory_bytes(&self, unsent_bytes: usize, pending_bytes: usize) -> usize {
        let queued_bytes = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        let waiting_bytes = self.waiting.as_ref().map_or(0, |waiting| waiting.bytes);
        let own_bytes = queued_bytes + waiting_bytes + self.subscribed.bytes();
        size_of::<Self>() + unsent_bytes + pending_bytes + own_bytes
    }

    /// Writes what other threads may know of the client to its card, with so many bytes of replies
    /// and requests in its own buffers.
    pub fn publish(&self, unsent_bytes: usize, request_bytes: usize) {
        let seen = self.card.seen();
        let tracker = self.tracks.as_ref().map(|tracks| &tracks.tracker);
        let mut flags = 0;
        for (is_set, bit) in [
            (self.is_paused, card_flag::PAUSED),
            (self.closing && self.copying.is_none() || self.killed, card_flag::CLOSING),
            (self.copying.is_some(), card_flag::COPYING),
            (self.no_evict, card_flag::NO_EVICT),
            (self.no_touch, card_flag::NO_TOUCH),
            (self.resp3, card_flag::RESP3),
            (self.subscribed.is_any(), card_flag::SUBSCRIBED),
            (self.is_monitor, card_flag::MONITOR),
            (tracker.is_some(), card_flag::TRACKING),
            (tracker.is_some_and(|tracker| tracker.is_broadcast), card_flag::BROADCAST),
            (tracker.is_some_and(|t| t.is_broken.load(Relaxed)), card_flag::BROKEN),
        ] {
            flags |= if is_set { bit } else { 0 };
        }
        let queue = self.multi.as_ref().map_or((-1, 0), |m| (m.queue.len() as i64, m.bytes as u64));
        seen.active_ns.store(self.active_ns, Relaxed);
        seen.request_bytes.store(request_bytes as u64, Relaxed);
        seen.queued.store(queue.0, Relaxed);
        seen.queued_bytes.store(queue.1, Relaxed);
        for (count, topic) in seen.topics.iter().zip(Topic::ALL) {
            count.store(self.subscribed.count(topic) as u32, Relaxed);
        }
        let redirect = |tracker: &Arc<Tracker>| tracker.redirect().map_or(0, |card| card.id as i64);
        seen.redirect.store(tracker.map_or(-1, redirect), Relaxed);
        seen.row.store(self.last_row, Relaxed);
        seen.db.store(self.db, Relaxed);
        seen.flags.store(flags, Relaxed);
        self.publish_unsent(unsent_bytes, request_bytes);
    }

    /// Writes to the card what changes when replies have been sent.
    pub fn publish_unsent(&self, unsent_bytes: usize, request_bytes: usize) {
        let seen = self.card.seen();
        let memory_bytes = self.memory_bytes(unsent_bytes, request_bytes);
        seen.unsent_bytes.store(unsent_bytes as u64, Relaxed);
        seen.memory_bytes.store(memory_bytes as u64, Relaxed);
    }
}

/// How a client tracks keys.
#[derive(Debug)]
pub(crate) struct Tracks {
    pub tracker: Arc<Tracker>,
    /// Whether keys are tracked only when CLIENT CACHING YES was said.
    pub opt_in: bool,
    /// Whether keys are tracked unless CLIENT CACHING NO was said.
    pub opt_out: bool,
    /// Whether CLIENT CACHING counts for the next command.
    pub caching: bool,
    pub prefixes: Vec<Box<[u8]>>,
}

/// The names that a client has subscribed to, by their kinds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Subscribed(Option<Box<[Names; 3]>>);

type Names = BTreeSet<Box<[u8]>>;

impl Subscribed {
    /// Adds a name; false if it is there already.
    pub fn join(&mut self, topic: Topic, name: &[u8]) -> bool {
        self.0.get_or_insert_default()[topic as usize].insert(name.into())
    }

    /// Removes a name; false if it is not there.
    pub fn leave(&mut self, topic: Topic, name: &[u8]) -> bool {
        let was_there = self.0.as_mut().is_some_and(|names| names[topic as usize].remove(name));
        if was_there && !self.is_any() {
            self.0 = None;
        }
        was_there
    }

    /// Whether a name is there.
    pub fn has(&self, topic: Topic, name: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|names| names[topic as usize].contains(name))
    }

    /// Number of names of a kind.
    pub fn count(&self, topic: Topic) -> usize {
        self.0.as_ref().map_or(0, |names| names[topic as usize].len())
    }

    /// Whether there is any name.
    pub fn is_any(&self) -> bool {
        self.0.as_ref().is_some_and(|names| names.iter().any(|names| !names.is_empty()))
    }

    /// The names of a kind.
    pub fn names(&self, topic: Topic) -> Vec<Box<[u8]>> {
        let names = self.0.as_ref().map(|names| &names[topic as usize]);
        names.into_iter().flatten().cloned().collect()
    }

    fn bytes(&self) -> usize {
        let names = self.0.iter().flat_map(|names| names.iter().flatten());
        names.map(|name| name.len() + size_of::<Box<[u8]>>()).sum()
    }
}

/// The wait of a client for data.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// The end of the wait, monotonic time; `None`: it has no end.
    pub deadline_ns: Option<u64>,
    /// The memory that the waiting command takes.
    pub bytes: usize,
    /// Whether CLIENT REPLY has said that the command is not answered.
    pub is_silent: bool,
}

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    pub queue: Vec<Queued>,
    /// Whether a command could not be queued: then EXEC refuses.
    pub failed: bool,
    pub bytes: usize,
}

/// One queued command: an owned copy of its arguments.
#[derive(Debug)]
pub(crate) struct Queued {
    /// The command's row in the table.
    pub row: usize,
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl Queued {
    pub fn new(row: usize, args: Args<'_>) -> Self {
        let (bytes, spans) = args.to_owned();
        Self { row, bytes, spans }
    }

    /// The command with other arguments in the place of some, by their index.
    pub fn with(row: usize, args: Args<'_>, instead: &[(usize, Vec<u8>)]) -> Self {
        let (bytes, spans) = args.to_owned_with(instead);
        Self { row, bytes, spans }
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.spans)
    }
}
