//! Parts of a medium that are busy until an instant.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::energy::{Meter, PowerOf};

/// A part that does one thing at a time, in the order of the claims.
#[derive(Default)]
pub(super) struct Busy {
    until_ps: AtomicU64,
}

impl Busy {
    /// Claims the part for `length_ps` as soon as it is free, not before `from_ps`; returns the
    /// start.
    pub(super) fn claim(&self, from_ps: u64, length_ps: u64) -> u64 {
        if length_ps == 0 {
            return from_ps;
        }
        let mut seen_ps = self.until_ps.load(Relaxed);
        loop {
            let start_ps = seen_ps.max(from_ps);
            let end_ps = start_ps.saturating_add(length_ps);
            match self.until_ps.compare_exchange_weak(seen_ps, end_ps, Relaxed, Relaxed) {
                Ok(_) => return start_ps,
                Err(now_ps) => seen_ps = now_ps,
            }
        }
    }

    pub(super) fn until_ps(&self) -> u64 {
        self.until_ps.load(Relaxed)
    }
}

/// A bank, a die, a spindle, a module. Each has a cache line of its own, for threads book different
/// ones.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Unit {
    pub(super) busy: Busy,
    /// End of the last request, in the unit's own addresses.
    pub(super) end_bytes: AtomicU64,
    /// Streams of reads and of writes, in memory.
    pub(super) streams: [Streams; 2],
    pub(super) meter: Meter,
}

/// Number of streams that a unit remembers: an Optane module's buffer of 16 KiB has as many
/// granules of 256 B (Yang et al. 2020). Assumed for other memory.
const STREAMS: usize = 64;

/// Ends of the last streams of requests, of which memory buffers several. Streams that share a slot
/// displace each other.
pub(super) struct Streams([AtomicU64; STREAMS]);

impl Default for Streams {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::default()))
    }
}

impl Streams {
    /// Whether a request continues one of the streams. From now on it is that stream's last
    /// request.
    pub(super) fn follows(&self, start_bytes: u64, end_bytes: u64, granule_bytes: u64) -> bool {
        // A hash spreads the streams, which often begin a power of two apart.
        let number = |bytes: u64| {
            (bytes / granule_bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                >> (64 - STREAMS.trailing_zeros())
        };
        let end = |bytes: u64| &self.0[number(bytes) as usize % STREAMS];
        let follows = end(start_bytes).load(Relaxed) == start_bytes;
        end(end_bytes).store(end_bytes, Relaxed);
        follows
    }
}

impl Unit {
    pub(super) fn meter(&self, power: &PowerOf, start_ps: u64, length_ps: u64) {
        self.meter.count(power, start_ps, length_ps);
    }
}
