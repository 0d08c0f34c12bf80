//! Any server that speaks the Redis protocol, with records as in YCSB's Redis binding: a hash for
//! each, and for scans a sorted set of all keys, scored by Java's hash of the key.
//!
//! With a pipeline of 1 each operation waits for its replies. With more, operations are queued and
//! sent together; a scan first ends the queued ones, because its second request depends on its
//! first reply.

use std::collections::VecDeque;
use std::hint::black_box;

use super::resp::{Connection, Reply};
use super::store::touch;
use super::{Figures, Key, Outcome, Session, Target, TargetError, Write};
use crate::hash::java_hash;
use crate::machine::cpu_ns_of;
use crate::workload::{Layout, RecordKind};

/// YCSB's name for the index of scans.
const INDEX_KEY: &[u8] = b"_indices";
const LOCAL: [&str; 3] = ["127.", "localhost:", "[::1]:"];

/// A server under test.
#[derive(Debug)]
pub struct RedisTarget {
    address: String,
    password: Option<String>,
    layout: Layout,
    /// Whether inserts also enter the key in the index of scans.
    indexed: bool,
    /// Process of the server, if it runs on this machine.
    pid: Option<u32>,
    about: String,
}

impl RedisTarget {
    /// Connects to the server at `address` and asks for its version.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or lacks the commands that scans need.
    pub fn connect(
        address: &str,
        password: Option<String>,
        layout: Layout,
        indexed: bool,
    ) -> Result<Self, TargetError> {
        let mut connection = Connection::open(address, password.as_deref())?;
        let info = connection.ask_text(&[b"INFO"])?;
        let line = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let is_local = LOCAL.iter().any(|prefix| address.starts_with(prefix));
        let pid = line("process_id").and_then(|pid| pid.parse().ok());
        let pid = pid.filter(|pid| is_local && cpu_ns_of(*pid).is_some());
        let about = match (line("perdura_version"), line("redis_version")) {
            (Some(version), _) => format!("perdura {version}"),
            (None, Some(version)) => format!("redis {version}"),
            (None, None) => "a server that does not say what it is".into(),
        };
        if indexed {
            // This request names no key, so nothing changes, but a server without sorted sets
            // refuses it.
            connection.request(&[b"ZREM", INDEX_KEY, b""]);
            if let Reply::Error(_) = connection.ask()? {
                return Err(TargetError::Unsupported {
                    what: "sorted sets, which YCSB's Redis binding needs for scans (workload e)",
                });
            }
        }
        Ok(Self { address: address.to_owned(), password, layout, indexed, pid, about })
    }

    /// Process of the server, if it runs on this machine.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }
}

impl Target for RedisTarget {
    fn describe(&self) -> String {
        match self.pid {
            Some(pid) => format!("{} at {}, process {pid}", self.about, self.address),
            None => format!("{} at {}, not on this machine", self.about, self.address),
        }
    }

    fn session(&self, pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError> {
        Ok(Box::new(RedisSession {
            connection: Connection::open(&self.address, self.password.as_deref())?,
            layout: &self.layout,
            indexed: self.indexed,
            queues: pipeline > 1,
            queued: VecDeque::new(),
            ended: VecDeque::new(),
        }))
    }

    fn figures(&self) -> Result<Figures, TargetError> {
        let mut connection = Connection::open(&self.address, self.password.as_deref())?;
        let info = connection.ask_text(&[b"INFO"])?;
        // All numbers: figures of Perdura's region have the same names as those of an embedded one.
        let number = |line: &str| {
            let (name, value) = line.trim().split_once(':')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let all: Figures = info.lines().filter_map(number).collect();
        let mut figures: Figures =
            SHOWN.iter().filter_map(|name| Some(((*name).to_owned(), all.get(name)?))).collect();
        if let Some(used) = all.get("used_memory") {
            figures.set("used_bytes", used);
        }
        Ok(figures)
    }

    fn cpu_ns(&self) -> Option<u64> {
        cpu_ns_of(self.pid?)
    }
}

/// The fields of INFO that go into a result.
const SHOWN: [&str; 34] = [
    "budget_bytes",
    "dirty_bytes",
    "dirty_bytes_max",
    "log_bytes",
    "user_bytes",
    "dirtied_bytes",
    "dropped_bytes",
    "cleaned_bytes",
    "drained_bytes",
    "captured_bytes",
    "compacted_bytes",
    "compaction_read_bytes",
    "prezeroed_bytes",
    "compression_in_bytes",
    "compression_out_bytes",
    "compression_cpu_ns",
    "compressed_frames",
    "device_bytes",
    "frames",
    "device_flushes",
    "checkpoints",
    "group_commits",
    "checkpoint_ns",
    "cut_ns_max",
    "stalls",
    "stall_ns",
    "stall_ns_max",
    "faults",
    "reprotections",
    "total_commands_processed",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "evicted_keys",
    "total_error_replies",
];

struct RedisSession<'t> {
    connection: Connection,
    layout: &'t Layout,
    indexed: bool,
    queues: bool,
    /// Operations whose replies are still to come.
    queued: VecDeque<Expected>,
    /// Operations that a scan has ended and that are not yet reported.
    ended: VecDeque<Result<Outcome, TargetError>>,
}

/// The replies of one operation: their number, and whether the first is a read's.
#[derive(Debug, Clone, Copy)]
struct Expected {
    replies: usize,
    reads_first: bool,
}

impl RedisSession<'_> {
    /// Sends the request in the buffer, now or with later ones.
    fn go(&mut self, expected: Expected) -> Result<Outcome, TargetError> {
        if self.queues {
            self.queued.push_back(expected);
            return Ok(Outcome::Queued);
        }
        self.connection.send()?;
        self.outcome(expected)
    }

    /// Reads all replies of an operation, even after an error among them: the next operation's
    /// replies follow.
    fn outcome(&mut self, expected: Expected) -> Result<Outcome, TargetError> {
        let (mut outcome, mut refused) = (Outcome::Done, None);
        for index in 0..expected.replies {
            let mut sum = 0;
            let reply = self.connection.reply(&mut |value| sum ^= touch(value))?;
            black_box(sum);
            match reply {
                Reply::Error(text) => refused = refused.or(Some(TargetError::Reply { text })),
                reply if index == 0 && expected.reads_first && is_missing(&reply) => {
                    outcome = Outcome::Missing;
                }
                _ => {}
            }
        }
        refused.map_or(Ok(outcome), Err)
    }

    fn put_read(&mut self, key: &[u8]) {
        let layout = self.layout;
        match layout.kind {
            RecordKind::String => self.connection.request(&[b"GET", key]),
            RecordKind::Hash => {
                self.connection.begin(2 + layout.fields);
                self.connection.word(b"HMGET");
                self.connection.word(key);
                (0..layout.fields).for_each(|field| self.connection.word(layout.name(field)));
            }
        }
    }

    fn put_write(&mut self, key: &[u8], write: Write<'_>) {
        let layout = self.layout;
        match layout.kind {
            RecordKind::Hash => {
                self.connection.begin(2 + 2 * write.values.len());
                self.connection.word(b"HSET");
                self.connection.word(key);
                for (field, value) in write.fields().zip(write.values) {
                    self.connection.word(layout.name(field));
                    self.connection.word(value);
                }
            }
            RecordKind::String if write.values.len() == layout.fields => {
                self.connection.request(&[b"SET", key, &write.values.concat()]);
            }
            RecordKind::String => {
                let at = (write.first_field * layout.field_bytes).to_string();
                let words = [b"SETRANGE", key, at.as_bytes(), &write.values.concat()];
                self.connection.request(&words);
            }
        }
    }

    /// Ends the queued operations. A broken connection is returned as an error; a refusal is the
    /// result of its operation.
    fn end_queued(
        &mut self,
        done: &mut dyn FnMut(Result<Outcome, TargetError>),
    ) -> Result<(), TargetError> {
        if self.queued.is_empty() {
            return Ok(());
        }
        self.connection.send()?;
        while let Some(expected) = self.queued.pop_front() {
            match self.outcome(expected) {
                Err(error) if error.is_fatal() => return Err(error),
                outcome => done(outcome),
            }
        }
        Ok(())
    }

    fn read_at_once(&mut self, keys: &[Vec<u8>]) -> Result<(), TargetError> {
        for key in keys {
            match self.layout.kind {
                RecordKind::String => self.connection.request(&[b"GET", key]),
                RecordKind::Hash => self.connection.request(&[b"HGETALL", key]),
            }
            if !self.queues {
                self.connection.send()?;
                self.outcome(Expected { replies: 1, reads_first: true })?;
            }
        }
        if self.queues {
            self.connection.send()?;
            self.outcome(Expected { replies: keys.len(), reads_first: true })?;
        }
        Ok(())
    }
}

fn is_missing(reply: &Reply) -> bool {
    match reply {
        Reply::Bulk { is_nil } => *is_nil,
        Reply::Array { len, nils } => nils == len,
        _ => false,
    }
}

impl Session for RedisSession<'_> {
    fn insert(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError> {
        self.put_write(key.bytes, Write { first_field: 0, values });
        if self.indexed {
            let score = java_hash(key.bytes).to_string();
            self.connection.request(&[b"ZADD", INDEX_KEY, score.as_bytes(), key.bytes]);
        }
        self.go(Expected { replies: 1 + usize::from(self.indexed), reads_first: false })
    }

    fn read(&mut self, key: Key<'_>) -> Result<Outcome, TargetError> {
        self.put_read(key.bytes);
        self.go(Expected { replies: 1, reads_first: true })
    }

    fn update(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError> {
        self.put_write(key.bytes, write);
        self.go(Expected { replies: 1, reads_first: false })
    }

    fn read_modify_write(
        &mut self,
        key: Key<'_>,
        write: Write<'_>,
    ) -> Result<Outcome, TargetError> {
        self.put_read(key.bytes);
        if self.queues {
            // The write does not depend on the read, so both are sent together, on every server.
            self.put_write(key.bytes, write);
            return self.go(Expected { replies: 2, reads_first: true });
        }
        match self.go(Expected { replies: 1, reads_first: true })? {
            Outcome::Missing => Ok(Outcome::Missing),
            _ => self.update(key, write),
        }
    }

    fn scan(&mut self, key: Key<'_>, count: usize) -> Result<Outcome, TargetError> {
        let mut ended = std::mem::take(&mut self.ended);
        self.end_queued(&mut |outcome| ended.push_back(outcome))?;
        self.ended = ended;
        let (score, count) = (java_hash(key.bytes).to_string(), count.to_string());
        let words: [&[u8]; 7] = [
            b"ZRANGEBYSCORE",
            INDEX_KEY,
            score.as_bytes(),
            b"+inf",
            b"LIMIT",
            b"0",
            count.as_bytes(),
        ];
        self.connection.request(&words);
        self.connection.send()?;
        let mut keys = Vec::new();
        match self.connection.reply(&mut |key| keys.push(key.to_vec()))? {
            Reply::Error(text) => Err(TargetError::Reply { text }),
            _ if keys.is_empty() => Ok(Outcome::Missing),
            _ => self.read_at_once(&keys).map(|()| Outcome::Done),
        }
    }

    fn complete(
        &mut self,
        done: &mut dyn FnMut(Result<Outcome, TargetError>),
    ) -> Result<(), TargetError> {
        self.ended.drain(..).for_each(&mut *done);
        self.end_queued(done)
    }
}
