//! What the loops share of scripts: which are known, which libraries there are, which one runs.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::script::{Libraries, Sha};

/// Most scripts that EVAL has brought; beyond, the oldest of them goes.
const EVALED_MAX: usize = 10_000;
/// Bytes of the scripts that EVAL has brought.
const EVALED_BYTES_MAX: usize = 64 << 20;
/// Bytes of the scripts that SCRIPT LOAD has brought.
const LOADED_BYTES_MAX: usize = 64 << 20;

/// The scripts that EVALSHA finds, whatever loop they came to.
#[derive(Debug, Default)]
pub(crate) struct ScriptCache {
    known: Mutex<Known>,
    /// Number of SCRIPT FLUSHes: a loop that has seen fewer forgets what it has compiled.
    flushes: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    scripts: HashMap<Sha, Script>,
    /// Those that EVAL has brought, the oldest first; one may have been loaded since.
    evaled: VecDeque<Sha>,
    evaled_bytes: usize,
    loaded_bytes: usize,
}

#[derive(Debug)]
struct Script {
    code: Arc<[u8]>,
    is_loaded: bool,
}

/// The scripts that are loaded take all the memory that is for them.
#[derive(Debug)]
pub(crate) struct CacheFull;

impl ScriptCache {
    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }

    /// The code of a script.
    pub fn get(&self, sha: &Sha) -> Option<Arc<[u8]>> {
        self.known().scripts.get(sha).map(|script| Arc::clone(&script.code))
    }

    /// Whether a script is known.
    pub fn has(&self, sha: &Sha) -> bool {
        self.known().scripts.contains_key(sha)
    }

    /// Number of scripts, and the bytes of their codes.
    pub fn count(&self) -> (usize, usize) {
        let known = self.known();
        (known.scripts.len(), known.evaled_bytes + known.loaded_bytes)
    }

    /// Number of SCRIPT FLUSHes so far.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Acquire)
    }

    /// Adds a script that came with EVAL.
    pub fn add_evaled(&self, sha: Sha, code: &[u8]) {
        let mut known = self.known();
        if known.scripts.contains_key(&sha) || code.len() > EVALED_BYTES_MAX {
            return;
        }
        known.scripts.insert(sha, Script { code: code.into(), is_loaded: false });
        known.evaled.push_back(sha);
        known.evaled_bytes += code.len();
        while known.evaled.len() > EVALED_MAX || known.evaled_bytes > EVALED_BYTES_MAX {
            let Some(oldest) = known.evaled.pop_front() else { break };
            if known.scripts.get(&oldest).is_some_and(|script| !script.is_loaded)
                && let Some(script) = known.scripts.remove(&oldest)
            {
                known.evaled_bytes -= script.code.len();
            }
        }
    }

    /// Adds a script that came with SCRIPT LOAD, which stays until SCRIPT FLUSH.
    ///
    /// # Errors
    /// There is no room for more scripts.
    pub fn add_loaded(&self, sha: Sha, code: &[u8]) -> Result<(), CacheFull> {
        let mut known = self.known();
        let is_loaded = known.scripts.get(&sha).map(|script| script.is_loaded);
        if is_loaded == Some(true) {
            return Ok(());
        }
        if known.loaded_bytes + code.len() > LOADED_BYTES_MAX {
            return Err(CacheFull);
        }
        if is_loaded == Some(false) {
            known.evaled_bytes -= code.len();
        }
        known.loaded_bytes += code.len();
        known.scripts.insert(sha, Script { code: code.into(), is_loaded: true });
        Ok(())
    }

    /// Forgets all scripts.
    pub fn flush(&self) {
        let mut known = self.known();
        *known = Known::default();
        self.flushes.fetch_add(1, Release);
    }
}

/// The libraries of functions.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    libraries: Mutex<Arc<Libraries>>,
    /// Number of changes: a loop that has seen fewer takes the libraries anew.
    changes: AtomicU64,
    /// Held while the libraries are being changed, in the store, too.
    changing: Mutex<()>,
}

impl Functions {
    /// The libraries in force.
    pub fn libraries(&self) -> Arc<Libraries> {
        Arc::clone(&lock(&self.libraries))
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Keeps others from changing the libraries.
    pub fn begin_change(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Puts other libraries in force. The caller has begun a change.
    pub fn set(&self, libraries: Libraries) {
        *lock(&self.libraries) = Arc::new(libraries);
        self.changes.fetch_add(1, Release);
    }
}

/// The script that a loop runs, as other loops see it.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// 0: none runs. Otherwise its number, and in the lowest bit whether it is a function.
    word: AtomicU64,
    /// The word of the script that is to end.
    killed: AtomicU64,
    /// Bytes of the loop's Lua state after its last script.
    pub memory_bytes: AtomicU64,
    /// What FUNCTION STATS tells, of a script that has run for a while.
    about: Mutex<Option<AboutRunning>>,
}

/// What is told of a script that has run for a while.
#[derive(Debug, Clone)]
pub(crate) struct AboutRunning {
    pub is_function: bool,
    pub name: String,
    pub command: Vec<Vec<u8>>,
    pub started_ns: u64,
}

const IS_FUNCTION: u64 = 1;

impl Running {
    /// Notes that a script begins, of the loop's transaction with this number from 1. Only the loop
    /// does this.
    pub fn begin(&self, number: u64, is_function: bool) {
        self.word.store(number << 1 | u64::from(is_function), Relaxed);
    }

    /// Notes that the script has ended.
    pub fn end(&self) {
        self.word.store(0, Relaxed);
    }

    /// Whether the script that runs is to end.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed) == self.word.load(Relaxed)
    }

    /// Whether a script runs, and if so whether it is a function.
    pub fn kind(&self) -> Option<bool> {
        match self.word.load(Relaxed) {
            0 => None,
            word => Some(word & IS_FUNCTION != 0),
        }
    }

    /// Asks the script that runs to end, if it is of this kind.
    pub fn kill(&self, is_function: bool) {
        let word = self.word.load(Relaxed);
        if word != 0 && (word & IS_FUNCTION != 0) == is_function {
            self.killed.store(word, Relaxed);
        }
    }

    /// Says what runs, or that it has ended.
    pub fn tell(&self, about: Option<AboutRunning>) {
        *lock(&self.about) = about;
    }

    /// What runs, if that has been told.
    pub fn told(&self) -> Option<AboutRunning> {
        lock(&self.about).clone()
    }
}

/// Locks one of the tables, also after a panic of another thread: each change of them is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
