//! Memory below a limit (`maxmemory`): keys that go before a command is carried out, and commands
//! that are refused.
//!
//! A look at how much memory is in use takes each shard's lock, and so is too much for each
//! command. While there is much room, memory is looked at ten times a second. Otherwise each loop
//! looks before the command that follows a write of its own, but spends little of its time on that.
//! A writer runs past the limit by what it writes between two looks.

use super::context::Server;
use crate::session::Session;
use crate::shared::{Push, Room, Tracking};

/// Time between two looks for a command that is to be refused.
const REFUSAL_NS: u64 = 1_000_000;
/// Longest time that a command waits for keys to go.
const WAIT_NS: u64 = 1_000_000;
/// Looks which find nothing to do take one part in so many of a loop's time.
const TIME_RATIO: u64 = 20;
/// Longest time without a look that would be of use.
const PAUSE_NS_MAX: u64 = 1_000_000;

/// The room below the limit, as far as a loop knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    pub room: Room,
    /// Whether the loop may have written since it last looked.
    has_written: bool,
    /// When the next look is due, if one is of use then.
    due_ns: u64,
}

impl Default for Limit {
    fn default() -> Self {
        Self { room: Room::Much, has_written: true, due_ns: 0 }
    }
}

impl Limit {
    /// Notes a command that has written.
    #[inline]
    pub fn note_written(&mut self) {
        self.has_written = true;
        if self.room == Room::None {
            // It may have freed memory.
            self.due_ns = 0;
        }
    }
}

impl Server<'_> {
    /// Lets keys go before a command of this client, if memory is used beyond the limit. Not from
    /// inside a transaction. Returns what the client is told of them.
    pub fn evict_before(&mut self, session: &Session) -> Vec<Push> {
        let Limit { room, has_written, due_ns } = self.limit;
        let is_due = room == Room::Little && has_written && self.now_ns >= due_ns;
        if !is_due || self.is_power_low {
            return Vec::new();
        }
        let ((), pushes) = Tracking::beside(session.card.id, || self.look_at_memory());
        // It is no time of the command.
        self.pass_time();
        pushes
    }

    /// Whether a command that needs memory is refused now. Not from inside a transaction: before
    /// the first refusal of a millisecond, memory is looked at, because some may be free again.
    pub fn refuses_for_memory(&mut self) -> bool {
        if self.limit.room == Room::None && self.now_ns >= self.limit.due_ns {
            self.look_at_memory();
        }
        self.limit.room == Room::None
    }

    fn look_at_memory(&mut self) {
        let (clock, began_ns) = (self.clock, self.clock.now_ns());
        let passed_ns = || clock.now_ns().saturating_sub(began_ns);
        let limit = &self.shared.memory_limit;
        let max_bytes = self.config.memory_max_bytes;
        let is_over = limit.look_while(self.store, max_bytes, || passed_ns() < WAIT_NS);
        let room = limit.room();
        let pause_ns = match room {
            _ if is_over => 0,
            Room::None => REFUSAL_NS,
            _ => (passed_ns() * TIME_RATIO).min(PAUSE_NS_MAX),
        };
        self.limit = Limit { room, has_written: is_over, due_ns: began_ns + pause_ns };
    }
}
