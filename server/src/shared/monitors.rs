//! The clients that watch all commands (MONITOR).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Own;
use super::card::Card;
use super::tracking::Push;

/// The clients that watch, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    clients: Mutex<BTreeMap<u64, Arc<Card>>>,
    /// Number of clients: read by each command, seldom written.
    count: AtomicUsize,
}

impl Monitors {
    /// Whether anybody watches.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.count.load(Acquire) != 0
    }

    /// Lets a client watch.
    pub fn join(&self, card: &Arc<Card>) {
        let mut clients = self.lock();
        clients.insert(card.id, Arc::clone(card));
        self.count.store(clients.len(), Release);
    }

    /// Ends a client's watching.
    pub fn leave(&self, id: u64) {
        let mut clients = self.lock();
        clients.remove(&id);
        self.count.store(clients.len(), Release);
    }

    /// Leaves a line with the loops of all who watch.
    pub fn show(&self, line: &[u8], loops: &[Own]) {
        let line: Arc<[u8]> = line.into();
        let clients: Vec<Arc<Card>> = self.lock().values().cloned().collect();
        for to in clients {
            let own = &loops[to.of_loop];
            own.inbox.push(Push::Line { line: Arc::clone(&line), to });
            own.bell.ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Card>>> {
        // An insertion or a removal that has panicked leaves a map that is whole.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
