//! Memory of this process, as the system sees it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::sys::alloc;

/// Memory that a run took, without what was there before it and without its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Most bytes that malloc had given out at once.
    pub malloc_peak_bytes: u64,
    /// Most bytes, of all kinds, that were resident at once.
    pub resident_peak_bytes: u64,
    /// Resident bytes of mapped files and heaps at the end, a part of the resident memory. They are
    /// no DRAM where files and heaps are not in DRAM.
    pub resident_mapped_bytes: u64,
}

/// Held by each gauge, for the counters are the whole process's.
static MEASURING: Mutex<()> = Mutex::new(());

/// Measures memory from its creation on.
#[derive(Debug)]
pub struct Gauge {
    _alone: MutexGuard<'static, ()>,
    before_bytes: u64,
    mapped_before_bytes: u64,
}

impl Gauge {
    /// Begins before the data exist.
    pub fn new() -> Self {
        let alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
        alloc::trim();
        alloc::count_from_here();
        let before_bytes = of_status("VmRSS:").unwrap_or(0);
        Self { _alone: alone, before_bytes, mapped_before_bytes: mapped_bytes() }
    }

    /// Forgets the peak of resident memory that making the data caused.
    pub fn begin_run(&self) {
        // Where the system cannot do so, the peak is that of the whole process: too high, never too
        // low.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }

    /// Ends the measurement after the run.
    pub fn end(self) -> Memory {
        let malloc_peak_bytes = alloc::counted_peak_bytes();
        let peak_bytes = of_status("VmHWM:").unwrap_or(0);
        Memory {
            malloc_peak_bytes,
            resident_peak_bytes: peak_bytes.saturating_sub(self.before_bytes),
            resident_mapped_bytes: mapped_bytes().saturating_sub(self.mapped_before_bytes),
        }
    }
}

impl Default for Gauge {
    fn default() -> Self {
        Self::new()
    }
}

/// Resident bytes of files, the program's own and memory files included.
fn mapped_bytes() -> u64 {
    ["RssFile:", "RssShmem:"].iter().filter_map(|name| of_status(name)).sum()
}

fn of_status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_what_it_touches() {
        let gauge = Gauge::new();
        gauge.begin_run();
        let touched = vec![1u8; 32 << 20];
        std::hint::black_box(&touched);
        let memory = gauge.end();
        assert!(memory.malloc_peak_bytes >= 32 << 20, "{memory:?}");
        assert!(memory.resident_peak_bytes >= 31 << 20, "{memory:?}");
    }
}
