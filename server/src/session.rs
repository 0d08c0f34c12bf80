//! One client's state between commands. It is small, because idle clients are many.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use perdura_store::Watch;

use crate::resp::{Args, Span};

/// The mode that CLIENT REPLY has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    Off,
    /// The next command is not answered.
    SkipNext,
}

/// The name and the library that a client has told of itself.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_ver: Vec<u8>,
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
    pub id: u64,
    pub fd: i32,
    pub db: u8,
    pub resp3: bool,
    pub authenticated: bool,
    pub no_evict: bool,
    pub no_touch: bool,
    /// Whether the connection closes when its replies have been sent.
    pub closing: bool,
    /// Whether the connection closes at the end of the turn, even if replies are unsent.
    pub killed: bool,
    pub reply_mode: ReplyMode,
    pub peer: Peer,
    pub about: Option<Box<About>>,
    pub multi: Option<Box<Multi>>,
    /// The keys WATCH has named, by database and name: a command may name hundreds of thousands.
    pub watched: BTreeMap<(u8, Box<[u8]>), Watch>,
    /// Bytes that were received and not carried out when the present command began, its own among
    /// them.
    pub request_bytes: usize,
    /// Whether the next command waits for CLIENT UNPAUSE.
    pub is_paused: bool,
    pub created_ns: u64,
    pub active_ns: u64,
    /// Name of the last command.
    pub last: Option<&'static str>,
}

impl Session {
    pub fn new(id: u64, fd: i32, peer: Peer, authenticated: bool, now_ns: u64) -> Self {
        Self {
            id,
            fd,
            db: 0,
            resp3: false,
            authenticated,
            no_evict: false,
            no_touch: false,
            closing: false,
            killed: false,
            reply_mode: ReplyMode::On,
            peer,
            about: None,
            multi: None,
            watched: BTreeMap::new(),
            request_bytes: 0,
            is_paused: false,
            created_ns: now_ns,
            active_ns: now_ns,
            last: None,
        }
    }

    pub fn about_mut(&mut self) -> &mut About {
        self.about.get_or_insert_default()
    }

    pub fn unwatch(&mut self) {
        self.watched = BTreeMap::new();
    }

    /// Makes everything but the connection itself as it is after connecting (RESET).
    pub fn reset(&mut self, authenticated: bool) {
        *self = Self {
            created_ns: self.created_ns,
            last: self.last,
            ..Self::new(self.id, self.fd, self.peer, authenticated, self.active_ns)
        };
    }

    /// The memory that the client takes, with so many bytes of replies and requests in its own
    /// buffers.
    pub fn memory_bytes(&self, unsent_bytes: usize, pending_bytes: usize) -> usize {
        let queued_bytes = self.multi.as_ref().map_or(0, |multi| multi.bytes);
        size_of::<Self>() + unsent_bytes + pending_bytes + queued_bytes
    }

    /// The line of CLIENT LIST and CLIENT INFO.
    pub fn describe(
        &self,
        now_ns: u64,
        unsent_bytes: usize,
        request_bytes: usize,
        argument_bytes: usize,
    ) -> String {
        let (addr, local) = match self.peer {
            Peer::Tcp { addr, local } => (addr.to_string(), local.to_string()),
            Peer::Unix => ("unix:0".to_owned(), "unix:0".to_owned()),
        };
        let mut flags = String::new();
        for (set, flag) in [
            (self.multi.is_some(), 'x'),
            (self.is_paused, 'b'),
            (self.closing || self.killed, 'c'),
            (matches!(self.peer, Peer::Unix), 'U'),
            (self.no_evict, 'e'),
            (self.no_touch, 'T'),
        ] {
            if set {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let text = |of: fn(&About) -> &Vec<u8>| {
            self.about.as_deref().map_or(String::new(), |a| String::from_utf8_lossy(of(a)).into())
        };
        let seconds = |since: u64| now_ns.saturating_sub(since) / 1_000_000_000;
        let (queued, queued_bytes) =
            self.multi.as_ref().map_or((-1, 0), |m| (m.queue.len() as i64, m.bytes));
        format!(
            "id={} addr={addr} laddr={local} fd={} name={} age={} idle={} flags={flags} db={} \
             sub=0 psub=0 ssub=0 multi={queued} qbuf={request_bytes} qbuf-free=0 \
             argv-mem={argument_bytes} multi-mem={queued_bytes} \
             rbs=0 rbp=0 obl={unsent_bytes} oll=0 omem={unsent_bytes} tot-mem={} events=r cmd={} \
             user=default redir=-1 resp={} lib-name={} lib-ver={}",
            self.id,
            self.fd,
            text(|a| &a.name),
            seconds(self.created_ns),
            seconds(self.active_ns),
            self.db,
            self.memory_bytes(unsent_bytes, request_bytes),
            self.last.unwrap_or("NULL"),
            if self.resp3 { 3 } else { 2 },
            text(|a| &a.lib_name),
            text(|a| &a.lib_ver),
        )
    }
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

    pub fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(&*self.spans)
    }
}
