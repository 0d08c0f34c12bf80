//! Figures of the operating system about this process; zeros and empty texts where it has none.

use std::fs::read_to_string;

/// Resident memory of the process, bytes.
pub(super) fn resident_bytes() -> u64 {
    let statm = read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// Memory of the machine, bytes.
pub(super) fn machine_bytes() -> u64 {
    rustix::system::sysinfo().totalram.saturating_mul(u64::from(rustix::system::sysinfo().mem_unit))
}

/// Processor time, seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTime {
    pub user_s: f64,
    pub system_s: f64,
    /// Processor time of processes that this one started and that have ended.
    pub children_user_s: f64,
    pub children_system_s: f64,
}

/// Processor time of the process, all its threads together.
pub(super) fn process_cpu() -> CpuTime {
    cpu("/proc/self/stat")
}

/// Processor time of the thread that asks, which is the event loop's.
pub(super) fn thread_cpu() -> CpuTime {
    cpu("/proc/thread-self/stat")
}

fn cpu(path: &str) -> CpuTime {
    let stat = read_to_string(path).unwrap_or_default();
    // The name, in brackets, may contain anything; the fields counted here begin after it.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    let seconds = |at: usize| {
        fields.split(' ').nth(at).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0) / per_second
    };
    CpuTime {
        user_s: seconds(11),
        system_s: seconds(12),
        children_user_s: seconds(13),
        children_system_s: seconds(14),
    }
}

/// The file that this process runs.
pub(super) fn executable() -> String {
    std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default()
}

/// System, release and machine, as `uname` names them.
pub(super) fn system() -> String {
    let name = rustix::system::uname();
    let words = [name.sysname(), name.release(), name.machine()];
    words.map(|word| word.to_string_lossy()).join(" ")
}
