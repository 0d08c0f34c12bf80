//! Memory of this process, as the system sees it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::sys::alloc;

/// What a run took above what was there before it and its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Most that malloc had given out at once.
    pub malloc_peak_bytes: u64,
    /// Most that was resident at once, of all kinds.
    pub resident_peak_bytes: u64,
    /// Of it, at the end: mapped files and heaps. Not DRAM where these are not.
    pub resident_mapped_bytes: u64,
}

/// Counters are the process's: one gauge at a time.
static MEASURING: Mutex<()> = Mutex::new(());

/// Measures from when it was made.
#[derive(Debug)]
pub struct Gauge {
    _alone: MutexGuard<'static, ()>,
    before_bytes: u64,
    mapped_before_bytes: u64,
}

impl Gauge {
    /// Before the data are there.
    pub fn new() -> Self {
        let alone = MEASURING.lock().unwrap_or_else(PoisonError::into_inner);
        alloc::trim();
        alloc::count_from_here();
        let before_bytes = of_status("VmRSS:").unwrap_or(0);
        Self { _alone: alone, before_bytes, mapped_before_bytes: mapped_bytes() }
    }

    /// Forgets the peak of what was resident while the data were made.
    pub fn begin_run(&self) {
        // Where the system does not know how, the peak is that of the whole process: too much,
        // never too little.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }

    /// After the run.
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

/// Of files, the program's own included, and of memory files.
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
