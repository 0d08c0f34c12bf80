//! Counters of one region since it was opened. All accesses are relaxed, because counters only
//! inform and decide nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// The counters, which all threads change.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }
        /// The values of all counters at one time.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }
        impl Counters {
            /// Reads all counters.
            pub fn read(&self) -> Stats { Stats { $($name: self.$name.load(Relaxed),)* } }
        }
        impl Stats {
            /// Name and value of every counter, in declaration order.
            pub fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
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
    /// Bytes that compaction read back from the device: extent tables only.
    compaction_read_bytes,
    /// Bytes of frames and commit slots written to the device.
    device_bytes,
    /// Zeros written to free segments before the log goes there; not counted in `device_bytes`.
    prezeroed_bytes,
    /// Payload bytes of frames that were to be compressed.
    compression_in_bytes,
    /// Payload bytes stored for these frames; a frame that did not shrink counts in both.
    compression_out_bytes,
    /// Processor time of compression, nanoseconds.
    compression_cpu_ns,
    /// Frames that compression made smaller.
    compressed_frames,
    /// Frames written.
    frames,
    /// Frames of these written one at a time, because other regions' group commits would have
    /// waited for them at the device.
    short_queue_frames,
    /// Device flushes.
    device_flushes,
    /// Checkpoints committed.
    checkpoints,
    /// Time of the last checkpoint since the region was opened, nanoseconds on the region's clock;
    /// 0: there was none.
    checkpoint_at_ns,
    /// Group commits made.
    group_commits,
    /// Nanoseconds spent in checkpoints.
    checkpoint_ns,
    /// Longest time that one cut held all lanes (barrier) or all faults (trap), nanoseconds.
    cut_ns_max,
    /// Times a writer had to wait for budget or a frame buffer.
    stalls,
    /// Nanoseconds that writers waited in barrier mode (the wait of a trapped store is counted, not
    /// timed).
    stall_ns,
    /// Longest wait of a writer in barrier mode, nanoseconds.
    stall_ns_max,
    /// The observed rate of the device, bytes per second; 0: not known.
    observed_rate_bytes_per_s,
    /// Samples of the observed rate.
    rate_samples,
    /// Write faults taken (trap modes).
    faults,
    /// Pages that were protected again (trap modes).
    reprotections,
    /// Epochs of the policy (trap modes): in each, every page then open was protected once.
    epochs,
    /// Duration of the policy's last epoch (trap modes), nanoseconds: the configured epoch, or
    /// longer where protecting so many pages would have cost more than a tenth of it.
    epoch_ns_last,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Relaxed);
    }
}
