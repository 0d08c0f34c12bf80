//! Looks ahead in a pipeline: whole commands that follow each other are parsed first, and the
//! memory of their keys is prefetched; then they are carried out one by one, in order. Single
//! commands that several connections sent at the same time are treated in the same way.
//!
//! Invariant: no command is parsed ahead behind one that could change its meaning (AUTH, SELECT,
//! QUIT, CONFIG SET). That is every command on client or server state, and every unknown one.

use perdura_store::{Key, Place};

use crate::commands::{Server, Spec, flag};
use crate::resp::{Args, Frame, Limits, Parser, ProtocolError, Step};
use crate::session::Session;

/// Commands that are parsed and not carried out yet.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    commands: Vec<Command>,
    next: usize,
    places: Vec<Place>,
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
        while let Step::Command { consumed } = step {
            let frame = parser.frame();
            let found = server.index.resolve(parser.args_of(frame, &buf[at..])).ok();
            self.commands.push(Command { start: at, end: at + consumed, frame, found });
            at += consumed;
            let is_data = found.is_some_and(|(_, spec)| !spec.has(flag::STATE));
            if !is_data || self.commands.len() == COMMANDS_MAX {
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
        self.places.clear();
        for (session, bytes) in received.take(PLACES_MAX) {
            let step = parser.step(bytes, &server.config.limits);
            let is_lone = matches!(step, Ok(Step::Command { consumed }) if consumed == bytes.len());
            if is_lone {
                let args = parser.args(bytes);
                if let Ok((_, spec)) = server.index.resolve(args) {
                    note_places(&mut self.places, server, session.db, spec, args);
                }
            }
            parser.restart();
        }
        self.prefetch(server);
    }

    /// Prefetches the memory that the parsed commands will read.
    fn ask_for_memory(&mut self, server: &Server<'_>, db: u8, parser: &Parser, buf: &[u8]) {
        self.places.clear();
        for command in &self.commands {
            let Some((_, spec)) = command.found else { continue };
            let args = parser.args_of(command.frame, &buf[command.start..]);
            note_places(&mut self.places, server, db, spec, args);
        }
        self.prefetch(server);
    }

    /// Prefetches all buckets and then all records, so that the waits for memory overlap. For a
    /// single key there is nothing to overlap, so nothing is done.
    fn prefetch(&self, server: &Server<'_>) {
        if self.places.len() > 1 {
            self.places.iter().for_each(|place| server.store.prefetch_bucket(place));
            self.places.iter().for_each(|place| server.store.prefetch_record(place));
        }
    }
}

fn note_places(places: &mut Vec<Place>, server: &Server<'_>, db: u8, spec: &Spec, args: Args<'_>) {
    let keys = spec.keys.indices(args).take(PLACES_MAX - places.len());
    places.extend(keys.map(|at| server.store.place(Key { db, bytes: args.get(at) })));
}

/// Most commands that are parsed before the first of them is carried out. The memory that they read
/// has to stay in the processor's cache.
const COMMANDS_MAX: usize = 64;
/// Most keys whose memory is prefetched at once.
const PLACES_MAX: usize = 64;
