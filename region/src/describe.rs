//! Descriptions of a region for people to read.

use crate::region::Region;
use perdura_image::Compression;

impl Region {
    /// How cleaning, checkpoints and compaction compress data.
    pub fn compression(&self) -> Compression {
        self.running().backed.log.compression
    }

    /// How the image is encrypted: `aes-256-gcm` or `off`.
    pub fn encryption(&self) -> &'static str {
        match self.running().backed.memory.ledger.key_words() {
            Some(_) => "aes-256-gcm",
            None => "off",
        }
    }

    /// Whether memory and ledger are locked in DRAM; `None`: they are being locked.
    pub fn is_locked(&self) -> Option<bool> {
        let running = self.running();
        let (_, ledger) = running.buffers.get()?;
        Some(running.locked.and(*ledger).is_ok())
    }

    /// Text that says whether the memory is locked in DRAM and the frame buffers lie in huge pages,
    /// or why not.
    pub fn describe_memory(&self) -> String {
        let Some((gathered, ledger_locked)) = self.running().buffers.get() else {
            return "being locked in DRAM".into();
        };
        let locked = match self.running().locked.and(*ledger_locked) {
            Ok(()) => "locked in DRAM".into(),
            Err(errno) => format!(
                "may be swapped: not locked ({errno}; it takes `ulimit -l unlimited` or \
                 CAP_IPC_LOCK)"
            ),
        };
        match gathered {
            Ok(()) => format!("{locked}; frame buffers in huge pages"),
            Err(errno) => format!("{locked}; frame buffers in small pages ({errno})"),
        }
    }

    /// Text that says which tracking mode is active, and why.
    pub fn describe_tracking(&self) -> String {
        match self.running().backed.tracked.pages() {
            None => "barrier: writers announce what they change".into(),
            Some(tracker) => tracker.describe(),
        }
    }
}
