//! A planned death, so that tests can cut an operation at each of its steps.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::Stop;

const NEVER: u64 = u64::MAX;

/// Counts the steps that a heap may still take before it behaves as if its process were dead.
pub(crate) struct Fuse(AtomicU64);

impl Fuse {
    /// A fuse that never burns down.
    pub fn unlit() -> Self {
        Self(AtomicU64::new(NEVER))
    }

    /// Lets the heap die after `steps` more steps.
    pub fn light(&self, steps: u64) {
        self.0.store(steps, Relaxed);
    }

    /// Whether the fuse has burnt down.
    #[inline]
    pub fn is_burnt(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    /// Whether a death is planned, so that steps are worth making smaller.
    #[inline]
    pub fn is_lit(&self) -> bool {
        self.0.load(Relaxed) != NEVER
    }

    /// Takes one step, or refuses it because the heap is dead.
    #[inline]
    pub fn burn(&self) -> Result<(), Stop> {
        match self.0.load(Relaxed) {
            NEVER => Ok(()),
            0 => Err(Stop::Killed),
            left => {
                self.0.store(left - 1, Relaxed);
                if left == 1 { Err(Stop::Killed) } else { Ok(()) }
            }
        }
    }
}
