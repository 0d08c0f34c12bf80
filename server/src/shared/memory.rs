//! Whether memory is used up to the limit that CONFIG SET maxmemory has set below the memory that
//! there is.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use perdura_store::{EvictionPolicy, Store, Unreadable};

/// Whether commands that need memory are refused. It changes when somebody looks, so each loop
/// reads a cache line that is hardly ever written.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit(AtomicBool);

impl MemoryLimit {
    /// Whether memory is used up to the limit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Looks whether more than `max_bytes` are used, and evicts some keys then, if keys may go.
    /// Writes that happen between two looks can exceed the limit by what they write.
    pub fn look(&self, store: &Store, max_bytes: Option<u64>) {
        let Some(max_bytes) = max_bytes else { return self.0.store(false, Relaxed) };
        let evicts = store.eviction().policy != EvictionPolicy::None;
        let mut rounds = ROUNDS_MAX;
        let is_full = loop {
            let used_bytes = store.used_bytes();
            if used_bytes <= max_bytes {
                break false;
            }
            // Nothing has to go while what was deleted is not free yet.
            let freed = Unreadable::catch(|| store.free_some(PARTS_PER_ROUND));
            // A failing device refuses deletions, too.
            let gone = || Unreadable::catch(|| store.evict_some(KEYS_PER_ROUND));
            let has_freed = matches!(freed, Ok(1..));
            if !has_freed && !(evicts && matches!(gone(), Ok(Ok(1..)))) {
                break true;
            }
            rounds -= 1;
            if rounds == 0 {
                break true;
            }
        };
        self.0.store(is_full, Relaxed);
    }
}

/// Rounds of one look. A store that is far above the limit goes on at the next look.
const ROUNDS_MAX: u32 = 64;
const KEYS_PER_ROUND: u32 = 128;
/// Parts of deleted values that are freed in a round.
const PARTS_PER_ROUND: u64 = 4096;
