//! The choices that a caller has when a file becomes a device.

/// Whether the file is created or must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Creates a new file, private to its owner, with space for `capacity_bytes` (rounded up to
    /// whole blocks). An existing file is refused and not touched; a file that gets no space is
    /// removed.
    Create {
        /// Size in bytes.
        capacity_bytes: u64,
    },
    /// Opens an existing file. The capacity is its size, rounded down to whole blocks.
    Existing,
    /// Opens an existing file only for reading: every write and every growth fails.
    ReadOnly,
}

/// How queued writes reach the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// `io_uring` where the system grants it, else `pwrite`.
    #[default]
    Auto,
    /// `io_uring`; opening fails where the system refuses it.
    Uring,
    /// `pwrite`, one write after the other.
    Pwrite,
}

/// Whether writes go past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// `O_DIRECT` where the file system grants it, else buffered.
    #[default]
    Auto,
    /// `O_DIRECT`; opening fails where the file system refuses it.
    On,
    /// Buffered in the page cache.
    Off,
}
