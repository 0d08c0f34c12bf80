//! The processor's counters of this process's misses, where the machine shows them.
//!
//! The layout passed to the kernel is the first version of `perf_event_attr`, 64 bytes, which never
//! changes.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use serde::{Deserialize, Serialize};

/// The hardware counters in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counter {
    /// Misses of the last-level cache, as the processor defines them.
    Cache,
    /// Loads that missed the last-level cache.
    LastLevelLoads,
    /// Loads whose translation was not in the TLB.
    DataTlbLoads,
}

const HARDWARE: u32 = 0;
const HARDWARE_CACHE: u32 = 3;
const READ_MISS: u64 = 1 << 16;
const CACHE_LL: u64 = 2;
const CACHE_DTLB: u64 = 3;
const CACHE_MISSES: u64 = 3;
/// Bits: not disabled (0); inherited by threads (1); without the kernel (5) and the hypervisor (6).
const FLAGS: u64 = (1 << 1) | (1 << 5) | (1 << 6);

impl Counter {
    /// All counters.
    pub const ALL: [Self; 3] = [Self::Cache, Self::LastLevelLoads, Self::DataTlbLoads];

    /// The counter's name in `perf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache-misses",
            Self::LastLevelLoads => "LLC-load-misses",
            Self::DataTlbLoads => "dTLB-load-misses",
        }
    }

    fn kind_and_config(self) -> (u32, u64) {
        match self {
            Self::Cache => (HARDWARE, CACHE_MISSES),
            Self::LastLevelLoads => (HARDWARE_CACHE, CACHE_LL | READ_MISS),
            Self::DataTlbLoads => (HARDWARE_CACHE, CACHE_DTLB | READ_MISS),
        }
    }
}

/// Why a counter cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum CounterError {
    /// The kernel refuses the counter.
    #[error("counter {}: {source}", counter.name())]
    Refused {
        /// Which counter.
        counter: Counter,
        /// The system's reason.
        source: io::Error,
    },
}

/// Counters that run since they were opened.
#[derive(Debug)]
pub struct Counters(Vec<(Counter, File)>);

#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_kind: u32,
    breakpoint_address: u64,
}

impl Counters {
    /// Opens the counters that the machine has; returns the reasons for the missing ones.
    pub fn open() -> (Self, Vec<CounterError>) {
        let (mut open, mut missing) = (Vec::new(), Vec::new());
        for counter in Counter::ALL {
            match open_one(counter) {
                Ok(file) => open.push((counter, file)),
                Err(source) => missing.push(CounterError::Refused { counter, source }),
            }
        }
        (Self(open), missing)
    }

    /// The counts so far.
    ///
    /// # Errors
    /// A counter that could be opened cannot be read.
    pub fn read(&mut self) -> Result<Vec<(Counter, u64)>, CounterError> {
        let one = |(counter, file): &mut (Counter, File)| {
            let mut count = [0; 8];
            file.read_exact(&mut count)
                .map_err(|source| CounterError::Refused { counter: *counter, source })?;
            Ok((*counter, u64::from_ne_bytes(count)))
        };
        self.0.iter_mut().map(one).collect()
    }
}

fn open_one(counter: Counter) -> io::Result<File> {
    let (kind, config) = counter.kind_and_config();
    open_event(kind, config)
}

/// Counts this process and the threads that it will start; kind and configuration are numbered as
/// in the kernel.
///
/// # Errors
/// The machine has no such counter, or does not show it.
pub fn open_event(kind: u32, config: u64) -> io::Result<File> {
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes { kind, size, config, flags: FLAGS, ..Attributes::default() };
    // SAFETY: the kernel reads `size` bytes of a live value; the other words are this process (0),
    // any processor (-1), no group (-1), closed on exec (8).
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, 0, -1, -1, 8) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just created, and nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_counted_or_says_why_not() {
        let (mut counters, missing) = Counters::open();
        let before = counters.read().unwrap();
        assert_eq!(before.len() + missing.len(), Counter::ALL.len());
        assert!(missing.iter().all(|error| error.to_string().starts_with("counter ")));
        let after = counters.read().unwrap();
        assert!(before.iter().zip(&after).all(|(before, after)| before.1 <= after.1));
    }

    #[test]
    fn the_attributes_have_the_size_that_the_kernel_knows() {
        assert_eq!(size_of::<Attributes>(), 64);
    }
}
