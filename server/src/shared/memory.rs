//! How much room there is below the limit that CONFIG SET maxmemory has set, which is less than the
//! memory that there is.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use perdura_store::{EvictionPolicy, Store, Unreadable};

/// The room below the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Room {
    /// More than clients can write until memory is looked at the next time.
    Much = 0,
    /// Perhaps less; or memory is used beyond the limit, and keys go.
    Little = 1,
    /// None, and no key may go: commands that need memory are refused.
    None = 2,
}

/// The room as of the last look. It seldom changes, so each loop reads a cache line that is hardly
/// ever written.
#[derive(Debug, Default)]
pub(crate) struct MemoryLimit(AtomicU8);

impl MemoryLimit {
    /// The room at the last look.
    #[inline]
    pub fn room(&self) -> Room {
        match self.0.load(Relaxed) {
            0 => Room::Much,
            1 => Room::Little,
            _ => Room::None,
        }
    }

    /// Looks whether more than `max_bytes` are used, and evicts keys then, if keys may go, in a
    /// number of rounds.
    pub fn look(&self, store: &Store, max_bytes: Option<u64>) {
        let mut rounds = 0..ROUNDS_MAX;
        self.look_while(store, max_bytes, || rounds.next().is_some());
    }

    /// Looks whether more than `max_bytes` are used, and evicts keys then, if keys may go, for as
    /// long as `goes_on` says so. Returns whether more have to go.
    pub fn look_while(
        &self,
        store: &Store,
        max_bytes: Option<u64>,
        mut goes_on: impl FnMut() -> bool,
    ) -> bool {
        let evicts = store.eviction().policy != EvictionPolicy::None;
        // Few keys at first: each of them may be large.
        let mut keys = 1;
        let (room, is_over) = loop {
            let used_bytes = store.used_bytes();
            match max_bytes {
                Some(max_bytes) if used_bytes > max_bytes => {}
                Some(max_bytes) if max_bytes - used_bytes < WRITTEN_BYTES_MAX => {
                    break (Room::Little, false);
                }
                _ => break (Room::Much, false),
            }
            if !goes_on() {
                break if evicts { (Room::Little, true) } else { (Room::None, false) };
            }
            // Nothing has to go while what was deleted is not free yet. A failing device refuses
            // deletions, too.
            let gone = Unreadable::catch(|| match store.free_some(PARTS_PER_ROUND) {
                0 if evicts => store.evict_some(keys),
                0 => Ok(0),
                _ => Ok(1),
            });
            if !matches!(gone, Ok(Ok(1..))) {
                break (Room::None, false);
            }
            keys = (keys * 2).min(KEYS_PER_ROUND);
        };
        self.0.store(room as u8, Relaxed);
        is_over
    }
}

/// Bytes that all clients together do not write in a tenth of a second, after which memory is
/// looked at in any case.
const WRITTEN_BYTES_MAX: u64 = 256 << 20;
/// Rounds of one look. A store that is far above the limit goes on at the next look.
const ROUNDS_MAX: u32 = 64;
const KEYS_PER_ROUND: u32 = 128;
/// Parts of deleted values that are freed in a round.
const PARTS_PER_ROUND: u64 = 4096;
