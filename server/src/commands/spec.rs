//! What the table says about a command, and how a command's code is called.

use std::cell::Cell;

use perdura_store::{Entry, Key, Tx};

use super::context::Context;
use super::error::CommandError;
use super::keyspace::Keyspace;
use crate::resp::{Args, Reply};

pub(crate) type Outcome = Result<(), CommandError>;

/// What a command's function is given besides the data.
pub(crate) struct Call<'c, 'o> {
    pub args: Args<'c>,
    pub db: u8,
    pub now_ms: u64,
    pub reply: &'c mut Reply<'o>,
    pub random: &'c Random,
}

impl<'c> Call<'c, '_> {
    /// Argument `index` as a key of the client's database.
    pub fn key(&self, index: usize) -> Key<'c> {
        Key { db: self.db, bytes: self.args.get(index) }
    }

    /// Argument `index` as an integer.
    pub fn int(&self, index: usize) -> Result<i64, CommandError> {
        crate::number::parse_i64(self.args.get(index)).ok_or(CommandError::NotInteger)
    }
}

/// How a command is carried out. Data commands run the same alone and inside EXEC; a function may
/// be called again after everything it did was rolled back.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Answers from one key's entry: no transaction when alone.
    Read(for<'r, 'c, 'o, 'e> fn(&'r mut Call<'c, 'o>, Option<&'r Entry<'e>>) -> Outcome),
    /// Answers from one field (argument 2) of one hash (argument 1).
    Field(for<'r, 'c, 'o> fn(&'r mut Call<'c, 'o>, Option<&'r [u8]>) -> Outcome),
    /// Reads and writes the keys of its arguments. Fails before its first change, or with
    /// [`CommandError::Tx`].
    Data(for<'r, 'c, 'o, 's> fn(&'r mut Call<'c, 'o>, &'r mut Tx<'s>) -> Outcome),
    /// Walks keys that its arguments do not name.
    Keyspace(for<'r, 'c, 'o, 's, 't> fn(&'r mut Call<'c, 'o>, &'r mut Keyspace<'s, 't>) -> Outcome),
    /// Client and server state; never touches keys from inside a transaction.
    Control(for<'r, 'c, 'a, 'o, 'x> fn(&'r mut Context<'c, 'a, 'o>, Args<'x>) -> Outcome),
    /// Only a name: its subcommands have their own lines.
    Container,
}

/// Flags; the names are Redis's.
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
    /// Keys of other databases or keys no position names: EXEC and the command lock every shard.
    pub const ALL_SHARDS: u32 = 1 << 16;
    /// Reports on the store as a whole.
    pub const FACTS: u32 = 1 << 17;
    /// Carried out at once between MULTI and EXEC.
    pub const UNQUEUED: u32 = 1 << 18;
    /// Has subcommands, each with its own line.
    pub const SUBS: u32 = 1 << 19;
    /// An argument says how many keys follow it.
    pub const MOVABLE: u32 = 1 << 20;

    /// Those COMMAND INFO shows.
    pub const SHOWN: [(u32, &str); 11] = [
        (WRITE, "write"),
        (READ, "readonly"),
        (DENYOOM, "denyoom"),
        (ADMIN, "admin"),
        (NOSCRIPT, "noscript"),
        (LOADING, "loading"),
        (STALE, "stale"),
        (FAST, "fast"),
        (NOAUTH, "no_auth"),
        (NOMULTI, "no_multi"),
        (MOVABLE, "movablekeys"),
    ];
}

/// Which arguments are keys: from `first` to `last` (negative: from the end) by `step`; and where
/// argument `count_at` is not 0, as many as it says behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub first: i32,
    pub last: i32,
    pub step: i32,
    pub count_at: usize,
}

impl Keys {
    /// The indices of the keys among the arguments.
    pub fn indices(self, args: Args<'_>) -> impl Iterator<Item = usize> {
        let counted = self.counted(args).unwrap_or(0..0);
        let len = args.len() as i32;
        let last = if self.last < 0 { len + self.last } else { self.last }.min(len - 1);
        let end = if self.first == 0 { -1 } else { last };
        let fixed = (self.first..=end).step_by(self.step.max(1) as usize).map(|i| i as usize);
        fixed.chain(counted)
    }

    /// The indices of the keys that are counted; none if the count makes no sense.
    pub fn counted(self, args: Args<'_>) -> Option<std::ops::Range<usize>> {
        if self.count_at == 0 {
            return Some(0..0);
        }
        let first = self.count_at + 1;
        let count = crate::number::parse_i64(args.get(self.count_at))?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
        (count <= args.len().checked_sub(first)?).then(|| first..first + count)
    }

    /// Whether there is always one key, and where.
    pub fn is_one(self) -> bool {
        self.first == self.last && self.count_at == 0
    }
}

/// The families of COMMAND DOCS, of ACL categories and of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    String,
    Hash,
    SortedSet,
    Generic,
    Connection,
    Server,
    Transactions,
}

impl Group {
    /// As COMMAND DOCS spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::SortedSet => "sorted-set",
            Self::Generic => "generic",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Transactions => "transactions",
        }
    }

    /// The ACL category, if it has one.
    pub fn category(self) -> Option<&'static str> {
        match self {
            Self::String => Some("@string"),
            Self::Hash => Some("@hash"),
            Self::SortedSet => Some("@sortedset"),
            Self::Generic => Some("@keyspace"),
            Self::Connection => Some("@connection"),
            Self::Transactions => Some("@transaction"),
            Self::Server => None,
        }
    }
}

/// One line of the table.
pub(crate) struct Spec {
    /// Lower case; a subcommand is `container|name`.
    pub name: &'static str,
    /// Arguments including the name(s); negative: at least so many.
    pub arity: i32,
    pub flags: u32,
    pub keys: Keys,
    pub group: Group,
    pub since: &'static str,
    pub summary: &'static str,
    pub handler: Handler,
}

impl Spec {
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    pub fn accepts(&self, args: usize) -> bool {
        let args = args as i32;
        if self.arity >= 0 { args == self.arity } else { args >= -self.arity }
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

/// A seeded source of small random choices (xorshift64*; nothing secret depends on it).
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed ^ 0x9e37_79b9_7f4a_7c15 | 1))
    }

    /// A number below `bound` (which is at least 1).
    pub fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        ((u128::from(x.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(bound)) >> 64) as u64
    }
}
