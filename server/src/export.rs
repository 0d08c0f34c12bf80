//! All keys and libraries of functions as of one moment, in dumps that clients get.
//!
//! A thread beside the loops takes a snapshot of the store and writes it to a file without a name,
//! which goes when it is not needed any more, one after the other. There is one dump that clients
//! fetch in pieces (PERDURA EXPORT), and a few for clients that ask for a copy (SYNC).

mod dump;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use perdura_media::Clock;
use perdura_store::{DATABASES, Store};

pub(crate) use dump::{Dump, Parts};

use crate::shared::Functions;
use dump::Source;

/// Most dumps for copies at a time, those among them that are being sent.
const COPIES_MAX: usize = 4;
/// Time after which a dump is dropped that nobody fetches.
const KEPT: Duration = Duration::from_secs(600);

/// The dumps that clients ask for, and the orders for the thread.
#[derive(Debug)]
pub(crate) struct Exporting {
    state: Mutex<State>,
    changed: Condvar,
    /// Keys in the dump that clients fetch, or will fetch.
    keys: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// The dump that clients fetch.
    phase: Phase,
    /// The dumps that the thread has not taken up.
    orders: VecDeque<Order>,
    /// The dumps for copies that somebody may still need.
    copies: Vec<Weak<Awaited>>,
    ended: bool,
}

/// A dump to be made in a directory.
#[derive(Debug)]
enum Order {
    Export(PathBuf),
    /// Nobody waits for it any more if its dump is gone.
    Copy(PathBuf, Weak<Awaited>),
}

#[derive(Debug)]
enum Phase {
    None,
    /// A dump is being made of about so many keys.
    Running {
        keys_expected: u64,
    },
    Done {
        dump: Dump,
        used: Instant,
    },
    Failed(String),
}

/// A dump for clients that ask for a copy. Those share it that have ordered it before it was begun,
/// and the file goes with the last of them.
#[derive(Debug)]
pub(crate) struct Awaited {
    parts: Parts,
    outcome: OnceLock<Result<Dump, String>>,
}

impl Awaited {
    /// The dump, or why there is none; `None` while it is being made.
    pub fn outcome(&self) -> Option<&Result<Dump, String>> {
        self.outcome.get()
    }
}

/// What a client is told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    None,
    Running { keys: u64, keys_expected: u64 },
    Done { keys: u64, bytes: u64, unix_ms: u64 },
    Failed(String),
}

impl Exporting {
    pub fn new() -> Self {
        let state =
            State { phase: Phase::None, orders: VecDeque::new(), copies: Vec::new(), ended: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), keys: AtomicU64::new(0) }
    }

    /// Orders the dump that clients fetch, in the place of one that is done. False if it is being
    /// made.
    pub fn order(&self, dir: PathBuf) -> bool {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Running { .. }) {
            return false;
        }
        state.phase = Phase::Running { keys_expected: 0 };
        state.orders.push_back(Order::Export(dir));
        self.keys.store(0, Relaxed);
        self.changed.notify_all();
        true
    }

    /// Orders a dump for a copy, or shares one that is not begun. `None` if so many are needed that
    /// no other is made.
    pub fn order_copy(&self, dir: PathBuf, parts: Parts) -> Option<Arc<Awaited>> {
        let mut state = self.lock();
        let mut ordered = state.orders.iter().filter_map(|order| match order {
            Order::Copy(_, awaited) => awaited.upgrade(),
            Order::Export(_) => None,
        });
        if let Some(awaited) = ordered.find(|awaited| awaited.parts == parts) {
            return Some(awaited);
        }
        state.copies.retain(|copy| copy.strong_count() > 0);
        if state.copies.len() >= COPIES_MAX {
            return None;
        }
        let awaited = Arc::new(Awaited { parts, outcome: OnceLock::new() });
        state.copies.push(Arc::downgrade(&awaited));
        state.orders.push_back(Order::Copy(dir, Arc::downgrade(&awaited)));
        self.changed.notify_all();
        Some(awaited)
    }

    /// How far the dump is that clients fetch.
    pub fn progress(&self) -> Progress {
        let keys = self.keys.load(Relaxed);
        match &self.lock().phase {
            Phase::None => Progress::None,
            Phase::Running { keys_expected } => {
                Progress::Running { keys, keys_expected: *keys_expected }
            }
            Phase::Done { dump, .. } => {
                Progress::Done { keys, bytes: dump.bytes, unix_ms: dump.unix_ms }
            }
            Phase::Failed(why) => Progress::Failed(why.clone()),
        }
    }

    /// Reads bytes of the dump that is done; `None` if there is none.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        let mut state = self.lock();
        let Phase::Done { dump, used } = &mut state.phase else { return None };
        *used = Instant::now();
        Some(dump.read(offset, bytes))
    }

    /// Drops the dump that is done, or the message of one that failed. False if one is being made.
    pub fn drop_done(&self) -> bool {
        let mut state = self.lock();
        let is_running = matches!(state.phase, Phase::Running { .. });
        if !is_running {
            state.phase = Phase::None;
        }
        !is_running
    }

    /// Makes the dumps that are ordered, on the thread beside the loops, until the end.
    pub fn serve(&self, store: &Store, functions: &Functions, clock: &dyn Clock) {
        let source = Source { store, functions, clock };
        while let Some(order) = self.next() {
            match order {
                Order::Export(dir) => self.export(&source, &dir),
                Order::Copy(dir, awaited) => self.copy(&source, &dir, &awaited),
            }
        }
    }

    /// Waits for an order; `None` at the end.
    fn next(&self) -> Option<Order> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            if let Some(order) = state.orders.pop_front() {
                return Some(order);
            }
            let waited = self.changed.wait_timeout(state, KEPT / 10);
            state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |waited| waited.0);
            if matches!(state.phase, Phase::Done { used, .. } if used.elapsed() > KEPT) {
                state.phase = Phase::None;
            }
        }
    }

    fn export(&self, source: &Source<'_>, dir: &Path) {
        let keys_expected = (0..DATABASES).map(|db| source.store.len(db)).sum();
        self.lock().phase = Phase::Running { keys_expected };
        let goes_on = |keys| {
            self.keys.store(keys, Relaxed);
            !self.lock().ended
        };
        let made = source.dump(dir, Parts::ALL, &goes_on);
        self.lock().phase = match made {
            Ok(Some(dump)) => Phase::Done { dump, used: Instant::now() },
            Ok(None) => Phase::None,
            Err(why) => {
                tracing::error!(%why, "an export failed");
                Phase::Failed(why)
            }
        };
    }

    fn copy(&self, source: &Source<'_>, dir: &Path, awaited: &Weak<Awaited>) {
        let Some(parts) = awaited.upgrade().map(|awaited| awaited.parts) else { return };
        let goes_on = |_| awaited.strong_count() > 0 && !self.lock().ended;
        let made = source.dump(dir, parts, &goes_on);
        if let Err(why) = &made {
            tracing::error!(%why, "a dump for a copy failed");
        }
        if let (Some(awaited), Some(outcome)) = (awaited.upgrade(), made.transpose()) {
            // It is set here only.
            let _ = awaited.outcome.set(outcome);
        }
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Locks the state, also after a panic of another thread: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
