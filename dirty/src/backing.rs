//! The trait through which writers reach the log and the image, which this crate does not know.

/// What is missing. The writer releases every lane, waits for it (`Region::satisfy`), and tries
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Need {
    /// The budget has not enough bytes left.
    Room {
        /// Bytes that the writer needs.
        bytes: u64,
    },
    /// No frame buffer is free to capture bytes of a closing epoch.
    Buffer,
}

/// The log and the image behind the memory: old bytes are captured in the log, and memory that is
/// not loaded yet comes from the image.
pub trait Backing: Sync {
    /// Copies grains of a bitmap word before they change, because the closing epoch still owes
    /// them.
    ///
    /// # Errors
    /// No frame buffer is free; the writer must wait for one.
    fn capture(&self, parity: u64, word: usize, bits: u64) -> Result<(), Need>;

    /// Loads a block if it is not in memory. If it cannot be read the thread unwinds: a reader has
    /// no other way to learn of it.
    fn load_or_unwind(&self, block: u64);
}
