//! Replies that wait for a group commit (`durability = fsync`).
//!
//! The loop executes the next group while the commit of one is on its way. Only the commit of a
//! group of few writes is made by the loop itself. The end of a turn orders the group, so the
//! writes of a turn are committed together; so are all groups that were ordered while a commit was
//! on its way.
//!
//! Invariants:
//! - A reply to a write, and every later reply to any client and to reads too, is sent only after a
//!   commit that began after the write has succeeded: a group is ordered when all of it is
//!   executed, and a reply waits for the group of the last write before it, of whatever client. A
//!   reply that was made while another loop had writes that were not durable waits for a group of
//!   its own loop, whose commit has them, too.
//! - Groups become durable in order, and output is released from its front only, so replies keep
//!   their order.
//! - When a commit fails, the reply to each write that is not known to be durable becomes an error,
//!   in that group and in those behind it. Replies to reads stay. From then on the server accepts
//!   no writes and nothing waits.
//! - The held output of a connection counts as unsent, so `output_pause_bytes` bounds it. At twice
//!   `group_writes_max` held writes the loop waits for the commit on its way.
//! - A connection may end while its output is held. Its writes are committed like any others.

use std::collections::VecDeque;
use std::io;

use super::committer::{Orders, Progress};
use super::events::Tag;
use crate::commands::CommandError;
use crate::conn::Conn;
use crate::resp::Reply;

/// The replies that are held back until the writes before them are durable.
#[derive(Debug)]
pub(super) struct Group<'s> {
    /// The committing thread; `None` where replies do not wait, or no longer do.
    orders: Option<Orders<'s>>,
    /// The number of the group being executed.
    number: u64,
    /// Whether the group being executed has a write, or has read one of another loop that is not
    /// durable.
    uncommitted: bool,
    /// Whether the other loops have been told that writes may be executed.
    may_write: bool,
    seen: Progress,
    held: VecDeque<Held>,
    writes: VecDeque<HeldWrite>,
    /// Writes in the group being executed, with and without a reply.
    gathered: usize,
}

/// Output of one connection that waits for a group: all bytes before byte `end`, counted over all
/// output that the connection ever gets.
#[derive(Debug, Clone, Copy)]
struct Held {
    of: Tag,
    end: u64,
    group: u64,
}

/// The place of one write's reply, in bytes of all output that its connection ever gets.
#[derive(Debug, Clone, Copy)]
struct HeldWrite {
    of: Tag,
    start: u64,
    end: u64,
    group: u64,
}

impl<'s> Group<'s> {
    /// A group that orders commits; without `orders` no reply waits.
    pub fn new(orders: Option<Orders<'s>>) -> Self {
        Self {
            orders,
            number: 1,
            uncommitted: false,
            may_write: false,
            seen: Progress { durable: 0, failed: false },
            held: VecDeque::new(),
            writes: VecDeque::new(),
            gathered: 0,
        }
    }

    /// Whether a reply made now has to wait for a commit.
    pub fn is_holding(&self) -> bool {
        self.uncommitted || self.is_on_its_way()
    }

    /// Whether a group has been ordered and is not known to be durable yet.
    pub fn is_on_its_way(&self) -> bool {
        self.seen.durable + 1 < self.number
    }

    /// Tells the other loops, before a write is executed, that there may be one.
    pub fn begin_write(&mut self) {
        if let Some(orders) = &self.orders
            && !std::mem::replace(&mut self.may_write, true)
        {
            orders.begin_writes();
        }
    }

    /// Notes a write that was carried out, whose reply is at bytes `start..end` of all output of
    /// connection `of`.
    pub fn note_write(&mut self, of: Tag, start: u64, end: u64) {
        if self.orders.is_none() {
            return;
        }
        self.uncommitted = true;
        self.gathered += 1;
        if start < end {
            self.writes.push_back(HeldWrite { of, start, end, group: self.number });
        }
    }

    /// Notes a change of data that is not a client's own.
    pub fn note_change(&mut self) {
        self.uncommitted |= self.orders.is_some();
    }

    /// Holds back the output that `conn` has got since the last call, or frees it where no reply
    /// has to wait.
    pub fn hold(&mut self, slot: u32, conn: &mut Conn) {
        let end = conn.written();
        if end > conn.free_to.max(conn.held_to)
            && !self.uncommitted
            && self.orders.as_ref().is_some_and(Orders::others_have_writes)
        {
            // The output may tell of such a write. A commit that begins from here on has it.
            self.uncommitted = true;
        }
        if !self.is_holding() {
            conn.free_to = end;
        } else if end > conn.free_to.max(conn.held_to) {
            conn.held_to = end;
            let group = if self.uncommitted { self.number } else { self.number - 1 };
            self.held.push_back(Held { of: Tag::of(slot, conn), end, group });
        }
    }

    /// Orders the commit of the executed group, and returns the number of its writes. The loop
    /// makes up to `inline_max` writes durable itself.
    pub fn order(&mut self, inline_max: usize) -> usize {
        if std::mem::take(&mut self.uncommitted)
            && let Some(orders) = &self.orders
        {
            orders.order(self.number, self.gathered <= inline_max);
            self.number += 1;
        }
        if std::mem::take(&mut self.may_write)
            && let Some(orders) = &self.orders
        {
            orders.end_writes();
        }
        std::mem::take(&mut self.gathered)
    }

    /// Whether the group being executed has as many writes as one should have.
    pub fn is_full(&self, writes_max: usize) -> bool {
        self.gathered >= writes_max
    }

    /// Whether more writes are held than two groups should have.
    pub fn is_crowded(&self, writes_max: usize) -> bool {
        self.writes.len() >= 2 * writes_max && self.is_awaited()
    }

    /// Whether a commit is on its way, or will be, for a group that has been ordered.
    pub fn is_awaited(&self) -> bool {
        self.is_on_its_way() && !self.orders.as_ref().is_some_and(Orders::has_ended)
    }

    /// Waits until the commit that is on its way is over, or commits have ended.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn wait(&self) -> io::Result<()> {
        match &self.orders {
            Some(orders) if self.is_on_its_way() => orders.wait(self.seen),
            _ => Ok(()),
        }
    }

    /// Asks to be woken, because the loop is about to wait. True: there is news already.
    pub fn call_me(&self) -> bool {
        match &self.orders {
            Some(orders) if self.is_on_its_way() => orders.call_me(self.seen),
            _ => false,
        }
    }

    /// Notes that the loop is awake and need not be woken.
    pub fn awake(&self) {
        if let Some(orders) = &self.orders {
            orders.awake();
        }
    }

    /// Ends the commits of all loops; none is on its way then.
    pub fn end(&self) {
        if let Some(orders) = &self.orders {
            orders.end();
        }
    }

    /// Whether a commit has returned since the last call.
    pub fn look(&mut self) -> bool {
        let Some(orders) = &self.orders else { return false };
        let before = std::mem::replace(&mut self.seen, orders.progress());
        self.seen != before
    }

    /// Takes the next output that may be sent: its connection, and the byte up to which it may.
    pub fn next_free(&mut self) -> Option<(Tag, u64)> {
        self.held.front().filter(|held| held.group <= self.seen.durable)?;
        self.held.pop_front().map(|held| (held.of, held.end))
    }

    /// Forgets the writes whose output [`Group::next_free`] has given out. If a commit has failed,
    /// this returns the error, and no reply waits any more.
    pub fn settle(&mut self) -> Option<String> {
        let durable = self.writes.partition_point(|write| write.group <= self.seen.durable);
        self.writes.drain(..durable);
        if !self.seen.failed {
            return None;
        }
        let orders = self.orders.take()?;
        (self.uncommitted, self.gathered) = (false, 0);
        // Nothing waits any more.
        self.seen.durable = self.number;
        Some(orders.why().to_owned())
    }

    /// After a failed commit: takes the connections whose output waits.
    pub fn take_held(&mut self) -> Vec<Tag> {
        let mut all: Vec<Tag> = std::mem::take(&mut self.held).iter().map(|held| held.of).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// After a failed commit: replaces the replies to one connection's writes by errors.
    pub fn fail(&self, of: Tag, conn: &mut Conn, why: &str) {
        let resp3 = conn.session.resp3;
        conn.rewrite_output(|base, old| {
            let mut new = Vec::with_capacity(old.len());
            let mut from = 0;
            for write in self.writes.iter().filter(|write| write.of == of) {
                new.extend_from_slice(&old[from..(write.start - base) as usize]);
                let error = CommandError::NotCommitted(why.to_owned());
                Reply::new(&mut new, resp3, usize::MAX).error(&error);
                from = (write.end - base) as usize;
            }
            new.extend_from_slice(&old[from..]);
            new
        });
    }

    /// After a failed commit whose errors are told: forgets all writes.
    pub fn forget_writes(&mut self) {
        self.writes = VecDeque::new();
    }
}
