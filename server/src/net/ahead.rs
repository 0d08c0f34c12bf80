//! Looks ahead in a pipeline: whole commands that follow each other are parsed first, and the
//! memory of their keys is prefetched; then they are carried out one by one, in order. Single
//! commands that several connections sent at the same time are treated in the same way.
//!
//! Invariant: no command is parsed ahead behind one that could change its meaning (AUTH, SELECT,
//! QUIT, CONFIG SET). That is every command on client or server state, and every unknown one.

use perdura_store::{FarValue, Key, Place, Sought};

use crate::commands::{Server, Spec, flag};
use crate::resp::{Args, Frame, Limits, Parser, ProtocolError, Step};
use crate::session::Session;

/// Commands that are parsed and not carried out yet.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    commands: Vec<Command>,
    next: usize,
    keys: Vec<Asked>,
    fields: Vec<Sought>,
}

/// A key whose memory was asked for.
#[derive(Debug)]
struct Asked {
    sought: Option<Sought>,
    /// Where the key's record likely lies.
    record: Option<u64>,
}

/// One whole command in a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    /// Offset of the command in the buffer, bytes.
    pub start: usize,
    pub end: usize,
    pub frame: Frame,
    /// The command's row and line in the table; `None` for an unknown command, which gets its error
    /// when its turn comes.
    pub found: Option<(usize, &'static Spec)>,
    /// The place of the command's key, if it always has one.
    pub place: Option<Place>,
    /// The index of this key among those asked for; no key has it if too many were asked for.
    asked: usize,
}

/// The result of parsing ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// There is at least one whole command.
    Commands,
    /// No whole command begins at `at`.
    Incomplete { at: usize },
}

impl Ahead {
    /// Whether every command that was parsed has been carried out.
    pub fn is_done(&self) -> bool {
        self.next == self.commands.len()
    }

    /// The command to be carried out next.
    pub fn current(&self) -> Option<Command> {
        self.commands.get(self.next).copied()
    }

    /// Notes that the current command has been carried out.
    pub fn advance(&mut self) {
        self.next += 1;
    }

    /// Forgets the commands that were not carried out.
    pub fn clear(&mut self) {
        self.commands.clear();
        self.next = 0;
    }

    /// Parses the whole commands of the buffer from `at` on.
    ///
    /// # Errors
    /// The bytes at `at` are not a request. An error further on is reported when its place is
    /// reached.
    pub fn look(
        &mut self,
        server: &Server<'_>,
        session: &Session,
        parser: &mut Parser,
        buf: &[u8],
        mut at: usize,
    ) -> Result<Looked, ProtocolError> {
        self.clear();
        let unauthenticated = !session.authenticated && server.needs_password();
        let limits = Limits { unauthenticated, ..server.config.limits };
        let mut step = loop {
            match parser.step(&buf[at..], &limits)? {
                Step::Incomplete => return Ok(Looked::Incomplete { at }),
                Step::Empty { consumed } => at += consumed,
                found @ Step::Command { .. } => break found,
            }
        };
        let mut keys = 0;
        while let Step::Command { consumed } = step {
            let frame = parser.frame();
            let args = parser.args_of(frame, &buf[at..]);
            let found = server.index.look_up(args);
            keys += match found {
                Some((_, spec)) if !spec.keys.is_one() => spec.keys.indices(args).count(),
                _ => 1,
            };
            let (end, place, asked) = (at + consumed, None, 0);
            self.commands.push(Command { start: at, end, frame, found, place, asked });
            at += consumed;
            let is_data = found.is_some_and(|(_, spec)| !spec.has(flag::STATE));
            // The commands behind those whose keys are prefetched wait for the next look.
            if !is_data || self.commands.len() == COMMANDS_MAX || keys >= KEYS_MAX {
                break;
            }
            step = parser.step_on(&buf[at..], &limits).unwrap_or(Step::Incomplete);
        }
        self.ask_for_memory(server, session.db, parser, buf);
        Ok(Looked::Commands)
    }

    /// Prefetches the memory for single commands of several connections. A pipeline prefetches its
    /// own, and an incomplete command is left to its connection.
    pub fn look_across<'c>(
        &mut self,
        server: &Server<'_>,
        parser: &mut Parser,
        received: impl Iterator<Item = (&'c Session, &'c [u8])>,
    ) {
        self.keys.clear();
        let mut far = FarValues::default();
        for (session, bytes) in received.take(KEYS_MAX) {
            let step = parser.step(bytes, &server.config.limits);
            let is_lone = matches!(step, Ok(Step::Command { consumed }) if consumed == bytes.len());
            if is_lone {
                let args = parser.args(bytes);
                if let Some((_, spec)) = server.index.look_up(args) {
                    far.note(server, session.db, spec, args);
                    ask_for_buckets(&mut self.keys, server, session.db, spec, args);
                }
            }
            parser.restart();
        }
        self.ask_for_records(server);
        far.fetch(server);
    }

    /// Prefetches the memory that the parsed commands will read: all buckets and then all records,
    /// then those of fields, so that the waits for memory overlap. The places of the keys are kept
    /// for the commands.
    fn ask_for_memory(&mut self, server: &Server<'_>, db: u8, parser: &Parser, buf: &[u8]) {
        self.keys.clear();
        let args_of = |command: &Command| parser.args_of(command.frame, &buf[command.start..]);
        let mut before: Option<(&[u8], Place, usize)> = None;
        for command in &mut self.commands {
            let Some((_, spec)) = command.found else { continue };
            let args = args_of(command);
            if !spec.keys.is_one() || spec.keys.is_none() {
                ask_for_buckets(&mut self.keys, server, db, spec, args);
                continue;
            }
            // Commands on one key often follow one another.
            let bytes = args.get(spec.keys.first as usize);
            let (place, asked) = match before {
                Some((same, place, asked)) if same == bytes => (place, asked),
                _ => {
                    let place = server.store.place(Key { db, bytes });
                    let asked = self.keys.len();
                    ask_for_bucket(&mut self.keys, server, &place);
                    before = Some((bytes, place, asked));
                    (place, asked)
                }
            };
            (command.place, command.asked) = (Some(place), asked);
        }
        let mut far = FarValues::default();
        if self.commands.len() > 1 || self.keys.len() > 1 {
            self.ask_for_records(server);
            self.fields.clear();
            for command in &self.commands {
                let Some((_, spec)) = command.found else { continue };
                let args = args_of(command);
                if let Some(at) = spec.field_at().filter(|at| *at < args.len())
                    && let Some(record) = self.keys.get(command.asked).and_then(|key| key.record)
                {
                    self.fields.extend(server.store.prefetch_field_bucket(record, args.get(at)));
                }
                far.note(server, db, spec, args);
            }
            self.fields.iter().for_each(|field| server.store.prefetch_field_record(field));
        }
        far.fetch(server);
    }

    /// Prefetches the records of all keys whose buckets were asked for.
    fn ask_for_records(&mut self, server: &Server<'_>) {
        for key in &mut self.keys {
            key.record = key.sought.and_then(|sought| server.store.prefetch_record(&sought));
        }
    }
}

/// Values that commands need and that are not in memory: all are read at the same time, and the
/// commands then wait for none.
#[derive(Default)]
struct FarValues(Vec<FarValue>);

impl FarValues {
    fn note(&mut self, server: &Server<'_>, db: u8, spec: &Spec, args: Args<'_>) {
        if !server.store.has_far() || spec.has(flag::NOVALUE) {
            return;
        }
        for at in spec.keys.indices(args).take(KEYS_MAX - self.0.len().min(KEYS_MAX)) {
            self.0.extend(server.store.far_value(Key { db, bytes: args.get(at) }));
        }
    }

    /// Reads the values, if there are several: one by itself is read by its command.
    fn fetch(self, server: &Server<'_>) {
        if self.0.len() > 1 {
            server.store.fetch_ahead(self.0);
        }
    }
}

fn ask_for_buckets(
    keys: &mut Vec<Asked>,
    server: &Server<'_>,
    db: u8,
    spec: &Spec,
    args: Args<'_>,
) {
    for at in spec.keys.indices(args).take(KEYS_MAX - keys.len().min(KEYS_MAX)) {
        ask_for_bucket(keys, server, &server.store.place(Key { db, bytes: args.get(at) }));
    }
}

fn ask_for_bucket(keys: &mut Vec<Asked>, server: &Server<'_>, place: &Place) {
    if keys.len() < KEYS_MAX {
        keys.push(Asked { sought: server.store.prefetch_bucket(place), record: None });
    }
}

/// Most commands that are parsed before the first of them is carried out. The memory that they read
/// has to stay in the processor's cache.
const COMMANDS_MAX: usize = 64;
/// Most keys whose memory is prefetched at once.
const KEYS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};
    use perdura_region::{Config, Region};
    use perdura_store::{Heap, Store, StoreOptions};

    use super::*;
    use crate::commands::index_for;
    use crate::config::ServerConfig;
    use crate::session::Peer;
    use crate::shared::{Card, Shared};

    /// Calls `f` with a server that has this password, if any.
    fn with_server(password: Option<&str>, f: impl FnOnce(&Server<'_>)) {
        let clock = Arc::new(SimClock::new(1));
        let config = Config { lanes: Some(3), thread: false, ..Config::new(4 << 20, 1 << 20) };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config).unwrap();
        let heap = Heap::open(region).unwrap();
        let store = Store::open(heap, clock.clone(), StoreOptions::default()).unwrap();
        let password = password.map(str::to_owned);
        let config = ServerConfig { requirepass: password, ..ServerConfig::default() };
        let commands = index_for(&config).specs().len();
        let users = config.load_users().unwrap();
        let shared = Shared::new(&store, &*clock, &config, users, 1, commands).unwrap();
        f(&Server::new(&shared, 0));
    }

    fn session(is_authenticated: bool) -> Session {
        let users = crate::acl::Users::new(None);
        let session = Session::new(Arc::new(Card::new(1, 0, Peer::Unix, 0, 0)), &users);
        Session { authenticated: is_authenticated, ..session }
    }

    #[test]
    fn nothing_is_parsed_behind_a_command_that_could_change_its_meaning() {
        let data = "GET a\r\nSET a b\r\n";
        with_server(None, |server| {
            let parsed = |text: &str| {
                let (mut ahead, mut parser) = (Ahead::default(), Parser::default());
                let looked = ahead.look(server, &session(true), &mut parser, text.as_bytes(), 0);
                assert_eq!(looked.unwrap(), Looked::Commands);
                let mut ends = Vec::new();
                while let Some(command) = ahead.current() {
                    assert_eq!(command.start, ends.last().copied().unwrap_or(0));
                    ends.push(command.end);
                    ahead.advance();
                }
                assert!(ahead.is_done());
                ends
            };
            assert_eq!(parsed(&data.repeat(2)), [7, 16, 23, 32]);
            assert_eq!(parsed(&data.repeat(COMMANDS_MAX)).len(), COMMANDS_MAX);
            for barrier in [
                "AUTH secret",
                "SELECT 1",
                "QUIT",
                "CONFIG SET proto-max-bulk-len 1048576",
                "HELLO 3",
                "RESET",
                // Neither of these is found, and what it would have done is not known.
                "NOSUCHCOMMAND",
                "GET",
            ] {
                let end = 16 + barrier.len() + 2;
                assert_eq!(
                    parsed(&format!("{data}{barrier}\r\n{data}")),
                    [7, 16, end],
                    "{barrier}"
                );
            }
        });
    }

    #[test]
    fn commands_of_many_keys_are_looked_at_in_parts_whose_keys_are_all_asked_for() {
        let command = format!("MSET{}\r\n", " key value".repeat(9));
        let data = command.repeat(20);
        with_server(None, |server| {
            let (mut ahead, mut parser) = (Ahead::default(), Parser::default());
            let mut parts = Vec::new();
            let mut at = 0;
            while at < data.len() {
                ahead.look(server, &session(true), &mut parser, data.as_bytes(), at).unwrap();
                parts.push((ahead.commands.len(), ahead.keys.len()));
                at = ahead.commands.last().map_or(data.len(), |command| command.end);
            }
            // The last command of a part may reach over.
            assert_eq!(parts, [(8, KEYS_MAX), (8, KEYS_MAX), (4, 36)]);
        });
    }

    #[test]
    fn only_who_has_not_given_the_password_that_is_asked_for_has_small_limits() {
        for password in [None, Some(""), Some("secret")] {
            with_server(password, |server| {
                for is_authenticated in [true, false] {
                    let (mut ahead, mut parser) = (Ahead::default(), Parser::default());
                    let session = session(is_authenticated);
                    let looked = ahead.look(server, &session, &mut parser, b"*11\r\n", 0);
                    let is_small = password == Some("secret") && !is_authenticated;
                    assert_eq!(looked.is_err(), is_small, "{password:?}, {is_authenticated}");
                }
            });
        }
    }
}
