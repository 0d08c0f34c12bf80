//! The line of the table about a command, apart from its code.

use crate::resp::Args;

/// The flags of a command that this server heeds, with Redis's names. `facts` has those that
/// clients see.
pub(crate) mod flag {
    pub const WRITE: u32 = 1;
    pub const READ: u32 = 1 << 1;
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const NOSCRIPT: u32 = 1 << 4;
    pub const LOADING: u32 = 1 << 5;
    pub const STALE: u32 = 1 << 6;
    pub const FAST: u32 = 1 << 7;
    pub const NOAUTH: u32 = 1 << 8;
    pub const NOMULTI: u32 = 1 << 9;
    /// The command may wait for data.
    pub const BLOCKING: u32 = 1 << 10;
    /// The command uses keys of other databases, or keys that no position names: it locks every
    /// shard, and so does an EXEC with it.
    pub const ALL_SHARDS: u32 = 1 << 16;
    /// The command reports on the store as a whole.
    pub const FACTS: u32 = 1 << 17;
    /// The command is carried out at once between MULTI and EXEC.
    pub const UNQUEUED: u32 = 1 << 18;
    /// The command has subcommands, each with its own line.
    pub const SUBS: u32 = 1 << 19;
    /// Where the command's keys are depends on its other arguments.
    pub const MOVABLE: u32 = 1 << 20;
    /// The command works on client and server state, and on no keys of its own.
    pub const STATE: u32 = 1 << 21;
    /// The command walks keys that its arguments do not name.
    pub const WALKS: u32 = 1 << 22;
    /// The command uses nothing of the values of its keys, but perhaps kind and expiry.
    pub const NOVALUE: u32 = 1 << 23;

    /// Argument 2 is a field of a hash, or a member.
    pub const FIELD: u32 = 1 << 24;
    /// Argument 3 is a member.
    pub const MEMBER: u32 = 1 << 25;

    /// The command is about channels and messages.
    pub const PUBSUB: u32 = 1 << 26;
    /// A client that has subscribed may give the command in RESP2, too.
    pub const SUBSCRIBED: u32 = 1 << 27;

    /// The command may go on in steps where it changes more than the budget has room for.
    pub const STEPS: u32 = 1 << 28;
    /// The command may name further keys by patterns: then it locks every shard.
    pub const BY_PATTERN: u32 = 1 << 29;
    /// The command runs a script, which may write.
    pub const SCRIPT: u32 = 1 << 30;
}

/// Which arguments are keys: from `first` to `last` (negative: from the end) by `step`; and where
/// argument `count_at` is not 0, as many as it says behind it; and those that an option names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub first: i32,
    pub last: i32,
    pub step: i32,
    pub count_at: usize,
    pub option: KeyOption,
}

/// The option of a command that names keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOption {
    None,
    /// STORE of SORT.
    Store,
    /// KEYS of MIGRATE, which has no other keys then.
    Keys,
}

impl Keys {
    /// In the place of `count_at`: the keys are the first half of what follows the word STREAMS.
    pub const BEHIND_STREAMS: usize = usize::MAX;

    /// The indices of the keys among the arguments.
    pub fn indices(self, args: Args<'_>) -> impl Iterator<Item = usize> {
        let counted = self.counted(args).unwrap_or(0..0);
        let len = args.len() as i32;
        let last = if self.last < 0 { len + self.last } else { self.last }.min(len - 1);
        let end = if self.first == 0 { -1 } else { last };
        let named = match self.option {
            KeyOption::None => 0..0,
            KeyOption::Store => super::sort::destination(args).map_or(0..0, |at| at..at + 1),
            KeyOption::Keys => super::migrate::keys_at(args).map_or(0..0, |at| at..args.len()),
        };
        let end = if self.option == KeyOption::Keys && !named.is_empty() { -1 } else { end };
        let fixed = (self.first..=end).step_by(self.step.max(1) as usize).map(|i| i as usize);
        fixed.chain(counted).chain(named)
    }

    /// The indices of the keys that are counted; none if the count makes no sense.
    pub fn counted(self, args: Args<'_>) -> Option<std::ops::Range<usize>> {
        if self.count_at == 0 {
            return Some(0..0);
        }
        if self.count_at == Self::BEHIND_STREAMS {
            return behind_streams(args);
        }
        let first = self.count_at + 1;
        let count = crate::number::parse_i64(args.get(self.count_at))?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
        (count <= args.len().checked_sub(first)?).then(|| first..first + count)
    }

    /// Whether no argument is a key.
    pub fn is_none(self) -> bool {
        self.first == 0 && self.count_at == 0
    }

    /// Whether there is always one key, at the same place, or never any.
    pub fn is_one(self) -> bool {
        self.first == self.last && self.count_at == 0 && self.option == KeyOption::None
    }
}

/// The first half of the arguments behind STREAMS, among the options of XREAD and XREADGROUP.
fn behind_streams(args: Args<'_>) -> Option<std::ops::Range<usize>> {
    let mut at = 1;
    while at < args.len() {
        let (word, more) = (args.get(at).to_ascii_uppercase(), args.len() - at - 1);
        at += match &word[..] {
            b"BLOCK" | b"COUNT" if more > 0 => 2,
            b"GROUP" if more >= 2 => 3,
            b"NOACK" => 1,
            b"STREAMS" if more > 0 && more % 2 == 0 => return Some(at + 1..at + 1 + more / 2),
            _ => return None,
        };
    }
    None
}

/// The families of commands, by COMMAND DOCS and by files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Stream,
    Bitmap,
    HyperLogLog,
    Geo,
    PubSub,
    Generic,
    Connection,
    Server,
    Transactions,
    Scripting,
}

impl Group {
    /// The name of the family in COMMAND DOCS.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Stream => "stream",
            Self::Bitmap => "bitmap",
            Self::HyperLogLog => "hyperloglog",
            Self::Geo => "geo",
            Self::PubSub => "pubsub",
            Self::Generic => "generic",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Transactions => "transactions",
            Self::Scripting => "scripting",
        }
    }
}

/// One line of the table.
pub(crate) struct Spec {
    /// The name in lower case; a subcommand's is `container|name`.
    pub name: &'static str,
    /// Number of arguments with the command's name; negative: the least number.
    pub arity: i32,
    pub flags: u32,
    pub keys: Keys,
    pub group: Group,
    pub since: &'static str,
    pub summary: &'static str,
}

impl Spec {
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether the command with these arguments locks every shard.
    pub fn needs_all_shards(&self, args: Args<'_>) -> bool {
        self.has(flag::ALL_SHARDS) || self.has(flag::BY_PATTERN) && super::sort::names_others(args)
    }

    pub fn accepts(&self, args: usize) -> bool {
        let args = args as i32;
        if self.arity >= 0 { args == self.arity } else { args >= -self.arity }
    }

    /// The argument that names a field or a member, if there is one.
    pub fn field_at(&self) -> Option<usize> {
        match self.flags & (flag::FIELD | flag::MEMBER) {
            0 => None,
            flag::FIELD => Some(2),
            _ => Some(3),
        }
    }

    /// Bytes that the client wants to be kept: all arguments of a write but the command's name.
    pub fn user_bytes(&self, args: Args<'_>) -> u64 {
        if self.has(flag::WRITE) { args.from(1).map(|arg| arg.len() as u64).sum() } else { 0 }
    }

    /// The part of the name after the container's.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, sub)| sub)
    }

    pub fn is_sub(&self) -> bool {
        self.name.contains('|')
    }
}

impl std::fmt::Debug for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
