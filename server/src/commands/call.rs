//! The call of a command: its arguments, its reply, and facts about its client.

use std::cell::Cell;
use std::ops::Range;

use perdura_store::Key;

use super::blocking::Wait;
use super::context::Server;
use super::error::CommandError;
use super::steps::Steps;
use crate::config::ServerConfig;
use crate::resp::{Args, Reply};

/// The end of a command: it has been answered, or it is refused with an error.
pub(crate) type Outcome = Result<(), CommandError>;

/// The call of a command, which its function gets besides the data.
pub(crate) struct Call<'c, 'o> {
    pub args: Args<'c>,
    pub db: u8,
    pub now_ms: u64,
    /// Whether a script gives the command.
    pub in_script: bool,
    pub reply: &'c mut Reply<'o>,
    pub random: &'c Random,
    pub config: &'c ServerConfig,
    pub steps: &'c mut Steps,
    /// What the client is to wait for, because nothing was found.
    pub wait: Option<Wait>,
}

impl<'c, 'o> Call<'c, 'o> {
    /// A call by a client, and by no script.
    pub fn new(
        server: &'c Server<'_>,
        args: Args<'c>,
        db: u8,
        reply: &'c mut Reply<'o>,
        steps: &'c mut Steps,
    ) -> Self {
        let (now_ms, random, config) = (server.unix_ms(), &server.random, &*server.config);
        Self { args, db, now_ms, in_script: false, reply, random, config, steps, wait: None }
    }

    /// Takes argument `index` as a key of the client's database.
    pub fn key(&self, index: usize) -> Key<'c> {
        Key { db: self.db, bytes: self.args.get(index) }
    }

    /// The arguments that this step takes of those from `first` on. An element is `width` of them.
    pub fn step_of(&mut self, first: usize, width: usize) -> Range<usize> {
        let elements = (self.args.len() - first) / width;
        let from = elements.min(self.steps.done as usize);
        let most = usize::try_from(self.steps.most).unwrap_or(usize::MAX);
        let taken = most.min(elements - from);
        self.steps.now.done = taken as u64;
        self.steps.now.is_more = from + taken < elements;
        first + from * width..first + (from + taken) * width
    }

    /// Reads argument `index` as an integer.
    pub fn int(&self, index: usize) -> Result<i64, CommandError> {
        crate::number::parse_i64(self.args.get(index)).ok_or(CommandError::NotInteger)
    }
}

/// A seeded source of small random choices (xorshift64*; nothing secret depends on it).
#[derive(Debug)]
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Cell::new(seed ^ 0x9e37_79b9_7f4a_7c15 | 1))
    }

    /// The state, from which the same numbers are drawn again after [`Random::rewind`]. An
    /// operation that is tried again must do the same, to find what it has written before.
    pub fn mark(&self) -> u64 {
        self.0.get()
    }

    /// Goes back to a state.
    pub fn rewind(&self, mark: u64) {
        self.0.set(mark);
    }

    /// Draws a number below `bound`, which is at least 1.
    pub fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        ((u128::from(x.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(bound)) >> 64) as u64
    }
}
