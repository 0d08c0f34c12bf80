//! All keys and libraries of functions as of one moment, in a dump that clients fetch in pieces.
//!
//! A thread beside the loops takes a snapshot of the store and writes it to a file without a name,
//! which goes when it is not needed any more. One dump is kept at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use perdura_media::Clock;
use perdura_rdb::Writer;
use perdura_store::{DATABASES, Entry, Key, SnapshotSink, Store, Unreadable};

use crate::commands::encode_entry;
use crate::script::Libraries;
use crate::shared::Functions;

/// Buckets of keys that are walked under one hold of their shard.
const BUCKETS_PER_HOLD: u64 = 64;
/// Time after which a dump is dropped that nobody fetches.
const KEPT: Duration = Duration::from_secs(600);

/// The dump that clients ask for, and the order for the thread.
#[derive(Debug)]
pub(crate) struct Exporting {
    state: Mutex<State>,
    changed: Condvar,
    /// Keys in the dump that is being made.
    keys: AtomicU64,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The directory for a dump that the thread has not taken up.
    ordered: Option<PathBuf>,
    ended: bool,
}

#[derive(Debug)]
enum Phase {
    None,
    /// A dump is being made of about so many keys.
    Running {
        keys_expected: u64,
    },
    Done {
        file: File,
        bytes: u64,
        unix_ms: u64,
        used: Instant,
    },
    Failed(String),
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
        let state = State { phase: Phase::None, ordered: None, ended: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), keys: AtomicU64::new(0) }
    }

    /// Orders a dump, in the place of one that is done. False if one is being made.
    pub fn order(&self, dir: PathBuf) -> bool {
        let mut state = self.lock();
        if state.ordered.is_some() || matches!(state.phase, Phase::Running { .. }) {
            return false;
        }
        state.phase = Phase::Running { keys_expected: 0 };
        state.ordered = Some(dir);
        self.keys.store(0, Relaxed);
        self.changed.notify_all();
        true
    }

    /// How far the dump is.
    pub fn progress(&self) -> Progress {
        let keys = self.keys.load(Relaxed);
        match &self.lock().phase {
            Phase::None => Progress::None,
            Phase::Running { keys_expected } => {
                Progress::Running { keys, keys_expected: *keys_expected }
            }
            Phase::Done { bytes, unix_ms, .. } => {
                Progress::Done { keys, bytes: *bytes, unix_ms: *unix_ms }
            }
            Phase::Failed(why) => Progress::Failed(why.clone()),
        }
    }

    /// Reads bytes of the dump that is done; `None` if there is none.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        let mut state = self.lock();
        let Phase::Done { file, used, .. } = &mut state.phase else { return None };
        *used = Instant::now();
        Some(file.read_at(bytes, offset))
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
        loop {
            let mut state = self.lock();
            while state.ordered.is_none() && !state.ended {
                let waited = self.changed.wait_timeout(state, KEPT / 10);
                state = waited.map_or_else(|poisoned| poisoned.into_inner().0, |waited| waited.0);
                if matches!(state.phase, Phase::Done { used, .. } if used.elapsed() > KEPT) {
                    state.phase = Phase::None;
                }
            }
            let Some(dir) = state.ordered.take().filter(|_| !state.ended) else { return };
            drop(state);
            let made = self.make(store, functions, clock, &dir);
            if let Err(why) = &made {
                tracing::error!(%why, "an export failed");
            }
            self.lock().phase = match made {
                Ok((file, bytes, unix_ms)) => {
                    Phase::Done { file, bytes, unix_ms, used: Instant::now() }
                }
                Err(why) => Phase::Failed(why),
            };
        }
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn make(
        &self,
        store: &Store,
        functions: &Functions,
        clock: &dyn Clock,
        dir: &Path,
    ) -> Result<(File, u64, u64), String> {
        let failed = |error: io::Error| format!("{}: {error}", dir.display());
        let file = tempfile::tempfile_in(dir).map_err(failed)?;
        let unix_ms = clock.unix_ms();
        let said = [
            ("redis-ver", "7.0.0".to_owned()),
            ("redis-bits", "64".to_owned()),
            ("ctime", (unix_ms / 1000).to_string()),
            ("made-by", format!("perdura {}", env!("CARGO_PKG_VERSION"))),
        ];
        let writer = Writer::new(file, &said).map_err(failed)?;
        let open = Open { writer: Some(writer), value: Vec::new(), error: None, keys: 0 };
        let dump = Arc::new(Dump { open: Mutex::new(open) });
        let sink: Arc<dyn SnapshotSink> = dump.clone();
        let keys_expected = (0..DATABASES).map(|db| store.len(db)).sum();
        self.lock().phase = Phase::Running { keys_expected };
        // A value that cannot be read ends the walk, and with it the snapshot.
        Unreadable::catch(|| {
            // A library does not change between the moment of the keys and its own.
            let changing = functions.begin_change();
            let mut snapshot = store.snapshot(&sink).map_err(|error| error.to_string())?;
            dump.add_libraries(&functions.libraries());
            drop(changing);
            while snapshot.step(BUCKETS_PER_HOLD) {
                let open = dump.lock();
                self.keys.store(open.keys, Relaxed);
                if open.error.is_some() {
                    break;
                }
                drop(open);
                if self.lock().ended {
                    return Err("the server ends".to_owned());
                }
            }
            Ok(())
        })
        .map_err(|unreadable| unreadable.to_string())??;
        let mut open = dump.lock();
        self.keys.store(open.keys, Relaxed);
        if let Some(error) = open.error.take() {
            return Err(failed(error));
        }
        let Some(writer) = open.writer.take() else { return Err("written twice".to_owned()) };
        let (file, bytes) = writer.end().map_err(failed)?;
        Ok((file, bytes, unix_ms))
    }

    /// Locks the state, also after a panic of another thread: each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The dump that is being made: the walk and clients' operations add keys to it.
struct Dump {
    open: Mutex<Open>,
}

struct Open {
    /// `None` once the dump has been ended.
    writer: Option<Writer<File>>,
    /// The value that is being written.
    value: Vec<u8>,
    /// The first error of writing.
    error: Option<io::Error>,
    keys: u64,
}

impl Dump {
    fn add_libraries(&self, libraries: &Libraries) {
        let mut open = self.lock();
        let Open { writer: Some(writer), error: error @ None, .. } = &mut *open else { return };
        let mut codes = libraries.by_name.values().map(|library| &library.code);
        *error = codes.try_for_each(|code| writer.function(code)).err();
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotSink for Dump {
    fn take(&self, key: Key<'_>, entry: &Entry<'_>) {
        let mut open = self.lock();
        let Open { writer: Some(writer), value, error: None, .. } = &mut *open else { return };
        value.clear();
        encode_entry(entry, value);
        let written = writer.key(u64::from(key.db), key.bytes, entry.expire_at_ms, value);
        value.shrink_to(1 << 20);
        match written {
            Ok(()) => open.keys += 1,
            Err(error) => open.error = Some(error),
        }
    }
}
