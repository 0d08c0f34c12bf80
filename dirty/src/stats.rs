//! Counters of one region since it was opened. Relaxed: they inform, they decide nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }
        /// A reading of the counters.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }
        impl Counters {
            /// A reading of all counters.
            pub fn read(&self) -> Stats { Stats { $($name: self.$name.load(Relaxed),)* } }
        }
        impl Stats {
            /// Name and value of every counter, in declaration order.
            pub fn fields(&self) -> Vec<(&'static str, u64)> { vec![$((stringify!($name), self.$name),)*] }
        }
    };
}

counters! {
    /// Bytes of grains that became dirty.
    dirtied_bytes,
    /// Dirty bytes dropped because their memory was freed before it was cleaned.
    dropped_bytes,
    /// Bytes copied by proactive or demanded cleaning.
    cleaned_bytes,
    /// Bytes copied while draining a closing epoch.
    drained_bytes,
    /// Bytes copied by writers about to change a grain of a closing epoch.
    captured_bytes,
    /// Clean bytes copied to free segments.
    compacted_bytes,
    /// Bytes read back from the device by compaction (extent tables only).
    compaction_read_bytes,
    /// Bytes written to the device, frames and commit slots.
    device_bytes,
    /// Zeros written to free segments before the log goes there; not among `device_bytes`.
    prezeroed_bytes,
    /// Payload bytes of frames that were to be compressed.
    compression_in_bytes,
    /// What was stored for them; those that did not shrink are among both.
    compression_out_bytes,
    /// Processor time spent on it, nanoseconds.
    compression_cpu_ns,
    /// Frames that did shrink.
    compressed_frames,
    /// Frames written.
    frames,
    /// Device flushes.
    device_flushes,
    /// Checkpoints committed.
    checkpoints,
    /// When the last of these checkpoints was committed, nanoseconds on the region's clock; 0: none
    /// was since the region was opened.
    checkpoint_at_ns,
    /// Group commits.
    group_commits,
    /// Nanoseconds spent in checkpoints.
    checkpoint_ns,
    /// Longest time that one cut held all lanes (barrier) or all faults (trap), nanoseconds.
    cut_ns_max,
    /// Times a writer had to wait for budget or a frame buffer.
    stalls,
    /// Nanoseconds writers waited (barrier; a trapped store's wait is counted, not timed).
    stall_ns,
    /// Longest of these waits, nanoseconds.
    stall_ns_max,
    /// Conservative rate of the device as the cleaner's own writes show it, bytes per second; 0:
    /// not known.
    observed_rate_bytes_per_s,
    /// Samples of that rate.
    rate_samples,
    /// Write faults taken (trap modes).
    faults,
    /// Pages protected again.
    reprotections,
    /// Epochs of the policy (trap modes): in each, every page then open was protected once.
    epochs,
    /// Duration of the last of them, nanoseconds: the configured epoch, or longer where protecting
    /// so many pages would have cost more than a tenth of it.
    epoch_ns_last,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}
