//! What is known of a client outside of its loop: shown by CLIENT LIST, and killed by CLIENT KILL.
//!
//! The client's loop writes the card once for each part that the client has of a turn, so another
//! loop sees the state at the end of the last one.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::acl::{User, Users};
use crate::session::{About, Peer};

/// A client, as other threads see it.
#[derive(Debug)]
pub(crate) struct Card {
    pub id: u64,
    pub fd: i32,
    pub peer: Peer,
    /// Number of the client's loop.
    pub of_loop: usize,
    pub created_ns: u64,
    /// Place of the connection in its loop; [`NO_SLOT`] until it has one.
    pub slot: AtomicU32,
    is_killed: AtomicBool,
    waits: AtomicBool,
    is_gone: AtomicBool,
    about: Mutex<Option<Box<About>>>,
    seen: Seen,
}

/// The parts of a client's state that change.
#[derive(Debug)]
pub(crate) struct Seen {
    pub active_ns: AtomicU64,
    pub unsent_bytes: AtomicU64,
    pub request_bytes: AtomicU64,
    pub memory_bytes: AtomicU64,
    pub queued_bytes: AtomicU64,
    /// Commands that MULTI has queued; -1 without MULTI.
    pub queued: AtomicI64,
    /// Channels, patterns and shard channels that the client has subscribed to.
    pub topics: [AtomicU32; 3],
    /// Row of the last command in the table; [`NO_COMMAND`] before the first.
    pub row: AtomicU16,
    pub db: AtomicU8,
    pub flags: AtomicU16,
    /// The client that gets the messages of this one's tracking: 0 if it is this one, -1 without
    /// tracking.
    pub redirect: AtomicI64,
}

/// The row before a client's first command.
pub(crate) const NO_COMMAND: u16 = u16::MAX;

/// The slot of a client that its loop does not have yet.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Bits of [`Seen::flags`], and the letters that CLIENT LIST shows for them.
pub(crate) mod flag {
    pub const PAUSED: u16 = 1;
    pub const CLOSING: u16 = 2;
    pub const NO_EVICT: u16 = 4;
    pub const NO_TOUCH: u16 = 8;
    pub const RESP3: u16 = 16;
    pub const SUBSCRIBED: u16 = 32;
    pub const TRACKING: u16 = 64;
    pub const BROADCAST: u16 = 128;
    pub const BROKEN: u16 = 256;
    pub const MONITOR: u16 = 512;
    pub const COPYING: u16 = 1024;
}

impl Card {
    pub fn new(id: u64, fd: i32, peer: Peer, of_loop: usize, now_ns: u64) -> Self {
        let seen = Seen {
            active_ns: AtomicU64::new(now_ns),
            unsent_bytes: AtomicU64::new(0),
            request_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            queued: AtomicI64::new(-1),
            topics: Default::default(),
            row: AtomicU16::new(NO_COMMAND),
            db: AtomicU8::new(0),
            flags: AtomicU16::new(0),
            redirect: AtomicI64::new(-1),
        };
        let (is_killed, is_gone) = (AtomicBool::new(false), AtomicBool::new(false));
        let about = Mutex::new(None);
        let slot = AtomicU32::new(NO_SLOT);
        let waits = AtomicBool::new(false);
        Self {
            id,
            fd,
            peer,
            of_loop,
            created_ns: now_ns,
            slot,
            is_killed,
            waits,
            is_gone,
            about,
            seen,
        }
    }

    /// The state, which only the client's loop writes.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Marks the client as killed; false if it was before.
    pub fn kill(&self) -> bool {
        !self.is_killed.swap(true, Relaxed)
    }

    /// Notes that the connection is closed, or about to be.
    pub fn leave(&self) {
        self.is_gone.store(true, Release);
    }

    /// Whether the client has gone.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Acquire) || self.is_killed()
    }

    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed)
    }

    /// Notes whether the client waits for data.
    pub fn set_waits(&self, waits: bool) {
        self.waits.store(waits, Relaxed);
    }

    /// The name and the library that the client has told, if any.
    pub fn about(&self) -> MutexGuard<'_, Option<Box<About>>> {
        // The texts are whole whatever thread has panicked.
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that the client has given itself; empty if none.
    pub fn name(&self) -> Vec<u8> {
        self.about().as_ref().map_or(Vec::new(), |about| about.name.clone())
    }

    /// The client's user as it is among `users`; none if it is gone.
    pub fn user<'u>(&self, users: &'u Users) -> Option<&'u Arc<User>> {
        match self.about().as_ref().and_then(|about| about.user.as_ref()) {
            None => Some(users.default()),
            Some(user) => users.get(&user.name).filter(|known| known.id == user.id),
        }
    }

    /// Whether the client is the user with this name.
    pub fn is_user(&self, name: &[u8]) -> bool {
        let about = self.about();
        let user = about.as_ref().and_then(|about| about.user.as_ref());
        user.map_or(&b"default"[..], |user| &user.name) == name
    }

    /// Whether the client has subscribed to anything.
    pub fn is_subscribed(&self) -> bool {
        self.seen.flags.load(Relaxed) & flag::SUBSCRIBED != 0
    }

    /// Whether the client gets a copy of everything.
    pub fn is_copying(&self) -> bool {
        self.seen.flags.load(Relaxed) & flag::COPYING != 0
    }

    /// Whether the client waits for CLIENT UNPAUSE.
    pub fn is_paused(&self) -> bool {
        self.seen.flags.load(Relaxed) & flag::PAUSED != 0
    }

    /// The line of CLIENT LIST and CLIENT INFO. `name_of` names the command in a row.
    pub fn describe(
        &self,
        now_ns: u64,
        argument_bytes: usize,
        name_of: impl Fn(u16) -> &'static str,
    ) -> String {
        let seen = &self.seen;
        let (addr, local) = match self.peer {
            Peer::Tcp { addr, local } => (addr.to_string(), local.to_string()),
            Peer::Unix => ("unix:0".to_owned(), "unix:0".to_owned()),
        };
        let (bits, queued) = (seen.flags.load(Relaxed), seen.queued.load(Relaxed));
        let mut letters = String::new();
        for (is_set, letter) in [
            (bits & flag::COPYING != 0, 'S'),
            (bits & flag::MONITOR != 0, 'O'),
            (bits & flag::SUBSCRIBED != 0, 'P'),
            (queued >= 0, 'x'),
            (bits & flag::PAUSED != 0 || self.waits.load(Relaxed), 'b'),
            (bits & flag::TRACKING != 0, 't'),
            (bits & flag::BROKEN != 0, 'R'),
            (bits & flag::BROADCAST != 0, 'B'),
            (bits & flag::CLOSING != 0 || self.is_killed(), 'c'),
            (matches!(self.peer, Peer::Unix), 'U'),
            (bits & flag::NO_EVICT != 0, 'e'),
            (bits & flag::NO_TOUCH != 0, 'T'),
        ] {
            if is_set {
                letters.push(letter);
            }
        }
        if letters.is_empty() {
            letters.push('N');
        }
        let seconds = |since: u64| now_ns.saturating_sub(since) / 1_000_000_000;
        let about = self.about();
        let text = |of: fn(&About) -> &Vec<u8>| {
            about.as_deref().map_or(String::new(), |a| String::from_utf8_lossy(of(a)).into())
        };
        let row = seen.row.load(Relaxed);
        let [sub, psub, ssub] = seen.topics.each_ref().map(|count| count.load(Relaxed));
        format!(
            "id={} addr={addr} laddr={local} fd={} name={} age={} idle={} flags={letters} db={} \
             sub={sub} psub={psub} ssub={ssub} multi={queued} qbuf={} qbuf-free=0 \
             argv-mem={argument_bytes} multi-mem={} rbs=0 rbp=0 obl={unsent} oll=0 omem={unsent} \
             tot-mem={} events=r cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
            self.id,
            self.fd,
            text(|a| &a.name),
            seconds(self.created_ns),
            seconds(seen.active_ns.load(Relaxed)),
            seen.db.load(Relaxed),
            seen.request_bytes.load(Relaxed),
            seen.queued_bytes.load(Relaxed),
            seen.memory_bytes.load(Relaxed),
            if row == NO_COMMAND { "NULL" } else { name_of(row) },
            String::from_utf8_lossy(
                about.as_ref().and_then(|a| a.user.as_ref()).map_or(b"default", |user| &user.name)
            ),
            seen.redirect.load(Relaxed),
            if bits & flag::RESP3 != 0 { 3 } else { 2 },
            text(|a| &a.lib_name),
            text(|a| &a.lib_ver),
            unsent = seen.unsent_bytes.load(Relaxed),
        )
    }
}
