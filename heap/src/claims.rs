//! The entries of roots that transactions have claimed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The entries of roots that transactions are making, changing or removing, each with its name.
#[derive(Debug, Default)]
pub(crate) struct RootClaims(Mutex<Vec<(u64, String)>>);

impl RootClaims {
    pub fn held(&self) -> MutexGuard<'_, Vec<(u64, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up the claims on these entries.
    pub fn release(&self, claims: &[u64]) {
        if !claims.is_empty() {
            self.held().retain(|(at, _)| !claims.contains(at));
        }
    }
}
