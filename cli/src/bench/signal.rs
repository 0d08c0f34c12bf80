//! The end of a measurement by a signal.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};

/// A flag that SIGINT and SIGTERM set, so that a measurement leaves nothing behind, such as a
/// mounted disk.
pub fn end_at_a_signal() -> Result<Arc<AtomicBool>> {
    let is_over = Arc::new(AtomicBool::new(false));
    // Caught and not blocked, because the servers would inherit that.
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).context("catch a signal")?;
    }
    Ok(is_over)
}
