//! What Redis says about each of its commands: flags, ACL categories, and where keys are and what
//! is done with them.
//!
//! [`FACTS`] has a line for every command of Redis 7.2, offered here or not, so that rules about
//! users read the same as there, and for this server's own commands. Each line of the table of
//! commands needs one: a server without it does not start, and a test names it.

mod data;
mod keys;

pub(crate) use data::FACTS;
pub(crate) use keys::{KeyAt, keys_of};

/// The flags that COMMAND INFO shows, by their names there.
pub(crate) mod shown {
    pub const WRITE: u32 = 1;
    pub const READ: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const PUBSUB: u32 = 1 << 4;
    pub const NOSCRIPT: u32 = 1 << 5;
    pub const BLOCKING: u32 = 1 << 6;
    pub const LOADING: u32 = 1 << 7;
    pub const STALE: u32 = 1 << 8;
    pub const SKIP_MONITOR: u32 = 1 << 9;
    pub const SKIP_SLOWLOG: u32 = 1 << 10;
    pub const ASKING: u32 = 1 << 11;
    pub const FAST: u32 = 1 << 12;
    pub const NO_AUTH: u32 = 1 << 13;
    pub const MAY_REPLICATE: u32 = 1 << 14;
    pub const NO_MULTI: u32 = 1 << 15;
    pub const ALLOW_BUSY: u32 = 1 << 16;
    pub const NO_ASYNC_LOADING: u32 = 1 << 17;
    pub const NO_MANDATORY_KEYS: u32 = 1 << 18;
    pub const TOUCHES_ARBITRARY_KEYS: u32 = 1 << 19;
    pub const MOVABLE_KEYS: u32 = 1 << 20;

    /// The name of each flag, in the order of its bits.
    pub const NAMES: [&str; 21] = [
        "write",
        "readonly",
        "denyoom",
        "admin",
        "pubsub",
        "noscript",
        "blocking",
        "loading",
        "stale",
        "skip_monitor",
        "skip_slowlog",
        "asking",
        "fast",
        "no_auth",
        "may_replicate",
        "no_multi",
        "allow_busy",
        "no_async_loading",
        "no_mandatory_keys",
        "touches_arbitrary_keys",
        "movablekeys",
    ];
}

/// The categories of commands in rules about users.
pub(crate) mod category {
    pub const KEYSPACE: u32 = 1;
    pub const READ: u32 = 1 << 1;
    pub const WRITE: u32 = 1 << 2;
    pub const SET: u32 = 1 << 3;
    pub const SORTEDSET: u32 = 1 << 4;
    pub const LIST: u32 = 1 << 5;
    pub const HASH: u32 = 1 << 6;
    pub const STRING: u32 = 1 << 7;
    pub const BITMAP: u32 = 1 << 8;
    pub const HYPERLOGLOG: u32 = 1 << 9;
    pub const GEO: u32 = 1 << 10;
    pub const STREAM: u32 = 1 << 11;
    pub const PUBSUB: u32 = 1 << 12;
    pub const ADMIN: u32 = 1 << 13;
    pub const FAST: u32 = 1 << 14;
    pub const SLOW: u32 = 1 << 15;
    pub const BLOCKING: u32 = 1 << 16;
    pub const DANGEROUS: u32 = 1 << 17;
    pub const CONNECTION: u32 = 1 << 18;
    pub const TRANSACTION: u32 = 1 << 19;
    pub const SCRIPTING: u32 = 1 << 20;

    /// The name of each category, in the order of its bits, which is that of ACL CAT.
    pub const NAMES: [&str; 21] = [
        "keyspace",
        "read",
        "write",
        "set",
        "sortedset",
        "list",
        "hash",
        "string",
        "bitmap",
        "hyperloglog",
        "geo",
        "stream",
        "pubsub",
        "admin",
        "fast",
        "slow",
        "blocking",
        "dangerous",
        "connection",
        "transaction",
        "scripting",
    ];

    /// The bit of a category, by its name in upper or lower case.
    pub fn find(name: &[u8]) -> Option<u32> {
        let at = NAMES.iter().position(|known| name.eq_ignore_ascii_case(known.as_bytes()))?;
        Some(1 << at)
    }
}

/// What a command does with a key.
pub(crate) mod access {
    /// Reads the value, and does not change it.
    pub const RO: u16 = 1;
    /// Reads and changes the value.
    pub const RW: u16 = 1 << 1;
    /// Replaces the value, whatever it was.
    pub const OW: u16 = 1 << 2;
    /// Removes the key.
    pub const RM: u16 = 1 << 3;
    /// Tells of the user's data.
    pub const ACCESS: u16 = 1 << 4;
    /// Changes the user's data, perhaps by what was there.
    pub const UPDATE: u16 = 1 << 5;
    /// Adds data, and changes none that is there.
    pub const INSERT: u16 = 1 << 6;
    /// Removes data.
    pub const DELETE: u16 = 1 << 7;
    /// Not a key, but decides like one where a cluster carries the command out.
    pub const NOT_KEY: u16 = 1 << 8;
    /// There may be more keys than are described.
    pub const INCOMPLETE: u16 = 1 << 9;
    /// What is done with the key follows from the other arguments.
    pub const VARIABLE_FLAGS: u16 = 1 << 10;

    /// The name of each flag, in the order of its bits.
    pub const NAMES: [&str; 11] = [
        "RO",
        "RW",
        "OW",
        "RM",
        "access",
        "update",
        "insert",
        "delete",
        "not_key",
        "incomplete",
        "variable_flags",
    ];
}

/// Where the search for keys begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At an argument.
    Index(i32),
    /// Behind a word, which is looked for from an argument on (negative: from the end, backwards).
    Keyword(&'static str, i32),
    Unknown,
}

/// Which arguments are keys, from where the search has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Find {
    /// As far as `last` (negative: from the end), each `step`; with a limit, of the arguments only
    /// the first part (one in `limit`).
    Range {
        last: i32,
        step: i32,
        limit: i32,
    },
    /// As many as argument `count_at` says, from argument `first` on.
    Counted {
        count_at: i32,
        first: i32,
    },
    Unknown,
}

/// Some keys of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeySpec {
    pub access: u16,
    pub begin: Begin,
    pub find: Find,
}

/// The line about one command.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The name in lower case; a subcommand's is `container|name`.
    pub name: &'static str,
    /// Bits of [`shown`].
    pub flags: u32,
    /// Bits of [`category`].
    pub categories: u32,
    pub keys: &'static [KeySpec],
    /// Redis' hints for clients.
    pub tips: &'static [&'static str],
    /// First key, last key and step, for clients that know no more.
    pub range: (i32, i32, i32),
}

impl Facts {
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// The channels among a command's arguments, if it has any.
    pub fn channels(&self) -> Option<Channels> {
        let (count, is_pattern) = match self.name {
            "publish" | "spublish" => (1, false),
            "subscribe" | "ssubscribe" => (usize::MAX, false),
            "psubscribe" => (usize::MAX, true),
            _ => return None,
        };
        Some(Channels { count, is_pattern })
    }
}

/// The channels of a command, from its first argument on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Channels {
    /// The most of them.
    pub count: usize,
    /// Whether they are patterns.
    pub is_pattern: bool,
}

/// The row of the facts about a command.
pub(crate) fn find(name: &str) -> Option<usize> {
    // DEBUG has no subcommands in Redis: its first word is an argument.
    let name = if name.starts_with("debug|") { "debug" } else { name };
    FACTS.binary_search_by(|facts| facts.name.cmp(name)).ok()
}

/// The row of the facts about a command whose name is in upper or lower case.
pub(crate) fn find_ignoring_case(name: &[u8]) -> Option<usize> {
    let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
    FACTS.binary_search_by(|facts| facts.name.cmp(&name)).ok()
}

/// The rows of a container's subcommands.
pub(crate) fn subcommands(container: usize) -> impl Iterator<Item = usize> {
    let name = FACTS[container].name;
    FACTS.iter().enumerate().filter_map(move |(row, facts)| {
        facts.name.strip_prefix(name)?.starts_with('|').then_some(row)
    })
}
