//! The words of the ledger that the checked code uses, each on its own.

use crate::sync::AtomicU64;

/// The words of the account.
#[derive(Debug, Default)]
pub struct Ledger {
    limit: AtomicU64,
    used: AtomicU64,
    high: AtomicU64,
}

impl Ledger {
    pub(crate) fn budget_limit(&self) -> &AtomicU64 {
        &self.limit
    }

    pub(crate) fn budget_used(&self) -> &AtomicU64 {
        &self.used
    }

    pub(crate) fn budget_high(&self) -> &AtomicU64 {
        &self.high
    }
}
