//! Replies that wait for a group commit (`durability = fsync`).
//!
//! The loop executes while a commit is on its way, but for one of few writes, which it makes
//! itself; what it executes meanwhile is the next group. A turn's end orders the group that it has
//! filled, so a turn's writes go together; so do all ordered while a commit was on its way.
//!
//! Invariants:
//! - A reply to a write, and every reply made after it, to anybody and to reads too, is sent only
//!   after a commit that began when the write was done has returned well: a group is ordered when
//!   all of it is executed, and a reply waits for the group of the last write before it, its own or
//!   not.
//! - Groups become durable in order, and output is freed from its front only: replies keep their
//!   order.
//! - When a commit fails, the reply to each write that is not known to be durable becomes an error,
//!   in that group and in those behind it. Replies to reads stay. From then on the server accepts
//!   no writes and nothing waits.
//! - What is held is bounded: by `output_pause_bytes` for a connection as long as it is unsent, and
//!   the writes by twice `group_writes_max`, beyond which the loop waits for the commit on its way.
//! - A connection may go while its output is held. Its writes are committed like any others.

use std::collections::VecDeque;
use std::io;

use super::committer::{Orders, Progress};
use super::conn::Conn;
use super::events::Tag;
use crate::commands::CommandError;
use crate::resp::Reply;

/// The replies held back.
#[derive(Debug)]
pub(super) struct Group<'s> {
    /// None: replies do not wait, or not any more.
    orders: Option<Orders<'s>>,
    /// The number of the group being executed.
    number: u64,
    /// It has a write.
    uncommitted: bool,
    seen: Progress,
    held: VecDeque<Held>,
    writes: VecDeque<HeldWrite>,
    /// Writes of the group being executed, answered or not.
    gathered: usize,
}

/// Output of a connection, up to `end` of all it ever gets, that waits for a group.
#[derive(Debug, Clone, Copy)]
struct Held {
    of: Tag,
    end: u64,
    group: u64,
}

/// The place of one write's reply in all output its connection ever gets.
#[derive(Debug, Clone, Copy)]
struct HeldWrite {
    of: Tag,
    start: u64,
    end: u64,
    group: u64,
}

impl<'s> Group<'s> {
    /// Without `orders` no reply waits.
    pub fn new(orders: Option<Orders<'s>>) -> Self {
        Self {
            orders,
            number: 1,
            uncommitted: false,
            seen: Progress { durable: 0, failed: false },
            held: VecDeque::new(),
            writes: VecDeque::new(),
            gathered: 0,
        }
    }

    pub fn orders(&self) -> Option<&Orders<'s>> {
        self.orders.as_ref()
    }

    /// Replies made now have to wait.
    pub fn is_holding(&self) -> bool {
        self.uncommitted || self.is_on_its_way()
    }

    /// A group has been ordered and is not known to be durable.
    pub fn is_on_its_way(&self) -> bool {
        self.seen.durable + 1 < self.number
    }

    /// A write was carried out; its reply is at `start..end` of all output of `of`.
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

    /// What `conn` was told since it was last here waits, or nothing has to.
    pub fn hold(&mut self, slot: u32, conn: &mut Conn) {
        let end = conn.written();
        if !self.is_holding() {
            conn.free_to = end;
        } else if end > conn.free_to.max(conn.held_to) {
            conn.held_to = end;
            let group = if self.uncommitted { self.number } else { self.number - 1 };
            self.held.push_back(Held { of: Tag::of(slot, conn), end, group });
        }
    }

    /// Orders what was executed; returns the writes in it. `inline_max`: so few the loop makes
    /// durable itself.
    pub fn order(&mut self, inline_max: usize) -> usize {
        if std::mem::take(&mut self.uncommitted)
            && let Some(orders) = &self.orders
        {
            orders.order(self.number, self.gathered <= inline_max);
            self.number += 1;
        }
        std::mem::take(&mut self.gathered)
    }

    /// More writes of this group than one should have.
    pub fn is_full(&self, writes_max: usize) -> bool {
        self.gathered >= writes_max
    }

    /// More writes held than two groups should have.
    pub fn is_crowded(&self, writes_max: usize) -> bool {
        self.writes.len() >= 2 * writes_max && self.is_on_its_way()
    }

    /// Waits for the commit on its way.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn wait(&self) -> io::Result<()> {
        match &self.orders {
            Some(orders) if self.is_on_its_way() => orders.wait(self.seen),
            _ => Ok(()),
        }
    }

    /// The loop is about to wait: it wants to be woken. True: there is news already.
    pub fn call_me(&self) -> bool {
        match &self.orders {
            Some(orders) if self.is_on_its_way() => orders.call_me(self.seen),
            _ => false,
        }
    }

    /// The loop is awake.
    pub fn awake(&self) {
        if let Some(orders) = &self.orders {
            orders.awake();
        }
    }

    /// Ends the thread, with nothing on its way.
    pub fn end(&mut self) {
        if let Some(orders) = &mut self.orders {
            orders.end();
        }
    }

    /// Looks whether a commit has returned.
    pub fn look(&mut self) -> bool {
        let Some(orders) = &self.orders else { return false };
        let before = std::mem::replace(&mut self.seen, orders.progress());
        self.seen != before
    }

    /// The next output that is free to be sent: whose, and up to where.
    pub fn next_free(&mut self) -> Option<(Tag, u64)> {
        self.held.front().filter(|held| held.group <= self.seen.durable)?;
        self.held.pop_front().map(|held| (held.of, held.end))
    }

    /// After all that is free was taken: forgets the writes of it. When a commit has failed,
    /// returns why, and nothing waits any more.
    pub fn settle(&mut self) -> Option<String> {
        let durable = self.writes.partition_point(|write| write.group <= self.seen.durable);
        self.writes.drain(..durable);
        if !self.seen.failed {
            return None;
        }
        let orders = self.orders.take()?;
        (self.uncommitted, self.gathered) = (false, 0);
        self.seen.durable = self.number - 1;
        Some(orders.why().to_owned())
    }

    /// After a failure: whose output waits.
    pub fn take_held(&mut self) -> Vec<Tag> {
        let mut all: Vec<Tag> = std::mem::take(&mut self.held).iter().map(|held| held.of).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// After a failure: replaces the replies to writes of one connection by errors.
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

    /// After that: forgets all of them.
    pub fn forget_writes(&mut self) {
        self.writes = VecDeque::new();
    }
}
