//! How a loop is woken, and what other threads leave for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::topics::Message;
use super::tracking::Push;
use super::waiters::Served;
use crate::conn::Conn;

/// Wakes one loop. All accesses are sequentially consistent: the loop says that it waits before it
/// looks for news, and who has news leaves them before looking whether the loop waits.
#[derive(Debug)]
pub(crate) struct Bell {
    is_waited_for: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    /// # Errors
    /// The system has no event file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { is_waited_for: AtomicBool::new(false), event })
    }

    /// Wakes the loop, whether it has said that it waits or not.
    pub fn ring(&self) {
        // Fails only when the counter is full: then the loop is awake already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Wakes the loop if it has said that it waits for news of this kind.
    pub fn ring_if_waited_for(&self) {
        if self.is_waited_for.swap(false, SeqCst) {
            self.ring();
        }
    }

    /// Says that the loop is about to wait.
    pub fn call_me(&self) {
        self.is_waited_for.store(true, SeqCst);
    }

    /// Says that the loop is awake and need not be woken.
    pub fn awake(&self) {
        self.is_waited_for.store(false, SeqCst);
    }

    /// Empties the event descriptor that the loop was woken by.
    pub fn heard(&self) {
        // An empty descriptor is no error: the event was read before.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Waits until the bell rings.
    ///
    /// # Errors
    /// The system cannot wait.
    pub fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(&self.event, PollFlags::IN)], None) {
            Ok(_) => self.heard(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(SeqCst)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// What other loops leave for one.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    has_news: AtomicBool,
    has_kills: AtomicBool,
    has_served: AtomicBool,
    conns: Mutex<Vec<Conn>>,
    messages: Mutex<Vec<Message>>,
    served: Mutex<Vec<Served>>,
    has_pushes: AtomicBool,
    pushes: Mutex<Vec<Push>>,
}

impl Inbox {
    /// Leaves a connection that the loop is to serve.
    pub fn hand(&self, conn: Conn) {
        lock(&self.conns).push(conn);
        self.has_news.store(true, SeqCst);
    }

    /// Leaves a message for clients of the loop.
    pub fn post(&self, message: Message) {
        lock(&self.messages).push(message);
        self.has_news.store(true, SeqCst);
    }

    /// Leaves the answer to a client of the loop that has waited for data.
    pub fn answer(&self, served: Served) {
        lock(&self.served).push(served);
        self.has_served.store(true, SeqCst);
    }

    /// Takes the answers to clients that have waited, in the order in which they were left.
    pub fn take_served(&self) -> Vec<Served> {
        if !self.has_served.load(SeqCst) || !self.has_served.swap(false, SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.served))
    }

    /// Leaves what clients of the loop are to be told besides their replies.
    pub fn push(&self, push: Push) {
        lock(&self.pushes).push(push);
        self.has_pushes.store(true, SeqCst);
    }

    /// Takes what clients are to be told, in the order in which it was left.
    pub fn take_pushes(&self) -> Vec<Push> {
        if !self.has_pushes.load(SeqCst) || !self.has_pushes.swap(false, SeqCst) {
            return Vec::new();
        }
        std::mem::take(&mut *lock(&self.pushes))
    }

    /// Tells the loop that one of its clients was marked as killed.
    pub fn kill(&self) {
        self.has_kills.store(true, SeqCst);
    }

    /// Whether there is anything.
    pub fn has_news(&self) -> bool {
        let all = [&self.has_news, &self.has_kills, &self.has_served, &self.has_pushes];
        all.iter().any(|has| has.load(SeqCst))
    }

    /// Takes the connections and the messages, in the order in which they were left.
    pub fn take_news(&self) -> (Vec<Conn>, Vec<Message>) {
        if !self.has_news.load(SeqCst) || !self.has_news.swap(false, SeqCst) {
            return Default::default();
        }
        let conns = std::mem::take(&mut *lock(&self.conns));
        (conns, std::mem::take(&mut *lock(&self.messages)))
    }

    /// Whether a client was killed since the last call.
    pub fn take_kills(&self) -> bool {
        self.has_kills.load(SeqCst) && self.has_kills.swap(false, SeqCst)
    }
}

/// Locks a list, also after a panic of another thread: a push or a take leaves it whole.
fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}
