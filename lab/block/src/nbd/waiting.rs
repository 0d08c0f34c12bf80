//! Replies of one connection: those whose instant has not come, in the order of their instants, and
//! those that are ready to be sent.
//!
//! Buffers are kept for later replies, up to [`KEPT_BYTES_MAX`].

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::io::IoSlice;

use perdura_media::Due;
use perdura_media::emulator::TimingError;

use super::reply::Reply;
use crate::disk::Disk;

/// The replies of a connection that are under way.
#[derive(Default)]
pub(super) struct Replies {
    waiting: BinaryHeap<Waiting>,
    ready: VecDeque<Reply>,
    /// Bytes of the first ready reply that have been sent.
    sent_bytes: usize,
    /// Bytes of all replies under way.
    bytes: usize,
    count: u64,
    kept: Vec<Vec<u8>>,
    kept_bytes: usize,
    /// How much later than modelled replies became ready.
    pub timing_error: TimingError,
}

/// A reply that waits for its instant. Ordered by instant, then by arrival, in reverse, for the
/// heap returns the greatest first.
struct Waiting {
    due: Due,
    began: Due,
    order: u64,
    reply: Reply,
}

/// Bytes of unused buffers that a connection keeps.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// Most replies that are sent in one system call.
const GATHERED_MAX: usize = 64;

impl Replies {
    /// Returns an empty reply to be filled.
    pub fn blank(&mut self) -> Reply {
        let buffer = self.kept.pop().unwrap_or_default();
        self.kept_bytes -= buffer.len();
        Reply::in_buffer(buffer)
    }

    /// Adds a reply that must not be sent before `due`. Its request began at `began`.
    pub fn push(&mut self, reply: Reply, began: Due, due: Due, disk: &dyn Disk) {
        self.bytes += reply.bytes().len();
        self.count += 1;
        let now = disk.now();
        if now >= due {
            self.count_late(began, due, now);
            self.ready.push_back(reply);
        } else {
            self.waiting.push(Waiting { due, began, order: self.count, reply });
        }
    }

    /// Adds a reply that can be sent at once.
    pub fn push_ready(&mut self, reply: Reply) {
        self.bytes += reply.bytes().len();
        self.ready.push_back(reply);
    }

    /// Makes the replies ready whose instant has come.
    pub fn ripen(&mut self, disk: &dyn Disk) {
        while let Some(due) = self.next_due() {
            let now = disk.now();
            if now < due {
                break;
            }
            let Some(first) = self.waiting.pop() else { break };
            self.count_late(first.began, due, now);
            self.ready.push_back(first.reply);
        }
    }

    fn count_late(&mut self, began: Due, due: Due, now: Due) {
        let modelled_ps = due.ps().saturating_sub(began.ps());
        self.timing_error.count(modelled_ps, now.ps().saturating_sub(due.ps()));
    }

    /// The next instant at which a reply becomes ready.
    pub fn next_due(&self) -> Option<Due> {
        self.waiting.peek().map(|first| first.due)
    }

    /// Number of replies that are ready.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ready.len() + self.waiting.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Slices of the ready replies, for one system call, and their number.
    pub fn gather(&self) -> ([IoSlice<'_>; GATHERED_MAX], usize) {
        let mut slices = [IoSlice::new(&[]); GATHERED_MAX];
        let mut count = 0;
        for (slot, reply) in slices.iter_mut().zip(&self.ready) {
            let skip = if count == 0 { self.sent_bytes } else { 0 };
            *slot = IoSlice::new(&reply.bytes()[skip..]);
            count += 1;
        }
        (slices, count)
    }

    /// Notes that so many of the gathered bytes were sent.
    pub fn advance(&mut self, mut sent: usize) {
        sent += self.sent_bytes;
        while let Some(first) = self.ready.front() {
            let len = first.bytes().len();
            if sent < len {
                break;
            }
            sent -= len;
            self.bytes -= len;
            let buffer = self.ready.pop_front().map(Reply::into_buffer).unwrap_or_default();
            self.keep(buffer);
        }
        self.sent_bytes = sent;
    }

    /// Gives back buffers that are not in use.
    pub fn release(&mut self) {
        self.kept = Vec::new();
        self.kept_bytes = 0;
    }

    fn keep(&mut self, buffer: Vec<u8>) {
        if self.kept_bytes + buffer.len() <= KEPT_BYTES_MAX {
            self.kept_bytes += buffer.len();
            self.kept.push(buffer);
        }
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.order).cmp(&(self.due, self.order))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
