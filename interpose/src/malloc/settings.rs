//! Settings from the environment, which `perdura run` sets.
//!
//! - `PERDURA_CAPACITY`: `anonymous` (private memory), or a directory on the medium to use: the
//!   memory is then a file without a name in that directory. Without it there is no heap.
//! - `PERDURA_CAPACITY_BYTES`: most bytes of capacity memory. The default is the machine's memory,
//!   or the free memory of `PERDURA_NUMA_NODE`, and at most 64 GiB. Bytes that are not allocated
//!   cost nothing (docs/heap.md).
//! - `PERDURA_NUMA_NODE`: number of the NUMA node that the memory comes from.
//! - `PERDURA_CAPACITY_REPORT`: `1` reports at the end, on standard error, how much was used.

use std::ffi::OsString;
use std::path::PathBuf;

use perdura_heap::HEAP_BYTES_MIN;

use crate::environment::Environment;

const BYTES_MOST: u64 = 64 << 30;

/// Settings of the heap to open.
pub struct Settings {
    /// Directory of the heap's file; `None` for private memory.
    pub dir: Option<PathBuf>,
    /// Bytes of the heap; `None` for as many as the system gives.
    pub bytes: Option<u64>,
    pub numa_node: Option<u32>,
    pub report: bool,
}

/// A setting whose value is refused.
#[derive(Debug)]
pub struct Wrong {
    pub name: &'static str,
    pub value: OsString,
    pub expected: &'static str,
}

fn number<T: std::str::FromStr>(
    environment: &Environment,
    name: &'static str,
    expected: &'static str,
) -> Result<Option<T>, Wrong> {
    let Some(value) = environment.get(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match value.to_str().and_then(|text| text.trim().parse().ok()) {
        Some(number) => Ok(Some(number)),
        None => Err(Wrong { name, value: value.to_owned(), expected }),
    }
}

impl Settings {
    /// The settings; `None`: no heap is asked for.
    pub fn of(environment: &Environment) -> Result<Option<Self>, Wrong> {
        let dir = match environment.get("PERDURA_CAPACITY") {
            None => return Ok(None),
            Some(word) if word.is_empty() => return Ok(None),
            Some(word) if word == "anonymous" => None,
            Some(word) => Some(PathBuf::from(word)),
        };
        let bytes = number(environment, "PERDURA_CAPACITY_BYTES", "a number of bytes")?;
        let numa_node = number(environment, "PERDURA_NUMA_NODE", "the number of a NUMA node")?;
        let report = environment.get("PERDURA_CAPACITY_REPORT").is_some_and(|word| word == "1");
        Ok(Some(Self { dir, bytes, numa_node, report }))
    }
}

/// Bytes of a heap whose size was not set.
pub fn default_bytes(numa_node: Option<u32>) -> u64 {
    if let Some(bytes) = numa_node.and_then(free_bytes_of) {
        // The kernel ends a program that needs memory of a full node. Memory beyond the heap comes
        // from other nodes.
        return (bytes / 16 * 15).clamp(HEAP_BYTES_MIN, BYTES_MOST);
    }
    // SAFETY: the calls only return numbers.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let all = u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0);
    all.clamp(1 << 30, BYTES_MOST)
}

/// Bytes of a NUMA node that are free or hold cached files; `None` if the system does not tell.
fn free_bytes_of(node: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/node/node{node}/meminfo");
    let meminfo = std::fs::read_to_string(path).ok()?;
    let kib_of = |name: &str| {
        // `Node 1 MemFree:   393216 kB`
        let mut lines = meminfo.lines().filter_map(|line| line.split_once(name));
        lines.next()?.1.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let kib = [" MemFree:", " Active(file):", " Inactive(file):"].into_iter().map(kib_of);
    kib.sum::<Option<u64>>()?.checked_mul(1024)
}
