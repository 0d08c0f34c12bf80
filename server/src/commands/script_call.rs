//! The commands that a script gives: the checks before them, and how they are carried out in the
//! script's transaction.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use perdura_media::Clock;
use perdura_store::{Key, Tx, TxError};

use super::blocking::note_changed;
use super::context::{Context, Server};
use super::error::CommandError;
use super::handler::Command;
use super::keyspace;
use super::monitor;
use super::permit;
use super::spec::flag;
use super::tracking::note_read;
use super::transactions::run_in_tx;
use crate::resp::{Args, Reply};
use crate::script::{CallError, Host, Input, Stop, Words};
use crate::session::Session;
use crate::shared::{AboutRunning, Room};

/// Nanoseconds after which FUNCTION STATS tells what runs.
const TELL_AFTER_NS: u64 = 1_000_000;

/// Keys that clients wait for and a script has changed; beyond, all waiting clients are looked at.
const READY_MAX: usize = 4096;

/// Bytes of a script's commands that MONITOR shows, less the last one's: further ones are not
/// shown.
const LINES_BYTES_MAX: usize = 1 << 20;

/// Why a script's attempt has ended.
pub(super) enum Halt {
    /// The store has ended the transaction, or will run it again.
    Tx(TxError),
    /// A read of the store has unwound.
    Panic(Box<dyn Any + Send>),
    /// A command needs a shard that the transaction does not hold.
    NeedsAll,
    /// A command reports on the store as a whole, which is looked at before a transaction only.
    NeedsFacts,
}

/// The server, as a script that runs in a transaction sees it.
pub(super) struct Caller<'c, 'a, 't, 's> {
    pub server: &'c mut Server<'a>,
    pub session: &'c mut Session,
    pub table: &'static [Command],
    pub tx: &'c mut Tx<'s>,
    pub input: Input<'t>,
    pub holds_all: bool,
    pub has_facts: bool,
    pub read_only: bool,
    /// Whether the script may write although the memory is full.
    pub allow_oom: bool,
    pub is_function: bool,
    /// Monotonic time at which the attempt began.
    pub started_ns: u64,
    /// Nanoseconds after which the script is stopped; 0: never.
    pub limit_ns: u64,
    /// Whether FUNCTION STATS has been told what runs.
    pub is_told: bool,
    pub halt: Option<Halt>,
}

impl Host for Caller<'_, '_, '_, '_> {
    fn call(&mut self, words: &Words, resp3: bool, reply: &mut Vec<u8>) -> Result<(), CallError> {
        let row = self.check(words)?;
        let outcome = catch_unwind(AssertUnwindSafe(|| self.carry_out(row, words, resp3, reply)));
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some(halt)) => self.halt(halt),
            Err(panic) => self.halt(Halt::Panic(panic)),
        }
    }

    fn interrupted(&mut self) -> Option<Stop> {
        let shared = self.server.shared;
        if shared.is_ending() || shared.store.region().check_open().is_err() {
            return Some(Stop::Ending);
        }
        if self.server.own.running.is_killed() {
            return Some(Stop::Killed);
        }
        let now_ns = self.server.clock.now_ns();
        let ran_ns = now_ns.saturating_sub(self.started_ns);
        if !self.is_told && ran_ns >= TELL_AFTER_NS {
            self.is_told = true;
            self.tell();
        }
        (self.limit_ns > 0 && ran_ns > self.limit_ns).then_some(Stop::TooLong)
    }

    fn log(&mut self, level: u8, line: &[u8]) {
        log_line(level, line);
    }

    fn may_call(&mut self, words: &Words) -> Option<bool> {
        let args = words.args();
        match self.server.index.resolve(args) {
            Ok((row, _)) => Some(permit::may_call(self.server, self.session, row, args).is_ok()),
            Err(CommandError::Arity(_)) => Some(self.session.user.allows_everything()),
            Err(_) => None,
        }
    }
}

/// Writes what a script says to the server's log.
pub(super) fn log_line(level: u8, line: &[u8]) {
    let line = String::from_utf8_lossy(line);
    match level {
        0 => tracing::debug!(target: "script", "{line}"),
        1 | 2 => tracing::info!(target: "script", "{line}"),
        _ => tracing::warn!(target: "script", "{line}"),
    }
}

fn refused<T>(text: impl Into<String>) -> Result<T, CallError> {
    Err(CallError::Refused(text.into()))
}

impl Caller<'_, '_, '_, '_> {
    fn halt<T>(&mut self, halt: Halt) -> Result<T, CallError> {
        self.halt = Some(halt);
        Err(CallError::Halted)
    }

    /// Finds a command's row, and checks whether a script may give the command now.
    fn check(&mut self, words: &Words) -> Result<usize, CallError> {
        let args = words.args();
        let (row, spec) = match self.server.index.resolve(args) {
            Ok(found) => found,
            Err(CommandError::Arity(_)) => {
                return refused("ERR Wrong number of args calling Redis command from script");
            }
            Err(_) => return refused("ERR Unknown Redis command called from script"),
        };
        if spec.has(flag::NOSCRIPT) {
            return refused("ERR This Redis command is not allowed from script");
        }
        if let Err(text) = permit::check_in_script(self.server, self.session, row, args) {
            return refused(text);
        }
        let writes = spec.has(flag::WRITE);
        if self.read_only && (writes || matches!(spec.name, "publish" | "spublish" | "pfcount")) {
            return refused("ERR Write commands are not allowed from read-only scripts.");
        }
        if writes && let Err(error) = self.server.check_writes() {
            return refused(error.to_string());
        }
        let is_full = self.server.limit.room == Room::None && !self.allow_oom;
        if spec.has(flag::DENYOOM) && is_full && !self.server.scripts.wrote {
            return refused(CommandError::MemoryFull.to_string());
        }
        if spec.has(flag::FACTS) && !self.has_facts {
            return self.halt(Halt::NeedsFacts);
        }
        let db = self.session.db;
        let is_held = |at: usize| self.tx.holds(Key { db, bytes: args.get(at) });
        let needs_all = spec.has(flag::WALKS) || spec.needs_all_shards(args);
        if !self.holds_all && (needs_all || !spec.keys.indices(args).all(is_held)) {
            return self.halt(Halt::NeedsAll);
        }
        Ok(row)
    }

    /// Carries out a command that has been checked.
    fn carry_out(
        &mut self,
        row: usize,
        words: &Words,
        resp3: bool,
        out: &mut Vec<u8>,
    ) -> Option<Halt> {
        let (args, command) = (words.args(), &self.table[row]);
        let spec = &command.spec;
        let mut names = Vec::new();
        if spec.has(flag::WALKS) {
            names = keyspace::names(self.tx, &[]);
            if spec.name == "swapdb" {
                keyspace::anywhere(&mut names);
            }
        }
        let scripts = &mut self.server.scripts;
        scripts.wrote |= spec.has(flag::WRITE);
        scripts.user_bytes += spec.user_bytes(args);
        match scripts.calls.iter_mut().find(|(known, _)| usize::from(*known) == row) {
            Some((_, calls)) => *calls += 1,
            None => scripts.calls.push((row as u16, 1)),
        }
        note_read(self.server, self.session, row, args);
        self.watch(row, args);
        let (limit, db) = (self.server.config.script_memory_max, self.session.db);
        let mut reply = Reply::new(out, resp3, limit);
        let ctx = &mut Context {
            server: &mut *self.server,
            session: &mut *self.session,
            reply: &mut reply,
        };
        match run_in_tx(ctx, command, args, self.tx, &names, true) {
            Ok(()) => note_changed(self.server, spec, db, args),
            Err(CommandError::Tx(error)) => return Some(Halt::Tx(error)),
            Err(error) => {
                reply.rewind(0);
                reply.error(&error);
            }
        }
        if self.server.ready.len() > READY_MAX {
            self.server.ready.clear();
            self.server.is_all_ready = true;
        }
        if reply.overflowed() {
            reply.rewind(0);
            reply.error(&format_args!(
                "ERR the reply is longer than script-memory-limit, {limit} bytes"
            ));
        }
        None
    }

    /// Keeps a command for those who watch, until the script has happened.
    fn watch(&mut self, row: usize, args: Args<'_>) {
        let is_watched = self.server.shared.monitors.is_any();
        if is_watched && self.server.scripts.lines.len() < LINES_BYTES_MAX {
            let line = monitor::line(self.server, &"lua", self.session.db, row, args);
            self.server.scripts.lines.push_str(&line.unwrap_or_default());
        }
    }

    /// Tells what runs, for FUNCTION STATS.
    fn tell(&self) {
        /// Words and bytes of each that are told.
        const WORDS_MAX: usize = 32;
        const WORD_BYTES_MAX: usize = 128;
        let words = self.input.words.from(0).take(WORDS_MAX);
        self.server.own.running.tell(Some(AboutRunning {
            is_function: self.is_function,
            name: self.input.name.to_owned(),
            command: words.map(|word| word[..word.len().min(WORD_BYTES_MAX)].to_vec()).collect(),
            started_ns: self.started_ns,
        }));
    }
}

/// The server as a library's code sees it while it is loaded: without data, and for a short time.
pub(super) struct Loader<'c> {
    pub clock: &'c dyn Clock,
    pub started_ns: u64,
    /// Nanoseconds after which loading is stopped; 0: never.
    pub limit_ns: u64,
}

impl Host for Loader<'_> {
    fn call(&mut self, _: &Words, _: bool, _: &mut Vec<u8>) -> Result<(), CallError> {
        refused("ERR redis.call can only be called inside a script invocation")
    }

    fn interrupted(&mut self) -> Option<Stop> {
        let ran_ns = self.clock.now_ns().saturating_sub(self.started_ns);
        (self.limit_ns > 0 && ran_ns > self.limit_ns).then_some(Stop::TooLong)
    }

    fn log(&mut self, level: u8, line: &[u8]) {
        log_line(level, line);
    }

    fn may_call(&mut self, _: &Words) -> Option<bool> {
        None
    }
}
